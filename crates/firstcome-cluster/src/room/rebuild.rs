//! Makes sure that the log of a room is whole and this node has a copy that follows it; makes the log anew from SQL if it is
//! not.
//!
//! A log is whole if it is of the generation that SQL names, has gone at least as far as SQL has written it, and has an
//! image. What SQL wrote is told apart from another log's past by its digest: every copy compares it when it is said to be
//! durable. After a loss the next generation begins with what SQL holds; everybody else comes back by their tickets.
//!
//! A server that is another one, or has started anew, may have forgotten the end of a log that is whole all the same. SQL has
//! not written that end, so nothing of it was told but numbers without user and key below the ceiling in SQL: the log goes on
//! as another *branch*, in which all of them are unknown ([`Entry::Lost`](firstcome_core::room::replica::Entry::Lost)). A copy
//! that saw the end is of the old branch, and may neither append nor keep an image.

use super::log::{Keys, Opening, Probe, Resume};
use super::log_batch::unavailable;
use super::replica::{LogId, RoomNode, RoomReplica};
use super::tag;
use crate::database::RoomRow;
use crate::node::Node;
use firstcome_core::room::replica::{Replica, Witness};
use firstcome_core::room::{Damage, Room};
use firstcome_core::time::{Now, Steady};
use firstcome_sql::SqlError;
use firstcome_store::StoreError;
use firstcome_store::edge::{Stopwatch, draw_hasher};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Between two looks at a log that another node rebuilds.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a lease is renewed: several times in its length.
const RENEWED_EVERY: Duration = Duration::from_millis(500);
/// After a loss no node is admitted for so long, so that those in front can come back first: they ask every few seconds.
const GRACE_MS: u64 = 5_000;

fn is_whole(probe: &Probe, row: &RoomRow) -> bool {
    probe.generation == Some(row.generation)
        && probe.image.is_some()
        && probe.position.is_some_and(|position| row.position <= position)
}

impl Probe {
    /// Whether the log says that the database holds more than this row.
    fn is_ahead_of(&self, row: &RoomRow) -> bool {
        self.generation.is_some_and(|generation| {
            // Of a log of before an accepted loss only its numbers count, and those are looked at with its entries.
            let is_later = row.generation < generation;
            let is_further = generation == row.generation && self.durable.is_some_and(|durable| row.position < durable);
            is_later || is_further
        })
    }

    fn bear_witness(&self, witness: &Mutex<Witness>) {
        if let Some(generation) = self.generation {
            witness.lock().learn_log(generation, self.durable.unwrap_or(0), None, 0);
        }
    }
}

/// Keeps a lease while a log is rebuilt, until it is dropped.
struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Node {
    /// Returns when the log is whole, and this node has a copy.
    pub(crate) async fn rebuild_room(self: &Arc<Self>, room_node: &Arc<RoomNode>) -> Result<(), StoreError> {
        let doubts = self.doubts();
        let _one_at_a_time = room_node.mending.lock().await;
        let until = Instant::now() + self.options.patience;
        let mut row = self.checked_row(room_node).await?;
        loop {
            let probe = self.sequencer.probe_log(room_node.keys, row.generation).await?;
            if probe.is_ahead_of(&row) {
                // The row may have been read before that was written. If not, the database has gone back.
                probe.bear_witness(&room_node.witness);
                row = self.checked_row(room_node).await?;
                continue;
            }
            if is_whole(&probe, &row) && !room_node.distrusts(row.generation) {
                if !probe.is_same_run {
                    // The server may have been gone for long since SQL was asked, and others may have written meanwhile.
                    row = self.checked_row(room_node).await?;
                    if is_whole(&probe, &row) {
                        self.resume_log(room_node, &row).await?;
                        row = self.checked_row(room_node).await?;
                    }
                    continue;
                }
                if self.copy_log(room_node, &row).await? {
                    room_node.trusted.store(doubts, Ordering::Relaxed);
                    return Ok(());
                }
            } else {
                // Another node may have made it anew meanwhile.
                let again = self.checked_row(room_node).await?;
                let is_same = (again.generation, again.position) == (row.generation, row.position);
                row = again;
                if is_same && self.rebuild_log(room_node, &row, &probe).await? {
                    row = self.checked_row(room_node).await?;
                    continue;
                }
            }
            if until < Instant::now() {
                return Err(StoreError::busy_with(
                    "nothing was done: another node still rebuilds what Redis knows of the room",
                ));
            }
            sleep(PAUSE).await;
            row = self.checked_row(room_node).await?;
        }
    }

    /// Goes on with a log whose end may be lost, unless another node has just done so.
    ///
    /// Others may still go on with the branch before: on a server that was replaced and does not know it. Nothing keeps them from
    /// writing to SQL what both branches have, nor from raising the ceiling with it; but each write moves the position, so
    /// one raise is one branch's. A node that finds a raise that it has not made itself draws none of those numbers, and raises
    /// once more ([`super::log_writer`]). The first write of what only one branch has throws the other one away.
    async fn resume_log(&self, room_node: &RoomNode, row: &RoomRow) -> Result<(), StoreError> {
        let now = self.database.time.both();
        let expected = room_node.copy.lock().as_ref().and_then(|copy| copy.expected(now));
        let (generation, position) = (row.generation, row.position);
        let (branch, ceiling, grace_ms) = (tag()?, row.ceiling, GRACE_MS);
        let resume = Resume { generation, position, now, expected, branch, ceiling, grace_ms };
        if self.sequencer.resume_log(room_node.keys, &resume).await? {
            self.counters.resumed.fetch_add(1, Ordering::Relaxed);
            let (room, node) = (&room_node.name, &self.sequencer.node);
            tracing::info!(%room, node, generation, position, "Redis may have forgotten the end of the room: going on without it");
        }
        Ok(())
    }

    /// Makes sure that this node has a copy of this log; false if its image is not there any more, or is none.
    async fn copy_log(&self, room_node: &RoomNode, row: &RoomRow) -> Result<bool, StoreError> {
        let is_there = |copy: &RoomReplica| {
            copy.log.generation == row.generation && room_node.trusted.load(Ordering::Relaxed) != u64::MAX
        };
        if room_node.copy.lock().as_ref().is_some_and(is_there) {
            return Ok(true);
        }
        let image = self.sequencer.load_image(room_node.keys, row.generation).await?;
        let Ok(replica) = Replica::from_image(&image.bytes, draw_hasher()) else {
            // One that no node can read is not going to be another.
            room_node.break_off(row.generation);
            return Ok(false);
        };
        let mut copy = room_node.copy.lock();
        let log = LogId { generation: row.generation, branch: image.branch };
        let replica = replica.with_draw_key(room_node.ticket_key.draw_key());
        let mut fresh = RoomReplica::new(log, replica, image.bytes.len());
        if let Some(old) = copy.take() {
            // Their entries are appended again, with the same tags.
            fresh.asked = old.asked;
        }
        fresh.bear_witness(&mut room_node.witness.lock());
        *copy = Some(fresh);
        Ok(true)
    }

    fn keep_lease(self: &Arc<Self>, keys: Keys) -> Renewal {
        let node = Arc::clone(self);
        Renewal(tokio::spawn(async move {
            loop {
                sleep(RENEWED_EVERY).await;
                // Without the lease the log is not opened.
                let _ = node.sequencer.seize_log(keys).await;
            }
        }))
    }

    /// Makes a log anew. False, and nothing is open, if another node does, or Redis was lost again.
    async fn rebuild_log(
        self: &Arc<Self>,
        room_node: &Arc<RoomNode>,
        row: &RoomRow,
        probe: &Probe,
    ) -> Result<bool, StoreError> {
        if !self.sequencer.seize_log(room_node.keys).await? {
            return Ok(false);
        }
        // A large room takes longer than the lease.
        let renewal = self.keep_lease(room_node.keys);
        let made = self.rebuild_leased(room_node, row, probe).await;
        drop(renewal);
        if !matches!(made, Ok(true)) {
            // Others need not wait until it is over. If this fails, they do.
            let _ = self.sequencer.unseize_log(room_node.keys).await;
        }
        made
    }

    /// The same under the lease, which opening the log ends.
    async fn rebuild_leased(
        self: &Arc<Self>,
        room_node: &Arc<RoomNode>,
        row: &RoomRow,
        probe: &Probe,
    ) -> Result<bool, StoreError> {
        // A node that had the lease before may just have opened it: to begin yet another would lose who has come back.
        let is_right = !room_node.distrusts(row.generation);
        if is_right && is_whole(&self.sequencer.probe_log(room_node.keys, row.generation).await?, row) {
            return Ok(false);
        }
        let before = row.generation;
        let watch = Stopwatch::start();
        let Some(row) = self.database.next_log(row.id, before).await? else { return Ok(false) };
        // It may have gone back since it was read.
        let judged = room_node.witness.lock().judge(&row.stored());
        if let Err(lack) = judged {
            return Err(self.stop_room(room_node, lack));
        }
        room_node.learn(&row);
        if 0 < before {
            let (room, node) = (&room_node.name, &self.sequencer.node);
            tracing::info!(%room, node, generation = before, "rebuilding what Redis knows of the room");
        }
        let mut known = self.database.known_room(&row, self.options.rows_max).await?;
        // To read all that may have taken seconds.
        let clock = self.sequencer.probe_log(room_node.keys, row.generation).await?.clock;
        let given = self.database.time.both();
        let now = given.unwrap_or_else(|| {
            // The steady clock goes on by what has passed on the wall since SQL was last told.
            let elapsed_us = clock.as_us().saturating_sub(row.now.wall.as_us()).max(0);
            let steady = Steady::from_us(row.now.steady.as_us().saturating_add(elapsed_us));
            Now { wall: clock.max(row.now.wall), steady }
        });
        // A new room has no node that could come back.
        known.grace_until = (0 < before).then(|| now.steady.plus_ms(GRACE_MS));
        if before == 0 {
            known.ceiling = known.first - 1;
        }
        let (position, ceiling) = (row.position, row.ceiling);
        let draw_key = room_node.ticket_key.draw_key();
        // Of a large room this takes seconds.
        let made = tokio::task::spawn_blocking(move || {
            let room = Room::rebuilt(&known, draw_hasher(), now)?.with_draw_key(draw_key);
            Ok::<_, Damage>(Replica::new(room, position, ceiling, draw_hasher(), now).image())
        });
        let damaged = |damage: Damage| SqlError::broken(damage.as_str());
        let image = made.await.map_err(|_| unavailable("the node ends"))?.map_err(damaged)?;
        let old: Vec<i64> = [Some(before), probe.generation.filter(|old| *old != before && *old != row.generation)]
            .into_iter()
            .flatten()
            .collect();
        let (generation, branch) = (row.generation, tag()?);
        let opening = Opening { generation, branch, position, now, clock, image: &image, before: &old };
        let is_open = self.sequencer.open_log(room_node.keys, &opening).await?;
        if is_open && 0 < before {
            self.counters.rebuilt.fetch_add(1, Ordering::Relaxed);
            let (room, node) = (&room_node.name, &self.sequencer.node);
            let (bytes, lasted_ms) = (image.len(), watch.elapsed().as_millis() as u64);
            tracing::info!(%room, node, generation, position, bytes, lasted_ms, "Redis knows the room again");
        }
        Ok(is_open)
    }
}
