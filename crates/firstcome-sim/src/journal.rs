//! A disk that keeps rows, and fails where the seed says so.
//!
//! It judges nothing: it keeps each commit of the store as it came, so that the invariants can find it.

use crate::history::{Event, Events, OperationId, Vocabulary};
use crate::primitive::Primitive;
use crate::rng::Rng;
use firstcome_core::auction::Bid;
use firstcome_core::coupon::{Attributes, Serial};
use firstcome_core::id::RoomName;
use firstcome_core::points::Record;
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::edge::{Clock, ManualClock};
use firstcome_store::embedded::StoredRoom;
use firstcome_store::embedded::journal::{
    Change, CouponId, Journal, JournalError, ListingId, MemberId, Outcome, RoomId, Rows,
};
use firstcome_store::{Fault, FaultKind, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// What the store answers to a request.
pub type Answer<V> = Result<<V as Vocabulary>::Reply, StoreError>;

/// A request under way, which the world polls by hand.
pub type Call<V> = Pin<Box<dyn Future<Output = Answer<V>> + Send>>;

/// The rows of a primitive.
pub trait Tables: Clone + Default + Send {
    /// Takes in one change, as the statement of a table would.
    fn apply(&mut self, change: &Change);

    /// The attributes of the claims `first..=last` that have some.
    fn attributes(&self, _coupon: CouponId, _first: Serial, _last: Serial) -> BTreeMap<Serial, Attributes> {
        BTreeMap::new()
    }

    /// The bids of a listing after `after`, at most `count`.
    fn bids(&self, _listing: ListingId, _after: u32, _count: usize) -> Vec<Bid> {
        Vec::new()
    }

    /// The records of a member after `after`, at most `count`.
    fn records(&self, _member: MemberId, _after: u64, _count: usize) -> Vec<Record> {
        Vec::new()
    }

    /// A room as it is stored.
    fn room(&self, id: RoomId, _hasher: &RandomState, _now: Now) -> Result<StoredRoom, String> {
        Err(format!("room {} is not stored", id.0))
    }
}

/// How a commit can go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitFault {
    /// It succeeds.
    Clean,
    /// It fails by a cause that may pass, and nothing is stored. The next one may succeed.
    Refused,
    /// It fails, and says that nothing is stored.
    Nothing,
    /// It fails with unknown outcome, and nothing is stored.
    UnknownLost,
    /// It fails with unknown outcome, and all is stored.
    UnknownKept,
    /// The process dies before all is stored.
    CrashBefore,
    /// The process dies after all is stored and before any client is told.
    CrashAfter,
}

impl CommitFault {
    const FAULTS: [Self; 7] = [
        // Twice as often as the others: the store goes on after it.
        Self::Refused,
        Self::Refused,
        Self::Nothing,
        Self::UnknownLost,
        Self::UnknownKept,
        Self::CrashBefore,
        Self::CrashAfter,
    ];

    /// The fault in words, for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Refused => "refused for a while",
            Self::Nothing => "failed, nothing stored",
            Self::UnknownLost => "outcome unknown, lost",
            Self::UnknownKept => "outcome unknown, kept",
            Self::CrashBefore => "crash before",
            Self::CrashAfter => "crash after",
        }
    }

    /// Draws how a commit goes that fails with this chance per thousand.
    fn draw(rng: &mut Rng, fault_per_mille: u64) -> Self {
        if rng.chance(fault_per_mille) { *rng.pick(&Self::FAULTS) } else { Self::Clean }
    }

    /// What the store is told.
    fn result(self) -> Result<(), JournalError> {
        let (outcome, kind) = match self {
            Self::Clean => return Ok(()),
            Self::Refused => (Outcome::Passing, FaultKind::Busy),
            Self::Nothing => (Outcome::Nothing, FaultKind::Io),
            _ => (Outcome::Unknown, FaultKind::Io),
        };
        Err(JournalError { outcome, fault: Fault { kind, detail: self.name().into() } })
    }

    /// Whether the process dies of it.
    const fn kills(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }

    /// Whether what was committed is on disk afterwards.
    const fn keeps(self) -> bool {
        matches!(self, Self::Clean | Self::UnknownKept | Self::CrashAfter)
    }
}

/// One commit that is on disk.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The clocks when it was written.
    pub at: Now,
    /// Since when it is in force, by event and wall clock. A store that does not know how its commit ended goes on under
    /// what was before until it is started again.
    pub in_force: (Event, Timestamp),
    /// Whether the store knows that it is on disk.
    pub is_known: bool,
    /// What was stored.
    pub changes: Vec<Change>,
}

/// A caller that comes in the middle of a commit, when memory knows more than the disk.
pub struct Visitor<P: Primitive> {
    /// Which operation.
    pub operation: OperationId,
    /// What it is about.
    pub name: P::Name,
    /// The request.
    pub call: Call<P>,
    /// Whether it comes when the rows are written already, and the store does not know it yet.
    pub comes_late: bool,
    /// The answer, if it came in the middle of the commit, and how many claims were durable at that moment.
    pub answer: Option<(Answer<P>, u32)>,
    /// Whether the request has begun.
    pub begun: bool,
}

/// What a disk holds and does. The world and the store's journal share it.
pub struct Disk<P: Primitive> {
    /// What survives a crash.
    pub stored: P::Stored,
    /// How it came to be: every commit that is on disk, in order.
    pub log: Vec<Commit>,
    /// Commits that fail, per thousand. Zero after the heal.
    pub fault_per_mille: u64,
    /// Whether the process died in a commit.
    pub crashed: bool,
    /// The rooms that the store has read again after a commit that was refused, since the world last looked.
    pub read_again: BTreeSet<RoomName>,
    /// How the commits went since the world last looked.
    pub commits: Vec<&'static str>,
    /// The callers that come in the middle of the next commit.
    pub visitors: Vec<Visitor<P>>,
    /// What was there before a commit of which only a part is written.
    torn: Option<Box<P::Stored>>,
    clock: Arc<ManualClock>,
    events: Events,
    rng: Rng,
}

impl<P: Primitive> Disk<P> {
    /// Puts the disk in order for a new life: of a torn commit nothing stays, and what is written is in force.
    pub fn reopen(&mut self) {
        if let Some(before) = self.torn.take() {
            self.stored = *before;
        }
        let (_, in_force) = self.present();
        if let Some(last) = self.log.last_mut().filter(|last| !last.is_known) {
            (last.in_force, last.is_known) = (in_force, true);
        }
        self.crashed = false;
        self.read_again.clear();
    }

    fn present(&self) -> (Now, (Event, Timestamp)) {
        let now = self.clock.both();
        (now, (P::event(&self.events, now), now.wall))
    }

    /// Writes a commit, or as much of it as the fault says.
    fn write(&mut self, fault: CommitFault, changes: &[Change]) {
        // The process dies in the middle of what it writes.
        let is_torn = P::WRITES_IN_STEPS && fault == CommitFault::CrashBefore && self.rng.chance(500);
        self.commits.push(if is_torn { "crash in the middle" } else { fault.name() });
        if is_torn {
            self.torn = Some(Box::new(self.stored.clone()));
            let written = self.rng.index(changes.len());
            changes[..written].iter().for_each(|change| self.stored.apply(change));
        }
        if fault.keeps() {
            changes.iter().for_each(|change| self.stored.apply(change));
        }
    }
}

/// A handle to the disk: what the store gets as its journal and its rows.
pub struct SharedDisk<P: Primitive>(Arc<Mutex<Disk<P>>>);

impl<P: Primitive> Clone for SharedDisk<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Primitive> SharedDisk<P> {
    /// An empty disk.
    pub fn new(rng: Rng, fault_per_mille: u64, clock: Arc<ManualClock>, events: Events) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            stored: P::Stored::default(),
            log: Vec::new(),
            fault_per_mille,
            crashed: false,
            read_again: BTreeSet::new(),
            commits: Vec::new(),
            visitors: Vec::new(),
            torn: None,
            clock,
            events,
            rng,
        })))
    }

    /// The disk itself. There is one thread, and it never waits while it holds the disk.
    pub fn lock(&self) -> MutexGuard<'_, Disk<P>> {
        // A panic while the disk was held is a broken invariant, which has ended that run already.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lets visitors in. The disk is not held meanwhile: they may read it.
    fn receive_visitors(&self, late: bool) {
        let mut visitors = std::mem::take(&mut self.lock().visitors);
        for visitor in visitors.iter_mut().filter(|visitor| !visitor.begun && visitor.comes_late == late) {
            visitor.begun = true;
            if let Poll::Ready(answer) = visitor.call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                visitor.answer = Some((answer, P::durable(&self.lock().stored, &visitor.name)));
            }
        }
        self.lock().visitors = visitors;
    }
}

impl<P: Primitive> Journal for SharedDisk<P> {
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        self.receive_visitors(false);
        let fault = {
            let mut disk = self.lock();
            // Once dead it stays dead: only a restart brings a new life.
            assert!(!disk.crashed, "a dead process commits nothing");
            let per_mille = disk.fault_per_mille;
            let fault = CommitFault::draw(&mut disk.rng, per_mille);
            disk.write(fault, changes);
            fault
        };
        self.receive_visitors(true);
        let mut disk = self.lock();
        if fault.keeps() {
            let (at, in_force) = disk.present();
            disk.log.push(Commit { at, in_force, is_known: fault == CommitFault::Clean, changes: changes.to_vec() });
        }
        disk.crashed = fault.kills();
        fault.result()
    }

    fn room(&mut self, id: RoomId, hasher: &RandomState, now: Now) -> Result<StoredRoom, Fault> {
        let mut disk = self.lock();
        let found = disk.stored.room(id, hasher, now);
        let found = found.map_err(|detail| Fault { kind: FaultKind::Damaged, detail })?;
        disk.read_again.insert(found.name.clone());
        Ok(found)
    }
}

impl<P: Primitive> Rows for SharedDisk<P> {
    fn attributes(
        &self,
        coupon: CouponId,
        first: Serial,
        last: Serial,
    ) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        Ok(self.lock().stored.attributes(coupon, first, last))
    }

    fn bids(&self, listing: ListingId, after: u32, count: usize) -> Result<Vec<Bid>, StoreError> {
        Ok(self.lock().stored.bids(listing, after, count))
    }

    fn records(&self, member: MemberId, after: u64, count: usize) -> Result<Vec<Record>, StoreError> {
        Ok(self.lock().stored.records(member, after, count))
    }
}
