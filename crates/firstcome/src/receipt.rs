//! Receipts: proof of a number that its holder keeps, and that a client can check.

pub use firstcome_store::receipt::*;

use crate::error::{CouponError, RoomError, flat};
use crate::{CouponHandle, Store, WaitingRoom};
use firstcome_store::{CouponStore, RoomStore, StoreError};

impl<S: ReceiptStore, A> Store<S, A> {
    /// Publishes the next head of each room and coupon that needs one. Call it every second in a program without the HTTP
    /// service, which does so by itself. One commit in all; on a cluster two round trips for each room with visitors.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::core::room::RoomSettings;
    /// use firstcome::{ReceiptReply, Store};
    ///
    /// let store = Store::memory();
    /// let sale = store.room("sale")?;
    /// sale.put(RoomSettings::with_slots(1)).await?;
    /// let (_, ann) = sale.join().send().await?;
    /// assert_eq!(sale.receipt(&ann.ticket).await?, ReceiptReply::Pending);
    /// store.publish_heads().await?;
    /// let ReceiptReply::Ready(receipt) = sale.receipt(&ann.ticket).await? else { panic!("a head covers it") };
    /// receipt.verify()?; // needs no store: give `receipt.text()` to the visitor
    /// sale.heads(0, 100).await?.confirm(&receipt)?;
    /// # Ok(()) }
    /// ```
    pub async fn publish_heads(&self) -> Result<(), StoreError> {
        self.store.publish_heads().await
    }
}

impl<S: RoomStore + ReceiptStore> WaitingRoom<S> {
    /// Returns the receipt of a ticket, with the admission once a later head is published. No contact of the visitor. Reads at
    /// most four heads; [`ReceiptReply::Removed`] if a purge removed one of them. Refused: `unknown_room`, `unknown_ticket`,
    /// `ticket_renewed`. See [`Store::publish_heads`].
    pub async fn receipt(&self, ticket: &str) -> Result<ReceiptReply, RoomError> {
        flat(self.store.ticket_receipt(&self.name, ticket).await)
    }

    /// Returns published heads of the room after a sequence, at most 100. The page begins later if a purge removed heads
    /// ([`HeadPage::removed_to`]). Refused: `unknown_room`. See [`Store::publish_heads`].
    pub async fn heads(&self, after: u64, count: usize) -> Result<HeadPage, RoomError> {
        flat(self.store.room_heads(&self.name, after, count).await)
    }
}

impl<S: CouponStore + ReceiptStore> CouponHandle<S> {
    /// Returns the receipt of a user's claim. Reads at most two heads; [`ReceiptReply::Removed`] if a purge removed one of them.
    /// Refused: `unknown_coupon`. See [`Store::publish_heads`].
    pub async fn receipt(&self, user: &str) -> Result<ReceiptReply, CouponError> {
        flat(self.store.claim_receipt(&self.name, user).await)
    }

    /// Returns published heads of the coupon after a sequence, at most 100. The page begins later if a purge removed heads
    /// ([`HeadPage::removed_to`]). Refused: `unknown_coupon`. See [`Store::publish_heads`].
    pub async fn heads(&self, after: u64, count: usize) -> Result<HeadPage, CouponError> {
        flat(self.store.coupon_heads(&self.name, after, count).await)
    }
}
