//! The store in memory, whose commands run in the caller's own thread.

use crate::in_time;
use firstcome_store::{Embedded, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_in_memory_keeps_every_promise_of_the_port() {
    in_time(conformance::coupon(|clock| async move { Embedded::memory_with(clock) })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rooms_in_memory_keep_every_promise_of_the_port() {
    in_time(conformance::room(|clock| async move { Embedded::memory_with(clock) })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn receipts_of_a_store_in_memory_keep_every_promise_of_the_port() {
    in_time(conformance::receipts(|clock| async move { Embedded::memory_with(clock) })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn erasures_from_a_store_in_memory_keep_every_promise_of_the_port() {
    in_time(conformance::erasures(|clock| async move { Embedded::memory_with(clock) })).await;
    in_time(conformance::member_erasures(|clock| async move { Embedded::memory_with(clock) })).await;
    in_time(conformance::member_erasures_by_the_clock(|clock| async move { Embedded::memory_with(clock) })).await;
}
