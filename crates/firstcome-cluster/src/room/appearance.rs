//! How the pages of rooms look: rows in SQL, of which each node keeps copies for its visitors.
//!
//! No rule of a room needs it, so it is not in the log. A page is shown while SQL is away: then a visitor sees the last look
//! that this node has read.

use crate::Cluster;
use crate::database::AppearanceRow;
use crate::node::Node;
use firstcome_core::id::RoomName;
use firstcome_core::room::Rejection;
use firstcome_core::room::appearance::Appearance;
use firstcome_store::edge::draw_id;
use firstcome_store::{RoomAnswer, Shared, StoreError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// What a visitor sees is at most so old.
const SHOWN_MAX: Duration = Duration::from_millis(500);
/// How long a visitor waits for a newer one.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// Rooms whose looks are fresh at once. Beyond it they are read again.
const FRESH_COUNT_MAX: usize = 16_384;
/// No row has this version.
const NO_VERSION: i64 = 0;

/// The looks that a node has read.
pub(crate) struct Appearances {
    fresh: Shared<RoomName, Result<Arc<Appearance>, Rejection>>,
    /// By the number of the room, the last version that this node has read.
    read: Mutex<HashMap<i64, (i64, Arc<Appearance>)>>,
}

impl Default for Appearances {
    fn default() -> Self {
        Self { fresh: Shared::new(SHOWN_MAX, FRESH_COUNT_MAX), read: Mutex::default() }
    }
}

impl Node {
    pub(super) async fn put_appearance(self: &Arc<Self>, name: &RoomName, appearance: &Appearance) -> RoomAnswer<()> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let drawn = draw_id().map_err(|fault| StoreError::Faulted(Arc::new(fault)))?;
        let version = (drawn >> 1).cast_signed().max(NO_VERSION + 1);
        let put = self.database.put_appearance(room_node.keys.room, version, appearance).await;
        self.appearances.fresh.forget(name);
        Ok(Ok(put?))
    }

    pub(super) async fn appearance(self: &Arc<Self>, name: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let known = self.appearances.read.lock().get(&room_node.keys.room).cloned();
        let version = known.as_ref().map_or(NO_VERSION, |(version, _)| *version);
        let looked = match self.database.appearance(room_node.keys.room, version).await? {
            AppearanceRow::Absent => Arc::default(),
            AppearanceRow::Known => known.map(|(_, appearance)| appearance).unwrap_or_default(),
            AppearanceRow::Other(version, appearance) => {
                let appearance = Arc::new(appearance);
                self.appearances.read.lock().insert(room_node.keys.room, (version, Arc::clone(&appearance)));
                appearance
            }
        };
        Ok(Ok(looked))
    }
}

impl Cluster {
    /// Shows how the page of a room looks to a visitor: at most half a second old, or older while SQL does not answer within
    /// half a second. The default if this node has read none.
    pub async fn shown_appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        let appearances = &self.node.appearances;
        let asked = timeout(LOOK_MAX, appearances.fresh.get(room, || self.node.appearance(room))).await;
        if let Ok(Ok(answer)) = asked {
            return Ok(answer);
        }
        let id = self.node.rooms.lock().get(room).map(|room_node| room_node.keys.room);
        let last = id.and_then(|id| appearances.read.lock().get(&id).map(|(_, last)| Arc::clone(last)));
        Ok(Ok(last.unwrap_or_default()))
    }
}
