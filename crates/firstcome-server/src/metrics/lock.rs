//! Metrics of locks that HTTP clients hold and wait for.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// How an acquire ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Granted,
    /// Another client had it, and the request did not wait.
    Contended,
    TimedOut,
    /// Too many waited already, or the service was stopping.
    Overloaded,
    /// The client disconnected, or the service stopped.
    Abandoned,
    /// The store did not answer.
    Failed,
}

impl Ending {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Granted, "granted"),
        (Self::Contended, "contended"),
        (Self::TimedOut, "timed_out"),
        (Self::Overloaded, "overloaded"),
        (Self::Abandoned, "abandoned"),
        (Self::Failed, "failed"),
    ];
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct EndingLabels {
    outcome: &'static str,
}

/// The metric handles, looked up once. Clones count into the same metrics.
#[derive(Clone)]
pub(crate) struct LockFigures {
    endings: [Counter; Ending::ALL.len()],
    waited: Histogram,
    held_for: Histogram,
    pub(crate) waiting: Gauge,
    pub(crate) held: Gauge,
    lost: Counter,
}

impl LockFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let endings = Family::<EndingLabels, Counter>::default();
        registry.register("lock_acquisitions", "Acquires of locks by how they ended", endings.clone());
        let seconds = [0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0, 60.0, 300.0, 3_600.0, 86_400.0];
        let waited = Histogram::new(seconds);
        let help = "From an acquire to the lock, or to the end of the wait";
        registry.register_with_unit("lock_wait", help, Unit::Seconds, waited.clone());
        let held_for = Histogram::new(seconds);
        let help = "From a grant to its release, or to the end of its lease";
        registry.register_with_unit("lock_hold", help, Unit::Seconds, held_for.clone());
        let waiting = Gauge::default();
        registry.register("lock_waiting", "Acquires that may wait, and are under way", waiting.clone());
        let held = Gauge::default();
        registry.register("lock_held", "Locks granted by this process over HTTP and not over yet", held.clone());
        let lost = Counter::default();
        registry.register("lock_lost", "Locks that ended with their lease, and not by a release", lost.clone());
        let counter = |(_, outcome): (Ending, &'static str)| endings.get_or_create(&EndingLabels { outcome }).clone();
        Self { endings: Ending::ALL.map(counter), waited, held_for, waiting, held, lost }
    }

    pub(crate) fn ended(&self, ending: Ending, waited: Duration) {
        self.endings[ending as usize].inc();
        self.waited.observe(waited.as_secs_f64());
    }

    /// Returns how many locks were granted.
    pub(crate) fn granted(&self) -> u64 {
        self.endings[Ending::Granted as usize].get()
    }

    pub(crate) fn released(&self, held_for: Duration) {
        self.held_for.observe(held_for.as_secs_f64());
    }

    pub(crate) fn lost(&self, held_for: Duration) {
        self.lost.inc();
        self.held_for.observe(held_for.as_secs_f64());
    }
}
