//! Checks the reads of listings: each was true at some moment while it was under way.

use super::super::CheckCounter;
use super::books::Books;
use super::seconds;
use crate::drill::auction::record::{DrillReply, Instant, ListingObservation, State};
use crate::drill::facts::AuditCheck;

/// When each change of a listing was first acknowledged: from then on every read must show it.
///
/// The instant of a bid is that of its judgement. A read may miss the bid until it is durable and acknowledged.
struct News {
    /// For each bid; the first entry is bid 1.
    bids_us: Vec<Instant>,
    sale_us: Instant,
}

impl News {
    fn of(books: &Books<'_>) -> Vec<Self> {
        let quiet = |bids: &[_]| Self { bids_us: vec![Instant::MAX; bids.len()], sale_us: Instant::MAX };
        let mut news: Vec<Self> = books.listings().map(|(_, _, bids)| quiet(bids)).collect();
        for on_reply in &books.history.on_reply {
            let listing = books.history.order(on_reply).listing;
            match on_reply.told {
                DrillReply::Placed(placed) => news[listing as usize].bid(placed.bid.number, on_reply.received_us),
                DrillReply::Sold(_) | DrillReply::AlreadySold(_) => news[listing as usize].sale(on_reply.received_us),
                _ => {}
            }
        }
        for look in books.history.looks.iter().chain(&books.history.last) {
            news[look.listing as usize].bid(look.bids, look.received_us);
            if look.sale.is_some() {
                news[look.listing as usize].sale(look.received_us);
            }
        }
        for one in &mut news {
            // An answer that shows a bid acknowledges all bids before it.
            let mut first_us = Instant::MAX;
            for bid_us in one.bids_us.iter_mut().rev() {
                first_us = first_us.min(*bid_us);
                *bid_us = first_us;
            }
        }
        news
    }

    fn bid(&mut self, number: u32, received_us: Instant) {
        let place = (number as usize).checked_sub(1).and_then(|place| self.bids_us.get_mut(place));
        if let Some(bid_us) = place {
            *bid_us = received_us.min(*bid_us);
        }
    }

    fn sale(&mut self, received_us: Instant) {
        self.sale_us = received_us.min(self.sale_us);
    }
}

/// Checks that a read shows every change acknowledged before it, none that came later, and a state that the time
/// allows.
pub(super) fn listing_true(books: &Books<'_>) -> AuditCheck {
    let says = "a look at a listing shows every bid and sale that was told before it, and a state that was true while it was under way";
    let mut counter = CheckCounter::new("listing_true", says);
    let news = News::of(books);
    for look in books.history.looks.iter().chain(&books.history.last) {
        counter.check(can_be(books, &news[look.listing as usize], look), || {
            let (sent, received) = (seconds(look.sent_us), seconds(look.received_us));
            let ListingObservation { listing, state, bids, highest, version, sale, .. } = look;
            format!(
                "l{listing}, {sent} to {received}: {state:?}, {bids} bids, {highest:?}, {sale:?}, version {version}"
            )
        });
    }
    counter.done()
}

fn can_be(books: &Books<'_>, news: &News, look: &ListingObservation) -> bool {
    let (history, count) = (books.history, look.bids as usize);
    let listing = &history.listings[look.listing as usize];
    let bids = books.bids(look.listing);
    if bids.len() < count || look.highest != count.checked_sub(1).map(|last| bids[last]) {
        return false;
    }
    let first_us = look.highest.map_or(Instant::MIN, |bid| bid.at_us);
    let (from_us, to_us) = ((look.sent_us - history.reading_us).max(first_us), look.received_us + history.reading_us);
    let missed = news.bids_us.get(count).is_some_and(|told_us| *told_us < look.sent_us);
    // A sale is shown once it is acknowledged, and never disappears.
    let shown = match look.sale {
        Some(shown) => history.last[look.listing as usize].sale == Some(shown) && shown.at_us <= to_us,
        None => look.sent_us <= news.sale_us,
    };
    let end_us = books.end_after(look.listing, count).unwrap_or(Instant::MAX);
    let settle_us = listing.terms.and_then(|terms| terms.settle_us);
    let until_us = settle_us.map_or(Instant::MAX, |settle_us| end_us + settle_us);
    // A read that shows the end shows the winner: no bid may appear afterwards.
    let over = listing.terms.is_some() && end_us < to_us && count == bids.len();
    let state = match look.state {
        State::Scheduled => from_us < listing.starts_us,
        State::Running => listing.starts_us <= to_us && from_us <= end_us && look.sale.is_none(),
        State::Ended => over && 0 < count && from_us <= until_us && look.sale.is_none(),
        State::Unsold => over && (count == 0 || until_us < to_us) && look.sale.is_none(),
        State::Sold => look.sale.is_some() && (over || listing.terms.is_none()),
        State::Unknown => false,
    };
    from_us <= to_us && !missed && shown && state
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;
    use crate::drill::auction::record::{RequestKind, Sale};

    #[test]
    fn a_look_is_true_at_some_moment() {
        let mut story = Story::new();
        story.bid(1, 10, 100).bid(2, 15, 200);
        story.accepted_bid(1, 90, 110).accepted_bid(2, 190, 210);
        story.ends_here();
        story.history.last[0].received_us = 5_000;
        let rows = [
            (0, State::Running, 105, 108, true),
            (1, State::Running, 80, 99, false),
            (0, State::Running, 50, 60, true),
            (0, State::Running, 150, 160, false),
            (1, State::Running, 90, 110, true),
            (1, State::Ended, 150, 160, false),
            (2, State::Ended, 1_001, 1_100, true),
            (2, State::Unsold, 1_001, 1_100, false),
            (2, State::Unsold, 1_201, 1_300, true),
            (2, State::Running, 1_001, 1_100, false),
            (2, State::Sold, 1_001, 1_100, false),
            (0, State::Scheduled, 10, 20, false),
            (0, State::Scheduled, -20, -10, true),
            (3, State::Running, 300, 310, false),
        ];
        for (bids, state, sent_us, received_us, fine) in rows {
            let mut one = story.clone();
            let highest = (bids as usize).checked_sub(1).and_then(|last| one.history.bids[0].get(last).copied());
            let look = ListingObservation { bids, state, highest, sent_us, received_us, ..one.history.last[0] };
            one.history.looks.push(look);
            assert_eq!(listing_true(&one.books()).breaches == 0, fine, "{bids} bids, {state:?}, {sent_us}");
        }
    }

    #[test]
    fn a_sale_is_shown_from_when_it_was_told_on() {
        let mut story = Story::fixed_price();
        let sale = story.sold(1, 10, 100);
        story.asks(RequestKind::Purchase, 1, 0, [90, 110], DrillReply::Sold(sale));
        (story.history.last[0].sent_us, story.history.last[0].received_us) = (500, 510);
        for (state, shown, sent_us, received_us, fine) in [
            (State::Running, None, 80, 90, true),
            (State::Running, None, 105, 120, true),
            (State::Running, None, 120, 130, false),
            (State::Sold, Some(sale), 95, 105, true),
            (State::Sold, Some(sale), 80, 90, false),
            (State::Sold, Some(Sale { price: 9, ..sale }), 120, 130, false),
            (State::Sold, None, 95, 105, false),
            (State::Running, Some(sale), 120, 130, false),
        ] {
            let mut one = story.clone();
            let look = ListingObservation { state, sale: shown, sent_us, received_us, ..one.history.last[0] };
            one.history.looks.push(look);
            assert_eq!(listing_true(&one.books()).breaches == 0, fine, "{state:?}, {shown:?}, {sent_us}");
        }
    }

    #[test]
    fn no_bid_comes_out_after_the_end_was_shown() {
        let mut story = Story::new();
        story.bid(1, 10, 100).bid(2, 15, 990);
        story.accepted_bid(1, 90, 110).accepted_bid(2, 980, 1_150);
        story.ends_here();
        story.history.last[0].received_us = 5_000;
        for (bids, state, sent_us, fine) in [
            (1, State::Running, 999, true),
            (1, State::Ended, 1_001, false),
            (1, State::Unsold, 1_201, false),
            (2, State::Ended, 1_001, true),
        ] {
            let mut one = story.clone();
            let highest = Some(one.history.bids[0][bids as usize - 1]);
            let received_us = sent_us + 50;
            let look = ListingObservation { bids, state, highest, sent_us, received_us, ..one.history.last[0] };
            one.history.looks.push(look);
            assert_eq!(listing_true(&one.books()).breaches == 0, fine, "{bids} bids, {state:?}");
        }
    }
}
