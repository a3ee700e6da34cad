//! The checks in PostgreSQL, MySQL and MariaDB, with sqlx (feature `sqlx`).
//!
//! A transaction of sqlx implements [`lock::Transaction`], so a function with the attribute `#[distributed_lock]` that
//! names a transaction is protected without further code:
//!
//! ```no_run
//! use firstcome::fence::FenceError;
//! use firstcome::{LockError, Locks, distributed_lock};
//! use sqlx::PgPool;
//!
//! struct Bids {
//!     locks: Locks,
//!     pool: PgPool,
//! }
//!
//! impl Bids {
//!     #[distributed_lock(key = "AUCTION:{auction}", lease = "3s", transaction(tx = self.pool.begin()))]
//!     async fn bid(&self, auction: i64, price: i64) -> Result<(), BidError> {
//!         let bid = sqlx::query("UPDATE auctions SET price = $1 WHERE id = $2").bind(price).bind(auction);
//!         bid.execute(&mut **tx).await?;
//!         Ok(())
//!     }
//! }
//!
//! enum BidError {
//!     Lock(LockError),
//!     Fence(FenceError<sqlx::Error>), // from the check and from the commit
//!     Database(sqlx::Error),
//! }
//! # impl From<LockError> for BidError { fn from(error: LockError) -> Self { Self::Lock(error) } }
//! # impl From<FenceError<sqlx::Error>> for BidError { fn from(error: FenceError<sqlx::Error>) -> Self { Self::Fence(error) } }
//! # impl From<sqlx::Error> for BidError { fn from(error: sqlx::Error) -> Self { Self::Database(error) } }
//! ```
//!
//! One `UPDATE` of one row needs no table and no transaction, see [`Columns`]:
//!
//! ```no_run
//! # use firstcome::fence::{FenceToken, StaleFence};
//! use firstcome::fence::sql::Columns;
//! use firstcome::fence::sqlx::{push_condition, push_set};
//! use sqlx::{PgPool, Postgres, QueryBuilder};
//!
//! # async fn bid(pool: &PgPool, token: &FenceToken, columns: Columns) -> Result<bool, sqlx::Error> {
//! let mut update = QueryBuilder::<Postgres>::new("UPDATE auctions SET price = ");
//! update.push_bind(120_i64).push(", ");
//! push_set(&mut update, &columns, token);
//! update.push(" WHERE id = ").push_bind(7_i64).push(" AND ");
//! push_condition(&mut update, &columns, token);
//! let written = update.build().execute(pool).await?.rows_affected() == 1; // else the token is stale, or no such row
//! # Ok(written) }
//! ```

use super::sql::{Columns, MYSQL_ACCEPTED, MYSQL_CHECK, MYSQL_REFUSED, MYSQL_TABLE, POSTGRES_CHECK, POSTGRES_TABLE};
use super::{FenceError, FenceToken};
use crate::lock;
use ::sqlx::{Database, Error, MySql, MySqlConnection, PgConnection, Postgres, QueryBuilder, query, raw_sql};
use std::future::Future;

mod sealed {
    use super::{Error, FenceToken, Future};
    use ::sqlx::{Database, QueryBuilder};

    pub trait Fences: Send {
        fn make_table(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

        /// Returns whether the token is accepted.
        fn show(&mut self, token: &FenceToken) -> impl Future<Output = Result<bool, Error>> + Send;
    }

    pub trait Binds: Database {
        fn bind_fence(query: &mut QueryBuilder<Self>, token: &FenceToken);
        fn bind_owner(query: &mut QueryBuilder<Self>, token: &FenceToken);
    }
}

/// A connection that can check fences, of PostgreSQL or of MySQL and MariaDB. A transaction or a pooled connection
/// dereferences to one: `&mut *transaction`.
pub trait FenceConnection: sealed::Fences {}

impl FenceConnection for PgConnection {}
impl FenceConnection for MySqlConnection {}

/// A database whose statements can carry a token: PostgreSQL, or MySQL and MariaDB.
pub trait FenceDatabase: sealed::Binds {}

impl FenceDatabase for Postgres {}
impl FenceDatabase for MySql {}

/// Creates the table `fences` if it is absent. One statement.
pub async fn create_table(connection: &mut impl FenceConnection) -> Result<(), Error> {
    connection.make_table().await
}

/// Checks a token and remembers it. One statement, one round trip (two when the connection first prepares it).
///
/// Call it first in a transaction: from then on every other transaction that checks a token of this lock waits until
/// this one ends. A rollback undoes what it remembered. Outside of a transaction it takes effect at once, and protects
/// nothing that is written after it. Any isolation level works. In MySQL and MariaDB it sets `LAST_INSERT_ID()` of the
/// connection.
///
/// Fails with [`FenceError::Stale`] if the token is refused. Fails with [`FenceError::Failed`] if the database fails;
/// then nothing is remembered. Under `REPEATABLE READ` and above, PostgreSQL fails if another holder's transaction
/// ended meanwhile. MySQL may fail one of several waiting transactions as the victim of a deadlock. In all cases roll
/// the transaction back and await the rollback: sqlx rolls a dropped transaction back in the background, and the row
/// stays locked until then.
///
/// A holder that stands still within its transaction keeps the row locked, and other holders wait. Let the server end
/// such transactions: `idle_in_transaction_session_timeout` in PostgreSQL, `idle_transaction_timeout` in MariaDB.
///
/// If the future is dropped, the statement may still run: roll the transaction back, or drop it.
///
/// ```no_run
/// # use firstcome::fence::FenceToken;
/// # async fn bid(pool: sqlx::PgPool, guard: firstcome::Guard) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// firstcome::fence::sqlx::check(&mut *transaction, &guard.token()?).await?;
/// sqlx::query("UPDATE auctions SET price = 120 WHERE id = 7").execute(&mut *transaction).await?;
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
pub async fn check(connection: &mut impl FenceConnection, token: &FenceToken) -> Result<(), FenceError<Error>> {
    match connection.show(token).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(FenceError::stale(token)),
        Err(error) => Err(FenceError::Failed(error)),
    }
}

/// Writes [`Columns::set`] into a query, and binds its values. Writes no comma before or after it.
pub fn push_set<D: FenceDatabase>(query: &mut QueryBuilder<D>, columns: &Columns, token: &FenceToken) {
    let (fence, owner) = columns.names();
    query.push(fence).push(" = ");
    D::bind_fence(query, token);
    query.push(", ").push(owner).push(" = ");
    D::bind_owner(query, token);
}

/// Writes [`Columns::condition`] into a query, in parentheses, and binds its values.
pub fn push_condition<D: FenceDatabase>(query: &mut QueryBuilder<D>, columns: &Columns, token: &FenceToken) {
    let (fence, owner) = columns.names();
    query.push("(").push(fence).push(" IS NULL OR ").push(fence).push(" < ");
    D::bind_fence(query, token);
    query.push(" OR (").push(fence).push(" = ");
    D::bind_fence(query, token);
    query.push(" AND ").push(owner).push(" = ");
    D::bind_owner(query, token);
    query.push("))");
}

impl sealed::Fences for PgConnection {
    async fn make_table(&mut self) -> Result<(), Error> {
        raw_sql(POSTGRES_TABLE).execute(self).await.map(drop)
    }

    async fn show(&mut self, token: &FenceToken) -> Result<bool, Error> {
        let check = query(POSTGRES_CHECK).bind(token.lock()).bind(token.fence_i64()).bind(token.owner());
        Ok(check.execute(self).await?.rows_affected() == 1)
    }
}

impl sealed::Fences for MySqlConnection {
    async fn make_table(&mut self) -> Result<(), Error> {
        raw_sql(MYSQL_TABLE).execute(self).await.map(drop)
    }

    async fn show(&mut self, token: &FenceToken) -> Result<bool, Error> {
        let check = query(MYSQL_CHECK).bind(token.lock()).bind(token.fence_i64()).bind(token.owner());
        verdict(check.execute(self).await?.last_insert_id())
    }
}

fn verdict(last_insert_id: u64) -> Result<bool, Error> {
    match last_insert_id {
        MYSQL_ACCEPTED => Ok(true),
        MYSQL_REFUSED => Ok(false),
        // A proxy between this process and the server does not pass the id on. A guess might accept a stale token.
        other => Err(Error::Protocol(format!("the check of a fence was answered with {other}"))),
    }
}

impl sealed::Binds for Postgres {
    fn bind_fence(query: &mut QueryBuilder<Self>, token: &FenceToken) {
        query.push_bind(token.fence_i64());
    }

    fn bind_owner(query: &mut QueryBuilder<Self>, token: &FenceToken) {
        query.push_bind(token.owner().to_owned());
    }
}

impl sealed::Binds for MySql {
    fn bind_fence(query: &mut QueryBuilder<Self>, token: &FenceToken) {
        query.push_bind(token.fence_i64());
    }

    fn bind_owner(query: &mut QueryBuilder<Self>, token: &FenceToken) {
        query.push_bind(token.owner().to_owned());
    }
}

/// Says whether an error is a serialization failure or a deadlock: the transaction is rolled back, and may succeed if
/// it runs again. A custom error type can delegate to this for [`retry`](crate::distributed_lock#options). A stale
/// token is not a conflict.
impl lock::Retry for FenceError<Error> {
    fn is_conflict(&self) -> bool {
        let Self::Failed(Error::Database(error)) = self else { return false };
        // MySQL and MariaDB use 40001 for deadlocks too.
        error.code().is_some_and(|code| matches!(&*code, "40001" | "40P01"))
    }
}

/// Checks the fence by the table `fences`, see [`check`]. Commit and rollback are those of sqlx. A commit without an
/// answer may have happened, and is also [`FenceError::Failed`].
impl<D> lock::Transaction for ::sqlx::Transaction<'static, D>
where
    D: Database,
    D::Connection: FenceConnection,
{
    type Error = FenceError<Error>;

    async fn check_fence(&mut self, token: &FenceToken) -> Result<(), FenceError<Error>> {
        check(&mut **self, token).await
    }

    async fn commit(self) -> Result<(), FenceError<Error>> {
        Self::commit(self).await.map_err(FenceError::Failed)
    }

    async fn rollback(self) {
        // If the rollback fails, the connection ends, and the transaction with it.
        let _ = Self::rollback(self).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_verdict_is_neither_yes_nor_no() {
        assert!(matches!((verdict(MYSQL_ACCEPTED), verdict(MYSQL_REFUSED)), (Ok(true), Ok(false))));
        assert!([0, 3, u64::MAX].into_iter().all(|other| verdict(other).is_err()));
    }
}
