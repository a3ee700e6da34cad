//! Locks over several independent servers. The rules are in [`firstcome_core::lock::quorum`], whose docs prove that
//! holds do not overlap and that fences grow. This module carries the messages.
//!
//! | key | content |
//! |---|---|
//! | `fcq:node` | the state of a node: whether it votes, since when it remembers, its counter |
//! | `fcq:l:KEY` | the holder of the lock at this node; ends with its lease |
//! | `fcq:w:KEY` | the waiters, ordered by when they began to wait; bounded, and gone a while after the last one came |
//! | `fcq:t:KEY` | the waiter that was notified last, which alone may take the lock for a moment |
//! | `fcq:i:PROCESS` | the channel of a process |
//!
//! A separate task sends each message to a node, so that the message completes even if the caller drops its future. A
//! node has a short time to answer. A later answer counts too, and a grant that comes too late is undone at that node.
//!
//! The connection fixes the run of the server that each script is for. A restarted server counts as one that has
//! forgotten, even if it read its data from disk: the disk may be behind what the server acknowledged.

mod attempt;
mod ending;
mod joining;
mod nodes;
mod renewal;
mod scripts;
mod waiting;

pub use waiting::QuorumNotifications;

use super::{LinkOptions, OpenError};
use attempt::{Asking, Attempt, Outcome};
use firstcome_core::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use firstcome_core::lock::Fence;
use firstcome_core::lock::quorum::{Lost, Quorum};
use firstcome_store::edge::draw_id;
use firstcome_store::key::{KeyStore, Tried};
use firstcome_store::{Fault, FaultKind, Guarantees, StoreError};
use nodes::Node;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use waiting::Waiters;

/// The number of recorded holds at which the store first removes those that are over.
const HOLDS_SWEPT: usize = 1_024;

/// Whether the servers were used for quorum locks before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum NodeSet {
    /// Perhaps. A server without a memory waits before it votes.
    #[default]
    Known,
    /// Never: they vote at once. All must answer when the store opens. Has no effect if one of them votes already. If
    /// all of them have lost their memory instead, this lets two clients hold the same lock.
    New,
}

/// Settings of a quorum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuorumOptions {
    /// How long to wait for the answer of a node: 50 ms by default. A later answer still counts.
    pub node_timeout: Duration,
    /// How long a node that lost its memory does not vote, in whole ms: 60 s by default. It is also the longest lease.
    /// All clients of the same servers need the same value; the servers check that.
    pub rejoin_after: Duration,
    /// Whether the servers were used for quorum locks before.
    pub set: NodeSet,
    /// Settings of the connections. An answer within the answer time-out is late, not lost.
    pub link: LinkOptions,
}

impl Default for QuorumOptions {
    fn default() -> Self {
        Self {
            node_timeout: Duration::from_millis(50),
            rejoin_after: Duration::from_secs(60),
            set: NodeSet::default(),
            link: LinkOptions::default(),
        }
    }
}

impl QuorumOptions {
    /// Marks servers that were never used for quorum locks: see [`NodeSet::New`].
    #[must_use]
    pub const fn new_set(mut self) -> Self {
        self.set = NodeSet::New;
        self
    }
}

/// How much work a quorum has done so far. For benchmarks and metrics: no rule depends on these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuorumCounts {
    /// The number of servers.
    pub nodes: usize,
    /// Servers with a connection now.
    pub nodes_up: usize,
    /// Locks that were granted.
    pub granted: u64,
    /// Attempts that needed a second round, because the servers had drawn different numbers.
    pub written_back: u64,
    /// Grants of single nodes that came too late and were undone.
    pub undone_late: u64,
    /// Nodes that vote again after this process told them the counter of other nodes.
    pub rejoined: u64,
    /// Commands sent to all servers.
    pub requests: u64,
    /// Messages received from all servers.
    pub pushes: u64,
}

#[derive(Default)]
struct Figures {
    granted: AtomicU64,
    written_back: AtomicU64,
    undone_late: AtomicU64,
    rejoined: AtomicU64,
}

impl Figures {
    fn add(figure: &AtomicU64) {
        figure.fetch_add(1, Ordering::Relaxed);
    }
}

/// The longest time that a message is assumed to be under way. What a later one leaves behind ends with its lease.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// What all messages share.
struct Shared {
    quorum: Quorum,
    nodes: Box<[Node]>,
    /// 64 random bits that identify this process.
    client: u64,
    node_timeout: Duration,
    rejoin_ms: u32,
    runtime: Handle,
    /// The highest fence seen.
    seen: AtomicU64,
    attempts: AtomicU64,
    /// The attempts that hold a lock or ask for one, by the word of the acquisition.
    holds: Mutex<BTreeMap<Box<str>, Arc<Attempt>>>,
    /// The number of attempts at which those that are over are removed.
    sweep_at: Mutex<usize>,
    waiters: Waiters,
    /// How many messages that release something are under way.
    leaving: watch::Sender<usize>,
    figures: Figures,
}

/// Locks that belong to the client to which a majority of servers granted them.
///
/// # What it survives
/// - The loss of a minority, permanent or temporary; servers that stand still, and answers that come late.
/// - A server that comes back empty or with an older memory. It does not vote for [`QuorumOptions::rejoin_after`], and
///   then with a counter above all reported fences.
/// - A holder that stands still: the next holder has a higher fence.
///
/// # What it does not survive
/// - The loss of a majority: no client gets a lock. After a majority lost its memory, no client gets a lock for
///   `rejoin_after`.
/// - Clocks of servers that jump, or differ in speed by more than 1 %: two clients may believe that they have the lock.
///   Fences still grow in the order in which grants follow each other, so fence checks refuse the older holder. There
///   is one exception: the clock of a server that lost its memory jumps ahead while it waits to vote.
/// - A server that acknowledges a write and loses it without a restart. Servers need `maxmemory-policy noeviction`,
///   which is checked, and no replica may replace one without a restart.
pub struct QuorumStore {
    shared: Arc<Shared>,
    listening: Vec<AbortHandle>,
}

impl QuorumStore {
    /// Connects to all servers at once, and checks them. A majority must answer, with [`NodeSet::New`] all; the others
    /// are retried in the background. Uses two connections to each.
    ///
    /// Takes as long as [`super::Link::open`]. Call it within a Tokio runtime, which then carries the messages.
    pub async fn open(urls: &[impl AsRef<str>], options: QuorumOptions) -> Result<Self, OpenError> {
        let wrong = |says: &str| OpenError::Quorum { says: says.to_owned() };
        let quorum = Quorum::of(urls.len()).ok_or_else(|| wrong(&format!("they are {}", urls.len())))?;
        let is_of_one = |url: &&_| ["redis", "rediss"].contains(&scheme_of(AsRef::<str>::as_ref(*url)));
        if let Some(url) = urls.iter().find(|url| !is_of_one(url)) {
            return Err(wrong(&format!("{} is not the address of one server", scheme_of(url.as_ref()))));
        }
        if options.node_timeout.as_millis() == 0 {
            return Err(wrong("node_timeout must be at least 1 ms"));
        }
        let rejoin_ms = u32::try_from(options.rejoin_after.as_millis()).unwrap_or(u32::MAX);
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&rejoin_ms) {
            return Err(wrong("rejoin_after must be 100 ms to 8 days"));
        }
        let client = draw_id().map_err(|fault| wrong(&fault.to_string()))?;
        let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
        let (nodes, inboxes) = nodes::open(&urls, &waiting::channel_of(client), &options.link, quorum).await?;
        let shared = Arc::new(Shared {
            quorum,
            nodes,
            client,
            node_timeout: options.node_timeout,
            rejoin_ms,
            runtime: Handle::current(),
            seen: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            holds: Mutex::default(),
            sweep_at: Mutex::new(HOLDS_SWEPT),
            waiters: Waiters::default(),
            leaving: watch::Sender::new(0),
            figures: Figures::default(),
        });
        if options.set == NodeSet::New {
            joining::begin(&shared).await?;
        }
        let listening = inboxes.into_iter().enumerate().map(|(node, inbox)| {
            tokio::spawn(nodes::keep(Arc::clone(&shared), node, inbox, options.link.clone())).abort_handle()
        });
        Ok(Self { listening: listening.collect(), shared })
    }

    /// Returns how much work was done so far. No request.
    pub fn counts(&self) -> QuorumCounts {
        let Figures { granted, written_back, undone_late, rejoined } = &self.shared.figures;
        let links = || self.shared.nodes.iter().filter_map(Node::link);
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        QuorumCounts {
            nodes: self.shared.nodes.len(),
            nodes_up: links().filter(|link| link.run_of(b"").is_some()).count(),
            granted: read(granted),
            written_back: read(written_back),
            undone_late: read(undone_late),
            rejoined: read(rejoined),
            requests: links().map(|link| link.counts().requests).sum(),
            pushes: links().map(|link| link.counts().pushes).sum(),
        }
    }

    /// Returns how long the hold of this word certainly lasts from now on, as far as this process knows; `None` if it
    /// has no hold. No request.
    pub fn remaining(&self, word: &str) -> Option<Duration> {
        let hold = self.shared.hold(word)?;
        hold.left().filter(|left| !left.is_zero())
    }
}

impl Drop for QuorumStore {
    fn drop(&mut self) {
        self.listening.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Returns the scheme of an address. The rest may hold a password.
fn scheme_of(url: &str) -> &str {
    url.split_once("://").map_or("a text without ://", |(scheme, _)| scheme)
}

/// Returns a time that never runs backwards.
#[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the whole µs since an instant.
fn elapsed_us(since: Instant) -> u64 {
    u64::try_from(now().saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX)
}

/// Returns when a lease requested now is over on every node, if the message is under way for at most [`UNDER_WAY`].
fn surely_over(lease_ms: u32) -> Instant {
    let lease = Duration::from_millis(u64::from(lease_ms));
    now() + lease + lease / 100 + UNDER_WAY
}

fn unavailable(says: String) -> StoreError {
    StoreError::Faulted(Arc::new(Fault::new(FaultKind::Unreachable, says)))
}

/// A release that is under way. It is counted while this exists.
struct Leaving(Arc<Shared>);

impl Leaving {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.leaving.send_modify(|leaving| *leaving += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leaving.send_modify(|leaving| *leaving -= 1);
    }
}

impl Shared {
    fn hold(&self, word: &str) -> Option<Arc<Attempt>> {
        self.holds.lock().get(word).cloned()
    }

    /// Records an attempt, and removes those that are over. Returns the earlier attempt with the same word.
    fn keep(&self, word: &str, attempt: &Arc<Attempt>) -> Option<Arc<Attempt>> {
        let mut holds = self.holds.lock();
        let before = holds.insert(word.into(), Arc::clone(attempt));
        if *self.sweep_at.lock() <= holds.len() {
            let all: Vec<_> = holds.values().cloned().collect();
            // Not while the map is locked: a task that has locked a course may lock the map.
            drop(holds);
            let now = now();
            all.iter().filter(|hold| hold.course.lock().over_at <= now).for_each(|hold| self.forget(hold));
            *self.sweep_at.lock() = HOLDS_SWEPT.max(2 * self.holds.lock().len());
        }
        before
    }

    /// Forgets an attempt, unless a newer one has replaced it.
    fn forget(&self, attempt: &Attempt) {
        let mut holds = self.holds.lock();
        if holds.get(&*attempt.acquisition).is_some_and(|kept| kept.word == attempt.word) {
            holds.remove(&*attempt.acquisition);
        }
    }

    fn check_lease(&self, lease_ms: u32) -> Result<(), StoreError> {
        if lease_ms <= self.rejoin_ms {
            return Ok(());
        }
        let says =
            format!("a lease of {lease_ms} ms is longer than a node that has forgotten waits, {} ms", self.rejoin_ms);
        Err(StoreError::Faulted(Arc::new(Fault::new(FaultKind::Unfit, says))))
    }

    /// Describes an attempt that failed because too few nodes could answer.
    fn why(&self, why: Lost) -> StoreError {
        match why {
            Lost::Unavailable { young, silent } => unavailable(format!(
                "of {} servers {} did not answer in time, {} cannot be reached or refused, {} do not vote yet{}",
                self.nodes.len(),
                silent.len(),
                self.nodes.len() - self.up(),
                young.len(),
                if young.is_empty() {
                    ""
                } else {
                    ", since they may have forgotten locks; new ones do if opened as a new set"
                },
            )),
            Lost::TooLate => unavailable("the answers took as long as the lease".to_owned()),
            Lost::Held { .. } => unavailable("others have it".to_owned()),
        }
    }

    fn up(&self) -> usize {
        self.nodes.iter().filter_map(Node::link).filter(|link| link.run_of(b"").is_some()).count()
    }
}

/// A take is one message to each node, and a second one to nodes that drew a lower number than others. A renewal and a
/// release are one message to each node. Each returns when enough nodes have answered, at the latest after the node
/// time-out, or two of them for a take.
///
/// The store itself undoes a failed attempt, even after the caller is gone. So the error of a take is never
/// [`StoreError::Unknown`] while the runtime lives.
impl KeyStore for QuorumStore {
    fn fence(grant: Fence) -> Option<Fence> {
        Some(grant)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::QUORUM
    }

    type Grant = Fence;
    type Notifications = QuorumNotifications;

    fn lease_ms_max(&self) -> u32 {
        self.shared.rejoin_ms
    }

    async fn take(&self, key: &str, word: &str, lease_ms: u32) -> Result<Tried<Fence>, StoreError> {
        self.take_for(key, word, lease_ms, NonZeroU32::MIN).await
    }

    async fn take_for(
        &self,
        key: &str,
        word: &str,
        lease_ms: u32,
        passes: NonZeroU32,
    ) -> Result<Tried<Fence>, StoreError> {
        self.shared.check_lease(lease_ms)?;
        let (told, answer) = oneshot::channel();
        let mut asking = Asking::begin(&self.shared, (key, word), lease_ms, passes, told);
        let Ok(outcome) = answer.await else { return Err(StoreError::Unknown) };
        asking.is_answered();
        match outcome {
            Outcome::Taken(fence) => Ok(Tried::Taken(fence)),
            Outcome::Lost(Lost::Held { lasts_us }) => Ok(Tried::Held { lasts: Some(Duration::from_micros(lasts_us)) }),
            Outcome::Lost(why) => Err(self.shared.why(why)),
            Outcome::Unfit(fault) => Err(StoreError::Faulted(Arc::new(fault))),
        }
    }

    fn pass(last: Fence, to_come: u32) -> Fence {
        // A node draws as many fences as there are passes, and the drawn number is the last of them.
        last.get().checked_sub(u64::from(to_come)).and_then(Fence::new).unwrap_or(last)
    }

    async fn renew(&self, _key: &str, word: &str, lease_ms: u32) -> Result<bool, StoreError> {
        self.shared.check_lease(lease_ms)?;
        let Some(hold) = self.shared.hold(word) else { return Ok(false) };
        renewal::renew(&self.shared, &hold, lease_ms).await
    }

    async fn release(&self, _key: &str, word: &str) -> Result<bool, StoreError> {
        let Some(hold) = self.shared.hold(word) else { return Ok(false) };
        ending::release(&self.shared, &hold).await
    }

    /// Sends no message: each try of this word registers the waiter at the nodes that refuse it.
    fn listen_by_trying(&self, key: &str, word: &str) -> Option<QuorumNotifications> {
        Some(QuorumNotifications::new(&self.shared, key, word))
    }

    async fn listen(&self, key: &str, word: &str) -> Option<QuorumNotifications> {
        Some(QuorumNotifications::new(&self.shared, key, word))
    }

    /// The fastest majority answers a release, and attempts in vain are undone later. This waits for the rest. Use a
    /// time-out: the store keeps trying to reach a node that does not answer until the lease is over.
    async fn quiet(&self) {
        // The wait fails only if the sender is gone, which lives as long as `self.shared`.
        let _ = self.shared.leaving.subscribe().wait_for(|leaving| *leaving == 0).await;
    }
}
