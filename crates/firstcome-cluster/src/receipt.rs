//! Implements the port for receipts on a cluster: heads are rows in SQL, and any node may publish the next one.
//!
//! The figures of a room are those of the log after everything that was in it before the call. Numbers among them may not be in
//! SQL yet. No number is ever given twice, since their ceiling is, so no later head contradicts it. The figures of a coupon are
//! those of SQL.

use crate::Cluster;
use crate::coupon_state::CouponState;
use crate::database::{Database, HeadKeys};
use crate::node::Node;
use firstcome_core::coupon;
use firstcome_core::id::{CouponName, RoomName, UserId};
use firstcome_core::receipt::{Digest, Figures, Head, Object, Rhythm, Subject};
use firstcome_core::room::replica::Replica;
use firstcome_core::room::{self, Rejection, TicketNumber};
use firstcome_core::time::{Now, Timestamp};
use firstcome_sql::boxed::boxed;
use firstcome_store::receipt::{
    HEADS_PER_PAGE_MAX, HeadKey, HeadPage, HeadWanted, PublishedHeads, ReceiptReply, ReceiptStore, SignedHead,
    receipt_of,
};
use firstcome_store::{Answer, RoomAnswer, StoreError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What this node knows to be published: without a change since, it asks no server.
#[derive(Default)]
pub(crate) struct Published(Mutex<HashMap<Object, Figures>>);

impl Published {
    fn has_said(&self, object: &Object, figures: Figures) -> bool {
        self.0.lock().get(object).is_some_and(|known| *known == figures)
    }

    fn learn(&self, head: &Head) {
        self.0.lock().insert(head.object.clone(), head.figures);
    }
}

/// The rows of one object.
struct Rows<'a>(&'a Database, HeadKeys);

impl PublishedHeads for Rows<'_> {
    async fn after(&self, _: &Object, after: u64, count: usize) -> Result<Vec<SignedHead>, StoreError> {
        Ok(self.0.heads(&self.1, after, count).await?)
    }

    async fn first(&self, _: &Object, wanted: HeadWanted) -> Result<Option<SignedHead>, StoreError> {
        Ok(self.0.first_head(&self.1, wanted).await?)
    }
}

/// A room, as it is for its next head.
fn room_now(replica: &Replica, now: Now) -> (Figures, Timestamp, Rhythm) {
    let room = replica.room();
    let rhythm = if room.is_idle() { Rhythm::OnChange } else { Rhythm::EachSecond };
    (room.figures(), now.wall, rhythm)
}

impl Node {
    /// Publishes the heads that are due, object by object. Goes on after an error, and returns the last one.
    async fn publish_heads(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut result = Ok(());
        let rooms: Vec<RoomName> = self.rooms.lock().keys().cloned().collect();
        for name in rooms {
            if let Err(error) = boxed(self.publish_room(&name)).await {
                result = Err(error);
            }
        }
        let coupons: Vec<Arc<CouponState>> = self.by_name.lock().values().map(Arc::clone).collect();
        for state in coupons {
            if let Err(error) = boxed(self.publish_coupon(&state)).await {
                result = Err(error);
            }
        }
        result
    }

    async fn publish_room(self: &Arc<Self>, name: &RoomName) -> Result<(), StoreError> {
        let Some(room_node) = self.rooms.lock().get(name).map(Arc::clone) else { return Ok(()) };
        let object = Object::Room(name.clone());
        let Some((figures, _, rhythm)) = room_node.copied(|replica| room_now(replica, replica.now())) else {
            return Ok(());
        };
        if rhythm == Rhythm::OnChange && self.published.has_said(&object, figures) {
            return Ok(());
        }
        let Ok((figures, at, rhythm)) = self.seen(name, room_now).await? else { return Ok(()) };
        let keys = HeadKeys { object, id: room_node.keys.room };
        self.publish(keys, || room_node.head_key(), figures, at, rhythm).await
    }

    async fn publish_coupon(&self, state: &CouponState) -> Result<(), StoreError> {
        let row = state.row();
        let object = Object::Coupon(row.name.clone());
        let figures = Figures::Coupon { limit: row.settings.limit.get(), issued: row.issued };
        if row.issued == 0 || self.published.has_said(&object, figures) {
            return Ok(());
        }
        let keys = HeadKeys { object, id: row.id };
        self.publish(keys, || row.voucher_key.head_key(), figures, row.last_at, Rhythm::OnChange).await
    }

    async fn publish(
        &self,
        keys: HeadKeys,
        key: impl FnOnce() -> HeadKey,
        figures: Figures,
        at: Timestamp,
        rhythm: Rhythm,
    ) -> Result<(), StoreError> {
        let last = self.database.last_head(&keys).await?.map(|signed| signed.head);
        match Head::next(last.as_ref(), &keys.object, figures, at, rhythm) {
            // Another node may be first with another head of this sequence. The next call reads which one counts.
            Some(head) => self.database.put_head(&keys, &key().head(head)).await?,
            None => {
                if let Some(last) = last {
                    self.published.learn(&last);
                }
            }
        }
        Ok(())
    }

    async fn page(&self, keys: HeadKeys, key: &HeadKey, after: u64, count: usize) -> Result<HeadPage, StoreError> {
        let heads = self.database.heads(&keys, after, count.min(HEADS_PER_PAGE_MAX)).await?;
        Ok(HeadPage { key: key.public(), heads })
    }

    async fn room_heads(self: &Arc<Self>, name: &RoomName, after: u64, count: usize) -> RoomAnswer<HeadPage> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let keys = HeadKeys { object: Object::Room(name.clone()), id: room_node.keys.room };
        self.page(keys, &room_node.head_key(), after, count).await.map(Ok)
    }

    async fn coupon_heads(&self, name: &CouponName, after: u64, count: usize) -> Answer<HeadPage> {
        let Some(state) = self.state(name).await? else { return Ok(Err(coupon::Rejection::UnknownCoupon.into())) };
        let keys = HeadKeys { object: Object::Coupon(name.clone()), id: state.keys.coupon };
        self.page(keys, &state.row().voucher_key.head_key(), after, count).await.map(Ok)
    }

    async fn ticket_receipt(self: &Arc<Self>, name: &RoomName, ticket: &str) -> RoomAnswer<ReceiptReply> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let Some(shown) = room_node.ticket_id(ticket) else { return Ok(Err(Rejection::UnknownTicket)) };
        let number = shown.number;
        let found = self.seen(name, |replica, _| {
            let room = replica.room();
            room.judge_ticket(shown)?;
            if number.get() < room.first() || room.drawn() < number.get() {
                return Err(Rejection::UnknownTicket);
            }
            let slot = room.slot(number).filter(|_| !replica.unsettled(number));
            Ok(slot.map(|slot: room::Slot| (room.turn(number.get()), slot.admitted_at)))
        });
        let admitted = match found.await? {
            Ok(Ok(admitted)) => admitted,
            Ok(Err(rejection)) | Err(rejection) => return Ok(Err(rejection)),
        };
        let ticket = Digest::of(ticket);
        let subject = Subject::Ticket { room: name.clone(), number: number.get(), ticket, admission: None };
        let keys = HeadKeys { object: Object::Room(name.clone()), id: room_node.keys.room };
        let (rows, key) = (Rows(&self.database, keys), room_node.head_key());
        receipt_of(&rows, &key, subject, admitted).await.map(Ok)
    }

    async fn place_receipt(self: &Arc<Self>, name: &RoomName, number: TicketNumber) -> RoomAnswer<ReceiptReply> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let living = |replica: &Replica, _| room_node.living_ticket(replica.room(), number);
        match self.seen(name, living).await? {
            Ok(Some(ticket)) => self.ticket_receipt(name, &ticket).await,
            Ok(None) => Ok(Err(Rejection::UnknownTicket)),
            Err(rejection) => Ok(Err(rejection)),
        }
    }

    async fn claim_receipt(self: &Arc<Self>, name: &CouponName, user: &str) -> Answer<ReceiptReply> {
        let Some(state) = self.state(name).await? else { return Ok(Err(coupon::Rejection::UnknownCoupon.into())) };
        let claim = match self.claim_of(name, user).await? {
            Ok(claim) => claim,
            Err(refused) => return Ok(Err(refused)),
        };
        let Some((claim, user)) = claim.zip(UserId::restore(user).ok()) else { return Ok(Ok(ReceiptReply::Absent)) };
        let issued = claim.claimed.issued;
        let (serial, issued_at) = (issued.serial.get(), issued.issued_at);
        let subject = Subject::Claim { coupon: name.clone(), serial, user, issued_at };
        let keys = HeadKeys { object: Object::Coupon(name.clone()), id: state.keys.coupon };
        let key = state.row().voucher_key.head_key();
        receipt_of(&Rows(&self.database, keys), &key, subject, None).await.map(Ok)
    }
}

impl Cluster {
    /// Returns the receipt of the present ticket of a living place, for an operator, who has no ticket. See
    /// [`ReceiptStore::ticket_receipt`]. Refused: `unknown_room`; `unknown_ticket`, also once the place has ended.
    pub async fn place_receipt(&self, room: &RoomName, number: TicketNumber) -> RoomAnswer<ReceiptReply> {
        boxed(self.node.place_receipt(room, number)).await
    }
}

impl ReceiptStore for Cluster {
    async fn publish_heads(&self) -> Result<(), StoreError> {
        boxed(self.node.publish_heads()).await
    }

    async fn room_heads(&self, room: &RoomName, after: u64, count: usize) -> RoomAnswer<HeadPage> {
        boxed(self.node.room_heads(room, after, count)).await
    }

    async fn coupon_heads(&self, coupon: &CouponName, after: u64, count: usize) -> Answer<HeadPage> {
        boxed(self.node.coupon_heads(coupon, after, count)).await
    }

    async fn ticket_receipt(&self, room: &RoomName, ticket: &str) -> RoomAnswer<ReceiptReply> {
        boxed(self.node.ticket_receipt(room, ticket)).await
    }

    async fn claim_receipt(&self, coupon: &CouponName, user: &str) -> Answer<ReceiptReply> {
        boxed(self.node.claim_receipt(coupon, user)).await
    }
}
