//! Rows that a purge takes out of the file.

use super::coupon::instant;
use super::faults::fault;
use firstcome_core::coupon::KeyedEffect;
use firstcome_core::points::Anchor;
use firstcome_core::time::Timestamp;
use firstcome_store::Fault;
use firstcome_store::embedded::journal::{Change, ForgottenRequest, MemberId, RecordsRemoved};
use rusqlite::{Connection, OptionalExtension, params};

const PUT_ANCHOR: &str = "\
INSERT OR REPLACE INTO anchor (member, number, total, held, at, charged, chain) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Forgets idempotency keys within the open transaction.
pub(super) fn forget(connection: &Connection, requests: &[ForgottenRequest]) -> rusqlite::Result<()> {
    for request in requests {
        let (statement, row) = match request {
            ForgottenRequest::Coupon(id, KeyedEffect::Claim(serial)) => {
                ("UPDATE claim SET request_key = NULL, request_body = NULL WHERE id = ?1", id.row(*serial))
            }
            ForgottenRequest::Coupon(id, KeyedEffect::Redemption(serial)) => {
                ("UPDATE redemption SET request_key = NULL, request_body = NULL WHERE id = ?1", id.row(*serial))
            }
            ForgottenRequest::Bid(listing, number) => {
                ("UPDATE bid SET request_key = NULL, request_body = NULL WHERE id = ?1", listing.row(*number))
            }
            ForgottenRequest::Purchase(listing) => {
                ("UPDATE listing SET request_key = NULL, request_body = NULL WHERE id = ?1", i64::from(listing.0))
            }
            ForgottenRequest::Movement(member, number) => {
                ("UPDATE record SET request_key = NULL, request_body = NULL WHERE id = ?1", member.row(*number))
            }
        };
        connection.prepare_cached(statement)?.execute([row])?;
    }
    Ok(())
}

/// Whether a batch removes records. Their chain values cover the name of the member: an erasure that comes later does not find them.
pub(super) fn removes_records(changes: &[Change]) -> bool {
    matches!(changes.first(), Some(Change::RecordsRemoved(_)))
}

/// Removes the first records of a member within the open transaction, and puts the anchor in their place.
pub(super) fn remove_records(connection: &Connection, removed: &RecordsRemoved) -> rusqlite::Result<()> {
    let RecordsRemoved { id, anchor, .. } = removed;
    let mut remove = connection.prepare_cached("DELETE FROM record WHERE id BETWEEN ?1 AND ?2")?;
    remove.execute([id.row(0), id.row(anchor.number)])?;
    put_anchor(connection, *id, anchor)
}

/// Puts the anchor of a member.
pub(super) fn put_anchor(connection: &Connection, id: MemberId, anchor: &Anchor) -> rusqlite::Result<()> {
    connection.prepare_cached(PUT_ANCHOR)?.execute(params![
        id.0,
        anchor.number.cast_signed(),
        anchor.balance.total().cast_signed(),
        anchor.balance.held().cast_signed(),
        anchor.at.as_us(),
        anchor.charged,
        &anchor.chain.0[..]
    ])?;
    Ok(())
}

/// Notes that a purge has ended.
pub(super) fn put_ended(connection: &Connection, at: Timestamp) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached("INSERT OR REPLACE INTO purge (id, ended_at) VALUES (1, ?1)")?;
    put.execute(params![at.as_us()]).map(drop)
}

/// Reads when the last purge ended.
pub(super) fn ended(connection: &Connection) -> Result<Option<Timestamp>, Fault> {
    let found = connection.query_row("SELECT ended_at FROM purge", [], |row| row.get(0)).optional();
    found.map_err(|error| fault(&error, "cannot read when the last purge ended"))?.map(instant).transpose()
}

/// Reads charges and refunds before `since` that have a key, at most `count`. An index has all that have one.
pub(super) fn keyed_movements(
    connection: &Connection,
    since: Timestamp,
    count: usize,
) -> rusqlite::Result<Vec<(MemberId, u64)>> {
    let query = "SELECT id FROM record WHERE request_key IS NOT NULL AND at < ?1 ORDER BY at LIMIT ?2";
    let mut statement = connection.prepare_cached(query)?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let rows = statement.query_map([since.as_us(), count], |row| row.get::<_, i64>(0))?;
    let mut found = Vec::new();
    for row in rows {
        found.extend(MemberId::of_row(row?));
    }
    Ok(found)
}
