//! Checks the end of an auction: only accepted bids put it off.

use super::super::CheckCounter;
use super::books::Books;
use super::seconds;
use crate::drill::auction::record::{DrillReply, Instant};
use crate::drill::facts::AuditCheck;

/// Checks that every end in an answer is the one that the accepted bids so far lead to.
pub(super) fn end_follows_bids(books: &Books<'_>) -> AuditCheck {
    let says = "an end that was told is the one that the accepted bids lead to: a refused bid puts nothing off";
    let mut counter = CheckCounter::new("end_follows_bids", says);
    let compare = |counter: &mut CheckCounter, at: u32, bids: u32, told_us: Instant| {
        let end_us = books.end_after(at, bids as usize);
        counter.check(end_us == Some(told_us), || {
            let right = end_us.map_or("none".into(), seconds);
            format!("l{at}: after {bids} bids the end was told as {}, and it is {right}", seconds(told_us))
        });
    };
    for on_reply in &books.history.on_reply {
        if let DrillReply::Placed(placed) = on_reply.told {
            compare(&mut counter, books.history.order(on_reply).listing, placed.bid.number, placed.ends_us);
        }
    }
    for on_reply in &books.history.on_reply {
        if let DrillReply::NotEnded(told_us) = on_reply.told {
            let listing = books.history.order(on_reply).listing;
            let window = books.window(on_reply);
            let stood = |bids: usize| {
                let end_us = books.end_after(listing, bids);
                end_us == Some(told_us) && books.while_after(listing, bids, window).is_some()
            };
            let stands = books.bid_states(listing, window).any(stood);
            counter.check(stands, || {
                format!(
                    "l{listing}: who settled too early was told {}, and the bids up to then do not lead to it",
                    seconds(told_us)
                )
            });
        }
    }
    for look in books.history.looks.iter().chain(&books.history.last) {
        if let Some(told_us) = look.ends_us {
            compare(&mut counter, look.listing, look.bids, told_us);
        }
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;
    use crate::drill::auction::record::RequestKind;

    #[test]
    fn only_accepted_late_bids_put_the_end_off() {
        let mut story = Story::new();
        story.extend(100, 50, 1);
        // The first bid is early, the second is late, and the third exceeds the number of extensions.
        story.bid(1, 10, 500).bid(2, 15, 950).bid(1, 20, 1_020);
        story.accepted_bid(1, 490, 510).accepted_bid(2, 940, 960).accepted_bid(3, 1_010, 1_030);
        let ends: Vec<Instant> = (0..=3).filter_map(|bids| story.books().end_after(0, bids)).collect();
        assert_eq!(ends, [1_000, 1_000, 1_050, 1_050]);
        story.ends_here();
        assert_eq!(end_follows_bids(&story.books()).breaches, 0);
        story.history.last[0].ends_us = Some(1_100);
        assert_eq!(end_follows_bids(&story.books()).breaches, 1);
        let mut refused = story.clone();
        refused.asks(RequestKind::Purchase, 1, 0, [960, 970], DrillReply::NotEnded(1_050));
        assert_eq!(end_follows_bids(&refused.books()).breaches, 1);
        refused.asks(RequestKind::Purchase, 1, 0, [960, 970], DrillReply::NotEnded(1_100));
        assert_eq!(end_follows_bids(&refused.books()).breaches, 2);
    }
}
