//! Why a bid is refused, and what an accepted one does.

use super::*;

#[test]
fn a_bid_is_checked_in_the_documented_order() {
    // In each row two neighbouring checks would refuse, and the earlier one decides.
    let mut early = Play::new(auction());
    early.check(&[(STARTS - 1, Offer("own", 10), "own_listing")]);
    let mut late = Play::new(auction());
    late.check(&[
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("ann", 20), "already_highest_bidder"),
        (STARTS, Offer("poor", 20), "bid_too_low 21"),
        (STARTS, Offer("poor", 21), "insufficient_points 0"),
        (ENDS + 1, Offer("ann", 30), "not_in_progress"),
        // Here all checks would refuse.
        (ENDS + 1, Offer("own", 1), "own_listing"),
        (ENDS + 1, Offer("poor", 1), "not_in_progress"),
        (ENDS, Offer("ann", 1), "already_highest_bidder"),
    ]);
}

#[test]
fn the_period_of_bids_includes_both_ends() {
    let rows = [
        (STARTS - 1, "not_in_progress"),
        (STARTS, "bid 1 ends 10000 fence 2"),
        (STARTS + 1, "bid 1 ends 10000 fence 2"),
        (ENDS - 1, "bid 1 ends 10000 fence 2"),
        (ENDS, "bid 1 ends 10000 fence 2"),
        (ENDS + 1, "not_in_progress"),
    ];
    for (now, wanted) in rows {
        Play::new(auction()).check(&[(now, Offer("ann", 10), wanted)]);
    }
}

#[test]
fn a_period_of_one_instant_takes_a_bid() {
    let mut play = Play::new(ListingSettings { starts_at: Some(at(ENDS)), ..auction() });
    play.check(&[
        (ENDS - 1, Offer("ann", 10), "not_in_progress"),
        (ENDS, Offer("ann", 10), "bid 1 ends 10000 fence 2"),
        (ENDS + 1, Offer("bob", 11), "not_in_progress"),
    ]);
}

#[test]
fn bids_rise_from_the_price_by_one_or_by_the_increment() {
    let mut by_one = Play::new(auction());
    by_one.check(&[
        (STARTS, Offer("ann", 9), "bid_too_low 10"),
        (STARTS, Offer("ann", 10), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("bob", 10), "bid_too_low 11"),
        (STARTS, Offer("bob", 11), "bid 2 ends 10000 fence 3"),
        (STARTS, Offer("ann", 100), "bid 3 ends 10000 fence 4"),
    ]);
    let mut by_seven = Play::new(auction_with(|terms| terms.min_increment = Some(amount(7))));
    by_seven.check(&[
        // The first bid needs the price alone.
        (STARTS, Offer("ann", 9), "bid_too_low 10"),
        (STARTS, Offer("ann", 10), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("bob", 16), "bid_too_low 17"),
        (STARTS, Offer("bob", 17), "bid 2 ends 10000 fence 3"),
        (STARTS, Offer("ann", 30), "bid 3 ends 10000 fence 4"),
        (STARTS, Offer("cid", 36), "bid_too_low 37"),
    ]);
}

#[test]
fn of_two_equal_bids_the_first_wins_and_nothing_is_given_back_twice() {
    let mut play = Play::new(auction());
    play.check(&[
        (STARTS, Offer("ann", 40), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("bob", 50), "bid 2 ends 10000 fence 3"),
        (STARTS, Offer("cid", 50), "bid_too_low 51"),
        (STARTS, Step::Balance("ann"), "100 of 100"),
        (STARTS, Step::Balance("bob"), "50 of 100"),
        (STARTS, Step::Balance("cid"), "100 of 100"),
    ]);
}

#[test]
fn the_largest_price_can_be_bid_and_not_exceeded() {
    let mut play = Play::new(ListingSettings { price: amount(1), ..auction() });
    play.check(&[
        (0, Charge("ann", 1_000_000_000_000), "1000000000100 of 1000000000100"),
        (0, Charge("bob", 1_000_000_000_000), "1000000000100 of 1000000000100"),
        (STARTS, Offer("ann", 1), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("bob", 1_000_000_000_000), "bid 2 ends 10000 fence 3"),
        (STARTS, Offer("ann", 1_000_000_000_000), "bid_too_low 1000000000001"),
    ]);
    let step = auction_with(|terms| terms.min_increment = Some(amount(1_000_000_000_000)));
    let mut play = Play::new(step);
    play.check(&[
        (STARTS, Offer("ann", 10), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("bob", 100), "bid_too_low 1000000000010"),
    ]);
}

#[test]
fn a_bid_needs_points_that_no_other_bid_holds() {
    let mut play = Play::new(auction());
    play.list("vase", auction());
    play.check_of("vase", &[(STARTS, Offer("ann", 60), "bid 1 ends 10000 fence 2")]);
    play.check(&[
        (STARTS, Offer("ann", 41), "insufficient_points 40"),
        (STARTS, Offer("ann", 40), "bid 1 ends 10000 fence 2"),
        (STARTS, Refund("ann", 1), "Insufficient"),
        (STARTS, Offer("bob", 101), "insufficient_points 100"),
        (STARTS, Offer("bob", 41), "bid 2 ends 10000 fence 3"),
        (STARTS, Offer("ann", 42), "insufficient_points 40"),
    ]);
    play.check_of(
        "vase",
        &[(STARTS, Offer("bob", 61), "insufficient_points 59"), (STARTS, Offer("cid", 61), "bid 2 ends 10000 fence 3")],
    );
    play.check(&[(STARTS, Offer("ann", 100), "bid 3 ends 10000 fence 4")]);
}

#[test]
fn who_was_outbid_bids_again_and_only_the_new_price_is_held() {
    let mut play = Play::new(auction());
    play.check(&[
        (STARTS, Offer("ann", 60), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("ann", 70), "already_highest_bidder"),
        (STARTS, Offer("bob", 61), "bid 2 ends 10000 fence 3"),
        // Of 100 points, 60 were held before.
        (STARTS, Offer("ann", 90), "bid 3 ends 10000 fence 4"),
        (STARTS, Step::Balance("ann"), "10 of 100"),
        (STARTS, Step::Balance("bob"), "100 of 100"),
    ]);
}

#[test]
fn a_bid_writes_the_new_hold_and_the_end_of_the_old_one() {
    let mut play = Play::new(auction());
    let before = play.records.len();
    play.check(&[
        (STARTS, Offer("ann", 10), "bid 1 ends 10000 fence 2"),
        (STARTS + 5, Offer("bob", 12), "bid 2 ends 10000 fence 3"),
    ]);
    assert_eq!(play.written(before), ["ann HOLD 10 lamp#1", "bob HOLD 12 lamp#2", "ann RELEASE 10 lamp#1"]);
    let standing = play.standing();
    let highest = Bid { number: 2, bidder: member("bob"), price: amount(12), at: at(STARTS + 5) };
    assert_eq!((standing.bids, standing.highest.as_ref(), standing.last_at), (2, Some(&highest), at(STARTS + 5)));
}

#[test]
fn a_fixed_price_takes_no_bids() {
    let mut play = Play::new(fixed_price());
    play.check(&[(STARTS, Offer("ann", 10), "not_in_progress"), (STARTS, Offer("own", 10), "own_listing")]);
}

#[test]
fn after_as_many_bids_as_fit_there_are_no_more() {
    let last = |bids: u32| {
        let mut play = Play::new(auction());
        play.check(&[(STARTS, Offer("ann", 10), "bid 1 ends 10000 fence 2")]);
        let mut standing = play.standing().clone();
        (standing.bids, standing.version) = (bids, u64::from(bids) + 1);
        standing.highest = standing.highest.map(|bid| Bid { number: bids, ..bid });
        let mut listing = Listing::restore(standing).unwrap();
        // Its hold is the hold of the first bid.
        let placed = listing.bid(&member("bob"), amount(11), &mut play.wallets, at(STARTS), &mut play.records);
        placed.map(|placed| placed.bid.number)
    };
    assert_eq!(last(BIDS_MAX - 1), Ok(BIDS_MAX));
    assert_eq!(last(BIDS_MAX), Err(Rejection::NotInProgress));
}

#[test]
fn a_clock_that_goes_back_takes_no_bid_back() {
    let mut play = Play::new(auction());
    play.check(&[
        (5_000, Offer("ann", 10), "bid 1 ends 10000 fence 2"),
        // By this clock the auction would not have started.
        (STARTS - 1, Offer("bob", 11), "bid 2 ends 10000 fence 3"),
        (STARTS - 1, State, "running version 3"),
    ]);
    assert_eq!(play.standing().highest.as_ref().map(|bid| bid.at), Some(at(5_000)));
    play.check(&[
        (ENDS + 1, Tick, "closed"),
        (ENDS, Offer("ann", 12), "not_in_progress"),
        (ENDS, State, "ended version 4"),
        (ENDS, Buy("bob"), "sold to bob for 11 at 10001"),
    ]);
}
