//! Those who wait, and how they are told that a lock has become free.
//!
//! A try that finds the lock held leaves word with the node, in a list by when the waiting began, so that all nodes have the
//! same first. A release tells the first one, and keeps the lock for him for a moment. He comes when a majority of nodes has
//! told him of the same release: then the lock is free where he needs it. He waits a moment longer for the others that know
//! of him, all but one, since one that has not yet heard of the release would refuse him, and have him in its list once more. What is lost
//! on the way costs a pause.

use super::scripts::Keys;
use super::{Leaving, Shared};
use firstcome_core::lock::quorum::{Answer, Nodes};
use firstcome_store::edge::{Clock, SharedClock};
use firstcome_store::key::Notifications;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// So many wait for one lock at most and are told; the others ask again after their pauses.
pub(super) const WAITERS_MAX: u32 = 1_024;
/// So long after the last one came no process waits any more.
pub(super) const STAY_MS: u32 = 60_000;

/// How long a waiter who was told by a majority waits for the rest.
const REST: Duration = Duration::from_millis(2);

/// The channel of a process.
pub(super) fn channel_of(client: u64) -> String {
    format!("fcq:i:{client:016x}")
}

/// Those of this process.
#[derive(Default)]
pub(super) struct Waiters {
    numbers: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Waiting>>>,
    by_word: Mutex<BTreeMap<Box<str>, Arc<Waiting>>>,
}

/// One who waits.
pub(super) struct Waiting {
    number: u64,
    /// As nodes know him.
    pub(super) member: Box<str>,
    /// By the clock of this machine, so that all nodes have the same order.
    pub(super) since_us: i64,
    keys: Keys,
    hearing: Mutex<Subscriber>,
    news: Notify,
}

#[derive(Default)]
struct Subscriber {
    /// The release that is being told of, and by whom.
    token: u64,
    told_by: Nodes,
    /// The one that he came for last.
    came_for: Option<u64>,
    /// Who may have word of him.
    known_to: Nodes,
    closed: bool,
}

impl Waiters {
    /// Who waits by this word.
    pub(super) fn of(&self, word: &str) -> Option<Arc<Waiting>> {
        self.by_word.lock().get(word).cloned()
    }

    /// A message: the number of one who waits, and the release.
    pub(super) fn on_reply(&self, shared: &Shared, node: usize, message: &[u8]) {
        let parts = std::str::from_utf8(message).ok().and_then(|text| text.split_once(' '));
        let Some((number, token)) = parts else { return };
        let (Ok(number), Ok(token)) = (number.parse(), token.parse()) else { return };
        if let Some(waiting) = self.all.lock().get(&number) {
            waiting.on_reply(shared, node, token);
        }
    }
}

impl Waiting {
    fn on_reply(self: &Arc<Self>, shared: &Shared, node: usize, token: u64) {
        let mut hearing = self.hearing.lock();
        if hearing.came_for == Some(token) {
            return;
        }
        if hearing.token != token {
            (hearing.token, hearing.told_by) = (token, Nodes::NONE);
        }
        hearing.told_by = hearing.told_by.and(Nodes::only(node));
        let told_by = hearing.told_by.len();
        if told_by < shared.quorum.majority() {
            return;
        }
        // One that goes its own way cannot keep the others from a majority.
        let all_but_one = shared.quorum.nodes() - 1;
        if all_but_one <= told_by || hearing.known_to.without(hearing.told_by).is_empty() {
            hearing.came_for = Some(token);
            self.news.notify_one();
        } else if told_by == shared.quorum.majority() {
            let waiting = Arc::clone(self);
            shared.runtime.spawn(async move {
                sleep(REST).await;
                let mut hearing = waiting.hearing.lock();
                if hearing.token == token && hearing.came_for != Some(token) {
                    hearing.came_for = Some(token);
                    waiting.news.notify_one();
                }
            });
        }
    }

    /// A node has answered a try, with which word was left of him.
    pub(super) fn is_answered(self: &Arc<Self>, shared: &Arc<Shared>, node: usize, answer: Answer) {
        let mut hearing = self.hearing.lock();
        match answer {
            Answer::Held { .. } if hearing.closed => self.leave(shared, Nodes::only(node)),
            Answer::Held { .. } => hearing.known_to = hearing.known_to.and(Nodes::only(node)),
            Answer::Granted(_) => hearing.known_to = hearing.known_to.without(Nodes::only(node)),
            Answer::Young { .. } | Answer::Refused | Answer::Silent => {}
        }
    }

    fn leave(self: &Arc<Self>, shared: &Arc<Shared>, nodes: Nodes) {
        let token = shared.client.wrapping_add(shared.attempts.fetch_add(1, Ordering::Relaxed));
        for node in nodes.iter() {
            let (waiting, leaving) = (Arc::clone(self), Leaving::new(shared));
            let leave = async move { leaving.0.leave_on(node, &waiting.keys, &waiting.member, token).await };
            shared.runtime.spawn(leave);
        }
    }
}

/// Hears when a lock of a [`super::QuorumStore`] may have become free.
pub struct QuorumNotifications {
    shared: Arc<Shared>,
    waiting: Arc<Waiting>,
    word: Box<str>,
}

impl QuorumNotifications {
    pub(super) fn new(shared: &Arc<Shared>, key: &str, word: &str) -> Self {
        let number = shared.waiters.numbers.fetch_add(1, Ordering::Relaxed);
        let waiting = Arc::new(Waiting {
            number,
            member: format!("{} {number}", channel_of(shared.client)).into(),
            since_us: SharedClock::default().now().as_us(),
            keys: Keys::of(key),
            hearing: Mutex::default(),
            news: Notify::new(),
        });
        shared.waiters.all.lock().insert(number, Arc::clone(&waiting));
        shared.waiters.by_word.lock().insert(word.into(), Arc::clone(&waiting));
        Self { shared: Arc::clone(shared), waiting, word: word.into() }
    }
}

impl Notifications for QuorumNotifications {
    async fn freed(&mut self) {
        self.waiting.news.notified().await;
    }
}

impl Drop for QuorumNotifications {
    fn drop(&mut self) {
        let Self { shared, waiting, word } = self;
        shared.waiters.all.lock().remove(&waiting.number);
        shared.waiters.by_word.lock().remove(&**word);
        let known_to = {
            let mut hearing = waiting.hearing.lock();
            hearing.closed = true;
            hearing.known_to
        };
        waiting.leave(shared, known_to);
    }
}

impl std::fmt::Debug for QuorumNotifications {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuorumEar").field("member", &self.waiting.member).finish_non_exhaustive()
    }
}
