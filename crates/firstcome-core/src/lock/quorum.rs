//! Locks on several independent servers: the holder is the process that a majority has granted the lock.
//!
//! This is Redlock with a fence. Each node keeps one key per lock that is held, with a time to live, and **one** counter
//! for all its locks. Everything here is pure: [`Node`] is what a node does with a request (the scripts restate it),
//! [`Votes`], [`Renewal`] and [`Ending`] are what a client makes of the answers, [`Joining`] lets a node that has
//! forgotten everything vote again.
//!
//! # What has to be sent
//! A take goes to all nodes at once, with a word that is used for **one** attempt and never again: a release of an
//! earlier attempt that arrives late must not hit a later one. `elapsed_us` is measured from before the first of these
//! messages was sent, by a clock that only runs forward.
//!
//! # Why no two holds overlap
//! A hold rests on a majority S1 of keys, each of which lasts for the lease from when its node judged, so at least from
//! when the client began. The client counts on less than the lease, by what clocks may differ ([`validity_us`]). Any
//! other majority S2 has a node X with S1 in common, and X gives the lock to another word only when the key is gone: by
//! its time, which is after the validity, or by the release. A renewal is the same with a later beginning; it counts
//! only if it is decided while the hold before it lasts, so that no other process can have been there in between. A node that
//! has lost its memory does not vote for as long as the longest lease, so every lock that it has forgotten is over by then.
//! All that needs clocks that run alike within 1 %. A node whose clock *jumps* breaks it, as in every Redlock.
//!
//! # Why fences grow
//! Say that a node *covers* grant 1 of fence f1 when at one instant it had the key of grant 1 and a counter of f1 or
//! more. A grant is told only when a majority S1 covers it: because it drew f1, or because f1 was written back there.
//! A node writes a fence back only while it has the key of that very attempt. Grant 2 has a majority S2, in which each
//! node has drawn a number above its counter; f2 is the greatest of them. Let X be in both.
//! - If X drew for grant 2 after it covered grant 1, what it drew is above f1, and so is f2. **That is always so if
//!   attempt 2 began after grant 1 was told**, no matter what clocks do (except for the one case at the end).
//! - Else X gave the key to grant 2, and had that of grant 1 later. In between the key of grant 2 went, by its time or a
//!   release. If clocks run alike then attempt 2 was over before grant 1 was told. So fences grow in the order in which
//!   grants are told. If X's clock jumped both may be told, in either order: then two believe that they hold the lock, and
//!   what it guards refuses the lower fence once it has seen the higher one. No protocol can do more: a grant that
//!   is on its way, and a holder that was paused right after it was told, look alike from outside.
//! - No two grants have the same fence: X never draws a number twice.
//! - A grant of n passes has n fences, the last of which is drawn: a node draws n above its counter. All of the above holds for
//!   that last one, and a process that draws later draws above it by as many as he has passes, so no fence of one grant lies among
//!   those of another.
//!
//! # Why a counter that was lost does no harm
//! Server time at the birth of a node is no more than a good guess: servers whose clocks differ by an hour make fences
//! that are an hour ahead of it. So a node that lost its memory votes again only once it was told the greatest counter of
//! [`Quorum::knowing`] nodes that have not, asked after it was ripe. Let U be the voting nodes whose counter is below
//! f1. When grant 1 is told U and S1 have nothing in common, so U is n − majority nodes at most. A node comes to U only by
//! joining with too low a counter, that is, when `knowing` = n − majority + 1 nodes were asked that are all in U,
//! which are too many; or when they were asked before grant 1 was told, and then it is not in S1: its vote from before
//! it forgot would be older than the longest lease. So U stays outside S1 or is not added to, and S2 is never within U.
//!
//! This rests on the clock of a node that waits to vote, and on no other. If it jumps ahead by what is left of the wait, while
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

/// Time to live is counted in whole ms on each side.
const DRIFT_US: u64 = 2_000;

/// What is left of a lease of which `elapsed_us` have passed since before it was asked for, in µs: less 1 % of the
/// lease and 2 ms, by which clocks may differ. `None` if nothing is left.
pub fn validity_us(lease_ms: u32, elapsed_us: u64) -> Option<u64> {
    let lease_us = u64::from(lease_ms) * 1_000;
    let drift_us = if validity_without_drift() { 0 } else { lease_us / DRIFT_PART + DRIFT_US };
    match lease_us.checked_sub(drift_us.saturating_add(elapsed_us)) {
        None | Some(0) => None,
        left => left,
    }
}

/// How many nodes there are, and how many of them decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// Of so many nodes; `None` for fewer than [`QUORUM_NODES_MIN`] or more than [`QUORUM_NODES_MAX`]. An even number
    /// survives the loss of no more nodes than one less does.
    pub const fn of(nodes: usize) -> Option<Self> {
        if nodes < QUORUM_NODES_MIN || QUORUM_NODES_MAX < nodes { None } else { Some(Self { nodes }) }
    }

    /// All of them.
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// So many decide: more than half, so that any two such sets meet. Two halves of an even number are none.
    pub fn majority(self) -> usize {
        if majority_even_split() { self.nodes.div_ceil(2) } else { self.nodes / 2 + 1 }
    }

    /// So many meet every majority: of them one knows what a majority knew.
    pub fn knowing(self) -> usize {
        self.nodes - self.majority() + 1
    }

    /// All nodes as a set.
    pub const fn all(self) -> Nodes {
        Nodes((1 << self.nodes) - 1)
    }

    /// A number that stands for no node is a mistake of the caller, and would count as a vote.
    fn check(self, node: usize) {
        assert!(node < self.nodes, "node {node} of {}", self.nodes);
    }
}

/// A set of nodes, by their index.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Nodes(u16);

impl Nodes {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether it is one of them.
    pub const fn has(self, node: usize) -> bool {
        self.0 >> node & 1 == 1
    }

    /// How many.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their indices, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..QUORUM_NODES_MAX).filter(move |node| self.has(*node))
    }

    /// Those of this set and of another.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those of this set that are not in another.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// This one alone.
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
