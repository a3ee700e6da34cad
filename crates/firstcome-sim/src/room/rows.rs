//! The rows of rooms as the disk keeps them.

use super::recovery;
use crate::journal::Tables;
use firstcome_core::id::RoomName;
use firstcome_core::room::{self, Departure, Draw, Hold, Join, Memory, Renewal, RoomSettings, Slot};
use firstcome_core::time::Now;
use firstcome_store::TicketKey;
use firstcome_store::embedded::StoredRoom;
use firstcome_store::embedded::journal::{Change, PassSecret, RoomId, RoomPut};
use std::collections::BTreeMap;
use std::hash::RandomState;

/// The row of one ticket.
#[derive(Clone, PartialEq, Debug)]
pub struct TicketRow {
    /// Whose it is, and of which request.
    pub join: Join,
    /// How it went, if it is gone.
    pub gone: Option<Departure>,
}

/// The rows of one room.
#[derive(Clone, Debug)]
pub struct RoomRows {
    /// Its name.
    pub name: RoomName,
    /// The settings that were stored last.
    pub settings: RoomSettings,
    /// The secret of its tickets.
    pub ticket_key: TicketKey,
    /// Numbers before this one are void.
    pub first: u32,
    /// How far the line is.
    pub reached: u32,
    /// The draw, once it took place.
    pub draw: Option<Draw>,
    /// Whether it is closed.
    pub closed: bool,
    /// Its tickets by number.
    pub tickets: BTreeMap<u32, TicketRow>,
    /// Its slots by number.
    pub slots: BTreeMap<u32, Slot>,
    /// The renewals of its living tickets, by number.
    pub renewals: BTreeMap<u32, Renewal>,
    /// What it remembers, by the first number of each part.
    pub memory: BTreeMap<u32, Memory>,
}

/// Everything that is stored.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The rooms.
    pub rooms: BTreeMap<RoomId, RoomRows>,
    /// What both clocks showed.
    pub clock: Option<Now>,
    /// The secrets of passes.
    pub secrets: Vec<PassSecret>,
}

impl Tables for Stored {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::RoomPut(put) => {
                let RoomPut { id, name, settings, ticket_key, .. } = put.as_ref();
                let rows = self.rooms.entry(*id).or_insert_with(|| RoomRows {
                    name: name.clone(),
                    settings: settings.clone(),
                    ticket_key: ticket_key.clone(),
                    first: 1,
                    reached: 1,
                    draw: None,
                    closed: false,
                    tickets: BTreeMap::new(),
                    slots: BTreeMap::new(),
                    renewals: BTreeMap::new(),
                    memory: BTreeMap::new(),
                });
                rows.settings = settings.clone();
                rows.closed = false;
            }
            Change::RoomClosed { id, first, .. } => {
                let rows = self.known(*id);
                (rows.first, rows.reached, rows.closed) = (*first, *first, true);
                rows.draw = None;
                rows.tickets.clear();
                rows.slots.clear();
                rows.renewals.clear();
                rows.memory.clear();
            }
            Change::Room { id, change, .. } => self.known(*id).apply(change),
            Change::Remembered { id, memory } => {
                let kept = &mut self.known(*id).memory;
                if memory.bytes.is_empty() {
                    kept.remove(&memory.first_number);
                } else {
                    kept.insert(memory.first_number, memory.clone());
                }
            }
            Change::Clock(now) => self.clock = Some(*now),
            Change::PassSecret { fresh, oldest_kept } => {
                self.secrets.retain(|secret| *oldest_kept <= secret.id);
                self.secrets.push(*fresh);
            }
            Change::PassSecretRevoked { id, fresh } => {
                self.secrets.retain(|secret| secret.id != *id);
                self.secrets.extend(*fresh);
            }
            // The world of rooms has no coupons.
            _ => {}
        }
    }

    fn room(&self, id: RoomId, hasher: &RandomState, now: Now) -> Result<StoredRoom, String> {
        let mut rooms = recovery::recover(self, hasher, now)?.into_iter();
        rooms.find(|stored| stored.id == id).ok_or_else(|| format!("room {} is gone", id.0))
    }
}

impl Stored {
    fn known(&mut self, id: RoomId) -> &mut RoomRows {
        match self.rooms.get_mut(&id) {
            Some(rows) => rows,
            None => panic!("a change of room {} came before the room", id.0),
        }
    }
}

impl RoomRows {
    fn apply(&mut self, change: &room::Change) {
        match change {
            room::Change::Joined { number, join, .. } => {
                self.tickets.insert(number.get(), TicketRow { join: join.clone(), gone: None });
            }
            room::Change::Admitted { number, slot } => {
                self.slots.insert(number.get(), *slot);
            }
            room::Change::Taken { number, until } => {
                if let Some(slot) = self.slots.get_mut(&number.get()) {
                    slot.hold = Hold::Taken { until: *until };
                }
            }
            room::Change::Lapsed { number } => {
                self.slots.remove(&number.get());
            }
            room::Change::Gone { number, how } => {
                self.slots.remove(&number.get());
                self.renewals.remove(&number.get());
                if let Some(row) = self.tickets.get_mut(&number.get()) {
                    row.gone = Some(*how);
                }
            }
            room::Change::Renewed { number, renewal } => {
                self.renewals.insert(number.get(), *renewal);
            }
            room::Change::Reached(reached) => self.reached = *reached,
            room::Change::Drawn(draw) => self.draw = Some(*draw),
        }
    }
}
