//! A deterministic simulator: the real store over a disk that fails on purpose, with invariants that judge.
//!
//! One seed is one run, in one thread: which clients come, what they ask, when the writer runs, how each commit ends
//! and when the process dies all follow from it, so a violation is replayed by its seed alone. What is simulated is
//! the world around the store (`Embedded` with its writer stepped by hand), never the store itself.
//!
//! Each seed plays one of five worlds, by its remainder when divided by five: 0 that of coupons ([`coupon`]), 1 that of
//! waiting rooms ([`room`]), 2 that of locks ([`lock`]), 3 that of auctions ([`auction`]), 4 that of a cluster ([`cluster`]).
//!
//! Coupons, rooms and auctions share one driver. Each of them is a [`primitive`]:
//!
//! - [`world`] one run: time, faults, batches, crashes, the heal; [`journal`] the disk
//! - [`workload`] what clients do; [`history`] what they asked and were told; [`recovery`] a start from what survived
//!
//! All five share [`rng`], chance from a seed; [`secrets`], secrets from it; [`invariants`], what must hold, one file each; and [`report`], what was
//! reached, so that silence means something.

pub mod auction;
pub mod cluster;
pub mod coupon;
pub mod history;
pub mod invariants;
pub mod journal;
pub mod lock;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod primitive;
pub mod recovery;
pub mod report;
pub mod room;
pub mod secrets;
pub mod workload;
pub mod world;

pub use firstcome_store::edge::rng;
pub use invariants::Violation;
pub use report::Report;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// The world of one seed.
trait Play {
    /// Plays the whole run.
    fn run(&mut self) -> Result<Report, Violation>;

    /// Asks the invariants after an assertion has failed: the replies of before say more than the assertion.
    fn check(&self) -> Result<(), Violation>;
}

/// Plays the run of one seed. The same seed gives the same report, trace hash included.
///
/// An assertion of the store that fails ends the run as the violation `assertion`, so that its seed is reported too.
pub fn run_seed(seed: u64) -> Result<Report, Violation> {
    match seed % 5 {
        0 => play(seed, &mut World::<coupon::workload::Coupons>::new(seed)),
        1 => play(seed, &mut World::<room::workload::Rooms>::new(seed)),
        2 => play(seed, &mut lock::world::World::new(seed)),
        3 => play(seed, &mut World::<auction::workload::Auctions>::new(seed)),
        _ => play(seed, &mut cluster::world::World::new(seed)),
    }
}

fn play(seed: u64, world: &mut dyn Play) -> Result<Report, Violation> {
    // After a panic the invariants read only the history and the log of the disk, which are whole after every event.
    let run = catch_unwind(AssertUnwindSafe(|| world.run()));
    run.unwrap_or_else(|panic| {
        world.check()?;
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(Violation::new("assertion", seed, text))
    })
}
