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

    /// The instant so many milliseconds later; the latest one instead of one after it.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self::clamped_us(self.0.saturating_add_unsigned(ms.saturating_mul(1_000)))
    }
}

/// An instant on a clock that no caller can set: it runs on evenly no matter what happens to the wall clock, and so leases and
/// time-outs are counted on it. In microseconds; only differences mean something to people.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Steady(i64);

impl Steady {
    /// An instant from its microseconds.
    pub const fn from_us(us: i64) -> Self {
        Self(us)
    }

    /// Its microseconds.
    pub const fn as_us(self) -> i64 {
        self.0
    }

    /// The instant so many milliseconds later.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms.saturating_mul(1_000)))
    }

    /// Microseconds since an earlier instant; 0 if it is later.
    pub const fn since_us(self, earlier: Self) -> u64 {
        let elapsed_us = self.0.saturating_sub(earlier.0);
        if elapsed_us < 0 { 0 } else { elapsed_us.unsigned_abs() }
    }
}

/// What time it is: by the wall, for schedules and records, and on the steady clock, for everything that lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The wall clock. May be set by an operator.
    pub wall: Timestamp,
    /// The clock that no operator sets.
    pub steady: Steady,
}

impl Now {
    /// What the wall clock will show at an instant of the steady one, if no operator sets it until then.
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
