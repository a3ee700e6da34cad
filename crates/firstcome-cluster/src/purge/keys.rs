//! Keys of coupons that are over leave Redis.
//!
//! A coupon that is over (deleted, or purged) never issues another claim: a transaction that writes claims checks the version of the
//! settings, which the end of the coupon has raised, and what still waits in the stream is refused. So the database alone
//! answers its claims, and its keys leave Redis as soon as nothing waits in its stream. No node makes a sequencer for it again.

use crate::back::Judged;
use crate::coupon_state::CouponState;
use crate::database::CouponRow;
use crate::node::Node;
use crate::outbox_writer;
use crate::sequencer::{Keys, Probe};
use firstcome_store::StoreError;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks for coupons that are over and still have keys.
const EVERY: Duration = Duration::from_secs(10);
/// Coupons that are read at once.
const COUPONS_AT_ONCE: u32 = 256;

impl Node {
    /// Deletes the keys of a coupon that is over, or sees to it that what waits in its stream is written down first. Nothing if it is not
    /// over. Five round trips.
    pub(crate) async fn end_keys(self: &Arc<Self>, state: &Arc<CouponState>) -> Result<(), StoreError> {
        if !self.end_drained(state).await? {
            outbox_writer::ensure_writer(self, state);
        }
        Ok(())
    }

    /// Deletes the keys of a coupon that is over; false if something waits in its stream.
    pub(crate) async fn end_drained(&self, state: &CouponState) -> Result<bool, StoreError> {
        let Judged { row, probe, is_whole } = self.judged(state).await?;
        if !row.is_over() {
            return Ok(true);
        }
        if !is_whole {
            self.end_broken(&row, &probe).await?;
            return Ok(true);
        }
        self.sequencer.adjust(state.keys, &row).await?;
        let is_gone = self.sequencer.end(state.keys, &[row.generation], row.generation, Some(row.position)).await?;
        if is_gone {
            self.database.note_keys_gone(row.id).await?;
        }
        Ok(is_gone)
    }

    /// Deletes what there is of the sequencer of a coupon that is over, where its stream does not go on from the database.
    pub(crate) async fn end_broken(&self, row: &CouponRow, probe: &Probe) -> Result<(), StoreError> {
        let mut generations = vec![row.generation];
        generations.extend(probe.generation.filter(|old| *old != row.generation));
        if self.sequencer.end(Keys { coupon: row.id }, &generations, row.generation, None).await? && !row.keys_gone {
            self.database.note_keys_gone(row.id).await?;
        }
        Ok(())
    }

    /// Forgets keys of requests that the database does not hold any more. One round trip, beside that which reads the coupon.
    ///
    /// If it fails, the sequencer takes such a key for one that it knows; the node then finds no row, and forgets it by itself.
    pub(super) async fn forget_keys(&self, coupon: i64, keys: &[u128]) -> Result<(), StoreError> {
        let generation = self.database.coupon_again(coupon).await?.generation;
        Ok(self.sequencer.forget_keys(Keys { coupon }, generation, keys).await?)
    }

    /// Looks at some coupons that are over, those after this number; the last one that it looked at.
    async fn end_page(self: &Arc<Self>, after: i64) -> Result<Option<i64>, StoreError> {
        let rows = self.database.coupons_with_keys(after, COUPONS_AT_ONCE).await?;
        let last = rows.last().map(|row| row.id);
        for row in rows {
            let state = self.keep(row);
            match self.end_keys(&state).await {
                // The database went back: the fault says it, and the keys are evidence.
                Ok(()) | Err(StoreError::Faulted(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(last)
    }
}

/// Deletes the keys of coupons that are over, while the node is there: those whose node has died meanwhile too.
pub(crate) async fn end_deleted(node: Weak<Node>) {
    loop {
        let mut after = Some(0);
        while let Some(from) = after {
            let Some(node) = node.upgrade() else { return };
            // While either side does not answer there is nothing that could be done.
            after = node.end_page(from).await.unwrap_or(None);
        }
        sleep(EVERY).await;
    }
}
