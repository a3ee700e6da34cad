//! A copy of a room by its log, for whoever only looks.

use super::log::{ITEMS_MAX, Item, Keys};
use crate::edge::draw_hasher;
use crate::fleet::Node;
use crate::fleet::truth::{Held, RoomRow};
use crate::redis::LinkError;
use firstcome_core::room::replica::Replica;

/// How often it is begun anew, when the log was trimmed meanwhile.
const TRIES: usize = 5;

impl<D: Held> Node<D> {
    /// The room as of the end of its log; `None` if the log is not that of SQL, or cannot be read: then nobody knows more than SQL
    /// does. Changes nothing.
    pub(in crate::fleet) async fn follow_log(&self, row: &RoomRow) -> Option<Replica> {
        let keys = Keys { room: row.id };
        for _ in 0..TRIES {
            match self.try_follow(keys, row).await {
                Ok(Some(replica)) => return Some(replica).filter(|replica| row.position <= replica.position()),
                Ok(None) => {}
                Err(_) => return None,
            }
        }
        None
    }

    async fn try_follow(&self, keys: Keys, row: &RoomRow) -> Result<Option<Replica>, LinkError> {
        let image = self.gate.load_image(keys, row.generation).await?;
        let Ok(mut replica) = Replica::from_image(&image.bytes, draw_hasher()) else { return Ok(None) };
        let mut changes = Vec::new();
        loop {
            let Some(items) = self.gate.read_log(keys, row.generation, replica.position()).await? else {
                return Ok(None);
            };
            let is_all = items.len() < ITEMS_MAX;
            for Item { first, now, entries, .. } in items {
                for (position, entry) in (first..).zip(&entries) {
                    if position <= replica.position() {
                        continue;
                    }
                    changes.clear();
                    if replica.apply(position, now, entry, &mut changes).is_err() {
                        return Ok(None);
                    }
                }
            }
            if is_all {
                return Ok(Some(replica));
            }
        }
    }
}
