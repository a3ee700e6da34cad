//! Members, listings and bids in the embedded store, in memory.

use crate::in_time;
use firstcome_store::conformance::{self, AuctionSizes, manual_clock};
use firstcome_store::edge::ManualClock;
use firstcome_store::{AuctionStore, Embedded};
use std::sync::Arc;

async fn proves<S: AuctionStore + 'static>(sizes: AuctionSizes, new_store: impl Fn(Arc<ManualClock>) -> S) {
    let open = || {
        let (clock, pass) = manual_clock();
        let store = new_store(clock);
        async move { (store, pass) }
    };
    in_time(conformance::auctions(sizes, open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn auctions_in_memory_keep_every_promise_of_the_port() {
    proves(AuctionSizes::LARGE, |clock| Embedded::memory_with(clock)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn auctions_in_memory_keep_every_instant() {
    in_time(conformance::auction_by_the_clock(|clock| async move { Embedded::memory_with(clock) })).await;
}
