//! Receipts over HTTP.

use crate::HttpStore;
use crate::call::{Call, CallReply};
use crate::coupon;
use crate::room;
use firstcome_store::core::id::{CouponName, NameError, RoomName, UserId};
use firstcome_store::core::limits::NAME_BYTES_MAX;
use firstcome_store::receipt::HEADS_PER_PAGE_MAX;
use firstcome_store::{Answer, HeadPage, Receipt, ReceiptReply, ReceiptStore, RoomAnswer, StoreError};

/// The code of a page that begins later, since a purge removed its first heads, and of a receipt that would name such heads.
const HEADS_REMOVED: &str = "heads_removed";

impl CallReply {
    /// Reads a text with its own reader.
    fn read_text<T, E>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, StoreError> {
        let text = std::str::from_utf8(self.body()).map_err(|_| self.strange())?;
        parse(text).map_err(|_| self.strange())
    }

    fn page(&self) -> Result<HeadPage, StoreError> {
        self.read_text(HeadPage::parse)
    }

    /// Reads a receipt; `None` if it is a refusal that is no matter of receipts.
    fn receipt(&self) -> Result<Option<ReceiptReply>, StoreError> {
        if self.is_yes() {
            let receipt = self.read_text(Receipt::parse)?;
            return Ok(Some(ReceiptReply::Ready(Box::new(receipt))));
        }
        Ok(match self.problem().as_ref().map(|problem| problem.code()) {
            Some("receipt_pending") => Some(ReceiptReply::Pending),
            Some("unknown_claim") => Some(ReceiptReply::Absent),
            Some(HEADS_REMOVED) => Some(ReceiptReply::Removed),
            _ => None,
        })
    }
}

fn heads(of: &str, after: u64, count: usize) -> Call {
    Call::get(format!("{of}/heads?after={after}&limit={}", count.clamp(1, HEADS_PER_PAGE_MAX)))
}

impl HttpStore {
    /// Reads a page of heads. After a purge it begins with the first head that is left: two requests.
    async fn heads_of(&self, of: &str, after: u64, count: usize) -> Result<CallReply, StoreError> {
        let told = self.service.call(&heads(of, after, count)).await?;
        let is_removed = told.problem().is_some_and(|problem| problem.code() == HEADS_REMOVED);
        // The service refuses a client that comes too late. The port shows the gap by the first sequence of the page.
        if is_removed && 0 < after { self.service.call(&heads(of, 0, count)).await } else { Ok(told) }
    }
}

impl ReceiptStore for HttpStore {
    /// Sends nothing: the service publishes by itself, every second.
    async fn publish_heads(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn room_heads(&self, name: &RoomName, after: u64, count: usize) -> RoomAnswer<HeadPage> {
        let told = self.heads_of(&room::path(name), after, count).await?;
        if told.is_yes() { Ok(Ok(told.page()?)) } else { room::refused(&told) }
    }

    async fn coupon_heads(&self, name: &CouponName, after: u64, count: usize) -> Answer<HeadPage> {
        let told = self.heads_of(&coupon::path(name), after, count).await?;
        if told.is_yes() { Ok(Ok(told.page()?)) } else { coupon::refused(&told, None) }
    }

    async fn ticket_receipt(&self, name: &RoomName, ticket: &str) -> RoomAnswer<ReceiptReply> {
        if !room::may_be_ticket(ticket) {
            return self.no_ticket(name).await;
        }
        let told = self.service.call(&Call::get(format!("{}/tickets/{ticket}/receipt", room::path(name)))).await?;
        match told.receipt()? {
            Some(reply) => Ok(Ok(reply)),
            None => room::refused(&told),
        }
    }

    async fn claim_receipt(&self, name: &CouponName, user: &str) -> Answer<ReceiptReply> {
        let may_claim = matches!(UserId::parse(user), Ok(_) | Err(NameError::Reserved));
        if !may_claim || NAME_BYTES_MAX < user.len() {
            // The service refuses such names. No claim has one, so only the coupon is in question.
            return Ok(self.coupon_heads(name, 0, 1).await?.map(|_| ReceiptReply::Absent));
        }
        let path = format!("{}/claims/{}/receipt", coupon::path(name), coupon::segment(user));
        let told = self.service.call(&Call::get(path)).await?;
        match told.receipt()? {
            Some(reply) => Ok(Ok(reply)),
            None => coupon::refused(&told, None),
        }
    }
}
