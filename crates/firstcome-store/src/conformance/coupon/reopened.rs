//! A store that was closed and opened again: it loses no reply, and contradicts none.

use super::oracle::{Sequence, play};
use super::*;
use crate::conformance::{COMMANDS_AT_ONCE, all};
use firstcome_core::coupon::Title;
use firstcome_core::id::RoomName;

pub(super) async fn everything_told_is_still_there<S, F, Fut>(open: &F)
where
    S: CouponStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let settings = CouponSettings {
        redeem_until: Some(at(500)),
        title: Title::new("여름 \"2030\""),
        room: RoomName::parse("blue").ok(),
        ..window(4, 100, 200)
    };
    let with_attributes =
        Step::Claim { user: "ann".to_owned(), request: key(1, 10), attributes: Some("{\"n\":\"안녕\"}".to_owned()) };
    let bench = Bench::new(open).await;
    let rows = [
        (0, Step::Put(settings.clone()), "created"),
        (150, with_attributes, "new 1@150"),
        (150, claim("bob"), "new 2@150"),
        (160, keyed("cid", u128::MAX, u64::MAX), "new 3@160"),
        (170, with_key(redeem_as("ann", 1), 7, 70), "new 1@170 of ann"),
        (171, redeem(2), "new 2@171 of bob"),
    ];
    bench.check("kept", &rows).await;
    let rows = [(171, put(1), "created"), (171, claim("ann"), "new 1@171"), (171, claim("bob"), "sold_out")];
    bench.check("sold-out", &rows).await;
    let rows = [(171, put(9), "created"), (171, claim("ann"), "new 1@171"), (171, Step::Delete, "gone")];
    bench.check("gone", &rows).await;
    bench.check("untouched", &[(171, put(3), "created"), (171, put(5), "replaced")]).await;

    let bench = bench.reopen(open).await;
    // The fresh clock is behind. It decides whether the coupon is open, but instants of claims never fall.
    let rows = [
        (
            1,
            claims(None, 2),
            "1@150 of ann with {\"n\":\"안녕\"} redeemed@170, 2@150 of bob redeemed@171, next after 2",
        ),
        (1, claim_of("cid"), "3@160 of cid"),
        (1, keyed("ann", 1, 10), "again 1@150"),
        (1, keyed("ann", 1, 11), "idempotency_key_reused 1"),
        (1, keyed("cid", u128::MAX, u64::MAX), "again 3@160"),
        (1, claim("bob"), "already_issued 2@150"),
        (1, with_key(redeem_as("ann", 1), 7, 70), "again 1@170 of ann"),
        (1, with_key(redeem(3), 7, 71), "idempotency_key_reused 1"),
        (1, redeem(2), "already_redeemed 2@171"),
        (1, redeem(3), "new 3@160 of cid"),
        (1, claim("dan"), "not_open 100"),
        (1, put(4), "room_fixed"),
        (1, put(2), "limit_below_issued 3"),
        (120, claim("dan"), "new 4@160"),
        (121, claim("eve"), "sold_out"),
        (121, Step::View, "sold_out 4/4"),
        (200, Step::View, "expired 4/4"),
        (500, redeem(4), "expired 500"),
    ];
    bench.check("kept", &rows).await;
    assert_eq!(bench.view(&name("kept")).await.settings, settings);
    let rows = [
        (500, claim("bob"), "sold_out"),
        (500, put(2), "replaced"),
        (500, claim("bob"), "new 2@500"),
        (500, redeem(1), "new 1@500 of ann"),
    ];
    bench.check("sold-out", &rows).await;
    let rows = [
        (500, put(9), "deleted"),
        (500, claim("bob"), "deleted"),
        (500, claim("ann"), "already_issued 1@171"),
        (500, redeem(1), "new 1@500 of ann"),
    ];
    bench.check("gone", &rows).await;
    let rows = [(500, Step::View, "open 0/5"), (500, claim("ann"), "new 1@500")];
    bench.check("untouched", &rows).await;
    bench.check("new", &[(500, put(1), "created"), (500, claim("ann"), "new 1@500")]).await;

    // Reopen a second time, now with the rows that were written after the first time.
    let bench = bench.reopen(open).await;
    bench.check("kept", &[(1, redeem(3), "already_redeemed 3@160"), (1, claim("dan"), "already_issued 4@160")]).await;
    bench.check("sold-out", &[(1, Step::View, "sold_out 2/2"), (1, claim("bob"), "already_issued 2@500")]).await;
    bench.check("gone", &[(1, Step::View, "deleted 1/9"), (1, redeem(1), "already_redeemed 1@500")]).await;
    bench.check("new", &[(1, claim("bob"), "sold_out"), (1, claim("ann"), "already_issued 1@500")]).await;
}

pub(super) async fn many_claims_come_back_exactly<S, F, Fut>(open: &F)
where
    S: CouponStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let coupon = name("many");
    let bench = Bench::new(open).await;
    bench.put(&coupon, 10_000).await;
    for first in (0..10_000_u32).step_by(COMMANDS_AT_ONCE) {
        all((first..first + COMMANDS_AT_ONCE as u32).map(|number| {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            let request = if number % 2 == 0 { key(u128::from(number) << 64, number.into()) } else { None };
            async move { bench.claim(&coupon, &format!("user{number}"), request).await.expect("there are enough") }
        }))
        .await;
    }
    let before = bench.page(&coupon, None, 10_000).await;
    assert_eq!(before.items.len(), 10_000);
    let bench = bench.reopen(open).await;
    assert_eq!(bench.page(&coupon, None, 10_000).await, before);
    bench.check("many", &[(5, claim("late"), "sold_out"), (5, Step::View, "sold_out 10000/10000")]).await;
}

pub(super) async fn random_histories_go_on_as_if_nothing_had_happened<S, F, Fut>(open: &F)
where
    S: CouponStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let mut sequences: Vec<Sequence> = (1_000..1_050).map(Sequence::new).collect();
    let mut bench = Bench::new(open).await;
    for life in 0..4 {
        play(&bench, &mut sequences, life * 15..(life + 1) * 15).await;
        bench = bench.reopen(open).await;
    }
    play(&bench, &mut sequences, 60..70).await;
}
