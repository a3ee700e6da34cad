//! Locks on etcd.

use super::{LockError, parse_name};
use crate::fence::FenceToken;
use firstcome_etcd::{Counts, EtcdError, EtcdHold, EtcdLink, EtcdLockView, EtcdOptions, EtcdWrite, Taken};
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
/// For an operator that runs etcd anyway, or wants the agreement of its servers for each grant: no failover forgets one. Each grant and each
/// end is a commit of the cluster. What [`Locks`](super::Locks) have and these do not:
///
/// - *A lease for each lock.* All holds and places of a process rest on one, [`EtcdOptions::lease`], which is renewed three times in
///   its length: they are lost together. It has whole seconds, and mostly at least two.
/// - *Places that the dead give up soon.* Theirs end with their lease, as their holds do.
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
/// locks.close().await?; // so that nothing has to wait for the end of the lease
/// # Ok(()) }
/// ```
///
/// # Promises
/// - Grants in the order in which etcd took the requests; who gave up or died is passed over.
/// - A fence with every grant, above every one before it, of any lock of the cluster: the revision that made the lock's key.
///   Let the guarded store refuse a smaller one, for which [`fence`](crate::fence) has the checks; what is written to etcd
///   itself is guarded by [`EtcdGuard::write`]. It is not to be compared with fences of other kinds of locks.
/// - [`EtcdGuard::lost`] resolves before anybody else can have the lock, as long as this process runs and no clock runs wrong by
///   more than one per cent.
/// - Dropping a future or a guard gives the place or the lock back in the background. What cannot be given back ends with the lease.
///
/// # Not promised
/// - That a hold lasts. It ends when etcd cannot be reached for a lease, this process stands still for one, or an operator deletes its key.
/// - Fences that grow across the restore of an old backup, after which revisions begin again from there.
#[derive(Clone)]
pub struct EtcdLocks {
    store: firstcome_etcd::EtcdLocks,
    owner: OwnerName,
}

impl EtcdLocks {
    /// As [`Locks::etcd`](super::Locks::etcd), with a lease, a prefix and times of one's own.
    pub async fn open_with(url: &str, options: EtcdOptions) -> Result<Self, EtcdError> {
        let broken = |says: String| EtcdError::Broken { says };
        let id = draw_id().map_err(|fault| broken(fault.to_string()))?;
        let owner = format!("process-{}-{id:016x}", std::process::id());
        let owner = OwnerName::parse(&owner).map_err(|error| broken(error.to_string()))?;
        Ok(Self { store: firstcome_etcd::EtcdLocks::open(url, options).await?, owner })
    }

    /// A lock by its name. Nothing is sent yet.
    pub fn lock(&self, name: &str) -> EtcdRequest {
        let wait = Duration::from_millis(u64::from(WAIT_MS_MAX));
        EtcdRequest { locks: self.clone(), name: name.into(), owner: None, wait }
    }

    /// Shows a lock. One request.
    pub async fn view(&self, name: &str) -> Result<EtcdLockView, LockError> {
        Ok(self.store.view(&parse_name(name)?).await?)
    }

    /// The link, for questions of one's own. See [`etcd`](crate::etcd).
    pub fn link(&self) -> &EtcdLink {
        self.store.link()
    }

    /// What has been done so far.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    /// Ends the lease, and with it every hold and every place of this process: guards that still live are lost. For the end of a
    /// program, which leaves nothing behind then. One request.
    ///
    /// Fails if etcd cannot be reached: then the lease ends by itself.
    pub async fn close(&self) -> Result<(), LockError> {
        Ok(self.store.close().await?)
    }
}

/// A lock that is about to be asked for.
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct EtcdRequest {
    locks: EtcdLocks,
    name: Box<str>,
    owner: Option<Box<str>>,
    wait: Duration,
}

impl EtcdRequest {
    /// How long to wait in line: up to an hour, which is also the time without this.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The holder's name as other clients see it; the process otherwise.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Gets in line and waits for the lock. One request if it is free; otherwise one more, and a message, for each who goes
    /// right before this one.
    ///
    /// Dropping the future leaves nothing behind: a place in line is given up, and so is a grant that no process takes.
    ///
    /// Fails with [`LockError::TimedOut`], or as [`Self::try_acquire`] does; with `Contended` only if the wait is zero.
    pub async fn acquire(self) -> Result<EtcdGuard, LockError> {
        if Duration::from_millis(u64::from(WAIT_MS_MAX)) < self.wait {
            return Err(LockError::Invalid { field: "wait", wanted: "at most 1 h" });
        }
        let wait = self.wait;
        self.take(wait).await
    }

    /// Takes the lock if no process has it or waits for it. One request. Cancel-safe as [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if a process has it, [`LockError::Unavailable`] and [`LockError::Unknown`] if
    /// etcd gives no answer, [`LockError::Name`] before it is asked.
    pub async fn try_acquire(self) -> Result<EtcdGuard, LockError> {
        self.take(Duration::ZERO).await
    }

    async fn take(self, wait: Duration) -> Result<EtcdGuard, LockError> {
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

    /// Runs `body` under the lock, and gives the lock back. `body` is dropped at its next await point when the lock is
    /// lost; then, and if it was lost before it could be given back, this is [`LockError::Lost`].
    pub async fn with<T>(self, body: impl AsyncFnOnce(&EtcdGuard) -> T) -> Result<T, LockError> {
        let guard = self.acquire().await?;
        let value = guard.run(body(&guard)).await?;
        guard.release().await?;
        Ok(value)
    }
}

/// A lock on etcd that is held. It may move between tasks.
///
/// Dropping it gives the lock back in the background; [`Self::release`] says how that went.
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

    /// What the guarded store gets; see [`fence`](crate::fence). No request; a digest.
    pub fn token(&self) -> FenceToken {
        // A revision makes one key, so it names the hold.
        let request = Request { client: ClientId(self.hold.lease().cast_unsigned()), number: self.fence().get() };
        FenceToken::of_hold(&self.name, self.fence(), &self.owner, request)
    }

    /// The key in etcd that holds the lock. A transaction of another client of etcd is guarded by comparing that its
    /// `create_revision` is the fence.
    pub fn key(&self) -> &[u8] {
        self.hold.key()
    }

    /// Until when the lock is certainly held, by this process's clock, unless its lease is renewed before; in the past once it is
    /// lost. No request.
    pub fn deadline(&self) -> Instant {
        self.hold.deadline()
    }

    /// How long the lock is certainly held from now on unless its lease is renewed. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whether the lock is lost: its lease ended, or no process can say that it did not. No request.
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// Resolves when the lock is lost, at the latest at its deadline, so before anybody else can have it; never once it was given
    /// back.
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

    /// Renews the lease now, and looks whether the lock is still held: for the process that wants to be sure, since the lease is renewed
    /// anyway. Two requests.
    ///
    /// Fails with [`LockError::Lost`] if it is over; with [`LockError::Unavailable`] if etcd gave no answer: the deadline stays
    /// as it was, and the call may be repeated.
    pub async fn renew(&self) -> Result<(), LockError> {
        Ok(self.hold.renew().await?)
    }

    /// Writes all of this to etcd, or nothing if the lock is not held any more when etcd does it, which no pause and no clock can
    /// deceive. Returns the revision that did. One request.
    ///
    /// Fails with [`LockError::Lost`] if it is over; with [`LockError::Unknown`] if it may have been written.
    pub async fn write(&self, writes: impl IntoIterator<Item = EtcdWrite>) -> Result<u64, LockError> {
        Ok(self.hold.write(writes.into_iter().collect()).await?)
    }

    /// Gives the lock back: a process that is next is told. One request, repeated until there is an answer or the lease is over.
    ///
    /// Fails with [`LockError::Lost`] if it was over before: the section was perhaps not alone to its end. With
    /// [`LockError::Unknown`] or [`LockError::Unavailable`] if there was no answer. Dropping the future gives the lock
    /// back in the background.
    pub async fn release(self) -> Result<(), LockError> {
        if self.hold.release().await? { Ok(()) } else { Err(LockError::Lost) }
    }
}

impl fmt::Debug for EtcdGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdGuard({}, fence {})", self.name, self.fence())
    }
}
