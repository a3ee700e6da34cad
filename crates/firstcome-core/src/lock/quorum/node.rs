//! The rules of one node of a quorum. The scripts of a store restate them.
//!
//! A step is atomic on its node. `now_us` is the node's own clock, by which all its keys expire.

use super::super::Fence;
use super::{Answer, Known, Renewed, Written};
use std::num::NonZeroU32;

/// A secret of the holder: one per attempt, never used again.
pub type HolderKey = u128;

/// The key of a lock on a node. It is gone from `ends_us` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeHold {
    /// The holder key of the attempt.
    pub holder_key: HolderKey,
    /// The fence drawn for it here, or the one with which a renewal restored it.
    pub value: Fence,
    /// When it ends, by the node's clock.
    pub ends_us: u64,
}

/// The memory of a node besides its keys. A new node, and one that lost its memory, is [`Node::default`]. A node that was
/// restarted with an older memory must become one too: its counter and its keys are not reliable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Node {
    /// The last number drawn, or a higher one that was written back.
    counter: u64,
    /// When its first request arrived, by its own clock; 0 before it.
    birth_us: u64,
    /// Whether it votes.
    joined: bool,
}

/// Returns the key of a lock, unless it has run out.
fn living(key: &mut Option<NodeHold>, now_us: u64) -> Option<&mut NodeHold> {
    if key.is_some_and(|held| held.ends_us <= now_us) {
        *key = None;
    }
    key.as_mut()
}

impl Node {
    /// Sets the birth at the first request. The node's clock is its first guess at a counter above all that it has forgotten.
    fn awake(&mut self, now_us: u64) {
        if self.birth_us == 0 {
            *self = Self { counter: self.counter.max(now_us), birth_us: now_us.max(1), joined: false };
        }
    }

    fn is_ripe(&self, rejoin_ms: u32, now_us: u64) -> bool {
        self.birth_us + u64::from(rejoin_ms) * 1_000 <= now_us
    }

    /// Handles a take: grants the lock or refuses it. A repeat with the same holder key gets the same answer and changes
    /// nothing.
    ///
    /// `rejoin_ms` is the longest lease, the same for all clients of the quorum. `hint` is the highest fence that the client
    /// has seen, or 0: with it nodes draw alike, and no fence has to be written back. `passes` is the number of fences of the
    /// grant, of which the drawn number is the last.
    ///
    /// Order: lease above the longest → young → held by this holder key → held by another one → drawn.
    pub fn take(
        &mut self,
        key: &mut Option<NodeHold>,
        (holder_key, lease_ms, hint, passes): (HolderKey, u32, u64, NonZeroU32),
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
            return if held.holder_key == holder_key { Answer::Granted(held.value) } else { Answer::Held { lasts_us } };
        }
        let Some(value) = Fence::new(self.counter.max(hint).saturating_add(u64::from(passes.get()))) else {
            return Answer::Refused;
        };
        self.counter = value.get();
        *key = Some(NodeHold { holder_key, value, ends_us: now_us + u64::from(lease_ms) * 1_000 });
        Answer::Granted(value)
    }

    /// Raises the counter to a fence, if this holder key has the lock.
    pub fn write_back(
        &mut self,
        key: &mut Option<NodeHold>,
        holder_key: HolderKey,
        fence: Fence,
        now_us: u64,
    ) -> Written {
        self.awake(now_us);
        if living(key, now_us).is_none_or(|held| held.holder_key != holder_key) {
            return Written::Gone;
        }
        self.counter = self.counter.max(fence.get());
        Written::Yes
    }

    /// Extends a key to the lease from now on, and never shortens it. A node without a key creates it, also a young node: it
    /// forgot the key, or the take did not reach it in time.
    pub fn renew(
        &mut self,
        key: &mut Option<NodeHold>,
        (holder_key, lease_ms, fence): (HolderKey, u32, Fence),
        now_us: u64,
    ) -> Renewed {
        self.awake(now_us);
        let ends_us = now_us + u64::from(lease_ms) * 1_000;
        match living(key, now_us) {
            Some(held) if held.holder_key != holder_key => Renewed::Other,
            Some(held) => {
                held.ends_us = held.ends_us.max(ends_us);
                Renewed::Yes
            }
            None => {
                self.counter = self.counter.max(fence.get());
                *key = Some(NodeHold { holder_key, value: fence, ends_us });
                Renewed::Yes
            }
        }
    }

    /// Removes the key of this holder; the key of another holder stays. Afterwards this holder has no key here, until a late
    /// copy of a take or a renewal creates one, which then lasts for its lease.
    pub fn release(&mut self, key: &mut Option<NodeHold>, holder_key: HolderKey, now_us: u64) -> super::Ended {
        self.awake(now_us);
        if living(key, now_us).is_none_or(|held| held.holder_key != holder_key) {
            return super::Ended::Absent;
        }
        *key = None;
        super::Ended::Released
    }

    /// Returns what this node knows, for another node that wants to join.
    pub fn known(&mut self, now_us: u64) -> Known {
        self.awake(now_us);
        Known::Counter { counter: self.counter, joined: self.joined }
    }

    /// Lets this node vote from now on, with at least this counter. Returns whether it votes: not if it was born again since, or
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

    /// Lets this node vote at once. Only for a quorum that never granted a lock: else two clients may have the same lock, and
    /// fences may fall.
    pub fn begin(&mut self, now_us: u64) {
        self.awake(now_us);
        self.joined = true;
    }
}
