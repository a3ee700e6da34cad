//! The check in SQLite, with rusqlite (feature `sqlite`).

use super::sql::{SQLITE_CHECK, SQLITE_TABLE};
use super::{FenceError, FenceToken};
use ::rusqlite::{Connection, Error, params};

/// Makes the table `fences` if it is not there.
pub fn create_table(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(SQLITE_TABLE)
}

/// Checks a token and remembers it. One statement, no wait except for the file.
///
/// Call it first in a transaction, best one that begins `IMMEDIATE`: from here on no other process writes to the file until the
/// transaction ends, and what it remembers is undone if the transaction is. Outside of one it stands at once, and protects
/// nothing that is written after it.
///
/// Fails with [`FenceError::Stale`] if the token is refused: end the transaction. With [`FenceError::Failed`] as SQLite fails,
/// such as busy; nothing is remembered then.
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
/// sqlite::check(&transaction, &guard.token())?;
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
