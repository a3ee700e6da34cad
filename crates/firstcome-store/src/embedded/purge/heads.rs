//! The caller's part of a purge of heads: it looks for chains whose first heads are old.

use super::{PurgePage, Purged};
use crate::embedded::{Embedded, Shared, blocking};
use crate::error::StoreError;
use crate::purge::{PAGE_ROWS_MAX, PurgeMode};
use crate::receipt::removable_to;
use firstcome_core::receipt::Object;
use firstcome_core::time::Timestamp;
use std::sync::Arc;

/// How many heads a page of [`PAGE_ROWS_MAX`] looks at: one more, since the last one stays.
const HEADS_PER_LOOK: usize = PAGE_ROWS_MAX + 1;

impl Shared {
    /// Returns what has more than one head.
    fn with_heads(&self) -> Vec<Object> {
        let rooms = self.rooms.read();
        let of_rooms = rooms.iter().filter(|(_, cell)| cell.published.has_several());
        let of_rooms = of_rooms.map(|(name, _)| Object::Room(name.clone()));
        let coupons = self.coupons.read();
        let of_coupons = coupons.iter().filter(|(_, cell)| cell.published.has_several());
        of_rooms.chain(of_coupons.map(|(name, _)| Object::Coupon(name.clone()))).collect()
    }
}

impl Embedded {
    /// Removes heads before `since`, or counts them.
    pub(super) async fn purge_heads(
        &self,
        since: Timestamp,
        mode: PurgeMode,
        purged: &mut Purged,
    ) -> Result<(), StoreError> {
        for object in self.inner.shared.with_heads() {
            // Most chains have nothing to go: their first two heads show it.
            let mut next = self.removable(&object, 0, 2, since).await?.map(|_| 0);
            while let Some(after) = next {
                let Some((to, count)) = self.removable(&object, after, HEADS_PER_LOOK, since).await? else { break };
                if mode == PurgeMode::Count {
                    purged.heads += count;
                } else {
                    *purged += self.purge_page(PurgePage::Heads { object: object.clone(), to, count }).await?.purged;
                }
                next = Some(to);
            }
        }
        Ok(())
    }

    /// Up to which sequence a page of heads after `after` may go, and how many these are.
    async fn removable(
        &self,
        object: &Object,
        after: u64,
        count: usize,
        since: Timestamp,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let (rows, object) = (Arc::clone(&self.inner.shared.rows), object.clone());
        let page = blocking(move || rows.heads(&object, after, count)).await?;
        let page: Vec<_> = page.iter().map(|signed| (signed.head.sequence, signed.head.at)).collect();
        Ok(removable_to(&page, since))
    }
}
