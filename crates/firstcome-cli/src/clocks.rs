//! Compares the clock of this machine with others: for `firstcome doctor`, and at the start of a service, which warns of a wrong one.

use firstcome::Embedded;
use firstcome::cluster::Cluster;
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, SystemClock};
use firstcome_server::rfc3339;
use std::time::Duration;
use tokio::time::timeout;

/// The largest tolerable skew. Beyond it, "expired" and "not open yet" depend on which machine judges.
pub(crate) const SKEW_MS_MAX: u64 = 1_000;

/// Returns how far a remote clock is from this machine's, which was read before and after it.
pub(crate) fn skew_ms(there_us: i64, before_us: i64, after_us: i64) -> u64 {
    let (behind_us, ahead_us) = (before_us.saturating_sub(there_us), there_us.saturating_sub(after_us));
    behind_us.max(ahead_us).max(0).unsigned_abs() / 1_000
}

/// Returns whether the clock is earlier than the last write by more than the tolerable skew. A clock that is later may be right: the
/// service may have stood still.
fn is_behind(clock: Timestamp, last_write_at: Timestamp) -> bool {
    clock.plus_ms(SKEW_MS_MAX) < last_write_at
}

/// Warns if the clock is earlier than the last write to the data directory. Call it before the service writes.
pub(crate) fn warn_of_directory(store: &Embedded) {
    let clock = store.now();
    let Some(last_write_at) = store.last_write_at().filter(|last_write_at| is_behind(clock, *last_write_at)) else {
        return;
    };
    tracing::warn!(
        clock = %rfc3339::format(clock),
        last_write_at = %rfc3339::format(last_write_at),
        "the clock is earlier than the last write to the data directory: set it, or coupons open and expire at wrong times"
    );
}

/// The longest time that a start waits for the clock of the database.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Warns if the clock of this machine differs from that of the database. One round trip, and at most [`ANSWER_MAX`].
pub(crate) async fn warn_of_database(cluster: &Cluster) {
    let own = SystemClock::default();
    let before = own.now();
    // A database that gives no answer is named by the next step of the start, or by /readyz.
    let Ok(Ok(database_clock)) = timeout(ANSWER_MAX, cluster.database_clock()).await else { return };
    let clock = own.now();
    let difference_ms = skew_ms(database_clock.as_us(), before.as_us(), clock.as_us());
    if difference_ms <= SKEW_MS_MAX {
        return;
    }
    tracing::warn!(
        difference_ms,
        clock = %rfc3339::format(clock),
        database_clock = %rfc3339::format(database_clock),
        "the clock of this machine differs from that of the database: synchronise the clocks of all machines, or coupons and \
         keys end at wrong times"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skew_is_what_the_time_of_the_answer_does_not_explain() {
        // The remote clock, this one before and after the answer, and the skew in milliseconds.
        let rows = [
            (5_000_000, 5_000_000, 5_000_000, 0),
            (5_500_000, 5_000_000, 6_000_000, 0),
            (6_000_999, 5_000_000, 6_000_000, 0),
            (7_000_000, 5_000_000, 6_000_000, 1_000),
            (7_001_000, 5_000_000, 6_000_000, 1_001),
            (4_000_000, 5_000_000, 6_000_000, 1_000),
            (3_999_000, 5_000_000, 6_000_000, 1_001),
            (-3_600_000_000, 0, 0, 3_600_000),
            (i64::MIN, 1, 1, i64::MAX.unsigned_abs() / 1_000),
        ];
        for (there_us, before_us, after_us, ms) in rows {
            assert_eq!(skew_ms(there_us, before_us, after_us), ms, "{there_us} between {before_us} and {after_us}");
        }
    }

    #[test]
    fn a_clock_is_behind_by_more_than_a_second_and_never_for_being_ahead() {
        let last_write_at = Timestamp::clamped_us(100_000_000);
        for (clock_us, is_told) in [
            (0, true),
            (98_999_999, true),
            (99_000_000, false),
            (100_000_000, false),
            (100_000_000 + 2 * 366 * 86_400_000_000, false),
        ] {
            assert_eq!(is_behind(Timestamp::clamped_us(clock_us), last_write_at), is_told, "{clock_us}");
        }
    }
}
