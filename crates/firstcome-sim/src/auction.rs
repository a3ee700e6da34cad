//! The world of auctions: as the world of coupons, with members who bid, buy, settle late and repeat themselves, and
//! with a clock that stops where it matters: at a start, at an end, at the last instant to settle, and beside them.
//!
//! - [`workload`] what members do; [`journal`] the disk; [`world`] one run; [`recovery`] a start from what survived
//! - [`history`] what they asked and were told; [`ledger`] what the disk says happened, listing by listing
//! - [`rules`] the rules of a listing said once more; [`replay`] how each listing stood at each moment, by these

pub mod history;
pub mod journal;
pub mod ledger;
pub mod recovery;
pub mod replay;
pub mod rules;
pub mod workload;
pub mod world;

use crate::{Report, Violation};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Plays the run of one seed in this world.
///
/// After an assertion that failed the invariants are asked once more: what clients were told before it tells more than
/// the assertion.
pub fn run_seed(seed: u64) -> Result<Report, Violation> {
    let mut world = world::World::new(seed);
    // After a panic only the history and the log of the disk are read, which are whole after every event.
    let run = catch_unwind(AssertUnwindSafe(|| world.run()));
    run.unwrap_or_else(|panic| {
        world.check()?;
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(Violation::new("assertion", seed, text))
    })
}
