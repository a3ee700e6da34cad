//! Checks the order of bids.

use super::super::CheckCounter;
use super::super::numbers::in_order;
use super::books::Books;
use super::seconds;
use crate::drill::auction::record::{DrillReply, RequestKind};
use crate::drill::facts::AuditCheck;
use std::collections::BTreeMap;

/// Checks that a bid that was answered before another was sent has the lower number.
pub(super) fn bids_in_order(books: &Books<'_>) -> AuditCheck {
    let says = "a bid that was answered before another was sent has the lower number";
    let mut counter = CheckCounter::new("bids_in_order", says);
    // Per listing and bid: when its key was first sent, and when it was first answered.
    let mut first_sent: BTreeMap<u32, u64> = BTreeMap::new();
    let mut told: BTreeMap<(u32, u32), (u32, u64)> = BTreeMap::new();
    for on_reply in &books.history.on_reply {
        let order = books.history.order(on_reply);
        if order.what != RequestKind::Bid {
            continue;
        }
        let (sent_us, received_us) = (on_reply.sent_us.cast_unsigned(), on_reply.received_us.cast_unsigned());
        let first = first_sent.entry(on_reply.order).or_insert(sent_us);
        *first = sent_us.min(*first);
        if let DrillReply::Placed(placed) = on_reply.told {
            let seen = told.entry((order.listing, placed.bid.number)).or_insert((on_reply.order, received_us));
            seen.1 = received_us.min(seen.1);
        }
    }
    for (at, ..) in books.listings() {
        let of_lot = told.range((at, 0)..=(at, u32::MAX));
        let asked = of_lot.map(|(&(_, number), &(order, told_us))| (first_sent[&order], told_us, number)).collect();
        in_order(asked, |(number, told_us), (later, sent_us)| {
            counter.check(number < later, || {
                let (told, sent) = (seconds(told_us.cast_signed()), seconds(sent_us.cast_signed()));
                format!("l{at}: bid {number} was told by {told}, and {later} was sent at {sent}")
            });
        });
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn only_bids_that_do_not_overlap_have_an_order() {
        let mut story = Story::new();
        story.bid(1, 10, 100).bid(2, 15, 200);
        story.accepted_bid(2, 50, 210).accepted_bid(1, 90, 190);
        assert_eq!(bids_in_order(&story.books()).breaches, 0, "they overlap");
        let mut bad = Story::new();
        bad.bid(1, 10, 100).bid(2, 15, 200);
        bad.accepted_bid(2, 50, 60).accepted_bid(1, 90, 190);
        assert_eq!(bids_in_order(&bad.books()).breaches, 1);
    }
}
