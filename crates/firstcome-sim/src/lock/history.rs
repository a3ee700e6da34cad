//! What processes asked for, were told and did, all in µs of the world.

use super::table::Logged;
use firstcome_core::id::LockName;
use firstcome_core::lock::{Ask, ClientId, Fence, LockReply, Request};
use std::collections::BTreeMap;

/// One word about a request. Its deadline is in µs of the world.
#[derive(Clone, Debug)]
pub struct LockMessage {
    /// When it was told.
    pub at: i64,
    /// About which request.
    pub request: Request,
    /// What was told.
    pub told: LockReply,
}

impl LockMessage {
    /// The deadline that it tells, and whom.
    pub const fn deadline(&self) -> Option<(Request, i64)> {
        match &self.told {
            LockReply::Granted { deadline, .. } | LockReply::Renewed { deadline } => {
                Some((self.request, deadline.as_us()))
            }
            _ => None,
        }
    }
}

/// One wish.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// When.
    pub at: i64,
    /// What for.
    pub ask: Ask,
    /// When its task gave it up first.
    pub given_up: Option<i64>,
    /// Whether its task went away without waiting for a word.
    pub dropped: bool,
    /// Whether the network doubled or delayed a call about it.
    pub copied: bool,
}

/// A time in which a task believes that it has the lock: it was told so, and its deadline is not over.
#[derive(Clone, Debug)]
pub struct Belief {
    /// Which lock.
    pub name: LockName,
    /// Who believes.
    pub request: Request,
    /// The first of its fences.
    pub fence: Fence,
    /// From when on.
    pub from: i64,
    /// Until its deadline, or until it gave up or was gone.
    pub until: i64,
}

/// A client used a fence on what the lock guards.
#[derive(Clone, Debug)]
pub struct Write {
    /// When it arrived.
    pub at: i64,
    /// Under which lock.
    pub name: LockName,
    /// Whose.
    pub request: Request,
    /// With which fence.
    pub fence: u64,
    /// Whether the resource took it.
    pub accepted: bool,
}

/// What happened to the store as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disturbance {
    /// It restarted, empty.
    Flush,
    /// Its clock was set back.
    ClockBack,
    /// Its clock was set forward.
    ClockForward,
}

/// Everything that the invariants judge.
#[derive(Default)]
pub struct History {
    /// What was asked for.
    pub asked: BTreeMap<Request, LockRequest>,
    /// What was told, in order.
    pub words: Vec<LockMessage>,
    messages_of: BTreeMap<Request, Vec<usize>>,
    belief_of: BTreeMap<Request, usize>,
    /// Who believed what.
    pub beliefs: Vec<Belief>,
    /// What was written.
    pub writes: Vec<Write>,
    /// Processes that were killed, and when.
    pub killed: BTreeMap<ClientId, i64>,
    /// When a process stood still, or one of its calls was lost, late or slow.
    pub troubles: BTreeMap<ClientId, Vec<(i64, i64)>>,
    /// What happened to the store as a whole.
    pub disturbances: Vec<(i64, Disturbance)>,
    /// What the store wrote down.
    pub log: Vec<Logged>,
    /// How much faster the store's clock runs, in parts of a million.
    pub store_rate_ppm: i64,
    /// When faults stopped.
    pub healed_at: Option<i64>,
    /// What was left once everybody had gone.
    pub left: Vec<String>,
    /// The present time.
    pub now: i64,
}

impl History {
    /// An empty history, of a store whose clock runs faster by so many parts of a million.
    pub fn with_store_rate(store_rate_ppm: i64) -> Self {
        Self { store_rate_ppm, ..Self::default() }
    }

    /// Whether the store was disturbed from one instant to another, both included.
    pub fn is_disturbed(&self, from: i64, until: i64) -> bool {
        self.disturbances.iter().any(|(at, _)| (from..=until).contains(at))
    }

    /// Whether a process was in trouble, or dead, at some instant from one to another.
    pub fn is_troubled(&self, client: ClientId, from: i64, until: i64) -> bool {
        let overlaps = |&(begin, end): &(i64, i64)| begin <= until && from <= end;
        self.killed.get(&client).is_some_and(|killed| *killed <= until)
            || self.troubles.get(&client).is_some_and(|troubles| troubles.iter().any(overlaps))
    }

    /// Whether a request was still wanted, and nothing final was told, at an instant.
    pub fn is_wanted(&self, request: Request, at: i64) -> bool {
        let given_up = self.asked.get(&request).is_none_or(|asked| asked.given_up.is_some_and(|when| when <= at));
        let killed = self.killed.get(&request.client).is_some_and(|killed| *killed <= at);
        let over = self.messages_of(request).any(|word| word.at <= at && is_final(&word.told));
        !given_up && !killed && !over
    }

    /// The words about a request.
    pub fn messages_of(&self, request: Request) -> impl Iterator<Item = &LockMessage> {
        self.messages_of.get(&request).into_iter().flatten().map(|at| &self.words[*at])
    }

    /// A client is told something.
    pub fn tell(&mut self, word: LockMessage) {
        self.messages_of.entry(word.request).or_default().push(self.words.len());
        self.words.push(word);
    }

    /// A client begins to believe that it has a lock.
    pub fn believe(&mut self, belief: Belief) {
        self.belief_of.insert(belief.request, self.beliefs.len());
        self.beliefs.push(belief);
    }

    /// What a client believes, or believed.
    pub fn belief_of(&self, request: Request) -> Option<&Belief> {
        self.belief_of.get(&request).map(|at| &self.beliefs[*at])
    }
}

/// Whether nothing may be told after it.
pub const fn is_final(told: &LockReply) -> bool {
    !matches!(told, LockReply::Granted { .. } | LockReply::Renewed { .. })
}
