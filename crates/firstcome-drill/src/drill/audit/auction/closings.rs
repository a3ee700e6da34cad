//! Checks that every listing ends once, with the right outcome.

use super::super::CheckCounter;
use super::books::{Books, Owned};
use super::{seconds, who};
use crate::drill::auction::record::{DrillReply, Instant, Kind};
use crate::drill::facts::AuditCheck;

/// Checks that a listing's version counts its changes exactly.
pub(super) fn closed_once(books: &Books<'_>) -> AuditCheck {
    let says =
        "a listing's version counts what happened to it: each bid, one close, one default or sale, and nothing twice";
    let mut counter = CheckCounter::new("closed_once", says);
    for (at, listing, bids) in books.listings() {
        let last = &books.history.last[at as usize];
        let end_us = books.end(at);
        let until_us = listing.terms.and_then(|terms| terms.settle_us).map(|settle_us| end_us + settle_us);
        let now_us = last.sent_us - books.history.reading_us;
        let closed = listing.terms.is_some() && end_us < now_us;
        let defaulted =
            closed && !bids.is_empty() && last.sale.is_none() && until_us.is_some_and(|until_us| until_us < now_us);
        let happened = [closed, defaulted, last.sale.is_some()].into_iter().filter(|happened| *happened).count();
        let version = 1 + bids.len() as u64 + happened as u64;
        counter.check(last.version == version, || {
            let bids = bids.len();
            format!(
                "l{at} is of version {}, and {version} is right: {bids} bids, closed: {closed}, defaulted: {defaulted}, sold: {}",
                last.version,
                last.sale.is_some()
            )
        });
    }
    counter.done()
}

/// Checks that a listing is sold once: an auction in time to the highest bidder, else to a buyer who can pay.
pub(super) fn one_sale(books: &Books<'_>) -> AuditCheck {
    let says = "a listing is sold at most once: an auction to its highest bidder, after its end and in time; what the buyer pays the owner gets";
    let mut counter = CheckCounter::new("one_sale", says);
    for (at, listing, bids) in books.listings() {
        let of_kind = |kind: Kind| {
            let own = |owned: &&Owned<'_>| owned.record.kind == kind;
            books.about(at).filter(own).map(|owned| (owned.member, owned.record.total_delta)).collect::<Vec<_>>()
        };
        let (paid, got) = (of_kind(Kind::Purchase), of_kind(Kind::Sold));
        let Some(sale) = books.history.last[at as usize].sale else {
            counter.check(paid.is_empty() && got.is_empty(), || {
                format!("l{at} is not sold, and {paid:?} paid and {got:?} got")
            });
            continue;
        };
        let price = i64::try_from(sale.price).unwrap_or(i64::MAX);
        counter.check(paid == [(sale.buyer, -price)] && got == [(listing.owner, price)], || {
            format!("l{at} is sold to {} for {price}, and {paid:?} paid and {got:?} got", who(sale.buyer))
        });
        let (right, from_us, until_us) = match (listing.terms, bids.last()) {
            (Some(terms), Some(bid)) => {
                let end_us = books.end(at);
                let until_us = terms.settle_us.map_or(Instant::MAX, |settle_us| end_us + settle_us);
                ((bid.bidder, bid.price) == (sale.buyer, sale.price), end_us + 1, until_us)
            }
            (Some(_), None) => (false, 0, 0),
            (None, _) => (sale.price == listing.price && sale.buyer != listing.owner, listing.starts_us, Instant::MAX),
        };
        counter.check(right && (from_us..=until_us).contains(&sale.at_us), || {
            let (buyer, at_s, highest) = (who(sale.buyer), seconds(sale.at_us), bids.last());
            format!(
                "l{at} is sold to {buyer} for {price} at {at_s}; it could be from {} on, to {highest:?}",
                seconds(from_us)
            )
        });
    }
    // No answer told of another sale.
    for on_reply in &books.history.on_reply {
        if let DrillReply::Sold(told) | DrillReply::AlreadySold(told) = on_reply.told {
            let at = books.history.order(on_reply).listing;
            let sale = books.history.last[at as usize].sale;
            counter.check(sale == Some(told), || format!("l{at} was told sold as {told:?}, and it is {sale:?}"));
        }
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;
    use crate::drill::auction::record::{RequestKind, Sale};

    fn sold() -> Story {
        let mut story = Story::new();
        story.charge(1, 100, 1).bid(1, 10, 100).looked(1_100);
        story.sold(1, 10, 1_050);
        story
    }

    #[test]
    fn a_listing_ends_once() {
        assert_eq!(closed_once(&sold().books()).breaches, 0);
        let mut again = sold();
        again.history.last[0].version = 5;
        assert_eq!(closed_once(&again.books()).breaches, 1);
        let mut open = Story::new();
        open.bid(1, 10, 100).looked(500);
        open.history.last[0].version = 2;
        assert_eq!(closed_once(&open.books()).breaches, 0);
        open.looked(1_300);
        assert_eq!(closed_once(&open.books()).breaches, 1, "neither closed nor defaulted");
        open.history.last[0].version = 4;
        assert_eq!(closed_once(&open.books()).breaches, 0);
    }

    #[test]
    fn the_winner_buys_in_time() {
        assert_eq!(one_sale(&sold().books()).breaches, 0);
        let mut other = sold();
        other.bid(2, 15, 200);
        assert_eq!(one_sale(&other.books()).breaches, 1, "not the winner");
        for at_us in [1_000, 1_201] {
            let mut untimely = sold();
            untimely.history.last[0].sale = Some(Sale { buyer: 1, price: 10, at_us });
            assert_eq!(one_sale(&untimely.books()).breaches, 1, "{at_us}");
        }
        let mut twice = sold();
        twice.record(2, Kind::Purchase, 10, 1_060, 0);
        assert_eq!(one_sale(&twice.books()).breaches, 1);
        let mut unpaid = sold();
        unpaid.history.records[0].clear();
        assert_eq!(one_sale(&unpaid.books()).breaches, 1);
    }

    #[test]
    fn no_person_is_told_of_another_sale() {
        let sale = Sale { buyer: 1, price: 10, at_us: 1_050 };
        for (told, breaches) in [
            (DrillReply::Sold(sale), 0),
            (DrillReply::AlreadySold(sale), 0),
            (DrillReply::Sold(Sale { buyer: 2, ..sale }), 1),
            (DrillReply::AlreadySold(Sale { price: 11, ..sale }), 1),
            (DrillReply::Sold(Sale { at_us: 1_051, ..sale }), 1),
        ] {
            let mut story = sold();
            story.asks(RequestKind::Purchase, 1, 0, [1_040, 1_060], told);
            assert_eq!(one_sale(&story.books()).breaches, breaches, "{told:?}");
        }
    }

    #[test]
    fn a_fixed_price_is_paid_once_by_another_than_its_owner() {
        for (buyer, price, at_us, fine) in
            [(1, 10, 50, true), (1, 10, 0, true), (1, 10, -1, false), (1, 11, 50, false), (0, 10, 50, false)]
        {
            let mut story = Story::fixed_price();
            story.charge(1, 100, -10);
            story.sold(buyer, price, at_us);
            let books = story.books();
            assert_eq!(one_sale(&books).breaches == 0, fine, "m{buyer} for {price} at {at_us}");
            assert_eq!(closed_once(&books).breaches, 0);
        }
        let mut twice = Story::fixed_price();
        twice.sold(1, 10, 50);
        twice.sold(2, 10, 60);
        assert_eq!(one_sale(&twice.books()).breaches, 1);
    }
}
