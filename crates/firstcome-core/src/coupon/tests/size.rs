//! A large book stays exact: across segments, shards and growing tables.

use super::*;

/// Three segments of 4 096 claims, and a bit of the fourth.
const MANY: u32 = 3 * 4_096 + 5;

/// Names of very different lengths, so that one wrong end in a segment shows in its neighbours.
fn name(number: u32) -> String {
    format!("u{number}{}", "-".repeat(number as usize * 7 % 40))
}

fn instant(number: u32) -> i64 {
    1_000 + i64::from(number) * 3
}

#[test]
fn every_claim_is_found_by_its_user_and_by_its_serial() {
    let mut coupon = coupon(limited(MANY));
    for number in 1..=MANY {
        let told = apply(&mut coupon, &claim(&name(number)), at(instant(number)));
        assert_eq!(told, format!("new {number}@{}", instant(number)));
    }
    assert_eq!(apply(&mut coupon, &claim("late"), at(instant(MANY))), "sold_out");
    assert_sound(&coupon);
    for number in 1..=MANY {
        let wanted = issued(number, instant(number));
        assert_eq!(coupon.claim_at(serial(number)), Some((name(number).as_str(), wanted)));
        assert_eq!(coupon.claim_of(&name(number)), Some(wanted));
        assert_eq!(coupon.issued_as(serial(number)), wanted);
        assert_eq!(coupon.claim_of(&format!("v{number}")), None);
    }
}

#[test]
fn many_claims_are_restored_exactly() {
    let mut coupon = coupon(limited(MANY));
    for number in 1..=MANY {
        let request = (number % 2 == 0).then_some(RequestId { key: u128::from(number) << 64, body: u64::from(number) });
        assert_eq!(coupon.restore_claim(issued(number, instant(number)), &user_id(&name(number)), request), Ok(()));
    }
    for number in [1, 2, 4_095, 4_096, 4_097, 8_192, 8_193, MANY] {
        assert_eq!(coupon.claim_at(serial(number)), Some((name(number).as_str(), issued(number, instant(number)))));
    }
}

#[test]
fn users_whose_texts_run_together_are_not_confused() {
    let rows = [
        (1, claim("ab"), "new 1@1"),
        (2, claim("c"), "new 2@2"),
        (3, claim("a"), "new 3@3"),
        (4, claim("bc"), "new 4@4"),
        (5, claim("abc"), "new 5@5"),
        (6, claim("b"), "new 6@6"),
        (7, claim("ab"), "already_issued 1@1"),
        (7, claim("bc"), "already_issued 4@4"),
    ];
    check(limited(9), &rows);
}

#[test]
fn keys_that_share_half_of_their_bits_are_different_keys() {
    let keys = [0, 1, 1 << 63, 1 << 64, 1 << 127, (1 << 64) + 1, u128::MAX, u128::MAX << 64, u128::MAX >> 64];
    let mut coupon = coupon(limited(100));
    for (index, &key) in keys.iter().enumerate() {
        let told = apply(&mut coupon, &keyed(&format!("u{index}"), key, index as u64), at(1));
        assert_eq!(told, format!("new {}@1", index + 1), "key {key:#x}");
    }
    for (index, &key) in keys.iter().enumerate() {
        let told = apply(&mut coupon, &keyed("other", key, index as u64), at(2));
        assert_eq!(told, format!("again {}@1", index + 1), "key {key:#x}");
    }
}

#[test]
fn ten_thousand_keys_keep_their_claims() {
    // Spread like digests, except that two neighbours share their upper half.
    let key = |number: u32| {
        let upper = (u64::from(number / 2) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        u128::from(upper) << 64 | u128::from(number)
    };
    let mut coupon = coupon(limited(10_000));
    for number in 1..=10_000 {
        let told = apply(&mut coupon, &keyed(&name(number), key(number), u64::from(number)), at(1));
        assert_eq!(told, format!("new {number}@1"));
    }
    for number in 1..=10_000 {
        let again = apply(&mut coupon, &keyed(&name(number), key(number), u64::from(number)), at(2));
        assert_eq!(again, format!("again {number}@1"));
        let other = apply(&mut coupon, &keyed(&name(number), key(number), 0), at(2));
        assert_eq!(other, format!("idempotency_key_reused {number}"));
    }
}

#[test]
fn users_whose_hashes_are_alike_are_told_apart() {
    // Of half a million hashes of 32 bits about thirty pairs are equal, for any seed. If the book did not compare texts, the
    // later user of each pair would be taken for the earlier one.
    const CROWD: u32 = 500_000;
    let mut coupon = coupon(limited(CROWD));
    for number in 1..=CROWD {
        let claim = Claim { user: user_id(&format!("user-{number}")), attributes: None, request: None };
        let told = coupon.claim(&claim, at(1));
        assert_eq!(told.map(|effect| effect.into_inner().serial.get()), Ok(number));
    }
}
