//! Purges what is over: every hour while the service runs, and when an operator asks for it.

use crate::backend::Backend;
use crate::state::App;
use firstcome::purge::{PurgeMode, PurgeRequest};
use firstcome::{Fault, FaultKind, PurgeAnswer, PurgeStore, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// How often the service purges, unless its configuration says otherwise.
pub(crate) const PURGE_EVERY: Duration = Duration::from_secs(3_600);
/// When the first purge begins after a start: callers who return come first.
const FIRST_AFTER: Duration = Duration::from_secs(60);

impl App {
    /// Whether this service can purge its store.
    pub(crate) const fn purges(&self) -> bool {
        matches!(self.backend, Backend::Embedded(_)) && !self.is_auctions_alone
    }

    /// Purges now, and tells log and metrics what came of it.
    pub(crate) async fn purge(&self, request: PurgeRequest) -> PurgeAnswer {
        let Backend::Embedded(store) = &self.backend else {
            let fault = Fault::new(FaultKind::Unfit, "this service purges nothing");
            return Err(StoreError::Faulted(Arc::new(fault)));
        };
        let answer = store.purge(request).await;
        if request.mode == PurgeMode::Count {
            return answer;
        }
        match &answer {
            Ok(Ok(purged)) => {
                self.metrics.purges.ended(purged, self.backend.now());
                let (requests, tickets, claims) = (purged.requests, purged.tickets, purged.claims);
                tracing::info!(requests, tickets, claims, "purged what is over");
            }
            Ok(Err(refused)) => tracing::warn!(code = refused.code(), "nothing was purged: {refused}"),
            Err(error) => tracing::warn!(%error, "a purge did not end: the next one goes on"),
        }
        answer
    }

    /// Purges from time to time. Never returns.
    pub(crate) async fn keep_purging(&self) {
        let Some(period) = self.config.purge_every.filter(|_| self.purges()) else {
            return std::future::pending().await;
        };
        tokio::time::sleep(FIRST_AFTER.min(period)).await;
        loop {
            // The log has what came of it.
            let _ = self.purge(PurgeRequest::new(self.config.retention)).await;
            tokio::time::sleep(period).await;
        }
    }
}
