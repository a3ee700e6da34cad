//! The store in one SQLite file.

use crate::in_time;
use firstcome_sqlite as sqlite;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::{FaultKind, conformance};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_in_a_file_keeps_every_promise_of_the_port() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    let open = |clock: Arc<ManualClock>| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        async move { sqlite::open(&fresh, clock).expect("a fresh directory opens") }
    };
    in_time(conformance::coupon(open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_opened_again_still_knows_all_that_was_told() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let open = |clock: Arc<ManualClock>| {
        let same = directory.path().to_owned();
        async move { sqlite::open(&same, clock).expect("a store that was closed opens again") }
    };
    in_time(conformance::coupon_reopens(open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rooms_in_a_file_keep_every_promise_of_the_port() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    let open = |clock: Arc<ManualClock>| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        async move { sqlite::open(&fresh, clock).expect("a fresh directory opens") }
    };
    in_time(conformance::room(open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_opened_again_still_knows_its_rooms() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let open = |clock: Arc<ManualClock>| {
        let same = directory.path().to_owned();
        async move { sqlite::open(&same, clock).expect("a store that was closed opens again") }
    };
    in_time(conformance::room_reopens(open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn receipts_of_a_file_keep_every_promise_of_the_port() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    let open = |clock: Arc<ManualClock>| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        async move { sqlite::open(&fresh, clock).expect("a fresh directory opens") }
    };
    in_time(conformance::receipts(open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_opened_again_goes_on_with_its_chains() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let open = |clock: Arc<ManualClock>| {
        let same = directory.path().to_owned();
        async move { sqlite::open(&same, clock).expect("a store that was closed opens again") }
    };
    in_time(conformance::receipts_reopen(open)).await;
}

/// A child that another thread has just begun has all files of its parent open until it becomes its own program, locked ones too:
/// a store that was closed and opened again at that moment was told that another process has it.
#[test]
fn a_directory_that_is_just_being_left_is_opened_and_one_in_use_is_refused() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let open = || sqlite::open(directory.path(), Arc::new(ManualClock::new(Timestamp::clamped_us(1))));
    open().expect("a fresh directory opens").close();
    let locked = || {
        let file = File::options().write(true).open(directory.path().join(sqlite::LOCK_FILE)).expect("it is there");
        file.try_lock().expect("no process has it");
        file
    };
    let (file, (leave, left)) = (locked(), channel::<()>());
    let leaves = std::thread::spawn(move || {
        // Long enough for the first look to come before it, on most runs.
        let _ = left.recv_timeout(Duration::from_millis(100));
        drop(file);
    });
    let store = open().expect("it was left");
    drop(leave);
    leaves.join().expect("it leaves");
    store.close();
    drop(store);
    let file = locked();
    assert_eq!(open().map(drop).map_err(|fault| fault.kind), Err(FaultKind::InUse));
    drop(file);
}
