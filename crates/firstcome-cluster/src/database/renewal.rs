//! Rows of renewed tickets. A ticket without user and key has no other row, and the renewal makes it known.

use firstcome_core::room::{Renewal, RenewalKey, TicketNumber};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::{Dialect, Row, list};
use firstcome_sql::reader::{Reader, wrong};
use std::fmt::Write as _;

/// What [`renewal_of`] reads.
pub(crate) const RENEWALS: &str = "number,generation,request FROM firstcome_renewal";

/// A renewal, with the number of its room.
pub(crate) type NewRenewal = (i64, TicketNumber, Renewal);

/// Writes the last renewal of each of these tickets, in place of the one before. A ticket may stand here once.
pub(crate) fn write_renewals(dialect: Dialect, renewals: &[NewRenewal]) -> String {
    let rows = list(renewals, |text, (room, number, renewal)| {
        let _ = write!(text, "({room},{},{},", number.get(), renewal.generation);
        dialect.bytes(text, &renewal.key.get().to_be_bytes());
        text.push(')');
    });
    let instead = match dialect {
        Dialect::Postgres => {
            "ON CONFLICT (room,number) DO UPDATE SET generation=excluded.generation,request=excluded.request"
        }
        Dialect::MySql => "ON DUPLICATE KEY UPDATE generation=VALUES(generation),request=VALUES(request)",
    };
    format!("INSERT INTO firstcome_renewal (room,number,generation,request) VALUES {rows} {instead};")
}

/// Reads a row of [`RENEWALS`].
pub(crate) fn renewal_of(row: &Row) -> Result<(TicketNumber, Renewal), SqlError> {
    let mut columns = Reader::at(row, 0);
    let number = TicketNumber::new(columns.small()?).ok_or_else(|| wrong("a number out of its range"))?;
    Ok((number, renewal(&mut columns)?))
}

/// Reads generation and request.
pub(crate) fn renewal(columns: &mut Reader<'_>) -> Result<Renewal, SqlError> {
    let generation = columns.small()?;
    let request = columns.maybe_blob()?.and_then(|request| <[u8; 16]>::try_from(request).ok());
    let key = request.map(u128::from_be_bytes).map(RenewalKey::new);
    Ok(Renewal { generation, key: key.ok_or_else(|| wrong("the digest of a renewal"))? })
}
