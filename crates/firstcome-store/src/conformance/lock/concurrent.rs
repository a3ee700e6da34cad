//! Many steps at once.

use super::*;
use crate::conformance::{all, give_up_after};
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: u64 = 24;
const ROUNDS: u64 = 12;

/// Asks until it has the lock. Returns its place, if it had to wait, and its fence.
async fn obtain<S: LockStore>(store: &S, client: u64, number: u64) -> (Option<u64>, u64) {
    let mut place = None;
    loop {
        match store.take(ask(client, number)).await.expect("the store answers").said {
            LockAnswer::Acquired(Acquired::Granted(grant)) => return (place, grant.fence.get()),
            LockAnswer::Acquired(Acquired::Queued { number, .. }) => {
                assert!(place.is_none_or(|before| before == number), "a place moved from {place:?} to {number}");
                place = Some(number);
            }
            said => panic!("it is granted or waits: {said:?}"),
        }
        tokio::task::yield_now().await;
    }
}

async fn give_back<S: LockStore>(store: &S, client: u64, number: u64) {
    let told = store.take(release(client, number)).await.expect("the store answers").said;
    assert_eq!(told, LockAnswer::Released(Released::Released), "{client}/{number} lost it");
}

pub(super) async fn a_counter_under_the_lock_loses_no_step<S: LockStore>(bench: Bench<S>) {
    let (counter, guard) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    all((1..=CLIENTS).map(|client| {
        let (bench, counter, guard) = (bench.clone(), Arc::clone(&counter), Arc::clone(&guard));
        async move {
            for number in 1..=ROUNDS {
                let (_, fence) = obtain(&*bench.store, client, number).await;
                // Read and write are two operations, so that an overlap with another holder loses a step.
                let before = counter.load(Ordering::SeqCst);
                assert!(guard.swap(fence, Ordering::SeqCst) < fence, "the fence {fence} came late");
                tokio::task::yield_now().await;
                counter.store(before + 1, Ordering::SeqCst);
                give_back(&*bench.store, client, number).await;
            }
        }
    }))
    .await;
    assert_eq!(counter.load(Ordering::SeqCst), CLIENTS * ROUNDS);
    let seen = bench.store.view(&door()).await.expect("the store answers").view;
    assert_eq!((seen.held, seen.waiters), (None, 0));
}

pub(super) async fn the_line_is_fair_under_concurrency<S: LockStore>(bench: Bench<S>) {
    bench.check(&[(0, ask(100, 1), "granted")]).await;
    let places = all((1..=CLIENTS).map(|client| {
        let bench = bench.clone();
        async move {
            match bench.store.take(ask(client, 1)).await.expect("the store answers").said {
                LockAnswer::Acquired(Acquired::Queued { number, .. }) => (number, client),
                said => panic!("somebody holds it: {said:?}"),
            }
        }
    }));
    let places = places.await;
    give_back(&*bench.store, 100, 1).await;
    let served = all(places.into_iter().map(|(place, client)| {
        let bench = bench.clone();
        async move {
            let (_, fence) = obtain(&*bench.store, client, 1).await;
            give_back(&*bench.store, client, 1).await;
            (place, fence)
        }
    }));
    let mut served = served.await;
    served.sort_unstable();
    assert!(served.is_sorted_by(|(first, before), (second, after)| first < second && before < after), "{served:?}");
}

pub(super) async fn steps_that_were_dropped_are_done_or_not_done<S: LockStore>(bench: Bench<S>) {
    for number in 1..=60 {
        let client = number % 5 + 1;
        let dropped = give_up_after(number % 3, bench.store.take(ask(client, number))).await;
        let given_up = Step::Release { name: door(), request: request(client, number), copies: Copies::Several };
        if number % 2 == 0 {
            // A repeat of the same request grants the same lock.
            let told = bench.store.take(ask(client, number)).await.expect("the store answers").said;
            assert!(matches!(told, LockAnswer::Acquired(Acquired::Granted(_))), "{dropped:?}, then {told:?}");
        }
        let told = bench.store.take(given_up).await.expect("the store answers").said;
        assert!(matches!(told, LockAnswer::Released(Released::Released | Released::NotHeld)), "{told:?}");
        // The request is over, in whichever order its steps arrived.
        let free = bench.store.take(attempt(9, number)).await.expect("the store answers").said;
        assert!(matches!(free, LockAnswer::Acquired(Acquired::Granted(_))), "after {number}: {free:?}");
        give_back(&*bench.store, 9, number).await;
    }
}
