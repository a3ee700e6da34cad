//! The line of one room: the waiting tickets, their presence, and each ticket's position.
//!
//! Tickets are dense numbers, so the line is a bitmap beside compact columns, in segments of 4 096 tickets. A ticket
//! costs its user's bytes, 10 bytes of columns and about 13 of index. A position is a sum of segment counts, plus the bits
//! of two segments. Nothing is sorted, moved or copied when a visitor joins, leaves or is admitted.
//!
//! # Invariants
//! - A ticket is in exactly one place: in line, in a slot, left, or expired ([`TicketPlace`]). After a loss the place may be
//!   unknown until the visitor comes back.
//! - `waiting` is the number of tickets in line; the count of every segment and group is that of its bits.
//! - [`Line::ahead`] counts no ticket below [`Line::reached`], so a position never rises: tickets come back into line only
//!   below it. Both go by turn, the place in the order of service: the number, or what a draw gave it (`drawn.rs`).

mod ahead;
mod drawn;
mod erase;
mod first_poll;
mod image;
mod lost;
mod memory;
mod purge;
#[cfg(test)]
mod tests;

use super::Departure;
use crate::id::{RequestId, UserId};
use crate::index::NumberIndex;
use crate::limits::WAITING_TTL_MS_MAX;
use crate::time::Steady;
use drawn::DrawnLine;
pub(super) use first_poll::FirstPolls;
use first_poll::{SweepTimes, TOLD_MAX};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

const SEGMENT: u32 = 4_096;
const WORDS: usize = SEGMENT as usize / 64;
/// Segments whose counts are added up together.
const GROUP: usize = 64;
/// A visitor seen this recently is present, however long the poll interval is.
const PRESENT_MS_MIN: u32 = 30_000;
/// How many poll intervals a visitor may stay silent and still count as present.
const PRESENT_POLLS: u32 = 3;
/// The unit of poll intervals.
const TOLD_MS: u32 = 100;
/// Segments that one sweep examines at most: bounds its time.
const SWEEP_SEGMENTS_MAX: usize = 4;
/// Tickets that one search examines at most: bounds its time.
pub(super) const SEARCH_TICKETS_MAX: u32 = 65_536;

/// How far before now a rebase moves an epoch: longer than any time-out of a visitor in line.
const REBASED_MS: u32 = u32::MAX / 4;
const _: () = assert!(WAITING_TTL_MS_MAX < REBASED_MS as u64);

type Bits = [u64; WORDS];

fn bit(at: usize) -> (usize, u64) {
    (at / 64, 1 << (at % 64))
}

/// Returns a word with all bits below a position, 0 to 64.
const fn below(at: u32) -> u64 {
    if at < 64 { (1 << at) - 1 } else { u64::MAX }
}

/// The place of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TicketPlace {
    Waiting,
    Slot,
    Gone(Departure),
    /// Lost: the number may never have been drawn, or its visitor may still wait.
    Unknown,
}

/// The data of the tickets of one segment, while one of them is alive.
struct Columns {
    epoch: Steady,
    /// Milliseconds from `epoch` to the last contact.
    seen: Vec<u32>,
    /// The poll interval that the visitor was told last, in units of [`TOLD_MS`], with the bit of `first_poll.rs`.
    told: Vec<u16>,
    users: String,
    ends: Vec<u32>,
    /// The requests with an idempotency key, in the order of their tickets.
    requests: Vec<(u16, RequestId)>,
    /// An upper bound: no visitor in this segment is present after this.
    present_until: u32,
}

impl Columns {
    const fn new(epoch: Steady) -> Self {
        Self {
            epoch,
            seen: Vec::new(),
            told: Vec::new(),
            users: String::new(),
            ends: Vec::new(),
            requests: Vec::new(),
            present_until: 0,
        }
    }

    /// Adds a ticket behind the existing ones. Places that it skips have no user and no contact.
    fn push(&mut self, at: usize, user: &str, request: Option<RequestId>) {
        self.seen.resize(at + 1, 0);
        self.told.resize(at + 1, 0);
        self.ends.resize(at, self.users.len() as u32);
        self.users.push_str(user);
        self.ends.push(self.users.len() as u32);
        self.requests.extend(request.map(|request| (at as u16, request)));
    }

    fn clock(&self, now: Steady) -> u32 {
        u32::try_from(now.since_us(self.epoch) / 1_000).unwrap_or(u32::MAX)
    }

    fn window(&self, at: usize) -> u32 {
        PRESENT_MS_MIN.max(PRESENT_POLLS * u32::from(self.told(at)) * TOLD_MS)
    }

    fn is_present(&self, at: usize, clock: u32) -> bool {
        clock.saturating_sub(self.seen[at]) <= self.window(at)
    }

    fn user(&self, at: usize) -> &str {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.users[start..self.ends[at] as usize]
    }

    fn request(&self, at: usize) -> Option<RequestId> {
        let found = self.requests.binary_search_by_key(&at, |(at, _)| usize::from(*at)).ok()?;
        Some(self.requests[found].1)
    }

    /// Notes a contact: the ticket counts as polled.
    fn touch(&mut self, at: usize, now: Steady, polled_ms: u32) {
        // Sweeps do not reach an empty room, so the epoch of its last segment may be old.
        self.rebase(now);
        self.seen[at] = self.clock(now);
        self.told[at] = polled_ms.div_ceil(TOLD_MS).min(TOLD_MAX.into()) as u16;
        self.present_until = self.present_until.max(self.seen[at].saturating_add(self.window(at)));
    }

    /// Moves the epoch, so that milliseconds since then fit in 32 bits however long a visitor waits. A visitor who was silent
    /// for longer than [`REBASED_MS`] counts as silent for that long, which is longer than any time-out.
    fn rebase(&mut self, now: Steady) {
        if self.clock(now) < 2 * REBASED_MS {
            return;
        }
        let shift_ms = now.since_us(self.epoch) / 1_000 - u64::from(REBASED_MS);
        self.epoch = self.epoch.plus_ms(shift_ms);
        let shift = u32::try_from(shift_ms).unwrap_or(u32::MAX);
        self.seen.iter_mut().for_each(|seen| *seen = seen.saturating_sub(shift));
        self.present_until = self.present_until.saturating_sub(shift);
    }
}

struct Segment {
    waiting: Bits,
    gone: Bits,
    left: Bits,
    living_count: u32,
    drawn: u32,
    /// Tickets that were lost and have not come back: see [`TicketPlace::Unknown`].
    unknown: Option<Box<Bits>>,
    /// Absent when the segment has no known living ticket and will draw none.
    columns: Option<Box<Columns>>,
    /// Whether the segment had its first sweep scheduled.
    swept: bool,
}

impl Segment {
    const fn new() -> Self {
        let none = [0; WORDS];
        Self {
            waiting: none,
            gone: none,
            left: none,
            living_count: 0,
            drawn: 0,
            unknown: None,
            columns: None,
            swept: false,
        }
    }

    fn is_unknown(&self, at: usize) -> bool {
        let (word, mask) = bit(at);
        self.unknown.as_deref().is_some_and(|bits| bits[word] & mask != 0)
    }

    fn waiting_below(&self, at: u32) -> u32 {
        let word = (at / 64) as usize;
        let whole: u32 = self.waiting[..word].iter().map(|bits| bits.count_ones()).sum();
        let rest = self.waiting.get(word).map_or(0, |bits| (bits & below(at % 64)).count_ones());
        whole + rest
    }
}

/// The line of one room.
pub(super) struct Line {
    hasher: RandomState,
    /// Earlier numbers have expired. Segments begin at whole multiples of their size from here.
    first: u32,
    /// The number of the first ticket of the first segment that is kept.
    start: u32,
    /// Earlier numbers are gone, and nothing else is known of them: [`Self::release`].
    gone_before: u32,
    next: u32,
    reached: u32,
    segments: Vec<Segment>,
    /// The tickets in line per segment, and per group of segments. Kept apart, since a position adds up many of them.
    counts: Vec<u32>,
    groups: Vec<u32>,
    waiting: u32,
    users: NumberIndex,
    requests: NumberIndex,
    sweeps: BTreeSet<(Steady, u32)>,
    /// How many numbers are unknown.
    unknown: u32,
    /// The drawn order, after a draw.
    lots: Option<Box<DrawnLine>>,
    /// Without it no ticket has the bit of `first_poll.rs`.
    first_polls: Option<FirstPolls>,
}

/// The result of a search: the ticket found, and how many tickets the line moved past before it.
pub(super) struct Search {
    pub(super) found: Option<u32>,
    pub(super) passed: u32,
}

impl Line {
    /// Makes a line whose next number is `first`.
    pub(super) fn new(hasher: RandomState, first: u32) -> Self {
        Self {
            hasher,
            first,
            start: first,
            gone_before: first,
            next: first,
            reached: first,
            segments: Vec::new(),
            counts: Vec::new(),
            groups: Vec::new(),
            waiting: 0,
            users: NumberIndex::new(),
            requests: NumberIndex::new(),
            sweeps: BTreeSet::new(),
            unknown: 0,
            lots: None,
            first_polls: None,
        }
    }

    /// Makes an empty line whose numbers go on after this one's.
    pub(super) fn emptied(&self) -> Self {
        Self::new(self.hasher.clone(), self.next).with_first_polls(self.first_polls)
    }

    pub(super) const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns the number that the next ticket gets.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Returns the lowest number of a living ticket, or the next number. Looks once at each segment before it.
    pub(super) fn first_living(&self) -> u32 {
        let of = |(nth, segment): (usize, &Segment)| {
            Some(self.start + nth as u32 * SEGMENT + segment.first_living()? as u32)
        };
        self.segments.iter().enumerate().find_map(of).unwrap_or(self.next)
    }

    /// Returns the lowest turn that the line has not reached.
    pub(super) const fn reached(&self) -> u32 {
        self.reached
    }

    fn spot(&self, number: u32) -> (usize, usize) {
        let index = number - self.start;
        ((index / SEGMENT) as usize, (index % SEGMENT) as usize)
    }

    fn columns(&self, number: u32) -> Option<(&Columns, usize)> {
        let (segment, at) = self.spot(number);
        self.segments[segment].columns.as_deref().map(|columns| (columns, at))
    }

    /// Returns the place of a ticket; `None` for a number that was never drawn.
    pub(super) fn place(&self, number: u32) -> Option<TicketPlace> {
        if number == 0 || self.next <= number {
            return None;
        }
        if number < self.gone_before {
            return Some(TicketPlace::Gone(Departure::Expired));
        }
        let (segment, at) = self.spot(number);
        let segment = &self.segments[segment];
        let (word, mask) = bit(at);
        Some(if segment.waiting[word] & mask != 0 {
            TicketPlace::Waiting
        } else if segment.is_unknown(at) {
            TicketPlace::Unknown
        } else if segment.gone[word] & mask == 0 {
            TicketPlace::Slot
        } else if segment.left[word] & mask != 0 {
            TicketPlace::Gone(Departure::Left)
        } else {
            TicketPlace::Gone(Departure::Expired)
        })
    }

    fn tag(&self, text: &str) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    /// Finds the living ticket of a user.
    pub(super) fn of_user(&self, user: &str) -> Option<u32> {
        self.users.find(self.tag(user), |number| self.user(number) == Some(user))
    }

    /// Finds the living ticket that a request drew, and that request.
    pub(super) fn of_request(&self, key: u128) -> Option<(u32, RequestId)> {
        let request = |number| self.columns(number).and_then(|(columns, at)| columns.request(at));
        let number = self.requests.find(key as u32, |number| request(number).is_some_and(|known| known.key == key))?;
        Some((number, request(number)?))
    }

    /// Returns the user of a living ticket, if it has one.
    pub(super) fn user(&self, number: u32) -> Option<&str> {
        let (columns, at) = self.columns(number)?;
        Some(columns.user(at)).filter(|user| !user.is_empty())
    }

    /// Draws the next number; its ticket waits at the end of the line.
    pub(super) fn push(&mut self, user: Option<&UserId>, request: Option<RequestId>, now: Steady) -> u32 {
        let number = self.next;
        let (segment, at) = self.spot(number);
        if segment == self.segments.len() {
            self.add_segment();
            self.segments[segment].columns = Some(Box::new(Columns::new(now)));
        }
        self.open(segment, now);
        self.next += 1;
        let page = &mut self.segments[segment];
        page.drawn += 1;
        page.living_count += 1;
        if let Some(columns) = &mut page.columns {
            columns.push(at, user.map_or("", UserId::as_str), request);
            columns.touch(at, now, 0);
            if page.drawn == SEGMENT {
                columns.users.shrink_to_fit();
                columns.requests.shrink_to_fit();
            }
        }
        self.index(number, user, request);
        self.enter(number);
        number
    }

    fn add_segment(&mut self) {
        self.segments.push(Segment::new());
        self.counts.push(0);
        self.groups.resize(self.segments.len().div_ceil(GROUP), 0);
    }

    fn index(&mut self, number: u32, user: Option<&UserId>, request: Option<RequestId>) {
        if let Some(user) = user {
            let tag = self.tag(user.as_str());
            self.users.insert(tag, number);
        }
        if let Some(request) = request {
            self.requests.insert(request.key as u32, number);
        }
    }

    /// Returns the poll interval that the visitor of a living ticket was told last.
    pub(super) fn polled_ms(&self, number: u32) -> u32 {
        self.columns(number).map_or(0, |(columns, at)| u32::from(columns.told(at)) * TOLD_MS)
    }

    /// Notes a contact of a visitor, and the poll interval in the answer.
    pub(super) fn touch(&mut self, number: u32, now: Steady, polled_ms: u32) {
        let (segment, at) = self.spot(number);
        if let Some(columns) = &mut self.segments[segment].columns {
            columns.touch(at, now, polled_ms);
        }
    }

    pub(super) fn is_present(&self, number: u32, now: Steady) -> bool {
        self.columns(number).is_some_and(|(columns, at)| columns.is_present(at, columns.clock(now)))
    }

    /// Returns the milliseconds since the last contact of a living ticket.
    pub(super) fn silent_ms(&self, number: u32, now: Steady) -> u64 {
        let silent = |(columns, at): (&Columns, usize)| columns.clock(now).saturating_sub(columns.seen[at]);
        self.columns(number).map_or(u64::MAX, |it| silent(it).into())
    }

    fn enter(&mut self, number: u32) {
        let (segment, at) = self.spot(number);
        let (word, mask) = bit(at);
        let page = &mut self.segments[segment];
        page.waiting[word] |= mask;
        self.counts[segment] += 1;
        self.groups[segment / GROUP] += 1;
        self.waiting += 1;
        self.enter_lots(number);
    }

    fn leave_line(&mut self, number: u32) {
        let (segment, at) = self.spot(number);
        let (word, mask) = bit(at);
        let page = &mut self.segments[segment];
        page.waiting[word] &= !mask;
        self.counts[segment] -= 1;
        self.groups[segment / GROUP] -= 1;
        self.waiting -= 1;
        self.leave_lots(number);
    }

    /// Moves a ticket from the line into a slot.
    pub(super) fn take(&mut self, number: u32) {
        assert_eq!(self.place(number), Some(TicketPlace::Waiting), "only who waits is admitted");
        self.leave_line(number);
    }

    /// Puts a ticket whose slot was not taken back into line.
    pub(super) fn back(&mut self, number: u32) {
        assert_eq!(self.place(number), Some(TicketPlace::Slot), "only who has a slot comes back");
        assert!(self.turn(number) < self.reached, "no ticket comes back where it would make a position rise");
        self.enter(number);
    }

    /// Ends a living ticket.
    pub(super) fn go(&mut self, number: u32, how: Departure) {
        let place = self.place(number);
        assert!(matches!(place, Some(TicketPlace::Waiting | TicketPlace::Slot)), "a ticket goes once");
        if place == Some(TicketPlace::Waiting) {
            self.leave_line(number);
        }
        if let Some(tag) = self.user(number).map(|user| self.tag(user)) {
            self.users.remove(tag, number);
        }
        if let Some(request) = self.columns(number).and_then(|(columns, at)| columns.request(at)) {
            self.requests.remove(request.key as u32, number);
        }
        let (segment, at) = self.spot(number);
        let (word, mask) = bit(at);
        let page = &mut self.segments[segment];
        page.gone[word] |= mask;
        if how == Departure::Left {
            page.left[word] |= mask;
        }
        page.living_count -= 1;
        if page.living_count == 0 && page.drawn == SEGMENT {
            page.columns = None;
        }
    }

    /// Advances to the first present ticket that the line has not reached, and passes over absent ones. Bounded: it takes
    /// several searches to pass a long row of absent visitors.
    pub(super) fn search(&mut self, now: Steady, looked_max: u32) -> Search {
        let mut search = Search { found: None, passed: 0 };
        let mut looked = 0;
        self.search_lots(now, looked_max, &mut looked, &mut search);
        if search.found.is_some() || self.reached < self.drawn_end() {
            return search;
        }
        self.reached = self.reached.max(self.start);
        while self.reached < self.next && looked < looked_max {
            let (segment, at) = self.spot(self.reached);
            let start = self.reached - at as u32;
            let page = &self.segments[segment];
            let Some(columns) = page.columns.as_deref().filter(|it| it.clock(now) <= it.present_until) else {
                // No visitor in this segment is present or alive.
                search.passed += self.counts[segment] - page.waiting_below(at as u32);
                self.reached = (start + page.drawn).min(self.next);
                looked += WORDS as u32;
                continue;
            };
            let clock = columns.clock(now);
            for word in at / 64..WORDS {
                let skip = if word == at / 64 { below(at as u32 % 64) } else { 0 };
                let mut bits = page.waiting[word] & !skip;
                while bits != 0 {
                    let candidate = word * 64 + bits.trailing_zeros() as usize;
                    looked += 1;
                    if columns.is_present(candidate, clock) || absent_admitted() {
                        self.reached = start + candidate as u32 + 1;
                        search.found = Some(start + candidate as u32);
                        return search;
                    }
                    search.passed += 1;
                    bits &= bits - 1;
                }
            }
            looked += WORDS as u32;
            self.reached = (start + page.drawn).min(self.next);
        }
        search
    }

    /// Restores the reached turn from a journal.
    pub(super) fn restore_reached(&mut self, reached: u32) {
        self.reached = reached.clamp(self.first, self.next);
    }

    /// Draws the next number for a stored ticket. Returns false, and changes nothing, if the next number is another one, or if
    /// the user or the request has a living ticket.
    pub(super) fn restore(
        &mut self,
        number: u32,
        user: Option<&UserId>,
        request: Option<RequestId>,
        now: Steady,
    ) -> bool {
        if number != self.next || user.is_some_and(|user| self.of_user(user.as_str()).is_some()) {
            return false;
        }
        if request.is_some_and(|request| self.of_request(request.key).is_some()) {
            return false;
        }
        self.push(user, request, now);
        true
    }

    /// Finds tickets that were silent for `ttl_ms`, or whose visitors did not poll in time, a few segments per call. Examines each
    /// segment about once per `ttl_ms`, no matter what its visitors do; with a time for the first poll, once to four times in
    /// that.
    pub(super) fn expire_silent(&mut self, now: Steady, ttl_ms: u64, mut expired: impl FnMut(u32)) {
        let times = SweepTimes { ttl_ms, first_polls: self.first_polls };
        // Schedules new segments: the first sweep is due when the oldest ticket of the segment could have expired.
        for segment in (0..self.segments.len()).rev() {
            let page = &mut self.segments[segment];
            if page.swept {
                break;
            }
            page.swept = true;
            self.sweeps.insert((now.plus_ms(times.longest_ms()), segment as u32));
        }
        for _ in 0..SWEEP_SEGMENTS_MAX {
            let Some(&(due, segment)) = self.sweeps.first() else { return };
            if now < due {
                return;
            }
            self.sweeps.pop_first();
            let start = self.start + segment * SEGMENT;
            let page = &mut self.segments[segment as usize];
            // All tickets of the segment are gone, and a full segment gets no new one.
            let Some(columns) = &mut page.columns else { continue };
            columns.rebase(now);
            let clock = columns.clock(now);
            let mut next_ms = times.longest_ms();
            for (word, &bits) in page.waiting.iter().enumerate() {
                let mut bits = bits;
                while bits != 0 {
                    let at = word * 64 + bits.trailing_zeros() as usize;
                    let silent_ms = u64::from(clock.saturating_sub(columns.seen[at]));
                    match times.left_ms(columns, at, silent_ms, now) {
                        0 => expired(start + at as u32),
                        left_ms => next_ms = left_ms.min(next_ms),
                    }
                    bits &= bits - 1;
                }
            }
            self.sweeps.insert((now.plus_ms(next_ms), segment));
        }
    }

    /// Schedules a sweep of every segment now, because the time-out may be shorter.
    pub(super) fn restart_expiry(&mut self, now: Steady) {
        self.sweeps = (0..self.segments.len() as u32).map(|segment| (now, segment)).collect();
        self.segments.iter_mut().for_each(|page| page.swept = true);
    }
}

#[cfg(feature = "planted-bugs")]
fn absent_admitted() -> bool {
    crate::planted::is(crate::planted::Bug::AbsentAdmitted)
}

#[cfg(not(feature = "planted-bugs"))]
const fn absent_admitted() -> bool {
    false
}
