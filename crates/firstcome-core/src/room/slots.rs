//! The slots of one room: who was admitted, until when, and whose end comes next.

use crate::time::{Steady, Timestamp};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::hash::RandomState;

/// Ends are looked up in steps of this. Only the search is coarse: a slot ends at its very instant.
const STEP_US: i64 = 250_000;

/// What stands between an admission and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Offered: the first poll before `until` takes it.
    Offered {
        /// The end of the claim window (exclusive).
        until: Steady,
    },
    /// Taken: its pass is valid.
    Taken {
        /// The end of the slot (exclusive).
        until: Steady,
    },
}

/// One admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Tells the slots apart that are alive, and those that one ticket has after each other. Passes are bound to it: an
    /// earlier slot's pass opens no later one. Not a count: after a restart it goes on from the highest that is alive.
    pub admission: u64,
    /// When, by the wall clock.
    pub admitted_at: Timestamp,
    /// What stands between now and its end.
    pub hold: Hold,
}

#[derive(Clone, Copy)]
struct Kept {
    slot: Slot,
    /// The last contact, for the idle time-out.
    contact: Steady,
}

/// All slots of one room.
pub(super) struct Slots {
    kept: HashMap<u32, Kept, RandomState>,
    /// One entry per slot, at or before its end; stale ones are recognised by the admission.
    ends: BTreeMap<i64, Vec<(u32, u64)>>,
    idle_ttl_ms: Option<u64>,
}

impl Kept {
    fn end(&self, idle_ttl_ms: Option<u64>) -> Steady {
        match (self.slot.hold, idle_ttl_ms) {
            (Hold::Offered { until }, _) | (Hold::Taken { until }, None) => until,
            (Hold::Taken { until }, Some(idle_ttl_ms)) => until.min(self.contact.plus_ms(idle_ttl_ms)),
        }
    }
}

impl Slots {
    pub(super) fn new(hasher: RandomState, idle_ttl_ms: Option<u64>) -> Self {
        Self { kept: HashMap::with_hasher(hasher), ends: BTreeMap::new(), idle_ttl_ms }
    }

    pub(super) fn count(&self) -> u32 {
        self.kept.len() as u32
    }

    fn step(end: Steady) -> i64 {
        end.as_us().div_euclid(STEP_US)
    }

    fn enter(ends: &mut BTreeMap<i64, Vec<(u32, u64)>>, end: Steady, number: u32, admission: u64) {
        ends.entry(Self::step(end)).or_default().push((number, admission));
    }

    /// The slot of a ticket, and when it ends.
    pub(super) fn get(&self, number: u32) -> Option<(Slot, Steady)> {
        self.kept.get(&number).map(|kept| (kept.slot, kept.end(self.idle_ttl_ms)))
    }

    /// Adds a slot, or changes what holds it.
    pub(super) fn put(&mut self, number: u32, slot: Slot, now: Steady) {
        let kept = Kept { slot, contact: now };
        let end = kept.end(self.idle_ttl_ms);
        let before = self.kept.insert(number, kept);
        // The entry that is there is found again at its end and moved on; only an earlier end needs one of its own.
        let known = before.filter(|before| before.slot.admission == slot.admission);
        if known.is_none_or(|before| end < before.end(self.idle_ttl_ms)) {
            Self::enter(&mut self.ends, end, number, slot.admission);
        }
    }

    pub(super) fn touch(&mut self, number: u32, now: Steady) {
        if let Some(kept) = self.kept.get_mut(&number) {
            kept.contact = kept.contact.max(now);
        }
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Slot> {
        self.kept.remove(&number).map(|kept| kept.slot)
    }

    /// Collects slots whose end has come. Looks at most at `look_max` of them, so that it takes several calls when very
    /// many end together.
    pub(super) fn due(&mut self, now: Steady, look_max: usize, found: &mut Vec<u32>) {
        let mut later = Vec::new();
        for _ in 0..look_max {
            let Some(mut step) = self.ends.first_entry().filter(|step| *step.key() <= Self::step(now)) else { break };
            let Some((number, admission)) = step.get_mut().pop() else {
                step.remove();
                continue;
            };
            let Some(kept) = self.kept.get(&number).filter(|kept| kept.slot.admission == admission) else { continue };
            let end = kept.end(self.idle_ttl_ms);
            if end <= now {
                found.push(number);
            } else {
                later.push((number, admission, end));
            }
        }
        for (number, admission, end) in later {
            Self::enter(&mut self.ends, end, number, admission);
        }
    }

    /// Another idle time-out, for all slots at once. Counts the contact as now: nobody loses a slot by the change.
    pub(super) fn set_idle_ttl(&mut self, idle_ttl_ms: Option<u64>, now: Steady) {
        if self.idle_ttl_ms == idle_ttl_ms {
            return;
        }
        self.idle_ttl_ms = idle_ttl_ms;
        self.ends.clear();
        for (&number, kept) in &mut self.kept {
            kept.contact = now;
            let end = kept.end(idle_ttl_ms);
            Self::enter(&mut self.ends, end, number, kept.slot.admission);
        }
    }

    /// Entries in the calendar of ends.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.ends.values().map(Vec::len).sum()
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.ends.clear();
    }
}
