//! Several guards of one hold, which ends with the last of them.

use super::{Claim, Hold, KeyGuard};
use crate::lock::LockError;
use firstcome_store::StoreError;
use firstcome_store::key::KeyStore;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::{AbortHandle, JoinHandle};

/// Who has a hold.
pub(super) struct Ownership<S: KeyStore> {
    /// What is given back with the last guard.
    claim: Option<Claim<S>>,
    guards: u32,
    watchdog: Option<AbortHandle>,
}

/// What a guard leaves behind.
pub(super) enum Left<S: KeyStore> {
    /// No process: this must be given back.
    Last(Claim<S>),
    /// Other guards.
    Others,
}

impl<S: KeyStore> Ownership<S> {
    /// One guard has what was claimed.
    pub(super) const fn first(claim: Claim<S>) -> Self {
        Self { claim: Some(claim), guards: 1, watchdog: None }
    }

    /// It is renewed by this task, until the last guard leaves.
    pub(super) fn watched_by(&mut self, watchdog: AbortHandle) {
        self.watchdog = Some(watchdog);
    }

    pub(super) const fn guards(&self) -> u32 {
        self.guards
    }

    /// It is perhaps not over before.
    pub(super) fn lasts_until(&mut self, over_at: Instant) {
        if let Some(claim) = &mut self.claim {
            claim.over_at = claim.over_at.max(Some(over_at));
        }
    }
}

impl<S: KeyStore> KeyGuard<S> {
    /// Another guard of the same hold: for a part of the section that takes the lock again without knowing that it has it
    /// already. The lock is given back with the last guard, in any order they end. The hold lasts no longer for it.
    ///
    /// One request where the layout counts how many times over a lock is held (that of Redisson), no request elsewhere.
    /// Dropping the future leaves as many guards as before, and so does an error.
    ///
    /// Fails with [`LockError::Lost`] if the lock is lost, with [`LockError::Unavailable`] or [`LockError::Unknown`] if there
    /// is no answer.
    pub async fn reenter(&self) -> Result<Self, LockError> {
        if self.is_lost() {
            return Err(LockError::Lost);
        }
        self.hold.ownership.lock().guards += 1;
        // From here on it is undone by its drop.
        let again = Self { hold: Arc::clone(&self.hold), grant: self.grant, shares: true };
        if self.hold.report().await? { Ok(again) } else { Err(self.hold.is_over()) }
    }

    /// Ends the guard's share in the hold, and with the last one the renewals.
    pub(super) fn leave(&mut self) -> Left<S> {
        self.shares = false;
        let mut ownership = self.hold.ownership.lock();
        ownership.guards -= 1;
        if ownership.guards != 0 {
            return Left::Others;
        }
        // The task has a share in the hold until the runtime has dropped it.
        if let Some(watchdog) = ownership.watchdog.take() {
            watchdog.abort();
        }
        ownership.claim.take().map_or(Left::Others, Left::Last)
    }

    /// Says that there is a guard less.
    pub(super) async fn leave_to_others(&self) -> Result<(), LockError> {
        let told = self.hold.tell_in_background().await.map_err(|_| LockError::Unknown)?;
        if told? && !self.is_lost() { Ok(()) } else { Err(self.hold.is_over()) }
    }
}

impl<S: KeyStore> Hold<S> {
    /// Tells the store how many guards there are now. Whether the lock is held.
    async fn report(&self) -> Result<bool, StoreError> {
        let _turn = self.telling.lock().await;
        let guards = self.ownership.lock().guards;
        match NonZeroU32::new(guards) {
            Some(guards) => self.shared.store.count(&self.key, &self.word, guards).await,
            // The last one has given the lock back, or is about to, and the count with it.
            None => Ok(true),
        }
    }

    /// The same, a process that goes away meanwhile.
    pub(super) fn tell_in_background(self: &Arc<Self>) -> JoinHandle<Result<bool, StoreError>> {
        let hold = Arc::clone(self);
        self.shared.runtime.spawn(async move { hold.report().await })
    }

    /// Notes that another process may have the lock.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    fn is_over(&self) -> LockError {
        let now = Instant::now();
        self.deadline.send_modify(|deadline| *deadline = now.min(*deadline));
        LockError::Lost
    }
}
