//! Several guards of one hold, which ends with the last of them.

use super::{Claim, Hold, KeyGuard};
use crate::lock::LockError;
use firstcome_store::StoreError;
use firstcome_store::key::KeyStore;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::{AbortHandle, JoinHandle};

/// The guards that share a hold.
pub(super) struct Ownership<S: KeyStore> {
    /// The claim to give back with the last guard.
    claim: Option<Claim<S>>,
    guards: u32,
    watchdog: Option<AbortHandle>,
}

/// What remains of a hold after a guard leaves it.
pub(super) enum Left<S: KeyStore> {
    /// No guards: the caller must give this claim back.
    Last(Claim<S>),
    /// Other guards.
    Others,
}

impl<S: KeyStore> Ownership<S> {
    /// Starts with one guard, which owns the claim.
    pub(super) const fn first(claim: Claim<S>) -> Self {
        Self { claim: Some(claim), guards: 1, watchdog: None }
    }

    /// Sets the task that renews the hold until the last guard leaves.
    pub(super) fn watched_by(&mut self, watchdog: AbortHandle) {
        self.watchdog = Some(watchdog);
    }

    pub(super) const fn guards(&self) -> u32 {
        self.guards
    }

    /// Notes that the hold may last until `over_at`.
    pub(super) fn lasts_until(&mut self, over_at: Instant) {
        if let Some(claim) = &mut self.claim {
            claim.over_at = claim.over_at.max(Some(over_at));
        }
    }
}

impl<S: KeyStore> KeyGuard<S> {
    /// Makes another guard of the same hold. One request where the layout counts how many times a lock is held (that of
    /// Redisson); elsewhere none. If the future is dropped or fails, there are as many guards as before.
    pub(super) async fn reenter(&self) -> Result<Self, LockError> {
        if self.is_lost() {
            return Err(LockError::Lost);
        }
        self.hold.ownership.lock().guards += 1;
        // From here on dropping `again` undoes the increment.
        let again = Self { hold: Arc::clone(&self.hold), grant: self.grant, shares: true };
        if self.hold.report().await? { Ok(again) } else { Err(self.hold.is_over()) }
    }

    /// Ends this guard's share in the hold. The last guard also ends the renewals.
    pub(super) fn leave(&mut self) -> Left<S> {
        self.shares = false;
        let mut ownership = self.hold.ownership.lock();
        ownership.guards -= 1;
        if ownership.guards != 0 {
            return Left::Others;
        }
        // The renewing task keeps the hold alive until the runtime has dropped the task.
        if let Some(watchdog) = ownership.watchdog.take() {
            watchdog.abort();
        }
        ownership.claim.take().map_or(Left::Others, Left::Last)
    }

    /// Tells the store that there is one guard less.
    pub(super) async fn leave_to_others(&self) -> Result<(), LockError> {
        let told = self.hold.tell_in_background().await.map_err(|_| LockError::Unknown)?;
        if told? && !self.is_lost() { Ok(()) } else { Err(self.hold.is_over()) }
    }
}

impl<S: KeyStore> Hold<S> {
    /// Tells the store how many guards there are now. Returns whether the lock is still held.
    async fn report(&self) -> Result<bool, StoreError> {
        let _turn = self.telling.lock().await;
        let guards = self.ownership.lock().guards;
        match NonZeroU32::new(guards) {
            Some(guards) => self.shared.store.count(&self.key, &self.word, guards).await,
            // The last guard releases the lock, and the count goes with it.
            None => Ok(true),
        }
    }

    /// Runs [`Self::report`] as a task of its own, so that it completes even if the caller's future is dropped.
    pub(super) fn tell_in_background(self: &Arc<Self>) -> JoinHandle<Result<bool, StoreError>> {
        let hold = Arc::clone(self);
        self.shared.runtime.spawn(async move { hold.report().await })
    }

    /// Marks the hold as lost, because another process may have the lock.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    fn is_over(&self) -> LockError {
        let now = Instant::now();
        self.deadline.send_modify(|deadline| *deadline = now.min(*deadline));
        LockError::Lost
    }
}
