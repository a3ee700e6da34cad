//! Locks in a file against the conformance suite.

use crate::in_time;
use firstcome_sqlite::{LockDurability, SqliteLocks, verify_locks};
use firstcome_store::LockStore;
use firstcome_store::conformance::{self, LetPass, manual_clock};
use firstcome_store::edge::{Clock, SharedClock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The time of the machine: looks at the stores' clock until so much has passed on it.
fn waits() -> LetPass {
    Arc::new(|ms| {
        Box::pin(async move {
            let clock = SharedClock::default();
            let until_us = clock.now().as_us().saturating_add_unsigned(ms * 1_000);
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            while clock.now().as_us() < until_us {
                ticks.tick().await;
            }
        })
    })
}

async fn proves<S: LockStore>(new_store: impl Fn() -> (S, LetPass)) {
    in_time(conformance::lock(|| {
        let store = new_store();
        async move { store }
    }))
    .await;
}

#[track_caller]
fn all_sound(directory: &Path) {
    for check in verify_locks(directory).expect("the file can be read") {
        assert_eq!(check.breaches, 0, "{}: {:?}", check.invariant, check.examples);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_in_a_file_keep_every_promise_of_the_port() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    proves(|| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        let (clock, pass) = manual_clock();
        let store = SqliteLocks::with_clock(&fresh, LockDurability::Durable, clock);
        (store.expect("a fresh directory opens"), pass)
    })
    .await;
    for store in 0..stores.into_inner() {
        all_sound(&directory.path().join(store.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_in_a_file_keep_every_promise_by_the_machines_clock() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    proves(|| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        let store = SqliteLocks::open(&fresh, LockDurability::Memory);
        (store.expect("a fresh directory opens"), waits())
    })
    .await;
    for store in 0..stores.into_inner() {
        all_sound(&directory.path().join(store.to_string()));
    }
}
