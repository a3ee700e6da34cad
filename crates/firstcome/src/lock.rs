//! Locks that grant in the order of arrival, with a fence on every grant.

mod address;
mod any_store;
#[doc(hidden)]
pub mod attribute_support;
mod connect;
mod demands;
mod driver;
mod election;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod guard;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "redis")]
mod keyed;
mod kind;
#[cfg(feature = "redis")]
pub mod layout;
mod many;
mod once;
mod quick;
#[cfg(feature = "redis")]
pub mod quorum;
mod request;
#[cfg(feature = "sql")]
pub mod session;
#[cfg(test)]
mod tests;

pub use address::{AddressError, Layout, LockAddress};
pub use attribute_support::{Retry, Transaction};
pub use connect::{Connect, OpenLocksError};
pub use election::{Election, Leader};
pub use error::LockError;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdError, EtcdOptions};
#[cfg(feature = "http")]
pub use firstcome_client::{HttpOptions, OpenHttpError};
#[cfg(feature = "redis")]
pub use firstcome_redis::{Eviction, LinkOptions, OpenError};
#[cfg(feature = "sql")]
pub use firstcome_sql::{SqlError, SqlOptions};
pub use firstcome_store::core::lock::spin::Pauses;
pub use firstcome_store::core::lock::{Fence, Request};
#[cfg(feature = "redis")]
pub use firstcome_store::key::KeyStore;
pub use guard::{Guard, Lease};
#[cfg(feature = "redis")]
pub use layout::OpenRedis;
pub use many::{MultiGuard, MultiLock};
pub use once::{Once, Run};
#[cfg(feature = "redis")]
pub use quorum::{NodeSet, QuorumCounts, QuorumOptions, ReplicaAck};
pub use request::LockRequest;

use driver::Shared;
#[cfg(feature = "redis")]
use firstcome_redis::QuorumStore;
#[cfg(feature = "sql")]
use firstcome_sql::PostgresLocks;
#[cfg(feature = "sqlite")]
use firstcome_sqlite::{LockDurability, SqliteLocks};
use firstcome_store::core::id::LockName;
use firstcome_store::core::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use firstcome_store::core::lock::{ClientId, Copies, LockAnswer, Released, Renewal, Settings, Step, bucket_of};
use firstcome_store::edge::Stopwatch;
#[cfg(feature = "sqlite")]
use firstcome_store::{Fault, HandleKey};
use firstcome_store::{Guarantees, LockStore, MemoryLocks, StoreError, TimedLockView};
use kind::OtherLocks;
use request::Terms;
#[cfg(any(feature = "etcd", feature = "redis"))]
use std::any::Any;
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The lease of a request that sets none.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// The locks of one store, as this process sees them. Cheap to clone. The store counts all clones as one process.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::Locks;
/// use std::time::Duration;
///
/// let locks = Locks::memory();
/// let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).lease(Duration::from_secs(3)).acquire().await?;
/// println!("ours, with fence {}", guard.fence()?);
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
    backing: Backing,
}

firstcome_store::core::debug_by_name!(Locks);

/// Who keeps the lines and the holds.
#[derive(Clone)]
enum Backing {
    /// A store that takes the steps of the core, through the core's lock client.
    Ordered(Arc<Shared>),
    /// A store with rules of its own.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "http", feature = "redis", feature = "sql")),
        expect(dead_code, reason = "no such store is compiled in")
    )]
    Other(Arc<dyn OtherLocks>),
}

impl Locks {
    const fn ordered_by(shared: Arc<Shared>) -> Self {
        Self { backing: Backing::Ordered(shared) }
    }

    #[cfg(any(feature = "etcd", feature = "http", feature = "redis", feature = "sql"))]
    fn other(locks: impl OtherLocks) -> Self {
        Self { backing: Backing::Other(Arc::new(locks)) }
    }

    /// Returns the locks as the type of their store, for extras of one store.
    #[cfg(any(feature = "etcd", feature = "redis"))]
    fn as_other<L: OtherLocks>(&self) -> Option<&L> {
        match &self.backing {
            Backing::Ordered(_) => None,
            Backing::Other(locks) => (&**locks as &dyn Any).downcast_ref(),
        }
    }

    /// Opens the locks at an address, of any store; [`LockAddress`] has the forms. Call it within a Tokio runtime.
    ///
    /// Await the returned value to connect. Before that, options can be set for each kind of store.
    /// [`Self::guarantees`] then says what the store promises.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::Locks;
    ///
    /// let locks = Locks::connect("memory:").await?; // or from a setting: "redis://10.0.0.5", "etcd://a,b,c" …
    /// let guard = locks.lock("auction:7").ordered().fenced().acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn connect(address: &str) -> Connect {
        Connect::new(address.parse())
    }

    /// Opens the locks at an address that was parsed before; see [`Self::connect`].
    pub fn connect_to(address: LockAddress) -> Connect {
        Connect::new(Ok(address))
    }

    /// Opens locks between the tasks of this process.
    pub fn memory() -> Self {
        Self::ordered_by(Shared::memory(Arc::new(MemoryLocks::default())))
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
        Ok(Self::ordered_by(Shared::over(store)?))
    }

    /// Opens locks as [`Self::open`] does, and returns the key that signs handles. A service gives holds to its clients
    /// under such handles. The key is stored with the locks, so a handle outlives the service as its hold does.
    #[cfg(feature = "sqlite")]
    pub fn open_with_handles(directory: impl AsRef<Path>) -> Result<(Self, HandleKey), Fault> {
        let store = SqliteLocks::open(directory.as_ref(), LockDurability::Durable)?;
        let key = HandleKey::new(*store.secret());
        Ok((Self::ordered_by(Shared::over(store)?), key))
    }

    /// Opens locks on any store. Call it within a Tokio runtime, which then runs heartbeats and renewals.
    ///
    /// Fails if the operating system gives no random bytes.
    pub fn over(store: impl LockStore) -> Result<Self, StoreError> {
        let shared = Shared::over(store).map_err(|fault| StoreError::Faulted(Arc::new(fault)))?;
        Ok(Self::ordered_by(shared))
    }

    /// Opens locks on a store that was opened for this client id. No other process may have the same id.
    pub fn over_as(client: ClientId, store: impl LockStore) -> Self {
        Self::ordered_by(Shared::of_client(client, store))
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
    /// use firstcome::lock::Layout;
    ///
    /// let ours = Locks::redis("redis://localhost").await?;
    /// let shared_with_java = Locks::redis("redis://localhost").layout(Layout::Redisson).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn redis(url: &str) -> OpenRedis {
        OpenRedis::new(url)
    }

    /// Opens locks as [`Self::redis`] does, with custom time-outs, or on a server that may evict keys.
    #[cfg(feature = "redis")]
    pub async fn redis_with(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        Self::redis(url).options(options).await
    }

    /// Opens locks over 3 to 9 independent servers, each `redis://[user:password@]host[:port][/database]`. The locks
    /// last while a majority of the servers does. They have fences, but no order; see [`quorum`]. Call it within a Tokio
    /// runtime.
    ///
    /// A server that is new to this use, or that was restarted, waits for a minute before it votes. For the first
    /// servers, [`QuorumOptions::new_set`] skips that wait.
    #[cfg(feature = "redis")]
    pub async fn quorum(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, OpenError> {
        Self::quorum_with(urls, QuorumOptions::default()).await
    }

    /// Opens locks as [`Self::quorum`] does, with custom times, or on servers that are used for the first time.
    #[cfg(feature = "redis")]
    pub async fn quorum_with(
        urls: impl IntoIterator<Item = impl AsRef<str>>,
        options: QuorumOptions,
    ) -> Result<Self, OpenError> {
        let urls: Vec<_> = urls.into_iter().collect();
        Ok(Self::other(keyed::KeyLocks::over(QuorumStore::open(&urls, options).await?)))
    }

    /// Opens the built-in locks of a PostgreSQL server (advisory locks, from version 14):
    /// `postgres://[user:password@]host[:port]/database`. They have fences, but neither leases nor an order; see
    /// [`session`]. Call it within a Tokio runtime.
    #[cfg(feature = "sql")]
    pub async fn postgres(url: &str) -> Result<Self, SqlError> {
        Self::postgres_with(url, SqlOptions::default()).await
    }

    /// Opens locks as [`Self::postgres`] does, with custom times and a custom number of connections.
    #[cfg(feature = "sql")]
    pub async fn postgres_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Ok(Self::other(session::SessionLocks::postgres(url, options).await?))
    }

    /// Opens the built-in locks of a MySQL or MariaDB server (`GET_LOCK`):
    /// `mysql://[user:password@]host[:port]/database`. See [`Self::postgres`].
    #[cfg(feature = "sql")]
    pub async fn mysql(url: &str) -> Result<Self, SqlError> {
        Self::mysql_with(url, SqlOptions::default()).await
    }

    /// Opens locks as [`Self::mysql`] does, with custom times and a custom number of connections.
    #[cfg(feature = "sql")]
    pub async fn mysql_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Ok(Self::other(session::SessionLocks::mysql(url, options).await?))
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
    /// `etcds://…[?cacert=FILE&cert=FILE&key=FILE]` demands TLS, and checks certificate and name of each server.
    /// They have the order of arrival and fences as here. All holds of a process rest on one lease, see [`etcd`]. Call it
    /// within a Tokio runtime.
    #[cfg(feature = "etcd")]
    pub async fn etcd(url: &str) -> Result<Self, EtcdError> {
        Self::etcd_with(url, EtcdOptions::default()).await
    }

    /// Opens locks as [`Self::etcd`] does, with a custom lease, prefix and times.
    #[cfg(feature = "etcd")]
    pub async fn etcd_with(url: &str, options: EtcdOptions) -> Result<Self, EtcdError> {
        Ok(Self::other(etcd::EtcdLocks::open(url, options).await?))
    }

    /// Opens the locks of a firstcome service: `http://host[:port]` or `https://host[:port]`, with a key of the scope of a
    /// service. They have the order of arrival and fences as here; see [`http`]. Sends nothing. Call it within a Tokio
    /// runtime, which then runs renewals.
    ///
    /// Fails as [`HttpStore::new`](crate::http::HttpStore::new) does.
    #[cfg(feature = "http")]
    pub fn http(url: &str, key: &str) -> Result<Self, OpenHttpError> {
        Self::http_with(url, key, HttpOptions::default())
    }

    /// Opens locks as [`Self::http`] does, with custom times. Fails also if one is out of its range.
    #[cfg(feature = "http")]
    pub fn http_with(url: &str, key: &str, options: HttpOptions) -> Result<Self, OpenHttpError> {
        Ok(Self::other(http::ServiceLocks::open(url, key, options)?))
    }

    /// What the store promises for these locks. No request.
    pub fn guarantees(&self) -> Guarantees {
        match &self.backing {
            Backing::Ordered(shared) => shared.guarantees(),
            Backing::Other(locks) => locks.guarantees(),
        }
    }

    /// Returns a request for the lock of this name; see [`LockRequest`] for its settings. Sends nothing yet.
    pub fn lock(&self, name: &str) -> LockRequest {
        LockRequest::new(self, name)
    }

    /// Returns a candidacy for the lead of this name. Sends nothing yet.
    ///
    /// At most one process leads, and each leader has a term above all terms before. The lead is a lock of this name:
    /// it is renewed, lost and given up as a lock, and [`Self::view`] shows the leader with the term as its fence. Fails
    /// with [`LockError::NotGuaranteed`] on a store without fences, when the candidacy is sent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::Locks;
    ///
    /// let locks = Locks::memory();
    /// let leader = locks.elect("scheduler").owner("node-1").campaign().await?; // waits until it is our turn
    /// println!("we lead in term {}", leader.term());
    /// leader.run(async { /* schedule jobs until another process may lead */ }).await?;
    /// leader.resign().await?;
    /// # Ok(()) }
    /// ```
    pub fn elect(&self, name: &str) -> Election {
        Election::new(self.lock(name))
    }

    /// Returns a request for the run of a job that runs at most once per interval; see [`Once`] for its settings. Sends
    /// nothing yet.
    ///
    /// Time is divided into slots of length `every`, 1 s to 7 days, counted from the Unix epoch: a slot of an hour begins
    /// on the hour of UTC, one of a day at midnight of UTC, one of a week on Thursday. In each slot the first process that
    /// asks gets the run, and all others are refused until the next slot, also when the run is over or its process dead.
    /// All processes must use the same name and the same interval.
    ///
    /// At most one run of a slot begins, as long as the clocks of the machines differ by no more than the
    /// [tolerance](Once::tolerance), the store's clock does not jump, and the store keeps what it has acknowledged
    /// ([`Self::guarantees`]). A slot may pass without a run: if no process asks, or the one that asked dies.
    ///
    /// Uses the locks `NAME` and `NAME@0` to `NAME@3`, so the name has at most 126 bytes. Fails with
    /// [`LockError::Unsupported`] where no hold outlives its process, and in layouts of other libraries: only stores
    /// with the order of arrival and leases of their own can do it (memory, directory, Redis, rows in PostgreSQL, HTTP).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::{LockError, Locks};
    /// use std::time::Duration;
    ///
    /// let locks = Locks::memory();
    /// match locks.once("report", Duration::from_secs(3_600)).owner("node-1").begin().await {
    ///     Ok(run) => match run.run(async { Ok::<(), std::io::Error>(()) /* write the report */ }).await? {
    ///         Ok(()) => run.finish().await?,
    ///         Err(_) => run.retry().await?, // another process may try in this hour
    ///     },
    ///     Err(LockError::SlotTaken { holder, .. }) => println!("{holder} runs it in this hour, or has run it"),
    ///     Err(LockError::Contended { holder, .. }) => println!("{holder} still runs that of an earlier hour"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn once(&self, name: &str, every: Duration) -> Once {
        Once::new(self, name, every)
    }

    /// Shows a lock. One request.
    ///
    /// Fails with [`LockError::Unsupported`] where the store shows no holder: in layouts of other libraries, on several
    /// servers that vote, and for built-in locks of databases. etcd reports no instants: the end of a hold is then
    /// `u64::MAX`, and the instant of the view 0.
    pub async fn view(&self, name: &str) -> Result<TimedLockView, LockError> {
        let name = parse_name(name)?;
        match &self.backing {
            Backing::Ordered(shared) => shared.view(&name).await,
            Backing::Other(locks) => locks.view(name).await,
        }
    }

    /// Resolves when this process neither holds nor waits for a lock, and the store knows it: everything that was
    /// dropped is undone. For the end of a program, within a time-out. No request.
    ///
    /// Over HTTP, on several servers that vote and in layouts of other libraries it waits only for what was dropped, not
    /// for guards and requests that still live. On etcd it ends the lease of the process instead, with one request:
    /// guards that still live are lost. For built-in locks of databases it resolves at once: the server ends what a
    /// closed connection held.
    pub async fn quiet(&self) {
        match &self.backing {
            Backing::Ordered(shared) => shared.quiet().await,
            Backing::Other(locks) => locks.quiet().await,
        }
    }

    /// Returns the lock client, where the store takes steps of the core.
    fn ordered(&self, operation: &'static str) -> Result<&Arc<Shared>, LockError> {
        match &self.backing {
            Backing::Ordered(shared) => Ok(shared),
            Backing::Other(_) => Err(LockError::Unsupported { operation }),
        }
    }

    /// Lets a hold that was [handed out](Guard::hand_out) last for `lease` from now on; it never ends earlier than
    /// before. Returns how long it certainly lasts. One request. Fails with [`LockError::Lost`] if it is over, and with
    /// [`LockError::Unsupported`] where no hold can be handed out.
    pub async fn renew_lease(&self, name: &str, request: Request, lease: Duration) -> Result<Duration, LockError> {
        let (name, lease_ms) = (parse_name(name)?, lease_ms(lease)?);
        // The new lease counts from when the store took the step: not before this instant, and not after its answer.
        let sent = Stopwatch::start();
        let renewals = vec![Renewal { name: name.clone(), request, lease_ms }];
        let shared = self.ordered("renew a hold that was handed out")?;
        let answer = shared.take(Step::Renew { bucket: bucket_of(&name), renewals }).await?;
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
    /// was over, and as [`Self::renew_lease`] does. After [`LockError::Unknown`] an earlier call may have ended it.
    pub async fn release_lease(&self, name: &str, request: Request) -> Result<(), LockError> {
        let step = Step::Release { name: parse_name(name)?, request, copies: Copies::One };
        match self.ordered("release a hold that was handed out")?.take(step).await?.said {
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

fn parse_name(text: &str) -> Result<LockName, LockError> {
    LockName::parse(text).map_err(|error| LockError::name("lock", error))
}

fn lease_ms(lease: Duration) -> Result<u32, LockError> {
    let ms = u32::try_from(lease.as_millis()).ok().filter(|ms| (LEASE_MS_MIN..=LEASE_MS_MAX).contains(ms));
    ms.ok_or(LockError::value("lease", "100 ms to 8 days"))
}
