//! Keeps one coupon as this node knows it.

use super::coupon::{ASK_MAX, Spoken};
use super::database::{ClaimRow, CouponRow};
use super::outbox::{Entrant, Notice, Tag, Verdict};
use super::read_batch::LOOKS_MAX;
use super::sequencer::Keys;
use super::writer_lease::{LeaseChange, WriterLease};
use firstcome_core::coupon::stream::Known;
use firstcome_core::coupon::{Acknowledge, Issued};
use firstcome_core::id::RequestId;
use firstcome_core::time::Timestamp;
use firstcome_store::Claimed;
use firstcome_store::StoreError;
use firstcome_store::batcher::Batcher;
use firstcome_store::edge::draw_hasher;
use firstcome_store::trace::{self, StageKind};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Claims that may wait for the sequencer in one node, for one coupon. Protects memory.
const CLAIMS_WAITING_MAX: usize = 65_536;
/// Looks at SQL that may wait.
const LOOKS_WAITING_MAX: usize = 65_536;

/// A claim that waits for the sequencer.
pub(super) struct Asking {
    pub(super) entrant: Entrant,
    pub(super) tell: oneshot::Sender<Result<Spoken, StoreError>>,
}

/// A caller that wants to know what SQL holds.
pub(super) struct ReadRequest {
    pub(super) user: Option<Box<str>>,
    pub(super) request: Option<RequestId>,
    pub(super) tell: oneshot::Sender<Result<StoredCoupon, StoreError>>,
}

/// What SQL holds.
#[derive(Clone)]
pub(super) struct StoredCoupon {
    pub(super) row: CouponRow,
    /// Of the user.
    pub(super) claim: Option<ClaimRow>,
    /// Of the request: the body, the claim, and whose it is.
    pub(super) request: Option<(u64, Issued, Box<str>)>,
    pub(super) now: Timestamp,
}

/// A coupon as this node knows it.
pub(super) struct CouponState {
    pub(super) keys: Keys,
    /// As it was last seen in SQL.
    row: RwLock<CouponRow>,
    pub(super) asking: Batcher<Asking>,
    pub(super) looking: Batcher<ReadRequest>,
    /// Those whose tickets SQL does not have yet.
    waiting: Mutex<HashMap<Tag, Waiting, RandomState>>,
    /// How many times the sequencer has said that this node drains.
    called: AtomicU64,
    is_draining: AtomicBool,
    /// How its writes to SQL go.
    turn: Mutex<WriterLease>,
    /// What callers here were told of before SQL has it.
    placed: Mutex<Option<Placed>>,
    /// Held while the sequencer is looked at or rebuilt.
    pub(super) mending: tokio::sync::Mutex<()>,
    /// See [`CouponState::is_stopped`].
    stopped: AtomicBool,
    /// What the connection was when the sequencer was last seen to be whole.
    pub(super) trusted: AtomicU64,
}

/// A caller whose ticket SQL does not have yet.
struct Waiting {
    tell: oneshot::Sender<Verdict>,
    since: Instant,
}

/// Tickets that callers were told of before SQL has them.
#[derive(Clone, Copy)]
struct Placed {
    /// A generation, and the last such ticket of it.
    last: (i64, u64),
    /// An earlier one, and since when it is told. While SQL does not have it, the oldest one is as old or older.
    watched: ((i64, u64), Instant),
}

/// Claims that SQL does not have yet, as far as a node knows of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Unwritten {
    pub(super) count: u64,
    /// How long the oldest one waits at least.
    pub(super) age: Duration,
}

impl Unwritten {
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, age: self.age.max(other.age) }
    }
}

impl std::iter::Sum for Unwritten {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::and)
    }
}

/// Whether a coupon stands still in this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Stopped,
    GoesOn,
}

/// Takes a tag out of the waiting when a caller that waits has gone.
pub(super) struct PendingClaim<'a> {
    state: &'a CouponState,
    tag: Tag,
    pub(super) verdict: oneshot::Receiver<Verdict>,
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        self.state.waiting.lock().remove(&self.tag);
    }
}

/// A write to SQL under way. One that is dropped has failed.
pub(super) struct Writing<'a> {
    state: &'a CouponState,
    is_taken: bool,
}

impl Writing<'_> {
    /// SQL has taken it, or has said what it holds instead.
    pub(super) fn taken(mut self) {
        self.is_taken = true;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.state.turn.lock().end(self.is_taken);
    }
}

impl CouponState {
    pub(super) fn new(row: CouponRow) -> Self {
        Self {
            keys: Keys { coupon: row.id },
            row: RwLock::new(row),
            asking: Batcher::new(CLAIMS_WAITING_MAX, ASK_MAX, 2),
            looking: Batcher::new(LOOKS_WAITING_MAX, LOOKS_MAX, 1),
            waiting: Mutex::new(HashMap::with_hasher(draw_hasher())),
            called: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            turn: Mutex::default(),
            placed: Mutex::default(),
            mending: tokio::sync::Mutex::default(),
            stopped: AtomicBool::new(false),
            trusted: AtomicU64::new(u64::MAX),
        }
    }

    /// The coupon as it was last seen in SQL.
    pub(super) fn row(&self) -> CouponRow {
        self.row.read().clone()
    }

    /// Notes for traces how long a script took that judged so many claims.
    pub(super) fn note_script(&self, lasted: Duration, claims: usize) {
        if trace::is_on() {
            trace::note(StageKind::Script, self.row.read().name.as_str(), lasted, claims);
        }
    }

    /// The version of its settings there.
    pub(super) fn version(&self) -> i64 {
        self.row.read().version
    }

    /// Whether the coupon is over as far as this node has seen. Then the database alone answers.
    pub(super) fn is_over(&self) -> bool {
        self.row.read().is_over()
    }

    /// Whether claims that were judged by this version of its settings are told before SQL holds them.
    pub(super) fn tells_early(&self, version: i64) -> bool {
        let row = self.row.read();
        row.version == version && row.settings.acknowledge == Acknowledge::Placed
    }

    /// A claim with what its holder shows.
    pub(super) fn claimed(&self, issued: Issued, user: &str) -> Claimed {
        // From the row as it was last seen: from which serial on codes are bound may have changed with the database.
        Claimed { issued, code: self.row.read().voucher_key.code(issued, user) }
    }

    /// Which generation of the sequencer counts, and how far SQL has written it.
    pub(super) fn position(&self) -> (i64, u64) {
        let row = self.row.read();
        (row.generation, row.position)
    }

    /// Keeps what was seen in SQL, if that is newer than what is known and lacks nothing of it. What lacks something is kept nowhere:
    /// [`super::back`] looks into it.
    pub(super) fn learn(&self, seen: &CouponRow) {
        let mut row = self.row.write();
        if seen.is_since(&row) && !seen.at().lacks(&row.at().at) {
            row.clone_from(seen);
        }
    }

    /// What this node knows to be in SQL.
    pub(super) fn known(&self) -> Known {
        self.row.read().at().at
    }

    /// Whether SQL lacks what it acknowledged, as far as this node has seen: then nothing is issued.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Stops the coupon in this node, or lets it go on. Returns whether it was stopped before.
    pub(super) fn stop(&self, is_stopped: Stop) -> bool {
        self.stopped.swap(is_stopped == Stop::Stopped, Ordering::SeqCst)
    }

    /// Registers a caller that will wait for a verdict.
    pub(super) fn wait(&self, tag: Tag) -> PendingClaim<'_> {
        let (tell, verdict) = oneshot::channel();
        self.waiting.lock().insert(tag, Waiting { tell, since: Instant::now() });
        PendingClaim { state: self, tag, verdict }
    }

    /// Tells verdicts to those who wait here.
    pub(super) fn tell(&self, verdicts: impl IntoIterator<Item = (Tag, Verdict)>) {
        let mut waiting = self.waiting.lock();
        for (tag, verdict) in verdicts {
            if let Some(caller) = waiting.remove(&tag) {
                // A caller that has gone does not hear it.
                let _ = caller.tell.send(verdict);
            }
        }
    }

    /// Takes in what another node has written.
    pub(super) fn hear(&self, notice: &Notice) {
        self.tell(notice.verdicts.iter().copied());
    }

    /// Notes that the sequencer wants this node to drain; true if it is to begin.
    pub(super) fn call(&self) -> bool {
        self.called.fetch_add(1, Ordering::SeqCst);
        !self.is_draining.swap(true, Ordering::SeqCst)
    }

    /// How many calls there were until now.
    pub(super) fn calls(&self) -> u64 {
        self.called.load(Ordering::SeqCst)
    }

    /// Whether anybody drains in this node.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Notes that a caller was told of a ticket that SQL does not have yet; true if no caller looks after such.
    pub(super) fn place(&self, generation: i64, ticket: u64) -> bool {
        let mut placed = self.placed.lock();
        let is_first = placed.is_none();
        let told = (generation, ticket);
        let known = placed.get_or_insert_with(|| Placed { last: told, watched: (told, Instant::now()) });
        known.last = known.last.max(told);
        if Self::has(self.position(), known.watched.0) {
            known.watched = (told, Instant::now());
        }
        is_first
    }

    /// Whether SQL has a ticket at this position, or no caller can write it any more.
    fn has((generation, position): (i64, u64), (of, ticket): (i64, u64)) -> bool {
        of < generation || ticket <= position
    }

    /// Claims of callers here that SQL does not have yet.
    pub(super) fn unwritten(&self) -> Unwritten {
        let waiting = self.waiting.lock();
        let oldest = waiting.values().map(|caller| caller.since).min();
        let asking =
            Unwritten { count: waiting.len() as u64, age: oldest.map_or(Duration::ZERO, |since| since.elapsed()) };
        drop(waiting);
        let position = self.position();
        let told = match *self.placed.lock() {
            Some(Placed { last, watched: (watched, since) }) if !Self::has(position, last) => {
                // Tickets are drawn one after the other, for callers at all nodes.
                let first = if last.0 == position.0 { position.1 } else { 0 };
                let age = if Self::has(position, watched) { Duration::ZERO } else { since.elapsed() };
                Unwritten { count: last.1 - first, age }
            }
            _ => Unwritten::default(),
        };
        asking.and(told)
    }

    /// Whether SQL has all that was told, or no caller can write it any more: then no caller looks after it from now on.
    pub(super) fn is_all_written(&self) -> bool {
        let mut placed = self.placed.lock();
        let is_over = placed.is_none_or(|placed| Self::has(self.position(), placed.last));
        if is_over {
            *placed = None;
        }
        is_over
    }

    /// Whether this node may be the one to write to SQL. Tells the log when that changes.
    pub(super) fn may_write(&self) -> bool {
        let mut turn = self.turn.lock();
        let may_write = turn.may_write(Instant::now());
        let change = turn.change(may_write);
        drop(turn);
        if let Some(change) = change {
            let row = self.row.read();
            let (coupon, generation) = (&row.name, row.generation);
            match change {
                LeaseChange::Left => {
                    tracing::warn!(%coupon, generation, "the database takes no writes of this node: others may have the writer lease");
                }
                LeaseChange::Wanted => tracing::info!(%coupon, generation, "this node may have the writer lease again"),
            }
        }
        may_write
    }

    /// Notes that this node begins to write.
    pub(super) fn write(&self) -> Writing<'_> {
        self.turn.lock().begin(Instant::now());
        Writing { state: self, is_taken: false }
    }

    /// A caller that drained has gone in the middle: the next call begins again.
    pub(super) fn abandon_draining(&self) {
        self.is_draining.store(false, Ordering::SeqCst);
    }

    /// Ends the draining, unless there was a call since; true if it has ended.
    pub(super) fn rest(&self, calls: u64) -> bool {
        self.is_draining.store(false, Ordering::SeqCst);
        self.calls() == calls || self.is_draining.swap(true, Ordering::SeqCst)
    }
}
