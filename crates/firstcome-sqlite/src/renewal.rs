//! Rows of renewed tickets: see [`firstcome_core::room::Room::renew`].

use super::coupon::damaged;
use super::faults::fault;
use super::room::key_of;
use firstcome_core::room::{Renewal, RenewalKey, TicketNumber};
use firstcome_store::Fault;
use firstcome_store::embedded::journal::RoomId;
use rusqlite::{Connection, params};

/// Stores the last renewal of a ticket, in place of the one before it.
pub(super) fn put(connection: &Connection, row: i64, renewal: Renewal) -> rusqlite::Result<()> {
    let mut put = connection
        .prepare_cached("INSERT OR REPLACE INTO renewal (id, generation, request_key) VALUES (?1, ?2, ?3)")?;
    put.execute(params![row, renewal.generation, renewal.key.get().to_be_bytes()]).map(drop)
}

/// Forgets the renewals of a ticket that is gone.
pub(super) fn delete(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM renewal WHERE id = ?1")?.execute([row]).map(drop)
}

/// Visits the renewals of the tickets with these keys, in key order.
pub(super) fn walk(
    connection: &Connection,
    range: [i64; 2],
    mut visit: impl FnMut(RoomId, TicketNumber, Renewal) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query = "SELECT id, generation, request_key FROM renewal WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the renewals of tickets");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query(range).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        let read = || -> rusqlite::Result<(i64, i64, [u8; 16])> { Ok((row.get(0)?, row.get(1)?, row.get(2)?)) };
        let (id, generation, key) = read().map_err(|error| broken(&error))?;
        let (room, number) = key_of(id)?;
        let generation = u32::try_from(generation).ok().filter(|generation| *generation != 0);
        let wrong = || damaged(format!("ticket {}: no generation of a renewed ticket", number.get()));
        let key = RenewalKey::new(u128::from_be_bytes(key));
        visit(room, number, Renewal { generation: generation.ok_or_else(wrong)?, key })?;
    }
    Ok(())
}
