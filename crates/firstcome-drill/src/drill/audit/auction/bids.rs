//! Checks the listed bids: numbered without gaps, rising, by members who may bid, in time.

use super::super::CheckCounter;
use super::books::Books;
use super::{seconds, who};
use crate::drill::facts::AuditCheck;

/// Checks that each bid is higher than the one before it, and by a member who may bid.
pub(super) fn bids_rise(books: &Books<'_>) -> AuditCheck {
    let says = "the bids of a listing are 1..N, each higher than the one before by the increment, never by the owner, nor twice in a row by one";
    let mut counter = CheckCounter::new("bids_rise", says);
    for (at, listing, bids) in books.listings() {
        for (count, bid) in bids.iter().enumerate() {
            let minimum = books.minimum_after(at, count);
            counter.check(bid.number as usize == count + 1, || {
                format!("l{at}: bid {} where {} belongs", bid.number, count + 1)
            });
            counter.check(minimum <= bid.price, || {
                format!("l{at}: bid {} is {}, and {minimum} was the least", bid.number, bid.price)
            });
            let before = count.checked_sub(1).map(|before| bids[before].bidder);
            let may = bid.bidder != listing.owner && before != Some(bid.bidder) && listing.terms.is_some();
            counter.check(may, || format!("l{at}: bid {} is by {}, who may not bid", bid.number, who(bid.bidder)));
        }
    }
    counter.done()
}

/// Checks that bids lie within the period, and that their instants never fall.
pub(super) fn bids_in_period(books: &Books<'_>) -> AuditCheck {
    let says = "every accepted bid lies within the period as the bids before it have put off its end";
    let mut counter = CheckCounter::new("bids_in_period", says);
    for (at, listing, bids) in books.listings() {
        for (count, bid) in bids.iter().enumerate() {
            let end_us = books.end_after(at, count).unwrap_or(listing.starts_us);
            counter.check((listing.starts_us..=end_us).contains(&bid.at_us), || {
                let (starts, at_s, ends) = (seconds(listing.starts_us), seconds(bid.at_us), seconds(end_us));
                format!("l{at}: bid {} is of {at_s}, and the period was {starts} to {ends}", bid.number)
            });
            let falls = count.checked_sub(1).is_some_and(|before| bid.at_us < bids[before].at_us);
            counter.check(!falls, || format!("l{at}: bid {} is earlier than the one before it", bid.number));
        }
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn bids_that_cannot_be_are_seen() {
        let mut story = Story::new();
        story.bid(1, 10, 100).bid(2, 15, 200).bid(1, 20, 300);
        assert_eq!(bids_rise(&story.books()).breaches, 0);
        story.bid(1, 25, 310);
        assert_eq!(bids_rise(&story.books()).breaches, 1, "twice in a row");
        story.bid(0, 26, 320).bid(2, 26, 330);
        assert_eq!(bids_rise(&story.books()).breaches, 3, "the owner, and one that does not rise");
        story.history.bids[0].remove(0);
        assert!(3 < bids_rise(&story.books()).breaches, "numbers");
    }

    #[test]
    fn bids_count_in_the_period_alone_both_ends_included() {
        let mut story = Story::new();
        story.bid(1, 10, 0).bid(2, 15, 1_000);
        assert_eq!(bids_in_period(&story.books()).breaches, 0);
        let mut late = Story::new();
        late.bid(1, 10, 1_001);
        assert_eq!(bids_in_period(&late.books()).breaches, 1);
        let mut back = Story::new();
        back.bid(1, 10, 500).bid(2, 15, 400).bid(3, 20, -1);
        assert_eq!(bids_in_period(&back.books()).breaches, 3);
    }
}
