//! Locks that a database server has by itself, held by a connection.

use super::{LockError, parse_name};
use crate::fence::FenceToken;
use firstcome_sql::{Address, SessionHold, SqlError, SqlOptions};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::limits::WAIT_MS_MAX;
use firstcome_store::core::lock::{ClientId, Fence, Request};
use firstcome_store::edge::draw_id;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// As whom tokens name a holder: there is no other process to be told.
const OWNER: &str = "session";

/// Locks of a database server's own: advisory locks in PostgreSQL, `GET_LOCK` in MySQL and MariaDB.
///
/// For few locks, each held for as long as it takes, on a database that is there anyway. What [`Locks`](super::Locks) have and
/// these do not:
///
/// - *Leases.* A hold lasts as long as its connection. The server may end that at any time, and this process learns it by a
///   ping, half a second later or so; in between another process may have the lock. Only the fence protects what is written then.
///   If this machine vanishes, the server keeps its locks until its keep-alives fail: about 25 s in PostgreSQL, hours in
///   MySQL unless its system is set otherwise.
/// - *An order.* It is the server's, which mostly serves by arrival.
/// - *Thrift.* Each lock that is held or waited for is a connection of its own: 32 unless [`SqlOptions`] say otherwise. A
///   grant is one round trip in PostgreSQL and two in MySQL, and so many again for the end.
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
/// - Mutual exclusion among all who name the same server, database and schema.
/// - A fence with every grant, above every one before it of the same lock. It counts grants, and so is not to be compared with
///   those of [`Locks`](super::Locks): let one kind of lock guard a thing.
/// - Dropping a future closes its connection, and gives up its place. Dropping a guard gives the lock back in the background.
///
/// # Poolers
/// Behind a pooler in transaction mode (PgBouncer, Supavisor, ProxySQL…) these locks do not hold. It is refused where it can be
/// seen, which is not always: connect past it, or use [`Locks::postgres_leases`](super::Locks::postgres_leases). See
/// [`sql`](crate::sql).
#[derive(Clone)]
pub struct SessionLocks {
    store: firstcome_sql::SessionLocks,
    client: ClientId,
}

impl SessionLocks {
    /// As [`Locks::postgres`](super::Locks::postgres), with times and a number of connections of one's own.
    pub async fn postgres_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Address::postgres(url)?;
        Self::open(url, options).await
    }

    /// As [`Locks::mysql`](super::Locks::mysql), with times and a number of connections of one's own.
    pub async fn mysql_with(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Address::mysql(url)?;
        Self::open(url, options).await
    }

    async fn open(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        let client = draw_id().map_err(|fault| SqlError::Broken { says: fault.to_string() })?;
        let store = firstcome_sql::SessionLocks::open(url, options).await?;
        Ok(Self { store, client: ClientId(client) })
    }

    /// A lock by its name. Nothing is sent yet.
    pub fn lock(&self, name: &str) -> SessionRequest {
        let wait = Duration::from_millis(u64::from(WAIT_MS_MAX));
        SessionRequest { locks: self.clone(), name: name.into(), wait }
    }
}

/// A lock that is about to be asked for.
#[derive(Clone)]
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct SessionRequest {
    locks: SessionLocks,
    name: Box<str>,
    wait: Duration,
}

impl SessionRequest {
    /// How long to wait, for a connection and for the lock: up to an hour, which is also the time without this.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits for the lock, which the server does. One round trip in PostgreSQL, two in MySQL and MariaDB.
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

    /// Takes the lock if it is free. Cancel-safe as [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if a process has it (the server does not tell who, nor how many wait, and nothing
    /// ends the hold by itself: the longest time there is), [`LockError::Unavailable`] if the server cannot be reached or all
    /// connections are in use, [`LockError::Name`] before it is asked.
    pub async fn try_acquire(self) -> Result<SessionGuard, LockError> {
        let contended = || LockError::Contended { holder: "somebody".to_owned(), waiters: 0, ttl: Duration::MAX };
        self.take(Duration::ZERO).await?.ok_or_else(contended)
    }

    async fn take(self, wait: Duration) -> Result<Option<SessionGuard>, LockError> {
        let name = parse_name(&self.name)?;
        let hold = self.locks.store.take(&name, wait).await?;
        let client = self.locks.client;
        Ok(hold.map(|hold| SessionGuard { hold, name, client }))
    }

    /// Runs `body` under the lock, and gives the lock back. `body` is dropped at its next await point when the lock is known to
    /// be lost; then, and if it was lost before it could be given back, this is [`LockError::Lost`].
    pub async fn with<T>(self, body: impl AsyncFnOnce(&SessionGuard) -> T) -> Result<T, LockError> {
        let guard = self.acquire().await?;
        let value = guard.run(body(&guard)).await?;
        guard.release().await?;
        Ok(value)
    }
}

/// A lock that is held by a connection. It may move between tasks.
///
/// Dropping it gives the lock back in the background; [`Self::release`] says how that went.
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

    /// What the guarded store gets; see [`fence`](crate::fence). No request; a digest.
    pub fn token(&self) -> FenceToken {
        // A fence is drawn once, so it names the hold.
        let request = Request { client: self.client, number: self.fence().get() };
        FenceToken::of_hold(&self.name, self.fence(), &owner(), request)
    }

    /// What the server calls the session that holds the lock: a process id in PostgreSQL, a connection id in MySQL.
    pub const fn session(&self) -> u64 {
        self.hold.session()
    }

    /// Whether the lock is known to be lost. No request: that it is not known says nothing of the last half second.
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// Resolves when the lock is known to be lost; never once it was given back.
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

    /// Gives the lock back. One round trip.
    ///
    /// Fails with [`LockError::Lost`] if it was over before, or no process can say: the section was perhaps not alone to its end.
    /// Dropping the future gives the lock back in the background.
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
