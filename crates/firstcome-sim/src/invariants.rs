//! What must hold, one file each. `docs/guarantees.md` says what they mean for users.
//!
//! | file | invariant |
//! |---|---|
//! | [`fenced_exclusion`] | 1: mutual exclusion under fencing |
//! | [`fences_grow`] | 2: fences strictly increase per lock |
//! | [`fifo_grants`] | 3: grants follow arrival |
//! | [`no_lost_wake_up`] | 4: a free lock with a living waiter is granted, and the waiter learns of it |
//! | [`hold_deadline`] | 1, from the holder's side: its deadline is never after the store's |
//! | [`lock_replies`] | every request of a lock gets one final reply, which is true; nothing is left behind |
//! | [`no_oversell`] | 5: no oversell, no undersell |
//! | [`one_each`] | 6: one each |
//! | [`gapless_in_order`] | 7: serials without gaps, in the order in which claims were accepted |
//! | [`acknowledged_stays`] | 8: what was acknowledged is never lost, a refusal never contradicted |
//! | [`acknowledged_rooms`] | 8, for rooms |
//! | [`acknowledged_auctions`] | 8, for bids, sales and points |
//! | [`acknowledged_nodes`] | 8, for claims over a cluster |
//! | [`loss_is_noticed`] | 8, of a database that goes back: nothing is handed out before the operator decides |
//! | [`one_place`] | 9: a ticket is waiting, active, or gone, exactly one of them |
//! | [`admission_pace`] | 10: admissions within rate and cap, present people only, the lowest number first |
//! | [`places_drawn`] | 10, of draws: a draw is the one that was committed to, fair, and before any admission |
//! | [`position_falls`] | 11: a shown position never rises |
//! | [`points_conserved`] | 12: points conserved, never negative |
//! | [`holds_end_once`] | 13, of holds: each is released or captured exactly once |
//! | [`one_sale`] | 13, of sales: one winner, one sale |
//!
//! Each judges the [`Evidence`] of a primitive, the [`LockEvidence`] or the [`NodesEvidence`]: what clients were told, and
//! what is on disk after a crash or was written into a table. None of them looks into the store. Each has a test with a history that it must reject.

pub mod acknowledged_auctions;
pub mod acknowledged_nodes;
pub mod acknowledged_rooms;
pub mod acknowledged_stays;
pub mod admission_pace;
#[cfg(test)]
mod auction_story;
pub mod fenced_exclusion;
pub mod fences_grow;
pub mod fifo_grants;
pub mod gapless_in_order;
pub mod hold_deadline;
pub mod holds_end_once;
pub mod lock_replies;
#[cfg(test)]
mod lock_story;
pub mod loss_is_noticed;
pub mod no_lost_wake_up;
pub mod no_oversell;
pub mod one_each;
pub mod one_place;
pub mod one_sale;
pub mod places_drawn;
pub mod points_conserved;
pub mod position_falls;
#[cfg(test)]
mod room_story;
#[cfg(test)]
mod story;

use crate::auction::ledger::Ledger as AuctionLedger;
use crate::auction::workload::Auctions;
use crate::cluster::history::History as NodesHistory;
use crate::cluster::sql::Sql;
use crate::coupon::workload::Coupons;
use crate::history::History;
use crate::journal::Commit;
use crate::lock::history::History as LockHistory;
use crate::lock::ledger::Ledger as LockLedger;
use crate::primitive::Primitive;
use crate::room::ledger::Ledger;
use crate::room::workload::Rooms;
use firstcome_core::time::Timestamp;
#[cfg(test)]
use firstcome_core::time::{Now, Steady};
use std::fmt;

/// What an invariant of a primitive is judged by.
pub struct Evidence<'a, P: Primitive> {
    /// Which run.
    pub seed: u64,
    /// What clients asked and were told.
    pub history: &'a History<P>,
    /// What is on disk. No process runs on it at this moment.
    pub stored: &'a P::Stored,
    /// Every commit that is on disk, in order.
    pub log: &'a [Commit],
    /// Set once faults have ended and clients have repeated what was unclear: from then on exactness is demanded.
    pub healed_at: Option<Timestamp>,
}

/// What an invariant of coupons is judged by.
pub type CouponEvidence<'a> = Evidence<'a, Coupons>;

/// What an invariant of rooms is judged by.
pub type RoomEvidence<'a> = Evidence<'a, Rooms>;

/// What an invariant of auctions is judged by.
pub type AuctionEvidence<'a> = Evidence<'a, Auctions>;

/// What an invariant of locks is judged by.
pub struct LockEvidence<'a> {
    /// Which run.
    pub seed: u64,
    /// What processes asked for, were told and did, and what the store wrote down.
    pub history: &'a LockHistory,
    /// The same log, read hold by hold.
    pub ledger: &'a LockLedger,
}

/// What an invariant of a cluster is judged by.
pub struct NodesEvidence<'a> {
    /// Which run.
    pub seed: u64,
    /// What callers were told, and what happened to the servers.
    pub history: &'a NodesHistory,
    /// What the database holds once everything has come to rest; `None` before.
    pub stored: Option<&'a Sql>,
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

/// Judges all of coupons. The order decides only which one gives its name to a bug that breaks several.
pub fn check_coupons(evidence: &CouponEvidence<'_>) -> Result<(), Violation> {
    gapless_in_order::check(evidence)?;
    one_each::check(evidence)?;
    acknowledged_stays::check(evidence)?;
    no_oversell::check(evidence)
}

/// Judges all of rooms, with one reading of the log.
pub fn check_rooms(evidence: &RoomEvidence<'_>) -> Result<(), Violation> {
    let ledger = Ledger::read(evidence.log);
    one_place::check(evidence, &ledger)?;
    acknowledged_rooms::check(evidence, &ledger)?;
    places_drawn::check(evidence, &ledger)?;
    admission_pace::check(evidence, &ledger)?;
    position_falls::check(evidence, &ledger)
}

/// Judges all of locks.
pub fn check_locks(evidence: &LockEvidence<'_>) -> Result<(), Violation> {
    fences_grow::check(evidence)?;
    hold_deadline::check(evidence)?;
    fenced_exclusion::check(evidence)?;
    fifo_grants::check(evidence)?;
    lock_replies::check(evidence)?;
    no_lost_wake_up::check(evidence)
}

/// Judges all of a cluster.
pub fn check_nodes(evidence: &NodesEvidence<'_>) -> Result<(), Violation> {
    loss_is_noticed::check(evidence)?;
    acknowledged_nodes::check(evidence)
}

/// Judges all of auctions, with one reading of the log. A sale that is made twice also ends its hold twice, so sales
/// come first.
pub fn check_auctions(evidence: &AuctionEvidence<'_>) -> Result<(), Violation> {
    let ledger = AuctionLedger::read(evidence.log);
    points_conserved::check(evidence)?;
    one_sale::check(evidence, &ledger)?;
    holds_end_once::check(evidence, &ledger)?;
    acknowledged_auctions::check(evidence, &ledger)
}

/// Both clocks of a story in which no operator sets the wall clock.
#[cfg(test)]
const fn both(wall: Timestamp) -> Now {
    Now { wall, steady: Steady::from_us(wall.as_us()) }
}

#[cfg(test)]
#[track_caller]
fn assert_found(judged: Result<(), Violation>, detail: &str) {
    match judged {
        Ok(()) => panic!("nothing was found, wanted: {detail}"),
        Err(violation) => assert!(violation.detail.contains(detail), "found another thing: {violation}"),
    }
}
