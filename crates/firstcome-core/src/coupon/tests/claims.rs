//! Which users get a coupon, which do not, and in which order that is decided.

use super::*;

#[test]
fn a_claim_is_checked_in_the_documented_order() {
    // Sold out, expired, deleted, held and repeated, all at once; each row removes one reason.
    let mut closed = check(
        window(2, 100, 200),
        &[(100, keyed("ann", 1, 10), "new 1@100"), (101, claim("bob"), "new 2@101"), (102, Step::Delete, "gone")],
    );
    let rows = [
        (300, keyed("ann", 1, 10), "again 1@100"),
        (300, keyed("bob", 1, 11), "idempotency_key_reused 1"),
        (300, keyed("cid", 1, 11), "idempotency_key_reused 1"),
        (300, keyed("ann", 2, 10), "already_issued 1@100"),
        (300, claim("bob"), "already_issued 2@101"),
        (50, claim("bob"), "already_issued 2@101"),
        (300, claim("cid"), "deleted"),
        (50, claim("cid"), "deleted"),
        (150, claim("cid"), "deleted"),
    ];
    check_on(&mut closed, &rows);
    // The same without the deletion. An opening after the end is nonsense, but shows which is judged first.
    let rows = [
        (100, claim("ann"), "new 1@100"),
        (101, claim("bob"), "new 2@101"),
        (102, Step::Put(window(2, 400, 200)), "put"),
        (300, claim("ann"), "already_issued 1@100"),
        (300, claim("cid"), "not_open 400"),
        (400, claim("cid"), "expired 200"),
        (401, Step::Put(window(2, 100, 200)), "put"),
        (300, claim("bob"), "already_issued 2@101"),
        (300, claim("cid"), "expired 200"),
        (50, claim("cid"), "not_open 100"),
        (150, claim("cid"), "sold_out"),
        (150, claim("bob"), "already_issued 2@101"),
    ];
    check(window(2, 100, 200), &rows);
}

#[test]
fn issuing_begins_at_opens_at_and_ends_before_expires_at() {
    let rows = [
        (99, claim("ann"), "not_open 100"),
        (100, claim("ann"), "new 1@100"),
        (199, claim("bob"), "new 2@199"),
        (200, claim("cid"), "expired 200"),
        (201, claim("cid"), "expired 200"),
        (300, claim("ann"), "already_issued 1@100"),
    ];
    check(window(10, 100, 200), &rows);
}

#[test]
fn a_bound_that_is_absent_bounds_nothing() {
    let first = Timestamp::MIN.as_us();
    let last = Timestamp::MAX.as_us();
    let without_opening = CouponSettings { expires_at: Some(at(200)), ..limited(5) };
    let earliest = format!("new 1@{first}");
    check(without_opening, &[(first, claim("ann"), &earliest), (200, claim("bob"), "expired 200")]);
    let without_end = CouponSettings { opens_at: Some(at(100)), ..limited(5) };
    let latest = format!("new 1@{last}");
    check(without_end, &[(99, claim("ann"), "not_open 100"), (last, claim("ann"), &latest)]);
    check(limited(5), &[(first, claim("ann"), &earliest)]);
    check(limited(5), &[(last, claim("ann"), &latest)]);
}

#[test]
fn an_opening_that_is_also_the_end_issues_nothing() {
    let rows = [(99, claim("ann"), "not_open 100"), (100, claim("ann"), "expired 100")];
    check(window(5, 100, 100), &rows);
}

#[test]
fn the_last_one_of_a_limit_goes_to_one_of_two() {
    check(limited(1), &[(1, claim("ann"), "new 1@1"), (1, claim("bob"), "sold_out")]);
    let rows = [(1, claim("ann"), "new 1@1"), (1, claim("bob"), "new 2@1"), (1, claim("cid"), "sold_out")];
    check(limited(2), &rows);
}

#[test]
fn exactly_the_limit_is_issued_no_matter_what_the_limit_is() {
    for limit in 1..=40 {
        let mut coupon = coupon(limited(limit));
        for number in 1..=limit + 5 {
            let told = apply(&mut coupon, &claim(&format!("user{number}")), at(7));
            let wanted = if number <= limit { format!("new {number}@7") } else { "sold_out".to_owned() };
            assert_eq!(told, wanted, "limit {limit}");
        }
        assert_eq!(coupon.issued(), limit);
    }
}

#[test]
fn one_user_who_asks_ten_thousand_times_takes_one() {
    let mut coupon = check(limited(100), &[(5, claim("ann"), "new 1@5")]);
    for now in 6..10_006 {
        assert_eq!(apply(&mut coupon, &claim("ann"), at(now)), "already_issued 1@5");
    }
    assert_eq!(coupon.issued(), 1);
    check_on(&mut coupon, &[(20_000, claim("bob"), "new 2@20000")]);
}

#[test]
fn a_holder_stays_a_holder_however_late_it_is() {
    let late = Timestamp::MAX.as_us();
    check(limited(3), &[(5, claim("ann"), "new 1@5"), (late, claim("ann"), "already_issued 1@5")]);
}

#[test]
fn names_that_differ_in_case_only_are_two_users() {
    check(limited(2), &[(1, claim("a"), "new 1@1"), (1, claim("A"), "new 2@1"), (1, claim("a"), "already_issued 1@1")]);
}

#[test]
fn the_instant_of_a_claim_never_falls() {
    let rows = [
        (10, claim("ann"), "new 1@10"),
        (10, claim("bob"), "new 2@10"),
        (4, claim("cid"), "new 3@10"),
        (11, claim("dan"), "new 4@11"),
        (9, claim("eve"), "new 5@11"),
    ];
    check(limited(9), &rows);
}

#[test]
fn the_window_is_judged_by_the_clock_that_came_in_also_when_it_fell() {
    let rows = [(150, claim("ann"), "new 1@150"), (99, claim("bob"), "not_open 100"), (100, claim("bob"), "new 2@150")];
    check(window(5, 100, 200), &rows);
}

#[test]
fn a_repeated_request_is_answered_with_its_effect_and_has_no_second_one() {
    let rows = [
        (1, keyed("ann", 1, 10), "new 1@1"),
        (2, keyed("ann", 1, 10), "again 1@1"),
        (3, keyed("bob", 2, 20), "new 2@3"),
        (900, keyed("ann", 1, 10), "again 1@1"),
        (900, keyed("bob", 2, 20), "again 2@3"),
    ];
    let coupon = check(limited(3), &rows);
    assert_eq!(coupon.issued(), 2);
}

#[test]
fn a_key_with_another_body_is_refused_and_names_the_claim_it_made() {
    let rows = [
        (1, claim("zoe"), "new 1@1"),
        (1, keyed("ann", 1, 10), "new 2@1"),
        (2, keyed("ann", 1, 11), "idempotency_key_reused 2"),
        (2, keyed("bob", 1, 12), "idempotency_key_reused 2"),
        (2, keyed("bob", 2, 12), "new 3@2"),
    ];
    check(limited(3), &rows);
}

#[test]
fn a_refused_request_leaves_no_key_behind() {
    let rows = [
        (1, keyed("ann", 1, 10), "new 1@1"),
        // ann has a claim already: this other key stays free.
        (2, keyed("ann", 2, 10), "already_issued 1@1"),
        (3, keyed("bob", 3, 30), "sold_out"),
        (4, put_limit(3), "put"),
        (5, keyed("bob", 3, 31), "new 2@5"),
        (6, keyed("cid", 2, 40), "new 3@6"),
        (7, keyed("bob", 3, 30), "idempotency_key_reused 2"),
    ];
    check(limited(1), &rows);
}

#[test]
fn a_claim_without_a_key_is_never_taken_for_a_repeat() {
    let rows =
        [(1, keyed("ann", 0, 0), "new 1@1"), (2, claim("ann"), "already_issued 1@1"), (2, claim("bob"), "new 2@2")];
    check(limited(2), &rows);
}

#[test]
fn attributes_are_carried_and_never_judged() {
    let mut coupon = coupon(limited(2));
    let with =
        |text: &str| Step::Claim(Claim { user: user_id("ann"), attributes: Attributes::new(text), request: None });
    assert_eq!(apply(&mut coupon, &with("{\"a\":1}"), at(1)), "new 1@1");
    assert_eq!(apply(&mut coupon, &with("{\"a\":2}"), at(2)), "already_issued 1@1");
}

#[test]
fn every_answer_says_on_how_many_claims_it_rests() {
    let mut coupon =
        check(window(3, 100, 200), &[(100, keyed("ann", 1, 10), "new 1@100"), (100, claim("bob"), "new 2@100")]);
    check_rests_on(&coupon, 100, &claim("cid"), None);
    check_rests_on(&coupon, 100, &keyed("ann", 1, 10), Some(1));
    check_rests_on(&coupon, 100, &keyed("bob", 1, 11), Some(1));
    check_rests_on(&coupon, 100, &claim("ann"), Some(1));
    check_rests_on(&coupon, 100, &claim("bob"), Some(2));
    check_rests_on(&coupon, 99, &claim("cid"), Some(0));
    check_rests_on(&coupon, 200, &claim("cid"), Some(0));
    check_on(&mut coupon, &[(101, keyed("dan", 4, 40), "new 3@101")]);
    // Rests on all claims: the very last one could still be lost, and then another user would get the coupon.
    check_rests_on(&coupon, 101, &claim("cid"), Some(3));
    check_rests_on(&coupon, 101, &keyed("dan", 4, 41), Some(3));
    check_rests_on(&coupon, 101, &keyed("dan", 4, 40), Some(3));
    check_on(&mut coupon, &[(102, Step::Delete, "gone")]);
    check_rests_on(&coupon, 101, &claim("cid"), Some(0));
    check_rests_on(&coupon, 101, &claim("bob"), Some(2));
}

#[track_caller]
fn check_rests_on(coupon: &Coupon, now: i64, step: &Step, wanted: Option<u32>) {
    let Step::Claim(claim) = step else { panic!("only claims rest on claims") };
    let answer = coupon.judge_claim(claim, at(now));
    assert_eq!(coupon.rests_on(&answer), wanted, "{answer:?}");
}
