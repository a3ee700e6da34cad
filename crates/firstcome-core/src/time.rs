//! Instants as values. Nothing here reads a clock.

use crate::limits::{TIMESTAMP_US_MAX, TIMESTAMP_US_MIN};

/// An instant in microseconds of Unix time (UTC), within the years 0001 to 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest instant.
    pub const MIN: Self = Self(TIMESTAMP_US_MIN);
    /// The latest instant.
    pub const MAX: Self = Self(TIMESTAMP_US_MAX);

    /// An instant from microseconds of Unix time; `None` outside [`Self::MIN`]`..=`[`Self::MAX`].
    pub const fn from_us(unix_us: i64) -> Option<Self> {
        if unix_us < TIMESTAMP_US_MIN || TIMESTAMP_US_MAX < unix_us { None } else { Some(Self(unix_us)) }
    }

    /// Like [`Self::from_us`], with an instant outside the range moved to its nearer end.
    pub const fn clamped_us(unix_us: i64) -> Self {
        match Self::from_us(unix_us) {
            Some(timestamp) => timestamp,
            None if unix_us < 0 => Self::MIN,
            None => Self::MAX,
        }
    }

    /// Microseconds of Unix time.
    pub const fn as_us(self) -> i64 {
        self.0
    }
}
