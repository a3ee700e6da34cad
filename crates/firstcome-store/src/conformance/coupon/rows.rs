//! Claims, redemptions and pages, one command at a time.

use super::*;

pub(super) async fn claims_are_checked_in_the_documented_order<S: CouponStore + 'static>(bench: Bench<S>) {
    // At first the coupon is sold out and expired, and the claim is held and repeated. Each row removes one reason. At
    // last the coupon is deleted too.
    let rows = [
        (0, Step::Put(window(2, 100, 200)), "created"),
        (100, keyed("ann", 1, 10), "new 1@100"),
        (101, claim("bob"), "new 2@101"),
        (101, claim("cid"), "sold_out"),
        (200, keyed("ann", 1, 10), "again 1@100"),
        (200, keyed("bob", 1, 11), "idempotency_key_reused 1"),
        (200, keyed("cid", 1, 11), "idempotency_key_reused 1"),
        (200, keyed("ann", 2, 10), "already_issued 1@100"),
        (200, claim("bob"), "already_issued 2@101"),
        (200, claim("cid"), "expired 200"),
        (200, Step::Put(window(2, 400, 200)), "replaced"),
        (200, claim("cid"), "not_open 400"),
        (400, claim("cid"), "expired 200"),
        (400, Step::Delete, "gone"),
        (400, keyed("ann", 1, 10), "again 1@100"),
        (400, keyed("cid", 1, 11), "idempotency_key_reused 1"),
        (400, claim("bob"), "already_issued 2@101"),
        (400, claim("cid"), "deleted"),
    ];
    bench.check("order", &rows).await;
    let rows =
        [(400, Step::Put(window(1, 500, 600)), "created"), (400, Step::Delete, "gone"), (400, claim("ann"), "deleted")];
    bench.check("deleted-before-it-opened", &rows).await;
}

pub(super) async fn issuing_has_a_first_and_a_last_instant<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(window(9, 100, 200)), "created"),
        (99, claim("ann"), "not_open 100"),
        (100, claim("ann"), "new 1@100"),
        (199, claim("bob"), "new 2@199"),
        (200, claim("cid"), "expired 200"),
        (300, claim("ann"), "already_issued 1@100"),
    ];
    bench.check("window", &rows).await;
    let first = at(i64::MIN);
    let from_ever = CouponSettings { opens_at: Some(first), expires_at: Some(at(i64::MAX)), ..limited(1) };
    let rows = [(300, Step::Put(from_ever), "created"), (300, claim("ann"), "new 1@300")];
    bench.check("widest", &rows).await;
}

pub(super) async fn the_last_coupon_goes_to_one<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [(1, put(1), "created"), (1, claim("ann"), "new 1@1"), (1, claim("bob"), "sold_out")];
    bench.check("one", &rows).await;
    let rows = [
        (1, put(2), "created"),
        (1, claim("ann"), "new 1@1"),
        (1, claim("bob"), "new 2@1"),
        (1, claim("cid"), "sold_out"),
    ];
    bench.check("two", &rows).await;
    let rows = [(1, put(1), "created"), (1, claim("a"), "new 1@1"), (1, claim("A"), "sold_out")];
    bench.check("case", &rows).await;
}

pub(super) async fn a_repeat_has_no_second_effect<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, put(3), "created"),
        (1, keyed("ann", 1, 10), "new 1@1"),
        (2, keyed("ann", 1, 10), "again 1@1"),
        (3, keyed("ann", 1, 11), "idempotency_key_reused 1"),
        // A refused request leaves its key free.
        (4, keyed("ann", 2, 10), "already_issued 1@1"),
        (5, keyed("bob", 2, 20), "new 2@5"),
        (6, keyed("bob", 2, 20), "again 2@5"),
        (7, claim("bob"), "already_issued 2@5"),
        (8, keyed("cid", u128::MAX, u64::MAX), "new 3@8"),
        (9, keyed("cid", u128::MAX, u64::MAX), "again 3@8"),
        (9, keyed("cid", u128::MAX, 0), "idempotency_key_reused 3"),
        (9, keyed("dan", u128::MAX >> 64, u64::MAX), "sold_out"),
        // A repeat by another caller also returns the first claim, and so its code.
        (9, keyed("eve", 1, 10), "again 1@1"),
    ];
    bench.check("repeats", &rows).await;
    let coupon = name("repeats");
    for _ in 0..1_000 {
        let refused = bench.claim(&coupon, "ann", None).await.expect_err("ann holds one");
        assert_eq!(refused.rejection.code(), "already_issued");
    }
    bench.check("repeats", &[(9, Step::View, "sold_out 3/3")]).await;
}

pub(super) async fn an_unknown_coupon_is_refused_everywhere<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, Step::View, "unknown_coupon"),
        (1, claim("ann"), "unknown_coupon"),
        (1, keyed("ann", 1, 1), "unknown_coupon"),
        (1, redeem(1), "unknown_coupon"),
        (1, claim_of("ann"), "unknown_coupon"),
        (1, claims(None, 10), "unknown_coupon"),
        (1, Step::Delete, "unknown_coupon"),
        (1, Step::View, "unknown_coupon"),
        (1, put(1), "created"),
        (1, keyed("ann", 1, 1), "new 1@1"),
    ];
    bench.check("nobody-made-it", &rows).await;
}

pub(super) async fn redemptions_are_checked_in_the_documented_order<S: CouponStore + 'static>(bench: Bench<S>) {
    let until = CouponSettings { redeem_until: Some(at(50)), ..limited(5) };
    let rows = [
        (1, Step::Put(until), "created"),
        (1, redeem(1), "unknown_code"),
        (1, claim("ann"), "new 1@1"),
        (1, claim("bob"), "new 2@1"),
        (1, claim("cid"), "new 3@1"),
        (10, with_key(redeem_as("ann", 1), 1, 10), "new 1@10 of ann"),
        (49, redeem(2), "new 2@49 of bob"),
        // At first the redemption is too late, done already, another user's, of an unknown code, and a repeat. Each row
        // removes one reason.
        (50, with_key(redeem_as("ann", 1), 1, 10), "again 1@10 of ann"),
        (50, with_key(redeem_text(""), 1, 11), "idempotency_key_reused 1"),
        (50, with_key(redeem_as("bob", 1), 1, 11), "idempotency_key_reused 1"),
        (50, redeem_text(""), "unknown_code"),
        (50, redeem_as("ann", 4), "unknown_code"),
        (50, redeem_as("bob", 1), "wrong_user"),
        (50, redeem_as("ann", 1), "already_redeemed 1@10"),
        (50, redeem(2), "already_redeemed 2@49"),
        (50, redeem_as("ann", 3), "wrong_user"),
        (50, redeem_as("cid", 3), "expired 50"),
        (50, put(5), "replaced"),
        (50, redeem_as("cid", 3), "new 3@50 of cid"),
    ];
    bench.check("redeem", &rows).await;
}

pub(super) async fn a_closed_coupon_is_redeemed_all_the_same<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(window(3, 100, 200)), "created"),
        (100, claim("ann"), "new 1@100"),
        (100, claim("bob"), "new 2@100"),
        (100, claim("cid"), "new 3@100"),
        (150, redeem(1), "new 1@150 of ann"),
        (200, redeem(2), "new 2@200 of bob"),
        (201, Step::Delete, "gone"),
        (202, redeem(2), "already_redeemed 2@200"),
        (202, redeem(3), "new 3@202 of cid"),
    ];
    bench.check("closed", &rows).await;
}

pub(super) async fn a_repeated_redemption_has_no_second_effect<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, put(2), "created"),
        (1, keyed("ann", 1, 10), "new 1@1"),
        (1, claim("bob"), "new 2@1"),
        (2, with_key(redeem_as("bob", 1), 1, 70), "wrong_user"),
        (3, with_key(redeem_as("ann", 1), 1, 71), "new 1@3 of ann"),
        (4, with_key(redeem_as("ann", 1), 1, 71), "again 1@3 of ann"),
        (4, with_key(redeem(2), 1, 72), "idempotency_key_reused 1"),
        (4, with_key(redeem(1), 2, 71), "already_redeemed 1@3"),
        // The key of a claim and the key of a redemption are separate.
        (4, keyed("ann", 1, 10), "again 1@1"),
    ];
    bench.check("redeem-repeats", &rows).await;
}

pub(super) async fn codes_are_forgiving_and_fit_one_coupon_only<S: CouponStore + 'static>(bench: Bench<S>) {
    let (mine, other) = (name("mine"), name("other"));
    for coupon in [&mine, &other] {
        bench.put(coupon, 2).await;
        bench.claim(coupon, "ann", None).await.expect("there are two");
    }
    let code = bench.code(&mine, 1);
    let foreign = bench.code(&other, 1);
    let next_to_it = code.replace(|character| character == code.chars().last().unwrap_or_default(), "7");
    for text in [&foreign, &next_to_it, "", "-", "0", &"2".repeat(20), &"Z".repeat(500), "é", &code[1..]] {
        if *text != code {
            bench.check("mine", &[(5, redeem_text(text), "unknown_code")]).await;
        }
    }
    let spaced = format!(" {} ", code.to_lowercase().replace('-', " - "));
    let rows = [(5, redeem_text(&spaced), "new 1@5 of ann"), (6, redeem_text(&code), "already_redeemed 1@5")];
    bench.check("mine", &rows).await;
    bench.check("other", &[(7, redeem(1), "new 1@7 of ann")]).await;
}

pub(super) async fn a_claim_is_shown_with_all_that_belongs_to_it<S: CouponStore + 'static>(bench: Bench<S>) {
    let with = |user: &str, text: &str, request| Step::Claim {
        user: user.to_owned(),
        request,
        attributes: Some(text.to_owned()),
    };
    let longest = "x".repeat(1_024);
    let longest_shown = format!("3@3 of cid with {longest}");
    let rows = [
        (1, put(4), "created"),
        (1, claim_of("ann"), "none"),
        (1, with("ann", "{\"n\":\"안녕\"}", key(1, 1)), "new 1@1"),
        (1, with("ann", "{\"n\":2}", key(1, 1)), "again 1@1"),
        (1, with("ann", "{\"n\":3}", None), "already_issued 1@1"),
        (2, claim("bob"), "new 2@2"),
        (3, with("cid", &longest, None), "new 3@3"),
        (3, claim_of("ann"), "1@1 of ann with {\"n\":\"안녕\"}"),
        (3, claim_of("bob"), "2@2 of bob"),
        (3, claim_of("cid"), &longest_shown),
        (3, claim_of("Ann"), "none"),
        (3, claim_of(""), "none"),
        (3, claim_of("pass:'"), "none"),
        (3, claim_of("a b"), "none"),
        (4, redeem(1), "new 1@4 of ann"),
        (5, claim_of("ann"), "1@1 of ann with {\"n\":\"안녕\"} redeemed@4"),
        (5, claims(None, 2), "1@1 of ann with {\"n\":\"안녕\"} redeemed@4, 2@2 of bob, next after 2"),
        (6, Step::Delete, "gone"),
        (6, claim_of("bob"), "2@2 of bob"),
    ];
    bench.check("records", &rows).await;
}

pub(super) async fn pages_hold_all_claims_in_order<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, put(9), "created"),
        (1, claims(None, 10), "end"),
        (1, claims(Some(1), 10), "end"),
        (1, claim("eve"), "new 1@1"),
        (1, claim("dan"), "new 2@1"),
        (1, claim("cid"), "new 3@1"),
        (2, claims(None, 1), "1@1 of eve, next after 1"),
        (2, claims(None, 2), "1@1 of eve, 2@1 of dan, next after 2"),
        (2, claims(Some(1), 1), "2@1 of dan, next after 2"),
        (2, claims(Some(2), 1), "3@1 of cid, end"),
        (2, claims(Some(1), 2), "2@1 of dan, 3@1 of cid, end"),
        (2, claims(None, 3), "1@1 of eve, 2@1 of dan, 3@1 of cid, end"),
        (2, claims(None, usize::MAX), "1@1 of eve, 2@1 of dan, 3@1 of cid, end"),
        (2, claims(Some(3), 10), "end"),
        (2, claims(Some(4), 10), "end"),
        (2, claims(Some(100_000_000), usize::MAX), "end"),
        (3, Step::Delete, "gone"),
        (3, claims(Some(2), 5), "3@1 of cid, end"),
    ];
    bench.check("pages", &rows).await;
}
