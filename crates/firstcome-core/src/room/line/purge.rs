//! Forgets the first numbers of a line, all of which are gone.

use super::{GROUP, Line, SEGMENT, Segment};
use crate::room::bytes::first_bits;

impl Line {
    /// Returns the number before which all are gone, and nothing else is known of them.
    pub(in crate::room) const fn gone_before(&self) -> u32 {
        self.gone_before
    }

    /// Returns the number with which the first segment begins that is kept once all numbers before this one are released.
    pub(in crate::room) const fn start_at(&self, gone_before: u32) -> u32 {
        gone_before - (gone_before - self.first) % SEGMENT
    }

    /// Forgets the numbers before this one: they stay gone, and count as expired. Gives the memory of whole segments back.
    pub(in crate::room) fn release(&mut self, gone_before: u32) {
        assert!(
            self.gone_before <= gone_before && gone_before <= self.first_living(),
            "only numbers that are gone are released"
        );
        self.gone_before = gone_before;
        let start = self.start_at(gone_before);
        let count = (start - self.start) / SEGMENT;
        if count == 0 {
            return;
        }
        self.start = start;
        self.segments.drain(..count as usize);
        self.counts.drain(..count as usize);
        self.groups = self.counts.chunks(GROUP).map(|counts| counts.iter().sum()).collect();
        let sweeps = std::mem::take(&mut self.sweeps).into_iter();
        self.sweeps = sweeps.filter_map(|(due, segment)| Some((due, segment.checked_sub(count)?))).collect();
        if 2 * self.segments.len() < self.segments.capacity() {
            self.segments.shrink_to_fit();
            self.counts.shrink_to_fit();
        }
    }

    /// Begins a line whose numbers before this one were released. Returns false, and changes nothing, if it has drawn a number.
    pub(in crate::room) fn skip(&mut self, gone_before: u32) -> bool {
        if self.next != self.first || gone_before < self.first {
            return false;
        }
        self.start = self.start_at(gone_before);
        (self.gone_before, self.next) = (gone_before, gone_before);
        let drawn = gone_before - self.start;
        if drawn != 0 {
            self.segments.push(Segment { drawn, gone: first_bits(drawn), ..Segment::new() });
            self.counts.push(0);
            self.groups.push(0);
        }
        true
    }
}
