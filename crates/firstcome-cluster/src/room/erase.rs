//! Has the log of a room in Redis forget a person.
//!
//! Entries name the users of tickets, and so does the image before them. An image holds only the tickets that live, and the records
//! that SQL does not hold yet. So an image from after the end of a place, with all of it in SQL, names the user of that place no more,
//! and the entries before it go.

use super::log::{ITEMS_MAX, Keys, Part};
use super::replica::Want;
use crate::node::Node;
use crate::sequencer::Sequencer;
use firstcome_core::id::{RoomName, UserId};
use firstcome_core::room::TicketNumber;
use firstcome_redis::LinkError;
use firstcome_store::StoreError;
use firstcome_store::edge::draw_pause;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

impl Node {
    /// Has the log of a room name a user no more whose place, if there was one, has ended. Reads the whole log: two round trips, and
    /// one more for each further [`ITEMS_MAX`] items. If it has the name, or a longer one with it, an image replaces it.
    ///
    /// # Errors
    /// As for any call; busy if other nodes replace the log all the time. The erasure may be repeated.
    pub(crate) async fn forget_in_log(
        self: &Arc<Self>,
        name: &RoomName,
        user: &UserId,
        place: Option<TicketNumber>,
    ) -> Result<(), StoreError> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(()) };
        let until = Instant::now() + self.options.patience;
        loop {
            self.order(&room_node, Want::See).await?;
            if let Some(number) = place {
                self.settle(&room_node, number, until).await?;
            }
            let generation = room_node.copy.lock().as_ref().map_or(0, |copy| copy.log.generation);
            match self.sequencer.names_in_log(room_node.keys, generation, user).await? {
                Some(false) => return Ok(()),
                Some(true) if self.keep_image(&room_node).await? => return Ok(()),
                _ => {}
            }
            if until < Instant::now() {
                return Err(StoreError::busy_with("other nodes replaced the log of a room that names the user"));
            }
            sleep(draw_pause(PAUSE)).await;
        }
    }
}

impl Sequencer {
    /// Whether the image or an entry of a log has these bytes in it. `None` if there is no such log.
    async fn names_in_log(&self, keys: Keys, generation: i64, user: &UserId) -> Result<Option<bool>, LinkError> {
        let named = |bytes: &[u8]| bytes.windows(user.as_str().len()).any(|window| window == user.as_str().as_bytes());
        if named(&self.load_image(keys, generation).await?.bytes) {
            return Ok(Some(true));
        }
        let (mut seen, mut bytes) = (0, Vec::new());
        loop {
            let Some(Part { items: Some(items), .. }) = self.read_log(keys, generation, seen).await? else {
                return Ok(None);
            };
            for item in &items {
                bytes.clear();
                item.entries.iter().for_each(|entry| entry.encode(&mut bytes));
                if named(&bytes) {
                    return Ok(Some(true));
                }
            }
            match items.last() {
                Some(last) if ITEMS_MAX <= items.len() => seen = last.first + last.entries.len() as u64 - 1,
                _ => return Ok(Some(false)),
            }
        }
    }
}
