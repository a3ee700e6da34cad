//! PostgreSQL.

use super::connection::LentConnection;
use super::{Column, Value, Words, add_list, checked, hex};
use crate::DatabaseOptions;
use crate::replication::{Replication, count, value};
use crate::watch::Watch;
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Pool, Postgres};
use std::fmt::Write as _;
use std::sync::Arc;

/// The oldest version with all that is used here.
const VERSION_MIN: u32 = 130_000;

/// An element of an array. A name stands in quotes: there may be one that is `null`.
fn element(text: &mut String, value: Value<'_>) {
    let bytes = |text: &mut String, bytes: &[u8]| {
        text.push_str("\"\\\\x");
        hex(text, bytes);
        text.push('"');
    };
    match value {
        Value::Number(number) => {
            // Writing to a string cannot fail.
            let _ = write!(text, "{number}");
        }
        Value::Name(name) => {
            text.push('"');
            text.push_str(checked(name));
            text.push('"');
        }
        Value::Bytes(of) => bytes(text, of),
        Value::Key(key) => bytes(text, &key.to_be_bytes()),
        Value::Nothing => text.push_str("NULL"),
    }
}

pub(super) const WORDS: Words = Words {
    // A commit is on disk before other sessions see it.
    flush: "",
    // The isolation is named with every transaction: no matter what the database, the role or a pool in between has set.
    begin: "BEGIN ISOLATION LEVEL READ COMMITTED;",
    begin_read_only: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;",
    unless_there: "ON CONFLICT DO NOTHING",
    clock: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    has_schema: "SELECT CASE WHEN to_regclass('firstcome_schema') IS NULL THEN 0 ELSE 1 END;",
    migration_begins: "BEGIN ISOLATION LEVEL READ COMMITTED; \
        SELECT 1 FROM pg_advisory_xact_lock(7378697629483820646); \
        CREATE TABLE IF NOT EXISTS firstcome_schema (part text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL);",
    migration_ends: "COMMIT;",
    settings: "BEGIN ISOLATION LEVEL READ COMMITTED; \
        SELECT name::text, setting::text FROM pg_catalog.pg_settings WHERE name IN ('fsync', \
        'full_page_writes', 'synchronous_commit', 'transaction_isolation', 'transaction_read_only', \
        'server_version_num', 'idle_in_transaction_session_timeout', 'standard_conforming_strings'); \
        ROLLBACK;",
    replication: "SELECT 'standbys'::text, count(*)::text FROM pg_catalog.pg_stat_replication UNION ALL \
        SELECT name::text, setting::text FROM pg_catalog.pg_settings \
        WHERE name IN ('synchronous_standby_names', 'synchronous_commit');",
    tls: "SELECT 'version'::text, coalesce(version, '')::text FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid();",
    bytes: "'\\x",
};

/// See [`super::pool`].
pub(super) fn pool(connect: PgConnectOptions, options: &DatabaseOptions, watch: Arc<Watch>) -> Pool<Postgres> {
    // They ride in the packet that opens the connection.
    let idle_ms = options.idle_timeout.as_millis();
    let idle = ("idle_in_transaction_session_timeout", format!("{idle_ms}ms"));
    // Pages are read along an index. A plan that sorts reads all that is left for each page, and a server that has no
    // statistics of a table yet, as of one that was filled within a minute, prefers it.
    let unsorted = ("enable_sort", "off".to_owned());
    let connect = connect.options([idle, unsorted]);
    // A dead connection is found by its first statement, and another one is taken; to ask each time is a round trip.
    let pool: PoolOptions<Postgres> = options.connections.pool();
    let pool = pool.test_before_acquire(false).after_connect(move |connection, _| {
        let watch = Arc::clone(&watch);
        Box::pin(async move { watch.look(LentConnection::Postgres(connection)).await.map(drop) })
    });
    pool.connect_lazy_with(connect)
}

// Columns as arrays: to read each of a thousand values as an expression of its own costs more than the rows do.
pub(super) fn insert<'a, const N: usize>(
    table: &str,
    columns: [Column; N],
    rows: &(impl Iterator<Item = [Value<'a>; N]> + Clone),
) -> String {
    let mut text = format!("INSERT INTO {table} ({}) SELECT * FROM unnest(", columns.map(Column::name).join(","));
    add_list(&mut text, columns.iter().enumerate(), |text, (at, column)| {
        text.push_str("'{");
        add_list(text, rows.clone(), |text, row| element(text, row[at]));
        text.push_str("}'::");
        text.push_str(match column {
            Column::Number(_) => "bigint[]",
            Column::Name(_) => "text[]",
            Column::Bytes(_) => "bytea[]",
        });
    });
    text.push_str(");");
    text
}

pub(super) fn judge(settings: &[(String, String)], options: &DatabaseOptions) -> Result<(), String> {
    let idle_ms = options.idle_timeout.as_millis().to_string();
    for (name, value) in settings {
        let wanted = match name.as_str() {
            "fsync" | "full_page_writes" if !options.allow_volatile && value != "on" => "on",
            "synchronous_commit" if !options.allow_volatile && value == "off" => "on",
            "transaction_isolation" if value != "read committed" => "read committed",
            "transaction_read_only" if value != "off" => "off",
            "idle_in_transaction_session_timeout" if *value != idle_ms => &idle_ms,
            // Bytes stand in our statements with a backslash.
            "standard_conforming_strings" if value != "on" => "on",
            "server_version_num" if value.parse::<u32>().is_ok_and(|version| version < VERSION_MIN) => {
                return Err(format!("PostgreSQL 13 or later is needed, and this is {value}"));
            }
            _ => continue,
        };
        return Err(format!("{name} is {value} and must be {wanted}"));
    }
    Ok(())
}

pub(super) fn replication(rows: &[(String, String)]) -> Replication {
    let named = value(rows, "synchronous_standby_names").is_some_and(|names| !names.trim().is_empty());
    let waits = named && !matches!(value(rows, "synchronous_commit"), Some("off" | "local"));
    Replication::of(count(rows, "standbys"), waits)
}

pub(super) fn insert_nothing(table: &str, column: &str) -> String {
    // All columns would be too many: no value may be given to some.
    format!("INSERT INTO {table} ({column}) SELECT {column} FROM {table} WHERE 1=0;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_not_what_was_asked_for_is_refused() {
        let options = DatabaseOptions::default();
        let rows = [
            ("transaction_isolation", "serializable", Some("transaction_isolation is serializable")),
            ("transaction_isolation", "read committed", None),
            ("transaction_read_only", "on", Some("transaction_read_only is on")),
            ("idle_in_transaction_session_timeout", "0", Some("must be 5000")),
            ("idle_in_transaction_session_timeout", "5000", None),
            ("synchronous_commit", "off", Some("synchronous_commit is off")),
            ("synchronous_commit", "remote_apply", None),
            ("standard_conforming_strings", "off", Some("standard_conforming_strings is off")),
            ("server_version_num", "120004", Some("PostgreSQL 13")),
            ("server_version_num", "150004", None),
        ];
        for (name, value, refused) in rows {
            let judged = judge(&[(name.to_owned(), value.to_owned())], &options);
            match refused {
                Some(says) => assert!(judged.as_ref().is_err_and(|said| said.contains(says)), "{judged:?}"),
                None => assert_eq!(judged, Ok(()), "{name}"),
            }
        }
    }
}
