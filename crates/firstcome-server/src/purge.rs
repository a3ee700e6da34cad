//! Purges what is over: every hour while the service runs, and when an operator asks for it.

use crate::state::App;
use firstcome::core::time::Timestamp;
use firstcome::purge::{PurgeMode, PurgeRejection, PurgeRequest};
use firstcome::{PurgeAnswer, Purged};
use std::time::Duration;

/// How often the service purges, unless its configuration says otherwise.
pub(crate) const PURGE_EVERY: Duration = Duration::from_secs(3_600);
/// When the first purge begins after a start: callers who return come first.
const FIRST_AFTER: Duration = Duration::from_secs(60);

impl App {
    /// Purges now, and tells log and metrics what came of it.
    pub(crate) async fn purge(&self, request: PurgeRequest) -> PurgeAnswer {
        let mut removed = Purged::default();
        let answer = self.purges.purge(request, &mut removed).await;
        if request.mode == PurgeMode::Count {
            return answer;
        }
        match &answer {
            Ok(Ok(purged)) => {
                self.metrics.purges.ended(purged, self.backend.now());
                let (requests, tickets, admissions) = (purged.requests, purged.tickets, purged.admissions);
                let (claims, coupons, dead_letters) = (purged.claims, purged.coupons, purged.dead_letters);
                let (records, heads) = (purged.records, purged.heads);
                tracing::info!(
                    requests,
                    tickets,
                    admissions,
                    claims,
                    coupons,
                    dead_letters,
                    records,
                    heads,
                    "purged what is over"
                );
            }
            // One node purges for all.
            Ok(Err(PurgeRejection::Running)) => tracing::debug!("another purge runs"),
            Ok(Err(refused)) => tracing::warn!(code = refused.code(), "nothing was purged: {refused}"),
            Err(error) => {
                self.metrics.purges.removed(&removed);
                tracing::warn!(%error, "a purge did not end: the next one goes on");
            }
        }
        answer
    }

    /// Whether a purge is due, as far as other processes of this store purge.
    async fn is_purge_due(&self, period: Duration) -> bool {
        let Ok(age) = self.purges.last_age().await else {
            // The purge finds out, and says so.
            return true;
        };
        let Some(age) = age.filter(|age| *age < period) else { return true };
        let age_us = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        self.metrics.purges.seen(Timestamp::clamped_us(self.backend.now().as_us().saturating_sub(age_us)));
        false
    }

    /// Purges from time to time. Never returns.
    pub(crate) async fn keep_purging(&self) {
        let Some(period) = self.config.purge_every else { return std::future::pending().await };
        let look_every = self.purges.look_every(period);
        tokio::time::sleep(FIRST_AFTER.min(look_every)).await;
        loop {
            if self.is_purge_due(period).await {
                // The log has what came of it.
                let _ = self.purge(PurgeRequest::new(self.config.retention)).await;
            }
            tokio::time::sleep(look_every).await;
        }
    }
}
