//! Rows of API keys: digests, never a key itself.

use super::coupon::{damaged, instant, request_columns, request_of};
use super::faults::fault;
use super::{DATABASE_FILE, open_reader, schema};
use firstcome_core::api_key::{ApiKey, CallerId, KeyBook, KeyChange, KeyDigest, KeyNumber, KeyOrigin, KeyScope};
use firstcome_core::id::KeyName;
use firstcome_core::time::Timestamp;
use firstcome_store::Fault;
use rusqlite::{Connection, Row, params};
use std::path::Path;

const PUT: &str = "\
INSERT INTO api_key (number, name, scope, first_start, digest, caller, created_at, expires_at, revoked_at, request_key,
    request_body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (number) DO UPDATE SET expires_at = ?8, revoked_at = ?9";
const READ: &str = "\
SELECT number, name, scope, first_start, digest, caller, created_at, expires_at, revoked_at, request_key, request_body
FROM api_key ORDER BY number";

/// Writes a change within the open transaction.
pub(super) fn write(connection: &Connection, change: &KeyChange) -> rusqlite::Result<()> {
    for number in &change.forget {
        connection.prepare_cached("DELETE FROM api_key WHERE number = ?1")?.execute([number.0])?;
    }
    for key in &change.put {
        let (request_key, request_body) = request_columns(key.request);
        connection.prepare_cached(PUT)?.execute(params![
            key.number.0,
            key.name.as_str(),
            key.scope.as_str(),
            key.origin == KeyOrigin::FirstStart,
            key.digest.as_bytes(),
            key.caller.0,
            key.created_at.as_us(),
            key.expires_at.map(Timestamp::as_us),
            key.revoked_at.map(Timestamp::as_us),
            request_key,
            request_body
        ])?;
    }
    Ok(())
}

/// Reads all keys.
pub(super) fn load(connection: &Connection) -> Result<KeyBook, Fault> {
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the API keys");
    let mut statement = connection.prepare(READ).map_err(|error| broken(&error))?;
    let rows = statement.query_map([], key_of).map_err(|error| broken(&error))?;
    let keys = rows.map(|row| row.map_err(|error| broken(&error))?).collect::<Result<Vec<_>, _>>()?;
    Ok(KeyBook::restore(keys))
}

fn key_of(row: &Row<'_>) -> rusqlite::Result<Result<ApiKey, Fault>> {
    let (number, name, scope): (u32, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (is_of_first_start, digest, caller): (bool, [u8; 32], [u8; 16]) = (row.get(3)?, row.get(4)?, row.get(5)?);
    let (created_at, expires_at, revoked_at): (i64, Option<i64>, Option<i64>) = (row.get(6)?, row.get(7)?, row.get(8)?);
    let request = request_of(row, 9)?;
    let read = || {
        let wrong = || damaged(format!("API key {number} is none that the rules make"));
        Ok(ApiKey {
            number: KeyNumber(number),
            name: KeyName::parse(&name).map_err(|_| wrong())?,
            scope: KeyScope::parse(&scope).ok_or_else(wrong)?,
            origin: if is_of_first_start { KeyOrigin::FirstStart } else { KeyOrigin::Made },
            digest: KeyDigest::from_bytes(digest),
            caller: CallerId(caller),
            created_at: instant(created_at)?,
            expires_at: expires_at.map(instant).transpose()?,
            revoked_at: revoked_at.map(instant).transpose()?,
            request,
        })
    };
    Ok(read())
}

/// Reads the API keys of a store that this or another process may have open. Returns none if the directory has no store.
pub fn stored_api_keys(directory: &Path) -> Result<KeyBook, Fault> {
    let path = directory.join(DATABASE_FILE);
    if !path.exists() {
        return Ok(KeyBook::default());
    }
    load(&open_reader(&path, &schema::STORE)?)
}
