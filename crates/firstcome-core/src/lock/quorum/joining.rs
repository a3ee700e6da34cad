//! Lets a node that has forgotten everything vote again.

use super::{Nodes, Quorum};

/// What a node reports about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// The node answered.
    Counter {
        /// Its counter.
        counter: u64,
        /// Whether it votes.
        joined: bool,
    },
    /// No answer in time.
    Silent,
}

/// Finds the counter with which a node may join. **Begin it once the node has said that it is ripe, and ask the other nodes
/// after that**: an earlier answer may be older than the last grant that rests on the node's forgotten vote.
///
/// The answers of [`Quorum::knowing`] other voting nodes are enough. If so many do not exist (a new quorum, or a majority
/// that lost its memory), every node must answer: then no counter that any node remembers is missed.
#[derive(Clone, Debug)]
pub struct Joining {
    quorum: Quorum,
    newcomer: usize,
    heard: Nodes,
    voting: Nodes,
    counter: u64,
    told: bool,
}

impl Joining {
    /// Begins the joining of this node.
    pub fn of(quorum: Quorum, newcomer: usize) -> Self {
        quorum.check(newcomer);
        Self { quorum, newcomer, heard: Nodes::only(newcomer), voting: Nodes::NONE, counter: 0, told: false }
    }

    /// Returns the nodes to ask.
    pub const fn others(&self) -> Nodes {
        self.quorum.all().without(Nodes::only(self.newcomer))
    }

    /// Handles another node's answer. Returns the counter to join with, once, when enough nodes have answered.
    pub fn on_reply(&mut self, node: usize, known: Known) -> Option<u64> {
        self.quorum.check(node);
        let Known::Counter { counter, joined } = known else { return None };
        if self.heard.has(node) || self.told {
            return None;
        }
        self.heard.put(node);
        self.counter = self.counter.max(counter);
        if joined {
            self.voting.put(node);
        }
        self.told = self.quorum.knowing() <= self.voting.len() || self.heard == self.quorum.all();
        self.told.then_some(self.counter)
    }
}
