//! Bare SQLite without firstcome: the same rows in the same schema with the same settings, in a plain loop.

use super::conditions::micros;
use super::report::{ReportRow, latencies};
use anyhow::Context;
use firstcome::edge::Stopwatch;
use firstcome::sqlite::DATABASE_FILE;
use rusqlite::{Connection, params};
use std::path::Path;
use std::time::Duration;

/// Inserts batches of `batch` rows for `time`, each in one synced transaction. The directory holds an empty store.
pub(crate) fn insert(directory: &Path, name: &str, batch: usize, time: Duration) -> anyhow::Result<ReportRow> {
    let connection = Connection::open(directory.join(DATABASE_FILE)).context("cannot open the bare file")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let mut insert = connection.prepare(
        "INSERT INTO claim (id, user, issued_at, attributes, request_key, request_body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut times = latencies();
    let mut rows: i64 = 0;
    let watch = Stopwatch::start();
    while watch.elapsed() < time {
        let commit = Stopwatch::start();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..batch {
            rows += 1;
            let user = format!("user-{:03}-{rows:08}", rows % 512);
            insert.execute(params![1_i64 << 32 | rows, user, rows, None::<&str>, None::<[u8; 16]>, None::<i64>])?;
        }
        connection.execute_batch("COMMIT")?;
        times.saturating_record(micros(commit.elapsed()));
    }
    let row = ReportRow::new(name, rows.unsigned_abs(), watch.elapsed()).per_commit(batch as f64);
    Ok(row.latencies(&times))
}
