//! What PostgreSQL and MySQL say differently, for all tables. A MariaDB server speaks the dialect of MySQL.
//!
//! The dialect is chosen at run time by the address, so everything above this module is compiled once.
//!
//! Statements go out as text, several at once in one round trip, which prepared statements cannot. So nothing but numbers,
//! bytes in hexadecimal and names may come into them, and a name holds neither a quote nor a backslash.

mod connection;
mod mysql;
mod postgres;

pub use connection::{Connection, LentConnection, Pool, Row};

use super::Address;
use super::options::DatabaseOptions;
use super::replication::Replication;
use super::watch::Watch;
use std::fmt::Write as _;
use std::sync::Arc;

/// A kind of database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
}

/// Texts of one dialect.
#[derive(Debug)]
pub struct Words {
    /// Makes durable all that was read before it begins; empty where all that can be read is durable.
    pub flush: &'static str,
    /// Begins a transaction.
    pub begin: &'static str,
    /// Begins a transaction that writes nothing, and sees one state.
    pub begin_read_only: &'static str,
    /// The end of an insertion that has no effect if such a row is there. It waits for a transaction that may be making one.
    pub unless_there: &'static str,
    /// The microseconds of Unix time, by the server's clock at the begin of the statement.
    pub clock: &'static str,
    /// Whether there is a table of versions: 0 or 1.
    pub has_schema: &'static str,
    /// Makes sure that one process at a time changes the tables, and that there is a place for their version.
    pub migration_begins: &'static str,
    /// The end of it, with success.
    pub migration_ends: &'static str,
    /// Reads what the server must promise, as rows of a name and its value.
    pub settings: &'static str,
    /// Reads how servers that copy this one are kept, as rows of a name and its value. Reads nothing but system tables.
    pub replication: &'static str,
    /// Reads the version of TLS of this session, as rows of a name and its value; empty in plain text.
    pub tls: &'static str,
    /// Begins a literal of bytes, before its hexadecimal digits and a quote.
    bytes: &'static str,
}

impl Dialect {
    /// The dialect of the server at this address.
    pub const fn of(address: &Address) -> Self {
        match address {
            Address::Postgres(_) => Self::Postgres,
            Address::MySql(_) => Self::MySql,
        }
    }

    /// The texts of this dialect.
    pub const fn words(self) -> &'static Words {
        match self {
            Self::Postgres => &postgres::WORDS,
            Self::MySql => &mysql::WORDS,
        }
    }

    /// Adds a literal of bytes to a statement.
    pub fn bytes(self, text: &mut String, bytes: &[u8]) {
        text.push_str(self.words().bytes);
        hex(text, bytes);
        text.push('\'');
    }

    /// The statement that inserts rows into a table. There is at least one.
    pub fn insert<'a, const N: usize>(
        self,
        table: &str,
        columns: [Column; N],
        rows: impl Iterator<Item = [Value<'a>; N]> + Clone,
    ) -> String {
        match self {
            Self::Postgres => postgres::insert(table, columns, &rows),
            Self::MySql => mysql::insert(table, columns, rows),
        }
    }

    /// The statement that inserts no row: it fails if the user may not insert any.
    pub fn insert_nothing(self, table: &str, column: &str) -> String {
        match self {
            Self::Postgres => postgres::insert_nothing(table, column),
            Self::MySql => mysql::insert_nothing(table),
        }
    }

    /// The condition on the two columns of a key to come after these values, in a form that its index serves.
    pub fn after(self, [one, two]: [&str; 2], first: i64, second: &str) -> String {
        match self {
            Self::Postgres => format!("({one},{two})>({first},{second})"),
            // It reads a comparison of rows as a filter, and two ranges of one index as what they are.
            Self::MySql => format!("(({one}={first} AND {two}>{second}) OR {one}>{first})"),
        }
    }

    /// Refuses a server with these settings ([`Words::settings`]) if it does not keep what it acknowledges, or is too old.
    ///
    /// # Errors
    /// The setting, its value, and what it must be.
    pub fn judge(self, settings: &[(String, String)], options: &DatabaseOptions) -> Result<(), String> {
        match self {
            Self::Postgres => postgres::judge(settings, options),
            Self::MySql => mysql::judge(settings, options),
        }
    }

    /// How servers that copy this one are kept, from the rows of [`Words::replication`].
    pub fn replication(self, rows: &[(String, String)]) -> Replication {
        match self {
            Self::Postgres => postgres::replication(rows),
            Self::MySql => mysql::replication(rows),
        }
    }
}

/// Connections whose sessions are set as is needed here, each held against `watch` before it is used. Opens nothing yet.
pub fn pool(address: Address, options: &DatabaseOptions, watch: Arc<Watch>) -> Pool {
    match address {
        Address::Postgres(connect) => Pool::Postgres(postgres::pool(connect, options, watch)),
        Address::MySql(connect) => Pool::MySql(mysql::pool(connect, options, watch)),
    }
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
