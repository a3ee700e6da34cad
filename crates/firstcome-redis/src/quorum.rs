//! Locks over several servers that know nothing of each other. The rules are those of [`firstcome_core::lock::quorum`], whose
//! docs say why holds do not overlap and fences grow; this carries the messages.
//!
//! | key | what |
//! |---|---|
//! | `fcq:node` | what a node knows of itself: whether it votes, since when it remembers, its counter |
//! | `fcq:l:KEY` | who has the lock here; ends with its lease |
//! | `fcq:w:KEY` | who waits and wants to be told, by when the waiting began; bounded, and gone a while after the last one came |
//! | `fcq:t:KEY` | who was told last, and has the next moment for himself |
//! | `fcq:i:PROCESS` | the channel of a process |
//!
//! Each message to a node is a task of its own, so what was begun is brought to its end when a caller goes away. A node
//! has a short time to answer; what it says later counts too, and a grant that comes too late is given back there.
//!
//! Each script is told the run of the server by the connection that carries it. A server that was started again is one that
//! has forgotten, no matter what it has read from its disk: its disk may be behind what it had said.

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
use firstcome_store::{Fault, FaultKind, StoreError};
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

/// So many holds are kept in mind before those are looked for that are over.
const HOLDS_SWEPT: usize = 1_024;

/// Whether the servers have been used before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum NodeSet {
    /// Perhaps. A server that remembers nothing waits before it votes.
    #[default]
    Known,
    /// Never: they vote at once. All must answer when the store opens. Has no effect if one of them votes already. Else,
    /// where they have all lost their memory, it lets two hold the same lock.
    New,
}

/// How a quorum behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuorumOptions {
    /// After so long a node that has not answered is not waited for: 50 ms without this. What it says later still counts.
    pub node_timeout: Duration,
    /// So long a node that has lost its memory does not vote: 60 s without this, whole ms. It is the longest lease, too. All
    /// who use the same servers need the same, which the servers check.
    pub rejoin_after: Duration,
    /// Whether the servers have been used before.
    pub set: NodeSet,
    /// How the connections behave. The time-out for an answer is how long an answer is late and not lost.
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
    /// For servers that have never been used for this: see [`NodeSet::New`].
    #[must_use]
    pub const fn new_set(mut self) -> Self {
        self.set = NodeSet::New;
        self
    }
}

/// What a quorum has done so far. Figures for benchmarks and metrics: no rule rests on them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuorumCounts {
    /// Servers.
    pub nodes: usize,
    /// Those with a connection now.
    pub nodes_up: usize,
    /// Locks that were had.
    pub granted: u64,
    /// Attempts that needed a second round, since the servers had drawn different numbers.
    pub written_back: u64,
    /// Nodes that gave a lock when it was too late, and were told so.
    pub undone_late: u64,
    /// Nodes that vote again after this process has told them what others know.
    pub rejoined: u64,
    /// Commands handed over to all servers.
    pub requests: u64,
    /// Messages from them.
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

/// A message that is under way for longer is not reckoned with: what it leaves ends with its lease.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// What all messages share.
struct Shared {
    quorum: Quorum,
    nodes: Box<[Node]>,
    /// 64 random bits, of which no other process has the same.
    client: u64,
    node_timeout: Duration,
    rejoin_ms: u32,
    runtime: Handle,
    /// The highest fence that was seen.
    seen: AtomicU64,
    attempts: AtomicU64,
    /// What is held, or asked for, by the word of the acquisition.
    holds: Mutex<BTreeMap<Box<str>, Arc<Attempt>>>,
    /// At how many of them to look which are over.
    sweep_at: Mutex<usize>,
    waiters: Waiters,
    /// How many messages are under way that give something back.
    leaving: watch::Sender<usize>,
    figures: Figures,
}

/// Locks of which each belongs to whom a majority of servers has given it.
///
/// # What it survives
/// - The loss of a minority, for good or for a while; servers that stand still, and answers that come late.
/// - A server that comes back empty or with an older memory: it does not vote for [`QuorumOptions::rejoin_after`], and then
///   with a counter above all fences that were told.
/// - A holder that stands still: a process that comes after has a higher fence.
///
/// # What it does not
/// - A majority that is away: no process gets a lock. A majority that has forgotten: no process gets one for `rejoin_after`.
/// - Clocks of servers that jump, or run apart by more than 1 %: two may believe that they have the lock. Fences grow all the
///   same in the order in which grants follow each other, so what checks them refuses the one that is behind: unless the clock
///   that jumps ahead is that of a server which has forgotten, and waits to vote.
/// - A server that says it wrote and has not. Servers need `maxmemory-policy noeviction` (looked at), and no replica may take
///   the place of one without a restart.
pub struct QuorumStore {
    shared: Arc<Shared>,
    listening: Vec<AbortHandle>,
}

impl QuorumStore {
    /// Connects to all servers at once, and looks whether they will do. A majority must answer, with [`NodeSet::New`] all;
    /// the others are tried again in the background. Two connections to each.
    ///
    /// Takes as long as [`super::Link::open`]. Call within a Tokio runtime, which then carries the messages.
    pub async fn open(urls: &[impl AsRef<str>], options: QuorumOptions) -> Result<Self, OpenError> {
        let wrong = |says: &str| OpenError::Quorum { says: says.to_owned() };
        let quorum = Quorum::of(urls.len()).ok_or_else(|| wrong(&format!("they are {}", urls.len())))?;
        if let Some(url) = urls.iter().find(|url| !url.as_ref().starts_with("redis://")) {
            return Err(wrong(&format!("{} is not the address of one server", scheme_of(url.as_ref()))));
        }
        if options.node_timeout.as_millis() == 0 {
            return Err(wrong("node_timeout must be at least 1 ms"));
        }
        let rejoin_ms = u32::try_from(options.rejoin_after.as_millis()).unwrap_or(u32::MAX);
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&rejoin_ms) {
            return Err(wrong("rejoin_after must be 100 ms to 24 h"));
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

    /// What it has done so far. No request.
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

    /// How long the lock of this word is certainly had from now on, as far as this process knows; `None` if it is not. No
    /// request.
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

/// An address may hold a password: only its scheme is shown.
fn scheme_of(url: &str) -> &str {
    url.split_once("://").map_or("a text without ://", |(scheme, _)| scheme)
}

/// Counts on, and never back.
#[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
fn now() -> Instant {
    Instant::now()
}

/// Whole µs since then.
fn elapsed_us(since: Instant) -> u64 {
    u64::try_from(now().saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX)
}

/// When a lease that is asked for now is over on every node, unless it is under way for longer than anything should be.
fn surely_over(lease_ms: u32) -> Instant {
    let lease = Duration::from_millis(u64::from(lease_ms));
    now() + lease + lease / 100 + UNDER_WAY
}

fn unavailable(says: String) -> StoreError {
    StoreError::Unavailable(Arc::new(Fault::new(FaultKind::Unreachable, says)))
}

/// Something that is given back. Counted while it lives.
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

    /// Keeps a hold in mind, and forgets those whose time is over. What was kept before by the same word.
    fn keep(&self, word: &str, attempt: &Arc<Attempt>) -> Option<Arc<Attempt>> {
        let mut holds = self.holds.lock();
        let before = holds.insert(word.into(), Arc::clone(attempt));
        if *self.sweep_at.lock() <= holds.len() {
            let all: Vec<_> = holds.values().cloned().collect();
            // Not while the map is locked: who has a course may want the map.
            drop(holds);
            let now = now();
            all.iter().filter(|hold| hold.course.lock().over_at <= now).for_each(|hold| self.forget(hold));
            *self.sweep_at.lock() = HOLDS_SWEPT.max(2 * self.holds.lock().len());
        }
        before
    }

    /// Forgets a hold, unless another attempt has taken its place.
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
        Err(StoreError::Unavailable(Arc::new(Fault::new(FaultKind::Unfit, says))))
    }

    /// What is said of an attempt that too few nodes could answer.
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

/// A take is one message to each node, and a second one to those that drew a lower number than others. A renewal and a release
/// are one to each. All are answered when enough nodes have, within the time of a node, or two of them for a take.
///
/// An attempt that failed is undone by this store itself, also after the caller is gone: an error of a take is never
/// [`StoreError::Unknown`] while the runtime lives.
impl KeyStore for QuorumStore {
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
            Outcome::Unfit(fault) => Err(StoreError::Unavailable(Arc::new(fault))),
        }
    }

    fn pass(last: Fence, to_come: u32) -> Fence {
        // What was drawn is above as many as there are passes.
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

    /// No message: each try of this word leaves word with the nodes that refuse it.
    fn listen_by_trying(&self, key: &str, word: &str) -> Option<QuorumNotifications> {
        Some(QuorumNotifications::new(&self.shared, key, word))
    }

    async fn listen(&self, key: &str, word: &str) -> Option<QuorumNotifications> {
        Some(QuorumNotifications::new(&self.shared, key, word))
    }

    /// A release is answered by the fastest majority, and what was asked for in vain is given back later: this is the rest.
    /// With a time-out, since a node that does not answer is told until the lease is over.
    async fn quiet(&self) {
        // An error would mean that the store is gone.
        let _ = self.shared.leaving.subscribe().wait_for(|leaving| *leaving == 0).await;
    }
}
