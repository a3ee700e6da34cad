//! Statistics of a store, cheap enough to collect always.

use crate::edge::{Clock, SystemClock};
use firstcome_core::room::{Change, Departure};
use firstcome_core::time::Timestamp;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Counts values in fixed buckets. A read during writes may miss the newest values.
pub struct Histogram {
    bounds: &'static [u64],
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

firstcome_core::debug_by_name!(Histogram);

impl Histogram {
    /// Makes a histogram with these inclusive upper bounds, and one bucket above.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns the bound and the count of each bucket; the last bound is `u64::MAX`.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let bounds = self.bounds.iter().copied().chain([u64::MAX]);
        bounds.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// How long a server takes to answer, from the sending of a request on. Answers that do not come count with the time until they
/// were given up.
pub struct RoundTrips(Histogram);

firstcome_core::debug_by_name!(RoundTrips);

impl Default for RoundTrips {
    fn default() -> Self {
        Self(Histogram::new(&[
            100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800, 409_600, 819_200,
            1_638_400,
        ]))
    }
}

impl RoundTrips {
    /// Counts one.
    pub fn record(&self, lasted: Duration) {
        self.0.record(lasted.as_micros() as u64);
    }

    /// Returns the microseconds of each.
    pub const fn lasted_us(&self) -> &Histogram {
        &self.0
    }
}

/// When something went well for the last time, by the wall clock.
pub struct LastSuccess(AtomicI64);

firstcome_core::debug_by_name!(LastSuccess);

impl Default for LastSuccess {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl LastSuccess {
    /// Notes that it has just gone well.
    pub fn note(&self) {
        self.0.store(SystemClock::default().now().as_us(), Ordering::Relaxed);
    }

    /// Returns when that was; `None` if it never went well in this process.
    pub fn at(&self) -> Option<Timestamp> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at != i64::MIN).and_then(Timestamp::from_us)
    }
}

/// The counters of a store with a writer.
pub struct WriterStats {
    /// Changes (claims, redemptions, settings) per commit.
    pub batch_changes: Histogram,
    /// Microseconds from the beginning of a transaction to the end of its sync.
    pub commit_us: Histogram,
    /// When a transaction was synced for the last time.
    pub last_sync: LastSuccess,
    /// Commands refused because too many waited.
    pub overloaded: AtomicU64,
    /// Commands that wait now.
    pub queue_depth: AtomicU64,
    /// How many commands may wait: 65 536, or as many as 250 ms of measured service time allow, but at least one full
    /// batch (2 048).
    pub queue_limit: AtomicU64,
    /// Numbers drawn in rooms.
    pub joined: AtomicU64,
    /// Slots offered.
    pub admitted: AtomicU64,
    /// Slots taken.
    pub taken: AtomicU64,
    /// Slots that no visitor took in time.
    pub lapsed: AtomicU64,
    /// Tickets that visitors gave up.
    pub left: AtomicU64,
    /// Tickets that ended because their time was over.
    pub expired: AtomicU64,
}

firstcome_core::debug_by_name!(WriterStats);

impl WriterStats {
    pub(crate) fn count(&self, change: &Change) {
        let counter = match change {
            Change::Joined { .. } => &self.joined,
            Change::Admitted { .. } => &self.admitted,
            Change::Taken { .. } => &self.taken,
            Change::Lapsed { .. } => &self.lapsed,
            Change::Gone { how: Departure::Left, .. } => &self.left,
            Change::Gone { how: Departure::Expired, .. } => &self.expired,
            Change::Renewed { .. } | Change::Reached(_) | Change::Drawn(_) => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for WriterStats {
    fn default() -> Self {
        Self {
            batch_changes: Histogram::new(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048]),
            commit_us: Histogram::new(&[50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400]),
            last_sync: LastSuccess::default(),
            overloaded: AtomicU64::new(0),
            queue_depth: AtomicU64::new(0),
            queue_limit: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            lapsed: AtomicU64::new(0),
            left: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        }
    }
}
