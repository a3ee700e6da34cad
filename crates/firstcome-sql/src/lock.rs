//! Locks between processes as rows in PostgreSQL, with leases.
//!
//! # Promises
//! - The rules of the core, step by step: a batch of steps is one transaction, which first locks the rows of their buckets,
//!   then reads the server's clock, and is answered after its commit.
//! - Cost: two round trips for a batch of a process's steps, however many: one that reads and locks, one that writes and commits. One
//!   more for everything that is out of the ordinary: dead heads of a long line (one more for each eightfold), or a place that was
//!   forgotten. To look at a lock is one round trip, and locks nothing.
//! - Two connections per process, for any number of locks and waiters: one for the steps, one that listens.
//! - A push is a `NOTIFY` in the transaction that grants, on a channel of the process that waits; within this process it is
//!   told directly. Whenever listening begins again, the process is told that it may have missed something.
//! - Works behind a pooler in transaction mode, except for the pushes: nothing is heard there, and a heartbeat finds each grant.
//!
//! # Not promised
//! - Progress while a process stands still within a transaction: the server ends that after the answer's time-out, and others
//!   who need the same buckets wait so long at most.
//! - That a push is true: a process that may connect to the database may send one, and make a process believe in a grant until its
//!   confirmation is answered. Let strangers have databases of their own.
//! - That the notifications of very many grants cost nothing: PostgreSQL commits one transaction with a `NOTIFY` after the
//!   other.
//! - Anything after a failover to a replica that was behind: grants may be forgotten; fences grow on, as long as the clock was
//!   not set back.

mod notify;
mod page;
mod rows;
mod writer;

use super::{Address, SqlError, SqlOptions};
use firstcome_core::id::LockName;
use firstcome_core::lock::{Answer, ClientId, Step};
use firstcome_store::lock_queue::{LockQueue, lock_queue};
use firstcome_store::{Guarantees, LockInbox, LockStore, StoreError, TimedLockView};
use notify::LockNotifier;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, raw_sql};
use std::sync::Arc;
use tokio::task::JoinHandle;
use writer::Writer;

/// Makes the tables: step N leads from version N to version N + 1.
const STEPS: [&str; 2] = [include_str!("lock/0001_locks.sql"), include_str!("lock/0002_shared.sql")];

/// The version of the tables that this program writes.
const VERSION: i64 = STEPS.len() as i64;

/// Serialises those who make the tables: among all advisory locks of two numbers, this one.
const MAKING: &str = "pg_advisory_xact_lock(1179861840, 1)";

/// Locks in the tables of a PostgreSQL database, as one process sees them.
///
/// Dropped, it finishes in the background what was asked of it.
pub struct PostgresLocks {
    queue: LockQueue,
    post: Arc<LockNotifier>,
    listens: JoinHandle<()>,
}

firstcome_core::debug_by_name!(PostgresLocks);

impl PostgresLocks {
    /// Connects, and makes the tables if they are absent: `firstcome_lock_…`, in the first schema of the search path. Call
    /// within a Tokio runtime, which then carries the steps and listens.
    ///
    /// Refused with [`SqlError::Broken`] if the tables cannot be made, or are of a later version.
    pub async fn open(url: &str, times: SqlOptions) -> Result<Self, SqlError> {
        let options = Address::postgres(url)?;
        let mut connection = writer::open(&options, &times).await?;
        let limit = times.connect_timeout + times.answer_timeout;
        let prepared = tokio::time::timeout(limit, prepare(&mut connection)).await;
        prepared.unwrap_or_else(|_| Err(SqlError::late_in_transaction()))?;
        let post = Arc::new(LockNotifier::default());
        let listens = tokio::spawn(Arc::clone(&post).listen(options.clone(), times.clone()));
        let (queue, jobs) = lock_queue();
        let writer = Writer { options, times, post: Arc::clone(&post), connection: Some(connection) };
        tokio::spawn(writer.run(jobs));
        Ok(Self { queue, post, listens })
    }
}

impl LockStore for PostgresLocks {
    fn guarantees(&self) -> Guarantees {
        Guarantees::SQL_LEASE
    }

    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        self.queue.take(step).await
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        self.queue.view(name).await
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        self.post.attach(client, inbox);
    }

    fn detach(&self, client: ClientId) {
        self.post.detach(client);
    }
}

impl Drop for PostgresLocks {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

/// Makes the tables if they are absent, and brings older ones to this version, in one transaction.
async fn prepare(connection: &mut PgConnection) -> Result<(), SqlError> {
    let failed = |error: sqlx::Error| SqlError::in_transaction(&error);
    let is_older = |found: i64| (0..VERSION).contains(&found);
    if is_older(version(connection).await.map_err(failed)?) {
        let mut making = connection.begin().await.map_err(failed)?;
        raw_sql(AssertSqlSafe(format!("SELECT {MAKING}"))).execute(&mut *making).await.map_err(failed)?;
        // Once more: another process may have done it meanwhile.
        let found = version(&mut making).await.map_err(failed)?;
        for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(STEPS.len())) {
            raw_sql(*step).execute(&mut *making).await.map_err(failed)?;
        }
        // If that is not answered it is done or not: a process that opens next sees which.
        making.commit().await.map_err(failed)?;
    }
    match version(connection).await.map_err(failed)? {
        VERSION => Ok(()),
        found => {
            Err(SqlError::broken(format!("the tables of locks have version {found}, this program knows {VERSION}")))
        }
    }
}

/// The version of the tables; 0 if there are none.
async fn version(connection: &mut PgConnection) -> sqlx::Result<i64> {
    // Through a table: by itself the function may answer from before others have made it.
    const THERE: &str = "SELECT FROM pg_class WHERE oid = to_regclass('firstcome_lock_version')";
    if raw_sql(THERE).fetch_optional(&mut *connection).await?.is_none() {
        return Ok(0);
    }
    raw_sql("SELECT max(version) FROM firstcome_lock_version").fetch_one(connection).await?.try_get(0)
}
