//! Rows of an erased person.
//!
//! The file keeps no copy of an erased name: SQLite overwrites what it frees ([`overwrite_freed`]), and the log that has earlier
//! versions of the pages is emptied afterwards.

use super::faults::fault;
use super::purge;
use super::room::key_of;
use firstcome_core::id::UserId;
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
const ERASE_BID: &str = "UPDATE bid SET request_key = NULL, request_body = NULL WHERE id = ?1";

/// Whether a batch erases a person.
pub(super) fn is_erasure(changes: &[Change]) -> bool {
    matches!(changes.first(), Some(Change::Erasure))
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

fn erase_member(connection: &Connection, erased: &MemberErased) -> rusqlite::Result<()> {
    let MemberErased { id, wallet, chains, bids, .. } = erased;
    let mut erase = connection.prepare_cached(ERASE_MEMBER)?;
    erase.execute(params![id.0, wallet.member.as_str(), &wallet.chain.0[..]])?;
    let mut erase = connection.prepare_cached(ERASE_RECORD)?;
    if let Some(anchor) = &wallet.anchor {
        purge::put_anchor(connection, *id, anchor)?;
    }
    for (number, chain) in (wallet.begins_with().number + 1..).zip(chains) {
        erase.execute(params![id.row(number), &chain.0[..]])?;
    }
    let mut erase = connection.prepare_cached(ERASE_BID)?;
    for (listing, number) in bids {
        erase.execute([listing.row(*number)])?;
    }
    Ok(())
}

/// Finds the tickets that name a user. Reads all tickets: about a second per ten million.
pub(super) fn tickets_of(connection: &Connection, user: &UserId) -> Result<Vec<(RoomId, TicketNumber)>, Fault> {
    let broken = |error: rusqlite::Error| fault(&error, "cannot read the tickets");
    let mut statement = connection.prepare_cached("SELECT id FROM ticket WHERE user = ?1").map_err(broken)?;
    let rows = statement.query_map([user.as_str()], |row| row.get::<_, i64>(0)).map_err(broken)?;
    rows.map(|row| key_of(row.map_err(broken)?)).collect()
}
