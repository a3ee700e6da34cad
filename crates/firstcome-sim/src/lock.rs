//! The world of locks: several processes, the store that they share, and a network that does what networks do.
//!
//! - [`workload`] what tasks want, and how bad the world is; `tasks` what they do; [`network`] what becomes of a message; [`table`] what the
//!   store writes down; [`world`] one run
//! - [`history`] what processes asked, were told and did; [`ledger`] what the store's log says of each hold and each
//!   place in line

mod faults;
pub mod history;
pub mod ledger;
pub mod network;
pub mod table;
mod tasks;
pub mod workload;
pub mod world;

use crate::{Report, Violation};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Plays the run of one seed in this world.
///
/// After an assertion that failed the invariants are asked once more: what happened before it tells more than the
/// assertion.
pub fn run_seed(seed: u64) -> Result<Report, Violation> {
    let mut world = world::World::new(seed);
    // After a panic only the history is read, which is whole after every event.
    let run = catch_unwind(AssertUnwindSafe(|| world.run()));
    run.unwrap_or_else(|panic| {
        world.check()?;
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(Violation::new("assertion", seed, text))
    })
}
