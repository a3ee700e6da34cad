//! Callers that drop their futures at any await point: the command is done or not done, and a repeat shows which.

use super::*;
use crate::conformance::{Rng, all, give_up_after};

const USERS: u64 = 120;
const LIMIT: u32 = 70;

pub(super) async fn claims_that_were_dropped_are_done_or_not_done<S: CouponStore + 'static>(bench: Bench<S>) {
    for seed in 0..8 {
        let coupon = name(&format!("dropped{seed}"));
        bench.put(&coupon, LIMIT).await;
        let mut rng = Rng::from_seed(seed);
        let dropped =
            all(
                (0..USERS).map(|user| {
                    let (bench, coupon, polls) = (bench.clone(), coupon.clone(), rng.below(6));
                    async move {
                        give_up_after(polls, bench.claim(&coupon, &format!("user{user}"), key(user.into(), 1))).await
                    }
                }),
            )
            .await;
        let repeat = || async {
            all((0..USERS).map(|user| {
                let (bench, coupon) = (bench.clone(), coupon.clone());
                async move { bench.claim(&coupon, &format!("user{user}"), key(user.into(), 1)).await }
            }))
            .await
        };
        let repeated = repeat().await;
        for (user, (told, repeated)) in dropped.iter().zip(&repeated).enumerate() {
            let Some(told) = told else { continue };
            assert_eq!(settled(told), settled(repeated), "seed {seed}: user{user} was told both");
            assert!(!matches!(repeated, Ok(Effect::New(_))), "seed {seed}: user{user} had two effects");
        }
        let issued = repeated.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(issued, LIMIT as usize, "seed {seed}: exactly the limit holds one");
        for (user, (before, after)) in repeated.iter().zip(repeat().await).enumerate() {
            assert_eq!(settled(before), settled(&after), "seed {seed}: user{user} asks a third time");
        }
        let page = bench.page(&coupon, None, 1_000).await;
        let serials: Vec<u32> = page.items.iter().map(|record| record.claimed.issued.serial.get()).collect();
        assert_eq!(serials, Vec::from_iter(1..=LIMIT), "seed {seed}: no gap is left behind");
    }
}

/// Returns the claim in a reply, whether it is new or a repeat.
fn settled(answer: &ClaimAnswer) -> Result<Claimed, Rejection> {
    answer.clone().map(Effect::into_inner).map_err(|refused| refused.rejection)
}

pub(super) async fn redemptions_that_were_dropped_are_done_or_not_done<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("dropped-redemptions");
    bench.put(&coupon, LIMIT).await;
    all((0..LIMIT).map(|user| {
        let (bench, coupon) = (bench.clone(), coupon.clone());
        async move { bench.claim(&coupon, &format!("user{user}"), None).await.expect("there are enough") }
    }))
    .await;
    let mut rng = Rng::from_seed(1);
    let dropped = all((1..=LIMIT).map(|number| {
        let (bench, coupon, polls) = (bench.clone(), coupon.clone(), rng.below(6));
        let request = key(number.into(), 1);
        async move { give_up_after(polls, bench.redeem(&coupon, &Code::Of(number), None, request)).await }
    }))
    .await;
    for (number, told) in (1..=LIMIT).zip(dropped) {
        let again = bench.redeem(&coupon, &Code::Of(number), None, key(number.into(), 1)).await;
        let effect = |answer: &str| answer.trim_start_matches("new ").trim_start_matches("again ").to_owned();
        assert!(again.starts_with("new ") || again.starts_with("again "), "serial {number}: {again}");
        if let Some(told) = told {
            assert_eq!((effect(&told), again.starts_with("again ")), (effect(&again), true), "serial {number}");
        }
        let other = bench.redeem(&coupon, &Code::Of(number), None, None).await;
        assert!(other.starts_with("already_redeemed "), "serial {number}: {other}");
    }
}
