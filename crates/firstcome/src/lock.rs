//! Locks that grant in the order of arrival, with a fence on every grant.

#[doc(hidden)]
pub mod attribute_support;
mod demands;
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

use demands::Demands;
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
use firstcome_store::{Guarantees, LockStore, MemoryLocks, StoreError, TimedLockView};
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The lease of a request that sets none.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// The most passes that one cohort can have.
const COHORT_MAX: u32 = 1_000_000;

/// The locks of one store, as this process sees them. Cheap to clone. The store counts all clones as one process.
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
/// - The store grants a lock in the order in which it accepted the requests. It passes over waiters that gave up or
///   died.
/// - Every grant has a fence above that of every grant before it. Let the guarded store refuse a smaller one: then even
///   a holder that was stopped for hours does no harm. [`fence`](crate::fence) has ready-made checks.
/// - A hold is renewed three times per lease as long as its guard lives. [`Guard::lost`] resolves before another holder
///   can have the lock, as long as this process runs and the store's clock does not jump.
///
/// # Not promised
/// - That a hold lasts. It ends when this process cannot reach the store for a lease, or stands still for one.
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
}

impl Locks {
    /// Opens locks between the tasks of this process.
    pub fn memory() -> Self {
        Self { shared: Shared::memory(Arc::new(MemoryLocks::default())) }
    }

    /// Opens locks between the processes of this machine that open the same directory. Creates the directory if it is
    /// absent. A grant is synced to disk before it is acknowledged: a hand-over costs about one sync.
    ///
    /// Blocks for a few syncs if the directory is new. Fails with a [`Fault`] that says what to do. Call it within a
    /// Tokio runtime, which then runs heartbeats and renewals; without a runtime a thread runs them.
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
    /// The locks of a killed process end with their leases. Its places in line end after a claim window (2 s).
    #[cfg(feature = "sqlite")]
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Fault> {
        Self::open_with(directory, LockDurability::Durable)
    }

    /// Opens locks as [`Self::open`] does, with less durability for more speed. Processes may share a directory with
    /// different durabilities.
    #[cfg(feature = "sqlite")]
    pub fn open_with(directory: impl AsRef<Path>, durability: LockDurability) -> Result<Self, Fault> {
        let store = SqliteLocks::open(directory.as_ref(), durability)?;
        Ok(Self { shared: Shared::over(store)? })
    }

    /// Opens locks as [`Self::open`] does, and returns the key that signs handles. A service gives holds to its clients
    /// under such handles. The key is stored with the locks, so a handle outlives the service as its hold does.
    #[cfg(feature = "sqlite")]
    pub fn open_with_handles(directory: impl AsRef<Path>) -> Result<(Self, HandleKey), Fault> {
        let store = SqliteLocks::open(directory.as_ref(), LockDurability::Durable)?;
        let key = HandleKey::new(*store.secret());
        Ok((Self { shared: Shared::over(store)? }, key))
    }

    /// Opens locks on any store. Call it within a Tokio runtime, which then runs heartbeats and renewals.
    ///
    /// Fails if the operating system gives no random bytes.
    pub fn over(store: impl LockStore) -> Result<Self, StoreError> {
        let shared = Shared::over(store).map_err(|fault| StoreError::Unavailable(Arc::new(fault)))?;
        Ok(Self { shared })
    }

    /// Opens locks on a store that was opened for this client id. No other process may have the same id.
    pub fn over_as(client: ClientId, store: impl LockStore) -> Self {
        Self { shared: Shared::of_client(client, store) }
    }

    /// Opens locks on a Redis or Valkey server, from version 6.2, whose `maxmemory-policy` is `noeviction`:
    /// `redis://[user:password@]host[:port][/database]`. It uses two connections for any number of locks and waiters:
    /// one carries requests, the other heartbeats and grants. Call it within a Tokio runtime.
    ///
    /// The server may also be the primary that sentinels name,
    /// `redis+sentinel://[user:password@]host[:port],…/primary`, or a cluster,
    /// `redis+cluster://[user:password@]host[:port],…`. There, the failover of a primary may lose grants.
    ///
    /// Await the returned value to connect. Before that, [`OpenRedis::options`] sets time-outs, and
    /// [`OpenRedis::layout`] shares the locks with other libraries.
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

    /// Opens locks as [`Self::redis`] does, with custom time-outs, or on a server that may evict keys.
    #[cfg(feature = "redis")]
    pub async fn redis_with(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        Self::redis(url).options(options).await
    }

    /// Opens locks over 3 to 9 independent servers, each `redis://[user:password@]host[:port][/database]`. The locks
    /// last while a majority of the servers does. They are another kind of lock, without an order; see [`QuorumLocks`].
    /// Call it within a Tokio runtime.
    ///
    /// A server that is new to this use, or that was restarted, waits for a minute before it votes. For the first
    /// servers, [`QuorumOptions::new_set`] skips that wait.
    #[cfg(feature = "redis")]
    pub async fn quorum(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<QuorumLocks, OpenError> {
        Self::quorum_with(urls, QuorumOptions::default()).await
    }

    /// Opens locks as [`Self::quorum`] does, with custom times, or on servers that are used for the first time.
    #[cfg(feature = "redis")]
    pub async fn quorum_with(
        urls: impl IntoIterator<Item = impl AsRef<str>>,
        options: QuorumOptions,
    ) -> Result<QuorumLocks, OpenError> {
        let urls: Vec<_> = urls.into_iter().collect();
        Ok(KeyLocks::over(QuorumStore::open(&urls, options).await?))
    }

    /// Opens the built-in locks of a PostgreSQL server (advisory locks, from version 14):
    /// `postgres://[user:password@]host[:port]/database`. They are another kind of lock, without leases and without an
    /// order; see [`SessionLocks`]. Call it within a Tokio runtime.
    #[cfg(feature = "sql")]
    pub async fn postgres(url: &str) -> Result<SessionLocks, SqlError> {
        SessionLocks::postgres_with(url, SqlOptions::default()).await
    }

    /// Opens the built-in locks of a MySQL or MariaDB server (`GET_LOCK`):
    /// `mysql://[user:password@]host[:port]/database`. See [`Self::postgres`].
    #[cfg(feature = "sql")]
    pub async fn mysql(url: &str) -> Result<SessionLocks, SqlError> {
        SessionLocks::mysql_with(url, SqlOptions::default()).await
    }

    /// Opens locks that are rows with leases in a PostgreSQL database. They keep every promise above: the order of
    /// arrival, renewals, and grants that `NOTIFY` pushes. They use two connections for any number of locks and
    /// waiters, and two round trips for all requests that this process has at a time. The tables `firstcome_lock_…` are
    /// created if they are absent. Call it within a Tokio runtime.
    ///
    /// Behind a pooler in transaction mode the locks are correct, but only heartbeats find grants: connect past the
    /// pooler.
    #[cfg(feature = "sql")]
    pub async fn postgres_leases(url: &str) -> Result<Self, SqlError> {
        Self::postgres_leases_with(url, SqlOptions::default()).await
    }

    /// Opens locks as [`Self::postgres_leases`] does, with custom time-outs.
    #[cfg(feature = "sql")]
    pub async fn postgres_leases_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        let store = PostgresLocks::open(url, options).await?;
        // Without random bytes there is no id that is surely unique.
        Self::over(store).map_err(|error| SqlError::Broken { says: error.to_string() })
    }

    /// Opens locks on etcd, from version 3.4: `etcd://[user:password@]host[:port][,host[:port]…]`, all of one cluster.
    /// They have the order of arrival and fences as here. They are another kind of lock: all holds of a process rest on
    /// one lease, see [`EtcdLocks`]. Call it within a Tokio runtime.
    #[cfg(feature = "etcd")]
    pub async fn etcd(url: &str) -> Result<EtcdLocks, EtcdError> {
        EtcdLocks::open_with(url, EtcdOptions::default()).await
    }

    /// What the store promises for these locks. No request.
    pub fn guarantees(&self) -> Guarantees {
        self.shared.guarantees()
    }

    /// Returns a request for the lock of this name; see [`LockRequest`] for its settings. Sends nothing yet.
    pub fn lock(&self, name: &str) -> LockRequest {
        LockRequest {
            shared: Arc::clone(&self.shared),
            name: name.into(),
            owner: None,
            wait: None,
            lease: LEASE_DEFAULT,
            watch: Watch::Renew,
            passes: 1,
            demands: Demands::default(),
        }
    }

    /// Shows a lock. One request.
    pub async fn view(&self, name: &str) -> Result<TimedLockView, LockError> {
        self.shared.view(&parse_name(name)?).await
    }

    /// Resolves when this process neither holds nor waits for a lock, and the store knows it: everything that was
    /// dropped is undone. For the end of a program. No request.
    pub async fn quiet(&self) {
        self.shared.quiet().await;
    }

    /// Lets a hold that was [handed out](Guard::hand_out) last for `lease` from now on; it never ends earlier than
    /// before. Returns how long it certainly lasts. One request. Fails with [`LockError::Lost`] if it is over.
    pub async fn renew_lease(&self, name: &str, request: Request, lease: Duration) -> Result<Duration, LockError> {
        let (name, lease_ms) = (parse_name(name)?, lease_ms(lease)?);
        // The new lease counts from when the store took the step: not before this instant, and not after its answer.
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

    /// Releases a hold that was [handed out](Guard::hand_out). One request. Fails with [`LockError::Lost`] if the hold
    /// was over. After [`LockError::Unknown`] an earlier call may have ended it.
    pub async fn release_lease(&self, name: &str, request: Request) -> Result<(), LockError> {
        let step = Step::Release { name: parse_name(name)?, request, copies: Copies::One };
        match self.shared.take(step).await?.said {
            LockAnswer::Released(Released::Released) => Ok(()),
            LockAnswer::Released(_) => Err(LockError::Lost),
            _ => Err(LockError::Unknown),
        }
    }

    /// Returns a request for several locks at once: all of them or none.
    pub fn all<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.lock(name)).collect())
    }
}

/// A request for a lock, before it is sent.
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
    demands: Demands,
}

impl LockRequest {
    /// Sets how long to wait in line: at most one hour, which is also the default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets how long the hold lasts after its last renewal: 100 ms to 24 h; 30 s by default. The client renews it as
    /// long as the guard lives.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Lets the hold end with its lease, without renewals. For a request that waited, the lease counts from a
    /// confirmation that the client sends shortly after the grant.
    pub const fn fixed(mut self) -> Self {
        self.watch = Watch::Fixed;
        self
    }

    /// Lets one grant of the store serve up to `passes` tasks of this process that ask for this lock in the same way.
    /// They have it one after the other, each with its own fence, for at most one lease together. This is much faster
    /// in a busy line, but up to a cohort of tasks may overtake tasks of other processes. Has no effect on
    /// [`Self::try_acquire`].
    pub const fn cohort(mut self, passes: u32) -> Self {
        self.passes = passes;
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

    fn ask(&self, wait: Duration) -> Result<Ask, LockError> {
        self.demands.check(self.shared.guarantees())?;
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

    /// Gets in line and waits for the lock. One request if the lock is free. In a busy line the release of the holder
    /// before grants the lock, and the client confirms that grant with one more request.
    ///
    /// Dropping the future leaves nothing behind: the client gives up the place in line, and releases a grant that
    /// arrives too late.
    ///
    /// Fails with [`LockError::TimedOut`], or as [`Self::try_acquire`] does; with `Contended` only if the wait is zero.
    pub async fn acquire(self) -> Result<Guard, LockError> {
        let wait = self.wait.unwrap_or(Duration::from_millis(u64::from(WAIT_MS_MAX)));
        let ask = self.ask(wait)?;
        self.shared.acquire(ask).await
    }

    /// Takes the lock if it is free. One request. Cancel-safe like [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if another request has it. Fails with [`LockError::Unavailable`] or
    /// [`LockError::Unknown`] if the store does not answer. Fails with [`LockError::Name`] or [`LockError::Invalid`]
    /// before anything is sent.
    pub async fn try_acquire(self) -> Result<Guard, LockError> {
        let ask = self.ask(Duration::ZERO)?;
        self.shared.acquire(ask).await
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

fn parse_name(text: &str) -> Result<LockName, LockError> {
    LockName::parse(text).map_err(|error| LockError::Name { field: "lock", error })
}

fn lease_ms(lease: Duration) -> Result<u32, LockError> {
    let ms = u32::try_from(lease.as_millis()).ok().filter(|ms| (LEASE_MS_MIN..=LEASE_MS_MAX).contains(ms));
    ms.ok_or(LockError::Invalid { field: "lease", wanted: "100 ms to 24 h" })
}
