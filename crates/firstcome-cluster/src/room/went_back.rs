//! Notices that the database went back, and stops the room until the data return or an operator decides.
//!
//! Each node remembers the highest state of its room that the database has shown ([`Witness`]): by the rows that this node read
//! and wrote, and by what the log on Redis says is durable. Every row that is read is compared with it. A row that lacks something
//! is read again, so that no read that began too early is an alarm. Then the room stands still on this node: it appends no join,
//! lets no ticket in, writes nothing and makes no log anew, so the log on Redis stays as evidence. Polls
//! that rest on durable entries go on.
//!
//! The node looks each second whether the database has all of it again, or an operator has accepted the loss
//! (`firstcome reconcile --accept-loss`). Then the room goes on by itself. A node without calls looks too, every few seconds.

use super::replica::RoomNode;
use crate::database::RoomRow;
use crate::node::Node;
use firstcome_core::room::Draw;
use firstcome_core::room::replica::{Lack, Stored, Witness};
use firstcome_store::{Fault, FaultKind, StoreError};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks at rooms that stand still.
const STOPPED_EVERY: Duration = Duration::from_secs(1);
/// One look of so many is at all rooms.
const ALL_EVERY: u32 = 5;
/// Rooms that are read at once.
const ROOMS_AT_ONCE: usize = 256;

/// What a new generation begins above when an operator accepts a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Floor {
    pub(crate) generation: i64,
    pub(crate) ceiling: u32,
    pub(crate) admissions: u64,
    pub(crate) first: u32,
    pub(crate) reached: u32,
    pub(crate) draw: Option<Draw>,
}

impl RoomRow {
    pub(crate) const fn stored(&self) -> Stored {
        Stored {
            generation: self.generation,
            position: self.position,
            digest: Some(self.digest),
            ceiling: self.ceiling,
            admissions: self.admissions,
            loss_accepted: self.loss_accepted,
        }
    }
}

impl RoomNode {
    /// The fault that stops this room on this node.
    pub(super) fn stopped(&self) -> Option<Arc<Fault>> {
        self.stopped.lock().clone()
    }

    /// The same as an error.
    pub(super) fn goes_on(&self) -> Result<(), StoreError> {
        self.stopped().map_or(Ok(()), |fault| Err(StoreError::Faulted(fault)))
    }

    /// Remembers a row that was judged, or that this node has written.
    pub(super) fn learn(&self, row: &RoomRow) {
        self.witness.lock().learn(&row.stored());
    }

    fn judge(known: &Witness, row: Option<&RoomRow>) -> Result<(), Lack> {
        row.map_or(Err(Lack::Room), |row| known.judge(&row.stored()))
    }

    /// The name under which its faults are listed.
    fn object(&self) -> String {
        format!("room {}", self.name)
    }
}

impl Node {
    /// Reads the room again, and stops it if the database lacks what it had.
    pub(super) async fn checked_row(&self, room_node: &RoomNode) -> Result<RoomRow, StoreError> {
        room_node.goes_on()?;
        match self.judged_row(room_node).await? {
            Ok(row) => Ok(row),
            // A session to another server of the same name may have been opened before it was told of the loss of its role.
            Err(_) => match self.judged_row(room_node).await? {
                Ok(row) => Ok(row),
                Err(lack) => Err(self.stop_room(room_node, lack)),
            },
        }
    }

    /// Reads the room, and compares it with what was known before that.
    async fn judged_row(&self, room_node: &RoomNode) -> Result<Result<RoomRow, Lack>, StoreError> {
        let known = *room_node.witness.lock();
        let row = self.database.room_by_id(room_node.keys.room).await?;
        Ok(match (RoomNode::judge(&known, row.as_ref()), row) {
            (Ok(()), Some(row)) => {
                room_node.learn(&row);
                Ok(row)
            }
            (judged, _) => Err(judged.err().unwrap_or(Lack::Room)),
        })
    }

    /// Stops the room on this node.
    pub(super) fn stop_room(&self, room_node: &RoomNode, lack: Lack) -> StoreError {
        let says = format!(
            "{lack}: it was restored from a backup, or failed over to a copy that was behind; bring back the database that has it, \
             or see with `firstcome reconcile` what is lost, and accept that with --accept-loss"
        );
        let fault = self.faults.raise_single(&room_node.object(), Fault::new(FaultKind::WentBack, says));
        *room_node.stopped.lock() = Some(Arc::clone(&fault));
        room_node.is_drainer.store(false, Ordering::Relaxed);
        room_node.progress.send_modify(|progress| progress.is_stopped = true);
        StoreError::Faulted(fault)
    }

    /// Lets the room go on.
    fn let_go_on(self: &Arc<Self>, room_node: &Arc<RoomNode>) {
        // The copy may hold what is lost now: it is looked at again before anything is appended.
        room_node.trusted.store(u64::MAX, Ordering::Relaxed);
        *room_node.stopped.lock() = None;
        room_node.progress.send_modify(|progress| progress.is_stopped = false);
        self.faults.clear_kind(&room_node.object(), FaultKind::WentBack);
        self.wake(room_node);
    }

    /// Reads these rooms again: stops those that lack something, and lets those go on that have all of it again.
    async fn watch_rooms(self: &Arc<Self>, rooms: &[Arc<RoomNode>]) -> Result<(), StoreError> {
        let known: Vec<Witness> = rooms.iter().map(|room_node| *room_node.witness.lock()).collect();
        let ids: Vec<i64> = rooms.iter().map(|room_node| room_node.keys.room).collect();
        let rows = self.database.rooms_again(&ids).await?;
        for (room_node, known) in rooms.iter().zip(known) {
            let row = rows.iter().find(|row| row.id == room_node.keys.room);
            match (RoomNode::judge(&known, row), room_node.stopped()) {
                (Ok(()), None) => row.into_iter().for_each(|row| room_node.learn(row)),
                // Read once more: the node may have learned more since.
                (Ok(()), Some(_)) if self.judged_row(room_node).await?.is_ok() => self.let_go_on(room_node),
                (Ok(()) | Err(_), Some(_)) => {}
                // The fault says it.
                (Err(_), None) => drop(self.checked_row(room_node).await),
            }
        }
        Ok(())
    }
}

/// Looks at the rooms that this node remembers, while the node is there: a quiet node notices too, and a room that stands still goes
/// on by itself.
pub(crate) async fn watch(node: Weak<Node>) {
    for round in (0..ALL_EVERY).cycle() {
        sleep(STOPPED_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        let mut rooms: Vec<Arc<RoomNode>> = node.rooms.lock().values().map(Arc::clone).collect();
        rooms.retain(|room_node| round == 0 || room_node.stopped().is_some());
        for page in rooms.chunks(ROOMS_AT_ONCE) {
            // While the database does not answer there is nothing to see.
            let _ = node.watch_rooms(page).await;
        }
    }
}
