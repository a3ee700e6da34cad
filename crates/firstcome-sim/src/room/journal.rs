//! A disk that keeps the rows of rooms as they come, and fails where the seed says so. It judges nothing.

use super::history::{OperationId, RoomStepReply};
use super::recovery;
use crate::journal::CommitFault;
use crate::rng::Rng;
use firstcome_core::coupon::{Attributes, Serial};
use firstcome_core::id::RoomName;
use firstcome_core::room::{self, Departure, Hold, Join, RoomSettings, Slot};
use firstcome_core::time::Now;
use firstcome_store::edge::{Clock, ManualClock};
use firstcome_store::embedded::StoredRoom;
use firstcome_store::embedded::journal::{Change, CouponId, Journal, JournalError, PassSecret, RoomId, RoomPut, Rows};
use firstcome_store::{Fault, FaultKind, StoreError, TicketKey};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// A request under way, to be polled by hand.
pub type Call = Pin<Box<dyn Future<Output = Result<RoomStepReply, StoreError>> + Send>>;

/// The row of one ticket.
#[derive(Clone, PartialEq, Debug)]
pub struct TicketRow {
    /// Whose it is, and of which request.
    pub join: Join,
    /// How it went, if it is gone.
    pub gone: Option<Departure>,
}

/// The rows of one room.
#[derive(Clone, Debug)]
pub struct RoomRows {
    /// Its name.
    pub name: RoomName,
    /// The settings that were stored last.
    pub settings: RoomSettings,
    /// The secret of its tickets.
    pub ticket_key: TicketKey,
    /// Numbers before this one are void.
    pub first: u32,
    /// How far the line is.
    pub reached: u32,
    /// Whether it is closed.
    pub closed: bool,
    /// Its tickets by number.
    pub tickets: BTreeMap<u32, TicketRow>,
    /// Its slots by number.
    pub slots: BTreeMap<u32, Slot>,
}

/// Everything that is stored.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The rooms.
    pub rooms: BTreeMap<RoomId, RoomRows>,
    /// What both clocks showed.
    pub clock: Option<Now>,
    /// The secrets of passes.
    pub secrets: Vec<PassSecret>,
}

impl Stored {
    /// The rows of a room by name.
    pub fn room(&self, name: &RoomName) -> Option<&RoomRows> {
        self.rooms.values().find(|rows| rows.name == *name)
    }

    /// Takes in one change, as the statements of a table would.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::RoomPut(put) => {
                let RoomPut { id, name, settings, ticket_key, .. } = put.as_ref();
                let rows = self.rooms.entry(*id).or_insert_with(|| RoomRows {
                    name: name.clone(),
                    settings: settings.clone(),
                    ticket_key: ticket_key.clone(),
                    first: 1,
                    reached: 1,
                    closed: false,
                    tickets: BTreeMap::new(),
                    slots: BTreeMap::new(),
                });
                rows.settings = settings.clone();
                rows.closed = false;
            }
            Change::RoomClosed { id, first, .. } => {
                let rows = self.known(*id);
                (rows.first, rows.reached, rows.closed) = (*first, *first, true);
                rows.tickets.clear();
                rows.slots.clear();
            }
            Change::Room { id, change } => self.known(*id).apply(change),
            Change::Clock(now) => self.clock = Some(*now),
            Change::PassSecret { fresh, oldest_kept } => {
                self.secrets.retain(|secret| *oldest_kept <= secret.id);
                self.secrets.push(*fresh);
            }
            // The world of rooms has no coupons.
            _ => {}
        }
    }

    fn known(&mut self, id: RoomId) -> &mut RoomRows {
        match self.rooms.get_mut(&id) {
            Some(rows) => rows,
            None => panic!("a change of room {} came before the room", id.0),
        }
    }
}

impl RoomRows {
    fn apply(&mut self, change: &room::Change) {
        match change {
            room::Change::Joined { number, join, .. } => {
                self.tickets.insert(number.get(), TicketRow { join: join.clone(), gone: None });
            }
            room::Change::Admitted { number, slot } => {
                self.slots.insert(number.get(), *slot);
            }
            room::Change::Taken { number, until } => {
                if let Some(slot) = self.slots.get_mut(&number.get()) {
                    slot.hold = Hold::Taken { until: *until };
                }
            }
            room::Change::Lapsed { number } => {
                self.slots.remove(&number.get());
            }
            room::Change::Gone { number, how } => {
                self.slots.remove(&number.get());
                if let Some(row) = self.tickets.get_mut(&number.get()) {
                    row.gone = Some(*how);
                }
            }
            room::Change::Reached(reached) => self.reached = *reached,
        }
    }
}

/// One commit that is on disk.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The world's clocks.
    pub at: Now,
    /// Since when settings and a closing are in force: a store that does not know how its commit ended goes on under the
    /// old ones until it is started again.
    pub in_force: i64,
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
    /// The answer, if it came in the middle of the commit.
    pub answer: Option<Result<RoomStepReply, StoreError>>,
    /// Whether the request has begun.
    pub begun: bool,
}

/// What a disk holds and does.
pub struct Disk {
    /// What survives a crash.
    pub stored: Stored,
    /// How it came to be: every commit that is on disk, in order.
    pub log: Vec<Commit>,
    /// Commits that fail, per thousand. Zero after the heal.
    pub fault_per_mille: u64,
    /// Whether the process died in a commit.
    pub crashed: bool,
    /// The rooms that the store has read again since the last look, after a commit that was refused.
    pub read_again: BTreeSet<RoomName>,
    /// How the commits since the last look went.
    pub commits: Vec<CommitFault>,
    /// Who comes in the middle of the next commit.
    pub visitors: Vec<Visitor>,
    clock: Arc<ManualClock>,
    rng: Rng,
}

/// A handle to the disk: what the store gets as its journal and its rows.
#[derive(Clone)]
pub struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    /// An empty disk.
    pub fn new(rng: Rng, fault_per_mille: u64, clock: Arc<ManualClock>) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            stored: Stored::default(),
            log: Vec::new(),
            fault_per_mille,
            crashed: false,
            read_again: BTreeSet::new(),
            commits: Vec::new(),
            visitors: Vec::new(),
            clock,
            rng,
        })))
    }

    /// The disk itself. One thread only, so no client waits.
    pub fn lock(&self) -> MutexGuard<'_, Disk> {
        // A panic while it was held is a broken invariant that has ended that run already.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lets the visitors in. The disk is not held meanwhile.
    fn receive_visitors(&self) {
        let mut visitors = std::mem::take(&mut self.lock().visitors);
        for visitor in visitors.iter_mut().filter(|visitor| !visitor.begun) {
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
        self.receive_visitors();
        let mut disk = self.lock();
        // Once dead it stays dead: only a restart brings a new life.
        assert!(!disk.crashed, "a dead process commits nothing");
        let per_mille = disk.fault_per_mille;
        let fault = CommitFault::draw(&mut disk.rng, per_mille);
        disk.commits.push(fault);
        if fault.keeps() {
            changes.iter().for_each(|change| disk.stored.apply(change));
            let at = disk.clock.both();
            let (in_force, is_known) = (at.steady.as_us(), fault == CommitFault::Clean);
            disk.log.push(Commit { at, in_force, is_known, changes: changes.to_vec() });
        }
        disk.crashed = fault.kills();
        if fault == CommitFault::Clean { Ok(()) } else { Err(fault.error()) }
    }

    fn room(&mut self, id: RoomId, hasher: &RandomState, now: Now) -> Result<StoredRoom, Fault> {
        let mut disk = self.lock();
        let found = recovery::recover(&disk.stored, hasher, now);
        let found = found.map_err(|detail| Fault { kind: FaultKind::Damaged, detail })?;
        let absent = || Fault { kind: FaultKind::Damaged, detail: format!("room {} is gone", id.0) };
        let found = found.into_iter().find(|stored| stored.id == id).ok_or_else(absent)?;
        disk.read_again.insert(found.name.clone());
        Ok(found)
    }
}

impl Rows for SharedDisk {
    fn attributes(&self, _: CouponId, _: Serial, _: Serial) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        Ok(BTreeMap::new())
    }
}
