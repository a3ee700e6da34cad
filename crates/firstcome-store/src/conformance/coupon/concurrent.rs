//! Many commands at once: the counts are exact, serials follow the order, each user gets one, and no later reply
//! contradicts a refusal.

use super::*;
use crate::conformance::all;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the serials of all claims, in order.
fn serials(records: &[ClaimRecord]) -> Vec<u32> {
    records.iter().map(|record| record.claimed.issued.serial.get()).collect()
}

fn numbers(last: u32) -> Vec<u32> {
    (1..=last).collect()
}

pub(super) async fn a_thousand_at_once_get_exactly_the_limit<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("thousand");
    bench.put(&coupon, 100).await;
    let answers = all((0..1_000).map(|number| {
        let (bench, coupon) = (bench.clone(), coupon.clone());
        async move {
            let user = format!("user{number}");
            let answer = bench.claim(&coupon, &user, None).await;
            if answer.is_err() {
                // A caller reads "sold out" only once all claims are durable and every reader sees them.
                let view = bench.view(&coupon).await;
                assert_eq!(describe_view(&view), "sold_out 100/100", "seen by {user}, who was told sold_out");
            }
            (user, answer)
        }
    }))
    .await;
    let page = bench.page(&coupon, None, 1_000).await;
    assert_eq!(serials(&page.items), numbers(100), "gapless, and as many as there are");
    let mut held: BTreeMap<&str, &Claimed> =
        page.items.iter().map(|record| (record.user.as_ref(), &record.claimed)).collect();
    assert_eq!(held.len(), 100, "one each");
    for (user, answer) in &answers {
        match answer {
            Ok(effect) => {
                let claimed = effect.clone().into_inner();
                assert_eq!(*effect, Effect::New(claimed.clone()), "{user} asked once");
                assert_eq!(held.remove(user.as_str()), Some(&claimed), "{user} holds what was told");
            }
            Err(refused) => {
                assert_eq!(refused.rejection, Rejection::SoldOut);
                assert!(!held.contains_key(user.as_str()), "{user} was refused and holds one");
            }
        }
    }
    assert!(held.is_empty(), "everybody who holds one was told so: {held:?}");
}

pub(super) async fn one_user_at_once_gets_one<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("impatient");
    bench.put(&coupon, 100).await;
    let answers = all((0..1_000).map(|number| {
        let (bench, coupon) = (bench.clone(), coupon.clone());
        async move {
            let user = format!("user{}", number % 150);
            let answer = bench.claim(&coupon, &user, None).await;
            if let Err(refused) = &answer
                && let Rejection::AlreadyIssued(issued) = refused.rejection
            {
                let record = answered(bench.store.claim_of(&coupon, &user).await).expect("the coupon exists");
                let record = record.expect("already_issued is told only of a claim that everybody can see");
                assert_eq!(record.claimed.issued, issued);
            }
            (user, answer)
        }
    }))
    .await;
    let mut held: BTreeMap<String, Issued> = BTreeMap::new();
    let mut refused: BTreeSet<String> = BTreeSet::new();
    let mut new = 0;
    for (user, answer) in answers {
        let issued = match answer {
            Ok(Effect::New(claimed)) => {
                new += 1;
                claimed.issued
            }
            Err(Refused { rejection: Rejection::AlreadyIssued(issued), .. }) => issued,
            Err(Refused { rejection: Rejection::SoldOut, .. }) => {
                refused.insert(user);
                continue;
            }
            other => panic!("{user} was told {other:?}"),
        };
        let first = *held.entry(user.clone()).or_insert(issued);
        assert_eq!(first, issued, "{user} was told two claims");
    }
    assert_eq!((new, held.len()), (100, 100), "each claim was new to exactly one request, and one each");
    let contradicted: Vec<_> = refused.iter().filter(|user| held.contains_key(*user)).collect();
    assert!(contradicted.is_empty(), "refused for good, and yet holders: {contradicted:?}");
    let told: BTreeSet<u32> = held.values().map(|issued| issued.serial.get()).collect();
    assert_eq!(Vec::from_iter(told), numbers(100));
}

pub(super) async fn repeats_at_once_have_one_effect<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("repeats-at-once");
    bench.put(&coupon, 20).await;
    let answers = all((0..400).map(|number: u32| {
        let (bench, coupon) = (bench.clone(), coupon.clone());
        async move {
            let user = number % 10;
            let request = key(u128::from(user), 1);
            (user, bench.claim(&coupon, &format!("user{user}"), request).await)
        }
    }))
    .await;
    for user in 0..10 {
        let of_user: Vec<_> = answers.iter().filter(|answer| answer.0 == user).map(|answer| &answer.1).collect();
        let new = of_user.iter().filter(|answer| matches!(answer, Ok(Effect::New(_)))).count();
        assert_eq!(new, 1, "the same request of user{user} had {new} effects");
        let claims: BTreeSet<u32> = of_user
            .iter()
            .map(|answer| (*answer).clone().expect("a repeat is no refusal").into_inner())
            .map(serial_of)
            .collect();
        assert_eq!(claims.len(), 1, "every repeat tells the same claim: {claims:?}");
    }
    assert_eq!(bench.view(&coupon).await.issued, 10);
}

#[expect(clippy::needless_pass_by_value, reason = "maps an iterator of claims")]
fn serial_of(claimed: Claimed) -> u32 {
    claimed.issued.serial.get()
}

pub(super) async fn the_last_one_has_one_winner<S: CouponStore + 'static>(bench: Bench<S>) {
    for round in 0..20 {
        let coupon = name(&format!("last{round}"));
        bench.put(&coupon, 1).await;
        let answers = all((0..16).map(|number| {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            async move { bench.claim(&coupon, &format!("user{number}"), None).await }
        }))
        .await;
        let winners = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(winners, 1, "round {round}");
        assert_eq!(describe_view(&bench.view(&coupon).await), "sold_out 1/1");
    }
}

pub(super) async fn serials_follow_real_time<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("order");
    bench.put(&coupon, 2_000).await;
    let ticks = Arc::new(AtomicU64::new(0));
    let spans = all((0..32).map(|task| {
        let (bench, coupon, ticks) = (bench.clone(), coupon.clone(), Arc::clone(&ticks));
        async move {
            let mut spans = Vec::new();
            for number in 0..32 {
                let begun = ticks.fetch_add(1, Ordering::SeqCst);
                let claimed = bench.claim(&coupon, &format!("user{task}-{number}"), None).await;
                let ended = ticks.fetch_add(1, Ordering::SeqCst);
                spans.push((serial_of(claimed.expect("there are enough").into_inner()), begun, ended));
            }
            spans
        }
    }))
    .await;
    let mut spans: Vec<_> = spans.into_iter().flatten().collect();
    spans.sort_unstable();
    // In serial order, no claim may have begun after the reply to a later serial arrived.
    let mut earliest_end_later = u64::MAX;
    for (serial, begun, ended) in spans.into_iter().rev() {
        assert!(begun < earliest_end_later, "serial {serial} was asked for after a later serial had been told");
        earliest_end_later = earliest_end_later.min(ended);
    }
}

pub(super) async fn readers_see_a_growing_prefix<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("prefix");
    bench.put(&coupon, 300).await;
    let claiming = (0..300).map(|number| {
        let (bench, coupon) = (bench.clone(), coupon.clone());
        async move {
            let claimed = bench.claim(&coupon, &format!("user{number}"), None).await.expect("there are enough");
            let serial = serial_of(claimed.into_inner());
            let issued = bench.view(&coupon).await.issued;
            assert!(serial <= issued, "serial {serial} was told, and {issued} are seen");
        }
    });
    let reader = {
        let (bench, coupon) = (bench.clone(), coupon.clone());
        async move {
            let mut seen = 0;
            while seen < 300 {
                let issued = bench.view(&coupon).await.issued;
                let page = bench.page(&coupon, None, 1_000).await;
                let count = page.items.len() as u32;
                assert_eq!(serials(&page.items), numbers(count), "a prefix without gaps");
                assert!(seen <= issued && issued <= count, "claims were seen and vanished: {seen}, {issued}, {count}");
                seen = count;
                tokio::task::yield_now().await;
            }
        }
    };
    let reader = tokio::spawn(reader);
    all(claiming).await;
    reader.await.expect("the reader saw what it should");
}

pub(super) async fn a_limit_lowered_at_once_is_kept<S: CouponStore + 'static>(bench: Bench<S>) {
    for round in 0..10 {
        let coupon = name(&format!("lowered{round}"));
        bench.put(&coupon, 60).await;
        let lower = {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            tokio::spawn(async move { answered(bench.store.put_coupon(&coupon, limited(30)).await) })
        };
        let answers = all((0..60).map(|number| {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            async move { bench.claim(&coupon, &format!("user{number}"), None).await }
        }))
        .await;
        let issued = answers.iter().filter(|answer| answer.is_ok()).count() as u32;
        let lowered = lower.await.expect("the task ends");
        let view = bench.view(&coupon).await;
        assert_eq!(view.issued, issued, "round {round}: as many as were told");
        match lowered {
            Ok(_) => assert_eq!((view.issued, view.settings.limit.get()), (30, 30), "round {round}"),
            Err(refused) => {
                let Rejection::LimitBelowIssued(at_least) = refused.rejection else { panic!("{refused:?}") };
                assert!(30 < at_least && at_least <= issued, "round {round}: {at_least} of {issued}");
                assert_eq!((issued, view.settings.limit.get()), (60, 60), "round {round}: the old limit is kept");
            }
        }
    }
}

pub(super) async fn a_limit_raised_at_once_is_filled<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("raised");
    bench.put(&coupon, 1).await;
    let raise = {
        let (bench, coupon) = (bench.clone(), coupon.clone());
        tokio::spawn(async move {
            for limit in 2..=80 {
                let raised = answered(bench.store.put_coupon(&coupon, limited(limit)).await);
                assert_eq!(raised, Ok(Put::Replaced), "to {limit}");
            }
        })
    };
    let everybody = || {
        (0..100).map(|number| {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            async move { bench.claim(&coupon, &format!("user{number}"), None).await.is_ok() }
        })
    };
    let early = all(everybody()).await.into_iter().filter(|&new| new).count();
    raise.await.expect("every limit is accepted");
    let late = all(everybody()).await.into_iter().filter(|&new| new).count();
    assert_eq!(early + late, 80, "each raise is filled, none twice");
    assert_eq!(describe_view(&bench.view(&coupon).await), "sold_out 80/80");
    assert_eq!(serials(&bench.page(&coupon, None, 1_000).await.items), numbers(80));
}

pub(super) async fn a_coupon_deleted_at_once_issues_no_more<S: CouponStore + 'static>(bench: Bench<S>) {
    for round in 0..10 {
        let coupon = name(&format!("deleted{round}"));
        bench.put(&coupon, 200).await;
        let delete = {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            tokio::spawn(async move {
                answered(bench.store.delete_coupon(&coupon).await).expect("it exists");
                let late = bench.claim(&coupon, "late", None).await;
                assert_eq!(late.expect_err("it is deleted").rejection, Rejection::Deleted);
                bench.view(&coupon).await.issued
            })
        };
        let answers = all((0..50).map(|number| {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            async move { bench.claim(&coupon, &format!("user{number}"), None).await }
        }))
        .await;
        let issued_at_deletion = delete.await.expect("what was deleted stays so");
        let new = answers.iter().filter(|answer| answer.is_ok()).count() as u32;
        assert_eq!((new, bench.view(&coupon).await.issued), (issued_at_deletion, issued_at_deletion), "round {round}");
        let others = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(others.into_iter().all(|refused| refused.rejection == Rejection::Deleted), "round {round}");
    }
}

pub(super) async fn a_code_redeemed_at_once_has_one_winner<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("redeemed-at-once");
    bench.put(&coupon, 20).await;
    for number in 0..20 {
        bench.claim(&coupon, &format!("user{number}"), None).await.expect("there are enough");
    }
    for number in 1..=20 {
        // Without keys there is one winner; with one shared key all callers get the same effect.
        let request = if number % 2 == 0 { key(u128::from(number), 1) } else { None };
        let answers = all((0..16).map(|_| {
            let (bench, coupon) = (bench.clone(), coupon.clone());
            async move { bench.redeem(&coupon, &Code::Of(number), None, request).await }
        }))
        .await;
        let of = |what: &str| answers.iter().filter(|answer| answer.starts_with(what)).count();
        assert_eq!(of("new "), 1, "serial {number}: {answers:?}");
        assert_eq!(
            of(if request.is_some() { "again " } else { "already_redeemed " }),
            15,
            "serial {number}: {answers:?}"
        );
    }
}
