//! Makes sure that the log of a room is whole and this node has a copy that follows it; makes the log anew from SQL if it is
//! not.
//!
//! A log is whole if it is of the generation that SQL names, has gone at least as far as SQL has written it, and has an
//! image. What SQL wrote is told apart from another log's past by its digest: every copy compares it when it is said to be
//! durable. After a loss the next generation begins with what SQL holds; everybody else comes back by their tickets.

use super::cell::{Copy, RoomCell};
use super::log::Probe;
use super::orders::unavailable;
use crate::edge::draw_hasher;
use crate::error::StoreError;
use crate::fleet::Node;
use crate::fleet::truth::{Held, RoomRow};
use crate::sql::SqlError;
use firstcome_core::room::Room;
use firstcome_core::room::replica::Replica;
use firstcome_core::time::{Now, Steady};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks at a log that another node makes anew.
const PAUSE: Duration = Duration::from_millis(10);
/// After a loss nobody is admitted for so long, so that those in front can come back first: they ask every few seconds.
const GRACE_MS: u64 = 5_000;

fn is_whole(probe: &Probe, row: &RoomRow) -> bool {
    probe.generation == Some(row.generation)
        && probe.image.is_some()
        && probe.position.is_some_and(|position| row.position <= position)
}

impl<D: Held> Node<D> {
    /// Returns when the log is whole, and this node has a copy.
    pub(super) async fn mend_room(&self, cell: &Arc<RoomCell>) -> Result<(), StoreError> {
        let doubts = self.doubts();
        let _one_at_a_time = cell.mending.lock().await;
        let until = Instant::now() + self.options.patience;
        let mut row = self.truth.room_again(cell.keys.room).await?;
        loop {
            let probe = self.gate.probe_log(cell.keys, row.generation).await?;
            if is_whole(&probe, &row) && !cell.distrusts(row.generation) {
                if self.copy_log(cell, &row).await? {
                    cell.trusted.store(doubts, Ordering::Relaxed);
                    return Ok(());
                }
            } else {
                // Another node may have made it anew meanwhile.
                let again = self.truth.room_again(cell.keys.room).await?;
                let is_same = (again.generation, again.position) == (row.generation, row.position);
                row = again;
                if is_same && self.rebuild_log(cell, &row, &probe).await? {
                    row = self.truth.room_again(cell.keys.room).await?;
                    continue;
                }
            }
            if until < Instant::now() {
                return Err(unavailable("another node has been making a log anew for too long"));
            }
            sleep(PAUSE).await;
            row = self.truth.room_again(cell.keys.room).await?;
        }
    }

    /// Makes sure that this node has a copy of this log; false if its image is not there any more.
    async fn copy_log(&self, cell: &RoomCell, row: &RoomRow) -> Result<bool, StoreError> {
        let is_there =
            |copy: &Copy| copy.generation == row.generation && cell.trusted.load(Ordering::Relaxed) != u64::MAX;
        if cell.copy.lock().as_ref().is_some_and(is_there) {
            return Ok(true);
        }
        let image = self.gate.load_image(cell.keys, row.generation).await?;
        let Ok(replica) = Replica::from_image(&image, draw_hasher()) else { return Ok(false) };
        let mut copy = cell.copy.lock();
        let mut fresh = Copy::new(row.generation, replica);
        if let Some(old) = copy.take() {
            // Their entries are appended again, with the same tags.
            fresh.asked = old.asked;
        }
        *copy = Some(fresh);
        Ok(true)
    }

    /// Makes a log anew. False, and nothing is open, if another node does, or Redis was lost again.
    async fn rebuild_log(&self, cell: &RoomCell, row: &RoomRow, probe: &Probe) -> Result<bool, StoreError> {
        if !self.gate.seize_log(cell.keys).await? {
            return Ok(false);
        }
        // Whoever had the lease before may just have opened it: to begin yet another would lose who has come back.
        let is_right = !cell.distrusts(row.generation);
        if is_right && is_whole(&self.gate.probe_log(cell.keys, row.generation).await?, row) {
            self.gate.unseize_log(cell.keys).await?;
            return Ok(false);
        }
        let before = row.generation;
        let Some(row) = self.truth.next_log(row.id, before).await? else { return Ok(false) };
        let now = self.truth.time.both().unwrap_or_else(|| {
            // The steady clock goes on by what has passed on the wall since SQL was last told.
            let elapsed_us = probe.clock.as_us().saturating_sub(row.now.wall.as_us()).max(0);
            let steady = Steady::from_us(row.now.steady.as_us().saturating_add(elapsed_us));
            Now { wall: probe.clock.max(row.now.wall), steady }
        });
        // A new room has nobody who could come back.
        let grace_until = (0 < before).then(|| now.steady.plus_ms(GRACE_MS));
        let mut known = self.truth.known_room(&row, grace_until).await?;
        if before == 0 {
            known.ceiling = known.first - 1;
        }
        let damaged = |damage: firstcome_core::room::Damage| SqlError::broken(damage.as_str());
        let room = Room::rebuilt(&known, draw_hasher(), now).map_err(damaged)?;
        let replica = Replica::new(room, row.position, row.ceiling, draw_hasher(), now);
        let old: Vec<i64> = [Some(before), probe.generation.filter(|old| *old != before && *old != row.generation)]
            .into_iter()
            .flatten()
            .collect();
        let image = replica.image();
        let is_open = self.gate.open_log(cell.keys, row.generation, row.position, now, &image, &old).await?;
        if is_open && 0 < before {
            self.counters.rebuilt.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_open)
    }
}
