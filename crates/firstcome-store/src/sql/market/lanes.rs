//! Who waits for what: a bounded queue for each listing, and for the points of each member.

use super::judge::{Answer, Command};
use crate::edge::draw_hasher;
use crate::error::StoreError;
use crate::market::MarketAnswer;
use firstcome_core::id::{ListingName, MemberName};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::time::Duration;
use tokio::sync::oneshot;

/// Commands in one transaction. Bounds how long the row of a listing stays locked, and by how much a combined bid may
/// overtake those of other processes.
pub(super) const BATCH_COMMANDS_MAX: usize = 256;
/// Commands that may wait for one listing, or for the points of one member: some hundred milliseconds of work.
const LANE_COMMANDS_MAX: usize = 4_096;
/// Commands that may wait in all. Protects memory: about 300 bytes each.
const COMMANDS_MAX: usize = 65_536;
/// When to come back to a full queue.
const FULL_RETRY: Duration = Duration::from_millis(250);

/// What a command is about: commands of the same scope go through in one transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Scope {
    Listing(ListingName),
    Member(MemberName),
}

/// A command and whoever waits for its answer.
pub(super) struct Waiting {
    pub(super) command: Command,
    pub(super) tell: oneshot::Sender<MarketAnswer<Answer>>,
}

/// The queues. A scope has one while somebody serves it.
pub(super) struct Lanes {
    queues: Mutex<Queues>,
}

struct Queues {
    of: HashMap<Scope, VecDeque<Waiting>, RandomState>,
    waiting: usize,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self { queues: Mutex::new(Queues { of: HashMap::with_hasher(draw_hasher()), waiting: 0 }) }
    }

    /// Queues a command. True if nobody serves the scope yet: then the caller is to see to that.
    pub(super) fn push(&self, scope: &Scope, waiting: Waiting) -> Result<bool, StoreError> {
        let mut queues = self.queues.lock();
        let full = StoreError::Overloaded { retry_after: FULL_RETRY };
        if COMMANDS_MAX <= queues.waiting {
            return Err(full);
        }
        let unserved = match queues.of.get_mut(scope) {
            Some(queue) if LANE_COMMANDS_MAX <= queue.len() => return Err(full),
            Some(queue) => {
                queue.push_back(waiting);
                false
            }
            None => {
                queues.of.insert(scope.clone(), VecDeque::from([waiting]));
                true
            }
        };
        queues.waiting += 1;
        Ok(unserved)
    }

    /// Takes whatever waits, in the order of arrival and at most [`BATCH_COMMANDS_MAX`]; those who have gone are passed
    /// over, and nothing of theirs is done. `None` if nobody waits: then the scope is not served any more.
    pub(super) fn take(&self, scope: &Scope) -> Option<VecDeque<Waiting>> {
        let mut queues = self.queues.lock();
        let queue = queues.of.get_mut(scope)?;
        let mut batch = VecDeque::new();
        let mut taken = 0;
        while batch.len() < BATCH_COMMANDS_MAX
            && let Some(waiting) = queue.pop_front()
        {
            taken += 1;
            if !waiting.tell.is_closed() {
                batch.push_back(waiting);
            }
        }
        queues.waiting -= taken;
        if batch.is_empty() {
            queues.of.remove(scope);
            return None;
        }
        Some(batch)
    }

    /// Forgets a scope whose server has gone; those who wait are told that nobody knows.
    pub(super) fn abandon(&self, scope: &Scope) {
        let mut queues = self.queues.lock();
        let abandoned = queues.of.remove(scope).map_or(0, |queue| queue.len());
        queues.waiting -= abandoned;
    }
}
