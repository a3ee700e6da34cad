//! Functions that hold their lock beside others, and those that demand something of the store.

use crate::support::{BidError, Log, Watched};
use firstcome::{Demand, Guarantees, LockError, Locks, distributed_lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

#[derive(Clone)]
struct Page {
    locks: Locks,
    log: Log,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Page {
    fn over(locks: Locks) -> Self {
        Self { locks, log: Log::default(), running: Arc::default(), most: Arc::default() }
    }

    #[distributed_lock(key = "page", shared)]
    async fn read(&self, all: &Barrier) -> Result<(), BidError> {
        all.wait().await;
        self.log.push("read");
        Ok(())
    }

    #[distributed_lock(key = "page", wait = "0s")]
    async fn write(&self) -> Result<(), BidError> {
        self.log.push("write");
        Ok(())
    }

    #[distributed_lock(key = "print", permits = 2)]
    async fn print(&self) -> Result<(), BidError> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    #[distributed_lock(key = "page", ordered)]
    async fn in_order(&self) -> Result<(), LockError> {
        self.log.push("in order");
        Ok(())
    }

    #[distributed_lock(key = "page", fenced, ordered)]
    async fn with_fence(&self) -> Result<(), LockError> {
        self.log.push("with a fence");
        Ok(())
    }
}

#[tokio::test]
async fn readers_run_together_and_a_writer_does_not_join_them() {
    let page = Page::over(Locks::memory());
    let all = Barrier::new(3);
    let writer = async {
        all.wait().await;
        page.write().await
    };
    // Each waits for the other, so that one which is let in alone hangs.
    let together = async { tokio::join!(page.read(&all), page.read(&all), writer) };
    let (one, two, refused) = tokio::time::timeout(Duration::from_secs(60), together).await.expect("all meet");
    one.unwrap();
    two.unwrap();
    assert!(matches!(refused, Err(BidError::Lock(LockError::Contended { .. }))), "{refused:?}");
    assert_eq!(page.log.take(), ["read", "read"]);
    page.write().await.unwrap();
    assert_eq!(page.log.take(), ["write"]);
}

#[tokio::test]
async fn no_more_run_than_there_are_permits() {
    let page = Page::over(Locks::memory());
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let page = page.clone();
        tasks.spawn(async move { page.print().await });
    }
    while let Some(printed) = tasks.join_next().await {
        printed.unwrap().unwrap();
    }
    assert_eq!(page.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_store_that_promises_less_than_is_demanded_is_refused_before_anything_is_sent() {
    let store = Watched { promises: Some(Guarantees::SHARED_LAYOUT), ..Watched::default() };
    let weak = Page::over(Locks::over(store.clone()).unwrap());
    let demand = |refused: Result<(), LockError>| match refused {
        Err(LockError::NotGuaranteed { demand }) => demand,
        other => panic!("{other:?}"),
    };
    assert_eq!(demand(weak.in_order().await), Demand::Ordered);
    let mut fenceless = Guarantees::SHARED_LAYOUT;
    fenceless.order = Guarantees::MEMORY.order;
    let fenceless = Watched { promises: Some(fenceless), ..store.clone() };
    assert_eq!(demand(Page::over(Locks::over(fenceless).unwrap()).with_fence().await), Demand::Fenced);
    assert!(store.log.take().is_empty(), "something was sent");
    assert!(weak.log.take().is_empty(), "a body ran");

    let strong = Page::over(Locks::memory());
    strong.in_order().await.unwrap();
    strong.with_fence().await.unwrap();
    assert_eq!(strong.log.take(), ["in order", "with a fence"]);
}
