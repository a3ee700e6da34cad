//! Checks the effects: each was requested, and none was refused.

use super::super::CheckCounter;
use super::books::Books;
use super::{seconds, who};
use crate::drill::auction::record::{Instant, Kind, ReceivedReply, RequestKind};
use crate::drill::facts::AuditCheck;
use std::collections::BTreeMap;

/// The content of a request: call, member, listing, amount.
type Wish = (RequestKind, u32, u32, u64);

/// Checks that every bid, purchase, charge and refund has its own order, sent before it and not only refused.
pub(super) fn nothing_unasked(books: &Books<'_>) -> AuditCheck {
    let says =
        "every bid, purchase, charge and refund was asked for before it happened, happened once, and was not refused";
    let mut counter = CheckCounter::new("nothing_unasked", says);
    let history = books.history;
    let mut earliest: BTreeMap<Wish, Instant> = BTreeMap::new();
    for (at, on_reply) in history.by_order() {
        let order = history.orders[at as usize];
        // A refused order has no effect; an order without an answer may have had one.
        let effect = |on_reply: &&&ReceivedReply| on_reply.told.is_effect() || on_reply.told.is_undecided();
        let Some(sent_us) = on_reply.iter().filter(effect).map(|on_reply| on_reply.sent_us).min() else { continue };
        let wish = (order.what, order.member, order.listing, order.amount);
        earliest.entry(wish).and_modify(|first| *first = sent_us.min(*first)).or_insert(sent_us);
    }
    let mut done: BTreeMap<Wish, u32> = BTreeMap::new();
    let mut check = |wish: Wish, at_us: Instant| {
        let times = done.entry(wish).or_insert(0);
        *times += 1;
        let asked = earliest.get(&wish).is_some_and(|sent_us| sent_us - history.reading_us <= at_us);
        counter.check(asked && *times == 1, || {
            let (what, member, listing, amount) = wish;
            let about = if what == RequestKind::Bid || what == RequestKind::Purchase {
                format!(" of l{listing}")
            } else {
                String::new()
            };
            format!(
                "{}{about} by {}, {amount}, at {}: asked for: {asked}, done {times} times",
                what.name(),
                who(member),
                seconds(at_us)
            )
        });
    };
    for (at, _, bids) in books.listings() {
        for bid in bids {
            check((RequestKind::Bid, bid.bidder, at, bid.price), bid.at_us);
        }
        for owned in books.about(at).filter(|owned| owned.record.kind == Kind::Purchase) {
            check((RequestKind::Purchase, owned.member, at, 0), owned.record.at_us);
        }
    }
    for (member, records) in (0..).zip(&history.records) {
        for record in records {
            let what = match record.kind {
                Kind::Charge => RequestKind::Charge,
                Kind::Refund => RequestKind::Refund,
                _ => continue,
            };
            check((what, member, record.listing, record.total_delta.unsigned_abs()), record.at_us);
        }
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;
    use crate::drill::auction::record::DrillReply;

    #[test]
    fn what_no_person_asked_for_is_seen() {
        let mut story = Story::new();
        story.charge(1, 100, 50).bid(1, 10, 100).accepted_bid(1, 90, 110);
        story.asks(RequestKind::Charge, 1, 100, [40, 60], DrillReply::Lost);
        assert_eq!(nothing_unasked(&story.books()).breaches, 0, "one that got no answer may have happened");
        let mut alone = story.clone();
        alone.bid(2, 12, 200);
        assert_eq!(nothing_unasked(&alone.books()).breaches, 1);
        let mut refused = story.clone();
        refused.bid(2, 12, 200).asks(RequestKind::Bid, 2, 12, [190, 210], DrillReply::TooLow(13));
        assert_eq!(nothing_unasked(&refused.books()).breaches, 1);
        let mut twice = story.clone();
        twice.charge(1, 100, 70);
        assert_eq!(nothing_unasked(&twice.books()).breaches, 1);
        let mut early = story;
        early.history.on_reply[0].sent_us = 5_000_000;
        assert_eq!(nothing_unasked(&early.books()).breaches, 1);
    }
}
