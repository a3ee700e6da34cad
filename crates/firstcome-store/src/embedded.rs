//! The embedded store: the rules, one writer, and replies from memory for what is durable.
//!
//! A command goes through a bounded queue to the one writer ([`engine`]). The writer decides everything that has
//! arrived, commits it in one transaction, and then replies. Some replies rest on durable claims alone: sold out,
//! already issued, a repeated request. The caller's own thread gives these under a read lock, without queue, file or
//! allocation.

mod api_key;
mod auction;
mod auction_port;
mod command_path;
mod coupon;
pub mod engine;
mod erase;
pub mod journal;
mod listed;
mod lock;
mod memory_rows;
mod purge;
mod queue;
mod receipt;
mod reply;
mod room;
mod room_port;
mod writer;

use crate::edge::{Clock, SecretSource, SystemClock, SystemSecrets, draw_hasher};
use crate::error::{Fault, StoreError};
use crate::faults::Faults;
use crate::port::{Answer, ClaimRecord, Claimed, CouponStore, CouponView, Durability, Page, Put, RedeemRequest};
use crate::receipt::SignedHead;
use crate::stats::WriterStats;
use crate::ticket::TicketKey;
use crate::voucher::VoucherKey;
pub use auction::keys_kept_since;
use auction::{AuctionWriter, Job, PublishedAuctions, Rest};
pub use auction::{KeyedMovement, StoredAuctions, StoredListing, StoredMember};
use command_path::CommandPath;
pub use command_path::Stepper;
use coupon::{ClaimCommand, CouponCell};
use engine::{Engine, Next};
use erase::EraseCommand;
use firstcome_core::api_key::{ApiKey, KeyBook, KeyCommand, KeyRejection};
use firstcome_core::coupon::{Claim, Coupon, CouponSettings, Effect, Redeem, Redeemed, Rejection, Serial};
use firstcome_core::erase::Rejection as EraseRejection;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_core::revision::Revision;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{self as room_rules, Room, RoomSettings, TicketNumber};
use firstcome_core::time::{Now, Steady, Timestamp};
use journal::{CouponId, Journal, PassSecret, PassSecretRevocation, RoomId, Rows};
pub use lock::MemoryLocks;
use memory_rows::Memory;
use parking_lot::{Mutex, RwLock};
use purge::{PurgeCommand, PurgeState};
use reply::{Awaited, Reply};
use room::{Order, RoomCell};
use room_port::Clockwork;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The object name of faults of the store itself.
const FAULTY_STORE: &str = "store";

/// A coupon that is loaded from where it was stored.
pub struct StoredCoupon {
    /// The store's number for it.
    pub id: CouponId,
    /// Its name.
    pub name: CouponName,
    /// The secret of its codes.
    pub voucher_key: VoucherKey,
    /// Settings and claims.
    pub coupon: Coupon,
}

firstcome_core::debug_by_name!(StoredCoupon);

/// A room that is loaded from where it was stored.
pub struct StoredRoom {
    /// The store's number for it.
    pub id: RoomId,
    /// Its name.
    pub name: RoomName,
    /// The secret of its tickets.
    pub ticket_key: TicketKey,
    /// Settings, tickets and slots.
    pub room: Room,
    /// How its page looks.
    pub appearance: Arc<Appearance>,
}

firstcome_core::debug_by_name!(StoredRoom);

/// What an embedded store reads from and writes to.
pub struct Backing {
    /// Stores changes.
    pub journal: Box<dyn Journal>,
    /// Reads data that the rules do not keep in memory.
    pub rows: Arc<dyn Rows>,
    /// What an acknowledged claim survives.
    pub durability: Durability,
    /// Coupons that were stored before.
    pub coupons: Vec<StoredCoupon>,
    /// Rooms that were stored before.
    pub rooms: Vec<StoredRoom>,
    /// Secrets of passes, the newest last.
    pub pass_secrets: Vec<PassSecret>,
    /// The keys of callers.
    pub api_keys: KeyBook,
    /// Members and listings that were stored before.
    pub auctions: StoredAuctions,
    /// The last head of each room and each coupon that has one.
    pub heads: Vec<SignedHead>,
    /// How the store's steady time continues from its clock. If steady time is far behind the wall clock, keys of
    /// charges and refunds are kept longer: both clocks must agree before a key is forgotten.
    pub timeline: Timeline,
    /// When the last purge ended.
    pub purged_at: Option<Timestamp>,
    /// What the wall clock showed at the last write.
    pub seen_at: Option<Timestamp>,
    /// The seed of the indexes. Must be secret.
    pub hasher: RandomState,
    /// Gives the keys of new coupons and rooms, the seeds of draws and the secrets of passes.
    pub secrets: Arc<dyn SecretSource>,
}

firstcome_core::debug_by_name!(Backing);

impl Backing {
    /// A backing without stored data, which keeps nothing beyond the process.
    pub fn memory() -> Self {
        let memory = Memory::default();
        Self {
            journal: Box::new(memory.clone()),
            rows: Arc::new(memory),
            durability: Durability::Memory,
            coupons: Vec::new(),
            rooms: Vec::new(),
            pass_secrets: Vec::new(),
            api_keys: KeyBook::default(),
            auctions: StoredAuctions::default(),
            heads: Vec::new(),
            timeline: Timeline::default(),
            purged_at: None,
            seen_at: None,
            hasher: draw_hasher(),
            secrets: Arc::new(SystemSecrets),
        }
    }
}

/// How the store's steady time continues from its clock, which may begin anywhere in every process.
#[derive(Clone, Copy, Default, Debug)]
pub struct Timeline {
    ahead_us: i64,
}

impl Timeline {
    /// Continues from what both clocks showed when something was last stored. The time since then is that of the wall
    /// clock; earlier settings of the wall clock do not matter. Without `last`, steady time begins at the wall clock's
    /// time.
    pub fn after(last: Option<Now>, clock: &dyn Clock) -> Self {
        let Now { wall, steady } = clock.both();
        let from = last.map_or(wall.as_us(), |last| {
            last.steady.as_us().saturating_add(wall.as_us().saturating_sub(last.wall.as_us()).max(0))
        });
        Self { ahead_us: from.saturating_sub(steady.as_us()) }
    }

    /// Returns the current time of the store.
    pub fn now(self, clock: &dyn Clock) -> Now {
        let Now { wall, steady } = clock.both();
        Now { wall, steady: Steady::from_us(steady.as_us().saturating_add(self.ahead_us)) }
    }
}

pub(crate) struct Shared {
    coupons: RwLock<HashMap<CouponName, Arc<CouponCell>>>,
    rooms: RwLock<HashMap<RoomName, Arc<RoomCell>>>,
    pass_secrets: RwLock<Vec<PassSecret>>,
    api_keys: RwLock<Arc<KeyBook>>,
    auctions: PublishedAuctions,
    clockwork: Clockwork,
    timeline: Timeline,
    clock: Arc<dyn Clock>,
    secrets: Arc<dyn SecretSource>,
    rows: Arc<dyn Rows>,
    /// The fault that stopped all writes permanently.
    fault: OnceLock<Arc<Fault>>,
    /// Whether it is unknown if the last commit is stored.
    is_unknown: AtomicBool,
    /// Whether any fault is open. Each command checks this first, so that a store without faults takes no lock.
    is_halted: AtomicBool,
    /// The open fault, logged and counted.
    faults: Faults,
    stats: WriterStats,
    purges: PurgeState,
    /// Smoothed nanoseconds per batch.
    batch_ns: Mutex<f64>,
}

impl Shared {
    fn cell(&self, coupon: &str) -> Option<Arc<CouponCell>> {
        self.coupons.read().get(coupon).map(Arc::clone)
    }

    fn add(&self, name: CouponName, cell: CouponCell) {
        self.coupons.write().insert(name, Arc::new(cell));
    }

    fn both(&self) -> Now {
        self.timeline.now(self.clock.as_ref())
    }

    /// Draws a secret. An error: the source has none, and nothing was done.
    fn draw_secret(&self) -> Result<[u8; 32], StoreError> {
        self.secrets.draw().map_err(|fault| StoreError::Faulted(Arc::new(fault)))
    }

    /// Returns the fault that stops writes, permanent or temporary.
    fn fault(&self) -> Option<Arc<Fault>> {
        if !self.is_halted.load(Ordering::Acquire) {
            return None;
        }
        self.fault.get().map(Arc::clone).or_else(|| self.faults.of(FAULTY_STORE))
    }

    /// Returns the fault that stops writes, if it is temporary.
    fn passing_fault(&self) -> Option<Arc<Fault>> {
        self.fault().filter(|_| self.fault.get().is_none())
    }

    /// Stops all writes permanently. The first fault stays the reported one.
    fn fail(&self, fault: Fault) -> Arc<Fault> {
        let fault = Arc::clone(self.fault.get_or_init(|| self.faults.raise(FAULTY_STORE, fault)));
        self.is_halted.store(true, Ordering::Release);
        fault
    }

    /// Stops all writes permanently after a commit with an unknown outcome.
    fn fail_unknown(&self, fault: Fault) {
        self.is_unknown.store(true, Ordering::Release);
        self.fail(fault);
    }

    /// Whether writes have stopped permanently, and readers see everything that is stored.
    fn is_settled(&self) -> bool {
        self.fault.get().is_some() && !self.is_unknown.load(Ordering::Acquire)
    }

    /// Stops all writes until [`Self::resume`].
    fn pause(&self, fault: Fault) -> Arc<Fault> {
        let fault = self.faults.raise(FAULTY_STORE, fault);
        self.is_halted.store(true, Ordering::Release);
        fault
    }

    /// Accepts writes again, unless they were stopped permanently.
    fn resume(&self) {
        if self.fault.get().is_none() {
            self.is_halted.store(false, Ordering::Release);
            self.faults.clear(FAULTY_STORE);
        }
    }

    /// Records how long a batch took, and adapts how many commands may wait: all waiting commands go in full batches.
    fn measure(&self, elapsed: Duration) {
        let sample_ns = elapsed.as_nanos() as f64;
        let mut batch_ns = self.batch_ns.lock();
        *batch_ns = if *batch_ns == 0.0 { sample_ns } else { *batch_ns * 0.75 + sample_ns * 0.25 };
        let batches = command_path::QUEUE_SERVICE_MAX.as_nanos() as f64 / batch_ns.max(1.0);
        let fits = (batches * command_path::BATCH_COMMANDS_MAX as f64) as usize;
        let limit = fits.clamp(command_path::BATCH_COMMANDS_MAX, command_path::QUEUE_COMMANDS_MAX);
        self.stats.queue_limit.store(limit as u64, Ordering::Relaxed);
    }
}

/// A command for the writer.
enum Command {
    Claim(ClaimCommand),
    Redeem { cell: Arc<CouponCell>, redeem: Redeem, reply: Reply<Effect<Redeemed>> },
    PutCoupon(Box<PutCommand>),
    DeleteCoupon { cell: Arc<CouponCell>, reply: Reply<()> },
    Room(RoomJob),
    PutRoom(Box<PutRoomCommand>),
    PutAppearance { cell: Arc<RoomCell>, appearance: Arc<Appearance>, reply: Reply<(), room_rules::Rejection> },
    CloseRoom { cell: Arc<RoomCell>, reply: Reply<(), room_rules::Rejection> },
    RotatePassSecret { bytes: [u8; 32], reply: Reply<PassSecret> },
    RevokePassSecret { id: u32, bytes: [u8; 32], reply: Reply<PassSecretRevocation> },
    PublishHeads { reply: Reply<()> },
    ApiKeys { command: Box<KeyCommand>, reply: Reply<Effect<ApiKey>, KeyRejection> },
    Erase(Box<EraseCommand>),
    EraseTickets { tickets: Vec<(RoomId, TicketNumber)>, reply: Reply<(), EraseRejection> },
    Purge(Box<PurgeCommand>),
    Auctions(Job),
    Tick(Option<Rest>, Reply<Option<Rest>>),
}

/// A command about a ticket of one room.
struct RoomJob {
    cell: Arc<RoomCell>,
    order: Order,
}

/// A command to put a room.
struct PutRoomCommand {
    name: RoomName,
    revision: Revision<RoomSettings>,
    secrets: FreshSecrets,
    reply: Reply<Put, room_rules::Rejection>,
}

/// Fresh secrets for a room that may turn out to be new.
struct FreshSecrets {
    ticket_key: TicketKey,
    /// Used only for the first room of a store.
    pass_secret: [u8; 32],
}

/// A command to put a coupon. Boxed, because commands are moved by the thousand, and claims are small.
struct PutCommand {
    name: CouponName,
    revision: Revision<CouponSettings>,
    voucher_key: VoucherKey,
    reply: Reply<Put>,
}

type Judged<T, R = Rejection> = Result<Result<T, R>, StoreError>;

/// A store that this process owns. Cheap to clone; dropping the last clone closes it.
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

firstcome_core::debug_by_name!(Embedded);

struct Inner {
    shared: Arc<Shared>,
    command_path: CommandPath,
    durability: Durability,
}

impl Inner {
    fn new(shared: Arc<Shared>, command_path: CommandPath, durability: Durability) -> Arc<Self> {
        Arc::new(Self { shared, command_path, durability })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.command_path.close();
        self.shared.clockwork.wake();
    }
}

impl Embedded {
    /// Opens a store in memory: as exact as the others, and gone with the process.
    pub fn memory() -> Self {
        Self::memory_with(Arc::new(SystemClock::default()))
    }

    /// [`Self::memory`] with another clock.
    pub fn memory_with(clock: Arc<dyn Clock>) -> Self {
        let backing = Backing { timeline: Timeline::after(None, clock.as_ref()), ..Backing::memory() };
        let durability = backing.durability;
        let (shared, engine) = assemble(backing, clock);
        let command_path = CommandPath::inline(Arc::clone(&shared), engine);
        let inner = Inner::new(shared, command_path, durability);
        // Without the thread only `RoomStore::tick` admits visitors; coupons need no thread.
        let _ = Clockwork::start(&inner);
        Self { inner }
    }

    /// Opens a store over any journal, with its own writer thread.
    pub fn start(backing: Backing, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let durability = backing.durability;
        let (shared, engine) = assemble(backing, clock);
        let command_path = CommandPath::thread(Arc::clone(&shared), engine)?;
        let inner = Inner::new(shared, command_path, durability);
        Clockwork::start(&inner)?;
        Ok(Self { inner })
    }

    /// Opens a store over any journal whose writer runs only when it is stepped. For the simulator.
    pub fn stepped(backing: Backing, clock: Arc<dyn Clock>) -> (Self, Stepper) {
        let durability = backing.durability;
        let (shared, engine) = assemble(backing, clock);
        let (command_path, stepper) = CommandPath::stepped(Arc::clone(&shared), engine);
        (Self { inner: Inner::new(shared, command_path, durability) }, stepper)
    }

    /// Returns the open faults of the store: at most one.
    pub fn faults(&self) -> Faults {
        self.inner.shared.faults.clone()
    }

    /// Returns the fault that stops writes, permanent or temporary, if there is one. Reads go on.
    pub fn fault(&self) -> Option<Arc<Fault>> {
        self.inner.shared.fault()
    }

    /// Returns the statistics of the writer.
    pub fn stats(&self) -> &WriterStats {
        &self.inner.shared.stats
    }

    /// Returns the time of the store's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.shared.clock.now()
    }

    /// Returns the time of the store's steady clock.
    pub fn steady(&self) -> Steady {
        self.inner.shared.both().steady
    }

    /// Returns the number of coupons, deleted ones included.
    pub fn coupon_count(&self) -> usize {
        self.inner.shared.coupons.read().len()
    }

    /// Finishes the waiting commands and closes the file; later commands fail with `Unavailable`. Blocks until it is
    /// done.
    pub fn close(&self) {
        self.inner.command_path.close();
    }

    /// Does everything that is due now, and returns when it is durable.
    async fn tick_over(&self) -> Result<(), StoreError> {
        let mut rest = None;
        loop {
            let (reply, answer) = Reply::pair();
            // No rule refuses a tick.
            match self.ask(Command::Tick(rest, reply), answer).await? {
                Ok(left @ Some(_)) => rest = left,
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    async fn ask<T, R>(&self, command: Command, answer: Awaited<T, R>) -> Judged<T, R> {
        self.inner.command_path.submit(command)?;
        answer.await
    }

    fn cell(&self, coupon: &CouponName) -> Result<Arc<CouponCell>, Rejection> {
        self.inner.shared.cell(coupon.as_str()).ok_or(Rejection::UnknownCoupon)
    }
}

fn assemble(backing: Backing, clock: Arc<dyn Clock>) -> (Arc<Shared>, Engine) {
    let next = backing.coupons.iter().map(|stored| stored.id.0 + 1).max().unwrap_or(1);
    let cells = backing.coupons.into_iter().map(|stored| {
        let cell = CouponCell::new(stored.id, stored.voucher_key, stored.coupon);
        (stored.name, Arc::new(cell))
    });
    let next_room = backing.rooms.iter().map(|stored| stored.id.0 + 1).max().unwrap_or(1);
    let rooms = backing.rooms.into_iter().map(|stored| {
        let cell = RoomCell::new(stored.id, stored.ticket_key, stored.room, stored.appearance);
        (stored.name, Arc::new(cell))
    });
    let next_pass_secret = backing.pass_secrets.iter().map(|secret| secret.id + 1).max().unwrap_or(1);
    let shared = Arc::new(Shared {
        coupons: RwLock::new(cells.collect()),
        rooms: RwLock::new(rooms.collect()),
        pass_secrets: RwLock::new(backing.pass_secrets),
        api_keys: RwLock::new(Arc::new(backing.api_keys)),
        auctions: PublishedAuctions::default(),
        clockwork: Clockwork::default(),
        timeline: backing.timeline,
        clock,
        secrets: backing.secrets,
        rows: backing.rows,
        fault: OnceLock::new(),
        is_unknown: AtomicBool::new(false),
        is_halted: AtomicBool::new(false),
        faults: Faults::default(),
        stats: WriterStats::default(),
        purges: PurgeState::new(backing.purged_at, backing.seen_at),
        batch_ns: Mutex::new(0.0),
    });
    shared.restore_heads(backing.heads);
    shared.stats.queue_limit.store(command_path::QUEUE_COMMANDS_MAX as u64, Ordering::Relaxed);
    let next = Next { coupon: CouponId(next), room: RoomId(next_room), pass_secret: next_pass_secret };
    let auctions = AuctionWriter::restore(backing.auctions, shared.auctions());
    let engine = Engine::new(Arc::clone(&shared), backing.journal, &backing.hasher, next, auctions);
    (shared, engine)
}

impl CouponStore for Embedded {
    fn durability(&self) -> Durability {
        self.inner.durability
    }

    async fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> Answer<Put> {
        let revision = revision.into();
        let (reply, answer) = Reply::pair();
        let voucher_key = VoucherKey::new(self.inner.shared.draw_secret()?);
        let command = Box::new(PutCommand { name: coupon.clone(), revision, voucher_key, reply });
        Ok(self.ask(Command::PutCoupon(command), answer).await?.map_err(Into::into))
    }

    async fn delete_coupon(&self, coupon: &CouponName) -> Answer<()> {
        let cell = match self.cell(coupon) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection.into())),
        };
        let (reply, answer) = Reply::pair();
        Ok(self.ask(Command::DeleteCoupon { cell, reply }, answer).await?.map_err(Into::into))
    }

    async fn coupon(&self, coupon: &CouponName) -> Answer<CouponView> {
        let now = self.now();
        Ok(self.cell(coupon).map(|cell| cell.view(now)).map_err(Into::into))
    }

    async fn claim(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<Claimed>> {
        let cell = {
            let coupons = self.inner.shared.coupons.read();
            let Some(cell) = coupons.get(coupon.as_str()) else { return Ok(Err(Rejection::UnknownCoupon.into())) };
            if let Some(answer) = cell.settled(&claim, self.inner.shared.clock.as_ref()) {
                return Ok(cell.tell(answer, || self.now()));
            }
            Arc::clone(cell)
        };
        let (reply, answer) = Reply::pair();
        let command = Command::Claim(ClaimCommand { cell: Arc::clone(&cell), claim, reply });
        Ok(cell.tell(self.ask(command, answer).await?, || self.now()))
    }

    async fn claim_of(&self, coupon: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        let cell = match self.cell(coupon) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection.into())),
        };
        let Some(serial) = cell.serial_of(user) else { return Ok(cell.shows(None)) };
        let rows = Arc::clone(&self.inner.shared.rows);
        blocking(move || Ok(cell.shows(cell.records(rows.as_ref(), serial, serial)?.into_iter().next()))).await
    }

    async fn claims(&self, coupon: &CouponName, after: Option<Serial>, count: usize) -> Answer<Page<ClaimRecord>> {
        let cell = match self.cell(coupon) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection.into())),
        };
        let rows = Arc::clone(&self.inner.shared.rows);
        blocking(move || Ok(cell.shows(cell.page(rows.as_ref(), after, count)?))).await
    }

    async fn redeem(&self, coupon: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        let cell = match self.cell(coupon) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection.into())),
        };
        let serial = cell.claim_by_code(&redeem.code);
        // A purge may come between the answer and this call's return: a redemption in time still shows its claim.
        let shown = serial.and_then(|serial| cell.claim_at(serial));
        let redeem = Redeem { serial, user: redeem.user, request: redeem.request };
        let (reply, answer) = Reply::pair();
        let answer = self.ask(Command::Redeem { cell: Arc::clone(&cell), redeem, reply }, answer).await?;
        let record = |redeemed: Redeemed| {
            let (user, issued) = cell.claim_at(redeemed.serial).or(shown)?;
            let claimed = cell.claimed_by(issued, &user);
            Some(ClaimRecord { user, claimed, attributes: None, redeemed: Some(redeemed) })
        };
        Ok(match answer {
            Ok(Effect::New(redeemed)) => record(redeemed).map(Effect::New).ok_or(Rejection::UnknownCode),
            Ok(Effect::Again(redeemed)) => record(redeemed).map(Effect::Again).ok_or(Rejection::UnknownCode),
            Err(rejection) => Err(rejection),
        }
        .map_err(Into::into))
    }
}

/// Runs work that may read a file on a thread where it blocks no other task.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(StoreError::Unknown))
}
