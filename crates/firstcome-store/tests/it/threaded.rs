//! The store with a writer thread and a queue, over a journal that forgets.

use crate::in_time;
use firstcome_store::edge::ManualClock;
use firstcome_store::embedded::Backing;
use firstcome_store::{Embedded, conformance};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_with_a_writer_thread_keeps_every_promise_of_the_port() {
    let open = |clock: Arc<ManualClock>| async move {
        Embedded::start(Backing::memory(), clock).expect("threads can be started")
    };
    in_time(conformance::coupon(open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rooms_with_a_writer_thread_keep_every_promise_of_the_port() {
    let open = |clock: Arc<ManualClock>| async move {
        Embedded::start(Backing::memory(), clock).expect("threads can be started")
    };
    in_time(conformance::room(open)).await;
}
