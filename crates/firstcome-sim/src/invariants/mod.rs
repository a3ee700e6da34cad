//! What must hold, one file each. The same list stands in the design.
//!
//! | file | invariant |
//! |---|---|
//! | [`no_oversell`] | 5: no oversell, no undersell |
//! | [`one_each`] | 6: one each |
//! | [`gapless_in_order`] | 7: serials without gaps, in the order in which claims were accepted |
//! | [`acknowledged_stays`] | 8: what was acknowledged is never lost, a refusal never contradicted |
//!
//! Each judges the [`Evidence`]: what clients were told, and what is on disk after a crash. None of them looks into the
//! store. Each has a test with a history that it must reject.

pub mod acknowledged_stays;
pub mod gapless_in_order;
pub mod no_oversell;
pub mod one_each;
#[cfg(test)]
mod story;

use crate::history::History;
use crate::journal::Stored;
use firstcome_core::time::Timestamp;
use std::fmt;

/// What an invariant is judged by.
pub struct Evidence<'a> {
    /// Which run.
    pub seed: u64,
    /// What clients asked and were told.
    pub history: &'a History,
    /// What is on disk. No process runs on it at this moment.
    pub stored: &'a Stored,
    /// Set once faults have ended and everybody has repeated what was unclear: from then on exactness is demanded.
    pub healed_at: Option<Timestamp>,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which invariant, by the name of its file.
    pub invariant: &'static str,
    /// Which run.
    pub seed: u64,
    /// What was seen.
    pub detail: String,
}

impl Violation {
    /// A finding.
    pub fn new(invariant: &'static str, seed: u64, detail: impl Into<String>) -> Self {
        Self { invariant, seed, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, seed, detail } = self;
        writeln!(f, "SIM_SEED={seed} broke {invariant}: {detail}")?;
        write!(f, "replay: cargo run --package firstcome-sim -- --seed {seed}")
    }
}

impl std::error::Error for Violation {}

/// Judges all of them. The order decides only which one gives its name to a bug that breaks several.
pub fn check(evidence: &Evidence<'_>) -> Result<(), Violation> {
    gapless_in_order::check(evidence)?;
    one_each::check(evidence)?;
    acknowledged_stays::check(evidence)?;
    no_oversell::check(evidence)
}
