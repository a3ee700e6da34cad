//! Values that constructors check, and codes that never change.

use super::*;

#[test]
fn serials_and_limits_are_one_to_a_hundred_million() {
    let rows = [(0, false), (1, true), (2, true), (100_000_000, true), (100_000_001, false), (u32::MAX, false)];
    for (number, fits) in rows {
        assert_eq!(Serial::new(number).map(Serial::get), fits.then_some(number), "serial {number}");
        assert_eq!(CouponLimit::new(number).map(CouponLimit::get), fits.then_some(number), "limit {number}");
    }
}

#[test]
fn texts_are_bounded_in_bytes() {
    let text = |bytes: usize| "x".repeat(bytes);
    for bytes in [0, 1, 255, 256] {
        assert_eq!(Title::new(&text(bytes)).unwrap().as_str(), text(bytes));
    }
    assert_eq!(Title::new(&text(257)), None);
    assert_eq!(Title::new(&"é".repeat(129)), None, "bytes, not characters");
    assert_eq!(Title::new("two\nlines"), None, "one line");
    for bytes in [0, 1, 1_023, 1_024] {
        assert_eq!(Attributes::new(&text(bytes)).unwrap().as_str(), text(bytes));
    }
    assert_eq!(Attributes::new(&text(1_025)), None);
}

#[test]
fn every_refusal_has_the_code_of_the_contract() {
    let rows = [
        (Rejection::UnknownCoupon, "unknown_coupon"),
        (Rejection::KeyReused(serial(1)), "idempotency_key_reused"),
        (Rejection::AlreadyIssued(issued(1, 1)), "already_issued"),
        (Rejection::Deleted, "deleted"),
        (Rejection::Purged(at(1)), "purged"),
        (Rejection::NotOpen(at(1)), "not_open"),
        (Rejection::Expired(at(1)), "expired"),
        (Rejection::SoldOut, "sold_out"),
        (Rejection::LimitBelowIssued(1), "limit_below_issued"),
        (Rejection::RoomFixed, "room_fixed"),
        (Rejection::UnknownCode, "unknown_code"),
        (Rejection::WrongUser, "wrong_user"),
        (Rejection::AlreadyRedeemed(redeemed(1, 1)), "already_redeemed"),
    ];
    for (rejection, code) in rows {
        assert_eq!(rejection.code(), code, "{rejection:?}");
    }
}

#[test]
fn every_state_is_spelt_as_in_the_contract() {
    let rows = [
        (CouponState::Scheduled, "scheduled"),
        (CouponState::Open, "open"),
        (CouponState::SoldOut, "sold_out"),
        (CouponState::Expired, "expired"),
        (CouponState::Deleted, "deleted"),
    ];
    for (state, word) in rows {
        assert_eq!(state.as_str(), word, "{state:?}");
    }
}

#[test]
fn every_damage_says_which_rule_is_broken() {
    let rows = [
        (Damage::Gap, "1..issued"),
        (Damage::UserTwice, "user"),
        (Damage::Oversold, "limit"),
        (Damage::TimeFell, "earlier instant"),
        (Damage::KeyTwice, "idempotency key"),
        (Damage::StrayRedemption, "redemption"),
    ];
    for (damage, word) in rows {
        assert!(damage.as_str().contains(word), "{damage:?}: {}", damage.as_str());
    }
}

#[test]
fn an_effect_told_in_another_way_stays_new_or_repeated() {
    assert_eq!(Effect::New(1).map(|value| value + 1), Effect::New(2));
    assert_eq!(Effect::Again(1).map(|value| value + 1), Effect::Again(2));
    assert_eq!(Effect::New(1).into_inner(), 1);
    assert_eq!(Effect::Again(2).into_inner(), 2);
}

#[test]
fn settings_with_a_limit_have_nothing_else() {
    let settings = limited(7);
    assert_eq!(settings.limit.get(), 7);
    assert_eq!((settings.opens_at, settings.expires_at, settings.redeem_until), (None, None, None));
    assert_eq!((settings.title, settings.room), (None, None));
}
