//! Lets a node that has forgotten everything vote again.

use super::{Nodes, Quorum};

/// What a node says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It answered.
    Counter {
        /// Its counter.
        counter: u64,
        /// Whether it votes.
        joined: bool,
    },
    /// No answer in time.
    Silent,
}

/// Finds out with which counter a node may join. **Begun once the node has said that it is ripe; the others are asked
/// after that**: what they said before may be older than the last grant that rests on the node's forgotten vote.
///
/// Enough is [`Quorum::knowing`] others that vote. If so many do not exist (a new set, or a majority that lost its
/// memory) every node must be heard: then nothing that is remembered anywhere is passed over.
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
    /// Of this node.
    pub fn of(quorum: Quorum, newcomer: usize) -> Self {
        quorum.check(newcomer);
        Self { quorum, newcomer, heard: Nodes::only(newcomer), voting: Nodes::NONE, counter: 0, told: false }
    }

    /// Whom to ask.
    pub const fn others(&self) -> Nodes {
        self.quorum.all().without(Nodes::only(self.newcomer))
    }

    /// What another node said. Once enough is known, and only once: the counter to join with.
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
