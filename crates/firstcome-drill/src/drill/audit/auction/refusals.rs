//! Checks the refusals: each was true at some moment between sent and received.

use super::super::CheckCounter;
use super::books::Books;
use super::{seconds, who};
use crate::drill::auction::record::{DrillReply, Instant, ListingRecord, Order, ReceivedReply, RequestKind, Sale};
use crate::drill::facts::AuditCheck;

/// Checks that every refusal has a reason that held at some time while the request was under way.
pub(super) fn refusals_true(books: &Books<'_>) -> AuditCheck {
    let says = "every refusal was true at some moment between sent and received, and the first that applied in the order of checks";
    let mut counter = CheckCounter::new("refusals_true", says);
    for on_reply in &books.history.on_reply {
        let order = books.history.order(on_reply);
        // Another check judges the refusals of keys.
        if on_reply.told.is_undecided() || matches!(on_reply.told, DrillReply::KeyReused | DrillReply::Unexpected) {
            continue;
        }
        // Only the owner gets `own_listing`, and the owner gets no other answer, except when settling an auction.
        let own = order.what == RequestKind::Bid
            || order.what == RequestKind::Purchase && books.history.listings[order.listing as usize].terms.is_none();
        let is_owner = own && books.history.listings[order.listing as usize].owner == order.member;
        let fine = match on_reply.told {
            DrillReply::OwnListing => is_owner,
            _ if is_owner => false,
            told if told.is_effect() => true,
            told => can_be(books, order, told, books.window(on_reply)),
        };
        counter.check(fine, || example(order, on_reply));
    }
    counter.done()
}

fn example(order: &Order, on_reply: &ReceivedReply) -> String {
    let (sent, received) = (seconds(on_reply.sent_us), seconds(on_reply.received_us));
    let (what, member, told) = (order.what.name(), who(order.member), on_reply.told);
    format!("{what} of l{} by {member} at {}, sent {sent}, received {received}: {told:?}", order.listing, order.amount)
}

fn can_be(books: &Books<'_>, order: &Order, told: DrillReply, window: (Instant, Instant)) -> bool {
    match order.what {
        RequestKind::Bid => bid_refused(books, order, told, window),
        RequestKind::Purchase => {
            let listing = &books.history.listings[order.listing as usize];
            let sale = books.history.last[order.listing as usize].sale;
            if listing.terms.is_some() {
                settlement_refused(books, order, told, sale, window)
            } else {
                fixed_refused(books, order, listing, told, sale, window)
            }
        }
        RequestKind::Refund => match told {
            DrillReply::Insufficient(available) => {
                available < order.amount && books.had(order.member, available, window)
            }
            _ => false,
        },
        RequestKind::Charge | RequestKind::View => false,
    }
}

/// Order of checks: own listing, not in progress, already highest bidder, too low, not enough points.
fn bid_refused(books: &Books<'_>, order: &Order, told: DrillReply, window: (Instant, Instant)) -> bool {
    let listing = &books.history.listings[order.listing as usize];
    if told == DrillReply::NotInProgress {
        return listing.terms.is_none() || window.0 < listing.starts_us || books.end(order.listing) < window.1;
    }
    let bids = books.bids(order.listing);
    books.bid_states(order.listing, window).any(|count| {
        let Some(part) = books.live(order.listing, count, window) else { return false };
        let is_highest = count.checked_sub(1).is_some_and(|last| bids[last].bidder == order.member);
        let minimum = books.minimum_after(order.listing, count);
        match told {
            DrillReply::AlreadyHighest => is_highest,
            _ if is_highest => false,
            DrillReply::TooLow(least) => least == minimum && order.amount < minimum,
            _ if order.amount < minimum => false,
            DrillReply::Insufficient(available) => available < order.amount && books.had(order.member, available, part),
            _ => false,
        }
    })
}

/// Order of checks: not ended, not the winner, already sold, settlement expired.
fn settlement_refused(
    books: &Books<'_>,
    order: &Order,
    told: DrillReply,
    sale: Option<Sale>,
    window: (Instant, Instant),
) -> bool {
    if let DrillReply::NotEnded(told_us) = told {
        let until = |part: (Instant, Instant)| part.0 <= told_us;
        return books.bid_states(order.listing, window).any(|count| {
            let holds = books.end_after(order.listing, count) == Some(told_us);
            holds && books.while_after(order.listing, count, window).is_some_and(until)
        });
    }
    let end_us = books.end(order.listing);
    if window.1 <= end_us {
        return false;
    }
    let is_winner = books.bids(order.listing).last().is_some_and(|bid| bid.bidder == order.member);
    let settle_us = books.history.listings[order.listing as usize].terms.and_then(|terms| terms.settle_us);
    match told {
        DrillReply::NotWinner => !is_winner,
        _ if !is_winner => false,
        DrillReply::AlreadySold(told) => sale == Some(told) && told.at_us <= window.1,
        DrillReply::SettlementExpired(until_us) => {
            settle_us == Some(until_us - end_us) && until_us < window.1 && sale.is_none()
        }
        _ => false,
    }
}

/// Order of checks: own listing, not in progress, already sold, not enough points.
fn fixed_refused(
    books: &Books<'_>,
    order: &Order,
    listing: &ListingRecord,
    told: DrillReply,
    sale: Option<Sale>,
    window: (Instant, Instant),
) -> bool {
    match told {
        DrillReply::NotInProgress => window.0 < listing.starts_us,
        DrillReply::AlreadySold(told) => sale == Some(told) && told.at_us <= window.1,
        DrillReply::Insufficient(available) => {
            let unsold_us = sale.map_or(Instant::MAX, |sale| sale.at_us);
            let part = (window.0.max(listing.starts_us), window.1.min(unsold_us));
            part.0 <= part.1 && available < listing.price && books.had(order.member, available, part)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[track_caller]
    fn check(story: &Story, rows: &[(u32, u64, Instant, Instant, DrillReply, bool)]) {
        for &(member, amount, sent_us, received_us, told, fine) in rows {
            let mut one = story.clone();
            one.asks(RequestKind::Bid, member, amount, [sent_us, received_us], told);
            let breaches = refusals_true(&one.books()).breaches;
            assert_eq!(breaches == 0, fine, "m{member} bid {amount}, {sent_us} to {received_us}: {told:?}");
        }
    }

    #[test]
    fn a_refusal_is_true_at_some_moment_of_its_request() {
        let mut story = Story::new();
        story.charge(1, 100, 1).charge(2, 100, 1).charge(3, 12, 1);
        story.bid(1, 10, 100).bid(2, 15, 200);
        check(
            &story,
            &[
                (0, 50, 10, 20, DrillReply::OwnListing, true),
                (1, 50, 10, 20, DrillReply::OwnListing, false),
                (0, 50, 10, 20, DrillReply::TooLow(10), false),
                (1, 5, 10, 20, DrillReply::TooLow(10), true),
                (1, 5, 10, 20, DrillReply::TooLow(11), false),
                (3, 11, 90, 110, DrillReply::TooLow(11), false),
                (3, 10, 90, 110, DrillReply::TooLow(11), true),
                (3, 10, 10, 20, DrillReply::TooLow(11), false),
                (1, 20, 90, 110, DrillReply::AlreadyHighest, true),
                (1, 20, 210, 220, DrillReply::AlreadyHighest, false),
                (2, 10, 210, 220, DrillReply::TooLow(16), false),
                (3, 20, 210, 220, DrillReply::Insufficient(12), true),
                (3, 20, 210, 220, DrillReply::Insufficient(13), false),
                (3, 12, 210, 220, DrillReply::Insufficient(12), false),
                (3, 20, -10, -5, DrillReply::NotInProgress, true),
                (3, 20, 500, 600, DrillReply::NotInProgress, false),
                (3, 20, 990, 1_001, DrillReply::NotInProgress, true),
                (3, 1, 1_001, 1_100, DrillReply::TooLow(16), false),
            ],
        );
    }

    #[test]
    fn settlements_are_refused_for_a_reason() {
        let mut story = Story::new();
        story.charge(1, 100, 1).bid(1, 10, 100);
        let rows = [
            (1, 900, 950, DrillReply::NotEnded(1_000), true),
            (1, 900, 950, DrillReply::NotEnded(1_001), false),
            (1, 1_001, 1_050, DrillReply::NotEnded(1_000), false),
            (2, 1_001, 1_050, DrillReply::NotWinner, true),
            (1, 1_001, 1_050, DrillReply::NotWinner, false),
            (2, 900, 950, DrillReply::NotWinner, false),
            (1, 1_300, 1_350, DrillReply::SettlementExpired(1_200), true),
            (1, 1_100, 1_150, DrillReply::SettlementExpired(1_200), false),
            (1, 1_300, 1_350, DrillReply::SettlementExpired(1_100), false),
        ];
        for (member, sent_us, received_us, told, fine) in rows {
            let mut one = story.clone();
            one.ends_here();
            one.asks(RequestKind::Purchase, member, 0, [sent_us, received_us], told);
            assert_eq!(refusals_true(&one.books()).breaches == 0, fine, "m{member} {sent_us}: {told:?}");
        }
        story.ends_here();
        let sale = story.sold(1, 10, 1_050);
        let rows = [
            (1, 1_060, 1_070, DrillReply::AlreadySold(sale), true),
            (1, 1_040, 1_045, DrillReply::AlreadySold(sale), false),
            (1, 1_060, 1_070, DrillReply::AlreadySold(Sale { price: 9, ..sale }), false),
            (2, 1_060, 1_070, DrillReply::AlreadySold(sale), false),
            (1, 1_300, 1_350, DrillReply::SettlementExpired(1_200), false),
        ];
        for (member, sent_us, received_us, told, fine) in rows {
            let mut one = story.clone();
            one.asks(RequestKind::Purchase, member, 0, [sent_us, received_us], told);
            assert_eq!(refusals_true(&one.books()).breaches == 0, fine, "sold, m{member} {sent_us}: {told:?}");
        }
    }

    #[test]
    fn a_fixed_price_is_refused_for_a_reason() {
        let mut story = Story::fixed_price();
        story.charge(1, 100, -50).charge(2, 9, -50);
        let sale = story.sold(1, 10, 100);
        let rows = [
            (0, 50, 60, DrillReply::OwnListing, true),
            (0, 110, 120, DrillReply::AlreadySold(sale), false),
            (1, 50, 60, DrillReply::OwnListing, false),
            (1, -20, -10, DrillReply::NotInProgress, true),
            (1, 50, 60, DrillReply::NotInProgress, false),
            (2, 50, 60, DrillReply::Insufficient(9), true),
            (2, 50, 60, DrillReply::Insufficient(8), false),
            (1, 50, 60, DrillReply::Insufficient(100), false),
            (2, -20, -10, DrillReply::Insufficient(9), false),
            (2, 110, 120, DrillReply::Insufficient(9), false),
            (2, 110, 120, DrillReply::AlreadySold(sale), true),
            (2, 50, 60, DrillReply::AlreadySold(sale), false),
            (2, 110, 120, DrillReply::NotWinner, false),
        ];
        for (member, sent_us, received_us, told, fine) in rows {
            let mut one = story.clone();
            one.asks(RequestKind::Purchase, member, 0, [sent_us, received_us], told);
            assert_eq!(refusals_true(&one.books()).breaches == 0, fine, "m{member} {sent_us}: {told:?}");
        }
        for (told, fine) in [
            (DrillReply::Insufficient(9), true),
            (DrillReply::Insufficient(8), false),
            (DrillReply::Insufficient(10), false),
            (DrillReply::NotInProgress, false),
        ] {
            let mut one = story.clone();
            one.asks(RequestKind::Refund, 2, 10, [50, 60], told);
            assert_eq!(refusals_true(&one.books()).breaches == 0, fine, "a refund: {told:?}");
        }
    }
}
