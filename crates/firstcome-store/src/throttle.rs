//! Limits lines of the log that a flood would repeat: at most one a second of each kind, with the number that were left out.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// The pause between two lines of one kind.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// One kind of line.
#[derive(Default, Debug)]
pub struct Throttle(Mutex<State>);

#[derive(Default, Debug)]
struct State {
    passed_at: Option<Instant>,
    left_out: u64,
}

impl Throttle {
    /// Makes a kind of which no line was logged yet.
    pub const fn new() -> Self {
        Self(Mutex::new(State { passed_at: None, left_out: 0 }))
    }

    /// Returns the number of lines left out since the last one, if this one may be logged. `None` counts it as left
    /// out.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.passed_at.is_some_and(|at| now < at + PAUSE) {
            state.left_out += 1;
            return None;
        }
        state.passed_at = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_second_passes_and_says_how_many_were_left_out() {
        let throttle = Throttle::default();
        let start = Instant::now();
        assert_eq!(throttle.pass_at(start), Some(0));
        for micros in 0..999 {
            assert_eq!(throttle.pass_at(start + Duration::from_micros(micros)), None);
        }
        assert_eq!(throttle.pass_at(start + PAUSE), Some(999));
        assert_eq!(throttle.pass_at(start + PAUSE), None);
        assert_eq!(throttle.pass_at(start + PAUSE * 60), Some(1));
    }
}
