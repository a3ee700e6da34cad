//! Publishes the heads of rooms and coupons, every second while the service runs.

use crate::state::App;
use std::time::Duration;

/// How often heads are published, unless an operator says otherwise.
pub(crate) const HEADS_EVERY: Duration = Duration::from_secs(1);

impl App {
    /// Publishes heads from time to time. Never returns. Several callers in one service publish no more than one.
    pub(crate) async fn keep_publishing(&self) {
        let Some(period) = self.config.heads_every.filter(|_| !self.is_auctions_alone) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(period).await;
            let published = tokio::time::timeout(self.config.limits.answer, self.backend.publish_heads()).await;
            match published {
                Ok(Ok(())) => {
                    self.metrics.heads.rounds.inc();
                }
                Ok(Err(error)) => self.head_failed(&error.to_string()),
                Err(_) => self.head_failed("the store did not answer in time"),
            }
        }
    }

    fn head_failed(&self, error: &str) {
        self.metrics.heads.failures.inc();
        if let Some(left_out) = self.unpublished.pass() {
            tracing::warn!(error, left_out, "cannot publish heads: receipts wait for them");
        }
    }
}
