//! Rows of an erased person.
//!
//! The file keeps no copy of an erased name: SQLite overwrites what it frees ([`overwrite_freed`]), and the log that has earlier
//! versions of the pages is emptied afterwards.

use super::faults::fault;
use super::purge;
use super::room::key_of;
use firstcome_core::id::UserId;
use firstcome_core::points::Renaming;
use firstcome_core::room::TicketNumber;
use firstcome_store::Fault;
use firstcome_store::embedded::journal::{Change, MemberErased, RoomId};
use rusqlite::{Connection, params};

const ERASE_CLAIM: &str =
    "UPDATE claim SET user = ?2, attributes = NULL, request_key = NULL, request_body = NULL WHERE id = ?1";
const ERASE_REDEMPTION: &str = "UPDATE redemption SET request_key = NULL, request_body = NULL WHERE id = ?1";
const ERASE_TICKET: &str = "UPDATE ticket SET user = NULL, request_key = NULL, request_body = NULL WHERE id = ?1";
const ERASE_MEMBER: &str = "UPDATE member SET name = ?2, chain = ?3 WHERE id = ?1";
const ERASE_RECORD: &str = "UPDATE record SET chain = ?2, request_key = NULL, request_body = NULL WHERE id = ?1";
const PUT_RENAMING: &str = "\
INSERT OR REPLACE INTO renaming (member, before, last, done, old, renewed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const ERASE_BID: &str = "UPDATE bid SET request_key = NULL, request_body = NULL WHERE id = ?1";

/// Whether a batch erases a person.
pub(super) fn is_erasure(changes: &[Change]) -> bool {
    matches!(changes.first(), Some(Change::Erasure))
}

/// Whether records are left that a later page chains again. The log is emptied after that one: each time costs syncs, and waits for a
/// reader such as a backup.
pub(super) fn leaves_records(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::MemberErased(page) if page.wallet.renaming.is_some()))
}

/// Has SQLite overwrite all that it frees, pages too, or what costs no more reads and writes.
pub(super) fn overwrite_freed(connection: &Connection, pages_too: bool) -> rusqlite::Result<()> {
    connection.pragma_update(None, "secure_delete", if pages_too { "ON" } else { "FAST" })
}

/// Writes one change of an erasure within the open transaction.
pub(super) fn write(connection: &Connection, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::ClaimErased { id, serial, pseudonym } => {
            let row = id.row(*serial);
            connection.prepare_cached(ERASE_CLAIM)?.execute(params![row, pseudonym.as_str()])?;
            connection.prepare_cached(ERASE_REDEMPTION)?.execute([row])?;
        }
        Change::TicketsErased(tickets) => {
            let mut erase = connection.prepare_cached(ERASE_TICKET)?;
            for (room, number) in tickets {
                erase.execute([room.row(*number)])?;
            }
        }
        Change::MemberErased(erased) => erase_member(connection, erased)?,
        // `coupon::write` handles all other changes.
        _ => {}
    }
    Ok(())
}

/// Writes a page of an erasure.
fn erase_member(connection: &Connection, erased: &MemberErased) -> rusqlite::Result<()> {
    let MemberErased { id, wallet, first, chains, bids, .. } = erased;
    let mut erase = connection.prepare_cached(ERASE_MEMBER)?;
    erase.execute(params![id.0, wallet.member.as_str(), &wallet.chain.0[..]])?;
    if let Some(anchor) = &wallet.anchor {
        purge::put_anchor(connection, *id, anchor)?;
    }
    let mut erase = connection.prepare_cached(ERASE_RECORD)?;
    for (number, chain) in (*first..).zip(chains) {
        erase.execute(params![id.row(number), &chain.0[..]])?;
    }
    let mut erase = connection.prepare_cached(ERASE_BID)?;
    for (listing, number) in bids {
        erase.execute([listing.row(*number)])?;
    }
    let Some(renaming) = &wallet.renaming else {
        return connection.prepare_cached("DELETE FROM renaming WHERE member = ?1")?.execute([id.0]).map(drop);
    };
    let Renaming { before, last, done, old, renewed } = &**renaming;
    let (last, done) = (last.cast_signed(), done.cast_signed());
    let mut put = connection.prepare_cached(PUT_RENAMING)?;
    put.execute(params![id.0, before.as_str(), last, done, &old.0[..], &renewed.0[..]]).map(drop)
}

/// Finds the tickets that name a user. Reads all tickets: about a second per ten million.
pub(super) fn tickets_of(connection: &Connection, user: &UserId) -> Result<Vec<(RoomId, TicketNumber)>, Fault> {
    let broken = |error: rusqlite::Error| fault(&error, "cannot read the tickets");
    let mut statement = connection.prepare_cached("SELECT id FROM ticket WHERE user = ?1").map_err(broken)?;
    let rows = statement.query_map([user.as_str()], |row| row.get::<_, i64>(0)).map_err(broken)?;
    rows.map(|row| key_of(row.map_err(broken)?)).collect()
}
