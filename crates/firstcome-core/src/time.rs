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

    /// Makes an instant from microseconds of Unix time; `None` outside [`Self::MIN`]`..=`[`Self::MAX`].
    pub const fn from_us(unix_us: i64) -> Option<Self> {
        if unix_us < TIMESTAMP_US_MIN || TIMESTAMP_US_MAX < unix_us { None } else { Some(Self(unix_us)) }
    }

    /// Makes an instant like [`Self::from_us`], but moves one outside the range to the nearer end.
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

    /// Returns the instant `ms` milliseconds later, or [`Self::MAX`] if it would be later than that.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self::clamped_us(self.0.saturating_add_unsigned(ms.saturating_mul(1_000)))
    }
}

/// An instant on a monotonic clock, in microseconds. Nothing can set this clock, so leases and time-outs count on it.
/// Only differences between two instants have a meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Steady(i64);

impl Steady {
    /// Makes an instant from its microseconds.
    pub const fn from_us(us: i64) -> Self {
        Self(us)
    }

    /// Its microseconds.
    pub const fn as_us(self) -> i64 {
        self.0
    }

    /// Returns the instant `ms` milliseconds later.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms.saturating_mul(1_000)))
    }

    /// Returns the instant `ms` milliseconds earlier.
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub_unsigned(ms.saturating_mul(1_000)))
    }

    /// Returns the microseconds since an earlier instant; 0 if `earlier` is later.
    pub const fn since_us(self, earlier: Self) -> u64 {
        let elapsed_us = self.0.saturating_sub(earlier.0);
        if elapsed_us < 0 { 0 } else { elapsed_us.unsigned_abs() }
    }
}

/// The present instant on two clocks: the wall clock for schedules and records, the steady clock for durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The wall clock. May be set by an operator.
    pub wall: Timestamp,
    /// The monotonic clock, which nothing can set.
    pub steady: Steady,
}

impl Now {
    /// Returns the wall-clock time at an instant of the steady clock, if no operator sets the wall clock until then.
    pub const fn wall_at(self, steady: Steady) -> Timestamp {
        Timestamp::clamped_us(self.wall.as_us().saturating_add(steady.as_us().saturating_sub(self.steady.as_us())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_within_the_years_that_rfc_3339_can_write() {
        let first = -62_135_596_800_000_000;
        let last = 253_402_300_799_999_999;
        let rows = [
            (first - 1, None, first),
            (first, Some(first), first),
            (first + 1, Some(first + 1), first + 1),
            (-1, Some(-1), -1),
            (0, Some(0), 0),
            (1, Some(1), 1),
            (last - 1, Some(last - 1), last - 1),
            (last, Some(last), last),
            (last + 1, None, last),
            (i64::MIN, None, first),
            (i64::MAX, None, last),
        ];
        for (unix_us, exact, clamped) in rows {
            assert_eq!(Timestamp::from_us(unix_us).map(Timestamp::as_us), exact, "{unix_us}");
            assert_eq!(Timestamp::clamped_us(unix_us).as_us(), clamped, "{unix_us}");
        }
        assert_eq!(Timestamp::MIN.as_us(), first);
        assert_eq!(Timestamp::MAX.as_us(), last);
    }

    #[test]
    fn instants_are_ordered_as_time_is() {
        assert!(Timestamp::MIN < Timestamp::clamped_us(-1));
        assert!(Timestamp::clamped_us(-1) < Timestamp::clamped_us(0));
        assert!(Timestamp::clamped_us(0) < Timestamp::MAX);
    }
}
