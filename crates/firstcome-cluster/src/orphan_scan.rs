//! Looks after claims that were told before SQL had them, when a caller that told them has gone: with all nodes, or alone and no caller
//! else claims.

use super::node::Node;
use super::outbox_writer;
use firstcome_store::StoreError;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks at all coupons.
const EVERY: Duration = Duration::from_secs(10);
/// Coupons that are read at once.
const COUPONS_AT_ONCE: u32 = 256;

/// Goes on while the node is there; at once for the first time.
pub(super) async fn scan_orphans(node: Weak<Node>) {
    loop {
        let mut after = Some(0);
        while let Some(from) = after {
            let Some(node) = node.upgrade() else { return };
            // While either side does not answer there is nothing that could be done.
            after = node.scan_orphans_page(from).await.unwrap_or(None);
        }
        sleep(EVERY).await;
    }
}

impl Node {
    /// Begins to drain what waits of some coupons, those after this number; the last one that it looked at. One round trip, and
    /// one for each coupon.
    async fn scan_orphans_page(self: &Arc<Self>, after: i64) -> Result<Option<i64>, StoreError> {
        let rows = self.database.early_coupons(after, COUPONS_AT_ONCE).await?;
        let last = rows.last().map(|row| row.id);
        for row in rows {
            let (keys, generation, position) =
                (super::sequencer::Keys { coupon: row.id }, row.generation, row.position);
            let probe = self.sequencer.probe(keys, generation, position).await?;
            let is_of_it = probe.generation == Some(generation);
            if let Some(ticket) = probe.ticket.filter(|ticket| is_of_it && position < *ticket) {
                let state = self.keep(row);
                outbox_writer::see_to(self, &state, generation, ticket);
                outbox_writer::ensure_writer(self, &state);
            }
        }
        Ok(last)
    }
}
