//! A place in a room as an operator sees it.

use crate::Cluster;
use crate::node::Node;
use firstcome_core::id::RoomName;
use firstcome_core::room::{PlaceKey, PlaceView, TicketId};
use firstcome_store::{RoomAnswer, RoomStore, StoreError};

impl Node {
    /// What this node's copy of a room says of a place. `None` without a copy.
    fn place(&self, room: &RoomName, key: PlaceKey<'_>) -> Option<Option<PlaceView>> {
        let room_node = self.rooms.lock().get(room).cloned()?;
        let copy = room_node.copy.lock();
        let copy = copy.as_ref()?;
        Some(copy.replica.room().look_up(key, copy.now(self.database.time.both())))
    }
}

impl Cluster {
    /// Returns what a ticket of a room says, also one that was renewed, if this node has a copy of the room. `None` if the room never gave it out.
    pub fn ticket_id(&self, room: &RoomName, ticket: &str) -> Option<TicketId> {
        let room_node = self.node.rooms.lock().get(room).cloned()?;
        room_node.ticket_key.id(ticket)
    }

    /// Looks a place up without any effect on it: see [`firstcome_core::room::Room::look_up`]. Brings this node's copy
    /// of the room up to date before.
    pub async fn place(&self, room: &RoomName, key: PlaceKey<'_>) -> RoomAnswer<Option<PlaceView>> {
        if let Err(rejection) = self.room(room).await? {
            return Ok(Err(rejection));
        }
        // Without a copy the room is rebuilt at this moment.
        Ok(Ok(self.node.place(room, key).ok_or(StoreError::Unknown)?))
    }
}
