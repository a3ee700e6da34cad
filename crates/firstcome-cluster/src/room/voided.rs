//! Deletes the rows of a closed room, page by page, after the closing was answered.
//!
//! The node that writes the closing begins at once. If it dies, another node goes on: each looks from time to time for rooms
//! with void rows of which no page was deleted since its last look, and so does a node that has just started.
//!
//! Each page is a short transaction, and as much time passes between two pages as one takes, so everything else that goes to
//! the database stays durable meanwhile.

use crate::database::{SORT_COUNT, Voided};
use crate::node::Node;
use firstcome_sql::SqlError;
use firstcome_store::edge::Stopwatch;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks at all rooms.
const EVERY: Duration = Duration::from_secs(10);
/// The same while void rows were found that perhaps no node deletes.
const SOON: Duration = Duration::from_secs(1);
/// Rooms that are read at once.
const ROOMS_AT_ONCE: u32 = 256;
/// The shortest and the longest time between two pages.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// After an error.
const ERROR_PAUSE: Duration = Duration::from_millis(500);

/// The rooms that this node sweeps now.
pub(crate) type Rooms = Arc<Mutex<BTreeSet<i64>>>;

/// Takes a room out of those that this node sweeps when it is dropped.
struct VoidedScan {
    rooms: Rooms,
    room: i64,
}

impl Drop for VoidedScan {
    fn drop(&mut self) {
        self.rooms.lock().remove(&self.room);
    }
}

/// Begins to delete the void rows of a room, unless this node already does.
pub(super) fn call(node: &Arc<Node>, room: i64) {
    if node.sweeping.lock().insert(room) {
        let sweeping = VoidedScan { rooms: Arc::clone(&node.sweeping), room };
        tokio::spawn(delete_voided_rows(Arc::downgrade(node), sweeping));
    }
}

/// Deletes page by page, until nothing is left or the node ends.
async fn delete_voided_rows(node: Weak<Node>, sweeping: VoidedScan) {
    let (mut after, mut pages, watch) = ([0; SORT_COUNT], 0_u64, Stopwatch::start());
    while let Some(node) = node.upgrade() {
        let begun_at = Stopwatch::start();
        let page = node.delete_voided(sweeping.room, after).await;
        drop(node);
        match page {
            Ok(Some(next)) => {
                after = next;
                pages += 1;
                sleep(begun_at.elapsed().clamp(PAUSE_MIN, PAUSE_MAX)).await;
            }
            Ok(None) if pages == 0 => return,
            Ok(None) => {
                let (room_number, lasted_ms) = (sweeping.room, watch.elapsed().as_millis() as u64);
                tracing::info!(room_number, pages, lasted_ms, "the rows of a closed room are deleted");
                return;
            }
            Err(_) => sleep(ERROR_PAUSE).await,
        }
    }
}

/// Looks for rooms with void rows that no node deletes, while the node is there.
pub(crate) async fn look(node: Weak<Node>) {
    let mut seen = BTreeMap::new();
    loop {
        let Some(node) = node.upgrade() else { return };
        // While the database does not answer nothing can be done.
        if let Ok(found) = node.find_voided_rooms().await {
            for voided in found.values().filter(|voided| seen.get(&voided.room) == Some(*voided)) {
                call(&node, voided.room);
            }
            seen = found;
        }
        drop(node);
        sleep(if seen.is_empty() { EVERY } else { SOON }).await;
    }
}

impl Node {
    /// Deletes one page, and says up to which numbers nothing is left. `None` if nothing was left before.
    async fn delete_voided(&self, room: i64, after: [u32; SORT_COUNT]) -> Result<Option<[u32; SORT_COUNT]>, SqlError> {
        let Some(voided) = self.database.voided(room, after).await? else { return Ok(None) };
        self.database.delete_voided(&voided).await?;
        Ok(Some(voided.after()))
    }

    /// All rooms with void rows.
    async fn find_voided_rooms(&self) -> Result<BTreeMap<i64, Voided>, SqlError> {
        let (mut found, mut after) = (BTreeMap::new(), i64::MIN);
        loop {
            let rooms = self.database.voided_rooms(after, ROOMS_AT_ONCE).await?;
            let count = rooms.len();
            after = rooms.last().map_or(after, |voided| voided.room);
            found.extend(rooms.into_iter().filter(Voided::is_any).map(|voided| (voided.room, voided)));
            if count < ROOMS_AT_ONCE as usize {
                return Ok(found);
            }
        }
    }
}
