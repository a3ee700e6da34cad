//! The built-in locks of a database server, held by a connection: advisory locks in PostgreSQL, `GET_LOCK` in MySQL and
//! MariaDB.
//!
//! For few locks, each held as long as its work takes, on a database that runs anyway. These features of locks with a
//! layout of this library are missing:
//!
//! - *Leases.* A hold lasts as long as its connection. The server may end the connection at any time. This process
//!   notices by a ping, about half a second later; in between another process may have the lock. Only the fence
//!   protects what is written then. If this machine vanishes, the server keeps its locks until its keep-alives fail:
//!   about 25 s in PostgreSQL, hours in MySQL unless its operating system is set otherwise.
//! - *An order.* The server decides, and mostly grants by arrival.
//! - *Thrift.* Each lock that is held or waited for uses its own connection: at most 32 by default, see [`SqlOptions`].
//!   A grant is one round trip in PostgreSQL and two in MySQL, and a release costs the same again.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::Locks;
//! use std::time::Duration;
//!
//! let locks = Locks::postgres("postgres://app@localhost/shop").await?;
//! let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).acquire().await?;
//! println!("ours, with fence {}", guard.fence()?);
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Promises
//! - Mutual exclusion among all clients that name the same server, database and schema.
//! - Every grant has a fence above that of every grant of the same lock before it. The fence counts grants, so do not
//!   compare it with fences of other kinds of locks: guard each thing with one kind of lock.
//! - Dropping a future closes its connection, and gives up its place. Dropping a guard releases the lock in the
//!   background.
//!
//! # Poolers
//! Behind a pooler in transaction mode (PgBouncer, Supavisor, ProxySQL…) these locks do not work. Opening fails where
//! this library can detect such a pooler, which is not always. Connect past the pooler, or use
//! [`Locks::postgres_leases`](super::Locks::postgres_leases).

use super::kind::{BoxFuture, OtherHold, OtherLocks, share};
use super::{Guard, LockError, Terms};
use crate::fence::FenceToken;
use firstcome_sql::{Address, SessionHold, SqlError, SqlOptions};
use firstcome_store::Guarantees;
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{ClientId, Fence, Request, Watch};
use firstcome_store::edge::draw_id;
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The owner in fence tokens: the server shows no holder names to other clients.
const OWNER: &str = "session";

const NO_LEASE: LockError =
    LockError::Unsupported { operation: "keep leases: its holds last as long as their connections" };

/// Returns the server's name for the session that holds the lock: a process id in PostgreSQL, a connection id in MySQL.
/// `None` for a guard of another kind of store. No request.
pub fn id(guard: &Guard) -> Option<u64> {
    guard.as_other().map(|guard: &SessionGuard| guard.hold.session())
}

/// The built-in locks of a server, as this process sees them.
pub(super) struct SessionLocks {
    store: firstcome_sql::SessionLocks,
    client: ClientId,
}

impl SessionLocks {
    pub(super) async fn postgres(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Address::postgres(url)?;
        Self::open(url, options).await
    }

    pub(super) async fn mysql(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        Address::mysql(url)?;
        Self::open(url, options).await
    }

    async fn open(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        let client = draw_id().map_err(|fault| SqlError::Broken { says: fault.to_string() })?;
        let store = firstcome_sql::SessionLocks::open(url, options).await?;
        Ok(Self { store, client: ClientId(client) })
    }

    async fn get(&self, terms: &Terms) -> Result<SessionGuard, LockError> {
        if terms.lease.is_some() || terms.watch == Watch::Fixed {
            return Err(NO_LEASE);
        }
        let name = terms.lock_name()?;
        match self.store.take(&name, terms.wait).await? {
            Some(hold) => Ok(SessionGuard { hold, name, client: self.client }),
            // The server tells neither the holder nor the number of waiters, and nothing ends the hold by itself.
            None if terms.wait.is_zero() => {
                Err(LockError::Contended { holder: "another client".to_owned(), waiters: 0, ttl: Duration::MAX })
            }
            None => Err(LockError::TimedOut { position: None }),
        }
    }
}

struct SessionGuard {
    hold: SessionHold,
    name: LockName,
    client: ClientId,
}

impl OtherLocks for SessionLocks {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn acquire<'a>(&'a self, terms: &'a Terms) -> BoxFuture<'a, Result<Arc<dyn OtherHold>, LockError>> {
        Box::pin(async move { Ok(Arc::new(self.get(terms).await?) as Arc<dyn OtherHold>) })
    }

    fn quiet(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

impl OtherHold for SessionGuard {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn fence(&self) -> Option<Fence> {
        Some(self.hold.fence())
    }

    fn token(&self, fence: Fence) -> Result<FenceToken, LockError> {
        // The server draws each fence of a lock once, so the fence identifies the hold.
        let request = Request { client: self.client, number: fence.get() };
        let owner = OwnerName::parse(OWNER).map_err(|error| LockError::name("owner", error))?;
        Ok(FenceToken::of_hold(&self.name, fence, &owner, request))
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.hold.lost())
    }

    fn reenter(self: Arc<Self>) -> BoxFuture<'static, Result<Arc<dyn OtherHold>, LockError>> {
        share(self)
    }

    fn renew(&self, _: Duration) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(ready(Err(NO_LEASE)))
    }

    fn release(self: Arc<Self>) -> BoxFuture<'static, Result<(), LockError>> {
        Box::pin(async move {
            let Some(last) = Arc::into_inner(self) else { return Ok(()) };
            if last.hold.release().await { Ok(()) } else { Err(LockError::Lost) }
        })
    }
}
