//! Members, listings and bids in the embedded store, in memory and in a file.

use crate::in_time;
use firstcome_store::conformance::{self, LetPass, MarketSizes};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::{Embedded, MarketStore};
use std::sync::Arc;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::clamped_us(1_800_000_000_000_000)))
}

fn passes(clock: &Arc<ManualClock>) -> LetPass {
    let clock = Arc::clone(clock);
    Arc::new(move |ms| {
        clock.pass_ms(ms);
        Box::pin(async {})
    })
}

async fn proves<S: MarketStore + 'static>(sizes: MarketSizes, new_store: impl Fn(Arc<ManualClock>) -> S) {
    let open = || {
        let clock = clock();
        let store = new_store(Arc::clone(&clock));
        async move { (store, passes(&clock)) }
    };
    in_time(conformance::market(sizes, open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn markets_in_memory_keep_every_promise_of_the_port() {
    proves(MarketSizes::LARGE, |clock| Embedded::memory_with(clock)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn markets_in_memory_keep_every_instant() {
    in_time(conformance::market_by_the_clock(|clock| async move { Embedded::memory_with(clock) })).await;
}

#[cfg(feature = "sqlite")]
mod in_a_file {
    use super::*;
    use firstcome_store::sqlite::{self, verify};
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[track_caller]
    fn all_sound(directory: &Path) {
        for check in verify(directory).expect("the file can be read") {
            assert_eq!(check.breaches, 0, "{}: {:?}", check.invariant, check.examples);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn markets_in_a_file_keep_every_promise_of_the_port() {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let stores = AtomicU32::new(0);
        let sizes = MarketSizes { sequences: 10, ..MarketSizes::LARGE };
        proves(sizes, |clock| {
            let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
            sqlite::open(&fresh, clock).expect("a fresh directory opens")
        })
        .await;
        for store in 0..stores.into_inner() {
            all_sound(&directory.path().join(store.to_string()));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn markets_in_a_file_keep_every_instant() {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let stores = AtomicU32::new(0);
        let open = |clock: Arc<ManualClock>| {
            let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
            async move { sqlite::open(&fresh, clock).expect("a fresh directory opens") }
        };
        in_time(conformance::market_by_the_clock(open)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_file_that_is_opened_again_still_knows_its_market() {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let clock = clock();
        let open = || {
            let (same, clock) = (directory.path().to_owned(), Arc::clone(&clock));
            async move {
                let store = sqlite::open(&same, clock.clone()).expect("a store that was closed opens again");
                (store, passes(&clock))
            }
        };
        in_time(conformance::market_reopens(MarketSizes::LARGE, open)).await;
        all_sound(directory.path());
    }
}
