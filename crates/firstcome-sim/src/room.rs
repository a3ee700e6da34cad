//! The world of waiting rooms: as the world of coupons, with clients that wait, go silent, come back and leave.
//!
//! - [`workload`] what clients do; [`journal`] the disk; [`world`] one run; [`recovery`] a start from what survived
//! - [`history`] what clients asked and were told; [`ledger`] what the disk says happened, ticket by ticket

pub mod history;
pub mod journal;
pub mod ledger;
pub mod recovery;
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
