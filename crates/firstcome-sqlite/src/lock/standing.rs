//! The locks of a directory that are held now, for an operator.

use super::table::{number, waiter};
use super::{LOCKS_FILE, fault, schema};
use crate::open_reader;
use firstcome_core::id::LockName;
use firstcome_core::lock::Fence;
use firstcome_store::Fault;
use firstcome_store::HeldLockView;
use firstcome_store::edge::{Clock, SharedClock};
use rusqlite::types::Type;
use rusqlite::{Connection, Row};
use std::path::Path;
use std::time::Duration;

const HOLDS: &str = "
    SELECT client, request, owner, lease_ms, passes, lock, fence, expires_us, waiters FROM hold
    WHERE ?1 < expires_us ORDER BY lock";

/// Lists the locks of a directory that are held now, by name, in one snapshot. The list is empty if the directory has no
/// locks. Creates and changes nothing, and does not wait for processes that use the locks.
pub fn standing_locks(directory: &Path) -> Result<Vec<HeldLockView>, Fault> {
    let path = directory.join(LOCKS_FILE);
    let is_there = path.try_exists();
    if let Ok(false) = is_there {
        return Ok(Vec::new());
    }
    let connection = open_reader(&path, &schema::LOCKS)?;
    let now_us = SharedClock::default().now().as_us();
    read(&connection, now_us).map_err(|error| fault(&error, format!("cannot read {}", path.display())))
}

fn read(connection: &Connection, now_us: i64) -> rusqlite::Result<Vec<HeldLockView>> {
    let mut statement = connection.prepare(HOLDS)?;
    let holds = statement.query_map([now_us], |row| standing(row, now_us))?;
    holds.collect()
}

fn standing(row: &Row<'_>, now_us: i64) -> rusqlite::Result<HeldLockView> {
    let holder = waiter(row)?;
    let invalid = |error| rusqlite::Error::FromSqlConversionFailure(5, Type::Text, Box::new(error));
    let name = LockName::parse(row.get_ref(5)?.as_str()?).map_err(invalid)?;
    let fence = Fence::new(number(row, 6)?).ok_or(rusqlite::Error::IntegralValueOutOfRange(6, 0))?;
    let left_us = row.get::<_, i64>(7)?.saturating_sub(now_us);
    let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
    Ok(HeldLockView { name, request: holder.request, owner: holder.owner, fence, left, waiters: row.get(8)? })
}
