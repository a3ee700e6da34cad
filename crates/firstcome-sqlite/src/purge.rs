//! Rows that a purge takes out of the file.

use super::coupon::instant;
use super::faults::fault;
use firstcome_core::coupon::KeyedEffect;
use firstcome_core::time::Timestamp;
use firstcome_store::Fault;
use firstcome_store::embedded::journal::{ForgottenRequest, MemberId};
use rusqlite::{Connection, OptionalExtension, params};

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
