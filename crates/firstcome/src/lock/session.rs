//! The built-in locks of a database server, held by a connection.

use super::demands::Demands;
use super::{LockError, parse_name};
use crate::fence::FenceToken;
use firstcome_sql::{Address, SessionHold, SqlError, SqlOptions};
use firstcome_store::Guarantees;
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::limits::WAIT_MS_MAX;
use firstcome_store::core::lock::{ClientId, Fence, Request};
use firstcome_store::edge::draw_id;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The owner in fence tokens: the server shows no holder names to other clients.
const OWNER: &str = "session";

/// The built-in locks of a database server: advisory locks in PostgreSQL, `GET_LOCK` in MySQL and MariaDB.
///
/// For few locks, each held as long as its work takes, on a database that runs anyway. These features of
/// [`Locks`](super::Locks) are missing:
///
/// - *Leases.* A hold lasts as long as its connection. The server may end the connection at any time. This process
///   notices by a ping, about half a second later; in between another process may have the lock. Only the fence
///   protects what is written then. If this machine vanishes, the server keeps its locks until its keep-alives fail:
///   about 25 s in PostgreSQL, hours in MySQL unless its operating system is set otherwise.
/// - *An order.* The server decides, and mostly grants by arrival.
/// - *Thrift.* Each lock that is held or waited for uses its own connection: at most 32 by default, see [`SqlOptions`].
///   A grant is one round trip in PostgreSQL and two in MySQL, and a release costs the same again.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::Locks;
/// use std::time::Duration;
///
/// let locks = Locks::postgres("postgres://app@localhost/shop").await?;
/// let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).acquire().await?;
/// println!("ours, with fence {}", guard.fence());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Promises
/// - Mutual exclusion among all clients that name the same server, database and schema.
/// - Every grant has a fence above that of every grant of the same lock before it. The fence counts grants, so do not
///   compare it with fences of [`Locks`](super::Locks): guard each thing with one kind of lock.
/// - Dropping a future closes its connection, and gives up its place. Dropping a guard releases the lock in the
///   background.
///
/// # Poolers
/// Behind a pooler in transaction mode (PgBouncer, Supavisor, ProxySQL…) these locks do not work. Opening fails where
/// this library can detect such a pooler, which is not always. Connect past the pooler, or use
/// [`Locks::postgres_leases`](super::Locks::postgres_leases). See [`sql`](crate::sql).
#[derive(Clone)]
pub struct SessionLocks {
    store: firstcome_sql::SessionLocks,
    client: ClientId,
}

impl SessionLocks {
    /// Opens locks as [`Locks::postgres`](super::Locks::postgres) does, with custom times and a custom number of
    /// connections.
    pub async fn postgres_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Address::postgres(url)?;
        Self::open(url, options).await
    }

    /// Opens locks as [`Locks::mysql`](super::Locks::mysql) does, with custom times and a custom number of connections.
    pub async fn mysql_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Address::mysql(url)?;
        Self::open(url, options).await
    }

    async fn open(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        let client = draw_id().map_err(|fault| SqlError::Broken { says: fault.to_string() })?;
        let store = firstcome_sql::SessionLocks::open(url, options).await?;
        Ok(Self { store, client: ClientId(client) })
    }

    /// What the store promises for these locks. No request.
    pub fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    /// Returns a request for the lock of this name. Sends nothing yet.
    pub fn lock(&self, name: &str) -> SessionRequest {
        let wait = Duration::from_millis(u64::from(WAIT_MS_MAX));
        SessionRequest { locks: self.clone(), name: name.into(), wait, demands: Demands::default() }
    }
}

/// A request for a lock, before it is sent.
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct SessionRequest {
    locks: SessionLocks,
    name: Box<str>,
    wait: Duration,
    demands: Demands,
}

impl SessionRequest {
    /// Sets how long to wait, for a connection and for the lock together: at most one hour, which is also the default.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
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

    /// Waits for the lock on the server. One round trip in PostgreSQL, two in MySQL and MariaDB.
    ///
    /// Dropping the future closes its connection: the wait ends, and nothing is taken.
    ///
    /// Fails with [`LockError::TimedOut`], or as [`Self::try_acquire`] does; with `Contended` only if the wait is zero.
    pub async fn acquire(self) -> Result<SessionGuard, LockError> {
        if self.wait.is_zero() {
            return self.try_acquire().await;
        }
        if Duration::from_millis(u64::from(WAIT_MS_MAX)) < self.wait {
            return Err(LockError::Invalid { field: "wait", wanted: "at most 1 h" });
        }
        let wait = self.wait;
        self.take(wait).await?.ok_or(LockError::TimedOut { position: None })
    }

    /// Takes the lock if it is free. Cancel-safe like [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if another session has it. The server tells neither the holder nor the
    /// number of waiters. The time left is the longest there is, because nothing ends the hold by itself. Fails with
    /// [`LockError::Unavailable`] if the server cannot be reached or all connections are in use. Fails with
    /// [`LockError::Name`] before anything is sent.
    pub async fn try_acquire(self) -> Result<SessionGuard, LockError> {
        let contended = || LockError::Contended { holder: "another client".to_owned(), waiters: 0, ttl: Duration::MAX };
        self.take(Duration::ZERO).await?.ok_or_else(contended)
    }

    async fn take(self, wait: Duration) -> Result<Option<SessionGuard>, LockError> {
        self.demands.check(self.locks.guarantees())?;
        let name = parse_name(&self.name)?;
        let hold = self.locks.store.take(&name, wait).await?;
        let client = self.locks.client;
        Ok(hold.map(|hold| SessionGuard { hold, name, client }))
    }

    /// Runs `body` under the lock, and releases the lock. When the lock is known to be lost, `body` is dropped at its
    /// next await point, and the call fails with [`LockError::Lost`]. It also fails so if the lock was lost before the
    /// release.
    pub async fn with<T>(self, body: impl AsyncFnOnce(&SessionGuard) -> T) -> Result<T, LockError> {
        let guard = self.acquire().await?;
        let value = guard.run(body(&guard)).await?;
        guard.release().await?;
        Ok(value)
    }
}

/// A lock that is held by a connection. It may move between tasks.
///
/// Dropping it releases the lock in the background; [`Self::release`] reports whether that succeeded.
pub struct SessionGuard {
    hold: SessionHold,
    name: LockName,
    client: ClientId,
}

impl SessionGuard {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The fencing token: the guarded store must refuse a smaller one than it has seen.
    pub const fn fence(&self) -> Fence {
        self.hold.fence()
    }

    /// Returns what to show to the guarded store; see [`fence`](crate::fence). No request; computes a digest.
    pub fn token(&self) -> FenceToken {
        // The server draws each fence of a lock once, so the fence identifies the hold.
        let request = Request { client: self.client, number: self.fence().get() };
        FenceToken::of_hold(&self.name, self.fence(), &owner(), request)
    }

    /// The server's name for the session that holds the lock: a process id in PostgreSQL, a connection id in MySQL.
    pub const fn session(&self) -> u64 {
        self.hold.session()
    }

    /// Whether the lock is known to be lost. No request. The answer says nothing about the last half second.
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// Resolves when the lock is known to be lost. Never resolves once the lock was released.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.hold.lost()
    }

    /// Runs a future until it is done or the lock is known to be lost.
    pub async fn run<T>(&self, body: impl Future<Output = T>) -> Result<T, LockError> {
        let (mut body, mut lost) = (pin!(body), pin!(self.lost()));
        poll_fn(|context| match lost.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(LockError::Lost)),
            Poll::Pending => body.as_mut().poll(context).map(Ok),
        })
        .await
    }

    /// Releases the lock. One round trip.
    ///
    /// Fails with [`LockError::Lost`] if the hold was over before, or may have been: another holder may have overlapped
    /// with the section. Dropping the future releases the lock in the background.
    pub async fn release(self) -> Result<(), LockError> {
        if self.hold.release().await { Ok(()) } else { Err(LockError::Lost) }
    }
}

impl fmt::Debug for SessionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionGuard({}, fence {})", self.name, self.fence())
    }
}

fn owner() -> OwnerName {
    OwnerName::parse(OWNER).unwrap_or_else(|_| unreachable!("a valid name"))
}
