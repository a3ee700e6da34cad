//! Metrics of streams.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamEnd {
    /// A slot is offered to the visitor.
    Turn,
    /// Only a poll can tell what has become of the ticket.
    Poll,
    /// The stream has lasted for its time.
    Renew,
    /// The service stops.
    Stopping,
    /// The room could not be looked at for a while.
    Unavailable,
    /// The session of the operator is over.
    Session,
}

impl StreamEnd {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Turn, "turn"),
        (Self::Poll, "poll"),
        (Self::Renew, "renew"),
        (Self::Stopping, "stopping"),
        (Self::Unavailable, "unavailable"),
        (Self::Session, "session"),
    ];

    /// The name, in figures and in events.
    pub(crate) const fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct EndLabels {
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// The metric handles, looked up once. Clones count into the same metrics.
#[derive(Clone)]
pub(crate) struct LiveFigures {
    /// Open streams of visitors.
    pub(crate) tickets: Gauge,
    /// Open streams of operators.
    pub(crate) operators: Gauge,
    /// Streams refused because too many were open.
    pub(crate) refused: Counter,
    /// Events that were written, without heartbeats.
    pub(crate) events: Counter,
    /// Wake-ups of the tasks that feed streams: one per room and tick, however many streams the room has.
    pub(crate) ticks: Counter,
    ends: [Counter; StreamEnd::ALL.len()],
}

impl LiveFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let streams = Family::<KindLabels, Gauge>::default();
        registry.register("streams", "Open streams of events, by the kind of their reader", streams.clone());
        let ends = Family::<EndLabels, Counter>::default();
        registry.register("streams_ended", "Streams that the service ended, by the reason", ends.clone());
        let mut counter = |name, help| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        // Each look into the family ends before the next one: it holds a lock.
        let of_kind = |kind| streams.get_or_create(&KindLabels { kind }).clone();
        Self {
            tickets: of_kind("ticket"),
            operators: of_kind("operator"),
            refused: counter("streams_refused", "Streams refused because too many were open"),
            events: counter("stream_events", "Events written to streams, without heartbeats"),
            ticks: counter("stream_ticks", "Wake-ups of the tasks that feed streams: one per room and tick"),
            ends: StreamEnd::ALL.map(|(_, reason)| ends.get_or_create(&EndLabels { reason }).clone()),
        }
    }

    /// Counts a stream that the service ended.
    pub(crate) fn ended(&self, end: StreamEnd) {
        self.ends[end as usize].inc();
    }
}
