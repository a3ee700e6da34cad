//! A place in a room as an operator sees it.

use super::replica::RoomNode;
use crate::Cluster;
use crate::node::Node;
use firstcome_core::id::RoomName;
use firstcome_core::room::replica::Replica;
use firstcome_core::room::{PlaceKey, PlaceView, Room, TicketId, TicketNumber};
use firstcome_store::receipt::HeadKey;
use firstcome_store::{RoomAnswer, RoomStore, StoreError};

impl RoomNode {
    /// What a ticket says. `None` if the room never gave it out.
    pub(crate) fn ticket_id(&self, ticket: &str) -> Option<TicketId> {
        self.ticket_key.id(ticket)
    }

    /// The present ticket of a living place, by this copy of the room.
    pub(crate) fn living_ticket(&self, room: &Room, number: TicketNumber) -> Option<String> {
        room.living_ticket(number).map(|(id, user)| self.ticket_key.ticket(id, user))
    }

    /// The key that signs the heads of the room.
    pub(crate) fn head_key(&self) -> HeadKey {
        self.ticket_key.head_key()
    }

    /// Reads from this node's copy, however old it is. `None` without a copy.
    pub(crate) fn copied<T>(&self, read: impl FnOnce(&Replica) -> T) -> Option<T> {
        self.copy.lock().as_ref().map(|copy| read(&copy.replica))
    }
}

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
        room_node.ticket_id(ticket)
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
