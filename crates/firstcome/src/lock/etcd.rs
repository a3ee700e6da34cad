//! Locks on etcd.

use super::demands::Demands;
use super::{LockError, parse_name};
use crate::fence::FenceToken;
use firstcome_etcd::{Counts, EtcdError, EtcdHold, EtcdLink, EtcdLockView, EtcdOptions, EtcdWrite, Taken};
use firstcome_store::Guarantees;
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::limits::WAIT_MS_MAX;
use firstcome_store::core::lock::{ClientId, Fence, Request};
use firstcome_store::edge::draw_id;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Locks on etcd, in the order of arrival, with a fence on every grant.
///
/// For operators who run etcd anyway, or who want its servers to agree on each grant: no failover forgets a grant. Each
/// grant and each release is a commit of the cluster. These features of [`Locks`](super::Locks) are missing:
///
/// - *A lease per lock.* All holds and places in line of a process rest on one lease, [`EtcdOptions::lease`], so they
///   are lost together. The lease is renewed three times in its length. It has whole seconds, and mostly at least two.
/// - *Quick removal of dead waiters.* The places of a dead process end with its lease, as its holds do.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::Locks;
/// use std::time::Duration;
///
/// let locks = Locks::etcd("etcd://10.0.0.1,10.0.0.2,10.0.0.3").await?;
/// let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).acquire().await?;
/// println!("ours, with fence {}", guard.fence());
/// guard.release().await?;
/// locks.close().await?; // so that no other process waits for the end of the lease
/// # Ok(()) }
/// ```
///
/// # Promises
/// - etcd grants a lock in the order in which it accepted the requests. It passes over waiters that gave up or died.
/// - Every grant has a fence above that of every grant before it, of any lock of the cluster: the revision that created
///   the key of the lock. Let the guarded store refuse a smaller one; [`fence`](crate::fence) has ready-made checks.
///   [`EtcdGuard::write`] guards writes to etcd itself. Do not compare these fences with those of other kinds of locks.
/// - [`EtcdGuard::lost`] resolves before another holder can have the lock, as long as this process runs and no clock is
///   wrong by more than one per cent.
/// - Dropping a future or a guard gives the place or the lock back in the background. If that fails, it ends with the
///   lease.
///
/// # Not promised
/// - That a hold lasts. It ends when this process cannot reach etcd for a lease, when it stands still for one, or when
///   an operator deletes the key.
/// - Fences that grow after the restore of an old backup: revisions then continue from the backup.
#[derive(Clone)]
pub struct EtcdLocks {
    store: firstcome_etcd::EtcdLocks,
    owner: OwnerName,
}

impl EtcdLocks {
    /// Opens locks as [`Locks::etcd`](super::Locks::etcd) does, with a custom lease, prefix and times.
    pub async fn open_with(url: &str, options: EtcdOptions) -> Result<Self, EtcdError> {
        let broken = |says: String| EtcdError::Broken { says };
        let id = draw_id().map_err(|fault| broken(fault.to_string()))?;
        let owner = format!("process-{}-{id:016x}", std::process::id());
        let owner = OwnerName::parse(&owner).map_err(|error| broken(error.to_string()))?;
        Ok(Self { store: firstcome_etcd::EtcdLocks::open(url, options).await?, owner })
    }

    /// What the store promises for these locks. No request.
    pub fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    /// Returns a request for the lock of this name. Sends nothing yet.
    pub fn lock(&self, name: &str) -> EtcdRequest {
        let wait = Duration::from_millis(u64::from(WAIT_MS_MAX));
        EtcdRequest { locks: self.clone(), name: name.into(), owner: None, wait, demands: Demands::default() }
    }

    /// Shows a lock. One request.
    pub async fn view(&self, name: &str) -> Result<EtcdLockView, LockError> {
        Ok(self.store.view(&parse_name(name)?).await?)
    }

    /// Returns the link, for custom requests to etcd. See [`etcd`](crate::etcd).
    pub fn link(&self) -> &EtcdLink {
        self.store.link()
    }

    /// Returns how much work was done so far.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    /// Ends the lease, and with it every hold and every place of this process: guards that still live are lost. For the
    /// end of a program, so that it leaves nothing behind. One request.
    ///
    /// Fails if etcd cannot be reached: then the lease ends by itself.
    pub async fn close(&self) -> Result<(), LockError> {
        Ok(self.store.close().await?)
    }
}

/// A request for a lock, before it is sent.
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct EtcdRequest {
    locks: EtcdLocks,
    name: Box<str>,
    owner: Option<Box<str>>,
    wait: Duration,
    demands: Demands,
}

impl EtcdRequest {
    /// Sets how long to wait in line: at most one hour, which is also the default.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the holder's name as other clients see it; by default it names the process.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.into());
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

    /// Gets in line and waits for the lock. One request if the lock is free. Otherwise one more request and one message
    /// from etcd for each request that comes to stand directly ahead of this one.
    ///
    /// Dropping the future leaves nothing behind: the client gives up the place in line, and releases a grant that
    /// arrives too late.
    ///
    /// Fails with [`LockError::TimedOut`], or as [`Self::try_acquire`] does; with `Contended` only if the wait is zero.
    pub async fn acquire(self) -> Result<EtcdGuard, LockError> {
        if Duration::from_millis(u64::from(WAIT_MS_MAX)) < self.wait {
            return Err(LockError::Invalid { field: "wait", wanted: "at most 1 h" });
        }
        let wait = self.wait;
        self.take(wait).await
    }

    /// Takes the lock if it has neither a holder nor waiters. One request. Cancel-safe like [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if another request has it. Fails with [`LockError::Unavailable`] or
    /// [`LockError::Unknown`] if etcd does not answer. Fails with [`LockError::Name`] before anything is sent.
    pub async fn try_acquire(self) -> Result<EtcdGuard, LockError> {
        self.take(Duration::ZERO).await
    }

    async fn take(self, wait: Duration) -> Result<EtcdGuard, LockError> {
        self.demands.check(self.locks.guarantees())?;
        let name = parse_name(&self.name)?;
        let owner = match &self.owner {
            Some(owner) => OwnerName::parse(owner).map_err(|error| LockError::Name { field: "owner", error })?,
            None => self.locks.owner.clone(),
        };
        match self.locks.store.take(&name, &owner, wait).await? {
            Taken::Held(hold) => Ok(EtcdGuard { hold, name, owner }),
            Taken::Contended { holder, lasts, waiters } => Err(LockError::Contended { holder, waiters, ttl: lasts }),
            Taken::TimedOut => Err(LockError::TimedOut { position: None }),
        }
    }

    /// Runs `body` under the lock, and releases the lock. When the lock is lost, `body` is dropped at its next await
    /// point, and the call fails with [`LockError::Lost`]. It also fails so if the lock was lost before the release.
    pub async fn with<T>(self, body: impl AsyncFnOnce(&EtcdGuard) -> T) -> Result<T, LockError> {
        let guard = self.acquire().await?;
        let value = guard.run(body(&guard)).await?;
        guard.release().await?;
        Ok(value)
    }
}

/// A lock on etcd that is held. It may move between tasks.
///
/// Dropping it releases the lock in the background; [`Self::release`] reports whether that succeeded.
pub struct EtcdGuard {
    hold: EtcdHold,
    name: LockName,
    owner: OwnerName,
}

impl EtcdGuard {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The fencing token: the guarded store must refuse a smaller one than it has seen. It is the revision that created
    /// [`Self::key`].
    pub const fn fence(&self) -> Fence {
        self.hold.fence()
    }

    /// Returns what to show to the guarded store; see [`fence`](crate::fence). No request; computes a digest.
    pub fn token(&self) -> FenceToken {
        // One revision creates at most one key of a lock, so the revision identifies the hold.
        let request = Request { client: ClientId(self.hold.lease().cast_unsigned()), number: self.fence().get() };
        FenceToken::of_hold(&self.name, self.fence(), &self.owner, request)
    }

    /// The key in etcd that holds the lock. To guard a transaction of another etcd client, compare that the key's
    /// `create_revision` equals the fence.
    pub fn key(&self) -> &[u8] {
        self.hold.key()
    }

    /// Returns until when the lock is certainly held, by this process's clock, unless its lease is renewed before. In
    /// the past once the lock is lost. No request.
    pub fn deadline(&self) -> Instant {
        self.hold.deadline()
    }

    /// Returns how long the lock is certainly held from now on unless its lease is renewed. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whether the lock is lost: its lease ended, or may have ended. No request.
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// Resolves when the lock is lost. It resolves at the deadline at the latest, so before another holder can have the
    /// lock. Never resolves once the lock was released.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.hold.lost()
    }

    /// Runs a future until it is done or the lock is lost.
    pub async fn run<T>(&self, body: impl Future<Output = T>) -> Result<T, LockError> {
        let (mut body, mut lost) = (pin!(body), pin!(self.lost()));
        poll_fn(|context| match lost.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(LockError::Lost)),
            Poll::Pending => body.as_mut().poll(context).map(Ok),
        })
        .await
    }

    /// Renews the lease now, and checks that the lock is still held. For callers that must be sure; the lease is
    /// renewed in any case. Two requests.
    ///
    /// Fails with [`LockError::Lost`] if the hold is over. Fails with [`LockError::Unavailable`] if etcd does not
    /// answer: the deadline stays as before, and the caller may repeat the call.
    pub async fn renew(&self) -> Result<(), LockError> {
        Ok(self.hold.renew().await?)
    }

    /// Writes all of this to etcd, or nothing if the lock is no longer held when etcd applies the write. Neither pauses
    /// nor clocks can break this. Returns the revision of the write. One request.
    ///
    /// Fails with [`LockError::Lost`] if the hold is over. Fails with [`LockError::Unknown`] if the write may have
    /// happened.
    pub async fn write(&self, writes: impl IntoIterator<Item = EtcdWrite>) -> Result<u64, LockError> {
        Ok(self.hold.write(writes.into_iter().collect()).await?)
    }

    /// Releases the lock, and etcd notifies the next waiter. One request, repeated until there is an answer or the
    /// lease is over.
    ///
    /// Fails with [`LockError::Lost`] if the hold was over before: another holder may have overlapped with the section.
    /// Fails with [`LockError::Unknown`] or [`LockError::Unavailable`] if there was no answer. Dropping the future
    /// releases the lock in the background.
    pub async fn release(self) -> Result<(), LockError> {
        if self.hold.release().await? { Ok(()) } else { Err(LockError::Lost) }
    }
}

impl fmt::Debug for EtcdGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdGuard({}, fence {})", self.name, self.fence())
    }
}
