//! Writes down in SQL what has to outlive the log of a room, one node at a time, and says in the log how far it has come.

use super::cell::RoomCell;
use super::log::{Append, Tick};
use crate::edge::draw_pause;
use crate::error::StoreError;
use crate::fleet::Node;
use crate::fleet::truth::{CEILING_BLOCK, Held, Page};
use firstcome_core::limits::ROOM_NUMBER_MAX;
use firstcome_core::room::Change;
use firstcome_core::room::replica::{Entry, Record};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// The ceiling is raised when fewer numbers than this are left below it.
const NUMBERS_LEFT: u32 = 16_384;
/// An image is kept when the entries since the last one have more bytes than this, and than the last one.
const IMAGE_BYTES_MIN: usize = 1 << 20;
/// The first pause after a failure, and the longest. A random part of it is taken.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Begins to write, in a task of its own, if this node does not and there is anything to write.
pub(super) fn call<D: Held>(node: &Arc<Node<D>>, cell: &Arc<RoomCell>) {
    let is_wanted = cell.copy.lock().as_ref().is_some_and(|copy| {
        let replica = &copy.replica;
        replica.pending_changes_after(replica.durable()).next().is_some() || needs_numbers(replica) || is_long(copy)
    });
    if is_wanted && !cell.is_writing.swap(true, Ordering::SeqCst) {
        tokio::spawn(write(Arc::downgrade(node), Arc::clone(cell)));
    }
}

fn needs_numbers(replica: &firstcome_core::room::replica::Replica) -> bool {
    replica.ceiling() < ROOM_NUMBER_MAX && replica.ceiling() < replica.room().drawn().saturating_add(NUMBERS_LEFT)
}

const fn is_long(copy: &super::cell::Copy) -> bool {
    IMAGE_BYTES_MIN < copy.bytes
}

async fn write<D: Held>(node: Weak<Node<D>>, cell: Arc<RoomCell>) {
    let mut pause = PAUSE_MIN;
    // It ends with the node: another one goes on.
    while let Some(node) = node.upgrade() {
        match node.write_page(&cell).await {
            Ok(true) => pause = PAUSE_MIN,
            Ok(false) => break,
            Err(_) => {
                drop(node);
                sleep(draw_pause(pause)).await;
                pause = (pause * 2).min(PAUSE_MAX);
                if !cell.is_drainer.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }
    cell.is_writing.store(false, Ordering::SeqCst);
}

impl<D: Held> Node<D> {
    /// Writes what is pending. False if nothing is, or it is another node's. Four round trips.
    async fn write_page(self: &Arc<Self>, cell: &Arc<RoomCell>) -> Result<bool, StoreError> {
        let mut row = cell.row.lock().await;
        let Some((generation, page)) = pending(cell) else { return Ok(false) };
        if row.generation != generation || page.position <= row.position {
            *row = self.truth.room_again(row.id).await?;
        }
        if row.generation != generation {
            return Ok(false);
        }
        // Another node has written further, and perhaps died before it said so.
        let is_behind = page.position <= row.position;
        let ceiling = page.ceiling;
        if !is_behind {
            if !self.truth.write_room(&row, &page).await? {
                *row = self.truth.room_again(row.id).await?;
                return Ok(row.generation == generation);
            }
            for record in &page.records {
                match record {
                    Record::Change(Change::Admitted { slot, .. }) => {
                        row.admissions = row.admissions.max(slot.admission);
                    }
                    Record::Change(Change::Reached(reached)) => row.reached = row.reached.max(*reached),
                    Record::Closed { first } => row.reached = *first,
                    _ => {}
                }
            }
            (row.position, row.digest, row.now, row.ceiling) = (page.position, page.digest, page.now, ceiling);
        }
        let mut entries = vec![Entry::Durable { position: row.position, digest: row.digest }];
        let known = cell.copy.lock().as_ref().map_or(0, |copy| copy.replica.ceiling());
        if known < row.ceiling {
            entries.push(Entry::Ceiling(row.ceiling));
        }
        let (position, id) = (row.position, row.generation);
        drop(row);
        self.say_durable(cell, id, position, &entries).await?;
        self.keep_image_if_long(cell).await?;
        Ok(true)
    }

    async fn say_durable(
        self: &Arc<Self>,
        cell: &Arc<RoomCell>,
        generation: i64,
        position: u64,
        entries: &[Entry],
    ) -> Result<(), StoreError> {
        let given = self.truth.time.both();
        let Some((seen, expected)) =
            cell.copy.lock().as_ref().map(|copy| (copy.replica.position(), copy.now(given).steady))
        else {
            return Ok(());
        };
        let expected = given.is_none().then_some(expected);
        let durable = Some(position);
        let append = Append { generation, seen, now: given, expected, tick: Tick::No, durable, entries };
        self.gate.append(cell.keys, &append).await?;
        // What it gave is read again in its turn: two must not apply at once.
        self.order(cell, None, false).await.map(drop)
    }

    async fn keep_image_if_long(&self, cell: &RoomCell) -> Result<(), StoreError> {
        let image = {
            let mut copy = cell.copy.lock();
            let Some(copy) = copy.as_mut().filter(|copy| is_long(copy)) else { return Ok(()) };
            let image = copy.replica.image();
            if copy.bytes < image.len() {
                return Ok(());
            }
            copy.bytes = 0;
            (copy.generation, copy.replica.position(), image)
        };
        let (generation, position, image) = image;
        self.gate.keep_image(cell.keys, generation, position, &image).await.map_err(StoreError::from)
    }
}

/// All that is to be written down next.
fn pending(cell: &RoomCell) -> Option<(i64, Page)> {
    let copy = cell.copy.lock();
    let copy = copy.as_ref()?;
    let replica = &copy.replica;
    let records: Vec<Record> =
        replica.pending_changes_after(replica.durable()).map(|(_, record)| record.clone()).collect();
    let raise = needs_numbers(replica);
    if records.is_empty() && !raise {
        return None;
    }
    let raised = replica.ceiling().saturating_add(CEILING_BLOCK).min(ROOM_NUMBER_MAX);
    let ceiling = if raise { raised } else { replica.ceiling() };
    let page = Page { position: replica.position(), digest: replica.digest(), now: replica.now(), ceiling, records };
    Some((copy.generation, page))
}
