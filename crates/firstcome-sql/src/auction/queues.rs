//! The commands that wait: a bounded queue for each listing, and for the points of each member.
//!
//! Not a `Batcher` of the store for each scope, for two reasons. Scopes come and go, as many as there are members, so a scope
//! has a queue only while a caller serves it. And one limit bounds the commands of all scopes together, those of running
//! batches included.

use super::judge::{Answer, Command};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_store::AuctionAnswer;
use firstcome_store::StoreError;
use firstcome_store::edge::draw_hasher;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::time::Duration;
use tokio::sync::oneshot;

/// Commands in one transaction. Bounds how long the row of a listing stays locked, and by how much a combined bid may
/// overtake those of other processes.
pub(super) const BATCH_COMMANDS_MAX: usize = 256;
/// Commands that may wait for one listing, or for the points of one member: some hundred milliseconds of work. Those of a
/// running batch count.
const SCOPE_COMMANDS_MAX: usize = 4_096;
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

/// A command and a caller that waits for its answer.
pub(super) struct Waiting {
    pub(super) command: Command,
    pub(super) tell: oneshot::Sender<AuctionAnswer<Answer>>,
}

/// The queues. A scope has one while a caller serves it.
///
/// A command counts from its arrival until its batch is over: a running batch waits too, for a connection, for locks, for a
/// commit.
pub(super) struct ScopeQueues {
    queues: Mutex<Counted>,
}

struct Counted {
    of: HashMap<Scope, ScopeQueue, RandomState>,
    /// Commands in all queues.
    commands: usize,
}

struct ScopeQueue {
    queue: VecDeque<Waiting>,
    /// Commands of the batch that was taken last.
    taken: usize,
}

impl ScopeQueue {
    fn commands(&self) -> usize {
        self.queue.len() + self.taken
    }
}

impl ScopeQueues {
    pub(super) fn new() -> Self {
        Self { queues: Mutex::new(Counted { of: HashMap::with_hasher(draw_hasher()), commands: 0 }) }
    }

    /// Queues a command. True if no caller serves the scope yet: then this caller must serve it.
    pub(super) fn push(&self, scope: &Scope, waiting: Waiting) -> Result<bool, StoreError> {
        let mut queues = self.queues.lock();
        let full = StoreError::busy(FULL_RETRY);
        if COMMANDS_MAX <= queues.commands {
            return Err(full);
        }
        let unserved = match queues.of.get_mut(scope) {
            Some(queue) if SCOPE_COMMANDS_MAX <= queue.commands() => return Err(full),
            Some(queue) => {
                queue.queue.push_back(waiting);
                false
            }
            None => {
                queues.of.insert(scope.clone(), ScopeQueue { queue: VecDeque::from([waiting]), taken: 0 });
                true
            }
        };
        queues.commands += 1;
        Ok(unserved)
    }

    /// Ends the batch that was taken before, and takes up to [`BATCH_COMMANDS_MAX`] waiting commands in the order of arrival.
    /// A command whose caller has gone is dropped undone. `None` if no command waits: then the scope is not served any more.
    pub(super) fn take(&self, scope: &Scope) -> Option<VecDeque<Waiting>> {
        let mut queues = self.queues.lock();
        let queue = queues.of.get_mut(scope)?;
        let before = queue.commands();
        let mut batch = VecDeque::new();
        while batch.len() < BATCH_COMMANDS_MAX
            && let Some(waiting) = queue.queue.pop_front()
        {
            if !waiting.tell.is_closed() {
                batch.push_back(waiting);
            }
        }
        queue.taken = batch.len();
        let over = before - queue.commands();
        queues.commands -= over;
        if batch.is_empty() {
            queues.of.remove(scope);
            return None;
        }
        Some(batch)
    }

    /// Forgets a scope whose server has gone. Its waiting commands are dropped, so their callers get [`StoreError::Unknown`].
    pub(super) fn abandon(&self, scope: &Scope) {
        let mut queues = self.queues.lock();
        let abandoned = queues.of.remove(scope).map_or(0, |queue| queue.commands());
        queues.commands -= abandoned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Waiting {
        // The receiver is dropped here, so `take` passes the command over. It counts until then.
        Waiting { command: Command::Advance, tell: oneshot::channel().0 }
    }

    fn member(number: usize) -> Scope {
        Scope::Member(MemberName::parse(&format!("member-{number}")).unwrap())
    }

    #[test]
    fn what_is_under_way_counts_until_it_is_over() {
        let queues = ScopeQueues::new();
        let mut callers = Vec::new();
        for number in 0..COMMANDS_MAX {
            let (tell, told) = oneshot::channel();
            callers.push(told);
            assert!(queues.push(&member(number), Waiting { command: Command::Advance, tell }).unwrap());
            assert_eq!(queues.take(&member(number)).unwrap().len(), 1);
        }
        let full = |queues: &ScopeQueues| matches!(queues.push(&member(0), waiting()), Err(StoreError::Busy { .. }));
        assert!(full(&queues), "all of them may wait for a connection");
        assert!(queues.take(&member(1)).is_none(), "it is over");
        assert!(!full(&queues) && full(&queues), "there is room for one");
        queues.abandon(&member(0));
        assert!(!full(&queues), "what was abandoned has gone");
        for number in 0..COMMANDS_MAX {
            while queues.take(&member(number)).is_some() {}
        }
        let queues = queues.queues.lock();
        assert_eq!((queues.commands, queues.of.len()), (0, 0));
    }
}
