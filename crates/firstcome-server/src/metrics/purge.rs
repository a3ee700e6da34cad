//! Figures of purges.

use firstcome::Purged;
use firstcome::core::time::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// What purges removed.
pub(crate) struct PurgeFigures {
    rows: Family<KindLabels, Counter>,
    ended_at: Gauge,
}

impl PurgeFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let (rows, ended_at) = (Family::<KindLabels, Counter>::default(), Gauge::default());
        registry.register("purged_rows", "Rows that purges of this process removed, by kind", rows.clone());
        let help = "When the last purge that this process knows of ended, as Unix time; 0 for none since the start";
        registry.register("last_purge_timestamp_seconds", help, ended_at.clone());
        for (kind, _) in Purged::default().kinds() {
            drop(rows.get_or_create(&KindLabels { kind }));
        }
        Self { rows, ended_at }
    }

    /// Counts a purge that has ended.
    pub(crate) fn ended(&self, purged: &Purged, now: Timestamp) {
        self.removed(purged);
        self.seen(now);
    }

    /// Counts the rows that a purge removed, also one that did not end.
    pub(crate) fn removed(&self, purged: &Purged) {
        for (kind, count) in purged.kinds() {
            self.rows.get_or_create(&KindLabels { kind }).inc_by(count);
        }
    }

    /// Notes when the last purge ended, which may be that of another node.
    pub(crate) fn seen(&self, ended_at: Timestamp) {
        self.ended_at.set(ended_at.as_us() / 1_000_000);
    }
}
