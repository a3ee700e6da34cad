//! Listings at a fixed price.

use super::*;

#[test]
fn a_purchase_is_checked_in_the_documented_order() {
    let full = BALANCE_MAX;
    let mut play = Play::new(fixed_price());
    play.check(&[
        (STARTS - 1, Buy("own"), "own_listing"),
        (STARTS - 1, Buy("poor"), "not_in_progress"),
        (STARTS, Buy("poor"), "insufficient_points 0"),
    ]);
    // The owner has no room for one point more.
    let mut rich = play.clone();
    rich.fill("own", full);
    rich.check(&[
        (STARTS, Buy("poor"), "insufficient_points 0"),
        (STARTS, Buy("ann"), "balance_too_large"),
        (STARTS, Refund("own", 9), &format!("{0} of {0}", full - 9)),
        (STARTS, Buy("ann"), "balance_too_large"),
        (STARTS, Refund("own", 1), &format!("{0} of {0}", full - 10)),
        (STARTS, Buy("ann"), "sold to ann for 10 at 1000"),
        (STARTS, Step::Balance("own"), &format!("{full} of {full}")),
    ]);
    play.check(&[
        (STARTS, Buy("ann"), "sold to ann for 10 at 1000"),
        (STARTS + 1, Buy("own"), "own_listing"),
        (STARTS + 1, Buy("poor"), "already_sold to ann at 1000"),
        (STARTS + 1, Buy("ann"), "already_sold to ann at 1000"),
        (STARTS + 1, Buy("bob"), "already_sold to ann at 1000"),
    ]);
}

#[test]
fn it_can_be_bought_from_its_start_on_for_ever() {
    let rows = [
        (STARTS - 1, "not_in_progress"),
        (STARTS, "sold to ann for 10 at 1000"),
        (STARTS + 1, "sold to ann for 10 at 1001"),
        (i64::MAX, "sold to ann for 10 at 253402300799999999"),
    ];
    for (now, wanted) in rows {
        Play::new(fixed_price()).check(&[(now, Buy("ann"), wanted)]);
    }
}

#[test]
fn a_purchase_moves_the_points_and_writes_it_down() {
    let mut play = Play::new(fixed_price());
    let before = play.records.len();
    play.check(&[
        (0, State, "scheduled version 1"),
        (STARTS, State, "running version 1"),
        (STARTS, Buy("ann"), "sold to ann for 10 at 1000"),
        (STARTS, State, "sold version 2"),
        (0, State, "sold version 2"),
        (STARTS, Step::Balance("ann"), "90 of 90"),
        (STARTS, Step::Balance("own"), "10 of 10"),
    ]);
    assert_eq!(play.written(before), ["ann PURCHASE 10 lamp", "own SOLD 10 lamp"]);
    assert_eq!(play.standing().phase, Phase::Sold(Sale { buyer: member("ann"), price: amount(10), at: at(STARTS) }));
}

#[test]
fn held_points_pay_for_nothing_else() {
    let mut play = Play::new(fixed_price());
    play.list("vase", auction());
    play.check_of("vase", &[(STARTS, Offer("ann", 91), "bid 1 ends 10000 fence 2")]);
    play.check(&[(STARTS, Buy("ann"), "insufficient_points 9")]);
    play.check_of("vase", &[(STARTS, Offer("bob", 92), "bid 2 ends 10000 fence 3")]);
    play.check(&[(STARTS, Buy("ann"), "sold to ann for 10 at 1000")]);
}

#[test]
fn time_does_nothing_to_a_fixed_price() {
    let mut play = Play::new(fixed_price());
    assert_eq!(play.listings["lamp"].due_at(), None);
    play.check(&[(i64::MAX, Tick, "nothing"), (i64::MAX, State, "running version 1")]);
    play.check(&[(5_000, Buy("ann"), "sold to ann for 10 at 5000"), (i64::MAX, Tick, "nothing")]);
    assert_eq!(play.listings["lamp"].due_at(), None);
}
