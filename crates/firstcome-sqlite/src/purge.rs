//! Rows that a purge takes out of the file.

use super::coupon::instant;
use super::faults::fault;
use super::room;
use firstcome_core::coupon::{KeyedEffect, Serial};
use firstcome_core::points::Anchor;
use firstcome_core::room::GoneTickets;
use firstcome_core::time::Timestamp;
use firstcome_store::Fault;
use firstcome_store::embedded::journal::{
    Change, CouponId, CouponOver, ForgottenRequest, MemberId, RecordsRemoved, RoomId,
};
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

/// Removes the rows of tickets that are gone.
pub(super) fn remove_tickets(connection: &Connection, id: RoomId, gone: GoneTickets) -> rusqlite::Result<()> {
    let [first, _] = room::range(id);
    let below = |number: u32| first | i64::from(number - 1);
    connection.prepare_cached("UPDATE room SET gone_before = ?2 WHERE id = ?1")?.execute([id.0, gone.before])?;
    let mut remove = connection.prepare_cached("DELETE FROM ticket WHERE id BETWEEN ?1 AND ?2")?;
    remove.execute([first, below(gone.before)])?;
    // Number 0 stands for what is no visitor's.
    let mut remove = connection.prepare_cached("DELETE FROM memory WHERE id BETWEEN ?1 AND ?2")?;
    remove.execute([first | 1, below(gone.memory_from)]).map(drop)
}

/// Notes since when rows of tickets say when they were gone, if no start noted it before. For a file of an earlier version: its
/// tickets count as gone since then.
pub(super) fn note_departures(connection: &Connection, since: Timestamp) -> Result<(), Fault> {
    let noted = connection.execute("INSERT OR IGNORE INTO departure (id, noted_since) VALUES (1, ?1)", [since.as_us()]);
    noted.map(drop).map_err(|error| fault(&error, "cannot note since when departures have an instant"))
}

/// Returns the number before which all tickets of a room from `from` on are gone since before `since`. Looks at `count` of them at
/// most.
pub(super) fn gone_before(
    connection: &Connection,
    id: RoomId,
    from: u32,
    since: Timestamp,
    count: u32,
) -> rusqlite::Result<u32> {
    let query = "SELECT id, gone IS NOT NULL AND coalesce(gone_at, (SELECT noted_since FROM departure)) < ?4 IS TRUE FROM ticket
        WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3";
    let mut statement = connection.prepare_cached(query)?;
    let [first, last] = room::range(id);
    let mut rows = statement.query([first | i64::from(from), last, count.into(), since.as_us()])?;
    let mut before = from;
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(0)? != first | i64::from(before) || !row.get::<_, bool>(1)? {
            break;
        }
        before += 1;
    }
    Ok(before)
}

/// Returns how many rows a change writes or removes, about.
pub(super) const fn rows_of(change: &Change) -> i64 {
    match change {
        Change::RequestsForgotten(requests) => requests.len() as i64,
        Change::TicketsPurged { gone, .. } => gone.count as i64,
        Change::HeadsRemoved { count, .. } => *count as i64,
        Change::MemberErased(page) => (page.chains.len() + page.bids.len()) as i64,
        Change::ClaimsPurged { first, last, .. } => 2 * (last.get() - first.get() + 1) as i64,
        _ => 1,
    }
}

/// Marks a coupon whose claims go.
pub(super) fn mark_coupon(connection: &Connection, id: CouponId, at: Timestamp, issued: u32) -> rusqlite::Result<()> {
    let mut mark = connection
        .prepare_cached("UPDATE coupon SET purged_at = ?2, purged_issued = ?3, changed_at = ?2 WHERE id = ?1")?;
    mark.execute(params![id.0, at.as_us(), issued]).map(drop)
}

/// Removes rows of claims, with their redemptions.
pub(super) fn remove_claims(connection: &Connection, id: CouponId, serials: [Serial; 2]) -> rusqlite::Result<()> {
    let range = serials.map(|serial| id.row(serial));
    connection.prepare_cached("DELETE FROM redemption WHERE id BETWEEN ?1 AND ?2")?.execute(range)?;
    connection.prepare_cached("DELETE FROM claim WHERE id BETWEEN ?1 AND ?2")?.execute(range).map(drop)
}

/// Returns coupons whose claims may be over, or that a purge has marked, and that have rows of claims. One look into the claims for
/// each of them.
pub(super) fn coupons_over(connection: &Connection) -> Result<Vec<CouponOver>, Fault> {
    let query = "SELECT id, deleted_at, (SELECT min(claim.id) FROM claim
            WHERE claim.id BETWEEN coupon.id << 32 AND (coupon.id << 32) | 4294967295) FROM coupon
        WHERE purged_at IS NOT NULL OR deleted_at IS NOT NULL OR (expires_at IS NOT NULL AND redeem_until IS NOT NULL)";
    let broken = |error: rusqlite::Error| fault(&error, "cannot read the coupons that are over");
    let mut statement = connection.prepare_cached(query).map_err(broken)?;
    let mut rows = statement.query([]).map_err(broken)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(broken)? {
        let (id, deleted_at) = (CouponId(row.get(0).map_err(broken)?), row.get::<_, Option<i64>>(1).map_err(broken)?);
        let deleted_at = deleted_at.map(instant).transpose()?;
        let first = row.get::<_, Option<i64>>(2).map_err(broken)?.and_then(|row| Serial::new(row as u32));
        found.extend(first.map(|first| CouponOver { id, deleted_at, first }));
    }
    Ok(found)
}
