//! Locks on several independent servers (nodes): a client holds the lock when a majority of the nodes granted it.
//!
//! This is Redlock with a fence. Each node keeps one key per held lock, with a time to live, and **one** counter for all its
//! locks. Everything here is pure. [`Node`] is the rules of a node, which the scripts restate. [`Votes`], [`Renewal`] and
//! [`Ending`] combine the answers at a client. [`Joining`] lets a node that has forgotten everything vote again.
//!
//!
//! # What has to be sent
//! A client sends a take to all nodes at once, with a [`HolderKey`] that it uses for **one** attempt and never again: a late
//! release of an earlier attempt must not hit a later one. `elapsed_us` counts from before the client sent the first of
//! these messages, by a clock that only runs forward.
//!
//! # Why no two holds overlap
//! A hold rests on a majority S1 of nodes that have its key. Each key lasts for the lease from when its node granted it, so
//! at least from when the client began. The client counts on less than the lease, by the possible difference of clocks
//! ([`validity_us`]). Any other majority S2 shares a node X with S1. X gives the lock to another holder key only when the
//! first key is gone: it ran out, which is after the validity, or its holder released it. A renewal is the same with a later
//! beginning. It counts only if a majority answers while the hold before it lasts, so that no other client can have had the
//! lock in between. A node that lost its memory does not vote for as long as the longest lease, so every lock that it
//! forgot is over by then. All of this needs clocks that run alike within 1 %. A node whose clock *jumps* breaks it, as in
//! every Redlock.
//!
//! # Why fences grow
//! Say that a node *covers* grant 1 of fence f1 when at one instant it had the key of grant 1 and a counter of f1 or
//! more. A client reports a grant only when a majority S1 covers it: because the node drew f1, or because the client wrote
//! f1 back there. A node accepts a fence that is written back only while it has the key of that very attempt. Grant 2 has a
//! majority S2, in which each node has drawn a number above its counter; f2 is the greatest of them. Let X be in both.
//! - If X drew for grant 2 after it covered grant 1, its number is above f1, and so is f2. **That is always so if attempt 2
//!   began after grant 1 was reported**, for all clocks (except in the one case at the end).
//! - Else X gave the key to grant 2, and had that of grant 1 later. In between the key of grant 2 went, because it ran out or
//!   was released. If clocks run alike then attempt 2 was over before grant 1 was reported. So fences grow in the order in
//!   which grants are reported. If X's clock jumped, both grants may be reported, in either order. Then two clients believe
//!   that they hold the lock, and the guarded store refuses the lower fence once it has seen the higher one. No protocol can
//!   do more: a grant that is under way, and a holder that was paused right after its grant, look alike from outside.
//! - No two grants have the same fence: X never draws a number twice.
//! - A grant of n passes has n fences, and the drawn number is the last of them: a node draws n above its counter. All of the
//!   above holds for that last fence. A later grant draws above it by its own number of passes, so no fence of one grant
//!   lies among those of another.
//!
//! # Why a lost counter does no harm
//! Server time at the birth of a node is only a good guess: servers whose clocks differ by an hour make fences that are an
//! hour ahead of it. So a node that lost its memory votes again only with the greatest counter of [`Quorum::knowing`] voting
//! nodes, which are asked after it was ripe. Let U be the voting nodes whose counter is below f1. When grant 1 is reported, U
//! and S1 have nothing in common, so U has n − majority nodes at most. A node enters U only by joining with too low a
//! counter. There are two ways to get one:
//! - All `knowing` = n − majority + 1 nodes that were asked were in U. They are too many for that.
//! - They were asked before grant 1 was reported. Then the joining node is not in S1: its vote from before it forgot would be
//!   older than the longest lease.
//!
//! So U stays outside S1 or does not grow, and S2 is never within U.
//!
//! This rests on the clock of the node that waits to vote, and on no other. The node may vote with too low a counter if its
//! clock jumps ahead by the rest of the wait while a grant that rests on its forgotten vote is under way.
//! a grant that rests on the node's forgotten vote is on its way, the node may vote with too low a counter.

mod ending;
mod joining;
mod node;
#[cfg(test)]
mod tests;
mod votes;

pub use ending::{Ended, Ending, EndingStep, Renewal, RenewalStep, Renewed};
pub use joining::{Joining, Known};
pub use node::{HolderKey, Node, NodeHold};
pub use votes::{Answer, Lost, Step, Votes, Written};

use crate::limits::{QUORUM_NODES_MAX, QUORUM_NODES_MIN};

/// Clocks of nodes and clients run alike within one part in so many.
const DRIFT_PART: u64 = 100;

// Each side counts time to live in whole ms.
const DRIFT_US: u64 = 2_000;

/// Returns what is left of a lease, in µs, when `elapsed_us` have passed since before the client asked for it: less 1 % of
/// the lease and 2 ms, by which clocks may differ. `None` if nothing is left.
pub fn validity_us(lease_ms: u32, elapsed_us: u64) -> Option<u64> {
    let lease_us = u64::from(lease_ms) * 1_000;
    let drift_us = if validity_without_drift() { 0 } else { lease_us / DRIFT_PART + DRIFT_US };
    match lease_us.checked_sub(drift_us.saturating_add(elapsed_us)) {
        None | Some(0) => None,
        left => left,
    }
}

/// The number of nodes, and of how many a majority consists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// Makes a quorum of `nodes`; `None` for fewer than [`QUORUM_NODES_MIN`] or more than [`QUORUM_NODES_MAX`]. An even number
    /// survives the loss of no more nodes than the odd number below it.
    pub const fn of(nodes: usize) -> Option<Self> {
        if nodes < QUORUM_NODES_MIN || QUORUM_NODES_MAX < nodes { None } else { Some(Self { nodes }) }
    }

    /// Returns the number of nodes.
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// Returns how many nodes decide: more than half, so that any two majorities share a node. Half of an even number is none.
    pub fn majority(self) -> usize {
        if majority_even_split() { self.nodes.div_ceil(2) } else { self.nodes / 2 + 1 }
    }

    /// Returns how many nodes share a node with every majority: one of them knows what a majority knew.
    pub fn knowing(self) -> usize {
        self.nodes - self.majority() + 1
    }

    /// Returns all nodes as a set.
    pub const fn all(self) -> Nodes {
        Nodes((1 << self.nodes) - 1)
    }

    // A node number outside the quorum is the caller's mistake, and would count as a vote.
    fn check(self, node: usize) {
        assert!(node < self.nodes, "node {node} of {}", self.nodes);
    }
}

/// A set of nodes, by their index.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Nodes(u16);

impl Nodes {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns whether the node is in the set.
    pub const fn has(self, node: usize) -> bool {
        self.0 >> node & 1 == 1
    }

    /// Returns the number of nodes in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the indices of the nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..QUORUM_NODES_MAX).filter(move |node| self.has(*node))
    }

    /// Returns the nodes that are in this set or in the other.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the nodes of this set that are not in the other.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Makes a set of one node.
    pub const fn only(node: usize) -> Self {
        Self(1 << node)
    }

    const fn put(&mut self, node: usize) {
        self.0 |= 1 << node;
    }

    const fn take_out(&mut self, node: usize) {
        self.0 &= !(1 << node);
    }
}

macro_rules! planted {
    ($($name:ident $bug:ident)*) => {
        $(
            #[cfg(feature = "planted-bugs")]
            fn $name() -> bool {
                crate::planted::is(crate::planted::Bug::$bug)
            }

            #[cfg(not(feature = "planted-bugs"))]
            const fn $name() -> bool {
                false
            }
        )*
    };
}

planted! {
    majority_even_split MajorityEvenSplit
    validity_without_drift ValidityWithoutDrift
    late_grant_not_undone LateGrantNotUndone
    fence_from_minority FenceFromMinority
}
