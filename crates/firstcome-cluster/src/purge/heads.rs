//! Rows of published heads.

use super::{OBJECTS_AT_ONCE, Purge, PurgeMode};
use crate::database::CHAINS;
use firstcome_core::time::Timestamp;
use firstcome_store::StoreError;
use firstcome_store::receipt::removable_to;

impl Purge<'_> {
    /// Heads of rooms and coupons before this instant.
    pub(super) async fn heads(&mut self, since: Timestamp) -> Result<bool, StoreError> {
        for chain in CHAINS {
            let mut after = i64::MIN;
            loop {
                let page = self.node.database.second_heads(chain, after, OBJECTS_AT_ONCE).await?;
                let Some((last, _)) = page.last() else { break };
                after = *last;
                for (id, second) in page {
                    if second.is_some_and(|second| second < since) && !self.heads_of((chain.0, id), since).await? {
                        return Ok(false);
                    }
                }
                if !self.pause().await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn heads_of(&mut self, object: (u8, i64), since: Timestamp) -> Result<bool, StoreError> {
        let mut after = 0;
        loop {
            let page = self.node.database.dated_heads(object, after).await?;
            let Some((to, count)) = removable_to(&page, since) else { return Ok(true) };
            if self.mode == PurgeMode::Remove {
                self.node.database.remove_heads(object, to).await?;
            }
            self.purged.heads += count;
            after = to;
            if !self.pause().await? {
                return Ok(false);
            }
        }
    }
}
