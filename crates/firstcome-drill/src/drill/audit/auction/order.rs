//! The order of bids: as they came.

use super::super::CheckCounter;
use super::super::numbers::in_order;
use super::books::Books;
use super::seconds;
use crate::drill::auction::record::{DrillReply, RequestKind};
use crate::drill::facts::AuditCheck;
use std::collections::BTreeMap;

/// Who was told before another bid has the lower number.
pub(super) fn bids_in_order(books: &Books<'_>) -> AuditCheck {
    let says = "a bid that was answered before another was sent has the lower number";
    let mut tally = CheckCounter::new("bids_in_order", says);
    // Per listing and bid: when a request with its key was sent first, and when it was told first.
    let mut first_sent: BTreeMap<u32, u64> = BTreeMap::new();
    let mut told: BTreeMap<(u32, u32), (u32, u64)> = BTreeMap::new();
    for heard in &books.history.heard {
        let order = books.history.order(heard);
        if order.what != RequestKind::Bid {
            continue;
        }
        let (sent_us, received_us) = (heard.sent_us.cast_unsigned(), heard.received_us.cast_unsigned());
        let first = first_sent.entry(heard.order).or_insert(sent_us);
        *first = sent_us.min(*first);
        if let DrillReply::Placed(placed) = heard.told {
            let seen = told.entry((order.lot, placed.bid.number)).or_insert((heard.order, received_us));
            seen.1 = received_us.min(seen.1);
        }
    }
    for (at, ..) in books.lots() {
        let of_lot = told.range((at, 0)..=(at, u32::MAX));
        let asked = of_lot.map(|(&(_, number), &(order, told_us))| (first_sent[&order], told_us, number)).collect();
        in_order(asked, |(number, told_us), (later, sent_us)| {
            tally.check(number < later, || {
                let (told, sent) = (seconds(told_us.cast_signed()), seconds(sent_us.cast_signed()));
                format!("l{at}: bid {number} was told by {told}, and {later} was sent at {sent}")
            });
        });
    }
    tally.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn only_bids_that_do_not_overlap_have_an_order() {
        let mut story = Story::new();
        story.bid(1, 10, 100).bid(2, 15, 200);
        story.told_bid(2, 50, 210).told_bid(1, 90, 190);
        assert_eq!(bids_in_order(&story.books()).breaches, 0, "they overlap");
        let mut bad = Story::new();
        bad.bid(1, 10, 100).bid(2, 15, 200);
        bad.told_bid(2, 50, 60).told_bid(1, 90, 190);
        assert_eq!(bids_in_order(&bad.books()).breaches, 1);
    }
}
