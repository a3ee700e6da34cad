//! Gauges of rooms: the same on every store.

use firstcome::RoomTotals;
use firstcome::core::room::RateReason;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Writes the sums over all rooms.
pub(super) fn totals(encoder: &mut DescriptorEncoder<'_>, totals: &RoomTotals) -> fmt::Result {
    for (name, help, value) in [
        (
            "rooms",
            "Rooms, closed ones included; on a cluster, those of which this node has a replica",
            totals.rooms as f64,
        ),
        ("room_waiting", "Visitors in line, over these rooms", totals.waiting as f64),
        ("room_active", "Slots offered or taken, over these rooms", totals.active as f64),
        ("room_arrivals_per_second", "Visitors who took their slots lately, over these rooms", totals.arrivals_per_s),
        (
            "room_made_up_per_second",
            "Visitors admitted lately in place of others who did not come, over these rooms",
            totals.made_up_per_s,
        ),
        (
            "room_origin_share_min",
            "The smallest part of its limit that reports of the origin leave one of these rooms, 0.25 to 1",
            totals.origin_share_min,
        ),
    ] {
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)?;
    }
    let help = "Tickets that ended because their visitors never polled, over these rooms, since this process took up each; on a cluster, at any node";
    let metric = encoder.encode_descriptor("room_unpolled", help, None, MetricType::Counter)?;
    ConstCounter::new(totals.unpolled).encode(metric)?;
    let help = "How many of these rooms have their present rate for this reason";
    let mut metric = encoder.encode_descriptor("room_rate_reasons", help, None, MetricType::Gauge)?;
    for (reason, count) in RateReason::ALL.into_iter().zip(totals.reasons) {
        let labels = ReasonLabels { reason: reason.as_str() };
        ConstGauge::new(count as f64).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
