//! A line of which a part was lost, and tickets that come back into it.
//!
//! An unknown number costs only its bits. A segment has columns only once a visitor comes back into it.

use super::first_poll::UNPOLLED;
use super::image::each;
use super::{Columns, Departure, Line, SEGMENT, TOLD_MS, TicketPlace, WORDS, bit};
use crate::id::{RequestId, UserId};
use crate::room::bytes::first_bits;
use crate::time::Steady;
use std::hash::RandomState;

impl Line {
    /// Makes a line in which the numbers `first..=ceiling` are unknown; the next number drawn comes after them.
    pub(in crate::room) fn lost(hasher: RandomState, first: u32, ceiling: u32) -> Self {
        let mut line = Self::new(hasher, first);
        while line.next <= ceiling {
            line.add_segment();
            let drawn = SEGMENT.min(ceiling - line.next + 1);
            line.next += drawn;
            line.unknown += drawn;
            let Some(page) = line.segments.last_mut() else { break };
            page.drawn = drawn;
            page.unknown = Some(Box::new(first_bits(drawn)));
            // The segment has nothing to sweep before `open`.
            page.swept = true;
        }
        line
    }

    /// Marks the numbers up to `ceiling` that are not drawn here as unknown: another node may have drawn them. The next number
    /// drawn comes after them.
    pub(in crate::room) fn lose(&mut self, ceiling: u32) {
        while self.next <= ceiling {
            let (segment, at) = self.spot(self.next);
            if segment == self.segments.len() {
                self.add_segment();
            }
            let drawn = (SEGMENT - at as u32).min(ceiling - self.next + 1);
            let page = &mut self.segments[segment];
            let unknown = page.unknown.get_or_insert_with(|| Box::new([0; WORDS]));
            for at in at..at + drawn as usize {
                let (word, mask) = bit(at);
                unknown[word] |= mask;
            }
            page.drawn += drawn;
            if page.living_count == 0 && page.drawn == SEGMENT {
                page.columns = None;
            }
            self.next += drawn;
            self.unknown += drawn;
        }
    }

    /// Marks the visitors of all living tickets as just seen. They keep their poll intervals. A visitor who has not polled still
    /// has to, and has the whole time for it.
    pub(in crate::room) fn mark_all_present(&mut self, now: Steady) {
        for page in &mut self.segments {
            // An image keeps nothing of tickets that are gone, so these must leave no trace in the columns.
            let living = page.living();
            let Some(columns) = page.columns.as_deref_mut() else { continue };
            for at in each(&living) {
                let unpolled = columns.told[at] & UNPOLLED;
                columns.touch(at, now, u32::from(columns.told(at)) * TOLD_MS);
                columns.told[at] |= unpolled;
            }
        }
    }

    /// Leaves out of every silence a time in which no contact could arrive. No visitor counts as seen later than now.
    pub(in crate::room) fn stood_still(&mut self, still_us: u64, now: Steady) {
        let still_ms = u32::try_from(still_us / 1_000).unwrap_or(u32::MAX);
        self.delay_first_polls(still_ms);
        for page in &mut self.segments {
            let living = page.living();
            let Some(columns) = page.columns.as_deref_mut() else { continue };
            columns.rebase(now);
            let clock = columns.clock(now);
            columns.present_until = 0;
            for at in each(&living) {
                columns.seen[at] = columns.seen[at].saturating_add(still_ms).min(clock);
                columns.present_until = columns.present_until.max(columns.seen[at].saturating_add(columns.window(at)));
            }
        }
    }

    /// Returns how many numbers are unknown.
    pub(in crate::room) const fn unknown(&self) -> u32 {
        self.unknown
    }

    /// Returns the first number that is not void.
    pub(in crate::room) const fn first(&self) -> u32 {
        self.first
    }

    /// Creates the columns of a segment without any, and schedules its sweep.
    pub(super) fn open(&mut self, segment: usize, now: Steady) {
        let page = &mut self.segments[segment];
        if page.columns.is_some() {
            return;
        }
        page.columns = Some(Box::new(Columns::new(now)));
        // A sweep from before all of its tickets were gone may still be scheduled.
        if page.swept && !self.sweeps.iter().any(|&(_, swept)| swept as usize == segment) {
            self.sweeps.insert((now, segment as u32));
        }
    }

    fn no_longer_unknown(&mut self, number: u32) -> bool {
        if self.place(number) != Some(TicketPlace::Unknown) {
            return false;
        }
        let (segment, at) = self.spot(number);
        let (word, mask) = bit(at);
        let page = &mut self.segments[segment];
        if let Some(bits) = &mut page.unknown {
            bits[word] &= !mask;
            if bits.iter().all(|&bits| bits == 0) {
                page.unknown = None;
            }
        }
        self.unknown -= 1;
        true
    }

    /// Marks an unknown ticket as gone. Returns false, and changes nothing, if it is not unknown.
    pub(in crate::room) fn forget(&mut self, number: u32, how: Departure) -> bool {
        if !self.no_longer_unknown(number) {
            return false;
        }
        let (segment, at) = self.spot(number);
        let (word, mask) = bit(at);
        let page = &mut self.segments[segment];
        page.gone[word] |= mask;
        if how == Departure::Left {
            page.left[word] |= mask;
        }
        true
    }

    /// Puts an unknown ticket back into line, as just seen. Returns false, and changes nothing, if it is not unknown, or if the
    /// user or the request has a living ticket.
    pub(in crate::room) fn come_back(
        &mut self,
        number: u32,
        user: Option<&UserId>,
        request: Option<RequestId>,
        now: Steady,
    ) -> bool {
        let has_place = user.is_some_and(|user| self.of_user(user.as_str()).is_some())
            || request.is_some_and(|request| self.of_request(request.key).is_some());
        if has_place || !self.no_longer_unknown(number) {
            return false;
        }
        let (segment, at) = self.spot(number);
        self.open(segment, now);
        let page = &mut self.segments[segment];
        page.living_count += 1;
        if let Some(columns) = &mut page.columns {
            columns.insert(at, user.map_or("", UserId::as_str), request);
            columns.touch(at, now, 0);
        }
        self.index(number, user, request);
        self.enter(number);
        true
    }
}

impl Columns {
    /// Inserts a ticket at its place. In the order of the numbers this costs only the ticket's own bytes.
    fn insert(&mut self, at: usize, user: &str, request: Option<RequestId>) {
        if self.ends.len() <= at {
            self.push(at, user, request);
            return;
        }
        self.users.insert_str(self.ends[at] as usize, user);
        self.ends[at..].iter_mut().for_each(|end| *end += user.len() as u32);
        if let Some(request) = request {
            let place = self.requests.partition_point(|(known, _)| usize::from(*known) < at);
            self.requests.insert(place, (at as u16, request));
        }
    }
}
