//! Locks within one process: the rules of the core behind one mutex per bucket.

use crate::edge::{Clock, SystemClock, draw_hasher};
use crate::error::StoreError;
use crate::guarantees::Guarantees;
use crate::lock::{LockEvent, LockInbox, LockStore, TimedLockView};
use firstcome_core::id::LockName;
use firstcome_core::lock::{Answer, BUCKETS, ClientId, MemoryLockTable, Push, Step, bucket_of, take, view};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::Arc;

/// Locks in memory, which end with the process. No step waits, and none fails.
pub struct MemoryLocks {
    buckets: Vec<Mutex<MemoryLockTable<RandomState>>>,
    inboxes: RwLock<BTreeMap<ClientId, LockInbox>>,
    clock: Arc<dyn Clock>,
}

firstcome_core::debug_by_name!(MemoryLocks);

impl Default for MemoryLocks {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemClock::default()))
    }
}

impl MemoryLocks {
    /// Makes a store with a custom clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let hasher = draw_hasher();
        let buckets = (0..BUCKETS).map(|_| Mutex::new(MemoryLockTable::new(hasher.clone()))).collect();
        Self { buckets, inboxes: RwLock::default(), clock }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.now().as_us()).unwrap_or(0)
    }

    /// Takes a step like [`LockStore::take`], without a future.
    pub fn take_now(&self, step: &Step) -> Answer {
        let bucket = match step {
            Step::Acquire { name, .. } | Step::Release { name, .. } => bucket_of(name),
            Step::Renew { bucket, .. } | Step::Beat { bucket, .. } => *bucket,
        };
        let (answer, pushes) = {
            let mut table = self.buckets[usize::from(bucket)].lock();
            // Read under the mutex, so that the clock of a later step is never earlier.
            take(&mut *table, step, self.now_us())
        };
        for push in pushes {
            self.tell(push);
        }
        answer
    }

    fn tell(&self, push: Push) {
        let inbox = self.inboxes.read().get(&push.grant.request.client).cloned();
        if let Some(inbox) = inbox {
            inbox(LockEvent::Push(push));
        }
    }

    /// Returns the number of held locks plus waiting requests.
    pub fn len(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.lock().len()).sum()
    }

    /// Whether no lock is held, and no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LockStore for MemoryLocks {
    fn guarantees(&self) -> Guarantees {
        Guarantees::MEMORY
    }

    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        Ok(self.take_now(&step))
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        let table = self.buckets[usize::from(bucket_of(name))].lock();
        let now_us = self.now_us();
        Ok(TimedLockView { view: view(&*table, name, now_us), now_us })
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        self.inboxes.write().insert(client, inbox);
    }

    fn detach(&self, client: ClientId) {
        self.inboxes.write().remove(&client);
    }
}
