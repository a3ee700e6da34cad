//! Positions: how many tickets in line are ahead.

use super::{GROUP, Line};

impl Line {
    /// Counts the tickets in line between the reached turn and that of this number, which may be the next one to draw.
    pub(in crate::room) fn ahead(&self, number: u32) -> u32 {
        let turn = self.turn(number);
        if turn <= self.reached {
            return 0;
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::DepartedCounted) {
            return turn - self.reached;
        }
        match self.lots.as_deref().filter(|_| self.reached < self.drawn_end()) {
            Some(lots) => {
                let end = self.drawn_end();
                let late = if end < turn { self.between(end, turn) } else { 0 };
                lots.between(self.reached, turn.min(end)) + late
            }
            None => self.between(self.reached, turn),
        }
    }

    /// Counts the tickets in line from one number up to another, which is higher, and may be the next one to draw.
    fn between(&self, from: u32, to: u32) -> u32 {
        // No ticket before the first segment that is kept waits.
        let from = from.max(self.start);
        if to <= from {
            return 0;
        }
        let (from, from_at) = self.spot(from);
        let (to, to_at) = self.spot(to);
        // The next number may be the first one of a segment that does not exist yet.
        let before = self.segments.get(to).map_or(0, |page| page.waiting_below(to_at as u32));
        if from == to {
            return before - self.segments[from].waiting_below(from_at as u32);
        }
        let rest = self.counts[from] - self.segments[from].waiting_below(from_at as u32);
        let count = |counts: &[u32]| -> u32 { counts.iter().sum() };
        let (first_group, last_group) = ((from + 1).div_ceil(GROUP), to / GROUP);
        let between = if first_group < last_group {
            let groups: u32 = self.groups[first_group..last_group].iter().sum();
            count(&self.counts[from + 1..first_group * GROUP]) + groups + count(&self.counts[last_group * GROUP..to])
        } else {
            count(&self.counts[from + 1..to])
        };
        rest + between + before
    }
}
