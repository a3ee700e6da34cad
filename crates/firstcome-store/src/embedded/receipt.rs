//! The port for receipts over the embedded store, and the writer's part of it.
//!
//! The writer makes heads between two batches: everything that it has decided is durable then. So the figures of a head are exactly
//! those of the store, and it commits the heads of all rooms and coupons together.

use super::coupon::CouponCell;
use super::journal::{Change, Rows};
use super::room::RoomCell;
use super::writer::Log;
use super::{Command, Embedded, Reply, Shared, blocking};
use crate::error::StoreError;
use crate::port::{Answer, Refused};
use crate::receipt::{
    HEADS_PER_PAGE_MAX, HeadKey, HeadPage, HeadWanted, PublishedHeads, ReceiptReply, ReceiptStore, SignedHead,
    receipt_of,
};
use crate::room::RoomAnswer;
use firstcome_core::coupon::{self, Serial};
use firstcome_core::id::{CouponName, RoomName, UserId};
use firstcome_core::receipt::{Digest, Figures, Head, Object, Rhythm, Subject};
use firstcome_core::room::{self, TicketNumber};
use firstcome_core::time::{Now, Timestamp};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// What a room or a coupon has published.
#[derive(Default)]
pub(super) struct Published {
    key: OnceLock<HeadKey>,
    last: Mutex<Option<SignedHead>>,
}

impl Published {
    /// Makes and signs the next head, if one is due.
    fn next(
        &self,
        key: impl FnOnce() -> HeadKey,
        object: &Object,
        figures: Figures,
        at: Timestamp,
        rhythm: Rhythm,
    ) -> Option<SignedHead> {
        let last = self.last.lock();
        let head = Head::next(last.as_ref().map(|signed| &signed.head), object, figures, at, rhythm)?;
        Some(self.key.get_or_init(key).head(head))
    }

    /// Whether the chain may have more heads than the newest one.
    pub(super) fn has_several(&self) -> bool {
        self.last.lock().as_ref().is_some_and(|signed| 1 < signed.head.sequence)
    }

    /// Whether a head without changes would say nothing new.
    fn has_said(&self, figures: Figures) -> bool {
        self.last.lock().as_ref().is_some_and(|signed| signed.head.figures == figures)
    }
}

impl Shared {
    /// Continues the chains that were stored.
    pub(super) fn restore_heads(&self, heads: Vec<SignedHead>) {
        heads.into_iter().for_each(|signed| self.keep_head(signed));
    }

    fn keep_head(&self, signed: SignedHead) {
        match &signed.head.object {
            Object::Room(name) => {
                if let Some(cell) = self.room(name.as_str()) {
                    *cell.published.last.lock() = Some(signed);
                }
            }
            Object::Coupon(name) => {
                if let Some(cell) = self.cell(name.as_str()) {
                    *cell.published.last.lock() = Some(signed);
                }
            }
        }
    }

    fn due_heads(&self, now: Now) -> Vec<SignedHead> {
        let rooms = self.rooms.read();
        let of_rooms = rooms.iter().filter_map(|(name, cell)| room_head(name, cell, now));
        let coupons = self.coupons.read();
        let of_coupons = coupons.iter().filter_map(|(name, cell)| coupon_head(name, cell));
        of_rooms.chain(of_coupons).collect()
    }
}

fn room_head(name: &RoomName, cell: &RoomCell, now: Now) -> Option<SignedHead> {
    let (figures, rhythm) = {
        let room = &cell.kept.lock().room;
        (room.figures(), if room.is_idle() { Rhythm::OnChange } else { Rhythm::EachSecond })
    };
    if rhythm == Rhythm::OnChange && cell.published.has_said(figures) {
        return None;
    }
    cell.published.next(|| cell.ticket_key.head_key(), &Object::Room(name.clone()), figures, now.wall, rhythm)
}

fn coupon_head(name: &CouponName, cell: &CouponCell) -> Option<SignedHead> {
    let (figures, at) = {
        let coupon = cell.coupon.read();
        // A purged coupon has published all that it ever issued.
        let last = Serial::new(coupon.issued()).filter(|_| !coupon.is_purged())?;
        let figures = Figures::Coupon { limit: coupon.settings().limit.get(), issued: coupon.issued() };
        (figures, coupon.issued_as(last).issued_at)
    };
    if cell.published.has_said(figures) {
        return None;
    }
    cell.published.next(|| cell.voucher_key.head_key(), &Object::Coupon(name.clone()), figures, at, Rhythm::OnChange)
}

/// Publishes the heads that are due, in a separate commit.
pub(super) fn publish(log: &mut Log, now: Now) -> Result<(), StoreError> {
    log.check()?;
    let due = log.shared.due_heads(now);
    log.commit_all(due.iter().map(|signed| Change::Headed(Box::new(signed.clone()))))?;
    due.into_iter().for_each(|signed| log.shared.keep_head(signed));
    Ok(())
}

/// The stored heads, read where that blocks no other task.
struct Stored(Arc<dyn Rows>);

impl PublishedHeads for Stored {
    async fn after(&self, object: &Object, after: u64, count: usize) -> Result<Vec<SignedHead>, StoreError> {
        let (rows, object) = (Arc::clone(&self.0), object.clone());
        blocking(move || rows.heads(&object, after, count)).await
    }

    async fn first(&self, object: &Object, wanted: HeadWanted) -> Result<Option<SignedHead>, StoreError> {
        let (rows, object) = (Arc::clone(&self.0), object.clone());
        blocking(move || rows.first_head(&object, wanted)).await
    }
}

impl Embedded {
    fn stored_heads(&self) -> Stored {
        Stored(Arc::clone(&self.inner.shared.rows))
    }

    /// Returns the receipt of the present ticket of a living place, for an operator, who has no ticket. See
    /// [`ReceiptStore::ticket_receipt`]. Refused: `unknown_room`; `unknown_ticket`, also once the place has ended.
    pub async fn place_receipt(&self, room: &RoomName, number: TicketNumber) -> RoomAnswer<ReceiptReply> {
        let Some(cell) = self.inner.shared.room(room.as_str()) else { return Ok(Err(room::Rejection::UnknownRoom)) };
        match cell.living_ticket(number) {
            Some(ticket) => self.ticket_receipt(room, &ticket).await,
            None => Ok(Err(room::Rejection::UnknownTicket)),
        }
    }

    async fn page(&self, object: Object, key: &HeadKey, after: u64, count: usize) -> Result<HeadPage, StoreError> {
        let heads = self.stored_heads().after(&object, after, count.min(HEADS_PER_PAGE_MAX)).await?;
        Ok(HeadPage { key: key.public(), heads })
    }
}

impl RoomCell {
    fn head_key(&self) -> &HeadKey {
        self.published.key.get_or_init(|| self.ticket_key.head_key())
    }

    fn living_ticket(&self, number: TicketNumber) -> Option<String> {
        let kept = self.kept.lock();
        kept.room.living_ticket(number).map(|(id, user)| self.ticket_key.ticket(id, user))
    }

    /// Returns what a ticket stands for, and its turn and the instant of its admission if it is inside.
    fn subject(&self, name: &RoomName, ticket: &str) -> Result<(Subject, Option<(u32, Timestamp)>), room::Rejection> {
        let shown = self.ticket_key.id(ticket).ok_or(room::Rejection::UnknownTicket)?;
        let number = shown.number;
        let kept = self.kept.lock();
        kept.room.judge_ticket(shown)?;
        let (first, drawn) = (kept.room.first(), kept.room.drawn());
        if number.get() < first || drawn < number.get() {
            return Err(room::Rejection::UnknownTicket);
        }
        let slot = kept.room.slot(number).filter(|_| !kept.is_unsettled(number));
        let admitted = slot.map(|slot| (kept.room.turn(number.get()), slot.admitted_at));
        let ticket = Digest::of(ticket);
        Ok((Subject::Ticket { room: name.clone(), number: number.get(), ticket, admission: None }, admitted))
    }
}

impl CouponCell {
    fn head_key(&self) -> &HeadKey {
        self.published.key.get_or_init(|| self.voucher_key.head_key())
    }

    /// Returns the durable claim of a user.
    fn subject(&self, name: &CouponName, user: &str) -> Option<Subject> {
        let serial = self.serial_of(user)?;
        let issued_at = self.coupon.read().claim_at(serial)?.1.issued_at;
        let user = UserId::restore(user).ok()?;
        Some(Subject::Claim { coupon: name.clone(), serial: serial.get(), user, issued_at })
    }
}

impl ReceiptStore for Embedded {
    async fn publish_heads(&self) -> Result<(), StoreError> {
        let (reply, answer) = Reply::<(), coupon::Rejection>::pair();
        // No rule refuses it.
        self.ask(Command::PublishHeads { reply }, answer).await.map(drop)
    }

    async fn room_heads(&self, room: &RoomName, after: u64, count: usize) -> RoomAnswer<HeadPage> {
        let Some(cell) = self.inner.shared.room(room.as_str()) else { return Ok(Err(room::Rejection::UnknownRoom)) };
        self.page(Object::Room(room.clone()), cell.head_key(), after, count).await.map(Ok)
    }

    async fn coupon_heads(&self, coupon: &CouponName, after: u64, count: usize) -> Answer<HeadPage> {
        let cell = match self.cell(coupon) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection.into())),
        };
        self.page(Object::Coupon(coupon.clone()), cell.head_key(), after, count).await.map(Ok)
    }

    async fn ticket_receipt(&self, room: &RoomName, ticket: &str) -> RoomAnswer<ReceiptReply> {
        let Some(cell) = self.inner.shared.room(room.as_str()) else { return Ok(Err(room::Rejection::UnknownRoom)) };
        let (subject, admitted) = match cell.subject(room, ticket) {
            Ok(found) => found,
            Err(rejection) => return Ok(Err(rejection)),
        };
        receipt_of(&self.stored_heads(), cell.head_key(), subject, admitted).await.map(Ok)
    }

    async fn claim_receipt(
        &self,
        coupon: &CouponName,
        user: &str,
    ) -> Result<Result<ReceiptReply, Refused>, StoreError> {
        let cell = match self.cell(coupon) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection.into())),
        };
        let Some(subject) = cell.subject(coupon, user) else { return Ok(cell.shows(ReceiptReply::Absent)) };
        receipt_of(&self.stored_heads(), cell.head_key(), subject, None).await.map(Ok)
    }
}
