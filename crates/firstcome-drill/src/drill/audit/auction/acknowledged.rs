//! Checks that acknowledged effects stay.

use super::super::CheckCounter;
use super::books::Books;
use super::{seconds, who};
use crate::drill::auction::record::{DrillReply, Instant, Kind, Order, ReceivedReply, RequestKind, Sale};
use crate::drill::facts::AuditCheck;
use std::collections::BTreeMap;

/// Checks that every acknowledged effect is there at the end, unchanged, and happened while it was requested.
pub(super) fn acknowledged_stays(books: &Books<'_>) -> AuditCheck {
    let says = "every bid, purchase, charge and refund that was acknowledged is there at the end, as it was told, through every kill";
    let mut counter = CheckCounter::new("acknowledged_stays", says);
    // The effect may come from the first request with the key, long before the one that was answered.
    let mut first_sent: BTreeMap<u32, Instant> = BTreeMap::new();
    for on_reply in &books.history.on_reply {
        first_sent
            .entry(on_reply.order)
            .and_modify(|first| *first = on_reply.sent_us.min(*first))
            .or_insert(on_reply.sent_us);
    }
    for on_reply in books.history.on_reply.iter().filter(|on_reply| on_reply.told.is_effect()) {
        let order = books.history.order(on_reply);
        let found = match on_reply.told {
            DrillReply::Placed(_) => bid(books, order, on_reply),
            DrillReply::Sold(sale) => purchase(books, order, sale),
            DrillReply::Moved { total, available } => moved(books, order, total, available),
            _ => None,
        };
        let (from_us, to_us) = (first_sent[&on_reply.order] - books.history.reading_us, books.window(on_reply).1);
        counter.check(found.is_some_and(|at_us| (from_us..=to_us).contains(&at_us)), || {
            let (what, member, told) = (order.what.name(), who(order.member), on_reply.told);
            let there = found.map_or("not there at the end".into(), |at_us| format!("there as of {}", seconds(at_us)));
            format!("{what} by {member}, received {}: {told:?}, {there}", seconds(on_reply.received_us))
        });
    }
    counter.done()
}

/// Returns the instant of the listed bid, if it equals the acknowledged one.
fn bid(books: &Books<'_>, order: &Order, on_reply: &ReceivedReply) -> Option<Instant> {
    let DrillReply::Placed(placed) = on_reply.told else { return None };
    let listed = books.bids(order.listing).get((placed.bid.number as usize).checked_sub(1)?)?;
    let own = (listed.bidder, listed.price) == (order.member, order.amount);
    // Only bids change a running listing.
    let fence = placed.fence == u64::from(placed.bid.number) + 1;
    (*listed == placed.bid && own && fence).then_some(listed.at_us)
}

fn purchase(books: &Books<'_>, order: &Order, told: Sale) -> Option<Instant> {
    let stands = books.history.last[order.listing as usize].sale == Some(told) && told.buyer == order.member;
    let paid = books.about(order.listing).any(|owned| {
        let record = owned.record;
        let price = u64::try_from(-record.total_delta).ok();
        (record.kind, owned.member, price) == (Kind::Purchase, told.buyer, Some(told.price))
    });
    (stands && paid).then_some(told.at_us)
}

fn moved(books: &Books<'_>, order: &Order, total: u64, available: u64) -> Option<Instant> {
    let (kind, amount) = match order.what {
        RequestKind::Charge => (Kind::Charge, i64::try_from(order.amount).ok()?),
        _ => (Kind::Refund, -i64::try_from(order.amount).ok()?),
    };
    let records = &books.history.records[order.member as usize];
    // All amounts of a member differ.
    let place = records.iter().position(|record| (record.kind, record.total_delta) == (kind, amount))?;
    let after = books.wallets(order.member)[place + 1];
    let as_told = (u64::try_from(after.total), u64::try_from(after.available)) == (Ok(total), Ok(available));
    as_told.then_some(after.at_us)
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    fn told() -> Story {
        let mut story = Story::new();
        story.charge(1, 100, 50).bid(1, 10, 100).accepted_bid(1, 90, 110);
        story.asks(RequestKind::Charge, 1, 100, [40, 60], DrillReply::Moved { total: 100, available: 100 });
        story.ends_here();
        story
    }

    #[test]
    fn what_was_told_is_there_at_the_end() {
        assert_eq!(acknowledged_stays(&told().books()).breaches, 0);
        let mut lost = told();
        lost.history.bids[0].clear();
        assert_eq!(acknowledged_stays(&lost.books()).breaches, 1);
        let mut other = told();
        other.history.bids[0][0].price = 11;
        assert_eq!(acknowledged_stays(&other.books()).breaches, 1);
        let mut late = told();
        late.history.on_reply[0].sent_us = 105;
        assert_eq!(acknowledged_stays(&late.books()).breaches, 1, "it happened before anybody asked");
        let mut poor = told();
        poor.history.records[1].remove(0);
        assert_eq!(acknowledged_stays(&poor.books()).breaches, 1);
        let mut more = told();
        more.asks(RequestKind::Charge, 1, 100, [40, 60], DrillReply::Moved { total: 101, available: 101 });
        assert_eq!(acknowledged_stays(&more.books()).breaches, 1);
    }

    #[test]
    fn a_purchase_that_was_told_is_there_and_paid() {
        let mut story = Story::fixed_price();
        let sale = story.charge(1, 100, 10).sold(1, 10, 50);
        let told = |story: &Story, member: u32, sale: Sale| {
            let mut story = story.clone();
            story.asks(RequestKind::Purchase, member, 0, [40, 60], DrillReply::Sold(sale));
            acknowledged_stays(&story.books()).breaches
        };
        assert_eq!(told(&story, 1, sale), 0);
        assert_eq!(told(&story, 2, sale), 1, "it is another's");
        assert_eq!(told(&story, 1, Sale { price: 9, ..sale }), 1, "for less");
        assert_eq!(told(&story, 1, Sale { at_us: 51, ..sale }), 1, "at another time");
        let mut lost = story.clone();
        lost.history.last[0].sale = None;
        assert_eq!(told(&lost, 1, sale), 1, "it is gone");
        let mut unpaid = story;
        unpaid.history.records[1].pop();
        assert_eq!(told(&unpaid, 1, sale), 1, "nobody paid");
    }
}
