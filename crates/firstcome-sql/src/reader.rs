//! Rows, cell after cell. What cannot be true is an error, never repaired.

use super::SqlError;
use super::dialect::Row;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Amount, Balance, Chain};
use firstcome_core::time::Timestamp;

/// A row that cannot be read, or cannot be true.
pub fn wrong(what: &str) -> SqlError {
    SqlError::broken(format!("the tables hold what cannot be: {what}; run `firstcome verify`"))
}

fn unreadable(error: &sqlx::Error) -> SqlError {
    SqlError::in_transaction(error)
}

/// Reads the cells of a row one after the other.
pub struct Reader<'a> {
    row: &'a Row,
    at: usize,
}

firstcome_core::debug_by_name!(['a] Reader<'a>);

impl<'a> Reader<'a> {
    /// Begins at a column.
    pub const fn at(row: &'a Row, at: usize) -> Self {
        Self { row, at }
    }

    /// The next column.
    pub const fn position(&self) -> usize {
        self.at
    }

    const fn next(&mut self) -> usize {
        self.at += 1;
        self.at - 1
    }

    /// The next column, as an integer.
    pub fn integer(&mut self) -> Result<i64, SqlError> {
        self.row.integer(self.next()).map_err(|error| unreadable(&error))
    }

    /// A number if there is one.
    pub fn maybe_integer(&mut self) -> Result<Option<i64>, SqlError> {
        self.row.maybe_integer(self.next()).map_err(|error| unreadable(&error))
    }

    /// A number that is never negative.
    pub fn count(&mut self) -> Result<u64, SqlError> {
        u64::try_from(self.integer()?).map_err(|_| wrong("a negative number"))
    }

    /// The next column, as a count or `NULL`.
    pub fn maybe_count(&mut self) -> Result<Option<u64>, SqlError> {
        let count = |number| u64::try_from(number).map_err(|_| wrong("a negative number"));
        self.maybe_integer()?.map(count).transpose()
    }

    /// A number that is never negative, and small.
    pub fn small(&mut self) -> Result<u32, SqlError> {
        u32::try_from(self.integer()?).map_err(|_| wrong("a number out of its range"))
    }

    /// The next column, as an amount of points.
    pub fn amount(&mut self) -> Result<Amount, SqlError> {
        Amount::new(self.count()?).ok_or_else(|| wrong("an amount out of its range"))
    }

    /// The next column, as an instant.
    pub fn instant(&mut self) -> Result<Timestamp, SqlError> {
        Timestamp::from_us(self.integer()?).ok_or_else(|| wrong("an instant out of its range"))
    }

    /// The next column, as an instant or `NULL`.
    pub fn maybe_instant(&mut self) -> Result<Option<Timestamp>, SqlError> {
        let instant = |us| Timestamp::from_us(us).ok_or_else(|| wrong("an instant out of its range"));
        self.maybe_integer()?.map(instant).transpose()
    }

    /// A text if there is one.
    pub fn maybe_text(&mut self) -> Result<Option<String>, SqlError> {
        self.row.maybe_text(self.next()).map_err(|error| unreadable(&error))
    }

    /// The next column, as the name of a member or `NULL`.
    pub fn maybe_member(&mut self) -> Result<Option<MemberName>, SqlError> {
        let member = |text: String| MemberName::restore(&text).map_err(|_| wrong("an invalid name"));
        self.maybe_text()?.map(member).transpose()
    }

    /// The next column, as the name of a member.
    pub fn member(&mut self) -> Result<MemberName, SqlError> {
        self.maybe_member()?.ok_or_else(|| wrong("a member without a name"))
    }

    /// The next column, as the name of a listing or `NULL`.
    pub fn maybe_listing(&mut self) -> Result<Option<ListingName>, SqlError> {
        let listing = |text: String| ListingName::parse(&text).map_err(|_| wrong("an invalid name"));
        self.maybe_text()?.map(listing).transpose()
    }

    /// The next column, as exactly this many bytes.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], SqlError> {
        let bytes = self.row.bytes(self.next()).map_err(|error| unreadable(&error))?;
        bytes.try_into().map_err(|_| wrong("a digest of another length"))
    }

    /// Bytes if there are any.
    pub fn maybe_blob(&mut self) -> Result<Option<Vec<u8>>, SqlError> {
        self.row.maybe_bytes(self.next()).map_err(|error| unreadable(&error))
    }

    /// The next column, as the chain of a member's records.
    pub fn chain(&mut self) -> Result<Chain, SqlError> {
        Ok(Chain(self.bytes()?))
    }

    /// The next column, as a key of idempotency.
    pub fn key(&mut self) -> Result<u128, SqlError> {
        Ok(u128::from_be_bytes(self.bytes()?))
    }

    /// The next columns, as a balance.
    pub fn balance(&mut self) -> Result<Balance, SqlError> {
        let (total, held) = (self.count()?, self.count()?);
        Balance::new(total, held).ok_or_else(|| wrong("a balance out of its range"))
    }

    /// The number of a bid, if there is one.
    pub fn maybe_bid(&mut self) -> Result<Option<u32>, SqlError> {
        let bid = |number: u64| u32::try_from(number).map_err(|_| wrong("a bid's number out of its range"));
        self.maybe_count()?.map(bid).transpose()
    }
}
