//! A deterministic simulator: the real store over a disk that fails on purpose, with invariants that judge.
//!
//! One seed is one run, in one thread: which clients come, what they ask, when the writer runs, how each commit ends
//! and when the process dies all follow from it, so a violation is replayed by its seed alone. What is simulated is
//! the world around the store (`Embedded` with its writer stepped by hand), never the store itself.
//!
//! - [`rng`] chance from a seed; [`journal`] the disk; [`workload`] what clients do; [`world`] one run
//! - [`history`] what clients asked and were told; [`recovery`] a start from what survived
//! - [`invariants`] what must hold, one file each; [`report`] what was reached, so that silence means something
//!
//! There are five worlds, and each seed plays one of them, by its remainder when divided by five: 0 that of coupons
//! ([`world`]), 1 that of waiting room ([`room`]), 2 that of lock ([`lock`]), 3 that of auction ([`auction`]), 4 that of
//! a cluster ([`cluster`]).

pub mod auction;
pub mod cluster;
pub mod history;
pub mod invariants;
pub mod journal;
pub mod lock;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod recovery;
pub mod report;
pub mod room;
pub mod workload;
pub mod world;

pub use firstcome_store::edge::rng;
pub use invariants::Violation;
pub use report::Report;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Plays the run of one seed. The same seed gives the same report, trace hash included.
///
/// An assertion of the store that fails ends the run as the violation `assertion`, so that its seed is told too.
pub fn run_seed(seed: u64) -> Result<Report, Violation> {
    match seed % 5 {
        1 => return room::run_seed(seed),
        2 => return lock::run_seed(seed),
        3 => return auction::run_seed(seed),
        4 => return cluster::run_seed(seed),
        _ => {}
    }
    // Nothing of the world outlives its panic, so nothing half changed can be seen.
    let run = catch_unwind(AssertUnwindSafe(|| world::World::new(seed).run()));
    run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(Violation::new("assertion", seed, text))
    })
}
