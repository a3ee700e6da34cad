//! What the two kinds of databases say differently. The logic above it is the same.
//!
//! Statements go out as text, several at once in one round trip, which prepared statements cannot. So nothing but numbers,
//! digests in hexadecimal and names may come into them, and a name holds neither a quote nor a backslash.

use super::changes::Changes;
use super::options::MarketOptions;
use crate::sql::{Address, SqlError};
use firstcome_core::id::{ListingName, MemberName};
use sqlx::{Database, Pool};
use std::fmt::Write as _;
use std::future::Future;

/// What a transaction needs to see, and to lock.
pub(super) struct Opening<'a> {
    /// The listing, locked first.
    pub(super) listing: Option<i64>,
    /// The wallets, in rising order.
    pub(super) members: &'a [i64],
    /// Whether the wallet of the listing's owner is needed too. That of its highest bidder always is.
    pub(super) with_owner: bool,
    /// Members of whom only the names are read, without a lock.
    pub(super) owners: &'a [i64],
    /// Whose requests are looked up.
    pub(super) scope: RequestScope,
    /// Their keys.
    pub(super) keys: &'a [u128],
    /// Whether rows are locked. Always, but for planted bugs.
    pub(super) locks: bool,
}

/// Within what an idempotency key counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestScope {
    /// Bids and the sale of a listing.
    Listing(i64),
    /// The points of a member.
    Member(i64),
}

impl RequestScope {
    /// Kind and number as they are stored.
    pub(super) const fn parts(self) -> (i64, i64) {
        match self {
            Self::Listing(id) => (1, id),
            Self::Member(id) => (2, id),
        }
    }
}

/// The first column of every row says which of the statements in a text it is from.
pub(super) mod tag {
    pub(in super::super) const LISTING: i64 = 1;
    pub(in super::super) const WALLET: i64 = 2;
    pub(in super::super) const REQUEST: i64 = 3;
    pub(in super::super) const CLOCK: i64 = 4;
    pub(in super::super) const BID: i64 = 5;
    pub(in super::super) const RECORD: i64 = 6;
    pub(in super::super) const OWNER: i64 = 7;
}

/// One row of an answer.
pub(super) trait Cells {
    /// A number.
    fn integer(&self, at: usize) -> Result<i64, sqlx::Error>;
    /// A number, if there is one.
    fn maybe_integer(&self, at: usize) -> Result<Option<i64>, sqlx::Error>;
    /// A name, if there is one.
    fn maybe_text(&self, at: usize) -> Result<Option<String>, sqlx::Error>;
    /// A digest.
    fn bytes(&self, at: usize) -> Result<Vec<u8>, sqlx::Error>;
}

/// A kind of database. The functions stand in the same order in every file.
pub(super) trait Tongue: Database<Row: Cells> {
    /// What makes durable all that was read before it begins; empty where all that can be read is durable.
    const FLUSH: &'static str;
    /// Begins a transaction.
    const BEGIN: &'static str;
    /// The end of an insertion that has no effect if such a row is there. It waits for whoever may be making one.
    const UNLESS_THERE: &'static str;
    /// The microseconds of Unix time, by the server's clock at the begin of the statement.
    const CLOCK: &'static str;
    /// Step N brings the tables of version N to version N + 1. Steps are never changed once released, only added.
    const STEPS: &'static [&'static str];
    /// Makes sure that one process at a time looks after the tables, and that there is a place for their version.
    const MIGRATION_BEGINS: &'static str;
    /// The end of it, with success.
    const MIGRATION_ENDS: &'static str;

    /// Connections whose sessions are set as the market needs them. Opens nothing yet.
    fn pool(address: Address, options: &MarketOptions) -> Result<Pool<Self>, SqlError>;

    /// What the server must promise, as rows of a name and its value.
    fn settings() -> &'static str;

    /// Says what of the settings will not do.
    fn judge(settings: &[(String, String)], options: &MarketOptions) -> Result<(), String>;

    /// Runs a text, and gives all rows of all its statements.
    fn ask(
        connection: &mut Self::Connection,
        text: String,
    ) -> impl Future<Output = Result<Vec<Self::Row>, sqlx::Error>> + Send;

    /// Runs a text, and says how many rows its statements have written, or found to be written.
    fn run(connection: &mut Self::Connection, text: String) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Begins a transaction: locks the listing, then the wallets in the order of their numbers; then reads requests, and
    /// at last the clock.
    fn open(opening: &Opening<'_>) -> String;

    /// Writes changes. The numbers of rows that a change finds as they were read add up to [`Changes::rows`].
    fn write(changes: &Changes) -> String;
}

/// The columns of a listing, in the order in which they are read and written.
pub(super) const LISTING_COLUMNS: [&str; 24] = [
    "name",
    "owner_id",
    "owner",
    "price",
    "starts_at",
    "kind",
    "ends_at",
    "min_increment",
    "extend_window_ms",
    "extend_by_ms",
    "extend_max_count",
    "settle_within_ms",
    "effective_ends_at",
    "extensions",
    "bids",
    "highest_id",
    "highest",
    "highest_price",
    "highest_at",
    "phase",
    "phase_at",
    "buyer",
    "version",
    "last_at",
];

/// `a, b, c`.
pub(super) fn list<T>(items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut String, T)) -> String {
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push(',');
        }
        write(&mut text, item);
    }
    text
}

/// A number.
pub(super) fn number(text: &mut String, number: impl Into<i128>) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{}", number.into());
}

/// A number or nothing.
pub(super) fn maybe(text: &mut String, maybe: Option<i64>) {
    match maybe {
        Some(some) => number(text, some),
        None => text.push_str("NULL"),
    }
}

/// Two digits for each byte.
pub(super) fn hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
}

/// A name in quotes. Its type promises that it needs no escapes.
pub(super) fn quoted(text: &mut String, name: &str) {
    assert!(
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte)),
        "a name as it was checked"
    );
    text.push('\'');
    text.push_str(name);
    text.push('\'');
}

/// The columns of a listing, each after its table's letter.
pub(super) fn listing_columns() -> String {
    LISTING_COLUMNS.join(",")
}

/// Creates members that are not there yet.
pub(super) fn create_members<D: Tongue>(names: &[&MemberName]) -> String {
    let names = list(names, |text, name| {
        text.push('(');
        quoted(text, name.as_str());
        text.push(')');
    });
    format!("INSERT INTO firstcome_member (name) VALUES {names} {};", D::UNLESS_THERE)
}

/// Finds members by their names.
pub(super) fn find_members(names: &[&MemberName]) -> String {
    let names = list(names, |text, name| quoted(text, name.as_str()));
    format!("SELECT {},id,name FROM firstcome_member WHERE name IN ({names})", tag::WALLET)
}

/// Finds a listing by its name.
pub(super) fn find_listing(name: &ListingName) -> String {
    let mut text = format!("SELECT {},id FROM firstcome_listing WHERE name=", tag::LISTING);
    quoted(&mut text, name.as_str());
    text
}

/// Reads numbers and names of members. Nobody changes either, so no lock is needed.
pub(super) fn owners(text: &mut String, ids: &[i64]) {
    if !ids.is_empty() {
        let ids = list(ids, |text, id| number(text, *id));
        let _ = write!(text, "SELECT {},id,name FROM firstcome_member WHERE id IN ({ids});", tag::OWNER);
    }
}

/// Begins a transaction and locks a listing, of which version and writer are read, or a member.
pub(super) fn lock<D: Tongue>(scope: RequestScope) -> String {
    let begin = D::BEGIN;
    match scope {
        RequestScope::Listing(id) => {
            format!("{begin}SELECT 0,version,writer FROM firstcome_listing WHERE id={id} FOR UPDATE;")
        }
        RequestScope::Member(id) => format!("{begin}SELECT 0,records FROM firstcome_member WHERE id={id} FOR UPDATE;"),
    }
}
