//! Stores of locks that fail or do not answer: told plainly, and nothing leaks.

use super::{DAY_MS, LONG_MS, acquire, look, release, renew, text};
use crate::service::{Service, config};
use crate::stores::FAULT_DETAIL;
use crate::trouble::waits;
use firstcome::core::id::LockName;
use firstcome::core::lock::{Answer, ClientId, Step};
use firstcome::{Fault, FaultKind, Guarantees, LockInbox, LockStore, Locks, MemoryLocks, StoreError, TimedLockView};
use firstcome_server::Config;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What the store does with a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Refuses,
    /// Does it, and does not say so.
    Forgets,
    /// Does it, and never answers.
    Hangs,
}

#[derive(Clone)]
struct Moody {
    inner: Arc<MemoryLocks>,
    mood: Arc<Mutex<Mood>>,
    refused: Arc<AtomicU32>,
}

impl Moody {
    async fn answer<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mood = *self.mood.lock();
        match mood {
            Mood::Well => answer.await,
            Mood::Refuses => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let fault = Fault { kind: FaultKind::Io, detail: FAULT_DETAIL.to_owned() };
                Err(StoreError::Faulted(Arc::new(fault)))
            }
            Mood::Forgets => {
                answer.await?;
                Err(StoreError::Unknown)
            }
            Mood::Hangs => {
                answer.await?;
                std::future::pending().await
            }
        }
    }

    fn is(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }
}

impl LockStore for Moody {
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        self.answer(self.inner.take(step)).await
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        self.answer(self.inner.view(name)).await
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        self.inner.attach(client, inbox);
    }

    fn detach(&self, client: ClientId) {
        self.inner.detach(client);
    }
}

fn service() -> (Service, Moody) {
    let store = Moody { inner: Arc::default(), mood: Arc::new(Mutex::new(Mood::Well)), refused: Arc::default() };
    let locks = Locks::over(store.clone()).expect("chance");
    let mut config = Config { ..config() };
    config.limits.answer = Duration::from_millis(200);
    (Service::with_locks(locks, config), store)
}

pub(crate) async fn a_store_of_locks_that_refuses_is_unavailable() {
    let (service, store) = service();
    let held = service.hold("door", "ann").await;
    let handle = text(&held, "handle");
    store.is(Mood::Refuses);
    for ask in [
        look("door"),
        acquire("gate", "bob", 0, 60_000),
        acquire("gate", "bob", 0, 60_000).once("k1"),
        acquire("gate", "bob", 50, 60_000),
        renew("door", handle, 60_000),
        release("door", handle),
    ] {
        let told = service.send(ask).await.refused(503, "store_unavailable");
        assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("5"), &json!(5_000)));
    }
    store.is(Mood::Well);
    assert_eq!(service.lock("door").await["fence"], held["fence"]);
    service.send(renew("door", handle, 60_000)).await.is(200);
    service.send(acquire("gate", "bob", 0, 60_000).once("k1")).await.is(200);
    service.give_back(&held).await.is(200);
}

pub(crate) async fn a_store_of_locks_that_does_not_answer_leaves_the_outcome_unknown() {
    for mood in [Mood::Forgets, Mood::Hangs] {
        for ask in [
            acquire("gate", "bob", 0, DAY_MS),
            acquire("gate", "bob", 0, DAY_MS).once("k1"),
            acquire("gate", "bob", 50, DAY_MS),
            look("door"),
        ] {
            let (service, store) = service();
            store.is(mood);
            let told = service.send(ask).await.refused(503, "outcome_unknown");
            assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("1"), &json!(1_000)));
            store.is(Mood::Well);
            // Its effect is undone.
            service.until_free("gate").await;
            assert_eq!(service.lock("gate").await["waiters"], 0);
        }
        let (service, store) = service();
        let held = service.hold("door", "ann").await;
        store.is(mood);
        service.send(renew("door", text(&held, "handle"), 60_000)).await.refused(503, "outcome_unknown");
        service.send(release("door", text(&held, "handle"))).await.refused(503, "outcome_unknown");
        store.is(Mood::Well);
        service.give_back(&held).await.refused(410, "lock_lost");
    }
}

/// A repeat that cannot be checked is not answered with a hold that may be over.
pub(crate) async fn a_repeat_that_cannot_be_checked_is_told_so() {
    let (service, store) = service();
    let ann = || acquire("door", "ann", 0, DAY_MS).once("k1");
    let first = service.send(ann()).await.is(200);
    for (mood, code) in [(Mood::Refuses, "store_unavailable"), (Mood::Hangs, "outcome_unknown")] {
        store.is(mood);
        service.send(ann()).await.refused(503, code);
        store.is(Mood::Well);
        assert_eq!(service.send(ann()).await.is(200).bytes, first.bytes);
    }
}

/// What may have been renewed is not forgotten before it may be over.
pub(crate) async fn a_key_outlasts_a_renewal_that_no_process_knows_of() {
    let (service, store) = service();
    let ann = || acquire("door", "ann", 0, 1_000).once("k1");
    let first = service.send(ann()).await.is(200).json();
    store.is(Mood::Forgets);
    service.send(renew("door", text(&first, "handle"), DAY_MS)).await.refused(503, "outcome_unknown");
    store.is(Mood::Well);
    // Until the first lease is over.
    service.send(acquire("gate", "ann", 0, 1_000)).await.is(200);
    service.until_free("gate").await;
    let again = service.send(ann()).await.is(200).json();
    assert_eq!(again["handle"], first["handle"]);
}

/// A store that comes back in time costs no process the place.
pub(crate) async fn a_wait_outlasts_a_store_that_fails_for_a_while() {
    let (service, store) = service();
    let held = service.hold("door", "ann").await;
    store.is(Mood::Refuses);
    let bob = waits(service.send(acquire("door", "bob", LONG_MS, 60_000))).await;
    store.is(Mood::Well);
    let others = async {
        service.until_waiting("door", 1).await;
        service.give_back(&held).await.is(200);
    };
    let (bob, ()) = tokio::join!(bob, others);
    assert_eq!(bob.is(200).text("owner"), "bob");
}

/// A lock that no process was told of is given back, also by a store that fails at that moment.
pub(crate) async fn what_no_process_was_told_of_is_given_back_again_and_again() {
    let (service, store) = service();
    let held = service.hold("door", "ann").await;
    let bob = waits(service.send(acquire("door", "bob", LONG_MS, DAY_MS).once("k1"))).await;
    service.until_waiting("door", 1).await;
    service.give_back(&held).await.is(200);
    let granted = "firstcome_lock_acquisitions_total{outcome=\"granted\"} 2";
    crate::running::until(async || service.metrics().await.contains(granted)).await;
    store.is(Mood::Refuses);
    drop(bob);
    crate::running::until(async || 0 < store.refused.load(Ordering::Relaxed)).await;
    store.is(Mood::Well);
    service.until_free("door").await;
}
