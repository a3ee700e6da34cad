//! Admits visitors in the order of their arrival, at most at a rate and up to a number of slots.
//!
//! A pure state machine. Its caller applies commands one at a time and passes in `now`. Joining draws the next number, and
//! numbers are the order. Each command returns an answer and adds its effects to `changes`. The caller must make these
//! durable before it reports the answer. [`Room::poll`] changes nothing that has to be durable; it returns
//! [`Poll::Decide`] where the room needs a decision.
//!
//! # Invariants
//! - A number is drawn once, for ever.
//! - A ticket is in exactly one state: in line, in a slot, or gone. It goes once.
//! - In any window the room admits at most what the rate allows, plus one slice of 250 ms (at least one visitor), plus one
//!   visitor in place of each who was admitted and did not come; of these at most as many as by the rate, and one slice. Active
//!   slots never exceed the cap of the settings under which they were given.
//! - Among the present visitors, the lowest turn is admitted first: the lowest number, or after a draw the lowest drawn place
//!   ([`draw`]). Absent visitors are passed over, keep their number, and are next when they come back.
//! - A draw takes place once, and before any admission. Those who join after it come behind. Before it there are no positions.
//! - A position never rises. It counts the tickets in line between the turn that the line has reached and the visitor's
//!   own, and no ticket ever enters there. One exception: after a loss, earlier visitors return ([`Room::readmit`]).
//! - A pass is bound to one admission, and valid only while that slot lives.
//! - The same commands at the same instants lead to the same room, with any hash seed. [`replica`] relies on it.
//!
//! Leases and time-outs run on the steady clock, so nothing jumps when an operator sets the clock. Only `opens_at` compares
//! with the wall clock.

mod answers;
pub mod appearance;
mod bytes;
pub mod draw;
mod erase;
mod first_poll;
mod image;
mod line;
mod loss;
mod memory;
mod pace;
mod place;
mod purge;
mod renewal;
pub mod replica;
mod restore;
mod settings;
mod slots;
mod steer;
#[cfg(test)]
mod tests;
mod view;

pub use crate::id::TicketNumber;
use crate::limits::ROOM_NUMBER_MAX;
use crate::time::{Now, Steady, Timestamp};
pub use answers::{
    Change, Contact, Damage, Departure, Join, Joined, Poll, Rejection, RoomState, RoomView, Sight, TicketState,
    TicketView,
};
pub use bytes::ImageError;
pub use draw::{Draw, DrawKey, DrawSeed, DrawView};
use line::{FirstPolls, Line, SEARCH_TICKETS_MAX, TicketPlace};
pub use loss::{GoneNumbers, Known};
pub use memory::{Memory, MemoryRounds};
use pace::{Bucket, Meter, Speed};
pub use place::{PlaceKey, PlaceState, PlaceView};
pub use purge::GoneTickets;
use renewal::Renewals;
pub use renewal::{Renewal, RenewalKey, TicketId};
pub use restore::RoomPhase;
pub use settings::{Admit, RoomOrder, RoomSettings};
use slots::Slots;
pub use slots::{Hold, Slot};
use std::collections::BTreeSet;
use std::hash::RandomState;
use steer::Steering;
pub use steer::{OriginReport, RatePace, RateReason};
#[cfg(test)]
use view::poll_after_ms;

/// How long until a visitor polls again when the room has no estimate of the wait.
const POLL_MS_UNKNOWN: u64 = 15_000;
/// Slots whose end one tick examines at most: bounds the time of a tick.
const ENDS_PER_TICK_MAX: usize = 4_096;

/// One room with all its tickets.
pub struct Room {
    settings: RoomSettings,
    closed: bool,
    /// From what the seed of a draw is made.
    draw_key: Option<DrawKey>,
    /// The draw, once it took place.
    draw: Option<Draw>,
    line: Line,
    /// See [`Room::unpolled_count`].
    unpolled_count: u64,
    /// The turns of tickets that were passed over and whose visitors have come back since.
    returned: BTreeSet<u32>,
    slots: Slots,
    renewals: Renewals,
    admissions: u64,
    bucket: Option<Bucket>,
    steering: Steering,
    meter: Meter,
    ticked: Steady,
    was_open: bool,
    /// Whether the last tick left visitors in line that it had not reached.
    was_busy: bool,
    /// After a loss, the room admits no visitor before this, so that visitors in front can come back first.
    grace_until: Option<Steady>,
    /// Scratch, empty between two ticks.
    ends: Vec<u32>,
}

crate::debug_by_name!(Room);

impl Room {
    /// Makes a room without tickets. `hasher` carries the seed that protects the index against chosen collisions.
    pub fn new(settings: RoomSettings, hasher: RandomState, now: Now) -> Self {
        Self::restoring(settings, hasher, now, 1)
    }

    /// Makes a room for restoring stored tickets. Numbers before `first` are void.
    pub fn restoring(settings: RoomSettings, hasher: RandomState, now: Now, first: u32) -> Self {
        let bucket = settings.admit.map(|admit| Bucket::new(admit, now.steady));
        let slots = Slots::new(hasher.clone(), settings.idle_ttl_ms);
        let first_polls = settings.first_poll_ms.map(|ms| FirstPolls::new(ms, now.steady));
        Self {
            settings,
            closed: false,
            draw_key: None,
            draw: None,
            line: Line::new(hasher, first.max(1)).with_first_polls(first_polls),
            unpolled_count: 0,
            returned: BTreeSet::new(),
            slots,
            renewals: Renewals::default(),
            admissions: 0,
            bucket,
            steering: Steering::new(now.steady),
            meter: Meter::new(now.steady),
            ticked: now.steady,
            was_open: false,
            was_busy: false,
            grace_until: None,
            ends: Vec::new(),
        }
    }

    /// Returns the settings in force.
    pub const fn settings(&self) -> &RoomSettings {
        &self.settings
    }

    /// Returns whether the room has no ticket in line and no slot, so that time changes nothing.
    pub fn is_idle(&self) -> bool {
        self.line.waiting() == 0 && self.slots.count() == 0
    }

    /// Returns how many numbers were drawn.
    pub const fn drawn(&self) -> u32 {
        self.line.next() - 1
    }

    /// Returns the number below which no ticket waits or has a slot: each is gone, void, or unknown since a loss. One look per 4 096
    /// numbers.
    pub fn first_living(&self) -> u32 {
        self.line.first_living()
    }

    /// Returns the first number that is not void.
    pub const fn first(&self) -> u32 {
        self.line.first()
    }

    /// Returns the lowest turn that the line has not reached: see [`Self::turn`].
    pub const fn reached(&self) -> u32 {
        self.line.reached()
    }

    /// Returns the highest admission so far.
    pub const fn admissions(&self) -> u64 {
        self.admissions
    }

    /// Returns the ticket number and the admission of each slot, in no order.
    pub fn inside(&self) -> impl Iterator<Item = (u32, u64)> {
        self.slots.admissions()
    }

    /// Returns the state of the room.
    pub fn state(&self, now: Timestamp) -> RoomState {
        if self.closed {
            RoomState::Closed
        } else if self.settings.paused {
            RoomState::Paused
        } else if self.settings.opens_at.is_some_and(|opens_at| now < opens_at) {
            RoomState::Scheduled
        } else {
            RoomState::Open
        }
    }

    /// Returns the room's public view.
    pub fn view(&self, now: Now) -> RoomView {
        RoomView {
            state: self.state(now.wall),
            waiting: self.line.waiting(),
            active: self.slots.count(),
            serving: self.line.reached() - 1,
            rate: self.meter.rate(now.steady),
            pace: self.pace(now),
            wait_at_tail_ms: self.wait_ms(self.line.ahead(self.line.next()).saturating_add(1), now),
        }
    }

    /// Puts new settings in force. Slots keep their ends. A closed room opens again.
    pub fn replace_settings(&mut self, settings: RoomSettings, now: Now) {
        if self.settings.admit != settings.admit {
            // The room forfeits what it earned at the other rate, so it exceeds neither rate in any window.
            self.bucket = settings.admit.map(|admit| Bucket::new(admit, now.steady));
            self.steering.settle();
        }
        if self.settings.admit != settings.admit || self.settings.max_active != settings.max_active {
            self.meter.reset(now.steady);
        }
        if settings.waiting_ttl_ms < self.settings.waiting_ttl_ms {
            self.line.restart_expiry(now.steady);
        }
        self.line.replace_first_poll(settings.first_poll_ms, now.steady);
        self.slots.set_idle_ttl(settings.idle_ttl_ms, now.steady);
        self.settings = settings;
        self.closed = false;
    }

    /// Closes the room: all tickets and passes are void from now on.
    pub fn close(&mut self) {
        self.closed = true;
        self.draw = None;
        self.line = self.line.emptied();
        self.returned.clear();
        self.slots.clear();
        self.renewals.clear();
        self.steering.clear();
    }

    /// Returns why the room takes no new ticket, if it takes none.
    pub fn judge_room(&self, now: Now) -> Result<(), Rejection> {
        if self.closed {
            return Err(Rejection::Closed);
        }
        if self.settings.max_waiting <= self.line.waiting() || ROOM_NUMBER_MAX < self.line.next() {
            // The line is shorter again only after one admission.
            let retry_after_ms = self.wait_ms(1, now).unwrap_or(POLL_MS_UNKNOWN).max(1_000);
            return Err(Rejection::Full { retry_after_ms });
        }
        Ok(())
    }

    /// Draws the next number, or finds the place that the same request or the same user has.
    ///
    /// Order of checks: idempotency key of a living place → the user's living place → closed → full.
    pub fn join(&mut self, join: &Join, now: Now, changes: &mut Vec<Change>) -> Result<Joined, Rejection> {
        if let Some(joined) = self.find(join, now, changes)? {
            return Ok(joined);
        }
        self.judge_room(now)?;
        Ok(self.draw(join, now, changes))
    }

    /// Finds the living place of the same request or the same user.
    fn find(&mut self, join: &Join, now: Now, changes: &mut Vec<Change>) -> Result<Option<Joined>, Rejection> {
        if let Some(request) = join.request
            && let Some((number, known)) = self.line.of_request(request.key)
        {
            self.settle(number, now, changes);
            let lives = !matches!(self.line.place(number), Some(TicketPlace::Gone(_)));
            if lives && known.body != request.body {
                return Err(Rejection::KeyReused(TicketNumber(number)));
            }
            if lives {
                return Ok(Some(Joined::SameRequest(self.look(number, now, changes))));
            }
        }
        if let Some(number) = join.user.as_ref().and_then(|user| self.line.of_user(user.as_str())) {
            let view = self.look(number, now, changes);
            if !matches!(view.state, TicketState::Gone(_)) {
                return Ok(Some(Joined::SameUser(view)));
            }
        }
        Ok(None)
    }

    /// Draws the next number for a visitor without a place. The caller has judged that the room takes one.
    fn draw(&mut self, join: &Join, now: Now, changes: &mut Vec<Change>) -> Joined {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::NumberTwice) && self.line.next().is_multiple_of(100) {
            let number = self.line.push(join.user.as_ref(), join.request, now.steady);
            changes.push(Change::Joined { number: TicketNumber(number), join: join.clone(), joined_at: now.wall });
            return Joined::New(self.waiting_view(number - 1, now));
        }
        // Latecomers take no part in the draw.
        if !is_planted_latecomer() {
            self.draw_if_due(now, changes);
        }
        // An idle room may go without ticks, so the time since the last tick says nothing about speed.
        self.was_busy &= !self.is_idle();
        let number = self.line.push(join.user.as_ref(), join.request, now.steady);
        assert!(self.line.reached() <= number, "no ticket enters before the number that the line has reached");
        changes.push(Change::Joined { number: TicketNumber(number), join: join.clone(), joined_at: now.wall });
        Joined::New(self.joined_view(number, now))
    }

    /// Ends what is over about a ticket: its slot, its offer, or its wait in silence.
    fn settle(&mut self, number: u32, now: Now, changes: &mut Vec<Change>) {
        match self.line.place(number) {
            Some(TicketPlace::Slot) => self.end_slot(number, now, changes),
            Some(TicketPlace::Waiting) if self.is_silent(number, now) => {
                self.depart(number, Departure::Expired, now, changes);
            }
            _ => {}
        }
    }

    fn end_slot(&mut self, number: u32, now: Now, changes: &mut Vec<Change>) {
        let Some((slot, until)) = self.slots.get(number) else { return };
        if now.steady < until {
            return;
        }
        if matches!(slot.hold, Hold::Taken { .. }) {
            self.depart(number, Departure::Expired, now, changes);
            return;
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::SlotLost) {
            return;
        }
        self.slots.remove(number);
        self.note_missed(slot.admission, now);
        self.line.back(number);
        changes.push(Change::Lapsed { number: TicketNumber(number) });
    }

    fn depart(&mut self, number: u32, how: Departure, now: Now, changes: &mut Vec<Change>) {
        let turn = self.line.turn(number);
        self.count_unpolled(number, how, now);
        // Counts only while the line moves: departures and speed are measured over the same time.
        if self.was_busy && self.line.place(number) == Some(TicketPlace::Waiting) && self.line.reached() <= turn {
            self.meter.departed(now.steady);
        }
        self.returned.remove(&turn);
        if let Some(Slot { admission, hold: Hold::Offered { .. }, .. }) = self.slots.remove(number) {
            self.note_missed(admission, now);
        }
        self.line.go(number, how);
        self.renewals.remove(number);
        changes.push(Change::Gone { number: TicketNumber(number), how });
    }

    fn note_missed(&mut self, admission: u64, now: Now) {
        if self.steering.missed(admission) {
            self.meter.missed(now.steady, 1);
        }
    }

    /// Gives up a ticket: its place in line, or its slot, which is free at once. A second call has no effect.
    pub fn leave(&mut self, number: TicketNumber, now: Now, changes: &mut Vec<Change>) -> Result<(), Rejection> {
        match self.line.place(number.0).ok_or(Rejection::UnknownTicket)? {
            TicketPlace::Gone(_) => {}
            TicketPlace::Waiting | TicketPlace::Slot => self.depart(number.0, Departure::Left, now, changes),
            TicketPlace::Unknown => self.forget(number.0, Departure::Left, changes),
        }
        Ok(())
    }

    /// Gives up the slot of one admission. Does nothing if that slot is over.
    pub fn release(&mut self, number: TicketNumber, admission: u64, now: Now, changes: &mut Vec<Change>) {
        self.end_over(number, now, changes);
        if self.pass_until(number, admission, now).is_some() {
            self.depart(number.0, Departure::Left, now, changes);
        }
    }

    /// Returns whether the time of a slot is over and its end is not recorded yet. Callers call [`Self::end_over`] before they
    /// report that it is over.
    pub fn is_over(&self, number: TicketNumber, now: Now) -> bool {
        self.slots.get(number.0).is_some_and(|(_, until)| until <= now.steady)
    }

    /// Ends a slot whose time is over, so that it stays over. Otherwise new settings, or a restart after which all tickets
    /// count as just seen, would extend an idle slot.
    pub fn end_over(&mut self, number: TicketNumber, now: Now, changes: &mut Vec<Change>) {
        if self.line.place(number.0) == Some(TicketPlace::Slot) {
            self.end_slot(number.0, now, changes);
        }
    }

    /// Returns how long after the last tick the next one may come at the latest. At a slow rate a later tick would lose
    /// admissions. `None` if it does not matter.
    pub fn next_tick_us(&self) -> Option<u64> {
        let is_moving = self.was_open && self.line.waiting() != 0;
        self.bucket.as_ref().filter(|_| is_moving).and_then(Bucket::until_full_us)
    }

    /// Does what is due: frees slots, admits visitors, and ends tickets whose visitors were silent for long or never polled.
    ///
    /// Call it several times per slice of 250 ms. With fewer ticks the room admits less than the rate, never more. The cost
    /// depends on what changes, not on how many visitors wait.
    pub fn tick(&mut self, now: Now, changes: &mut Vec<Change>) {
        let mut ends = std::mem::take(&mut self.ends);
        self.slots.due(now.steady, ENDS_PER_TICK_MAX, &mut ends);
        ends.sort_unstable();
        for number in ends.drain(..) {
            self.end_slot(number, now, changes);
        }
        let mut silent = ends;
        self.line.expire_silent(now.steady, self.settings.waiting_ttl_ms, |number| silent.push(number));
        for number in silent.drain(..) {
            self.depart(number, Departure::Expired, now, changes);
        }
        self.ends = silent;
        self.admit(now, changes);
        self.ticked = self.ticked.max(now.steady);
    }

    fn admit(&mut self, now: Now, changes: &mut Vec<Change>) {
        self.draw_if_due(now, changes);
        let may_open = self.grace_left_us(now.steady) == 0 && !self.is_before_draw();
        let is_open = self.state(now.wall) == RoomState::Open && may_open;
        let was_busy = std::mem::take(&mut self.was_busy);
        if is_open && !self.was_open {
            self.meter.reset(now.steady);
        }
        self.was_open = is_open;
        let missed = self.steering.pass(now.steady);
        self.meter.missed(now.steady, missed);
        if let Some(bucket) = &mut self.bucket {
            bucket.earn(self.steering.share_ppm(), now.steady);
            self.steering.bound(bucket.burst());
        }
        if !is_open {
            return;
        }
        let reached = self.line.reached();
        let mut moved = 0;
        let mut looked_left = SEARCH_TICKETS_MAX;
        self.save();
        for _ in 0..self.free() {
            if !self.may_admit() {
                break;
            }
            let Some(number) = self.next_present(now.steady, &mut looked_left, &mut moved) else { break };
            self.offer(number, now, changes);
        }
        if self.bucket.as_ref().is_none_or(|bucket| bucket.affords() != 0) {
            self.steering.settle();
        }
        if self.line.reached() != reached {
            changes.push(Change::Reached(self.line.reached()));
        }
        self.was_busy = self.line.ahead(self.line.next()) != 0;
        // The speed of a line that was empty is unknown: an idle room may go without ticks.
        if was_busy && self.was_busy {
            let busy_us = now.steady.since_us(self.ticked);
            self.meter.moved(now.steady, moved, busy_us);
        }
    }

    /// Returns how many more slots may be used now. Reports of the origin reduce the slots only where no rate is set.
    fn free(&self) -> u32 {
        let cap = match (self.settings.max_active, self.settings.admit) {
            (None, _) => return u32::MAX,
            (Some(cap), Some(_)) => cap,
            (Some(cap), None) => self.steering.slots_of(cap),
        };
        cap.saturating_sub(self.slots.count())
    }

    fn may_admit(&self) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| bucket.affords() != 0 || self.steering.may_make_up())
    }

    /// Leaves out admissions for visitors who came after they had counted as missing.
    fn save(&mut self) {
        let Some(bucket) = &mut self.bucket else { return };
        while bucket.affords() != 0 && self.steering.saves() {
            bucket.spend();
        }
    }

    /// Pays for an admission: by the rate, else in place of one that was missed.
    fn pay(&mut self, now: Steady) {
        let Some(bucket) = &mut self.bucket else { return };
        if bucket.affords() != 0 {
            bucket.spend();
            self.steering.by_rate(bucket.burst());
        } else {
            self.steering.make_up();
            self.meter.made_up(now);
        }
    }

    /// Finds the next visitor to admit: the lowest turn that came back, else the next present one in line.
    fn next_present(&mut self, now: Steady, looked_left: &mut u32, moved: &mut u32) -> Option<u32> {
        while *looked_left != 0
            && let Some(turn) = self.returned.pop_first()
        {
            let number = self.line.number_of(turn);
            *looked_left -= 1;
            // A visitor who has fallen silent again is skipped; the next poll adds the number to `returned` again.
            if self.line.is_present(number, now) {
                return Some(number);
            }
        }
        let search = self.line.search(now, *looked_left);
        *looked_left = looked_left.saturating_sub(search.passed + 1);
        *moved += search.passed + u32::from(search.found.is_some());
        search.found
    }

    fn offer(&mut self, number: u32, now: Now, changes: &mut Vec<Change>) {
        if in_both_sets() && self.slots.get(number).is_some() {
            return;
        }
        self.pay(now.steady);
        let cap = self.settings.max_active.unwrap_or(u32::MAX);
        assert!(self.slots.count() < cap, "active slots never exceed the cap");
        assert!(self.slots.get(number).is_none(), "one slot each");
        self.line.take(number);
        self.admissions += 1;
        let until = now.steady.plus_ms(self.settings.claim_window_ms);
        let slot = Slot { admission: self.admissions, admitted_at: now.wall, hold: Hold::Offered { until } };
        self.slots.put(number, slot, now.steady);
        let patience_ms = Steering::patience_ms(self.line.polled_ms(number));
        self.steering.admitted(slot.admission, until.min(now.steady.plus_ms(patience_ms)));
        self.meter.admitted(now.steady);
        changes.push(Change::Admitted { number: TicketNumber(number), slot });
    }

    fn wait_ms(&self, ahead: u32, now: Now) -> Option<u64> {
        let settings = &self.settings;
        let free = settings.max_active.map(|cap| cap.saturating_sub(self.slots.count()));
        let speed = match (settings.admit, free) {
            (None, Some(free)) if ahead <= free => Some(Speed::AT_ONCE),
            // Only a released slot admits the next visitor. Before it has seen a release, the room has no estimate.
            (None, _) | (_, Some(0)) => self.meter.seen(now.steady),
            (Some(admit), free) => {
                let assumed = admit.per_second() * f64::from(self.steering.share_ppm()) / 1e6;
                Some(self.meter.speed(now.steady, assumed, free.is_none()))
            }
        };
        let grace_ms = self.grace_left_us(now.steady).div_ceil(1_000);
        let wait_ms = speed.and_then(|speed| speed.wait_ms(ahead, self.line.waiting()));
        let wait_ms = wait_ms.map(|wait_ms| wait_ms.saturating_add(grace_ms));
        match (self.state(now.wall), settings.opens_at) {
            (RoomState::Scheduled, Some(opens_at)) => {
                let until_open_ms = (opens_at.as_us() - now.wall.as_us()).max(0).unsigned_abs().div_ceil(1_000);
                wait_ms.map(|wait_ms| wait_ms.saturating_add(until_open_ms))
            }
            (RoomState::Paused | RoomState::Closed, _) => None,
            _ => wait_ms,
        }
    }

    /// Returns the user of a living ticket, if it has one.
    pub fn user(&self, number: TicketNumber) -> Option<&str> {
        match self.line.place(number.0)? {
            TicketPlace::Gone(_) | TicketPlace::Unknown => None,
            TicketPlace::Waiting | TicketPlace::Slot => self.line.user(number.0),
        }
    }
}

#[cfg(feature = "planted-bugs")]
fn is_planted_latecomer() -> bool {
    crate::planted::is(crate::planted::Bug::LatecomerDrawn)
}

#[cfg(not(feature = "planted-bugs"))]
const fn is_planted_latecomer() -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
fn in_both_sets() -> bool {
    crate::planted::is(crate::planted::Bug::InBothSets)
}

#[cfg(not(feature = "planted-bugs"))]
const fn in_both_sets() -> bool {
    false
}
