//! What callers were told in the world of a cluster, and what happened to the servers.

use super::redis::SimSequencer;
use super::sql::{NodeCouponRow, Sql, User};
use std::collections::{BTreeMap, BTreeSet};

/// A node may answer early for so many steps after Redis became unfit: it asks once in this time whether it is.
pub const CHECK_EVERY: u64 = 200;

/// What a caller was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterReply {
    /// The claim is stored, with this serial.
    Issued(u32),
    /// The claim has a place, and will be stored.
    Placed,
    /// All are issued.
    SoldOut,
    /// Nothing was done.
    Unavailable,
    /// Nothing was done, and nothing will be before the operator has decided: the database went back.
    WentBack,
    /// It may or may not have been done.
    Unknown,
}

/// One claim that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Who asked.
    pub user: User,
    /// Which call.
    pub tag: u64,
    /// At which step.
    pub at: u64,
    /// What.
    pub told: ClusterReply,
}

/// One transaction that wrote claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Which node wrote.
    pub node: usize,
    /// The coupon just before it.
    pub before: NodeCouponRow,
    /// The most that the database had answered this node, if it runs since then.
    pub acknowledged: Option<NodeCouponRow>,
    /// Which sequencer there was, and how far it had heard the database to be.
    pub sequencer: Option<(i64, u64)>,
}

/// What invariants read.
#[derive(Default, Debug)]
pub struct History {
    /// The step that is now.
    pub now: u64,
    /// Every answer, in order.
    pub answers: Vec<Answer>,
    /// Every transaction that wrote claims.
    pub writes: Vec<Write>,
    /// Calls whose claims were stored and are gone, since the operator put an older state of the database back.
    pub taken_back: BTreeSet<u64>,
    /// Calls whose tickets Redis lost by the operator's doing.
    pub forgotten: BTreeSet<u64>,
    /// Calls whose tickets were lost by a crash of Redis, and at which step it had become unfit.
    pub crashed: BTreeMap<u64, u64>,
    /// When the operator last accepted a loss.
    pub accepted_at: Option<u64>,
    /// The last time that Redis became unfit.
    pub unfit_since: u64,
    /// Whether any loss of the database happened.
    pub went_back: bool,
}

impl History {
    /// Notes which tickets a server no longer has.
    pub fn lost(before: Option<&SimSequencer>, after: Option<&SimSequencer>) -> impl Iterator<Item = u64> {
        let kept: BTreeSet<u64> = after.into_iter().flat_map(SimSequencer::tags).collect();
        before.into_iter().flat_map(SimSequencer::tags).filter(move |tag| !kept.contains(tag))
    }

    /// Notes which claims a database no longer has.
    pub fn restored(&mut self, before: &Sql, after: &Sql) {
        let kept: BTreeSet<u64> = after.claims.values().map(|claim| claim.tag).collect();
        let gone = before.claims.values().map(|claim| claim.tag).filter(|tag| !kept.contains(tag));
        self.taken_back.extend(gone);
        self.went_back |= after.row.position < before.row.position || after.row.generation < before.row.generation;
    }
}
