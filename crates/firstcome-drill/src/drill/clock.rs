//! The drill's clock: microseconds since its start, and its relation to the wall clock of the answers.

use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock as _, Stopwatch, SystemClock};
use firstcome_server::rfc3339;

/// Copies show the same time.
#[derive(Clone, Copy)]
pub(crate) struct RunClock {
    watch: Stopwatch,
    start_wall_us: i64,
}

impl RunClock {
    pub(crate) fn start() -> Self {
        Self { watch: Stopwatch::start(), start_wall_us: SystemClock::default().now().as_us() }
    }

    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.watch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Converts an instant of an answer to this clock; instants before the start become 0.
    pub(crate) fn of_text(&self, text: &str) -> Option<u64> {
        Some(u64::try_from(rfc3339::parse(text)?.as_us() - self.start_wall_us).unwrap_or(0))
    }

    /// Converts an instant of an answer to this clock; instants before the start are negative.
    pub(crate) fn instant_of(&self, text: &str) -> Option<i64> {
        Some(rfc3339::parse(text)?.as_us() - self.start_wall_us)
    }

    /// Returns the wall clock's reading at the start, in µs of Unix time.
    pub(crate) const fn start_wall_us(&self) -> i64 {
        self.start_wall_us
    }

    /// Formats an instant of this clock for the API.
    pub(crate) fn text_of(&self, at_us: u64) -> String {
        self.text_at(at_us as i64)
    }

    /// Formats an instant of this clock, which may be before the start, for the API.
    pub(crate) fn text_at(&self, at_us: i64) -> String {
        rfc3339::format(Timestamp::clamped_us(self.start_wall_us + at_us))
    }
}
