//! Answers polls and looks at tickets from this node's copy of a room alone, without waiting.

use super::replica::Found;
use super::{FRESH_MAX, answer};
use crate::Cluster;
use crate::node::Node;
use firstcome_core::id::RoomName;
use firstcome_core::room::{Rejection, Sight};
use firstcome_core::time::Now;
use firstcome_store::{Glance, TicketAnswer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Node {
    fn poll_settled(&self, room: &str, ticket: &str) -> Option<Result<TicketAnswer, Rejection>> {
        let room_node = self.rooms.lock().get(room).map(Arc::clone)?;
        let id = room_node.ticket_key.id(ticket)?;
        if room_node.trusted.load(Ordering::Relaxed) != self.doubts() || !room_node.is_beating.load(Ordering::Relaxed) {
            return None;
        }
        let mut copy = room_node.copy.lock();
        let copy = copy.as_mut().filter(|copy| copy.age() < FRESH_MAX)?;
        let now = copy.now(self.database.time.both());
        match copy.poll(id, now) {
            Found::Answer(view) => Some(Ok(answer(&room_node, copy, view, Some(ticket), now))),
            Found::Renewed => Some(Err(Rejection::TicketRenewed)),
            Found::Unsettled | Found::Ask(_) => None,
        }
    }

    fn glance_at(&self, room: &RoomName, glances: &[Glance], sights: &mut Vec<Option<Sight>>) -> Option<Now> {
        let room_node = self.rooms.lock().get(room).map(Arc::clone)?;
        if room_node.trusted.load(Ordering::Relaxed) != self.doubts() || !room_node.is_beating.load(Ordering::Relaxed) {
            return None;
        }
        let mut copy = room_node.copy.lock();
        let copy = copy.as_mut().filter(|copy| copy.age() < FRESH_MAX)?;
        let now = copy.now(self.database.time.both());
        sights.extend(glances.iter().map(|&glance| copy.sight(glance, now)));
        Some(now)
    }
}

impl Cluster {
    /// [`RoomStore::poll`](firstcome_store::RoomStore::poll), if this node can answer by itself: as nearly always. Without waiting.
    pub fn poll_settled(&self, room: &str, ticket: &str) -> Option<Result<TicketAnswer, Rejection>> {
        self.node.poll_settled(room, ticket)
    }

    /// Looks at many tickets of a room under one lock of this node's replica, and appends to `sights` what each look shows: `None`
    /// for a ticket whose state is not known here or not durable yet. Returns the time of the glances, or `None` if this node cannot
    /// answer by itself. Decides and appends nothing, and does not wait.
    pub fn glance(&self, room: &RoomName, glances: &[Glance], sights: &mut Vec<Option<Sight>>) -> Option<Now> {
        self.node.glance_at(room, glances, sights)
    }
}
