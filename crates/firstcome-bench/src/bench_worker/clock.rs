//! A clock that all processes of this machine share.

use firstcome_store::edge::{Clock as _, Stopwatch, SystemClock};

/// How many pairs of readings are taken to find one within a microsecond.
const LOOKS: usize = 10_000;

/// The wall clock at the start of this value, advanced by a monotonic clock. Processes that start theirs within
/// seconds agree to about a microsecond.
#[derive(Clone, Copy)]
pub struct MachineClock {
    watch: Stopwatch,
    start_ns: u64,
}

impl MachineClock {
    /// Reads both clocks, and starts.
    pub fn start() -> Self {
        let (wall, watch) = (SystemClock::default(), Stopwatch::start());
        let mut start_us = wall.now().as_us();
        for _ in 0..LOOKS {
            let before_us = wall.now().as_us();
            let elapsed = watch.elapsed();
            let after_us = wall.now().as_us();
            if before_us == after_us {
                start_us = before_us - elapsed.as_micros() as i64;
                break;
            }
        }
        Self { watch, start_ns: start_us.unsigned_abs() * 1_000 }
    }

    /// Returns the time, in nanoseconds since 1970.
    pub fn now_ns(&self) -> u64 {
        self.start_ns + self.watch.elapsed().as_nanos() as u64
    }
}
