//! A disk that keeps rows, and fails where the seed says so.
//!
//! It judges nothing: each commit of the store is kept as it came, so that the invariants can find it.

use crate::history::{CouponReply, OperationId};
use crate::rng::Rng;
use firstcome_core::coupon::{Attributes, Claim, CouponSettings, Issued, Redeemed, Serial};
use firstcome_core::id::{CouponName, RequestId};
use firstcome_store::embedded::journal::{Change, CouponId, CouponPut, Journal, JournalError, Outcome, Rows};
use firstcome_store::{Fault, FaultKind, StoreError, VoucherKey};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// A request under way, to be polled by hand.
pub type Call = Pin<Box<dyn Future<Output = Result<CouponReply, StoreError>> + Send>>;

/// The rows of one coupon.
#[derive(Clone, Debug)]
pub struct CouponRows {
    /// Its name.
    pub name: CouponName,
    /// The settings that were stored last.
    pub settings: CouponSettings,
    /// The secret of its codes.
    pub voucher_key: VoucherKey,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Its claims, in the order in which they were stored.
    pub claims: Vec<(Issued, Claim)>,
    /// Its redemptions, in the order in which they were stored.
    pub redemptions: Vec<(Redeemed, Option<RequestId>)>,
}

impl CouponRows {
    /// Whether a code is that of the stored claim with this serial.
    pub fn is_code_of(&self, code: &str, serial: Serial) -> bool {
        let claim = self.claims.iter().find(|(issued, _)| issued.serial == serial);
        claim.is_some_and(|(issued, claim)| self.voucher_key.is_code_of(code, *issued, claim.user.as_str()))
    }
}

/// Everything that is stored.
pub type Stored = BTreeMap<CouponId, CouponRows>;

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
    /// The process dies before anything is stored.
    CrashBefore,
    /// The process dies after all is stored and before anybody is told.
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
    pub fn draw(rng: &mut Rng, fault_per_mille: u64) -> Self {
        if rng.chance(fault_per_mille) { *rng.pick(&Self::FAULTS) } else { Self::Clean }
    }

    /// What the store is told of a commit that did not succeed.
    pub fn error(self) -> JournalError {
        let (outcome, kind) = match self {
            Self::Refused => (Outcome::Passing, FaultKind::Busy),
            Self::Nothing => (Outcome::Nothing, FaultKind::Io),
            _ => (Outcome::Unknown, FaultKind::Io),
        };
        JournalError { outcome, fault: Fault { kind, detail: self.name().into() } }
    }

    /// Whether the process dies of it.
    pub const fn kills(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }

    /// Whether what was committed is on disk afterwards.
    pub const fn keeps(self) -> bool {
        matches!(self, Self::Clean | Self::UnknownKept | Self::CrashAfter)
    }
}

/// A caller that comes in the middle of a commit, when memory knows more than the disk.
pub struct Visitor {
    /// Which operation.
    pub operation: OperationId,
    /// On which coupon.
    pub coupon: CouponName,
    /// The request.
    pub call: Call,
    /// The answer, if it came in the middle of the commit, and how many claims were durable at that moment.
    pub answer: Option<(Result<CouponReply, StoreError>, u32)>,
    /// Whether the request has begun.
    pub begun: bool,
}

/// What a disk holds and does. Shared by the world and by the store's journal.
pub struct Disk {
    /// What survives a crash.
    pub stored: Stored,
    /// Commits that fail, per thousand. Zero after the heal.
    pub fault_per_mille: u64,
    /// Whether the process died in a commit.
    pub crashed: bool,
    /// How the commits since the last look went.
    pub commits: Vec<CommitFault>,
    /// Who comes in the middle of the next commit.
    pub visitors: Vec<Visitor>,
    rng: Rng,
}

impl Disk {
    /// An empty disk.
    pub const fn new(rng: Rng, fault_per_mille: u64) -> Self {
        Self { stored: Stored::new(), fault_per_mille, crashed: false, commits: Vec::new(), visitors: Vec::new(), rng }
    }

    /// The rows of a coupon by name.
    pub fn rows(&self, coupon: &CouponName) -> Option<&CouponRows> {
        self.stored.values().find(|rows| rows.name == *coupon)
    }

    /// How many claims of a coupon are durable.
    pub fn durable(&self, coupon: &CouponName) -> u32 {
        self.rows(coupon).map_or(0, |rows| rows.claims.len() as u32)
    }

    fn draw_fault(&mut self) -> CommitFault {
        let fault = CommitFault::draw(&mut self.rng, self.fault_per_mille);
        self.commits.push(fault);
        fault
    }

    fn store(&mut self, change: &Change) {
        match change.clone() {
            Change::CouponPut(put) => {
                let CouponPut { id, name, settings, voucher_key, .. } = *put;
                let (claims, redemptions) = (Vec::new(), Vec::new());
                let fresh = CouponRows { name, settings, voucher_key, deleted: false, claims, redemptions };
                let settings = fresh.settings.clone();
                self.stored.entry(id).or_insert(fresh).settings = settings;
            }
            Change::CouponDeleted { id, .. } => self.known(id).deleted = true,
            Change::Claimed { id, issued, claim } => self.known(id).claims.push((issued, claim)),
            Change::Redeemed { id, redeemed, request } => self.known(id).redemptions.push((redeemed, request)),
            // The world of coupons makes no rooms.
            _ => {}
        }
    }

    fn known(&mut self, id: CouponId) -> &mut CouponRows {
        match self.stored.get_mut(&id) {
            Some(rows) => rows,
            None => panic!("a change of coupon {} came before the coupon", id.0),
        }
    }
}

/// A handle to the disk: what the store gets as its journal and its rows.
#[derive(Clone)]
pub struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    /// Shares a disk.
    pub fn new(disk: Disk) -> Self {
        Self(Arc::new(Mutex::new(disk)))
    }

    /// The disk itself. One thread only, so no client waits.
    pub fn lock(&self) -> MutexGuard<'_, Disk> {
        // A panic while it was held is a broken invariant that has ended that run already.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lets the visitors in. The disk is not held meanwhile: they may read it.
    fn receive_visitors(&self) {
        let mut visitors = std::mem::take(&mut self.lock().visitors);
        for visitor in visitors.iter_mut().filter(|visitor| !visitor.begun) {
            visitor.begun = true;
            if let Poll::Ready(answer) = visitor.call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                visitor.answer = Some((answer, self.lock().durable(&visitor.coupon)));
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
        let fault = disk.draw_fault();
        if fault.keeps() {
            for change in changes {
                disk.store(change);
            }
        }
        disk.crashed = fault.kills();
        if fault == CommitFault::Clean { Ok(()) } else { Err(fault.error()) }
    }
}

impl Rows for SharedDisk {
    fn attributes(
        &self,
        coupon: CouponId,
        first: Serial,
        last: Serial,
    ) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        let disk = self.lock();
        let claims = disk.stored.get(&coupon).into_iter().flat_map(|rows| &rows.claims);
        let wanted = claims.filter(|(issued, _)| first <= issued.serial && issued.serial <= last);
        Ok(wanted.filter_map(|(issued, claim)| Some((issued.serial, claim.attributes.clone()?))).collect())
    }
}
