//! Restored state is accepted only if it agrees with the rules.

use super::*;

fn request(key: u128) -> Option<RequestId> {
    Some(RequestId { key, body: 1 })
}

/// A coupon for three with ann (key 1, at 10) and bob (no key, at 20).
fn two_restored() -> Coupon {
    let mut coupon = coupon(limited(3));
    assert_eq!(coupon.restore_claim(issued(1, 10), &user_id("ann"), request(1)), Ok(()));
    assert_eq!(coupon.restore_claim(issued(2, 20), &user_id("bob"), None), Ok(()));
    coupon
}

#[test]
fn a_stored_claim_that_breaks_a_rule_is_named() {
    let rows = [
        (issued(1, 20), "cid", None, Err(Damage::Gap)),
        (issued(2, 20), "cid", None, Err(Damage::Gap)),
        (issued(4, 20), "cid", None, Err(Damage::Gap)),
        (issued(3, 19), "cid", None, Err(Damage::TimeFell)),
        (issued(3, 20), "ann", None, Err(Damage::UserTwice)),
        (issued(3, 20), "bob", None, Err(Damage::UserTwice)),
        (issued(3, 20), "cid", request(1), Err(Damage::KeyTwice)),
        (issued(3, 20), "cid", request(2), Ok(())),
        (issued(3, 20), "cid", None, Ok(())),
    ];
    for (claim, user, request, wanted) in rows {
        let mut coupon = two_restored();
        let told = coupon.restore_claim(claim, &user_id(user), request);
        assert_eq!(told, wanted, "{claim:?} of {user} with {request:?}");
        assert_eq!(coupon.issued(), if wanted.is_ok() { 3 } else { 2 }, "damage leaves no trace: {wanted:?}");
        assert_sound(&coupon);
    }
}

#[test]
fn the_first_stored_claim_has_serial_one() {
    let mut coupon = coupon(limited(3));
    assert_eq!(coupon.restore_claim(issued(2, 10), &user_id("ann"), None), Err(Damage::Gap));
    assert_eq!(coupon.restore_claim(issued(1, 10), &user_id("ann"), None), Ok(()));
}

#[test]
fn stored_claims_may_fill_the_limit_and_not_exceed_it() {
    let mut coupon = coupon(limited(2));
    let told = ["ann", "bob", "cid"].map(|user| {
        let next = issued(coupon.issued() + 1, 10);
        coupon.restore_claim(next, &user_id(user), None)
    });
    assert_eq!(told, [Ok(()), Ok(()), Err(Damage::Oversold)]);
}

#[test]
fn a_damaged_claim_leaves_no_key_behind() {
    let mut coupon = two_restored();
    assert_eq!(coupon.restore_claim(issued(3, 19), &user_id("cid"), request(9)), Err(Damage::TimeFell));
    assert_eq!(coupon.restore_claim(issued(3, 20), &user_id("ann"), request(9)), Err(Damage::UserTwice));
    assert_eq!(coupon.restore_claim(issued(3, 20), &user_id("cid"), request(9)), Ok(()));
}

#[test]
fn a_stored_redemption_needs_its_claim_and_stands_once() {
    let rows = [
        (redeemed(3, 30), None, Err(Damage::StrayRedemption)),
        (redeemed(1, 30), None, Err(Damage::StrayRedemption)),
        (redeemed(2, 19), None, Err(Damage::StrayRedemption)),
        (redeemed(2, 20), None, Ok(())),
        (redeemed(2, 30), request(5), Err(Damage::KeyTwice)),
        (redeemed(2, 30), request(6), Ok(())),
        (redeemed(2, 30), None, Ok(())),
    ];
    for (redemption, request_id, wanted) in rows {
        let mut coupon = two_restored();
        assert_eq!(coupon.restore_redemption(redeemed(1, 25), request(5)), Ok(()));
        assert_eq!(coupon.restore_redemption(redemption, request_id), wanted, "{redemption:?} with {request_id:?}");
        assert_eq!(coupon.redeemed(serial(1)), Some(redeemed(1, 25)));
        assert_eq!(coupon.redeemed(serial(2)).is_some(), wanted.is_ok(), "damage leaves no trace: {wanted:?}");
    }
    let mut empty = coupon(limited(3));
    assert_eq!(empty.restore_redemption(redeemed(1, 30), None), Err(Damage::StrayRedemption));
}

#[test]
fn a_restored_coupon_goes_on_where_it_stood() {
    let mut coupon = two_restored();
    assert_eq!(coupon.restore_redemption(redeemed(1, 25), request(5)), Ok(()));
    let rows = [
        (5, keyed("ann", 1, 1), "again 1@10"),
        (5, keyed("ann", 1, 2), "idempotency_key_reused 1"),
        (5, claim("bob"), "already_issued 2@20"),
        (5, with_key(redeem(1), 5, 1), "again 1@25"),
        (5, redeem(1), "already_redeemed 1@25"),
        // The clock of this start is behind: instants still never fall.
        (5, claim("cid"), "new 3@20"),
        (6, claim("dan"), "sold_out"),
        (21, redeem(2), "new 2@21"),
    ];
    check_on(&mut coupon, &rows);
}

/// Claims and redemptions that are taken back leave nothing, over the border of two segments too.
#[test]
fn what_is_taken_back_was_never_there() {
    let mut coupon = super::coupon(limited(10_000));
    let by = |number: u32, key: u128| Claim {
        user: user_id(&format!("user-{number}")),
        attributes: None,
        request: Some(RequestId { key, body: 1 }),
    };
    let now = Timestamp::clamped_us(10);
    let issue = |coupon: &mut Coupon, claim: &Claim| match coupon.claim(claim, now) {
        Ok(Effect::New(issued)) => issued,
        other => panic!("{other:?}"),
    };
    let first: Vec<_> = (1..=4_090).map(|number| issue(&mut coupon, &by(number, number.into()))).collect();
    let late: Vec<_> = (5_001..=5_020).map(|number| (number, issue(&mut coupon, &by(number, number.into())))).collect();
    let used = Redeem { serial: Some(late[3].1.serial), user: None, request: Some(RequestId { key: 1, body: 1 }) };
    let Ok(Effect::New(redeemed)) = coupon.redeem(&used, now) else { panic!("it is used up") };

    coupon.take_back_redemption(redeemed, used.request);
    for (number, issued) in late.iter().rev() {
        coupon.take_back_claim(*issued, by(*number, (*number).into()).request);
    }
    assert_eq!(coupon.issued(), 4_090);
    assert_eq!(coupon.claim_of("user-5001"), None);
    assert_eq!(coupon.claim_of("user-4090"), first.last().copied());
    assert_eq!(coupon.judge_redeem(&used, now), Err(Rejection::UnknownCode));
    // Other users get the places, under keys that are free again.
    for (number, (_, issued)) in (6_001_u32..).zip(&late) {
        assert_eq!(issue(&mut coupon, &by(number, u128::from(number - 1_000))), *issued);
        assert_eq!(coupon.claim_at(issued.serial).map(|(user, _)| user.to_owned()), Some(format!("user-{number}")));
    }
    assert!(matches!(coupon.redeem(&used, now), Ok(Effect::New(_))));
}
