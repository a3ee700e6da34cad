//! Errors, a store that can be watched and broken, and a log of what happened.

use firstcome::core::id::LockName;
use firstcome::core::lock::{Answer, ClientId, Step};
use firstcome::lock::Retry;
use firstcome::{
    Fault, FaultKind, Guarantees, LockError, LockInbox, LockStore, Locks, MemoryLocks, StoreError, TimedLockView,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) enum BidError {
    Lock(LockError),
    Conflict,
    TooLow,
    Database(&'static str),
}

impl From<LockError> for BidError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl Retry for BidError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict)
    }
}

/// What happened, in its order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    pub(crate) fn push(&self, event: &'static str) {
        self.0.lock().unwrap().push(event);
    }

    pub(crate) fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn count(&self, event: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|one| **one == event).count()
    }
}

/// Says when it is dropped.
pub(crate) struct Dropped(pub(crate) Log, pub(crate) &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.push(self.1);
    }
}

/// Locks in memory that take a moment, tell what they do, and stop when they are told to.
#[derive(Clone, Default)]
pub(crate) struct Watched {
    pub(crate) store: Arc<MemoryLocks>,
    pub(crate) log: Log,
    /// No renewal and no release arrives any more.
    pub(crate) broken: Arc<AtomicBool>,
    /// What it promises, if not what locks in memory do.
    pub(crate) promises: Option<Guarantees>,
}

impl LockStore for Watched {
    fn guarantees(&self) -> Guarantees {
        self.promises.unwrap_or(self.store.guarantees())
    }

    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        // The first one passes unseen: a step is begun before it is awaited.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let (event, ends) = match &step {
            Step::Acquire { .. } => ("grant", false),
            Step::Release { .. } => ("release", true),
            _ => ("", true),
        };
        if ends && self.broken.load(Ordering::Relaxed) {
            let fault = Fault { kind: FaultKind::ReadOnly, detail: "told to".into() };
            return Err(StoreError::Faulted(Arc::new(fault)));
        }
        if !event.is_empty() {
            self.log.push(event);
        }
        LockStore::take(&*self.store, step).await
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        LockStore::view(&*self.store, name).await
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        LockStore::attach(&*self.store, client, inbox);
    }

    fn detach(&self, client: ClientId) {
        LockStore::detach(&*self.store, client);
    }
}

/// Two processes with the same locks: one to test, one to look on.
pub(crate) fn watched() -> (Watched, Locks, Locks) {
    let store = Watched::default();
    let other = Watched { log: Log::default(), broken: Arc::default(), ..store.clone() };
    (store.clone(), Locks::over(store).unwrap(), Locks::over(other).unwrap())
}

/// Fails unless the lock can be had at once.
pub(crate) async fn assert_free(locks: &Locks, name: &str) {
    locks.lock(name).try_acquire().await.unwrap().release().await.unwrap();
}

/// Fails unless the lock can be had soon: what is given back in the background is under way.
pub(crate) async fn assert_freed(locks: &Locks, name: &str) {
    locks.lock(name).wait(Duration::from_secs(10)).acquire().await.unwrap().release().await.unwrap();
}
