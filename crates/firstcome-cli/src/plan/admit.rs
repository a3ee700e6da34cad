//! A rate as a room takes it: so many people per period.

use serde::Serialize;

/// Shortest and longest period of a room's rate, and people in one period at most. The server checks the same.
const EVERY_MS_MIN: u64 = 100;
const EVERY_MS_MAX: f64 = 86_400_000.0;
const COUNT_MAX: u64 = 1_000_000;
/// How far below the wanted rate a small ratio may lie: nobody can measure a back end better.
const SLACK: f64 = 0.001;
/// Twelve people per 116 ms must not become 117 ms because 12 ÷ 0.116 was rounded.
const ROUNDING: f64 = 1e-12;

/// So many people per period, evenly spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Admit {
    pub(crate) count: u64,
    pub(crate) every_ms: u64,
}

impl Admit {
    /// The smallest ratio that is not above the rate and less than 0.1 % below it. `None` if no room can have it.
    pub(crate) fn at_most(per_second: f64) -> Option<Self> {
        let first = (per_second * EVERY_MS_MIN as f64 / 1_000.0 * (1.0 - ROUNDING)).ceil().max(1.0) as u64;
        for count in first..=COUNT_MAX {
            let every_ms = (count as f64 * 1_000.0 / per_second * (1.0 - ROUNDING)).ceil();
            if EVERY_MS_MAX < every_ms {
                return None;
            }
            let admit = Self { count, every_ms: every_ms as u64 };
            // The count of a period of a second or more is always near enough.
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
