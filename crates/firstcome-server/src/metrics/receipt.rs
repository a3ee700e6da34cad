//! Counters of published heads.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// How often heads were published.
pub(crate) struct HeadFigures {
    pub(crate) rounds: Counter,
    pub(crate) failures: Counter,
}

impl HeadFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut counter = |name, help| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            rounds: counter("head_rounds", "Times that this process published the heads that were due"),
            failures: counter("head_failures", "Times that it could not, so that receipts wait"),
        }
    }
}
