//! The waiters, and how they learn that a lock has become free.
//!
//! A try that finds the lock held registers its waiter at the node. Each node orders waiters by when they began to
//! wait, so all nodes have the same first waiter. A release notifies the first waiter, and reserves the lock for it for
//! a moment. The waiter tries again when a majority of nodes has reported the same release, because the lock is then
//! free on enough nodes. It waits a moment longer for the other nodes that know it, except one: a node without the
//! release yet would refuse the waiter and register it again. A lost notification costs one pause.

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

/// The most registered waiters of one lock; others try again after their pauses.
pub(super) const WAITERS_MAX: u32 = 1_024;
/// How long a node keeps its waiters after the last one came.
pub(super) const STAY_MS: u32 = 60_000;

/// How long a waiter that a majority has notified waits for the rest.
const REST: Duration = Duration::from_millis(2);

/// Returns the channel of a process.
pub(super) fn channel_of(client: u64) -> String {
    format!("fcq:i:{client:016x}")
}

/// The waiters of this process.
#[derive(Default)]
pub(super) struct Waiters {
    numbers: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Waiting>>>,
    by_word: Mutex<BTreeMap<Box<str>, Arc<Waiting>>>,
}

/// One waiter.
pub(super) struct Waiting {
    number: u64,
    /// The name by which nodes know the waiter.
    pub(super) member: Box<str>,
    /// By the clock of this machine, so that all nodes have the same order.
    pub(super) since_us: i64,
    keys: Keys,
    hearing: Mutex<Subscriber>,
    news: Notify,
}

#[derive(Default)]
struct Subscriber {
    /// The release that nodes report, and the nodes that reported it.
    token: u64,
    told_by: Nodes,
    /// The last release for which the waiter tried again.
    came_for: Option<u64>,
    /// The nodes where the waiter may be registered.
    known_to: Nodes,
    closed: bool,
}

impl Waiters {
    /// Returns the waiter with this word.
    pub(super) fn of(&self, word: &str) -> Option<Arc<Waiting>> {
        self.by_word.lock().get(word).cloned()
    }

    /// Handles a message: the number of a waiter, and the release.
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
        // One node with another opinion must not keep the others from a majority.
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

    /// Handles the answer of a node to a try: whether it registered the waiter.
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
        f.debug_struct("QuorumNotifications").field("member", &self.waiting.member).finish_non_exhaustive()
    }
}
