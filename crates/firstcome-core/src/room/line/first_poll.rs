//! Tickets whose visitors have not polled since the join.
//!
//! One bit in the column of poll intervals says it, so it costs no memory. Every contact writes that column, and so clears the
//! bit. Only a line with a time for the first poll sets it.

use super::image::each;
use super::memory::PATIENCE_MS;
use super::{Columns, Line, Segment};
use crate::time::Steady;

/// Set in the poll interval of a ticket whose visitor has not polled since the join.
pub(super) const UNPOLLED: u16 = 1 << 15;
/// The longest poll interval that fits beside [`UNPOLLED`].
pub(super) const TOLD_MAX: u16 = UNPOLLED - 1;

/// A sweep examines a segment again after this part of the time at the earliest, which bounds its work while visitors join.
const SWEEPS_PER_TIME: u64 = 4;

/// The time in which a visitor must poll for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::room) struct FirstPolls {
    pub(in crate::room) ms: u64,
    /// Until then no ticket ends because its visitor has not polled: all of them got the time afresh.
    pub(in crate::room) grace_until: Steady,
}

impl FirstPolls {
    /// Makes the time for tickets that join from now on.
    pub(in crate::room) const fn new(ms: u64, now: Steady) -> Self {
        Self { ms, grace_until: now }
    }

    /// Returns how long the visitor of a ticket, who has been silent for `silent_ms` since the join, may still take.
    fn left_ms(self, silent_ms: u64, now: Steady) -> u64 {
        self.ms.saturating_sub(silent_ms).max(self.grace_until.since_us(now).div_ceil(1_000))
    }
}

/// When a sweep ends a ticket, and when it examines a segment again.
#[derive(Clone, Copy)]
pub(super) struct SweepTimes {
    pub(super) ttl_ms: u64,
    pub(super) first_polls: Option<FirstPolls>,
}

impl SweepTimes {
    /// Returns how long a ticket may stay in line before a sweep must examine it again; 0 if it ends now.
    pub(super) fn left_ms(self, columns: &Columns, at: usize, silent_ms: u64, now: Steady) -> u64 {
        let left_ms = self.ttl_ms.saturating_sub(silent_ms);
        match self.first_polls {
            Some(first_polls) if columns.is_unpolled(at) => match first_polls.left_ms(silent_ms, now) {
                0 => 0,
                first_left_ms => left_ms.min(first_left_ms.max(first_polls.ms / SWEEPS_PER_TIME)),
            },
            _ => left_ms,
        }
    }

    /// Returns after how long a sweep examines a segment again at the latest. A visitor may join it meanwhile.
    pub(super) fn longest_ms(self) -> u64 {
        self.first_polls.map_or(self.ttl_ms, |first_polls| first_polls.ms.min(self.ttl_ms))
    }
}

impl Columns {
    pub(super) fn is_unpolled(&self, at: usize) -> bool {
        self.told[at] & UNPOLLED != 0
    }

    /// Returns the poll interval that the visitor was told last, in units of [`TOLD_MS`](super::TOLD_MS).
    pub(super) fn told(&self, at: usize) -> u16 {
        self.told[at] & TOLD_MAX
    }
}

impl Segment {
    /// Gives all living tickets this mark: [`UNPOLLED`], or 0 for those that count as polled.
    fn mark_all(&mut self, mark: u16) {
        let living = self.living();
        let Some(columns) = self.columns.as_deref_mut() else { return };
        for at in each(&living) {
            columns.told[at] = columns.told(at) | mark;
        }
    }
}

impl Line {
    /// Returns the time for the first poll, if there is one.
    pub(in crate::room) const fn first_polls(&self) -> Option<FirstPolls> {
        self.first_polls
    }

    /// Puts a time for the first poll in force, for tickets that join from now on.
    pub(in crate::room) const fn with_first_polls(mut self, first_polls: Option<FirstPolls>) -> Self {
        self.first_polls = first_polls;
        self
    }

    /// Lets every visitor of a living ticket poll for the first time within the time from now on.
    pub(in crate::room) fn await_polls_afresh(&mut self, ms: u64, now: Steady) {
        self.first_polls = Some(self.afresh(ms, now));
        self.segments.iter_mut().for_each(|page| page.mark_all(UNPOLLED));
    }

    /// Makes the time for tickets that are in line already, if there are any. It leaves every visitor more than a poll interval.
    fn afresh(&self, ms: u64, now: Steady) -> FirstPolls {
        let has_tickets = self.segments.iter().any(|page| page.living_count != 0);
        FirstPolls { ms, grace_until: if has_tickets { now.plus_ms(ms.max(PATIENCE_MS)) } else { now } }
    }

    /// Puts another time for the first poll in force; with `None`, no visitor has to poll. Does nothing if it is the same
    /// time. Every visitor in line who has not polled gets the time afresh. A line without a time does not know who has polled,
    /// so all of its visitors count as not having polled when it gets one.
    pub(in crate::room) fn replace_first_poll(&mut self, first_poll_ms: Option<u64>, now: Steady) {
        let before_ms = self.first_polls.map(|first_polls| first_polls.ms);
        match first_poll_ms {
            _ if first_poll_ms == before_ms => {}
            None => {
                self.first_polls = None;
                self.segments.iter_mut().for_each(|page| page.mark_all(0));
            }
            Some(ms) => {
                if before_ms.is_none() {
                    self.segments.iter_mut().for_each(|page| page.mark_all(UNPOLLED));
                }
                self.first_polls = Some(self.afresh(ms, now));
                self.restart_expiry(now);
            }
        }
    }

    /// Marks a living ticket as one whose visitor has not polled since the join.
    pub(in crate::room) fn await_first_poll(&mut self, number: u32) {
        let (segment, at) = self.spot(number);
        if let Some(columns) = &mut self.segments[segment].columns {
            columns.told[at] |= UNPOLLED;
        }
    }

    /// Returns whether the visitor of a living ticket must still poll for the first time.
    pub(in crate::room) fn awaits_first_poll(&self, number: u32) -> bool {
        self.first_polls.is_some() && self.columns(number).is_some_and(|(columns, at)| columns.is_unpolled(at))
    }

    /// Returns whether the visitor of a living ticket has not polled in time.
    pub(in crate::room) fn is_overdue(&self, number: u32, now: Steady) -> bool {
        let Some(first_polls) = self.first_polls else { return false };
        self.awaits_first_poll(number) && first_polls.left_ms(self.silent_ms(number, now), now) == 0
    }

    /// Leaves out of the time of a line a while in which no contact could arrive.
    pub(super) fn delay_first_polls(&mut self, still_ms: u32) {
        if let Some(first_polls) = &mut self.first_polls {
            first_polls.grace_until = first_polls.grace_until.plus_ms(still_ms.into());
        }
    }
}
