//! Figures of rooms on this node.

use super::replica::RoomNode;
use crate::Cluster;
use crate::node::Node;
use std::sync::Arc;

/// Rooms, and people in them, as one node knows them. Figures for metrics: no rule rests on them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RoomFigures {
    /// Rooms of which this node has a copy.
    pub rooms: u64,
    /// People in their lines.
    pub waiting: u64,
    /// Their slots that are offered or taken.
    pub active: u64,
    /// Numbers that were drawn in them, by whichever node.
    pub drawn: u64,
    /// Admissions that they gave, by whichever node.
    pub admissions: u64,
}

impl Node {
    fn room_figures(&self) -> RoomFigures {
        let rooms: Vec<Arc<RoomNode>> = self.rooms.lock().values().map(Arc::clone).collect();
        let mut figures = RoomFigures::default();
        for room_node in rooms {
            let copy = room_node.copy.lock();
            let Some(copy) = &*copy else { continue };
            let view = copy.replica.room().view(copy.now(self.database.time.both()));
            figures.rooms += 1;
            figures.waiting += u64::from(view.waiting);
            figures.active += u64::from(view.active);
            figures.drawn += u64::from(copy.replica.room().drawn());
            figures.admissions += copy.replica.room().admissions();
        }
        figures
    }
}

impl Cluster {
    /// Rooms of which this node has a copy, and who is in them: the same people at every node that has the room.
    pub fn room_figures(&self) -> RoomFigures {
        self.node.room_figures()
    }
}
