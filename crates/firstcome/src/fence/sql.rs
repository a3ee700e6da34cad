//! The SQL statements of the checks, for any database library. This module contacts no database.
//!
//! # A table of fences
//! [`POSTGRES_TABLE`], [`MYSQL_TABLE`] and [`SQLITE_TABLE`] create the table, with a row per lock. [`POSTGRES_CHECK`],
//! [`MYSQL_CHECK`] and [`SQLITE_CHECK`] are one check each: one statement, bound to lock, fence and owner in this
//! order. It compares, remembers, and locks the row until the transaction ends, even for the first token of a lock. So
//! run it as the first statement of the transaction: a later holder then waits for the end of the transaction, or
//! fails.
//!
//! Do not delete a row while its lock is used: a holder of an earlier grant may still live.
//!
//! # Columns of a row
//! If the section writes one row only, let that row remember the token: [`Columns`].

use std::fmt;

/// Creates the table in PostgreSQL if it is absent. (Two sessions at once may collide; the one that fails may try
/// again.)
pub const POSTGRES_TABLE: &str = "CREATE TABLE IF NOT EXISTS fences (\
     lock_name varchar(128) COLLATE \"C\" PRIMARY KEY, \
     fence bigint NOT NULL, \
     owner varchar(160) COLLATE \"C\" NOT NULL)";

/// Creates the table in MySQL and MariaDB if it is absent. (It commits the open transaction of the session.)
pub const MYSQL_TABLE: &str = "CREATE TABLE IF NOT EXISTS fences (\
     lock_name varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
     fence bigint NOT NULL, \
     owner varchar(160) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB";

/// Creates the table in SQLite if it is absent.
pub const SQLITE_TABLE: &str = "CREATE TABLE IF NOT EXISTS fences (\
     lock_name TEXT NOT NULL PRIMARY KEY, \
     fence INTEGER NOT NULL, \
     owner TEXT NOT NULL) STRICT, WITHOUT ROWID";

/// Checks a token in PostgreSQL: accepted if it affects one row, refused if it affects none. Locks the row in both
/// cases.
pub const POSTGRES_CHECK: &str = "INSERT INTO fences AS last (lock_name, fence, owner) VALUES ($1, $2, $3) \
     ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence, owner = excluded.owner \
     WHERE last.fence < excluded.fence OR (last.fence = excluded.fence AND last.owner = excluded.owner)";

/// Checks a token in MySQL and MariaDB: accepted if the last insert id of the answer is [`MYSQL_ACCEPTED`], refused if
/// it is [`MYSQL_REFUSED`]. An answer with another id is an error.
///
/// The number of affected rows is no help on a connection that counts the rows it found. The two assignments give the
/// same result whether the server runs them in sequence or at once: `owner` changes only if the stored fence is
/// smaller, and then the condition of `fence` is true by its first half.
pub const MYSQL_CHECK: &str = "INSERT INTO fences (lock_name, fence, owner) \
     VALUES (?, IF(LAST_INSERT_ID(2) = 2, CAST(? AS SIGNED), NULL), ?) ON DUPLICATE KEY UPDATE \
     owner = IF(fence < VALUES(fence), VALUES(owner), owner), \
     fence = IF(LAST_INSERT_ID(IF(fence < VALUES(fence) OR (fence = VALUES(fence) AND owner = VALUES(owner)), 2, 1)) = 2, \
     VALUES(fence), fence)";

/// The last insert id of an accepted token, see [`MYSQL_CHECK`].
pub const MYSQL_ACCEPTED: u64 = 2;
/// The last insert id of a refused token, see [`MYSQL_CHECK`].
pub const MYSQL_REFUSED: u64 = 1;

/// Checks a token in SQLite: accepted if it changes one row, refused if it changes none.
pub const SQLITE_CHECK: &str = "INSERT INTO fences (lock_name, fence, owner) VALUES (?1, ?2, ?3) \
     ON CONFLICT (lock_name) DO UPDATE SET fence = excluded.fence, owner = excluded.owner \
     WHERE fences.fence < excluded.fence OR (fences.fence = excluded.fence AND fences.owner = excluded.owner)";

/// An invalid column name of [`Columns`]. A name goes into the statement unquoted: `A–Z a–z 0–9 _`, 1 to 63 bytes, not
/// beginning with a digit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a column's name must be 1 to 63 of A-Z a-z 0-9 _, the first one no digit")]
pub struct ColumnError;

/// How the database, or its library, writes a placeholder for a value in the text of [`Columns`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Placeholders {
    /// `:fence` and `:owner`, each bound once (SQLite).
    Named,
    /// `$n` for the fence and `$n+1` for the owner, each bound once (PostgreSQL).
    Numbered(u16),
    /// `?`, bound in the order of the text: fence, owner in [`Columns::set`]; fence, fence, owner in
    /// [`Columns::condition`] (MySQL, MariaDB).
    InOrder,
}

/// Two columns of a row that remember the token of its last write.
///
/// - The fence is a `bigint`, null until the first write with a token.
/// - The owner is a text of up to 160 bytes that compares by its bytes. In MySQL and MariaDB make it `CHARACTER SET
///   ascii COLLATE ascii_bin`; otherwise names that differ in case are equal.
///
/// The columns do not record the lock: guard the row with one lock only.
///
/// The `UPDATE` that writes the row also checks the token. If it affects no row, the token was refused or the row does
/// not exist; nothing was written in either case. In a transaction the row stays locked until the end.
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
/// With sqlx, [`sqlx::push_set`](super::sqlx) and `push_condition` write these texts and bind the values.
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
    /// Makes a pair of columns with these names.
    pub fn new(fence: &str, owner: &str) -> Result<Self, ColumnError> {
        let column = |name: &str| {
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let begins = name.as_bytes().first().is_some_and(|first| !first.is_ascii_digit());
            if begins && name.len() <= 63 && name.bytes().all(letters) { Ok(name.into()) } else { Err(ColumnError) }
        };
        Ok(Self { fence: column(fence)?, owner: column(owner)? })
    }

    /// Returns the assignments, without a comma before or after them.
    pub fn set(&self, placeholders: Placeholders) -> String {
        let Self { fence, owner } = self;
        let (new_fence, new_owner) = places(placeholders);
        format!("{fence} = {new_fence}, {owner} = {new_owner}")
    }

    /// Returns the condition, in parentheses.
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
