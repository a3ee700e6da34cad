//! Writes records of the log to SQL, one node at a time, and says in the log how far it has come.
//!
//! Numbers up to a ceiling are drawn once it is in SQL and the log says so. A node that raises it in SQL says so in the log from whose
//! copy it wrote. A raise that is only found there may be that of a branch of the log which goes on elsewhere (see
//! [`super::rebuild`]), and so may be its numbers: the log is told that they are unknown, and the ceiling is raised once more.

use super::log::Image;
use super::replica::{LogId, RoomNode, RoomReplica, StoredLog, Want};
use super::{tag, voided};
use crate::database::{CEILING_BLOCK, Page, RoomRow};
use crate::node::Node;
use crate::outbox_writer::SLOW_WRITE;
use firstcome_core::limits::ROOM_NUMBER_MAX;
use firstcome_core::room::replica::{Entry, Record, Replica};
use firstcome_store::StoreError;
use firstcome_store::edge::{Stopwatch, draw_pause};
use firstcome_store::throttle::Throttle;
use firstcome_store::trace::{self, StageKind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// The ceiling is raised when fewer numbers than this are left below it.
const NUMBERS_LEFT: u32 = 16_384;
/// The first pause after a failure, and the longest. A random part of it is taken.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Begins to write, in a task of its own, if this node does not and there is anything to write.
pub(super) fn call(node: &Arc<Node>, room_node: &Arc<RoomNode>) {
    let is_wanted = room_node.copy.lock().as_ref().is_some_and(|copy| is_due(copy, node.options.image_bytes_min));
    if is_wanted && !room_node.is_writing.swap(true, Ordering::SeqCst) {
        tokio::spawn(write(Arc::downgrade(node), Arc::clone(room_node)));
    }
}

/// Whether there is anything to do for the node that writes.
fn is_due(copy: &RoomReplica, image_bytes_min: usize) -> bool {
    copy.is_pending() || needs_numbers(&copy.replica) || is_long(copy, image_bytes_min)
}

fn needs_numbers(replica: &Replica) -> bool {
    replica.ceiling() < ROOM_NUMBER_MAX && replica.ceiling() < replica.room().drawn().saturating_add(NUMBERS_LEFT)
}

fn is_long(copy: &RoomReplica, image_bytes_min: usize) -> bool {
    image_bytes_min.max(copy.image_bytes) < copy.bytes
}

/// What there is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Perhaps more.
    More,
    /// Nothing.
    Nothing,
    /// This is not the log that counts.
    Other,
}

/// Lets another one write when it is dropped.
struct Writing(Arc<RoomNode>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.is_writing.store(false, Ordering::SeqCst);
    }
}

async fn write(node: Weak<Node>, room_node: Arc<RoomNode>) {
    let writing = Writing(Arc::clone(&room_node));
    let mut pause = PAUSE_MIN;
    let mut next = Next::More;
    // The last raise that this task has made in SQL, and from which log.
    let mut raised = None;
    // It ends with the node: another one goes on.
    while next == Next::More
        && let Some(node) = node.upgrade()
    {
        match node.write_page(&room_node, &mut raised).await {
            Ok(told) => (next, pause) = (told, PAUSE_MIN),
            Err(_) => {
                drop(node);
                sleep(draw_pause(pause)).await;
                pause = (pause * 2).min(PAUSE_MAX);
                if !room_node.is_drainer.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }
    drop(writing);
    // Something may have come just before that, and a node that brought it found that a node writes.
    if let Some(node) = node.upgrade().filter(|_| next == Next::Nothing) {
        call(&node, &room_node);
    }
}

/// Tells the log of a slow write, once a second at most.
fn note_write(room_node: &RoomNode, lasted: Duration, records: usize) {
    static SLOW: Throttle = Throttle::new();
    if SLOW_WRITE <= lasted
        && let Some(left_out) = SLOW.pass()
    {
        let (room, lasted_ms) = (&room_node.name, lasted.as_millis() as u64);
        tracing::warn!(%room, lasted_ms, records, left_out, "a write of the room to the database was slow");
    }
}

impl Node {
    /// Reads the room again. A database that does not answer is one that cannot be written to either.
    async fn read_row(self: &Arc<Self>, room_node: &Arc<RoomNode>, row: &mut RoomRow) -> Result<(), StoreError> {
        *row = self.checked_row(room_node).await.inspect_err(|_| room_node.note_write(false))?;
        Ok(())
    }

    /// Writes what is pending. Three round trips.
    async fn write_page(
        self: &Arc<Self>,
        room_node: &Arc<RoomNode>,
        raised: &mut Option<(LogId, u32)>,
    ) -> Result<Next, StoreError> {
        let mut row = room_node.row.lock().await;
        let standing =
            |room_node: &RoomNode| room_node.copy.lock().as_ref().map(|copy| (copy.log, copy.replica.durable()));
        let Some((log, durable)) = standing(room_node) else { return Ok(Next::Nothing) };
        if row.generation != log.generation || row.position < durable {
            self.read_row(room_node, &mut row).await?;
        }
        if row.generation != log.generation {
            return Ok(Next::Other);
        }
        match due(room_node, log, &row, self.options.rows_max as usize) {
            Due::Nothing => {
                drop(row);
                self.keep_image_if_long(room_node).await?;
                return Ok(Next::Nothing);
            }
            // Another node has written it, or this one, and perhaps died before it said so.
            Due::Say => {}
            Due::Write(page) => {
                let watch = Stopwatch::start();
                let written = self.database.write_room(&row, &page).await;
                note_write(room_node, watch.elapsed(), page.records.len());
                trace::note(StageKind::Write, room_node.name.as_str(), watch.elapsed(), page.records.len());
                room_node.note_write(written.is_ok());
                if !written? {
                    self.read_row(room_node, &mut row).await?;
                    return Ok(if row.generation == log.generation { Next::More } else { Next::Other });
                }
                if page.closes() {
                    voided::call(self, row.id);
                }
                if row.ceiling < page.ceiling {
                    *raised = Some((log, page.ceiling));
                }
                (row.admissions, row.reached) = page.further(&row);
                (row.position, row.digest, row.now, row.ceiling) = (page.position, page.digest, page.now, page.ceiling);
                room_node.learn(&row);
            }
        }
        let mut entries = vec![Entry::Durable { position: row.position, digest: row.digest }];
        let known = room_node.copy.lock().as_ref().map_or(0, |copy| copy.replica.ceiling());
        if known < row.ceiling {
            let ceiling = row.ceiling;
            let is_own = *raised == Some((log, ceiling));
            entries.push(match is_own {
                true => Entry::Ceiling(ceiling),
                false => Entry::Lost { ceiling, grace_ms: 0, branch: tag()? },
            });
        }
        let stored = StoredLog { log, position: row.position, entries };
        drop(row);
        self.order(room_node, Want::Say(stored)).await?;
        self.keep_image_if_long(room_node).await?;
        Ok(Next::More)
    }

    async fn keep_image_if_long(&self, room_node: &RoomNode) -> Result<(), StoreError> {
        let is_long = room_node.copy.lock().as_ref().is_some_and(|copy| is_long(copy, self.options.image_bytes_min));
        if is_long {
            self.keep_image(room_node).await?;
        }
        Ok(())
    }

    /// Keeps an image of the copy in place of all entries up to it. Returns whether the log has one of that moment or a later one.
    pub(super) async fn keep_image(&self, room_node: &RoomNode) -> Result<bool, StoreError> {
        let (generation, position, image) = {
            let mut copy = room_node.copy.lock();
            let Some(copy) = copy.as_mut() else { return Ok(false) };
            let image = Image { branch: copy.log.branch, bytes: copy.replica.image() };
            (copy.bytes, copy.image_bytes) = (0, image.bytes.len());
            (copy.log.generation, copy.replica.position(), image)
        };
        Ok(self.sequencer.keep_image(room_node.keys, generation, position, &image).await?)
    }
}

/// What must be done about SQL.
enum Due {
    Nothing,
    /// SQL holds more than the log says.
    Say,
    Write(Page),
}

/// What must be done next in a log, by what SQL holds. A page ends with an entry of which all copies keep the digest, and has
/// no more records than it may unless one entry alone has.
fn due(room_node: &RoomNode, log: LogId, row: &RoomRow, records_max: usize) -> Due {
    let copy = room_node.copy.lock();
    let Some(replica) = copy.as_ref().filter(|copy| copy.log == log).map(|copy| &copy.replica) else {
        return Due::Nothing;
    };
    let is_raised = replica.ceiling() < row.ceiling;
    if replica.durable() < row.position || is_raised {
        return Due::Say;
    }
    let raise = needs_numbers(replica);
    let pending = || replica.pending_changes_after(row.position);
    let first = pending().next().map(|(position, _)| position);
    if first.is_none() && !raise {
        return Due::Nothing;
    }
    // The entry of the first record that is too many is left out, unless it is the first entry.
    let over = pending().nth(records_max).map(|(position, _)| position);
    let end = first.zip(over).map_or(u64::MAX, |(first, over)| first.max(over - 1));
    let Some((position, digest)) = replica.mark_up_to(end).filter(|(position, _)| row.position < *position) else {
        // The entry that says so is one with which a page can end.
        return Due::Say;
    };
    let records: Vec<Record> =
        pending().take_while(|(at, _)| *at <= position).map(|(_, record)| record.clone()).collect();
    let raised = replica.ceiling().saturating_add(CEILING_BLOCK).min(ROOM_NUMBER_MAX);
    let ceiling = if raise { raised } else { replica.ceiling() };
    Due::Write(Page { position, digest, now: replica.now(), ceiling, records })
}
