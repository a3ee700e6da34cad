//! Several locks at once, all or none.

use super::{Guard, LockError, LockRequest};
use std::time::{Duration, Instant};

/// A request for several locks, before it is sent. The locks are taken one after the other in the order of their names,
/// so that two such requests never deadlock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::Locks;
/// use std::time::Duration;
///
/// let locks = Locks::memory();
/// let both = locks.all(["account:ann", "account:bob"]).wait(Duration::from_secs(5)).acquire().await?;
/// both.release().await?; // no transfer of either ran meanwhile
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire`"]
pub struct MultiLock {
    requests: Vec<LockRequest>,
}

firstcome_store::core::debug_by_name!(MultiLock);

/// Several locks that are held, from [`MultiLock::acquire`]. Dropping it releases all of them in the background.
#[must_use = "the locks are released when their guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiLock {
    pub(super) fn new(mut requests: Vec<LockRequest>) -> Self {
        requests.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        requests.dedup_by(|one, other| one.name() == other.name());
        Self { requests }
    }

    /// Sets how long to wait for all locks together; see [`LockRequest::wait`].
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

    /// See [`LockRequest::ordered`].
    pub fn ordered(self) -> Self {
        self.each(LockRequest::ordered)
    }

    /// See [`LockRequest::fenced`].
    pub fn fenced(self) -> Self {
        self.each(LockRequest::fenced)
    }

    fn each(mut self, change: impl Fn(LockRequest) -> LockRequest) -> Self {
        self.requests = self.requests.into_iter().map(change).collect();
        self
    }

    /// Waits for all of the locks. One request each. If it cannot get one of them, or the future is dropped, it
    /// releases those that it has.
    #[expect(clippy::disallowed_methods, reason = "one time to wait is shared by several requests")]
    pub async fn acquire(self) -> Result<MultiGuard, LockError> {
        let started = Instant::now();
        let mut guards: Vec<Guard> = Vec::with_capacity(self.requests.len());
        for request in self.requests {
            let left = request.waits().saturating_sub(started.elapsed());
            let waits = !request.waits().is_zero();
            let guard = request.wait(left).acquire().await.map_err(|error| match error {
                // The wait was used up by the locks before it.
                LockError::Contended { .. } if waits => LockError::TimedOut { position: None },
                error => error,
            });
            guards.push(guard?);
            if guards.iter().any(Guard::is_lost) {
                return Err(LockError::Lost);
            }
        }
        Ok(MultiGuard { guards })
    }
}

impl MultiGuard {
    /// The guards, in the order of the names of their locks.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Releases all of them. Fails as [`Guard::release`] does, with the first failure, after it tried every lock.
    pub async fn release(self) -> Result<(), LockError> {
        let mut outcome = Ok(());
        for guard in self.guards.into_iter().rev() {
            let released = guard.release().await;
            outcome = outcome.and(released);
        }
        outcome
    }
}
