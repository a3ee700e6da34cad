//! Several locks at once, all or none.

use super::{Guard, LockError, LockRequest};
use std::time::{Duration, Instant};

/// Several locks that are about to be asked for. They are taken one after the other in the order of their names, so that
/// two who want some of the same never wait for each other.
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire`"]
pub struct MultiLock {
    requests: Vec<LockRequest>,
}

/// Several locks that are held. Dropping it gives all of them back in the background.
#[derive(Debug)]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiLock {
    pub(super) fn new(mut requests: Vec<LockRequest>) -> Self {
        requests.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        requests.dedup_by(|one, other| one.name == other.name);
        Self { requests }
    }

    /// How long to wait for all of them together; see [`LockRequest::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        self.each(|request| request.wait(wait))
    }

    /// See [`LockRequest::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        self.each(|request| request.lease(lease))
    }

    /// See [`LockRequest::owner`].
    pub fn owner(self, owner: &str) -> Self {
        self.each(|request| request.owner(owner))
    }

    fn each(mut self, change: impl Fn(LockRequest) -> LockRequest) -> Self {
        self.requests = self.requests.into_iter().map(change).collect();
        self
    }

    /// Waits for all of them. One request each. If one cannot be had, or the future is dropped, those that were taken are
    /// given back.
    #[expect(clippy::disallowed_methods, reason = "one time to wait is shared by several requests")]
    pub async fn acquire(self) -> Result<MultiGuard, LockError> {
        let started = Instant::now();
        let mut guards: Vec<Guard> = Vec::with_capacity(self.requests.len());
        for request in self.requests {
            let wait = request.wait;
            let guard = match wait {
                Some(wait) => request.wait(wait.saturating_sub(started.elapsed())).acquire().await?,
                None => request.acquire().await?,
            };
            guards.push(guard);
            if guards.iter().any(Guard::is_lost) {
                return Err(LockError::Lost);
            }
        }
        Ok(MultiGuard { guards })
    }
}

impl MultiGuard {
    /// The guards, in the order of their names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Gives all of them back. Fails as [`Guard::release`] does, with the first failure, when all have been tried.
    pub async fn release(self) -> Result<(), LockError> {
        let mut outcome = Ok(());
        for guard in self.guards.into_iter().rev() {
            let released = guard.release().await;
            outcome = outcome.and(released);
        }
        outcome
    }
}
