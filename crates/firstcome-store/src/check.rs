//! The result of checking an invariant on stored rows, for every store.

pub mod auction;

/// The most breaches of one invariant that are named; further ones are only counted.
const NAMED_BREACHES_MAX: usize = 20;

/// One invariant, and the result of its check.
#[derive(Clone, Debug)]
pub struct Check {
    /// The invariant in words.
    pub invariant: &'static str,
    /// How many rows or objects were checked.
    pub checked: u64,
    /// How many of them break it.
    pub breaches: u64,
    /// The first breaches.
    pub examples: Vec<String>,
}

impl Check {
    /// Makes the check of an invariant, with nothing checked yet.
    pub const fn new(invariant: &'static str) -> Self {
        Self { invariant, checked: 0, breaches: 0, examples: Vec::new() }
    }

    /// Counts one object, and names it if the invariant does not hold for it.
    pub fn check(&mut self, holds: bool, breach: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.breaches += 1;
            if self.examples.len() < NAMED_BREACHES_MAX {
                self.examples.push(breach());
            }
        }
    }

    /// Adds the counts of another check; one example stands for all its breaches.
    pub fn add(&mut self, checked: u64, breaches: u64, example: impl FnOnce() -> String) {
        self.checked += checked;
        self.breaches += breaches;
        if 0 < breaches && self.examples.len() < NAMED_BREACHES_MAX {
            self.examples.push(example());
        }
    }
}
