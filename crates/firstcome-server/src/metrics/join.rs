//! Metrics of anonymous joins.

use crate::joins::Cap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// The metric handles, looked up once.
pub(crate) struct JoinFigures {
    refused: [Counter; Cap::ALL.len()],
}

impl JoinFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let refused = Family::<LimitLabels, Counter>::default();
        registry.register("joins_refused", "Anonymous joins over a limit, by whose limit it is", refused.clone());
        Self { refused: Cap::ALL.map(|cap| refused.get_or_create(&LimitLabels { limit: cap.as_str() }).clone()) }
    }

    /// Counts a join that a cap has refused.
    pub(crate) fn refused(&self, cap: Cap) {
        self.refused[cap as usize].inc();
    }
}
