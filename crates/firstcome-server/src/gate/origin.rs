//! What a gate measures of its site, as reports to the room.

use firstcome::core::room::OriginReport;
use parking_lot::Mutex;
use std::time::Duration;

/// A report is made of the answers of so long.
const WINDOW: Duration = Duration::from_secs(5);
/// Fewer answers say nothing.
const ANSWERS_MIN: u32 = 20;
/// More failures than one in so many are trouble.
const FAILED_ONE_IN: u32 = 20;
/// More slow answers than one in so many are trouble.
const SLOW_ONE_IN: u32 = 10;

/// How an answer of the site was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// With a status below 500.
    Well,
    /// With a status from 500 on, or not at all.
    Failed,
}

struct Window {
    /// When it began, since the start of the gate.
    began: Duration,
    answers: u32,
    failed: u32,
    slow: u32,
}

/// Judges the answers of a site, window by window.
pub(super) struct OriginWatch {
    slow_after: Duration,
    window: Mutex<Window>,
}

impl OriginWatch {
    pub(super) fn new(slow_after: Duration) -> Self {
        let window = Window { began: Duration::ZERO, answers: 0, failed: 0, slow: 0 };
        Self { slow_after, window: Mutex::new(window) }
    }

    /// Notes an answer, at a time since the start of the gate. Returns a report if a window has ended that says something.
    pub(super) fn note(&self, answered: Answered, took: Duration, now: Duration) -> Option<OriginReport> {
        let mut window = self.window.lock();
        window.answers += 1;
        window.failed += u32::from(answered == Answered::Failed);
        window.slow += u32::from(self.slow_after < took);
        if now.saturating_sub(window.began) < WINDOW || window.answers < ANSWERS_MIN {
            return None;
        }
        let Window { answers, failed, slow, .. } = *window;
        *window = Window { began: now, answers: 0, failed: 0, slow: 0 };
        Some(if answers < failed.saturating_mul(FAILED_ONE_IN) {
            OriginReport::Failing
        } else if answers < slow.saturating_mul(SLOW_ONE_IN) {
            OriginReport::Slow
        } else {
            OriginReport::Fine
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(failed: u32, slow: u32) -> Option<OriginReport> {
        let watch = OriginWatch::new(Duration::from_secs(1));
        let mut told = None;
        for at in 0..100_u32 {
            let answered = if at < failed { Answered::Failed } else { Answered::Well };
            let took = Duration::from_millis(if at < slow { 1_001 } else { 1_000 });
            assert_eq!(told, None, "no report before the window has ended");
            told = watch.note(answered, took, Duration::from_millis(u64::from(at) * 51));
        }
        told
    }

    #[test]
    fn a_window_is_judged_by_its_failures_and_its_slow_answers() {
        assert_eq!(report(0, 0), Some(OriginReport::Fine));
        assert_eq!(report(5, 10), Some(OriginReport::Fine));
        assert_eq!(report(6, 0), Some(OriginReport::Failing));
        assert_eq!(report(0, 11), Some(OriginReport::Slow));
        assert_eq!(report(6, 11), Some(OriginReport::Failing));
    }

    #[test]
    fn few_answers_say_nothing() {
        let watch = OriginWatch::new(Duration::from_secs(1));
        let late = Duration::from_secs(60);
        assert!((1..ANSWERS_MIN).all(|_| watch.note(Answered::Failed, Duration::ZERO, late).is_none()));
        assert_eq!(watch.note(Answered::Failed, Duration::ZERO, late), Some(OriginReport::Failing));
    }
}
