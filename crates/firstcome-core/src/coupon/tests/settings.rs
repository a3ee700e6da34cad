//! Which settings an operator may change, and the states of a coupon.

use super::*;

fn in_room(count: u32, room: &str) -> CouponSettings {
    CouponSettings { room: Some(RoomName::parse(room).unwrap()), ..limited(count) }
}

#[test]
fn a_raised_limit_issues_on_with_the_next_serial() {
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (2, claim("bob"), "sold_out"),
        (3, put_limit(2), "put"),
        (4, claim("bob"), "new 2@4"),
        (5, claim("cid"), "sold_out"),
        (6, put_limit(3), "put"),
        (7, claim("ann"), "already_issued 1@1"),
        (8, claim("cid"), "new 3@8"),
    ];
    check(limited(1), &rows);
}

#[test]
fn a_limit_may_fall_to_what_is_issued_and_no_further() {
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (1, claim("bob"), "new 2@1"),
        (2, put_limit(1), "limit_below_issued 2"),
        (2, claim("cid"), "new 3@2"),
        (3, put_limit(2), "limit_below_issued 3"),
        (3, put_limit(3), "put"),
        (4, claim("dan"), "sold_out"),
        (4, Step::State, "sold_out"),
    ];
    check(limited(5), &rows);
}

#[test]
fn a_limit_may_fall_freely_while_nothing_is_issued() {
    check(limited(5), &[(1, put_limit(1), "put"), (1, claim("ann"), "new 1@1"), (1, claim("bob"), "sold_out")]);
}

#[test]
fn the_room_is_fixed_by_the_first_claim() {
    let rows = [
        (1, Step::Put(in_room(5, "blue")), "put"),
        (1, Step::Put(limited(5)), "put"),
        (1, Step::Put(in_room(5, "red")), "put"),
        (2, claim("ann"), "new 1@2"),
        (3, Step::Put(in_room(5, "blue")), "room_fixed"),
        (3, Step::Put(limited(5)), "room_fixed"),
        (3, Step::Put(in_room(9, "red")), "put"),
    ];
    check(limited(5), &rows);
    check(limited(5), &[(1, claim("ann"), "new 1@1"), (2, Step::Put(in_room(5, "red")), "room_fixed")]);
}

#[test]
fn settings_are_checked_in_the_documented_order() {
    let mut coupon = check(limited(5), &[(1, claim("ann"), "new 1@1"), (1, claim("bob"), "new 2@1")]);
    let below_and_other_room = Step::Put(in_room(1, "red"));
    check_on(&mut coupon, &[(2, below_and_other_room.clone(), "limit_below_issued 2")]);
    check_on(&mut coupon, &[(3, Step::Delete, "gone"), (4, below_and_other_room, "deleted")]);
}

#[test]
fn refused_settings_change_nothing() {
    let titled = CouponSettings { title: Title::new("kept"), ..limited(5) };
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (1, claim("bob"), "new 2@1"),
        (2, put_limit(1), "limit_below_issued 2"),
        (2, Step::Put(in_room(5, "red")), "room_fixed"),
    ];
    let coupon = check(titled.clone(), &rows);
    assert_eq!(coupon.settings(), &titled);
}

#[test]
fn new_settings_replace_all_of_the_old_ones() {
    let full = CouponSettings { redeem_until: Some(at(50)), title: Title::new("old"), ..window(5, 10, 20) };
    let mut coupon = check(full, &[(10, claim("ann"), "new 1@10"), (30, claim("bob"), "expired 20")]);
    let rows = [(30, put_limit(5), "put"), (5, claim("bob"), "new 2@10"), (60, redeem(1), "new 1@60")];
    check_on(&mut coupon, &rows);
    assert_eq!(coupon.settings(), &limited(5));
}

#[test]
fn a_deleted_coupon_issues_nothing_takes_no_settings_and_keeps_its_claims() {
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (2, Step::Delete, "gone"),
        (3, Step::Delete, "gone"),
        (4, put_limit(9), "deleted"),
        (5, claim("bob"), "deleted"),
        (6, claim("ann"), "already_issued 1@1"),
        (7, Step::State, "deleted"),
    ];
    let coupon = check(limited(5), &rows);
    assert!(coupon.is_deleted());
    assert_eq!(coupon.claim_of("ann"), Some(issued(1, 1)));
    assert!(!super::coupon(limited(1)).is_deleted(), "a new coupon is not deleted");
}

#[test]
#[should_panic(expected = "a deleted coupon has no new settings")]
fn settings_that_were_not_judged_do_not_reach_a_deleted_coupon() {
    let mut coupon = check(limited(5), &[(1, Step::Delete, "gone")]);
    coupon.replace_settings(limited(5));
}

#[test]
#[should_panic(expected = "limit below issued")]
fn settings_that_were_not_judged_do_not_go_below_what_is_issued() {
    let mut coupon = check(limited(5), &[(1, claim("ann"), "new 1@1"), (1, claim("bob"), "new 2@1")]);
    coupon.replace_settings(limited(1));
}

#[test]
fn the_state_follows_the_order_of_the_refusals() {
    let rows = [
        (99, Step::State, "scheduled"),
        (100, Step::State, "open"),
        (100, claim("ann"), "new 1@100"),
        (199, Step::State, "open"),
        (199, claim("bob"), "new 2@199"),
        (199, Step::State, "sold_out"),
        (99, Step::State, "scheduled"),
        (200, Step::State, "expired"),
        (200, Step::Delete, "gone"),
        (200, Step::State, "deleted"),
        (99, Step::State, "deleted"),
    ];
    check(window(2, 100, 200), &rows);
}

#[test]
fn the_state_counts_only_the_claims_it_is_told_to() {
    let coupon = check(limited(2), &[(1, claim("ann"), "new 1@1"), (1, claim("bob"), "new 2@1")]);
    let rows = [(0, CouponState::Open), (1, CouponState::Open), (2, CouponState::SoldOut)];
    for (durable, wanted) in rows {
        assert_eq!(coupon.state(durable, at(1)), wanted, "{durable} durable claims");
    }
}

#[test]
fn the_time_matters_exactly_if_there_is_a_window() {
    let rows = [(None, None, false), (Some(5), None, true), (None, Some(9), true), (Some(5), Some(9), true)];
    for (opens_at, expires_at, timed) in rows {
        let (opens_at, expires_at) = (opens_at.map(at), expires_at.map(at));
        let settings = CouponSettings { opens_at, expires_at, redeem_until: Some(at(20)), ..limited(3) };
        assert_eq!(coupon(settings).is_timed(), timed, "{opens_at:?} {expires_at:?}");
    }
}

#[test]
fn a_purged_coupon_is_over_whatever_the_clock_says() {
    let settings =
        CouponSettings { opens_at: Some(at(1)), expires_at: Some(at(50)), redeem_until: Some(at(90)), ..limited(5) };
    let purged = |deleted| CouponStanding { settings: &settings, deleted, purged_at: Some(at(100)), issued: 2 };
    let rows = [
        // At, deleted, a claim, a redemption, the state.
        (200, false, Rejection::Expired(at(50)), Rejection::Expired(at(90)), CouponState::Expired),
        (60, false, Rejection::Expired(at(50)), Rejection::Deleted, CouponState::Expired),
        (0, false, Rejection::Deleted, Rejection::Deleted, CouponState::Deleted),
        (200, true, Rejection::Deleted, Rejection::Expired(at(90)), CouponState::Deleted),
    ];
    for (now, deleted, claim, redemption, state) in rows {
        let standing = purged(deleted);
        assert_eq!(standing.judge_newcomer(at(now)), Err(claim), "{now}");
        assert_eq!(standing.judge_redemptions(at(now)), Err(redemption), "{now}");
        assert_eq!(standing.judge_reads(), Err(Rejection::Purged(at(100))));
        assert_eq!(standing.state(at(now)), state, "{now}");
        assert_eq!(standing.judge_settings(&settings.clone().into()), Err(Rejection::Deleted));
    }
    let kept = CouponStanding { purged_at: None, ..purged(false) };
    assert_eq!((kept.judge_redemptions(at(200)), kept.judge_reads()), (Ok(()), Ok(())));
}
