//! Locks in memory against the conformance suite.

use crate::in_time;
use firstcome_store::MemoryLocks;
use firstcome_store::conformance::{self, manual_clock};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_in_memory_keep_every_promise_of_the_port() {
    let open = || async {
        let (clock, pass) = manual_clock();
        (MemoryLocks::with_clock(clock), pass)
    };
    in_time(conformance::lock(open)).await;
}
