use crate::support::{BidError, Dropped, Log, assert_freed, watched};
use firstcome::{LockError, Locks, distributed_lock};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

#[distributed_lock(key = "a", locks = locks, lease = "100ms")]
async fn forever(locks: &Locks, broken: &AtomicBool, log: Log) -> Result<(), BidError> {
    let _dropped = Dropped(log, "dropped");
    broken.store(true, Ordering::Relaxed);
    pending().await
}

#[tokio::test]
async fn a_lost_lock_drops_the_body_and_the_caller_is_told() {
    let (store, locks, other) = watched();
    let log = Log::default();
    let lost = forever(&locks, &store.broken, log.clone()).await.unwrap_err();
    assert!(matches!(lost, BidError::Lock(LockError::Lost)), "{lost:?}");
    assert_eq!(log.take(), ["dropped"]);
    assert_freed(&other, "a").await;
}

/// Ends without an await point after its lock.
#[distributed_lock(key = "a", locks = locks, lease = "100ms", guard = held)]
async fn too_late(locks: &Locks, broken: &AtomicBool, outcome: Result<(), BidError>) -> Result<(), BidError> {
    broken.store(true, Ordering::Relaxed);
    while !held.is_lost() {
        std::hint::spin_loop();
    }
    outcome
}

#[tokio::test]
async fn a_success_that_came_after_the_lock_was_lost_is_none() {
    let (store, locks, _) = watched();
    let lost = too_late(&locks, &store.broken, Ok(())).await.unwrap_err();
    assert!(matches!(lost, BidError::Lock(LockError::Lost)), "{lost:?}");
}

#[tokio::test]
async fn an_error_of_the_bodys_own_stays_no_matter_what_becomes_of_the_lock() {
    let (store, locks, _) = watched();
    let own = too_late(&locks, &store.broken, Err(BidError::TooLow)).await.unwrap_err();
    assert!(matches!(own, BidError::TooLow), "{own:?}");
}
