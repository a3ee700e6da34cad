//! Metrics of one node of a cluster.

use super::histogram;
use firstcome::cluster::{Cluster, ClusterCounts};
use firstcome::core::time::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt;

/// Reads the counters of this node at each scrape.
pub(super) struct ClusterCollector(pub(super) Cluster);

impl fmt::Debug for ClusterCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterCollector")
    }
}

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let ClusterCounts { written, transactions, dead_letters, rebuilt, resumed, .. } = counts;
        let link = self.0.link().counts();
        for (name, help, count) in [
            ("fleet_claims_written", "Claims that this node has written to the database, for whichever node", written),
            ("fleet_transactions", "Transactions in which it did so", transactions),
            ("fleet_dead_letters", "Entries that no node could read, and that this node has put aside", dead_letters),
            (
                "fleet_gates_rebuilt",
                "Sequencers of coupons and logs of rooms that this node has rebuilt from the database",
                rebuilt,
            ),
            (
                "fleet_logs_resumed",
                "Logs of rooms of which an end may have been lost, and that this node has gone on with",
                resumed,
            ),
            ("redis_requests", "Commands of rooms and coupons that were handed to Redis", link.requests),
            ("redis_reconnects", "Times that their connection to Redis was made again", link.reconnects),
            (
                "redis_resubscriptions",
                "Times that the messages of other nodes were subscribed again",
                link.resubscriptions,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        let redis = self.0.link().round_trips().lasted_us();
        histogram(
            &mut encoder,
            "redis_round_trip_seconds",
            "Time to an answer of Redis to a command",
            redis,
            1_000_000,
        )?;
        let database = self.0.database_round_trips().lasted_us();
        let help = "Time to an answer of the database to statements of rooms, coupons and keys that were sent at once";
        histogram(&mut encoder, "database_round_trip_seconds", help, database, 1_000_000)?;
        let help = "When the database took a transaction of this node for the last time; 0 if never";
        last_success(&mut encoder, "database_last_commit_timestamp", help, self.0.last_commit())?;
        let help = "Claims of callers at this node that the database does not hold yet";
        let unwritten = encoder.encode_descriptor("fleet_claims_unwritten", help, None, MetricType::Gauge)?;
        ConstGauge::new(counts.unwritten as f64).encode(unwritten)?;
        let help = "How long the oldest of them waits at least";
        let unit = Some(&Unit::Seconds);
        let age = encoder.encode_descriptor("fleet_claims_unwritten_age", help, unit, MetricType::Gauge)?;
        ConstGauge::new(counts.unwritten_age.as_secs_f64()).encode(age)?;
        let age = ConstGauge::new(self.0.api_keys_age().as_secs_f64());
        let help = "How old the copy of the API keys may be by which this node judges calls";
        let unit = Some(&Unit::Seconds);
        age.encode(encoder.encode_descriptor("api_keys_age", help, unit, MetricType::Gauge)?)?;
        super::room::totals(&mut encoder, &self.0.room_totals())
    }
}

/// An instant by which a query sees how long something has not gone well.
pub(super) fn last_success(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    at: Option<Timestamp>,
) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
    ConstGauge::new(at.map_or(0.0, |at| at.as_us() as f64 / 1e6)).encode(metric)
}
