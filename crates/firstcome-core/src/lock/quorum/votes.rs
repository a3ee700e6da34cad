//! Combines the answers to one attempt.

use super::super::Fence;
use super::{Nodes, Quorum, fence_from_minority, late_grant_not_undone, validity_us};
use crate::limits::QUORUM_NODES_MAX;

/// What a node answers to a take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It gave the lock, and drew this.
    Granted(Fence),
    /// Another word has it.
    Held {
        /// For so long, unless that is renewed or released.
        lasts_us: u64,
    },
    /// It lost its memory, or is new, and does not vote.
    Young {
        /// Since when, by its own time.
        birth_us: u64,
        /// Whether it may join: [`super::Joining`].
        ripe: bool,
    },
    /// Surely nothing was done.
    Refused,
    /// No answer in time, or one that cannot be read: it may have been granted. A real answer may follow.
    Silent,
}

/// What a node answers to a fence that is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// Its counter is that high now, and this attempt has the key.
    Yes,
    /// This attempt has the key no more; nothing was written.
    Gone,
    /// No answer in time. A real one may follow.
    Silent,
}

/// Why an attempt was in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Others have it.
    Held {
        /// After so long enough of their keys will have run out, unless they are renewed.
        lasts_us: u64,
    },
    /// Too many nodes cannot vote.
    Unavailable {
        /// These have forgotten, or are new.
        young: Nodes,
        /// These have not answered.
        silent: Nodes,
    },
    /// Nothing is left of the lease.
    TooLate,
}

/// What to do after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// Nothing.
    Wait,
    /// Write this back to these nodes, and tell [`Votes::written`] what they say. The lock is **not** had yet.
    WriteBack {
        /// What their counters must reach.
        fence: Fence,
        /// Where.
        nodes: Nodes,
    },
    /// The lock is had. Said once.
    Granted {
        /// The fence of this grant.
        fence: Fence,
        /// For so long from now.
        left_us: u64,
    },
    /// The lock is not had, and never will be by this attempt. Said once.
    Lost {
        /// Why.
        why: Lost,
        /// Release it on these.
        undo: Nodes,
    },
    /// A grant that came too late: release it on the node that said so, also if that was done before.
    Undo,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// For a majority.
    Asking,
    /// A majority gave the lock; too few of them have a counter that is high enough.
    Writing(Fence),
    Granted,
    /// Lost, given up or released.
    Closed,
}

/// One attempt at a lock. Keep it until every node has answered or the lease is over: it says of each late answer
/// whether it has to be undone. After a grant [`Votes::close`] it when the lock is released.
///
/// The first real answer of a node counts, a second one does not. A node that was silent may still answer.
#[derive(Clone, Debug)]
pub struct Votes {
    quorum: Quorum,
    lease_ms: u32,
    state: State,
    /// Gave the lock, and what they drew.
    yes: Nodes,
    drawn: [u64; QUORUM_NODES_MAX],
    /// Have nothing of this attempt.
    no: Nodes,
    /// Said no first, and yes later: a copy of the take came there a second time.
    stray: Nodes,
    held: Nodes,
    lasts_us: [u64; QUORUM_NODES_MAX],
    young: Nodes,
    silent: Nodes,
    /// Cover the fence.
    covered: Nodes,
    /// Were asked to, and have not answered.
    asked: Nodes,
}

impl Votes {
    /// An attempt that wants the lock for so long.
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

    /// What a node said to the take, so long after the attempt began.
    ///
    /// # Panics
    /// If there is no such node.
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

    /// What a node said to the fence that was written back.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn written(&mut self, node: usize, written: Written, elapsed_us: u64) -> Step {
        self.quorum.check(node);
        let State::Writing(fence) = self.state else { return Step::Wait };
        self.asked.take_out(node);
        if written == Written::Yes && self.yes.has(node) {
            self.covered.put(node);
        }
        self.settle(fence, elapsed_us, Nodes::NONE)
    }

    /// Ends the attempt: it is given up, or the lock that it got is released. Release it on these nodes; a process that is heard
    /// to have granted it after that has to be told again, which [`Votes::on_reply`] says.
    pub fn close(&mut self) -> Nodes {
        // A renewal may have given it to those who had refused it.
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

    /// Those who may yet say yes, and are waited for.
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

    /// An answer to the take that came while the fence was being written back.
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

    /// Granted once a majority covers the fence. Until then it is written to `ask`.
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

    /// Held, if a majority would come together once enough keys of others are gone.
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
