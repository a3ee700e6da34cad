//! What a primitive brings into its world. [`crate::world`] does the rest.

use crate::history::{Operation, Request};
use crate::invariants::{Evidence, Violation};
use crate::journal::{Call, Tables};
use crate::report::Report;
use crate::rng::Rng;
use crate::workload::{Plan, Workload};
use crate::world::World;
use firstcome_core::id::RoomName;
use firstcome_core::time::Now;
use firstcome_store::edge::ManualClock;
use firstcome_store::embedded::{Backing, Embedded};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The invariant that is broken, and how.
pub type Breach = (&'static str, String);

/// A kind of thing that the embedded store keeps, as one world plays it.
pub trait Primitive: Workload {
    /// What the disk keeps.
    type Stored: Tables;

    /// The word under which the report counts faults.
    const FAULT: &'static str;
    /// The word under which the report counts commits.
    const COMMIT: &'static str;
    /// How many clients come in the middle of one commit at most.
    const VISITORS_MAX: u64;
    /// How long an action takes at least, in µs.
    const ACTION_US: i64 = 0;
    /// Whether a commit takes several writes: the process may die between two of them, and a client may come after the
    /// last one and before the store knows of it.
    const WRITES_IN_STEPS: bool = false;
    /// Whether the invariants judge a run whose assertion has failed. They cannot where they read rows, which the panic
    /// may have left half changed.
    const JUDGED_AFTER_PANIC: bool = true;

    /// Makes one request to the store, as a client of its port does. A read of rows goes to a thread of its own; the
    /// world stands still in `runtime` until it is back.
    fn call(store: &Embedded, runtime: &Arc<Runtime>, request: Request<Self>) -> Call<Self>;

    /// Reads back what is stored, as a start of the store in a file does, and checks that it is what was stored.
    fn recover(stored: &Self::Stored, clock: &ManualClock) -> Result<Backing, Breach>;

    /// Checks that a store that has just started shows what is stored.
    fn check_started(_store: &Embedded, _stored: &Self::Stored) -> Result<(), Breach> {
        Ok(())
    }

    /// Asks all invariants of this primitive.
    fn check(evidence: &Evidence<'_, Self>) -> Result<(), Violation>;

    /// How many claims of a coupon are durable.
    fn durable(_stored: &Self::Stored, _name: &Self::Name) -> u32 {
        0
    }

    /// Adds to the trace what distinguishes an operation that has ended.
    fn trace(operation: &Operation<Self>, now: Now, report: &mut Report);

    /// Plays an action of this primitive only.
    fn act(world: &mut World<Self>, action: Self::Action) -> Result<(), Violation>;

    /// Plays what follows when time has passed.
    fn waited(_world: &mut World<Self>) -> Result<(), Violation> {
        Ok(())
    }

    /// Plays what follows when the store has read rooms again after a commit that was refused.
    fn read_again(_world: &mut World<Self>, _rooms: BTreeSet<RoomName>) {}

    /// Draws how many commands a batch has after the heal.
    fn healed_batch(plan: &Plan<Self::Action>, _rng: &mut Rng) -> u64 {
        plan.batch_max
    }

    /// Plays the end of a run. Faults are over; what clients wait for must come.
    fn heal(world: &mut World<Self>) -> Result<(), Violation>;
}
