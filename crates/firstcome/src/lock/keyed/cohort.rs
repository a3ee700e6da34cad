//! Passes a hold on between the tasks of this process.
//!
//! For each key at most one task of a cohort asks the store. The others stand in a line of this process. A task that
//! ends a hold gives it to the first one in that line, if passes are left. It does not if a lease has gone by, if less
//! than half a lease is left, or if another guard shares the hold. Then the hold goes back to the store, and the first
//! task in the line asks the store.

use super::{Hold, KeyGuard, Shared};
use crate::lock::LockError;
use firstcome_store::key::KeyStore;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// The lines of this process, by key. A key has an entry as long as a task asks for it or holds it.
pub(super) struct CohortLines<S: KeyStore>(Mutex<BTreeMap<Arc<str>, CohortLine<S>>>);

type CohortLine<S> = VecDeque<oneshot::Sender<CohortTurn<S>>>;

/// What a task in a line receives.
pub(super) enum CohortTurn<S: KeyStore> {
    /// The hold of the task before it.
    Hold(KeyGuard<S>),
    /// No hold: this task must ask the store.
    Ask(Asking<S>),
}

/// The right to ask the store for a key on behalf of this process. Dropping it gives the right to the next task in the
/// line.
pub(super) struct Asking<S: KeyStore>(Option<(Arc<Shared<S>>, Arc<str>)>);

impl<S: KeyStore> Default for CohortLines<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: KeyStore> CohortLines<S> {
    /// Waits in the line of this process. Cancel-safe: a turn that a dropped future would get goes to the next task.
    pub(super) async fn turn(
        shared: &Arc<Shared<S>>,
        key: &Arc<str>,
        until: Instant,
    ) -> Result<CohortTurn<S>, LockError> {
        let turn = {
            let mut lines = shared.lines.0.lock();
            match lines.get_mut(key) {
                None => {
                    lines.insert(Arc::clone(key), VecDeque::new());
                    return Ok(CohortTurn::Ask(Asking(Some((Arc::clone(shared), Arc::clone(key))))));
                }
                Some(line) => {
                    let (told, turn) = oneshot::channel();
                    // Remove tasks that gave up, which would pile up behind a long hold.
                    if line.len() == line.capacity() {
                        line.retain(|waiting| !waiting.is_closed());
                    }
                    line.push_back(told);
                    turn
                }
            }
        };
        match timeout_at(until.into(), turn).await {
            Ok(Ok(turn)) => Ok(turn),
            // The line is never dropped while a task is in it.
            Ok(Err(_)) | Err(_) => Err(LockError::TimedOut { position: None }),
        }
    }

    /// Removes and returns the first task that still waits.
    fn next(line: &mut CohortLine<S>) -> Option<oneshot::Sender<CohortTurn<S>>> {
        std::iter::from_fn(|| line.pop_front()).find(|waiting| !waiting.is_closed())
    }

    fn next_of(&self, key: &str) -> Option<oneshot::Sender<CohortTurn<S>>> {
        self.0.lock().get_mut(key).and_then(Self::next)
    }

    /// Removes and returns the first task that still waits. If there is none, closes the line, so that the next task
    /// asks the store.
    fn next_or_close(&self, key: &str) -> Option<oneshot::Sender<CohortTurn<S>>> {
        let mut lines = self.0.lock();
        let next = lines.get_mut(key).and_then(Self::next);
        if next.is_none() {
            lines.remove(key);
        }
        next
    }
}

impl<S: KeyStore> Drop for Asking<S> {
    fn drop(&mut self) {
        let Some((shared, key)) = self.0.take() else { return };
        while let Some(next) = shared.lines.next_or_close(&key) {
            let asking = Self(Some((Arc::clone(&shared), Arc::clone(&key))));
            match next.send(CohortTurn::Ask(asking)) {
                Ok(()) => return,
                // The task has just given up. Clear the right here instead of by its drop: a long line of such tasks
                // would recurse as deep.
                Err(CohortTurn::Ask(mut asking)) => asking.0 = None,
                Err(CohortTurn::Hold(_)) => return,
            }
        }
    }
}

/// How a hold may be passed on within this process, and how often.
pub(super) struct Cohort<S: KeyStore> {
    asking: Mutex<Option<Asking<S>>>,
    last: S::Grant,
    left: Mutex<u32>,
    until: Instant,
}

impl<S: KeyStore> Cohort<S> {
    /// Starts a cohort with `passes` passes, of which the first one has begun. No pass begins after `until`.
    pub(super) fn new(asking: Asking<S>, last: S::Grant, passes: NonZeroU32, until: Instant) -> Self {
        Self { asking: Mutex::new(Some(asking)), last, left: Mutex::new(passes.get() - 1), until }
    }
}

impl<S: KeyStore> Hold<S> {
    /// Lets the next task ask the store. Called after the hold went back to the store.
    pub(super) fn let_the_next_ask(&self) {
        if let Some(cohort) = &self.cohort {
            let asking = cohort.asking.lock().take();
            drop(asking);
        }
    }
}

impl<S: KeyStore> KeyGuard<S> {
    /// Gives the hold to the next task of this process. Returns `false` if none waits, or if the hold must not be
    /// passed on.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    pub(super) fn pass_on(&mut self) -> bool {
        let Some(cohort) = &self.hold.cohort else { return false };
        let half = Duration::from_millis(u64::from(self.hold.lease_ms.load(Ordering::Relaxed))) / 2;
        if self.hold.ownership.lock().guards() != 1 || cohort.until <= Instant::now() || self.remaining() < half {
            return false;
        }
        let mut left = cohort.left.lock();
        while 0 < *left {
            let Some(next) = self.hold.shared.lines.next_of(&self.hold.key) else { return false };
            *left -= 1;
            let guard = Self { hold: Arc::clone(&self.hold), grant: S::pass(cohort.last, *left), shares: true };
            match next.send(CohortTurn::Hold(guard)) {
                Ok(()) => {
                    self.shares = false;
                    return true;
                }
                Err(CohortTurn::Hold(mut guard)) => guard.shares = false,
                Err(CohortTurn::Ask(_)) => return false,
            }
        }
        false
    }
}
