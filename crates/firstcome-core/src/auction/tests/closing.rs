//! The effects of time: auctions close once, and a winner who does not settle loses the hold once.

use super::*;

#[test]
fn an_auction_is_due_after_its_last_instant() {
    let mut play = Play::new(settled_soon());
    let due = |play: &Play| play.listings["lamp"].due_at().map(Timestamp::as_us);
    assert_eq!(due(&play), Some(ENDS + 1));
    play.check(&[
        (0, Tick, "nothing"),
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (ENDS, Tick, "nothing"),
        (ENDS, State, "running version 2"),
        // Time decides, whether or not a command has closed the listing.
        (ENDS + 1, State, "ended version 2"),
        (ENDS + 1, Tick, "closed"),
        (ENDS + 1, Tick, "nothing"),
        (ENDS + 1, State, "ended version 3"),
    ]);
    assert_eq!(due(&play), Some(15_001));
    play.check(&[
        (15_000, Tick, "nothing"),
        (15_000, State, "ended version 3"),
        (15_001, State, "unsold version 3"),
        (15_001, Step::Balance("ann"), "80 of 100"),
        (15_001, Tick, "defaulted"),
        (15_001, Step::Balance("ann"), "100 of 100"),
        (15_001, Tick, "nothing"),
        (15_001, State, "unsold version 4"),
        (i64::MAX, Tick, "nothing"),
        (i64::MAX, Buy("ann"), "settlement_expired 15000"),
    ]);
    assert_eq!(due(&play), None);
    assert_eq!(play.written(3), ["ann HOLD 20 lamp#1", "ann RELEASE 20 lamp#1"]);
}

#[test]
fn an_auction_that_no_member_looked_at_is_closed_and_expires_in_one_step() {
    let mut play = Play::new(settled_soon());
    play.check(&[
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (99_999, Tick, "defaulted"),
        (99_999, State, "unsold version 4"),
        (99_999, Tick, "nothing"),
    ]);
    assert_eq!(play.standing().phase, Phase::Unsold(at(99_999)));
}

#[test]
fn an_auction_without_bids_is_unsold_at_its_end() {
    let mut play = Play::new(settled_soon());
    play.check(&[
        (ENDS, State, "running version 1"),
        (ENDS + 1, State, "unsold version 1"),
        (ENDS + 1, Tick, "closed"),
        (ENDS + 1, Tick, "nothing"),
        (ENDS + 1, State, "unsold version 2"),
        (99_999, Tick, "nothing"),
    ]);
    assert_eq!((play.listings["lamp"].due_at(), play.written(3)), (None, vec![]));
}

#[test]
fn the_hold_of_a_winner_who_does_not_settle_is_free_for_other_bids() {
    let mut play = Play::new(settled_soon());
    play.list("vase", auction_with(|terms| terms.ends_at = at(99_000)));
    play.check(&[(STARTS, Offer("ann", 100), "bid 1 ends 10000 fence 2"), (15_001, State, "unsold version 2")]);
    play.check_of("vase", &[(15_001, Offer("ann", 10), "insufficient_points 0")]);
    play.check(&[(15_001, Tick, "defaulted")]);
    play.check_of("vase", &[(15_001, Offer("ann", 100), "bid 1 ends 99000 fence 2")]);
}

#[test]
fn a_clock_that_goes_back_opens_nothing_again() {
    let mut play = Play::new(settled_soon());
    play.check(&[
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (12_000, Tick, "closed"),
        (0, State, "ended version 3"),
        (0, Offer("bob", 21), "not_in_progress"),
        (0, Tick, "nothing"),
        (0, Put(auction()), "listing_ended"),
        (0, Buy("ann"), "sold to ann for 20 at 12000"),
        (0, State, "sold version 4"),
    ]);
    let mut play = Play::new(settled_soon());
    play.check(&[
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (15_001, Tick, "defaulted"),
        (15_000, Buy("ann"), "settlement_expired 15000"),
        (0, State, "unsold version 4"),
    ]);
}

#[test]
fn an_auction_may_be_put_when_it_is_over_already() {
    let mut play = Play::new(auction());
    let past =
        ListingSettings { starts_at: Some(at(-9)), ..ListingSettings::auction(member("own"), amount(1), at(-5)) };
    play.list("past", past);
    play.check_of(
        "past",
        &[
            (0, State, "unsold version 1"),
            (0, Offer("ann", 10), "not_in_progress"),
            (0, Tick, "closed"),
            (0, Tick, "nothing"),
        ],
    );
}
