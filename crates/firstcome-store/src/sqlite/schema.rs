//! The file's schema, its version, and the steps from each version to the next.

use crate::error::{Fault, FaultKind};
use rusqlite::{Connection, TransactionBehavior};

/// Marks the file as ours: "FCOM".
const APPLICATION_ID: i32 = 0x4643_4f4d;

/// Step N brings a file of version N to version N + 1. Steps are never changed once released, only added.
const STEPS: [&str; 2] = [include_str!("0001_coupons.sql"), include_str!("0002_rooms.sql")];

/// The version that this program writes.
pub(super) const VERSION: i32 = STEPS.len() as i32;

type Checked<T> = rusqlite::Result<Result<T, Fault>>;

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

/// Lets a file through that is empty, or ours and not of a later version. Changes nothing.
pub(super) fn admit(connection: &Connection) -> Checked<()> {
    let version = number(connection, "user_version")?;
    let application = number(connection, "application_id")?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let fresh = version == 0 && application == 0 && tables == 0;
    Ok(if fresh { Ok(()) } else { judge(application, version) })
}

/// Brings the file to [`VERSION`], in one transaction.
pub(super) fn prepare(connection: &mut Connection) -> Checked<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Once more: it may have changed before the transaction began.
    if let Err(fault) = admit(&transaction)? {
        return Ok(Err(fault));
    }
    let version = number(&transaction, "user_version")?;
    for step in &STEPS[usize::try_from(version).unwrap_or(0)..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(Ok(()))
}

/// Lets a connection through whose file has exactly this version.
pub(super) fn check(connection: Connection) -> Checked<Connection> {
    let version = number(&connection, "user_version")?;
    if let Err(fault) = judge(number(&connection, "application_id")?, version) {
        return Ok(Err(fault));
    }
    if version < VERSION {
        let detail = format!("the file has schema version {version}; start the service once to bring it to {VERSION}");
        return Ok(Err(Fault::new(FaultKind::Foreign, detail)));
    }
    Ok(Ok(connection))
}

fn judge(application: i32, version: i32) -> Result<(), Fault> {
    if application != APPLICATION_ID {
        return Err(Fault::new(FaultKind::Foreign, "the file belongs to another program"));
    }
    if VERSION < version {
        let detail = format!("the file has schema version {version}, this program knows up to {VERSION}");
        return Err(Fault::new(FaultKind::Newer, detail));
    }
    Ok(())
}
