//! Checks the holds: one for each accepted bid, which ends once or goes on.

use super::super::CheckCounter;
use super::books::{Books, Owned};
use super::who;
use crate::drill::auction::record::{Bid, Instant, Kind, ListingRecord, STRANGER};
use crate::drill::facts::AuditCheck;

/// Checks that the hold of every bid has its price, and ended as often as it must.
pub(super) fn hold_ends_once(books: &Books<'_>) -> AuditCheck {
    let says = "each accepted bid holds its price once; the hold of who was outbid, has settled or has defaulted ends exactly once, and no other ends";
    let mut counter = CheckCounter::new("hold_ends_once", says);
    for (at, listing, bids) in books.listings() {
        for (count, bid) in bids.iter().enumerate() {
            let of_bid = |kinds: &[Kind]| {
                let own = |owned: &&Owned<'_>| kinds.contains(&owned.record.kind);
                books.about_bid(at, bid.number).iter().filter(own).copied().collect::<Vec<_>>()
            };
            let (holds, ends) = (of_bid(&[Kind::Hold]), of_bid(&[Kind::Release, Kind::Capture]));
            let of_price = |owned: &Owned<'_>, sign: i64| {
                let price = i64::try_from(bid.price).ok().map(|price| price * sign);
                owned.member == bid.bidder && Some(owned.record.available_delta) == price
            };
            let held = holds.len() == 1 && of_price(&holds[0], -1);
            counter.check(held, || {
                format!("l{at}#{} by {} of {} is held {} times", bid.number, who(bid.bidder), bid.price, holds.len())
            });
            let wanted = ending(books, at, listing, bids, count);
            let right = match (&wanted, ends.as_slice()) {
                (Ending::Goes, []) => true,
                (Ending::Once(kind, from_us), [end]) => {
                    end.record.kind == *kind && of_price(end, 1) && *from_us <= end.record.at_us
                }
                _ => false,
            };
            counter.check(right, || {
                let kinds: Vec<Kind> = ends.iter().map(|end| end.record.kind).collect();
                format!(
                    "l{at}#{} by {} of {}: the hold ended by {kinds:?}, and {wanted:?} is right",
                    bid.number,
                    who(bid.bidder),
                    bid.price
                )
            });
        }
        // A hold, or its end, without a listed bid.
        let loose = |owned: &&Owned<'_>| {
            let of_hold = matches!(owned.record.kind, Kind::Hold | Kind::Release | Kind::Capture);
            of_hold && (owned.record.bid == 0 || bids.len() < owned.record.bid as usize)
        };
        for owned in books.about(at).filter(loose) {
            counter.check(false, || {
                format!("l{at}: {:?} of {} for bid {}", owned.record.kind, who(owned.member), owned.record.bid)
            });
        }
    }
    for owned in books.about(STRANGER) {
        counter.check(false, || {
            format!("{:?} of {} is about nothing that was sold", owned.record.kind, who(owned.member))
        });
    }
    counter.done()
}

/// How a hold must have ended.
#[derive(Debug)]
enum Ending {
    /// The hold goes on.
    Goes,
    /// The hold ended with a record of this kind, not before this instant.
    Once(Kind, Instant),
}

fn ending(books: &Books<'_>, at: u32, listing: &ListingRecord, bids: &[Bid], count: usize) -> Ending {
    if let Some(next) = bids.get(count + 1) {
        return Ending::Once(Kind::Release, next.at_us);
    }
    let last = &books.history.last[at as usize];
    let end_us = books.end(at);
    let until_us = listing.terms.and_then(|terms| terms.settle_us).map(|settle_us| end_us + settle_us);
    match (last.sale, until_us) {
        (Some(_), _) => Ending::Once(Kind::Capture, end_us + 1),
        // The last read waited until all deadlines were handled.
        (None, Some(until_us)) if until_us < last.sent_us - books.history.reading_us => {
            Ending::Once(Kind::Release, until_us + 1)
        }
        _ => Ending::Goes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    fn outbid() -> Story {
        let mut story = Story::new();
        story.charge(1, 100, 1).charge(2, 100, 1).charge(1, 200, 2);
        story.bid(1, 10, 100).bid(2, 15, 200);
        story.looked(500);
        story
    }

    #[test]
    fn a_hold_ends_once_or_goes_on() {
        assert_eq!(hold_ends_once(&outbid().books()).breaches, 0);
        let released = |records: &[crate::drill::auction::record::Movement]| {
            records.iter().position(|record| record.kind == Kind::Release).unwrap()
        };
        let mut kept = outbid();
        let place = released(&kept.history.records[1]);
        kept.history.records[1].remove(place);
        assert_eq!(hold_ends_once(&kept.books()).breaches, 1, "not released");
        let mut twice = outbid();
        let again = twice.history.records[1][place];
        twice.history.records[1].push(again);
        assert_eq!(hold_ends_once(&twice.books()).breaches, 1, "released twice");
        let mut early = outbid();
        early.history.records[1][place].at_us = 150;
        assert_eq!(hold_ends_once(&early.books()).breaches, 1, "released before it was outbid");
        let mut defaulted = outbid();
        defaulted.looked(1_300);
        assert_eq!(hold_ends_once(&defaulted.books()).breaches, 1, "the winner is late");
        defaulted.record(2, Kind::Release, 15, 1_201, 2);
        assert_eq!(hold_ends_once(&defaulted.books()).breaches, 0);
        defaulted.record(2, Kind::Release, 15, 1_202, 3);
        assert_eq!(hold_ends_once(&defaulted.books()).breaches, 1, "for no bid");
        let mut elsewhere = outbid();
        elsewhere.record(2, Kind::Hold, 15, 300, 1);
        if let Some(record) = elsewhere.history.records[2].last_mut() {
            record.listing = STRANGER;
        }
        assert_eq!(hold_ends_once(&elsewhere.books()).breaches, 1, "about nothing that was sold");
    }
}
