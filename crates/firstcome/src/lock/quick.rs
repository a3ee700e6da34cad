//! The way of a free lock in memory: two steps of the store, and no word to the client of the core.
//!
//! A hold that lasts longer than [`SWEEP_MS`], or of which anything is asked but to end, goes to the client, which renews it
//! and keeps its time. Most holds are over by then.

use firstcome_store::core::lock::{Ask, Fence, Grant};
use firstcome_store::core::time::Steady;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// How often it is looked whether a hold lasts. A quarter of the shortest lease.
pub(super) const SWEEP_MS: u64 = 25;

/// Requests of this way count from here, so that none has the number of one of the client's.
const FIRST: u64 = 1 << 62;

/// Numbers that count up need no hashing against malice.
#[derive(Default)]
pub(super) struct Counted(u64);

impl Hasher for Counted {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A hold that the client does not know of.
pub(super) struct QuickHold {
    pub(super) ask: Ask,
    pub(super) grant: Grant,
    /// When it was asked for, which is before it was granted.
    pub(super) asked: Steady,
}

impl QuickHold {
    pub(super) const fn fence(&self) -> Fence {
        self.grant.fence
    }

    /// Until when it lasts.
    pub(super) const fn deadline(&self) -> Steady {
        self.asked.plus_ms(self.ask.lease_ms as u64)
    }
}

/// All of them.
pub(super) struct Quick {
    holds: HashMap<u64, QuickHold, BuildHasherDefault<Counted>>,
    drawn: u64,
    /// Whether somebody will look.
    pub(super) sweeps: bool,
}

impl Default for Quick {
    fn default() -> Self {
        Self { holds: HashMap::default(), drawn: FIRST, sweeps: false }
    }
}

impl Quick {
    /// A number for a request.
    pub(super) const fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Whether a request may be of this way.
    pub(super) const fn is_of(number: u64) -> bool {
        FIRST <= number
    }

    pub(super) fn insert(&mut self, number: u64, hold: QuickHold) {
        self.holds.insert(number, hold);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<QuickHold> {
        self.holds.remove(&number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Those that last.
    pub(super) fn drain(&mut self) -> Vec<(u64, QuickHold)> {
        self.holds.drain().collect()
    }
}
