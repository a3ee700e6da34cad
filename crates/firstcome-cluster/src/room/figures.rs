//! Figures of rooms on this node.

use super::replica::RoomNode;
use crate::Cluster;
use crate::node::Node;
use firstcome_store::RoomTotals;
use std::sync::Arc;

impl Node {
    fn room_totals(&self) -> RoomTotals {
        let rooms: Vec<Arc<RoomNode>> = self.rooms.lock().values().map(Arc::clone).collect();
        let mut totals = RoomTotals::default();
        for room_node in rooms {
            let copy = room_node.copy.lock();
            let Some(copy) = &*copy else { continue };
            totals.add(copy.replica.room(), copy.now(self.database.time.both()));
        }
        totals
    }
}

impl Cluster {
    /// Sums over the rooms of which this node has a replica: the same at every node that has these rooms.
    pub fn room_totals(&self) -> RoomTotals {
        self.node.room_totals()
    }
}
