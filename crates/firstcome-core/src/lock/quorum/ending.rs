//! Combines the answers to a renewal and to a release.

use super::{Nodes, Quorum, validity_us};

/// A node's answer to a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewed {
    /// It has the key for the lease from now on, perhaps created again.
    Yes,
    /// Another holder key has the lock there.
    Other,
    /// No answer in time. A real answer may follow.
    Silent,
}

/// What the client does after an answer to a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum RenewalStep {
    /// Nothing.
    Wait,
    /// The hold goes on. Returned once.
    Renewed {
        /// How long it lasts from now on, in µs: no shorter than before.
        left_us: u64,
    },
    /// This renewal failed, and the hold ends when it would have ended without it. Try again until then.
    Failed,
    /// The hold is over: other clients have the lock on too many nodes, or it ended before a majority agreed. Close its votes,
    /// and release it.
    Lost,
    /// The client released the lock in the meantime, and this node has created its key again: release it there.
    Undo,
}

/// One renewal. Keep it, like [`super::Votes`], until every node has answered, and [`Renewal::close`] it when the lock is
/// released.
#[derive(Clone, Debug)]
pub struct Renewal {
    quorum: Quorum,
    lease_ms: u32,
    /// What was left of the hold when the renewal began.
    left_us: u64,
    yes: Nodes,
    other: Nodes,
    silent: Nodes,
    decided: bool,
    closed: bool,
}

impl Renewal {
    /// Begins a renewal of a hold of which `left_us` are left now. `None` if nothing is left: another client may have had the
    /// lock since, with a higher fence.
    pub const fn new(quorum: Quorum, lease_ms: u32, left_us: u64) -> Option<Self> {
        if left_us == 0 {
            return None;
        }
        let (yes, other, silent) = (Nodes::NONE, Nodes::NONE, Nodes::NONE);
        Some(Self { quorum, lease_ms, left_us, yes, other, silent, decided: false, closed: false })
    }

    /// Handles a node's answer, `elapsed_us` after the renewal began.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn on_reply(&mut self, node: usize, renewed: Renewed, elapsed_us: u64) -> RenewalStep {
        self.quorum.check(node);
        if self.closed {
            return if renewed == Renewed::Yes { RenewalStep::Undo } else { RenewalStep::Wait };
        }
        if self.decided || self.yes.has(node) || self.other.has(node) {
            return RenewalStep::Wait;
        }
        self.silent.take_out(node);
        match renewed {
            Renewed::Yes => self.yes.put(node),
            Renewed::Other => self.other.put(node),
            Renewed::Silent => self.silent.put(node),
        }
        let step = self.decide(elapsed_us);
        self.decided = step != RenewalStep::Wait;
        step
    }

    /// Ends the renewal when the lock is released: a node that answers [`Renewed::Yes`] from now on needs another release.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    fn decide(&self, elapsed_us: u64) -> RenewalStep {
        let rest_us = self.left_us.saturating_sub(elapsed_us);
        if rest_us == 0 {
            return RenewalStep::Lost;
        }
        if self.quorum.majority() <= self.yes.len() {
            let left_us = validity_us(self.lease_ms, elapsed_us).map_or(rest_us, |left_us| left_us.max(rest_us));
            return RenewalStep::Renewed { left_us };
        }
        if self.quorum.nodes() - self.other.len() < self.quorum.majority() {
            return RenewalStep::Lost;
        }
        let may_come = self.quorum.all().without(self.other).without(self.silent).len();
        if may_come < self.quorum.majority() { RenewalStep::Failed } else { RenewalStep::Wait }
    }
}

/// A node's answer to a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The key was there, and is gone.
    Released,
    /// The key was not there.
    Absent,
    /// No answer in time. A real answer may follow.
    Silent,
}

/// What the client does after an answer to a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum EndingStep {
    /// Nothing.
    Wait,
    /// A majority does not have the key any more, so other clients may take the lock. Returned once.
    Gone,
    /// Too few nodes have answered. The lock ends with its lease at the latest, unless these nodes are asked again. Returned
    /// once.
    Unsure {
        /// The nodes that have not answered.
        again: Nodes,
    },
}

/// One release of a lock on a quorum.
#[derive(Clone, Debug)]
pub struct Ending {
    quorum: Quorum,
    gone: Nodes,
    silent: Nodes,
    decided: bool,
}

impl Ending {
    /// Begins a release on all nodes.
    pub const fn new(quorum: Quorum) -> Self {
        Self { quorum, gone: Nodes::NONE, silent: Nodes::NONE, decided: false }
    }

    /// Handles a node's answer.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn on_reply(&mut self, node: usize, ended: Ended) -> EndingStep {
        self.quorum.check(node);
        if self.decided || self.gone.has(node) {
            return EndingStep::Wait;
        }
        self.silent.take_out(node);
        let heard = if ended == Ended::Silent { &mut self.silent } else { &mut self.gone };
        heard.put(node);
        let step = if self.quorum.majority() <= self.gone.len() {
            EndingStep::Gone
        } else if self.quorum.nodes() - self.silent.len() < self.quorum.majority() {
            EndingStep::Unsure { again: self.silent }
        } else {
            EndingStep::Wait
        };
        self.decided = step != EndingStep::Wait;
        step
    }
}
