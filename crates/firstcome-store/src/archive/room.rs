//! Imports rooms: each goes through the same rules as when a store opens.

use super::intake::Intake;
use super::{ArchivedRoom, ArchivedSlot, ArchivedTicket, ImportError, TicketState};
use crate::embedded::journal::{Change, PassSecret, RoomId, RoomPut};
use crate::receipt::HeadKey;
use crate::ticket::TicketKey;
use firstcome_core::id::RoomName;
use firstcome_core::limits::ROOM_NUMBER_MAX;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::draw::Turns;
use firstcome_core::room::{self, Damage, Draw, Hold, Join, Room, RoomPhase, Slot, TicketNumber};
use firstcome_core::time::{Now, Steady, Timestamp};
use std::collections::{HashMap, HashSet};
use std::hash::RandomState;

/// A room whose tickets are being imported.
struct Coming {
    id: RoomId,
    ticket_key: TicketKey,
    room: Room,
    /// The number that the next ticket must have.
    next: u32,
    drawn: u32,
    draw: Option<Draw>,
    /// The order of service after the draw.
    turns: Option<Turns>,
    reached: u32,
    admissions: u64,
    seen: HashSet<u64, RandomState>,
    slots: Vec<(TicketNumber, Slot)>,
}

/// The rooms that the store holds before the import.
#[derive(Default)]
pub struct RoomsBefore {
    /// The names of existing rooms.
    pub names: Vec<RoomName>,
    /// Whether there are other existing rooms, whose names the caller of the import checks.
    pub has_rooms: bool,
    /// The id of the next room.
    pub next: u32,
    /// The existing secrets that sign passes.
    pub pass_secrets: Vec<PassSecret>,
    /// Whether unknown numbers become visitors in line; otherwise they stay unknown.
    pub lost_wait: bool,
}

firstcome_core::debug_by_name!(RoomsBefore);

/// The rooms imported so far.
pub(crate) struct IncomingRooms {
    there: HashSet<RoomName, RandomState>,
    /// Whether the store had any room before the import.
    has_rooms: bool,
    coming: HashMap<RoomName, Coming, RandomState>,
    next: u32,
    pass_secrets: Vec<PassSecret>,
    /// Whether unknown numbers become visitors in line; otherwise they stay unknown.
    lost_wait: bool,
}

impl IncomingRooms {
    pub(super) fn new(before: RoomsBefore, hasher: &RandomState) -> Self {
        let RoomsBefore { names, has_rooms, next, pass_secrets, lost_wait } = before;
        let mut there = HashSet::with_hasher(hasher.clone());
        there.extend(names);
        let has_rooms = has_rooms || !there.is_empty();
        let coming = HashMap::with_hasher(hasher.clone());
        Self { there, has_rooms, coming, next: next.max(1), pass_secrets, lost_wait }
    }
}

impl IncomingRooms {
    /// Returns the key of the heads of a room that has come.
    pub(super) fn head_key(&self, name: &RoomName) -> Option<HeadKey> {
        self.coming.get(name).map(|coming| coming.ticket_key.head_key())
    }
}

/// Converts an end by the wall clock to the steady clock. Ends in the far past or future stay there.
const fn steady_of(until: Timestamp, now: Now) -> Steady {
    let ahead_us = until.as_us().saturating_sub(now.wall.as_us());
    Steady::from_us(now.steady.as_us().saturating_add(ahead_us))
}

impl Intake {
    /// Takes a room, before its tickets.
    pub(super) fn room(&mut self, archived: ArchivedRoom) -> Result<(), ImportError> {
        let ArchivedRoom { name, settings, appearance, ticket_key, is_closed, first, reached, drawn, admissions, draw } =
            archived;
        if self.rooms.there.contains(&name) || self.rooms.coming.contains_key(&name) {
            return Err(ImportError::RoomThere(name));
        }
        let broken = |says| Err(ImportError::BrokenRoom { room: name.clone(), says });
        if first == 0 || ROOM_NUMBER_MAX < drawn || drawn < first - 1 {
            return broken("first and drawn are not a range of numbers");
        }
        if reached < first || drawn + 1 < reached {
            return broken("reached is not a number that was drawn");
        }
        if i64::MAX as u64 <= admissions {
            return broken("more admissions than can be counted");
        }
        if is_closed && first != drawn + 1 {
            return broken("in a closed room all numbers are void");
        }
        let misses = |draw: &Draw| !draw.is_sound() || draw.first < first || drawn + 1 < draw.end() || is_closed;
        if draw.as_ref().is_some_and(misses) {
            return broken("the draw names numbers that the room does not have");
        }
        let id = RoomId(self.rooms.next);
        self.rooms.next += 1;
        let now = self.now;
        if self.rooms.coming.is_empty() {
            // The ends of slots count by these clocks.
            self.change(Change::Clock(now));
        }
        let put = RoomPut {
            id,
            name: name.clone(),
            settings: settings.clone(),
            ticket_key: ticket_key.clone(),
            at: now.wall,
        };
        self.change(Change::RoomPut(Box::new(put.clone())));
        if is_closed || 1 < first {
            self.change(Change::RoomClosed { id, first, at: now.wall });
        }
        if !is_closed && 1 < first {
            // The room was closed and opened again.
            self.change(Change::RoomPut(Box::new(put)));
        }
        if *appearance != Appearance::default() {
            self.change(Change::AppearancePut { id, appearance });
        }
        if first < reached {
            self.change(Change::of_room(id, room::Change::Reached(reached), now));
        }
        if let Some(draw) = draw {
            self.change(Change::of_room(id, room::Change::Drawn(draw), now));
        }
        let turns = draw.map(|draw| draw.turns());
        let room = Room::restoring(settings, self.hasher.clone(), now, first);
        let seen = HashSet::with_hasher(self.hasher.clone());
        let slots = Vec::new();
        self.rooms.coming.insert(
            name,
            Coming { id, ticket_key, room, next: first, drawn, draw, turns, reached, admissions, seen, slots },
        );
        Ok(())
    }

    /// Takes a ticket: the next of its room.
    pub(super) fn ticket(&mut self, archived: ArchivedTicket) -> Result<(), ImportError> {
        let ArchivedTicket { room: name, number, state } = archived;
        let now = self.now;
        let Some(coming) = self.rooms.coming.get_mut(&name) else { return Err(ImportError::UnknownRoom(name)) };
        let broken = |damage| ImportError::BrokenTicket { room: name.clone(), number, damage };
        let last = if let TicketState::Lost(last) = state { last } else { number };
        if number.get() != coming.next || last < number || coming.drawn < last.get() {
            return Err(broken(Damage::Ticket));
        }
        coming.next = last.get() + 1;
        let id = coming.id;
        let joined = |number, join, joined_at| {
            let change = room::Change::Joined { number, join, joined_at };
            Change::of_room(id, change, now)
        };
        let mut changes = Vec::new();
        match state {
            TicketState::Living { join, joined_at, slot, renewal } => {
                coming.room.restore_ticket(number, &join, None, now).map_err(broken)?;
                changes.push(joined(number, join, joined_at.unwrap_or(now.wall)));
                if let Some(slot) = slot {
                    let slot = coming.admitted(number, slot, now).map_err(broken)?;
                    changes.push(Change::of_room(id, room::Change::Admitted { number, slot }, now));
                }
                if let Some(renewal) = renewal {
                    coming.room.restore_renewal(number, renewal).map_err(broken)?;
                    changes.push(Change::of_room(id, room::Change::Renewed { number, renewal }, now));
                }
            }
            TicketState::Gone(how) => {
                let nobody = Join { user: None, request: None };
                coming.room.restore_ticket(number, &nobody, Some(how), now).map_err(broken)?;
                changes.push(joined(number, nobody, now.wall));
                changes.push(Change::of_room(id, room::Change::Gone { number, how }, now));
            }
            TicketState::Lost(last) => {
                // If every number needs a row, they count as visitors in line until they come back or are silent for
                // too long.
                for number in (number.get()..=last.get()).filter_map(TicketNumber::new) {
                    let nobody = Join { user: None, request: None };
                    coming.room.restore_ticket(number, &nobody, None, now).map_err(broken)?;
                    if self.rooms.lost_wait {
                        changes.push(joined(number, nobody, now.wall));
                    }
                }
            }
        }
        changes.into_iter().for_each(|change| self.change(change));
        Ok(())
    }

    /// Takes a secret that signs passes. It must be equal to an existing one, or newer in a store without rooms.
    pub(super) fn pass_secret(&mut self, secret: PassSecret) -> Result<(), ImportError> {
        let known = self.rooms.pass_secrets.iter().find(|known| known.id == secret.id);
        let follows = self.rooms.pass_secrets.last().is_none_or(|last| last.id < secret.id);
        match known {
            Some(known) if known.bytes == secret.bytes => Ok(()),
            None if follows && !self.rooms.has_rooms => {
                let oldest_kept = self.rooms.pass_secrets.first().map_or(secret.id, |first| first.id);
                self.rooms.pass_secrets.push(secret);
                self.change(Change::PassSecret { fresh: secret, oldest_kept });
                Ok(())
            }
            _ => Err(ImportError::PassSecretsDiffer),
        }
    }

    /// Checks that all tickets have come, and that the rooms can continue.
    pub(super) fn finish_rooms(&mut self) -> Result<(), ImportError> {
        let now = self.now;
        let has_secret = !self.rooms.pass_secrets.is_empty();
        for (name, coming) in self.rooms.coming.drain() {
            let Coming { mut room, next, drawn, draw, reached, admissions, slots, .. } = coming;
            if next <= drawn {
                return Err(ImportError::TicketsMissing { room: name, next, drawn });
            }
            if !has_secret {
                let says = "the import has no secret that signs passes";
                return Err(ImportError::BrokenRoom { room: name, says });
            }
            draw.map_or(Ok(()), |draw| room.restore_draw(&draw))
                .and_then(|()| room.restore_reached(reached, admissions))
                .map_err(|damage| ImportError::BrokenRoom { room: name.clone(), says: damage.as_str() })?;
            for (number, slot) in slots {
                room.restore_slot(number, slot, now).map_err(|damage| ImportError::BrokenTicket {
                    room: name.clone(),
                    number,
                    damage,
                })?;
            }
            room.restored(RoomPhase::Running);
        }
        Ok(())
    }
}

impl Coming {
    /// Checks that a ticket can have this slot, and returns the slot.
    fn admitted(&mut self, number: TicketNumber, slot: ArchivedSlot, now: Now) -> Result<Slot, Damage> {
        let ArchivedSlot { admission, admitted_at, is_taken, until } = slot;
        let turn = self.turns.as_ref().map_or(number.get(), |turns| turns.turn(number.get()));
        if self.reached <= turn {
            return Err(Damage::Reached);
        }
        if admission == 0 || self.admissions < admission || !self.seen.insert(admission) {
            return Err(Damage::Slot);
        }
        let until = steady_of(until, now);
        let hold = if is_taken { Hold::Taken { until } } else { Hold::Offered { until } };
        let slot = Slot { admission, admitted_at, hold };
        self.slots.push((number, slot));
        Ok(slot)
    }
}
