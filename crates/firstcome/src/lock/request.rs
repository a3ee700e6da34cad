//! A request for a lock, and what it asks of its store.

use super::demands::Demands;
use super::driver::Shared;
use super::{Backing, Guard, LEASE_DEFAULT, LockError, Locks, lease_ms, parse_name};
use firstcome_store::Sharing;
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::limits::{PERMITS_MAX, WAIT_MS_MAX};
use firstcome_store::core::lock::spin::Pauses;
use firstcome_store::core::lock::{Ask, Mode, Watch};
use std::num::NonZeroU32;
use std::time::Duration;

/// The longest wait, which is also the default.
const WAIT_MAX: Duration = Duration::from_millis(WAIT_MS_MAX as u64);
/// The base of the pauses of a store that polls.
const BASE_MS: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// The most passes that one cohort can have.
const COHORT_MAX: u32 = 1_000_000;

/// What a request asks of any store.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) name: Box<str>,
    pub(super) owner: Option<Box<str>>,
    /// Zero for a request that does not wait.
    pub(super) wait: Duration,
    /// `None` for the default of the store.
    pub(super) lease: Option<Duration>,
    pub(super) watch: Watch,
    pub(super) passes: NonZeroU32,
    /// How many requests may share the lock; `None` for an exclusive hold.
    pub(super) permits: Option<u32>,
    pub(super) pauses: Pauses,
    pub(super) tries: NonZeroU32,
}

impl Terms {
    /// The name of the lock, checked.
    pub(super) fn lock_name(&self) -> Result<LockName, LockError> {
        parse_name(&self.name)
    }

    /// The holder's name, checked; `default` if the request names none.
    pub(super) fn owner_or(&self, default: &OwnerName) -> Result<OwnerName, LockError> {
        match &self.owner {
            Some(owner) => OwnerName::parse(owner).map_err(|error| LockError::name("owner", error)),
            None => Ok(default.clone()),
        }
    }

    /// The step of the core's lock client.
    fn ask(&self, shared: &Shared) -> Result<Ask, LockError> {
        let (name, owner) = (self.lock_name()?, self.owner_or(&shared.owner)?);
        let lease_ms = lease_ms(self.lease.unwrap_or(LEASE_DEFAULT))?;
        // `LockRequest::check` has bounded the wait.
        let wait_ms = u32::try_from(self.wait.as_millis()).unwrap_or(WAIT_MS_MAX);
        let exclusive = Mode::Exclusive { passes: self.passes.get() };
        let mode = self.permits.map_or(exclusive, |permits| Mode::Shared { permits });
        Ok(Ask { name, owner, wait_ms, lease_ms, mode, watch: self.watch })
    }
}

/// A request for a lock, before it is sent.
///
/// A setting that the store cannot keep is refused when the request is sent, with [`LockError::Unsupported`], unless the
/// setting says that it has no effect there.
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct LockRequest {
    locks: Locks,
    terms: Terms,
    demands: Demands,
    /// As written: checked when the request is sent.
    passes: u32,
}

firstcome_store::core::debug_by_name!(LockRequest);

impl LockRequest {
    pub(super) fn new(locks: &Locks, name: &str) -> Self {
        let terms = Terms {
            name: name.into(),
            owner: None,
            wait: WAIT_MAX,
            lease: None,
            watch: Watch::Renew,
            passes: NonZeroU32::MIN,
            permits: None,
            pauses: Pauses::ShrinkingJitter { base_ms: BASE_MS },
            tries: NonZeroU32::MAX,
        };
        Self { locks: locks.clone(), terms, demands: Demands::default(), passes: 1 }
    }

    /// The name of the lock, as written.
    pub(super) fn name(&self) -> &str {
        &self.terms.name
    }

    /// How long the request waits.
    pub(super) const fn waits(&self) -> Duration {
        self.terms.wait
    }

    /// Sets how long to wait: at most one hour, which is also the default. With zero, [`Self::acquire`] is
    /// [`Self::try_acquire`].
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.terms.wait = wait;
        self
    }

    /// Sets how long the hold lasts after its last renewal: 100 ms to 8 days, and at most what the store allows; 30 s by
    /// default. The client renews it three times per lease as long as the guard lives.
    ///
    /// On etcd all holds of a process share one lease, which is set when the locks are opened, and built-in locks of
    /// databases have none. There another lease is refused.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// Lets the hold end with its lease, without renewals. For a request that waited in line, the lease counts from a
    /// confirmation that the client sends shortly after the grant. Refused where holds have no lease of their own: on
    /// etcd, and for built-in locks of databases.
    pub const fn fixed(mut self) -> Self {
        self.terms.watch = Watch::Fixed;
        self
    }

    /// Lets one grant of the store serve up to `passes` tasks of this process that ask for this lock in the same way.
    /// They have it one after the other, each with its own fence where there are fences, for at most one lease
    /// together. This is much faster in a busy line, but up to a cohort of tasks may overtake tasks of other processes.
    ///
    /// Has no effect on [`Self::try_acquire`], on etcd, and on built-in locks of databases.
    pub const fn cohort(mut self, passes: u32) -> Self {
        self.passes = passes;
        self
    }

    /// Shares the lock with other shared requests, as the readers of a read/write lock do: up to 1000 hold it together, and
    /// no request that does not share it.
    ///
    /// Readers and writers take turns, so none of them starves: after a writer all waiting readers have the lock, and
    /// after these the oldest writer. A reader that comes while a writer waits goes after that writer. All readers of one
    /// turn have the same fence, which is above that of every writer before and below that of every writer after, so a
    /// [fence check](crate::fence) accepts readers of one turn beside each other.
    ///
    /// Refused with [`LockError::Unsupported`] where the store keeps no such holds: on etcd, on several servers that vote, in
    /// layouts of other libraries, and for built-in locks of databases. [`Self::cohort`] has no effect beside it.
    pub const fn shared(self) -> Self {
        self.permits(PERMITS_MAX)
    }

    /// Makes the lock a semaphore: up to `permits` requests hold it together, 1 to 1000, in the order of arrival. The number is
    /// that of each request: a request gets the lock if no more than its own `permits` then hold it.
    ///
    /// See [`Self::shared`], which is the same with the most permits. Fences do not tell permits of one turn apart: they
    /// protect against holders of an earlier turn only.
    pub const fn permits(mut self, permits: u32) -> Self {
        self.terms.permits = Some(permits);
        self
    }

    /// Sets the holder's name as other clients see it; by default it names the process. Has no effect where the store
    /// has no place for it: in layouts of other libraries, on several servers that vote, and for built-in locks of
    /// databases.
    pub fn owner(mut self, owner: &str) -> Self {
        self.terms.owner = Some(owner.into());
        self
    }

    /// Sets how long to pause between two tries, where the client polls: in layouts of other libraries, and on several
    /// servers that vote. By default a jitter that shrinks from a base of 100 ms.
    pub const fn policy(mut self, pauses: Pauses) -> Self {
        self.terms.pauses = pauses;
        self
    }

    /// Sets the most tries, where the client polls; see [`Self::policy`].
    pub const fn tries(mut self, tries: NonZeroU32) -> Self {
        self.terms.tries = tries;
        self
    }

    /// Demands grants in the order of arrival: fails with [`LockError::NotGuaranteed`] if the store does not promise that.
    pub const fn ordered(mut self) -> Self {
        self.demands = self.demands.ordered();
        self
    }

    /// Demands a fence with every grant: fails with [`LockError::NotGuaranteed`] if the store does not promise that.
    pub const fn fenced(mut self) -> Self {
        self.demands = self.demands.fenced();
        self
    }

    /// Checks all that does not depend on the store.
    fn check(&mut self) -> Result<(), LockError> {
        self.demands.check(self.locks.guarantees())?;
        if WAIT_MAX < self.terms.wait {
            return Err(LockError::value("wait", "at most 1 h"));
        }
        if self.terms.permits.is_some_and(|permits| !(1..=PERMITS_MAX).contains(&permits)) {
            return Err(LockError::value("permits", "1 to 1000"));
        }
        if self.terms.permits.is_some() && self.locks.guarantees().sharing == Sharing::None {
            return Err(LockError::Unsupported { operation: "share a lock" });
        }
        let passes = NonZeroU32::new(self.passes).filter(|passes| passes.get() <= COHORT_MAX);
        self.terms.passes = passes.ok_or(LockError::value("cohort", "1 to 1000000"))?;
        Ok(())
    }

    /// Waits for the lock. One request if the lock is free. What a wait costs depends on the store: in line, the release
    /// of the holder before grants the lock, and the client confirms that grant with one more request.
    ///
    /// Dropping the future leaves nothing behind: the client gives up its place, and releases a grant that arrives too
    /// late.
    ///
    /// Fails with [`LockError::TimedOut`], or as [`Self::try_acquire`] does; with `Contended` only if the wait is zero.
    pub async fn acquire(mut self) -> Result<Guard, LockError> {
        self.check()?;
        match &self.locks.backing {
            Backing::Ordered(shared) => shared.acquire(self.terms.ask(shared)?).await,
            Backing::Other(locks) => locks.acquire(&self.terms).await.map(Guard::of_other),
        }
    }

    /// Takes the lock if it is free. One request. Cancel-safe like [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if another request has it. Fails with [`LockError::Unavailable`] or
    /// [`LockError::Unknown`] if the store does not answer. Fails with [`LockError::NotGuaranteed`],
    /// [`LockError::Unsupported`], [`LockError::Input`] before anything is sent.
    pub async fn try_acquire(self) -> Result<Guard, LockError> {
        self.wait(Duration::ZERO).acquire().await
    }

    /// Runs `body` under the lock, and releases the lock. When the lock is lost, `body` is dropped at its next await
    /// point, and the call fails with [`LockError::Lost`]. It also fails so if the lock was lost before the release.
    pub async fn with<T>(self, body: impl AsyncFnOnce(&Guard) -> T) -> Result<T, LockError> {
        let guard = self.acquire().await?;
        let value = guard.run(body(&guard)).await?;
        guard.release().await?;
        Ok(value)
    }
}
