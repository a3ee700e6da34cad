//! The locks of a directory that are held now, for an operator.

use super::table::{number, positive, waiter};
use super::{LOCKS_FILE, fault, schema};
use crate::open_reader;
use firstcome_core::id::LockName;
use firstcome_core::lock::{Fence, Sharer, Taken, Waiter, sharers_from_text};
use firstcome_store::Fault;
use firstcome_store::HeldLockView;
use firstcome_store::edge::{Clock, SharedClock};
use rusqlite::types::Type;
use rusqlite::{Connection, Row};
use std::path::Path;
use std::time::Duration;

const HOLDS: &str = "
    SELECT client, request, owner, lease_ms, passes, lock, fence, expires_us, waiters, sharers FROM hold
    ORDER BY lock";

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
    let holds = statement.query_map([], |row| standing(row, now_us))?;
    holds.filter_map(Result::transpose).collect()
}

/// Reads the hold of a lock; `None` if its time is over.
fn standing(row: &Row<'_>, now_us: i64) -> rusqlite::Result<Option<HeldLockView>> {
    let first = Sharer { waiter: waiter(row)?, expires_us: positive(row, 7)?, taken: Taken::Yes };
    let invalid = |error| rusqlite::Error::FromSqlConversionFailure(5, Type::Text, Box::new(error));
    let name = LockName::parse(row.get_ref(5)?.as_str()?).map_err(invalid)?;
    let fence = Fence::new(number(row, 6)?).ok_or(rusqlite::Error::IntegralValueOutOfRange(6, 0))?;
    let others = sharers_from_text(row.get_ref(9)?.as_str()?).ok_or(rusqlite::Error::IntegralValueOutOfRange(9, 0))?;
    let left_us = |sharer: &Sharer| sharer.expires_us.saturating_sub(u64::try_from(now_us).unwrap_or(0));
    let mut living: Vec<Sharer> = std::iter::once(first).chain(others).filter(|sharer| 0 < left_us(sharer)).collect();
    let holders = u32::try_from(living.len()).unwrap_or(u32::MAX);
    if living.is_empty() {
        return Ok(None);
    }
    let first = living.swap_remove(0);
    let left = Duration::from_micros(left_us(&first));
    let Waiter { request, owner, .. } = first.waiter;
    Ok(Some(HeldLockView { name, request, owner, fence, left, holders, waiters: row.get(8)? }))
}
