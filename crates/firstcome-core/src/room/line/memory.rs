//! Who was present, as bytes that outlive the process.
//!
//! One byte for each ticket of a segment: for how many seconds its visitor still counts as present. So the time in which the
//! service is down does not count, and a visitor who was absent stays absent until the next poll.

use super::first_poll::UNPOLLED;
use super::image::each;
use super::{Line, PRESENT_MS_MIN, PRESENT_POLLS, SEGMENT, TOLD_MS};
use crate::time::Steady;

/// How far the epoch of restored columns lies back: longer than any presence.
const EPOCH_MS: u32 = 600_000;
/// A visitor who is remembered as absent has at least this time until the place expires: longer than any poll interval.
pub(super) const PATIENCE_MS: u64 = 90_000;

impl Line {
    /// Returns how many segments there are.
    pub(in crate::room) const fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the number of the first ticket of a segment.
    pub(in crate::room) const fn first_of(&self, segment: usize) -> u32 {
        self.start + segment as u32 * SEGMENT
    }

    /// Returns the segment of a number; the first one for a number before it.
    pub(in crate::room) const fn segment_of(&self, number: u32) -> usize {
        (number.saturating_sub(self.start) / SEGMENT) as usize
    }

    /// Returns how many segments from this first number on are no longer kept; `None` if no segment began with it.
    pub(in crate::room) fn released_since(&self, first_number: u32) -> Option<usize> {
        let before = self.start.checked_sub(first_number).filter(|before| before.is_multiple_of(SEGMENT))?;
        Some((before / SEGMENT) as usize)
    }

    /// Returns how many tickets of a segment wait.
    pub(in crate::room) fn waiting_in(&self, segment: usize) -> u32 {
        self.counts[segment]
    }

    /// Returns for how many seconds each visitor of a segment still counts as present, rounded up; 0 for one who does not.
    pub(in crate::room) fn presence(&self, segment: usize, now: Steady) -> Vec<u8> {
        let page = &self.segments[segment];
        let Some(columns) = page.columns.as_deref() else { return Vec::new() };
        let mut left_s = vec![0; page.drawn as usize];
        let clock = columns.clock(now);
        for at in each(&page.living()).filter(|&at| columns.is_present(at, clock)) {
            let left_ms = columns.window(at) - clock.saturating_sub(columns.seen[at]);
            left_s[at] = u8::try_from(left_ms / 1_000 + 1).unwrap_or(u8::MAX);
        }
        left_s
    }

    /// Restores what [`Self::presence`] returned. Tickets that were drawn later count as just seen. Changes nothing if
    /// `first_number` begins no segment. No visitor loses the place by it: the silence of one who is remembered as
    /// absent leaves time until `waiting_ttl_ms`.
    pub(in crate::room) fn recall(&mut self, first_number: u32, left_s: &[u8], waiting_ttl_ms: u64, now: Steady) {
        let before = first_number.checked_sub(self.start).filter(|before| before.is_multiple_of(SEGMENT));
        let Some(page) = before.and_then(|before| self.segments.get_mut((before / SEGMENT) as usize)) else { return };
        let living = page.living();
        let Some(columns) = page.columns.as_deref_mut() else { return };
        let silence_ms_max = u32::try_from(waiting_ttl_ms.saturating_sub(PATIENCE_MS)).unwrap_or(u32::MAX);
        columns.epoch = now.minus_ms(EPOCH_MS.into());
        columns.present_until = 0;
        for at in each(&living) {
            let left_ms = left_s.get(at).map_or(PRESENT_MS_MIN, |left_s| u32::from(*left_s) * 1_000);
            // A presence that is longer than the shortest one is that of a longer poll interval.
            let is_long = PRESENT_MS_MIN < left_ms;
            let told = if is_long { left_ms.div_ceil(PRESENT_POLLS * TOLD_MS) as u16 } else { 0 };
            columns.told[at] = told | columns.told[at] & UNPOLLED;
            let silence_ms = if left_ms == 0 { PRESENT_MS_MIN + 1 } else { columns.window(at).saturating_sub(left_ms) };
            columns.seen[at] = EPOCH_MS - silence_ms.min(silence_ms_max);
            columns.present_until = columns.present_until.max(columns.seen[at].saturating_add(columns.window(at)));
        }
    }
}
