//! Decides which node writes to SQL: a node that SQL refuses lets another one write.

use std::time::Duration;
use tokio::time::Instant;

/// After so long without a write that SQL takes, others may try.
const TRIED_MAX: Duration = Duration::from_secs(1);
/// After so long this node may again. In between, a claim that waits at another one asks the sequencer, and finds that no caller
/// writes.
const LEFT_MAX: Duration = Duration::from_millis(2_500);

/// How the writes of this node to one coupon go.
#[derive(Default, Debug)]
pub(super) struct WriterLease {
    /// When the first one began of those in a row that SQL has not taken.
    since: Option<Instant>,
    /// Writes that have not ended.
    under_way: u32,
    /// Whether this node leaves the lease to others, as the log was told.
    is_left: bool,
}

/// What the log is told of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseChange {
    /// This node leaves it to others.
    Left,
    /// This node takes it again if it can.
    Wanted,
}

impl WriterLease {
    /// Whether this node may be the one to write: not while others may reach SQL and this one cannot.
    pub(super) fn may_write(&mut self, now: Instant) -> bool {
        let Some(since) = self.since else { return true };
        let tried = now.saturating_duration_since(since);
        if LEFT_MAX <= tried && self.under_way == 0 {
            self.since = None;
        }
        tried < TRIED_MAX || self.since.is_none()
    }

    /// Returns what has changed since the last call, by what [`Self::may_write`] said.
    pub(super) fn change(&mut self, may_write: bool) -> Option<LeaseChange> {
        // The first write after that shows whether it goes on.
        let is_back = may_write && self.since.is_none();
        match (self.is_left, may_write) {
            (false, false) => {
                self.is_left = true;
                Some(LeaseChange::Left)
            }
            (true, _) if is_back => {
                self.is_left = false;
                Some(LeaseChange::Wanted)
            }
            _ => None,
        }
    }

    /// Notes that a write begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.under_way += 1;
        self.since.get_or_insert(now);
    }

    /// Notes that a write has ended, and whether SQL took it.
    pub(super) const fn end(&mut self, is_taken: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        if is_taken {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(begin: Instant, ms: u64) -> Instant {
        begin + Duration::from_millis(ms)
    }

    #[test]
    fn a_caller_that_fails_for_a_second_lets_others_and_then_tries_again() {
        let (begin, mut turn) = (Instant::now(), WriterLease::default());
        for ms in [0, 400, 900] {
            assert!(turn.may_write(at(begin, ms)), "{ms}");
            turn.begin(at(begin, ms));
            turn.end(false);
        }
        assert!(!turn.may_write(at(begin, 1_000)) && !turn.may_write(at(begin, 2_499)));
        assert!(turn.may_write(at(begin, 2_500)));
        turn.begin(at(begin, 2_600));
        turn.end(false);
        assert!(turn.may_write(at(begin, 3_599)) && !turn.may_write(at(begin, 3_600)));
    }

    #[test]
    fn a_write_that_hangs_counts_until_it_ends() {
        let (begin, mut turn) = (Instant::now(), WriterLease::default());
        turn.begin(begin);
        assert!(turn.may_write(at(begin, 999)));
        for ms in [1_000, 2_500, 8_000] {
            assert!(!turn.may_write(at(begin, ms)), "{ms}");
        }
        turn.end(false);
        assert!(turn.may_write(at(begin, 8_000)), "others had their time");
    }

    #[test]
    fn a_write_that_sql_takes_ends_it() {
        let (begin, mut turn) = (Instant::now(), WriterLease::default());
        turn.begin(begin);
        turn.end(true);
        assert!(turn.may_write(at(begin, 5_000)));
        turn.begin(at(begin, 5_000));
        assert!(turn.may_write(at(begin, 5_500)) && !turn.may_write(at(begin, 6_000)));
    }
}
