//! The slots of one room: the admitted visitors, when each slot ends, and which ends next.

use super::bytes::{ImageError, Reader, put_number, put_signed, put_steady};
use crate::time::{Steady, Timestamp};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;

/// The resolution of the calendar of ends. Only the search is coarse: a slot ends at its very instant.
const STEP_US: i64 = 250_000;

/// The state of a slot, with its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Offered: the first poll before `until` takes the slot.
    Offered {
        /// The end of the claim window (exclusive).
        until: Steady,
    },
    /// Taken: the pass of the slot is valid.
    Taken {
        /// The end of the slot (exclusive).
        until: Steady,
    },
}

/// One admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Distinguishes living slots, and successive slots of one ticket. Passes are bound to it: the pass of an earlier slot
    /// does not open a later one. Not a count: after a restart it goes on from the highest living one.
    pub admission: u64,
    /// When the room offered it, by the wall clock.
    pub admitted_at: Timestamp,
    /// Its state, with its end.
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
    /// One valid entry per slot, at or before its end. A stale entry has another admission than the slot.
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

    /// Returns the slot of a ticket, and when it ends.
    pub(super) fn get(&self, number: u32) -> Option<(Slot, Steady)> {
        self.kept.get(&number).map(|kept| (kept.slot, kept.end(self.idle_ttl_ms)))
    }

    /// Returns the admissions that have not ended, in no order.
    pub(super) fn alive(&self, now: Steady) -> impl Iterator<Item = (u32, u64)> {
        let alive = move |kept: &Kept| now < kept.end(self.idle_ttl_ms);
        self.kept.iter().filter(move |(_, kept)| alive(kept)).map(|(number, kept)| (*number, kept.slot.admission))
    }

    /// Returns what [`Self::get`] would return if the visitor were seen now.
    pub(super) fn seen(&self, number: u32, now: Steady) -> Option<(Slot, Steady)> {
        let seen = |kept: &Kept| Kept { contact: kept.contact.max(now), ..*kept };
        self.kept.get(&number).map(|kept| (kept.slot, seen(kept).end(self.idle_ttl_ms)))
    }

    /// Adds a slot, or changes its state.
    pub(super) fn put(&mut self, number: u32, slot: Slot, now: Steady) {
        let kept = Kept { slot, contact: now };
        let end = kept.end(self.idle_ttl_ms);
        let before = self.kept.insert(number, kept);
        // `due` finds the existing entry at the old end and moves it on. Only an earlier end needs a new entry.
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

    /// Marks all visitors with a slot as just seen. `due` moves the entries on later.
    pub(super) fn mark_all_present(&mut self, now: Steady) {
        self.kept.values_mut().for_each(|kept| kept.contact = kept.contact.max(now));
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Slot> {
        self.kept.remove(&number).map(|kept| kept.slot)
    }

    /// Collects slots whose end has come. Examines at most `look_max` of them, so it takes several calls when very many end
    /// together.
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

    /// Sets the idle time-out for all slots. Counts every visitor as seen now, so that no visitor loses a slot by the change.
    pub(super) fn set_idle_ttl(&mut self, idle_ttl_ms: Option<u64>, now: Steady) {
        if self.idle_ttl_ms == idle_ttl_ms {
            return;
        }
        self.idle_ttl_ms = idle_ttl_ms;
        self.ends.clear();
        // In the order of the numbers: the order in which `due` examines ends must not depend on a hash seed.
        let mut numbers: Vec<u32> = self.kept.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(kept) = self.kept.get_mut(&number) else { continue };
            kept.contact = now;
            let end = kept.end(idle_ttl_ms);
            Self::enter(&mut self.ends, end, number, kept.slot.admission);
        }
    }

    pub(super) fn put_image(&self, out: &mut Vec<u8>) {
        let mut kept: Vec<(&u32, &Kept)> = self.kept.iter().collect();
        kept.sort_unstable_by_key(|(number, _)| **number);
        put_number(out, kept.len() as u64);
        for (&number, kept) in kept {
            put_number(out, number);
            put_slot(out, kept.slot);
            put_steady(out, kept.contact);
        }
        put_number(out, self.ends.len() as u64);
        for (&step, entries) in &self.ends {
            put_signed(out, step);
            put_number(out, entries.len() as u64);
            for &(number, admission) in entries {
                put_number(out, number);
                put_number(out, admission);
            }
        }
    }

    /// Reads slots from an image. Every slot must have an entry at or before its end.
    pub(super) fn read_image(
        reader: &mut Reader<'_>,
        hasher: RandomState,
        idle_ttl_ms: Option<u64>,
    ) -> Result<Self, ImageError> {
        let mut slots = Self::new(hasher, idle_ttl_ms);
        for _ in 0..reader.count()? {
            let number = reader.number_u32()?;
            let kept = Kept { slot: read_slot(reader)?, contact: reader.steady()? };
            if slots.kept.insert(number, kept).is_some() {
                return Err(ImageError::Value("slot"));
            }
        }
        let mut ending = BTreeSet::new();
        for _ in 0..reader.count()? {
            let step = reader.signed()?;
            let mut entries = Vec::new();
            for _ in 0..reader.count()? {
                let (number, admission) = (reader.number_u32()?, reader.number()?);
                let known = slots.kept.get(&number).filter(|kept| kept.slot.admission == admission);
                if known.is_some_and(|kept| step <= Self::step(kept.end(idle_ttl_ms))) {
                    ending.insert(number);
                }
                entries.push((number, admission));
            }
            if slots.ends.insert(step, entries).is_some() {
                return Err(ImageError::Value("end of a slot"));
            }
        }
        if ending.len() != slots.kept.len() { Err(ImageError::Value("end of a slot")) } else { Ok(slots) }
    }

    /// Returns the ticket number and the admission of each slot.
    pub(super) fn admissions(&self) -> impl Iterator<Item = (u32, u64)> {
        self.kept.iter().map(|(&number, kept)| (number, kept.slot.admission))
    }

    /// Returns the number of entries in the calendar of ends.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.ends.values().map(Vec::len).sum()
    }

    /// Forgets when slots end.
    #[cfg(test)]
    pub(super) fn harm_ends(&mut self) {
        self.ends.clear();
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.ends.clear();
    }
}

const OFFERED: u8 = 0;
const TAKEN: u8 = 1;

pub(super) fn put_slot(out: &mut Vec<u8>, slot: Slot) {
    put_number(out, slot.admission);
    put_signed(out, slot.admitted_at.as_us());
    let (kind, until) = match slot.hold {
        Hold::Offered { until } => (OFFERED, until),
        Hold::Taken { until } => (TAKEN, until),
    };
    out.push(kind);
    put_steady(out, until);
}

pub(super) fn read_slot(reader: &mut Reader<'_>) -> Result<Slot, ImageError> {
    let admission = reader.number()?;
    let admitted_at = Timestamp::from_us(reader.signed()?).ok_or(ImageError::Value("instant"))?;
    let (kind, until) = (reader.byte()?, reader.steady()?);
    let hold = match kind {
        OFFERED => Hold::Offered { until },
        TAKEN => Hold::Taken { until },
        _ => return Err(ImageError::Value("slot")),
    };
    Ok(Slot { admission, admitted_at, hold })
}
