//! The store in one SQLite file.

use crate::in_time;
use firstcome_store::edge::ManualClock;
use firstcome_store::{conformance, sqlite};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
