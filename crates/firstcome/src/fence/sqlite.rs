//! The check in SQLite, with rusqlite (feature `sqlite`).

use super::sql::{SQLITE_CHECK, SQLITE_TABLE};
use super::{FenceError, FenceToken};
use ::rusqlite::{Connection, Error, params};

/// Creates the table `fences` if it is absent, for [`check`].
pub fn create_table(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(SQLITE_TABLE)
}

/// Checks a token and remembers it. One statement; it waits only for the lock of the database file.
///
/// Call it first in a transaction, ideally one that begins `IMMEDIATE`: then no other connection writes to the file
/// until the transaction ends. A rollback undoes what it remembered. Outside of a transaction it takes effect at once,
/// and protects nothing that is written after it.
///
/// Fails with [`FenceError::Stale`] if the token is refused: end the transaction. Fails with [`FenceError::Failed`] if
/// SQLite fails, for example because the file is busy; then nothing is remembered.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::fence::sqlite;
/// use rusqlite::{Connection, TransactionBehavior};
///
/// # let locks = firstcome::Locks::memory();
/// let mut connection = Connection::open_in_memory()?;
/// connection.execute_batch("CREATE TABLE auctions (id INTEGER PRIMARY KEY, price INTEGER)")?;
/// sqlite::create_table(&connection)?;
///
/// let guard = locks.lock("auction:7").acquire().await?;
/// let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// sqlite::check(&transaction, &guard.token()?)?;
/// transaction.execute("INSERT INTO auctions VALUES (7, 120)", [])?;
/// transaction.commit()?;
/// # Ok(()) }
/// ```
pub fn check(connection: &Connection, token: &FenceToken) -> Result<(), FenceError<Error>> {
    let mut statement = connection.prepare_cached(SQLITE_CHECK).map_err(FenceError::Failed)?;
    let changed = statement.execute(params![token.lock(), token.fence_i64(), token.owner()]);
    match changed.map_err(FenceError::Failed)? {
        0 => Err(FenceError::stale(token)),
        _ => Ok(()),
    }
}
