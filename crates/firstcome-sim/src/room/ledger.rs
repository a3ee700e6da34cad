//! What the disk says happened: the stories of all rooms and tickets, read from the log of commits.
//!
//! Instants are microseconds of the world's steady clock. The log is read strictly: a change that does not fit the
//! story so far is a breach, which invariant 9 reports.

use crate::journal::Commit;
use firstcome_core::id::RoomName;
use firstcome_core::room::{
    self, Departure, Draw, Hold, Join, Memory, Renewal, RoomOrder, RoomSettings, Slot, TicketNumber,
};
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_store::embedded::journal::{Change, PassSecret, RoomId};
use std::collections::BTreeMap;
use std::ops::Range;

/// One admission.
#[derive(Debug)]
pub struct SlotStory {
    /// The slot as it was offered.
    pub slot: Slot,
    /// When it was offered.
    pub offered: i64,
    /// When it was taken, and until when on the store's clock.
    pub taken: Option<(i64, Steady)>,
    /// When it was given back, or ended.
    pub ended: Option<i64>,
}

/// One ticket.
#[derive(Debug)]
pub struct TicketStory {
    /// Whose, and of which request.
    pub join: Join,
    /// When it was drawn.
    pub joined: i64,
    /// Its admissions.
    pub slots: Vec<SlotStory>,
    /// The renewals of its ticket.
    pub renewals: Vec<(i64, Renewal)>,
    /// When it went, and how; nothing where the room was closed.
    pub gone: Option<(i64, Option<Departure>)>,
}

impl TicketStory {
    /// Whether it was in line at this instant, before or after what happened in it.
    pub fn waits_at(&self, at: i64) -> bool {
        let mut since = Some(self.joined);
        for slot in &self.slots {
            if since.is_some_and(|since| since <= at && at <= slot.offered) {
                return true;
            }
            since = slot.ended;
        }
        // With its last slot a ticket comes back or is gone; in the same instant it was both.
        let end = self.gone.map_or(i64::MAX, |(gone, _)| gone);
        since.is_some_and(|since| since <= at && at <= end)
    }

    /// Whether it waits in line when everything is over that happened up to this instant, this one excluded.
    pub fn waits_before(&self, at: i64) -> bool {
        let slot_open = self.slots.iter().any(|slot| slot.offered < at && slot.ended.is_none_or(|ended| at <= ended));
        self.joined < at && !slot_open && self.gone.is_none_or(|(gone, _)| at <= gone)
    }

    /// The slot of an admission. After a restart the count of admissions goes on from those that are alive, so an offer
    /// that lapsed, for which there never was a pass, may have had the same one.
    pub fn slot(&self, admission: u64) -> Option<&SlotStory> {
        self.slots.iter().rev().find(|slot| slot.slot.admission == admission)
    }

    /// Whether anything happened to it at this instant.
    pub fn changes_at(&self, at: i64) -> bool {
        let of_slot = |slot: &SlotStory| {
            slot.offered == at || slot.ended == Some(at) || slot.taken.is_some_and(|(taken, _)| taken == at)
        };
        self.joined == at || self.gone.is_some_and(|(gone, _)| gone == at) || self.slots.iter().any(of_slot)
    }

    /// Whether it was in the slot of this admission, taken, at some instant of these.
    pub fn holds_within(&self, admission: u64, from: i64, to: i64) -> bool {
        self.slot(admission).is_some_and(|slot| {
            slot.taken.is_some_and(|(taken, _)| taken <= to) && slot.ended.is_none_or(|ended| from <= ended)
        })
    }
}

/// One admission, as the row of all admissions has it.
#[derive(Debug)]
pub struct Admission {
    /// When.
    pub at: i64,
    /// Of whom.
    pub number: u32,
    /// How many had a slot then, this one included.
    pub active: u32,
    /// How many may.
    pub cap: Option<u32>,
    /// How many settings there had been: the last of them was in force.
    pub settings: usize,
}

/// One draw.
#[derive(Debug)]
pub struct DrawStory {
    /// When.
    pub at: i64,
    /// The draw.
    pub draw: Draw,
    /// How many settings there had been: the last of them was in force.
    pub settings: usize,
    /// How many admissions there had been.
    pub admissions: usize,
    /// When the room was closed, which ended the draw.
    pub ended: Option<i64>,
}

/// One room.
#[derive(Debug, Default)]
pub struct RoomStory {
    /// Settings, and since when.
    pub settings: Vec<(i64, RoomSettings)>,
    /// When it was closed.
    pub closed: Vec<i64>,
    /// How far the line was, and since when.
    pub reached: Vec<(i64, u32)>,
    /// Its draws, and the turns of the numbers that took part in one.
    pub draws: Vec<DrawStory>,
    turns: BTreeMap<u32, (i64, u32)>,
    /// Numbers that were given out after the opening and before its draw.
    pub too_early: Vec<u32>,
    /// Its tickets by number.
    pub tickets: BTreeMap<u32, TicketStory>,
    /// The number that comes next.
    pub next: u32,
    /// Admissions in order.
    pub admissions: Vec<Admission>,
    /// What was remembered of who was present, and since when.
    pub memory: Vec<(i64, Memory)>,
    active: u32,
}

impl RoomStory {
    /// Whether it was closed at some instant of these.
    pub fn is_closed_within(&self, from: i64, to: i64) -> bool {
        self.closed.iter().any(|&closed| {
            let opened = self.settings.iter().map(|(since, _)| *since).find(|since| closed < *since);
            closed <= to && opened.is_none_or(|opened| from <= opened)
        })
    }

    /// The number that the line had reached before this instant.
    pub fn reached_before(&self, at: i64) -> u32 {
        self.reached.iter().rev().find(|(since, _)| *since < at).map_or(1, |(_, reached)| *reached)
    }

    /// The turn of a number at an instant: its place after the draw in which it took part, else the number itself. Numbers that
    /// were gone before a draw may take part in it, and were their own turns until then.
    pub fn turn(&self, number: u32, at: i64) -> u32 {
        self.turns.get(&number).filter(|(drawn, _)| *drawn <= at).map_or(number, |(_, turn)| *turn)
    }

    /// Tickets whose turn is in this range at an instant, in no order.
    pub fn by_turn(&self, turns: Range<u32>, at: i64) -> impl Iterator<Item = (u32, &TicketStory)> {
        // Turns of a draw are a permutation of its numbers, so the whole range of a draw is searched if part of it counts.
        let (mut from, mut to) = (turns.start, turns.end);
        for DrawStory { draw, .. } in self.draws.iter().filter(|draw| draw.at <= at) {
            if draw.first < to && from < draw.end() {
                (from, to) = (from.min(draw.first), to.max(draw.end()));
            }
        }
        let within = move |number: u32| turns.contains(&self.turn(number, at));
        self.tickets.range(from..to.max(from)).map(|(number, ticket)| (*number, ticket)).filter(move |it| within(it.0))
    }

    /// A ticket by number.
    pub fn ticket(&self, number: TicketNumber) -> Option<&TicketStory> {
        self.tickets.get(&number.get())
    }
}

/// All stories.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By name.
    pub rooms: BTreeMap<RoomName, RoomStory>,
    /// What both clocks of the store showed, and when.
    pub clocks: Vec<(i64, Now)>,
    /// The secrets of passes, and since when.
    pub secrets: Vec<(i64, PassSecret)>,
    /// The numbers of the secrets that were revoked, and since when.
    pub revoked_secrets: Vec<(i64, u32)>,
    /// What in the log does not fit.
    pub breaches: Vec<String>,
}

impl Ledger {
    /// Reads the log.
    pub fn read(log: &[Commit]) -> Self {
        let mut ledger = Self::default();
        let mut names: BTreeMap<RoomId, RoomName> = BTreeMap::new();
        for commit in log {
            let at = commit.at.steady.as_us();
            for change in &commit.changes {
                match change {
                    Change::RoomPut(put) => {
                        names.insert(put.id, put.name.clone());
                        let room = ledger.rooms.entry(put.name.clone()).or_default();
                        room.next = room.next.max(1);
                        room.settings.push((commit.in_force.0, put.settings.clone()));
                    }
                    Change::RoomClosed { id, first, .. } => {
                        if let Some(room) = names.get(id).and_then(|name| ledger.rooms.get_mut(name)) {
                            room.close(commit.in_force.0, *first).unwrap_or_else(|breach| ledger.breaches.push(breach));
                        }
                    }
                    Change::Room { id, change, .. } => {
                        let Some(name) = names.get(id) else { continue };
                        let Some(room) = ledger.rooms.get_mut(name) else { continue };
                        if let Err(breach) = room.take(at, change) {
                            ledger.breaches.push(format!("{name}: {breach}"));
                        }
                    }
                    Change::Remembered { id, memory } => {
                        if let Some(room) = names.get(id).and_then(|name| ledger.rooms.get_mut(name)) {
                            room.memory.push((at, memory.clone()));
                        }
                    }
                    Change::Clock(now) => ledger.clocks.push((at, *now)),
                    Change::PassSecret { fresh, .. } => ledger.secrets.push((at, *fresh)),
                    Change::PassSecretRevoked { id, fresh } => {
                        ledger.revoked_secrets.push((at, *id));
                        ledger.secrets.extend(fresh.map(|fresh| (at, fresh)));
                    }
                    _ => {}
                }
            }
        }
        ledger
    }

    /// How far the store's steady clock was ahead of the world's in a life that began and ended then, if it stored any.
    pub fn ahead_us(&self, from: i64, to: i64) -> Option<i64> {
        let (at, now) = self.clocks.iter().find(|(at, _)| from <= *at && *at < to)?;
        Some(now.steady.as_us() - at)
    }
}

impl RoomStory {
    fn close(&mut self, at: i64, first: u32) -> Result<(), String> {
        self.closed.push(at);
        self.reached.push((at, first));
        self.active = 0;
        if let Some(draw) = self.draws.last_mut() {
            draw.ended.get_or_insert(at);
        }
        for ticket in self.tickets.values_mut().filter(|ticket| ticket.gone.is_none()) {
            if let Some(slot) = ticket.slots.last_mut() {
                slot.ended.get_or_insert(at);
            }
            ticket.gone = Some((at, None));
        }
        if first == self.next { Ok(()) } else { Err(format!("closed at {first}, but {} comes next", self.next)) }
    }

    fn living(&mut self, number: TicketNumber) -> Result<&mut TicketStory, String> {
        let number = number.get();
        let ticket = self.tickets.get_mut(&number).ok_or_else(|| format!("number {number} was never drawn"))?;
        if ticket.gone.is_some() { Err(format!("number {number} is gone and goes on")) } else { Ok(ticket) }
    }

    fn draw(&mut self, at: i64, number: TicketNumber, join: &Join) -> Result<(), String> {
        let drawn = number.get();
        if self.tickets.contains_key(&drawn) {
            return Err(format!("number {drawn} was drawn twice"));
        }
        let alike = self.tickets.iter().find(|(_, other)| {
            let same_user = join.user.is_some() && other.join.user == join.user;
            let same_key = join.request.is_some_and(|mine| other.join.request.is_some_and(|it| it.key == mine.key));
            other.gone.is_none() && (same_user || same_key)
        });
        if let Some((other, _)) = alike {
            return Err(format!("one user or one key has the living numbers {other} and {drawn}"));
        }
        let ticket =
            TicketStory { join: join.clone(), joined: at, slots: Vec::new(), renewals: Vec::new(), gone: None };
        self.tickets.insert(drawn, ticket);
        let wanted = std::mem::replace(&mut self.next, drawn + 1);
        if wanted == drawn { Ok(()) } else { Err(format!("number {drawn} was drawn, {wanted} was next")) }
    }

    /// The opening draws before any latecomer gets a number.
    fn joins_in_time(&mut self, number: TicketNumber, joined_at: Timestamp) {
        let Some((_, settings)) = self.settings.last() else { return };
        let is_drawn = self.draws.last().is_some_and(|draw| draw.ended.is_none());
        let has_opened = settings.opens_at.is_some_and(|opens_at| opens_at <= joined_at);
        if settings.order == RoomOrder::Draw && !is_drawn && has_opened {
            self.too_early.push(number.get());
        }
    }

    fn draw_lots(&mut self, at: i64, draw: &Draw) -> Result<(), String> {
        if self.draws.last().is_some_and(|last| last.ended.is_none()) {
            return Err("its places were drawn twice".into());
        }
        let (settings, admissions) = (self.settings.len(), self.admissions.len());
        self.draws.push(DrawStory { at, draw: *draw, settings, admissions, ended: None });
        let turns = draw.turns();
        self.turns.extend((draw.first..draw.end()).map(|number| (number, (at, turns.turn(number)))));
        if draw.end() == self.next { Ok(()) } else { Err(format!("{draw:?} was drawn, {} is next", self.next)) }
    }

    fn take(&mut self, at: i64, change: &room::Change) -> Result<(), String> {
        match change {
            room::Change::Joined { number, join, joined_at } => {
                self.joins_in_time(*number, *joined_at);
                self.draw(at, *number, join)
            }
            room::Change::Admitted { number, slot } => {
                self.active += 1;
                let cap = self.settings.last().and_then(|(_, settings)| settings.max_active);
                self.admissions.push(Admission {
                    at,
                    number: number.get(),
                    active: self.active,
                    cap,
                    settings: self.settings.len(),
                });
                let ticket = self.living(*number)?;
                let twice = ticket.slots.last().is_some_and(|slot| slot.ended.is_none());
                ticket.slots.push(SlotStory { slot: *slot, offered: at, taken: None, ended: None });
                if twice { Err(format!("number {} has a slot and was given another", number.get())) } else { Ok(()) }
            }
            room::Change::Taken { number, until } => {
                let slot = self.living(*number)?.slots.last_mut().filter(|slot| slot.ended.is_none());
                let slot = slot.ok_or_else(|| format!("number {} took a slot without an offer", number.get()))?;
                match slot.taken.replace((at, *until)) {
                    None => Ok(()),
                    Some(_) => Err(format!("number {} took its slot twice", number.get())),
                }
            }
            room::Change::Lapsed { number } => {
                let slot = self.living(*number)?.slots.last_mut().filter(|slot| slot.ended.is_none());
                let slot = slot.ok_or_else(|| format!("number {} lost a slot without an offer", number.get()))?;
                slot.ended = Some(at);
                let was_taken = slot.taken.is_some();
                self.active = self.active.saturating_sub(1);
                if !was_taken {
                    return Ok(());
                }
                Err(format!("number {} waits again although it took its slot", number.get()))
            }
            room::Change::Gone { number, how } => {
                let ticket = self.living(*number)?;
                ticket.gone = Some((at, Some(*how)));
                if let Some(slot) = ticket.slots.last_mut().filter(|slot| slot.ended.is_none()) {
                    slot.ended = Some(at);
                    self.active = self.active.saturating_sub(1);
                }
                Ok(())
            }
            room::Change::Renewed { number, renewal } => {
                let ticket = self.living(*number)?;
                let wanted = ticket.renewals.last().map_or(1, |(_, last)| last.generation + 1);
                ticket.renewals.push((at, *renewal));
                let found = renewal.generation;
                if found == wanted { Ok(()) } else { Err(format!("ticket {found} of a place, {wanted} was next")) }
            }
            room::Change::Drawn(draw) => self.draw_lots(at, draw),
            room::Change::Reached(reached) => {
                self.reached.push((at, *reached));
                let drawn = self.next;
                if *reached <= drawn { Ok(()) } else { Err(format!("{reached} was reached, {drawn} is next")) }
            }
        }
    }
}

/// When the offer of a slot ends, on the store's clock.
pub const fn offer_until(slot: &Slot) -> Steady {
    match slot.hold {
        Hold::Offered { until } | Hold::Taken { until } => until,
    }
}
