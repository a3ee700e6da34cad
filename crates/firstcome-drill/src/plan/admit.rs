//! An admission rate as a room takes it: people per period.

use firstcome::core::limits::{ADMIT_COUNT_MAX, ROOM_PERIOD_MS_MAX, ROOM_PERIOD_MS_MIN};
use serde::Serialize;

/// How far below the wanted rate the ratio may be. A back end cannot be measured more precisely.
const SLACK: f64 = 0.001;
/// A tolerance for rounding: 12 people per 116 ms must not become 117 ms because 12 ÷ 0.116 was rounded.
const ROUNDING: f64 = 1e-12;

/// An admission rate: people per period, evenly spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Admit {
    pub(crate) count: u64,
    pub(crate) every_ms: u64,
}

impl Admit {
    /// Returns the smallest ratio that is not above the rate and less than 0.1 % below it. `None` if no room can have
    /// it.
    pub(crate) fn at_most(per_second: f64) -> Option<Self> {
        let first = (per_second * ROOM_PERIOD_MS_MIN as f64 / 1_000.0 * (1.0 - ROUNDING)).ceil().max(1.0) as u64;
        for count in first..=ADMIT_COUNT_MAX.into() {
            let every_ms = (count as f64 * 1_000.0 / per_second * (1.0 - ROUNDING)).ceil();
            if (ROOM_PERIOD_MS_MAX as f64) < every_ms {
                return None;
            }
            let admit = Self { count, every_ms: every_ms as u64 };
            // With a period of a second or more the ratio is always close enough.
            if per_second * (1.0 - SLACK) <= admit.per_second() {
                return Some(admit);
            }
        }
        None
    }

    /// People per second.
    pub(crate) fn per_second(self) -> f64 {
        self.count as f64 * 1_000.0 / self.every_ms as f64
    }
}
