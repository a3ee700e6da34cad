//! Locks that hand over in the order of arrival, with a fence on every grant.

#[doc(hidden)]
pub mod attribute_support;
mod driver;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod guard;
#[cfg(feature = "redis")]
mod keyed;
#[cfg(feature = "redis")]
pub mod layout;
mod many;
mod quick;
#[cfg(feature = "redis")]
mod quorum;
#[cfg(feature = "sql")]
mod session;
#[cfg(test)]
mod tests;

pub use attribute_support::{Retry, Transaction};
pub use error::LockError;
pub use firstcome_store::core::lock::{Fence, Request};
pub use guard::{Guard, Lease};
pub use many::{MultiGuard, MultiLock};

#[cfg(feature = "etcd")]
pub use etcd::{EtcdGuard, EtcdLocks, EtcdRequest};
#[cfg(feature = "etcd")]
pub use firstcome_etcd::{EtcdError, EtcdOptions};

#[cfg(feature = "sql")]
pub use firstcome_sql::{SqlError, SqlOptions};
#[cfg(feature = "sql")]
pub use session::{SessionGuard, SessionLocks, SessionRequest};

#[cfg(feature = "redis")]
pub use firstcome_store::core::lock::spin::Pauses;
#[cfg(feature = "redis")]
pub use firstcome_store::key::KeyStore;
#[cfg(feature = "redis")]
pub use keyed::{KeyGuard, KeyLocks, KeyRequest, SpinGuard, SpinLocks, SpinRequest};
#[cfg(feature = "redis")]
pub use layout::OpenRedis;

#[cfg(feature = "redis")]
pub use quorum::{QuorumGuard, QuorumLocks, QuorumRequest};

#[cfg(feature = "redis")]
pub use firstcome_redis::{Eviction, LinkOptions, NodeSet, OpenError, QuorumCounts, QuorumOptions, ReplicaAck};

use driver::Shared;
#[cfg(feature = "redis")]
use firstcome_redis::QuorumStore;
#[cfg(feature = "sql")]
use firstcome_sql::PostgresLocks;
#[cfg(feature = "sqlite")]
use firstcome_sqlite::{LockDurability, SqliteLocks};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::limits::{LEASE_MS_MAX, LEASE_MS_MIN, WAIT_MS_MAX};
use firstcome_store::core::lock::{
    Ask, ClientId, Copies, LockAnswer, Released, Renewal, Settings, Step, Watch, bucket_of,
};
use firstcome_store::edge::Stopwatch;
#[cfg(feature = "sqlite")]
use firstcome_store::{Fault, HandleKey};
use firstcome_store::{LockStore, MemoryLocks, StoreError, TimedLockView};
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a lock is asked for unless a lease is named.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// Passes in one cohort at most.
const COHORT_MAX: u32 = 1_000_000;

/// The locks of one store, as this process sees them. Cheap to clone; all clones are one process to the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::Locks;
/// use std::time::Duration;
///
/// let locks = Locks::memory();
/// let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).lease(Duration::from_secs(3)).acquire().await?;
/// println!("ours, with fence {}", guard.fence());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Promises
/// - Grants in the order in which the store accepted the requests; who gave up or died is passed over.
/// - A fence with every grant, above every one before it. Let the guarded store refuse a smaller one, for
///   which [`fence`](crate::fence) has the checks: then not even a holder that was stopped for hours does harm.
/// - A hold is renewed three times per lease as long as its guard lives; [`Guard::lost`] resolves before anybody else can
///   have the lock, as long as this process runs and the store's clock does not jump.
///
/// # Not promised
/// - That a hold lasts. It ends when the store cannot be reached for a lease, or this process stands still for one.
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
}

impl Locks {
    /// Locks between the tasks of this process.
    pub fn memory() -> Self {
        Self { shared: Shared::memory(Arc::new(MemoryLocks::default())) }
    }

    /// Locks between the processes of this machine that open the same directory, which is made if it is absent. A grant is
    /// synced to disk before it is told: a hand-over costs about one sync.
    ///
    /// Blocks for a few syncs if the directory is new. Refused with a [`Fault`] that says what to do. Call within a Tokio
    /// runtime, which then carries heartbeats and renewals; without one a thread does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scratch = tempfile::tempdir()?; let directory = scratch.path();
    /// let locks = firstcome::Locks::open(directory)?;
    /// let guard = locks.lock("nightly-report").try_acquire().await?; // or `acquire`, to wait in line
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// A process that is killed gives its locks up with their leases, and its places in line after a claim window (2 s).
    #[cfg(feature = "sqlite")]
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Fault> {
        Self::open_with(directory, LockDurability::Durable)
    }

    /// As [`Self::open`], with less durability for more speed. Processes with either may share a directory.
    #[cfg(feature = "sqlite")]
    pub fn open_with(directory: impl AsRef<Path>, durability: LockDurability) -> Result<Self, Fault> {
        let store = SqliteLocks::open(directory.as_ref(), durability)?;
        Ok(Self { shared: Shared::over(store)? })
    }

    /// As [`Self::open`], with the key of the handles under which a service gives holds to others. It is kept with the
    /// locks, so that a handle outlives the service as its hold does.
    #[cfg(feature = "sqlite")]
    pub fn open_with_handles(directory: impl AsRef<Path>) -> Result<(Self, HandleKey), Fault> {
        let store = SqliteLocks::open(directory.as_ref(), LockDurability::Durable)?;
        let key = HandleKey::new(*store.secret());
        Ok((Self { shared: Shared::over(store)? }, key))
    }

    /// Locks of any store. Call within a Tokio runtime, which then carries heartbeats and renewals.
    ///
    /// Fails if the operating system gives no random bytes.
    pub fn over(store: impl LockStore) -> Result<Self, StoreError> {
        let shared = Shared::over(store).map_err(|fault| StoreError::Unavailable(Arc::new(fault)))?;
        Ok(Self { shared })
    }

    /// The same with a store that is already opened for this process: no other may have the same id.
    pub fn over_as(client: ClientId, store: impl LockStore) -> Self {
        Self { shared: Shared::of_client(client, store) }
    }

    /// Locks on a Redis or Valkey server, from version 6.2, whose `maxmemory-policy` is `noeviction`:
    /// `redis://[user:password@]host[:port][/database]`. Two connections, for any number of locks and waiters: one carries the
    /// requests, the other the signs of life and the grants. Call within
    /// a Tokio runtime.
    ///
    /// Or on the primary that sentinels name, `redis+sentinel://[user:password@]host[:port],…/primary`, or in a cluster,
    /// `redis+cluster://[user:password@]host[:port],…`; there a primary that is replaced may take grants with it.
    ///
    /// What is awaited may be told more before: [`OpenRedis::options`], and with [`OpenRedis::layout`] that the locks are
    /// shared with other libraries.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::Locks;
    /// use firstcome::lock::layout;
    ///
    /// let ours = Locks::redis("redis://localhost").await?;
    /// let shared_with_java = Locks::redis("redis://localhost").layout(layout::Redisson).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn redis(url: &str) -> OpenRedis<layout::Native> {
        OpenRedis::new(url)
    }

    /// The same with time-outs of one's own, or on a server that may forget keys.
    #[cfg(feature = "redis")]
    pub async fn redis_with(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        Self::redis(url).options(options).await
    }

    /// Locks over 3 to 9 servers that know nothing of each other, each `redis://[user:password@]host[:port][/database]`:
    /// they last while a majority of these does. They are of a kind of their own, without an order; see [`QuorumLocks`]. Call
    /// within a Tokio runtime.
    ///
    /// Servers that were never used for this, and any that was started again, wait for a minute before they vote; the first
    /// ones need not, with [`QuorumOptions::new_set`].
    #[cfg(feature = "redis")]
    pub async fn quorum(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<QuorumLocks, OpenError> {
        Self::quorum_with(urls, QuorumOptions::default()).await
    }

    /// The same with times of one's own, or on servers that are used for the first time.
    #[cfg(feature = "redis")]
    pub async fn quorum_with(
        urls: impl IntoIterator<Item = impl AsRef<str>>,
        options: QuorumOptions,
    ) -> Result<QuorumLocks, OpenError> {
        let urls: Vec<_> = urls.into_iter().collect();
        Ok(KeyLocks::over(QuorumStore::open(&urls, options).await?))
    }

    /// Locks of a PostgreSQL server's own (advisory locks, from version 14): `postgres://[user:password@]host[:port]/database`.
    /// They are of a kind of their own, without leases and without an order; see [`SessionLocks`]. Call within a Tokio runtime.
    #[cfg(feature = "sql")]
    pub async fn postgres(url: &str) -> Result<SessionLocks, SqlError> {
        SessionLocks::postgres_with(url, SqlOptions::default()).await
    }

    /// Locks of a MySQL or MariaDB server's own (`GET_LOCK`): `mysql://[user:password@]host[:port]/database`. See
    /// [`Self::postgres`].
    #[cfg(feature = "sql")]
    pub async fn mysql(url: &str) -> Result<SessionLocks, SqlError> {
        SessionLocks::mysql_with(url, SqlOptions::default()).await
    }

    /// Locks as rows with leases in a PostgreSQL database, which come with every promise above: in the order of arrival,
    /// renewed, and told by `NOTIFY`. Two connections, for any number of locks and waiters, and two round trips for what this process
    /// asks at a time. The tables `firstcome_lock_…` are made if they are absent. Call within a Tokio runtime.
    ///
    /// Behind a pooler in transaction mode the locks are right, but grants are found by heartbeats only: connect past it.
    #[cfg(feature = "sql")]
    pub async fn postgres_leases(url: &str) -> Result<Self, SqlError> {
        Self::postgres_leases_with(url, SqlOptions::default()).await
    }

    /// The same with time-outs of one's own.
    #[cfg(feature = "sql")]
    pub async fn postgres_leases_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        let store = PostgresLocks::open(url, options).await?;
        // Without random bytes there is no id that no other process has.
        Self::over(store).map_err(|error| SqlError::Broken { says: error.to_string() })
    }

    /// Locks on etcd, from version 3.4: `etcd://[user:password@]host[:port][,host[:port]…]`, all of one cluster. In the order of
    /// arrival and with fences as here, and of a kind of their own, whose holds rest on one lease per process; see [`EtcdLocks`].
    /// Call within a Tokio runtime.
    #[cfg(feature = "etcd")]
    pub async fn etcd(url: &str) -> Result<EtcdLocks, EtcdError> {
        EtcdLocks::open_with(url, EtcdOptions::default()).await
    }

    /// A lock by its name; see [`LockRequest`] for what can be said before it is asked for. Nothing is sent yet.
    pub fn lock(&self, name: &str) -> LockRequest {
        LockRequest {
            shared: Arc::clone(&self.shared),
            name: name.into(),
            owner: None,
            wait: None,
            lease: LEASE_DEFAULT,
            watch: Watch::Renew,
            passes: 1,
        }
    }

    /// Shows a lock. One request.
    pub async fn view(&self, name: &str) -> Result<TimedLockView, LockError> {
        self.shared.view(&parse_name(name)?).await
    }

    /// Resolves when this process holds and wants nothing any more, and the store knows it: what was dropped is undone. For
    /// the end of a program. No request.
    pub async fn quiet(&self) {
        self.shared.quiet().await;
    }

    /// Lets a hold that was [handed out](Guard::hand_out) last `lease` from now on, and never shorter than before; returns
    /// how long it certainly lasts. One request. Fails with [`LockError::Lost`] if it is over.
    pub async fn renew_lease(&self, name: &str, request: Request, lease: Duration) -> Result<Duration, LockError> {
        let (name, lease_ms) = (parse_name(name)?, lease_ms(lease)?);
        // It lasts from when the store took the step, which is not before this and not after the answer.
        let sent = Stopwatch::start();
        let renewals = vec![Renewal { name: name.clone(), request, lease_ms }];
        let answer = self.shared.take(Step::Renew { bucket: bucket_of(&name), renewals }).await?;
        match answer.said {
            LockAnswer::Renewed(ends) => {
                let expires_us = ends.first().copied().flatten().ok_or(LockError::Lost)?;
                let left_us = expires_us.saturating_sub(answer.now_us);
                let left_us = Settings::default().less_drift_us(left_us);
                Ok(Duration::from_micros(left_us).saturating_sub(sent.elapsed()))
            }
            _ => Err(LockError::Unknown),
        }
    }

    /// Gives back a hold that was [handed out](Guard::hand_out). One request. Fails with [`LockError::Lost`] if it was
    /// over: after an unknown outcome that may be this very call's doing.
    pub async fn release_lease(&self, name: &str, request: Request) -> Result<(), LockError> {
        let step = Step::Release { name: parse_name(name)?, request, copies: Copies::One };
        match self.shared.take(step).await?.said {
            LockAnswer::Released(Released::Released) => Ok(()),
            LockAnswer::Released(_) => Err(LockError::Lost),
            _ => Err(LockError::Unknown),
        }
    }

    /// Several locks at once, all or none.
    pub fn all<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.lock(name)).collect())
    }
}

/// A lock that is about to be asked for.
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct LockRequest {
    shared: Arc<Shared>,
    name: Box<str>,
    owner: Option<Box<str>>,
    wait: Option<Duration>,
    lease: Duration,
    watch: Watch,
    passes: u32,
}

impl LockRequest {
    /// How long to wait in line: up to an hour, which is also the time without this.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How long the hold lasts after the last sign of life: 100 ms to 24 h; 30 s without this. It is renewed as long as
    /// the guard lives.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The hold ends with its lease, and is not renewed. (One that was waited for counts its lease from a confirmation
    /// that is sent shortly after the grant.)
    pub const fn fixed(mut self) -> Self {
        self.watch = Watch::Fixed;
        self
    }

    /// Lets up to `passes` tasks of this process that ask for this lock in the same way be served by one grant of the
    /// store, one after the other, each with a fence of its own, for no longer than one lease. Much faster in a busy line;
    /// tasks of other processes may be overtaken by up to a cohort. Has no effect on [`Self::try_acquire`].
    pub const fn cohort(mut self, passes: u32) -> Self {
        self.passes = passes;
        self
    }

    /// The holder's name as other clients see it; the process otherwise.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.into());
        self
    }

    fn ask(&self, wait: Duration) -> Result<Ask, LockError> {
        let name = parse_name(&self.name)?;
        let owner = match &self.owner {
            Some(owner) => OwnerName::parse(owner).map_err(|error| LockError::Name { field: "owner", error })?,
            None => self.shared.owner.clone(),
        };
        let lease_ms = lease_ms(self.lease)?;
        let wait_ms = u32::try_from(wait.as_millis()).ok().filter(|ms| *ms <= WAIT_MS_MAX);
        let wait_ms = wait_ms.ok_or(LockError::Invalid { field: "wait", wanted: "at most 1 h" })?;
        if !(1..=COHORT_MAX).contains(&self.passes) {
            return Err(LockError::Invalid { field: "cohort", wanted: "1 to 1000000" });
        }
        Ok(Ask { name, owner, wait_ms, lease_ms, passes: self.passes, watch: self.watch })
    }

    /// Gets in line and waits for the lock. One request if it is free; in a busy line one more for the release of the process that
    /// is before, which is not this process's.
    ///
    /// Dropping the future leaves nothing behind: a place in line is given up, and so is a grant that no process takes.
    ///
    /// Fails with [`LockError::TimedOut`], or as [`Self::try_acquire`] does; with `Contended` only if the wait is zero.
    pub async fn acquire(self) -> Result<Guard, LockError> {
        let wait = self.wait.unwrap_or(Duration::from_millis(u64::from(WAIT_MS_MAX)));
        let ask = self.ask(wait)?;
        self.shared.acquire(ask).await
    }

    /// Takes the lock if it is free. One request. Cancel-safe as [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if a process has it, [`LockError::Unavailable`] and [`LockError::Unknown`] if the
    /// store gives no answer, [`LockError::Name`] and [`LockError::Invalid`] before it is asked.
    pub async fn try_acquire(self) -> Result<Guard, LockError> {
        let ask = self.ask(Duration::ZERO)?;
        self.shared.acquire(ask).await
    }

    /// Runs `body` under the lock, and gives the lock back. `body` is dropped at its next await point when the lock is
    /// lost; then, and if it was lost before it could be given back, this is [`LockError::Lost`].
    pub async fn with<T>(self, body: impl AsyncFnOnce(&Guard) -> T) -> Result<T, LockError> {
        let guard = self.acquire().await?;
        let value = guard.run(body(&guard)).await?;
        guard.release().await?;
        Ok(value)
    }
}

fn parse_name(text: &str) -> Result<LockName, LockError> {
    LockName::parse(text).map_err(|error| LockError::Name { field: "lock", error })
}

fn lease_ms(lease: Duration) -> Result<u32, LockError> {
    let ms = u32::try_from(lease.as_millis()).ok().filter(|ms| (LEASE_MS_MIN..=LEASE_MS_MAX).contains(ms));
    ms.ok_or(LockError::Invalid { field: "lease", wanted: "100 ms to 24 h" })
}
