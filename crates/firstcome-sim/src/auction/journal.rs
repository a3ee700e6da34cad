//! A disk that keeps the rows of members, listings and bids as they come, and fails where the seed says so. It judges
//! nothing.

use super::history::{AuctionReply, Event, Events, OperationId};
use crate::journal::CommitFault;
use crate::rng::Rng;
use firstcome_core::auction::{Bid, ListingStanding, PlacedBid};
use firstcome_core::coupon::{Attributes, Serial};
use firstcome_core::id::RequestId;
use firstcome_core::points::{Record, Wallet};
use firstcome_core::time::Timestamp;
use firstcome_store::StoreError;
use firstcome_store::edge::{Clock, ManualClock};
use firstcome_store::embedded::journal::{Change, CouponId, Journal, JournalError, ListingId, MemberId, Rows};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// A request under way, to be polled by hand.
pub type Call = Pin<Box<dyn Future<Output = Result<AuctionReply, StoreError>> + Send>>;

/// The row of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingRow {
    /// How it stands.
    pub standing: ListingStanding,
    /// The request that bought it.
    pub sale_request: Option<RequestId>,
}

/// The row of a bid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BidRow {
    /// Whose.
    pub member: MemberId,
    /// The bid.
    pub placed: PlacedBid,
    /// The request.
    pub request: Option<RequestId>,
}

/// The row of a movement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordRow {
    /// About what.
    pub listing: Option<ListingId>,
    /// The movement.
    pub record: Record,
    /// The request.
    pub request: Option<RequestId>,
}

/// Everything that is stored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stored {
    /// What each member has.
    pub members: BTreeMap<MemberId, Wallet>,
    /// How each listing stands.
    pub listings: BTreeMap<ListingId, ListingRow>,
    /// The bids.
    pub bids: BTreeMap<(ListingId, u32), BidRow>,
    /// The movements.
    pub records: BTreeMap<(MemberId, u64), RecordRow>,
}

impl Stored {
    /// Takes in one change, as the statement of a table would.
    pub fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::Bid { id, member, placed, request } => {
                self.bids.insert((id, placed.bid.number), BidRow { member, placed, request });
            }
            Change::Moved { id, listing, record, request } => {
                self.records.insert((id, record.number), RecordRow { listing, record, request });
            }
            Change::Member { id, wallet } => {
                self.members.insert(id, *wallet);
            }
            Change::Listing { id, standing, sale_request } => {
                self.listings.insert(id, ListingRow { standing: *standing, sale_request });
            }
            // The world of auctions has nothing else.
            _ => {}
        }
    }
}

/// One commit that is on disk.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The clock when it was judged and written.
    pub at: Timestamp,
    /// Since when it is in force, by event and clock: a store that does not know how its commit ended goes on under
    /// what was before until it is started again.
    pub in_force: (Event, Timestamp),
    /// Whether the store knows that it is on disk.
    pub is_known: bool,
    /// What was stored.
    pub changes: Vec<Change>,
}

/// A caller that comes in the middle of a commit.
pub struct Visitor {
    /// Which operation.
    pub operation: OperationId,
    /// The request.
    pub call: Call,
    /// Whether it comes when the rows are written already, and the store does not know it yet.
    pub comes_late: bool,
    /// The answer, if it came in the middle of the commit.
    pub answer: Option<Result<AuctionReply, StoreError>>,
    /// Whether the request has begun.
    pub begun: bool,
}

/// What a disk holds and does.
pub struct Disk {
    /// What survives a crash.
    pub stored: Stored,
    /// How it came to be: every commit that is on disk, in order.
    pub log: Vec<Commit>,
    /// What was there before a commit of which only a part is written.
    torn: Option<Box<Stored>>,
    /// Commits that fail, per thousand. Zero after the heal.
    pub fault_per_mille: u64,
    /// Whether the process died in a commit.
    pub crashed: bool,
    /// How the commits since the last look went.
    pub commits: Vec<&'static str>,
    /// Who comes in the middle of the next commit.
    pub visitors: Vec<Visitor>,
    clock: Arc<ManualClock>,
    events: Events,
    rng: Rng,
}

impl Disk {
    /// Puts the disk in order for a new life: of a torn commit nothing stays, and what is written is in force.
    pub fn reopen(&mut self) {
        if let Some(before) = self.torn.take() {
            self.stored = *before;
        }
        let in_force = (self.events.next(), self.clock.now());
        if let Some(last) = self.log.last_mut().filter(|last| !last.is_known) {
            (last.in_force, last.is_known) = (in_force, true);
        }
        self.crashed = false;
        self.visitors.clear();
    }

    /// Writes a commit, or as much of it as the fault says. Whether all of it is there.
    fn write(&mut self, fault: CommitFault, changes: &[Change]) -> bool {
        // The process dies in the middle of what it writes.
        let torn = fault == CommitFault::CrashBefore && self.rng.chance(500);
        self.commits.push(if torn { "crash in the middle" } else { fault.name() });
        if torn {
            self.torn = Some(Box::new(self.stored.clone()));
            let written = self.rng.index(changes.len());
            changes[..written].iter().for_each(|change| self.stored.apply(change));
        }
        if fault.keeps() {
            changes.iter().for_each(|change| self.stored.apply(change));
        }
        fault.keeps()
    }
}

/// A handle to the disk: what the store gets as its journal and its rows.
#[derive(Clone)]
pub struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    /// An empty disk.
    pub fn new(rng: Rng, fault_per_mille: u64, clock: Arc<ManualClock>, events: Events) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            stored: Stored::default(),
            log: Vec::new(),
            torn: None,
            fault_per_mille,
            crashed: false,
            commits: Vec::new(),
            visitors: Vec::new(),
            clock,
            events,
            rng,
        })))
    }

    /// The disk itself. No client holds it across a wait.
    pub fn lock(&self) -> MutexGuard<'_, Disk> {
        // A panic while it was held is a broken invariant that has ended that run already.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lets visitors in. The disk is not held meanwhile: they may read it.
    fn receive_visitors(&self, late: bool) {
        let mut visitors = std::mem::take(&mut self.lock().visitors);
        for visitor in visitors.iter_mut().filter(|visitor| !visitor.begun && visitor.comes_late == late) {
            visitor.begun = true;
            if let Poll::Ready(answer) = visitor.call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                visitor.answer = Some(answer);
            }
        }
        self.lock().visitors = visitors;
    }
}

impl Journal for SharedDisk {
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        self.receive_visitors(false);
        let (fault, is_written) = {
            let mut disk = self.lock();
            // Once dead it stays dead: only a restart brings a new life.
            assert!(!disk.crashed, "a dead process commits nothing");
            let per_mille = disk.fault_per_mille;
            let fault = CommitFault::draw(&mut disk.rng, per_mille);
            (fault, disk.write(fault, changes))
        };
        self.receive_visitors(true);
        let mut disk = self.lock();
        if is_written {
            let (at, event) = (disk.clock.now(), disk.events.next());
            let is_known = fault == CommitFault::Clean;
            disk.log.push(Commit { at, in_force: (event, at), is_known, changes: changes.to_vec() });
        }
        disk.crashed = fault.kills();
        if fault == CommitFault::Clean { Ok(()) } else { Err(fault.error()) }
    }
}

impl Rows for SharedDisk {
    fn attributes(&self, _: CouponId, _: Serial, _: Serial) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        Ok(BTreeMap::new())
    }

    fn bids(&self, listing: ListingId, after: u32, count: usize) -> Result<Vec<Bid>, StoreError> {
        let disk = self.lock();
        let later = disk.stored.bids.range((listing, after.saturating_add(1))..=(listing, u32::MAX));
        Ok(later.take(count).map(|(_, row)| row.placed.bid.clone()).collect())
    }

    fn records(&self, member: MemberId, after: u64, count: usize) -> Result<Vec<Record>, StoreError> {
        let disk = self.lock();
        let later = disk.stored.records.range((member, after.saturating_add(1))..=(member, u64::MAX));
        Ok(later.take(count).map(|(_, row)| row.record.clone()).collect())
    }
}
