//! Findings of a check of stored rows, for every store.

pub mod auction;

/// Breaches of one kind that are named; more are only counted.
const NAMED_BREACHES_MAX: usize = 20;

/// One invariant, and what became of it.
#[derive(Clone, Debug)]
pub struct Check {
    /// The invariant in words.
    pub invariant: &'static str,
    /// On how many things it was checked.
    pub checked: u64,
    /// How many break it.
    pub breaches: u64,
    /// The first of them.
    pub examples: Vec<String>,
}

impl Check {
    /// An invariant that was checked on nothing yet.
    pub const fn new(invariant: &'static str) -> Self {
        Self { invariant, checked: 0, breaches: 0, examples: Vec::new() }
    }

    /// Counts one thing, and names it if the invariant does not hold for it.
    pub fn check(&mut self, holds: bool, breach: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.breaches += 1;
            if self.examples.len() < NAMED_BREACHES_MAX {
                self.examples.push(breach());
            }
        }
    }

    /// Adds what was checked elsewhere; one example stands for all its breaches.
    pub fn add(&mut self, checked: u64, breaches: u64, example: impl FnOnce() -> String) {
        self.checked += checked;
        self.breaches += breaches;
        if 0 < breaches && self.examples.len() < NAMED_BREACHES_MAX {
            self.examples.push(example());
        }
    }
}
