//! What an operator sees of the embedded store beyond its ports: all names, and a place in a room.

use super::Embedded;
use crate::names::Names;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_core::room::{PlaceKey, PlaceView, Rejection, TicketId};

impl Embedded {
    /// Lists coupons by name, deleted ones included. Looks at each name.
    pub fn coupon_names(&self, after: Option<&CouponName>, count: usize) -> Names<CouponName> {
        Names::select(self.inner.shared.coupons.read().keys(), after, count)
    }

    /// Lists rooms by name, closed ones included. Looks at each name.
    pub fn room_names(&self, after: Option<&RoomName>, count: usize) -> Names<RoomName> {
        Names::select(self.inner.shared.rooms.read().keys(), after, count)
    }

    /// Returns what a ticket of a room says, also one that was renewed. `None` if the room never gave it out, and without the room.
    pub fn ticket_id(&self, room: &RoomName, ticket: &str) -> Option<TicketId> {
        self.inner.shared.room(room.as_str())?.ticket_key.id(ticket)
    }

    /// Looks a place up without any effect on it: see [`firstcome_core::room::Room::look_up`].
    pub fn place(&self, room: &RoomName, key: PlaceKey<'_>) -> Result<Option<PlaceView>, Rejection> {
        let cell = self.inner.shared.room(room.as_str()).ok_or(Rejection::UnknownRoom)?;
        Ok(cell.place(key, self.inner.shared.both()))
    }
}
