//! The store behind [`Store`](firstcome::Store) against the conformance suite: each call reaches the right method, and its
//! answer comes back whole.

use firstcome::edge::ManualClock;
use firstcome::{AnyStore, Embedded};
use firstcome_store::conformance::{self, AuctionSizes};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

async fn in_memory(clock: Arc<ManualClock>) -> AnyStore {
    Embedded::memory_with(clock).into()
}

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), test).await.expect("the test hangs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn coupons_of_any_store_keep_every_promise_of_the_port() {
    in_time(conformance::coupon(in_memory)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rooms_of_any_store_keep_every_promise_of_the_port() {
    in_time(conformance::room(in_memory)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_of_any_store_keep_every_promise_of_the_port() {
    in_time(conformance::receipts(in_memory)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn auctions_and_points_of_any_store_keep_every_promise_of_the_port() {
    in_time(conformance::auctions(AuctionSizes::SMALL, || async {
        let (clock, pass) = conformance::manual_clock();
        (in_memory(clock).await, pass)
    }))
    .await;
}
