//! The database of the world: the row of one coupon, and its claims. A transaction is one step.

use super::redis::Entry;
use std::collections::BTreeMap;

/// One person.
pub type User = u32;

/// The row of the coupon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCouponRow {
    /// Claims that there are.
    pub issued: u32,
    /// Of the sequencer whose stream counts.
    pub generation: i64,
    /// The last ticket of it that is written down, or was passed over.
    pub position: u64,
    /// Names the entry with that ticket.
    pub anchor: i64,
    /// The generation that began when the operator accepted a loss.
    pub loss_accepted: i64,
}

/// One claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeClaimRow {
    /// Its number.
    pub serial: u32,
    /// Which call made it.
    pub tag: u64,
    /// When.
    pub at: u64,
}

/// The database.
#[derive(Clone, Debug)]
pub struct Sql {
    /// The coupon.
    pub row: NodeCouponRow,
    /// Its claims, by user.
    pub claims: BTreeMap<User, NodeClaimRow>,
    limit: u32,
}

impl Sql {
    /// A database with one coupon of this limit.
    pub const fn new(limit: u32) -> Self {
        let row = NodeCouponRow { issued: 0, generation: 0, position: 0, anchor: 0, loss_accepted: 0 };
        Self { row, claims: BTreeMap::new(), limit }
    }

    /// How many claims there may be.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Writes entries that follow the position, if the coupon is as it was read. `Err` has the coupon as it is.
    pub fn write(&mut self, thought: NodeCouponRow, entries: &[Entry]) -> Result<NodeCouponRow, NodeCouponRow> {
        let order = |row: NodeCouponRow| (row.generation, row.position, row.anchor);
        if order(thought) != order(self.row) {
            return Err(self.row);
        }
        for entry in entries {
            if self.row.issued < self.limit && !self.claims.contains_key(&entry.user) {
                self.row.issued += 1;
                let claim = NodeClaimRow { serial: self.row.issued, tag: entry.tag, at: entry.at };
                self.claims.insert(entry.user, claim);
            }
            (self.row.position, self.row.anchor) = (entry.ticket, entry.digest());
        }
        Ok(self.row)
    }

    /// Begins the next generation, if this one still counts.
    pub const fn next_generation(&mut self, before: i64) -> Option<NodeCouponRow> {
        if self.row.generation != before {
            return None;
        }
        self.row.generation += 1;
        self.row.anchor = -self.row.generation;
        Some(self.row)
    }

    /// Goes on without what is gone, under a generation above all that are known.
    pub fn accept_loss(&mut self, known: i64) {
        self.row.generation = self.row.generation.max(known) + 1;
        self.row.anchor = -self.row.generation;
        self.row.loss_accepted = self.row.generation;
    }
}
