//! The rules of one node of a quorum. The scripts of a store restate them.
//!
//! A step is atomic on its node. `now_us` is the node's own time, which all its keys live by.

use super::super::Fence;
use super::{Answer, Known, Renewed, Written};
use std::num::NonZeroU32;

/// What only the holder knows: one per attempt, never used again.
pub type HolderKey = u128;

/// Who has a lock on a node. Gone from `ends_us` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeHold {
    /// Whose attempt.
    pub word: HolderKey,
    /// What was drawn for it here, or the fence it was repaired with.
    pub value: Fence,
    /// Until when, by the node's time.
    pub ends_us: u64,
}

/// What a node knows beside its keys. A new one, and one that has lost its memory, is [`Node::default`]; one that was
/// restarted with an older memory must be made so too: neither its counter nor its keys can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Node {
    /// The last number drawn, or a higher one that was written back.
    counter: u64,
    /// When it was first heard of, by its own time; 0 for never.
    birth_us: u64,
    /// Whether it votes.
    joined: bool,
}

/// The key of this word, if it has not run out.
fn living(key: &mut Option<NodeHold>, now_us: u64) -> Option<&mut NodeHold> {
    if key.is_some_and(|held| held.ends_us <= now_us) {
        *key = None;
    }
    key.as_mut()
}

impl Node {
    /// A process that comes first is its birth. Its time is the first guess at a counter above all that it has forgotten.
    fn awake(&mut self, now_us: u64) {
        if self.birth_us == 0 {
            *self = Self { counter: self.counter.max(now_us), birth_us: now_us.max(1), joined: false };
        }
    }

    fn is_ripe(&self, rejoin_ms: u32, now_us: u64) -> bool {
        self.birth_us + u64::from(rejoin_ms) * 1_000 <= now_us
    }

    /// Asks for a lock. Repeated with the same word it answers the same, and changes nothing.
    /// `rejoin_ms`: the longest lease, the same for all clients of the set. `hint`: the highest fence that the client
    /// has seen, or 0; with it nodes draw alike, and nothing needs to be written back. `passes`: so many fences come with
    /// it, of which what is drawn is the last.
    ///
    /// Order: lease above the longest → young → had by this word → had by another one → drawn.
    pub fn take(
        &mut self,
        key: &mut Option<NodeHold>,
        (word, lease_ms, hint, passes): (HolderKey, u32, u64, NonZeroU32),
        rejoin_ms: u32,
        now_us: u64,
    ) -> Answer {
        self.awake(now_us);
        if rejoin_ms < lease_ms {
            return Answer::Refused;
        }
        if !self.joined {
            return Answer::Young { birth_us: self.birth_us, ripe: self.is_ripe(rejoin_ms, now_us) };
        }
        if let Some(held) = living(key, now_us) {
            let lasts_us = held.ends_us - now_us;
            return if held.word == word { Answer::Granted(held.value) } else { Answer::Held { lasts_us } };
        }
        let Some(value) = Fence::new(self.counter.max(hint).saturating_add(u64::from(passes.get()))) else {
            return Answer::Refused;
        };
        self.counter = value.get();
        *key = Some(NodeHold { word, value, ends_us: now_us + u64::from(lease_ms) * 1_000 });
        Answer::Granted(value)
    }

    /// Raises the counter to a fence, if this word has the key.
    pub fn write_back(&mut self, key: &mut Option<NodeHold>, word: HolderKey, fence: Fence, now_us: u64) -> Written {
        self.awake(now_us);
        if living(key, now_us).is_none_or(|held| held.word != word) {
            return Written::Gone;
        }
        self.counter = self.counter.max(fence.get());
        Written::Yes
    }

    /// Lets a key last for the lease from now on, and no shorter than before. A node that has no key gets it, also a
    /// young one: it has forgotten it, or was not asked in time.
    pub fn renew(
        &mut self,
        key: &mut Option<NodeHold>,
        (word, lease_ms, fence): (HolderKey, u32, Fence),
        now_us: u64,
    ) -> Renewed {
        self.awake(now_us);
        let ends_us = now_us + u64::from(lease_ms) * 1_000;
        match living(key, now_us) {
            Some(held) if held.word != word => Renewed::Other,
            Some(held) => {
                held.ends_us = held.ends_us.max(ends_us);
                Renewed::Yes
            }
            None => {
                self.counter = self.counter.max(fence.get());
                *key = Some(NodeHold { word, value: fence, ends_us });
                Renewed::Yes
            }
        }
    }

    /// Takes the key of this word away. A process that has another one keeps it. Afterwards this word has no key here, until a
    /// late copy of a take or a renewal makes one, which then lasts for its lease.
    pub fn release(&mut self, key: &mut Option<NodeHold>, word: HolderKey, now_us: u64) -> super::Ended {
        self.awake(now_us);
        if living(key, now_us).is_none_or(|held| held.word != word) {
            return super::Ended::Absent;
        }
        *key = None;
        super::Ended::Released
    }

    /// What it knows, for another node that has to join.
    pub fn known(&mut self, now_us: u64) -> Known {
        self.awake(now_us);
        Known::Counter { counter: self.counter, joined: self.joined }
    }

    /// Lets it vote from now on, with a counter of so much at least. Whether it does: not if it was born anew since, or
    /// is not ripe. A node that has joined already only raises its counter.
    pub fn join(&mut self, birth_us: u64, counter: u64, rejoin_ms: u32, now_us: u64) -> bool {
        self.awake(now_us);
        if self.birth_us != birth_us || !(self.joined || self.is_ripe(rejoin_ms, now_us)) {
            return false;
        }
        self.counter = self.counter.max(counter);
        self.joined = true;
        true
    }

    /// Lets it vote at once. Only for a set that has never granted anything: else two may have the same lock, and
    /// fences may fall.
    pub fn begin(&mut self, now_us: u64) {
        self.awake(now_us);
        self.joined = true;
    }
}
