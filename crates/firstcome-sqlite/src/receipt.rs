//! Rows of published heads.

use super::coupon::{damaged, instant};
use super::faults::fault;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_core::receipt::{Digest, Figures, Head, Object};
use firstcome_store::Fault;
use firstcome_store::receipt::{HeadWanted, Signature, SignedHead};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use std::collections::HashMap;

const COLUMNS: &str = "object, sequence, at, first, given, front, previous, signature";

pub(super) fn put_head(connection: &Connection, signed: &SignedHead) -> rusqlite::Result<()> {
    let Head { object, sequence, at, figures, previous } = &signed.head;
    let (first, given, front) = match *figures {
        Figures::Room { first, given, front } => (first, given, Some(front)),
        Figures::Coupon { limit, issued } => (limit, issued, None),
    };
    let mut put =
        connection.prepare_cached(&format!("INSERT INTO head ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"))?;
    put.execute(params![
        object.to_string(),
        sequence.cast_signed(),
        at.as_us(),
        first,
        given,
        front,
        previous.as_bytes(),
        signed.signature.as_bytes()
    ])
    .map(drop)
}

/// Removes the heads of an object up to a sequence, and notes it in their place. The note never goes back.
pub(super) fn remove_heads(connection: &Connection, object: &Object, to: u64) -> rusqlite::Result<()> {
    let (object, to) = (object.to_string(), to.cast_signed());
    let mut remove = connection.prepare_cached("DELETE FROM head WHERE object = ?1 AND sequence <= ?2")?;
    remove.execute(params![object, to])?;
    let note = "INSERT INTO head_removed (object, sequence) VALUES (?1, ?2)
        ON CONFLICT (object) DO UPDATE SET sequence = max(sequence, excluded.sequence)";
    let mut note = connection.prepare_cached(note)?;
    note.execute(params![object, to]).map(drop)
}

/// Reads up to which sequence purges removed heads, by object.
pub(super) fn removed_heads(connection: &Connection) -> Result<HashMap<Object, u64>, Fault> {
    let broken = |error: rusqlite::Error| fault(&error, "cannot read which heads were removed");
    let mut statement = connection.prepare("SELECT object, sequence FROM head_removed").map_err(broken)?;
    let mut rows = statement.query([]).map_err(broken)?;
    let mut removed = HashMap::new();
    while let Some(row) = rows.next().map_err(broken)? {
        let (text, to): (String, i64) = (row.get(0).map_err(broken)?, row.get(1).map_err(broken)?);
        let object = object_of(&text).ok_or_else(|| damaged(format!("removed heads of {text:?}, which is none")))?;
        removed.insert(object, to.cast_unsigned());
    }
    Ok(removed)
}

/// Reads the object of a row from its text.
fn object_of(text: &str) -> Option<Object> {
    match text.split_once(' ')? {
        ("room", name) => RoomName::parse(name).ok().map(Object::Room),
        ("coupon", name) => CouponName::parse(name).ok().map(Object::Coupon),
        _ => None,
    }
}

fn head_of(row: &Row<'_>) -> rusqlite::Result<Result<SignedHead, Fault>> {
    let (text, sequence, at): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (first, given, front): (u32, u32, Option<u32>) = (row.get(3)?, row.get(4)?, row.get(5)?);
    let (previous, signature) = (Digest::new(row.get(6)?), Signature::new(row.get(7)?));
    let wrong = || damaged(format!("head {sequence} of {text:?} is none that the rules make"));
    let read = || {
        let object = object_of(&text).ok_or_else(wrong)?;
        let figures = match (&object, front) {
            (Object::Room(_), Some(front)) => Figures::Room { first, given, front },
            (Object::Coupon(_), None) => Figures::Coupon { limit: first, issued: given },
            _ => return Err(wrong()),
        };
        let head = Head { object, sequence: sequence.cast_unsigned(), at: instant(at)?, figures, previous };
        Ok(SignedHead { head, signature })
    };
    Ok(read())
}

fn read(connection: &Connection, rest: &str, values: impl Params) -> Result<Vec<SignedHead>, Fault> {
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the heads");
    let statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM head {rest}"));
    let mut statement = statement.map_err(|error| broken(&error))?;
    let rows = statement.query_map(values, head_of).map_err(|error| broken(&error))?;
    rows.map(|row| row.map_err(|error| broken(&error))?).collect()
}

/// Reads the heads of an object after a sequence, at most `count`.
pub(super) fn heads(
    connection: &Connection,
    object: &Object,
    after: u64,
    count: usize,
) -> Result<Vec<SignedHead>, Fault> {
    let rest = "WHERE object = ?1 AND ?2 < sequence ORDER BY sequence LIMIT ?3";
    let (after, count) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(count).unwrap_or(i64::MAX));
    read(connection, rest, params![object.to_string(), after, count])
}

/// Finds the first head that is the wanted one or a later one. Sequences have no gap, so it halves the chain: one row per step. In
/// the place of a head that a purge removed it looks at the first one that is left.
pub(super) fn first_head(
    connection: &Connection,
    object: &Object,
    wanted: HeadWanted,
) -> Result<Option<SignedHead>, Fault> {
    let query = "SELECT max(sequence) FROM head WHERE object = ?1";
    let last = connection.query_row(query, [object.to_string()], |row| row.get::<_, Option<i64>>(0)).optional();
    let last = last.map_err(|error| fault(&error, "cannot read the heads"))?.flatten();
    let Some(last) = last else { return Ok(None) };
    // The wanted head is after `before`, and `found` is one that is not before it.
    let (mut before, mut end, mut found) = (0, last.cast_unsigned() + 1, None);
    while before + 1 < end {
        let middle = before + (end - before) / 2;
        let Some(signed) = heads(connection, object, middle - 1, 1)?.into_iter().next() else {
            return Err(damaged(format!("head {middle} of {object} is missing")));
        };
        if wanted.is_reached(&signed.head) {
            (end, found) = (middle, Some(signed));
        } else {
            before = middle;
        }
    }
    Ok(found)
}

/// Reads the last head of each object.
pub(super) fn last_heads(connection: &Connection) -> Result<Vec<SignedHead>, Fault> {
    read(connection, "WHERE (object, sequence) IN (SELECT object, max(sequence) FROM head GROUP BY object)", [])
}

/// Visits all heads, by object and sequence.
pub(super) fn for_each_head(
    connection: &Connection,
    mut visit: impl FnMut(SignedHead) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the heads");
    let query = format!("SELECT {COLUMNS} FROM head ORDER BY object, sequence");
    let mut statement = connection.prepare(&query).map_err(|error| broken(&error))?;
    let mut rows = statement.query([]).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        visit(head_of(row).map_err(|error| broken(&error))??)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_removed_heads_never_goes_back() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("0009_heads.sql")).unwrap();
        connection.execute_batch(include_str!("0015_removed_heads.sql")).unwrap();
        let room = Object::Room(RoomName::parse("sale").unwrap());
        for (to, noted) in [(5, 5), (3, 5), (8, 8)] {
            remove_heads(&connection, &room, to).unwrap();
            assert_eq!(removed_heads(&connection).unwrap()[&room], noted, "after {to}");
        }
    }
}
