//! The drill's own clock: microseconds since its start, and how they relate to the wall clock of the answers.

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

    /// An instant of the answers on this clock; what was before the start is 0.
    pub(crate) fn of_text(&self, text: &str) -> Option<u64> {
        Some(u64::try_from(rfc3339::parse(text)?.as_us() - self.start_wall_us).unwrap_or(0))
    }

    /// The same, also of what was before the start.
    pub(crate) fn instant_of(&self, text: &str) -> Option<i64> {
        Some(rfc3339::parse(text)?.as_us() - self.start_wall_us)
    }

    /// The wall clock's reading at the start, in µs of Unix time.
    pub(crate) const fn start_wall_us(&self) -> i64 {
        self.start_wall_us
    }

    /// An instant of this clock as the API reads it.
    pub(crate) fn text_of(&self, at_us: u64) -> String {
        self.text_at(at_us as i64)
    }

    /// The same, also of what is before the start.
    pub(crate) fn text_at(&self, at_us: i64) -> String {
        rfc3339::format(Timestamp::clamped_us(self.start_wall_us + at_us))
    }
}
