//! Combines the answers of the nodes to one attempt.

use super::super::Fence;
use super::{Nodes, Quorum, fence_from_minority, late_grant_not_undone, validity_us};
use crate::limits::QUORUM_NODES_MAX;

/// A node's answer to a take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The node granted the lock, and drew this fence.
    Granted(Fence),
    /// Another holder key has the lock.
    Held {
        /// For how long, unless its holder renews or releases it.
        lasts_us: u64,
    },
    /// The node lost its memory, or is new, and does not vote.
    Young {
        /// Its birth, by its own clock.
        birth_us: u64,
        /// Whether it has waited long enough to join: see [`super::Joining`].
        ripe: bool,
    },
    /// The node refused; it certainly did nothing.
    Refused,
    /// No readable answer in time: the node may have granted the lock. A real answer may follow.
    Silent,
}

/// A node's answer to a fence that is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// Its counter is at least the fence now, and it has the key of this attempt.
    Yes,
    /// It has no key of this attempt any more, and wrote nothing.
    Gone,
    /// No answer in time. A real answer may follow.
    Silent,
}

/// Why an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Other clients have the lock.
    Held {
        /// After this time enough of their keys have run out, unless they are renewed.
        lasts_us: u64,
    },
    /// Too many nodes cannot vote.
    Unavailable {
        /// Nodes that have forgotten, or are new.
        young: Nodes,
        /// Nodes that have not answered.
        silent: Nodes,
    },
    /// Nothing is left of the lease.
    TooLate,
}

/// What the client does after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// Nothing.
    Wait,
    /// Write this fence back to these nodes, and pass their answers to [`Votes::written`]. The lock is **not** granted yet.
    WriteBack {
        /// The value that their counters must reach.
        fence: Fence,
        /// The nodes to write to.
        nodes: Nodes,
    },
    /// The lock is granted. Returned once.
    Granted {
        /// The fence of this grant.
        fence: Fence,
        /// How long the hold lasts from now on, in µs.
        left_us: u64,
    },
    /// This attempt does not get the lock, now or later. Returned once.
    Lost {
        /// The reason.
        why: Lost,
        /// The nodes on which to release it.
        undo: Nodes,
    },
    /// The grant came too late: release it on this node, also if the client did that before.
    Undo,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// For a majority.
    Asking,
    /// A majority granted the lock, but too few of them have a counter that is high enough.
    Writing(Fence),
    Granted,
    /// Lost, given up or released.
    Closed,
}

/// One attempt at a lock. Keep it until every node has answered or the lease is over: it tells for each late answer whether
/// to undo it. After a grant, [`Votes::close`] it when the lock is released.
///
/// Only the first real answer of a node counts. A node that was silent may still answer.
#[derive(Clone, Debug)]
pub struct Votes {
    quorum: Quorum,
    lease_ms: u32,
    state: State,
    /// The nodes that granted the lock; `drawn` has their numbers.
    yes: Nodes,
    drawn: [u64; QUORUM_NODES_MAX],
    /// The nodes that have no key of this attempt.
    no: Nodes,
    /// The nodes that refused first and granted later: a copy of the take arrived there a second time.
    stray: Nodes,
    held: Nodes,
    lasts_us: [u64; QUORUM_NODES_MAX],
    young: Nodes,
    silent: Nodes,
    /// The nodes that cover the fence.
    covered: Nodes,
    /// The nodes that were asked to cover it, and have not answered.
    asked: Nodes,
}

impl Votes {
    /// Begins an attempt at a hold of this lease.
    pub const fn new(quorum: Quorum, lease_ms: u32) -> Self {
        Self {
            quorum,
            lease_ms,
            state: State::Asking,
            yes: Nodes::NONE,
            drawn: [0; QUORUM_NODES_MAX],
            no: Nodes::NONE,
            stray: Nodes::NONE,
            held: Nodes::NONE,
            lasts_us: [0; QUORUM_NODES_MAX],
            young: Nodes::NONE,
            silent: Nodes::NONE,
            covered: Nodes::NONE,
            asked: Nodes::NONE,
        }
    }

    /// Handles a node's answer to the take, `elapsed_us` after the attempt began.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn on_reply(&mut self, node: usize, answer: Answer, elapsed_us: u64) -> Step {
        self.quorum.check(node);
        if self.state == State::Closed {
            return if matches!(answer, Answer::Granted(_)) && !late_grant_not_undone() {
                Step::Undo
            } else {
                Step::Wait
            };
        }
        if self.no.has(node) && matches!(answer, Answer::Granted(_)) {
            self.stray.put(node);
        }
        if self.yes.has(node) || self.no.has(node) || self.silent.has(node) && answer == Answer::Silent {
            return Step::Wait;
        }
        self.note(node, answer);
        match self.state {
            State::Asking => self.count(elapsed_us),
            State::Writing(fence) => self.join_in(node, fence, elapsed_us),
            State::Granted | State::Closed => Step::Wait,
        }
    }

    /// Handles a node's answer to the fence that is written back.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn written(&mut self, node: usize, written: Written, elapsed_us: u64) -> Step {
        self.quorum.check(node);
        let State::Writing(fence) = self.state else { return Step::Wait };
        self.asked.take_out(node);
        if written == Written::Yes && self.yes.has(node) {
            self.covered.put(node);
        }
        self.settle(fence, elapsed_us, Nodes::NONE)
    }

    /// Ends the attempt: it is given up, or its lock is released. Returns the nodes on which to release it. A node whose grant
    /// is heard of later needs another release: [`Votes::on_reply`] returns [`Step::Undo`] for it.
    pub fn close(&mut self) -> Nodes {
        // A renewal may have created the key on nodes that had refused it.
        let spared = if self.state == State::Granted { Nodes::NONE } else { self.no.without(self.stray) };
        self.state = State::Closed;
        self.quorum.all().without(spared)
    }

    fn note(&mut self, node: usize, answer: Answer) {
        self.silent.take_out(node);
        match answer {
            Answer::Granted(value) => {
                self.yes.put(node);
                self.drawn[node] = value.get();
            }
            Answer::Held { lasts_us } => {
                self.no.put(node);
                self.held.put(node);
                self.lasts_us[node] = lasts_us;
            }
            Answer::Young { .. } => {
                self.no.put(node);
                self.young.put(node);
            }
            Answer::Refused => self.no.put(node),
            Answer::Silent => self.silent.put(node),
        }
    }

    /// Returns the nodes that may still grant, and that the attempt waits for.
    const fn open(&self) -> Nodes {
        self.quorum.all().without(self.yes).without(self.no).without(self.silent)
    }

    fn count(&mut self, elapsed_us: u64) -> Step {
        if validity_us(self.lease_ms, elapsed_us).is_none() {
            return self.lose(Lost::TooLate);
        }
        if self.yes.len() < self.quorum.majority() {
            let may_come = self.yes.len() + self.open().len();
            return if may_come < self.quorum.majority() { self.lose(self.why()) } else { Step::Wait };
        }
        let highest = self.yes.iter().map(|node| self.drawn[node]).max().expect("a majority is somebody");
        self.yes.iter().filter(|node| self.drawn[*node] == highest).for_each(|node| self.covered.put(node));
        let fence = Fence::drawn(highest);
        self.state = State::Writing(fence);
        self.asked = self.yes.without(self.covered);
        self.settle(fence, elapsed_us, self.asked)
    }

    /// Handles an answer to the take that arrives while the fence is being written back.
    fn join_in(&mut self, node: usize, fence: Fence, elapsed_us: u64) -> Step {
        let mut ask = Nodes::NONE;
        if self.yes.has(node) {
            if fence.get() <= self.drawn[node] {
                self.covered.put(node);
            } else {
                ask.put(node);
                self.asked.put(node);
            }
        }
        self.settle(fence, elapsed_us, ask)
    }

    /// Grants the lock once a majority covers the fence. Until then the client writes the fence to `ask`.
    fn settle(&mut self, fence: Fence, elapsed_us: u64, ask: Nodes) -> Step {
        let Some(left_us) = validity_us(self.lease_ms, elapsed_us) else { return self.lose(Lost::TooLate) };
        let needed = if fence_from_minority() { 1 } else { self.quorum.majority() };
        if needed <= self.covered.len() {
            self.state = State::Granted;
            return Step::Granted { fence, left_us };
        }
        if self.covered.len() + self.asked.len() + self.open().len() < needed {
            let silent = self.quorum.all().without(self.covered).without(self.no);
            return self.lose(Lost::Unavailable { young: self.young, silent });
        }
        if ask.is_empty() { Step::Wait } else { Step::WriteBack { fence, nodes: ask } }
    }

    fn lose(&mut self, why: Lost) -> Step {
        Step::Lost { why, undo: self.close() }
    }

    /// Returns [`Lost::Held`] if a majority would come together once enough keys of other clients run out.
    fn why(&self) -> Lost {
        let missing = self.quorum.majority() - (self.yes.len() + self.open().len());
        let mut lasts_us: Vec<u64> = self.held.iter().map(|node| self.lasts_us[node]).collect();
        lasts_us.sort_unstable();
        match lasts_us.get(missing - 1) {
            Some(lasts_us) => Lost::Held { lasts_us: *lasts_us },
            None => Lost::Unavailable { young: self.young, silent: self.silent },
        }
    }
}
