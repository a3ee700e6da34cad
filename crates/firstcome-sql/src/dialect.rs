//! What the two kinds of databases say differently, for all tables.
//!
//! Statements go out as text, several at once in one round trip, which prepared statements cannot. So nothing but numbers,
//! bytes in hexadecimal and names may come into them, and a name holds neither a quote nor a backslash.

mod mysql;
mod postgres;

use super::options::DatabaseOptions;
use super::replication::Replication;
use super::watch::Watch;
use super::{Address, SqlError};
use sqlx::{Database, Pool};
use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;

/// One row of an answer.
pub trait RowReader {
    /// A number.
    fn integer(&self, at: usize) -> Result<i64, sqlx::Error>;
    /// A number, if there is one.
    fn maybe_integer(&self, at: usize) -> Result<Option<i64>, sqlx::Error>;
    /// A name, if there is one.
    fn maybe_text(&self, at: usize) -> Result<Option<String>, sqlx::Error>;
    /// Bytes.
    fn bytes(&self, at: usize) -> Result<Vec<u8>, sqlx::Error>;
    /// Bytes, if there are any.
    fn maybe_bytes(&self, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error>;
}

/// A kind of database. The functions stand in the same order in every file.
pub trait Dialect: Database<Row: RowReader> {
    /// What makes durable all that was read before it begins; empty where all that can be read is durable.
    const FLUSH: &'static str;
    /// Begins a transaction.
    const BEGIN: &'static str;
    /// The end of an insertion that has no effect if such a row is there. It waits for the caller that may be making one.
    const UNLESS_THERE: &'static str;
    /// The microseconds of Unix time, by the server's clock at the begin of the statement.
    const CLOCK: &'static str;
    /// Whether there is a table of versions: 0 or 1.
    const HAS_SCHEMA: &'static str;
    /// Makes sure that one process at a time looks after the tables, and that there is a place for their version.
    const MIGRATION_BEGINS: &'static str;
    /// The end of it, with success.
    const MIGRATION_ENDS: &'static str;

    /// Connections whose sessions are set as is needed here, each held against `watch` before it is used. Opens nothing yet.
    fn pool(address: Address, options: &DatabaseOptions, watch: Arc<Watch>) -> Result<Pool<Self>, SqlError>;

    /// Bytes as they stand in a statement.
    fn bytes(text: &mut String, bytes: &[u8]);

    /// The statement that inserts rows into a table. There is at least one.
    fn insert<'a, const N: usize>(
        table: &str,
        columns: [Column; N],
        rows: impl Iterator<Item = [Value<'a>; N]> + Clone,
    ) -> String;

    /// What the server must promise, as rows of a name and its value.
    fn settings() -> &'static str;

    /// Says what of the settings will not do.
    fn judge(settings: &[(String, String)], options: &DatabaseOptions) -> Result<(), String>;

    /// What tells how servers that copy this one are kept, as rows of a name and its value. Reads nothing but system tables.
    const REPLICATION: &'static str;

    /// How servers that copy this one are kept.
    fn replication(rows: &[(String, String)]) -> Replication;

    /// Inserts no row: for the caller that wants to know whether they may.
    fn insert_nothing(table: &str, column: &str) -> String;

    /// Runs a text, and gives all rows of all its statements.
    fn ask(
        connection: &mut Self::Connection,
        text: String,
    ) -> impl Future<Output = Result<Vec<Self::Row>, sqlx::Error>> + Send;

    /// Runs a text, and says how many rows its statements have written, or found to be written.
    fn run(connection: &mut Self::Connection, text: String) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

/// What a column holds, and its name.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// A column of integers.
    Number(&'static str),
    /// A column of names.
    Name(&'static str),
    /// A column of bytes.
    Bytes(&'static str),
}

impl Column {
    const fn name(self) -> &'static str {
        let (Self::Number(name) | Self::Name(name) | Self::Bytes(name)) = self;
        name
    }
}

/// What one row has in one column.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// An integer.
    Number(i64),
    /// A name.
    Name(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A key of idempotency.
    Key(u128),
    /// `NULL`.
    Nothing,
}

/// `a, b, c`.
pub fn list<T>(items: impl IntoIterator<Item = T>, write: impl FnMut(&mut String, T)) -> String {
    let mut text = String::new();
    add_list(&mut text, items, write);
    text
}

/// Adds [`list`] to a text.
fn add_list<T>(text: &mut String, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut String, T)) {
    for (at, item) in items.into_iter().enumerate() {
        if 0 < at {
            text.push(',');
        }
        write(text, item);
    }
}

/// A number.
pub fn number(text: &mut String, number: impl Into<i128>) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{}", number.into());
}

/// A number or nothing.
pub fn maybe(text: &mut String, maybe: Option<i64>) {
    match maybe {
        Some(some) => number(text, some),
        None => text.push_str("NULL"),
    }
}

/// Two digits for each byte.
pub fn hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
}

/// A name in quotes. Its type promises that it needs no escapes.
pub fn quoted(text: &mut String, name: &str) {
    text.push('\'');
    text.push_str(checked(name));
    text.push('\'');
}

/// A name that needs no escapes.
fn checked(name: &str) -> &str {
    assert!(
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte)),
        "a name as it was checked"
    );
    name
}
