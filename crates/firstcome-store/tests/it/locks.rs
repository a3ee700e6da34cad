//! Every store of locks against the conformance suite.

use crate::in_time;
use firstcome_store::conformance::{self, LetPass};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{Clock, ManualClock, SharedClock};
use firstcome_store::{LockStore, MemoryLocks};
use std::sync::Arc;
use std::time::Duration;

/// A clock of the suite's own.
fn manual() -> (Arc<ManualClock>, LetPass) {
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(1_800_000_000_000_000)));
    let moved = Arc::clone(&clock);
    let pass: LetPass = Arc::new(move |ms| {
        moved.pass_ms(ms);
        Box::pin(async {})
    });
    (clock, pass)
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_in_memory_keep_every_promise_of_the_port() {
    proves(|| {
        let (clock, pass) = manual();
        (MemoryLocks::with_clock(clock), pass)
    })
    .await;
}

#[cfg(feature = "sqlite")]
mod in_a_file {
    use super::*;
    use firstcome_store::sqlite::{LockDurability, SqliteLocks, verify_locks};
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

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
            let (clock, pass) = manual();
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
}
