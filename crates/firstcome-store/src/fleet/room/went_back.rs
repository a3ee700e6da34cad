//! Notices that the database has gone back, and stops a room until that is mended.
//!
//! Each cell remembers the highest state of its room that the database has shown ([`Witness`]): by the rows that this node read
//! and wrote, and by what the log on Redis says is durable. Every row that is read is compared with it. A row that lacks something
//! is read again, so that no read that began too early is an alarm. Then the room stands still on this node: nothing is appended
//! but who was here, time lets nobody in, nothing is written, no log is made anew, so the log on Redis stays as evidence. Polls
//! that rest on durable entries go on.
//!
//! The node looks each second whether the database has all of it again, or an operator has accepted the loss
//! (`firstcome reconcile --accept-loss`). Then the room goes on by itself.

use super::cell::RoomCell;
use crate::error::{Fault, FaultKind, StoreError};
use crate::fleet::Node;
use crate::fleet::truth::{Held, RoomRow};
use firstcome_core::room::replica::{Lack, Stored, Witness};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks whether the database has everything again.
const EVERY: Duration = Duration::from_secs(1);

impl RoomRow {
    pub(in crate::fleet) const fn stored(&self) -> Stored {
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

impl RoomCell {
    /// The fault that stops this room on this node.
    pub(super) fn stopped(&self) -> Option<Arc<Fault>> {
        self.stopped.lock().clone()
    }

    /// The same as an error.
    pub(super) fn goes_on(&self) -> Result<(), StoreError> {
        self.stopped().map_or(Ok(()), |fault| Err(StoreError::Unavailable(fault)))
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

impl<D: Held> Node<D> {
    /// Reads the room again, and stops it if the database lacks what it had.
    pub(super) async fn checked_row(self: &Arc<Self>, cell: &Arc<RoomCell>) -> Result<RoomRow, StoreError> {
        cell.goes_on()?;
        match self.judged_row(cell).await? {
            Ok(row) => Ok(row),
            // A session to another server of the same name may have been opened before it was told of the loss of its role.
            Err(_) => match self.judged_row(cell).await? {
                Ok(row) => Ok(row),
                Err(lack) => Err(self.stop(cell, lack)),
            },
        }
    }

    /// Reads the room, and compares it with what was known before that.
    async fn judged_row(&self, cell: &RoomCell) -> Result<Result<RoomRow, Lack>, StoreError> {
        let known = *cell.witness.lock();
        let row = self.truth.room_by_id(cell.keys.room).await?;
        Ok(match (RoomCell::judge(&known, row.as_ref()), row) {
            (Ok(()), Some(row)) => {
                cell.learn(&row);
                Ok(row)
            }
            (judged, _) => Err(judged.err().unwrap_or(Lack::Room)),
        })
    }

    /// Stops the room on this node, and looks after it.
    pub(super) fn stop(self: &Arc<Self>, cell: &Arc<RoomCell>, lack: Lack) -> StoreError {
        let says = format!(
            "{lack}: it was restored from a backup, or failed over to a copy that was behind; bring back the database that has it, \
             or see with `firstcome reconcile` what is lost, and accept that with --accept-loss"
        );
        let fault = self.faults.raise(&cell.object(), Fault::new(FaultKind::WentBack, says));
        let is_new = cell.stopped.lock().replace(Arc::clone(&fault)).is_none();
        if is_new {
            cell.is_drainer.store(false, Ordering::Relaxed);
            cell.progress.send_modify(|progress| progress.is_stopped = true);
            tokio::spawn(look_after(Arc::downgrade(self), Arc::clone(cell)));
        }
        StoreError::Unavailable(fault)
    }
}

/// What a new generation begins above when an operator accepts a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fleet) struct Floor {
    pub(in crate::fleet) generation: i64,
    pub(in crate::fleet) ceiling: u32,
    pub(in crate::fleet) admissions: u64,
    pub(in crate::fleet) first: u32,
    pub(in crate::fleet) reached: u32,
}

/// Looks whether the room may go on, until it does or the node ends.
async fn look_after<D: Held>(node: Weak<Node<D>>, cell: Arc<RoomCell>) {
    loop {
        sleep(EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if let Ok(Ok(_)) = node.judged_row(&cell).await {
            // The copy may hold what is lost now: it is looked at again before anything is appended.
            cell.trusted.store(u64::MAX, Ordering::Relaxed);
            *cell.stopped.lock() = None;
            cell.progress.send_modify(|progress| progress.is_stopped = false);
            node.faults.clear_kind(&cell.object(), FaultKind::WentBack);
            node.wake(&cell);
            return;
        }
    }
}
