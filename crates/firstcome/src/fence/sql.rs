//! The statements, for any library sends them. No database is asked here.
//!
//! # A table of fences
//! [`POSTGRES_TABLE`], [`MYSQL_TABLE`] and [`SQLITE_TABLE`] make the table, a row per lock. [`POSTGRES_CHECK`],
//! [`MYSQL_CHECK`] and [`SQLITE_CHECK`] are one check each: one statement, bound to lock, fence and owner in this order,
//! which compares, remembers, and locks the row until the transaction ends, also when it is the first for its lock. So let it
//! be the first statement of the transaction: a later holder then waits for its end, or fails.
//!
//! A row is needed as long as a holder may live that was granted the lock before; do not delete any while the lock is used.
//!
//! # Columns of a row
//! If all that is written is one row, let the row remember: [`Columns`].

use std::fmt;

/// Makes the table in PostgreSQL if it is not there. (Two at once may collide; the one that fails may try again.)
pub const POSTGRES_TABLE: &str = "CREATE TABLE IF NOT EXISTS fences (\
     lock_name varchar(128) COLLATE \"C\" PRIMARY KEY, \
     fence bigint NOT NULL, \
     owner varchar(160) COLLATE \"C\" NOT NULL)";

/// Makes the table in MySQL and MariaDB if it is not there. (It ends the transaction in which it is sent.)
pub const MYSQL_TABLE: &str = "CREATE TABLE IF NOT EXISTS fences (\
     lock_name varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
     fence bigint NOT NULL, \
     owner varchar(160) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB";

/// Makes the table in SQLite if it is not there.
pub const SQLITE_TABLE: &str = "CREATE TABLE IF NOT EXISTS fences (\
     lock_name TEXT NOT NULL PRIMARY KEY, \
     fence INTEGER NOT NULL, \
     owner TEXT NOT NULL) STRICT, WITHOUT ROWID";

/// Accepted if it affects one row, refused if it affects none. The row is locked in either case.
pub const POSTGRES_CHECK: &str = "INSERT INTO fences AS last (lock_name, fence, owner) VALUES ($1, $2, $3) \
     ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence, owner = excluded.owner \
     WHERE last.fence < excluded.fence OR (last.fence = excluded.fence AND last.owner = excluded.owner)";

/// Accepted if the last insert id that comes with its answer is [`MYSQL_ACCEPTED`], refused if it is [`MYSQL_REFUSED`].
///
/// The number of affected rows cannot tell these apart on a connection that counts rows that were found. An answer with
/// neither is an error. The two assignments come out the same whether they happen one after the other or at once: `owner`
/// changes only if the fence is smaller, and then the condition of `fence` is true by its first half.
pub const MYSQL_CHECK: &str = "INSERT INTO fences (lock_name, fence, owner) \
     VALUES (?, IF(LAST_INSERT_ID(2) = 2, CAST(? AS SIGNED), NULL), ?) ON DUPLICATE KEY UPDATE \
     owner = IF(fence < VALUES(fence), VALUES(owner), owner), \
     fence = IF(LAST_INSERT_ID(IF(fence < VALUES(fence) OR (fence = VALUES(fence) AND owner = VALUES(owner)), 2, 1)) = 2, \
     VALUES(fence), fence)";

/// See [`MYSQL_CHECK`].
pub const MYSQL_ACCEPTED: u64 = 2;
/// See [`MYSQL_CHECK`].
pub const MYSQL_REFUSED: u64 = 1;

/// Accepted if it changes one row, refused if it changes none.
pub const SQLITE_CHECK: &str = "INSERT INTO fences (lock_name, fence, owner) VALUES (?1, ?2, ?3) \
     ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence, owner = excluded.owner \
     WHERE fences.fence < excluded.fence OR (fences.fence = excluded.fence AND fences.owner = excluded.owner)";

/// A name that is put into a statement as it is: `A–Z a–z 0–9 _`, up to 63 bytes, the first one no digit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a column's name must be 1 to 63 of A-Z a-z 0-9 _, the first one no digit")]
pub struct ColumnError;

/// How the database, or its library, writes a place for a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Placeholders {
    /// `:fence` and `:owner`, each bound once (SQLite).
    Named,
    /// `$n` for the fence and `$n+1` for the owner, each bound once (PostgreSQL).
    Numbered(u16),
    /// `?`, bound in the order in which they stand: fence, owner in [`Columns::set`]; fence, fence, owner in
    /// [`Columns::condition`] (MySQL, MariaDB).
    InOrder,
}

/// Two columns of a row that remember the last token by which it was written: the fence, a `bigint` that may be null until
/// a process writes with a token, and the owner, a text of up to 160 bytes that compares by its bytes (in MySQL and MariaDB
/// `CHARACTER SET ascii COLLATE ascii_bin`, or names that differ in case are the same).
///
/// They say nothing about which lock it was: let one lock guard the row.
///
/// The one `UPDATE` that writes the row checks the token too. If it affects no row, the token was refused or the row is not
/// there; nothing was written in either case. In a transaction the row stays locked to its end.
///
/// ```
/// use firstcome::fence::sql::{Columns, Placeholders};
///
/// let columns = Columns::new("fence", "fence_owner")?;
/// let numbered = Placeholders::Numbered(3);
/// let (set, condition) = (columns.set(numbered), columns.condition(numbered));
/// assert_eq!(
///     format!("UPDATE auctions SET price = $1, {set} WHERE id = $2 AND {condition}"),
///     "UPDATE auctions SET price = $1, fence = $3, fence_owner = $4 WHERE id = $2 \
///      AND (fence IS NULL OR fence < $3 OR (fence = $3 AND fence_owner = $4))"
/// );
/// # Ok::<_, firstcome::fence::sql::ColumnError>(())
/// ```
///
/// With sqlx, [`sqlx::push_set`](super::sqlx) and `push_condition` write and bind them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    fence: Box<str>,
    owner: Box<str>,
}

impl Default for Columns {
    /// `fence` and `fence_owner`.
    fn default() -> Self {
        Self { fence: "fence".into(), owner: "fence_owner".into() }
    }
}

impl Columns {
    /// The columns by their names.
    pub fn new(fence: &str, owner: &str) -> Result<Self, ColumnError> {
        let column = |name: &str| {
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let begins = name.as_bytes().first().is_some_and(|first| !first.is_ascii_digit());
            if begins && name.len() <= 63 && name.bytes().all(letters) { Ok(name.into()) } else { Err(ColumnError) }
        };
        Ok(Self { fence: column(fence)?, owner: column(owner)? })
    }

    /// The assignments, without a comma around them.
    pub fn set(&self, placeholders: Placeholders) -> String {
        let Self { fence, owner } = self;
        let (new_fence, new_owner) = places(placeholders);
        format!("{fence} = {new_fence}, {owner} = {new_owner}")
    }

    /// The condition, in parentheses.
    pub fn condition(&self, placeholders: Placeholders) -> String {
        let Self { fence, owner } = self;
        let (new_fence, new_owner) = places(placeholders);
        format!("({fence} IS NULL OR {fence} < {new_fence} OR ({fence} = {new_fence} AND {owner} = {new_owner}))")
    }

    #[cfg(feature = "sqlx")]
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.fence, &self.owner)
    }
}

fn places(placeholders: Placeholders) -> (PlaceholderStyle, PlaceholderStyle) {
    match placeholders {
        Placeholders::Named => (PlaceholderStyle::Named("fence"), PlaceholderStyle::Named("owner")),
        Placeholders::Numbered(first) => {
            (PlaceholderStyle::Numbered(u32::from(first)), PlaceholderStyle::Numbered(u32::from(first) + 1))
        }
        Placeholders::InOrder => (PlaceholderStyle::Next, PlaceholderStyle::Next),
    }
}

enum PlaceholderStyle {
    Named(&'static str),
    Numbered(u32),
    Next,
}

impl fmt::Display for PlaceholderStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, ":{name}"),
            Self::Numbered(number) => write!(f, "${number}"),
            Self::Next => f.write_str("?"),
        }
    }
}
