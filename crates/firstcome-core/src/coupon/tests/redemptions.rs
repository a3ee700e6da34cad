//! Which users may redeem a coupon, once, and until when.

use super::*;

fn redeemable_until(until: i64, count: u32) -> CouponSettings {
    CouponSettings { redeem_until: Some(at(until)), ..limited(count) }
}

#[test]
fn a_redemption_is_checked_in_the_documented_order() {
    let mut coupon = check(
        redeemable_until(50, 5),
        &[
            (1, claim("ann"), "new 1@1"),
            (1, claim("bob"), "new 2@1"),
            (10, with_key(redeem_as("ann", 1), 1, 10), "new 1@10"),
        ],
    );
    // Too late, redeemed, another user's, unknown and a repeat, all at once; each row removes one reason.
    let rows = [
        (60, with_key(redeem_as("ann", 1), 1, 10), "again 1@10"),
        (60, with_key(redeem_foreign_code(), 1, 11), "idempotency_key_reused 1"),
        (60, with_key(redeem_as("bob", 1), 1, 11), "idempotency_key_reused 1"),
        (60, redeem_foreign_code(), "unknown_code"),
        (60, redeem_as("ann", 3), "unknown_code"),
        (60, redeem_as("bob", 1), "wrong_user"),
        (60, redeem_as("ann", 1), "already_redeemed 1@10"),
        (60, redeem(1), "already_redeemed 1@10"),
        (60, redeem_as("ann", 2), "wrong_user"),
        (60, redeem_as("bob", 2), "expired 50"),
        (49, redeem_as("bob", 2), "new 2@49"),
    ];
    check_on(&mut coupon, &rows);
}

#[test]
fn redeeming_ends_before_redeem_until() {
    let claims = [(1, claim("ann"), "new 1@1"), (1, claim("bob"), "new 2@1")];
    let rows = [(49, redeem(1), "new 1@49"), (50, redeem(2), "expired 50"), (51, redeem(2), "expired 50")];
    check_on(&mut check(redeemable_until(50, 5), &claims), &rows);
    let last = Timestamp::MAX.as_us();
    let never = format!("new 1@{last}");
    check_on(&mut check(limited(5), &claims), &[(last, redeem(1), &never)]);
}

#[test]
fn a_serial_has_a_code_from_the_moment_it_is_issued() {
    let rows = [
        (1, redeem(1), "unknown_code"),
        (2, claim("ann"), "new 1@2"),
        (3, redeem(2), "unknown_code"),
        (3, redeem(1), "new 1@3"),
    ];
    check(limited(5), &rows);
}

#[test]
fn each_coupon_is_used_up_once_and_on_its_own() {
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (1, claim("bob"), "new 2@1"),
        (2, redeem(2), "new 2@2"),
        (3, redeem(2), "already_redeemed 2@2"),
        (4, redeem(1), "new 1@4"),
        (5, redeem(1), "already_redeemed 1@4"),
        (6, redeem(2), "already_redeemed 2@2"),
    ];
    let coupon = check(limited(5), &rows);
    assert_eq!(coupon.redeemed(serial(1)), Some(redeemed(1, 4)));
    assert_eq!(coupon.redeemed(serial(2)), Some(redeemed(2, 2)));
    assert_eq!(coupon.issued(), 2, "a coupon that is used up is still issued");
}

#[test]
fn a_refused_redemption_uses_nothing_up() {
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (2, redeem_as("bob", 1), "wrong_user"),
        (60, redeem(1), "expired 50"),
        (3, redeem_as("ann", 1), "new 1@3"),
    ];
    check(redeemable_until(50, 1), &rows);
}

#[test]
fn a_coupon_that_issues_no_more_is_redeemed_all_the_same() {
    let claims = [(100, claim("ann"), "new 1@100"), (100, claim("bob"), "new 2@100")];
    let sold_out = check(window(2, 100, 200), &claims);
    assert_eq!(sold_out.state(sold_out.issued(), at(150)), CouponState::SoldOut);
    let mut ended = sold_out;
    check_on(&mut ended, &[(150, redeem(1), "new 1@150"), (300, redeem(2), "new 2@300")]);
    let mut deleted = check(window(2, 100, 200), &claims);
    let rows = [(120, Step::Delete, "gone"), (121, redeem(1), "new 1@121"), (121, redeem(1), "already_redeemed 1@121")];
    check_on(&mut deleted, &rows);
}

#[test]
fn a_redemption_is_never_earlier_than_its_claim() {
    let rows = [
        (10, claim("ann"), "new 1@10"),
        (20, claim("bob"), "new 2@20"),
        (15, redeem(2), "new 2@20"),
        (15, redeem(1), "new 1@15"),
    ];
    check(limited(5), &rows);
}

#[test]
fn a_repeated_redemption_is_answered_with_its_effect() {
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (1, claim("bob"), "new 2@1"),
        (2, with_key(redeem(1), 7, 70), "new 1@2"),
        (3, with_key(redeem(1), 7, 70), "again 1@2"),
        (99, with_key(redeem(1), 7, 70), "again 1@2"),
        (99, with_key(redeem(2), 7, 71), "idempotency_key_reused 1"),
        (99, with_key(redeem(1), 8, 70), "already_redeemed 1@2"),
    ];
    check(limited(5), &rows);
}

#[test]
fn a_refused_redemption_leaves_no_key_behind() {
    let rows = [
        (1, claim("ann"), "new 1@1"),
        (2, with_key(redeem_as("bob", 1), 7, 70), "wrong_user"),
        (3, with_key(redeem_as("ann", 1), 7, 71), "new 1@3"),
    ];
    check(limited(5), &rows);
}

#[test]
fn a_key_of_a_claim_and_a_key_of_a_redemption_are_two() {
    let rows = [
        (1, keyed("ann", 7, 70), "new 1@1"),
        (2, with_key(redeem(1), 7, 71), "new 1@2"),
        (3, keyed("ann", 7, 70), "again 1@1"),
        (3, with_key(redeem(1), 7, 71), "again 1@2"),
        (3, keyed("ann", 7, 71), "idempotency_key_reused 1"),
        (3, with_key(redeem(1), 7, 70), "idempotency_key_reused 1"),
    ];
    check(limited(5), &rows);
}
