//! First come, first served, at scale.
//!
//! Visitors arrive faster than you can serve them, and what they want is limited. firstcome decides the order of
//! arrival in one atomic step, and makes it durable before it replies.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::{Error, Outcome, Store};
//!
//! let store = Store::memory(); // or Store::open("./firstcome-data")? for claims that survive
//! let launch = store.coupon("launch")?;
//! launch.put_limit(2).await?;
//!
//! for user in ["ann", "bob", "ann", "cid"] {
//!     match launch.claim(user)?.send().await {
//!         Ok(Outcome::Issued(claim)) => println!("{user} is number {}: {:?}", claim.issued.serial.get(), claim.code),
//!         Ok(Outcome::AlreadyIssued(claim)) => println!("{user} holds number {} already", claim.issued.serial.get()),
//!         Err(Error::Refused(why)) => println!("{user} gets nothing: {}", why.code()),
//!         Err(error) => return Err(error.into()), // nothing happened, or the outcome is unknown
//!     }
//! }
//! # assert_eq!(launch.view().await?.issued, 2);
//! # Ok(()) }
//! ```
//!
//! A line can stand before the counter: a [`WaitingRoom`] admits visitors in the order of arrival, at the rate that the
//! services behind it can carry.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::core::room::{RoomSettings, TicketState};
//! use firstcome::{Joining, Store};
//!
//! let sale = Store::memory().room("sale")?;
//! sale.put(RoomSettings::with_rate(100, 1_000)).await?; // 100 people per second
//!
//! let (joining, place) = sale.join_user("ann")?.send().await?;
//! assert_eq!((joining, place.number.get()), (Joining::New, 1));
//! match sale.poll(&place.ticket).await?.state {
//!     TicketState::Waiting { position, .. } => println!("{position} people are before you"),
//!     TicketState::Admitted { until, .. } => println!("come in; until {until:?} the place is yours"),
//!     TicketState::InDraw { entrants, .. } => println!("{entrants} people take part in the draw"),
//!     TicketState::Gone(how) => println!("{how:?}"),
//! }
//! # Ok(()) }
//! ```
//!
//! A [listing](ListingHandle) is sold once: to the highest bidder, or to the first buyer at a fixed price. A
//! [member](MemberHandle) pays with points. [`Locks`] guard any shared record.
//!
//! # What it promises
//! - Exactly N claims: never one too many, and no caller reads "sold out" before all N are durably issued.
//! - One claim per user. A repeat by the same user returns the same claim.
//! - Serials 1..N without a gap, in the order in which the store accepted the claims.
//! - Each number of a room is given once, in the order in which the store accepted the joins. Admission follows the
//!   order of numbers among the visitors who are present, within the room's rate and slots.
//! - The highest bid is backed by points, and no other bid is. Each listing is sold at most once. No member ever owes
//!   points, and no points are lost.
//! - Every reply is durable, as far as [`Durability`] says.
//!
//! # What it does not promise
//! - A reply to every request: [`Error::Unknown`] means that the claim may or may not have happened. Send the same claim
//!   again: it has no second effect.
//! - Order between requests that overlap in time. A request that was answered before another was sent comes first.
//!
//! [`Store::memory`] works under any executor. [`Store::open`] needs a Tokio runtime only for reading pages of claims. Stores
//! beyond this process need one.

#![warn(missing_debug_implementations)]

mod auction;
mod coupon;
mod error;
pub mod fence;
pub mod lock;
#[cfg(feature = "pass")]
pub mod pass;
mod points;
pub mod receipt;
pub mod request;
mod room;
mod store;

/// Databases: locks, listings and members on PostgreSQL, MySQL and MariaDB.
///
/// Connections are without TLS unless the program that uses this switches on one of sqlx's features for it; then the
/// address decides (`sslmode`, `ssl-mode`). Accounts of MySQL 8 need it, or a socket: the exchange of passwords over
/// plain TCP is not built in.
#[cfg(feature = "sql")]
pub mod sql {
    pub use firstcome_sql::{
        Address, DatabaseOptions, Migrated, PostgresLocks, Replication, SqlAuctions, SqlError, SqlOptions, Tables,
        accept_auction_loss, auction_part, migrate_auction, verify_auctions,
    };
}

/// Runs an async function under a lock whose name is built from its arguments.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use firstcome::{LockError, Locks, distributed_lock};
///
/// #[derive(Debug)]
/// enum BidError {
///     TooLow,
///     Lock(LockError),
/// }
///
/// impl From<LockError> for BidError {
///     fn from(error: LockError) -> Self {
///         Self::Lock(error)
///     }
/// }
///
/// struct BidCommand {
///     auction_id: u64,
///     price: u64,
/// }
///
/// struct Bids {
///     locks: Locks,
/// }
///
/// impl Bids {
///     #[distributed_lock(key = "AUCTION:{command.auction_id}", wait = "5s", lease = "3s", guard = held)]
///     async fn bid(&self, command: BidCommand) -> Result<firstcome::Fence, BidError> {
///         if command.price < 100 {
///             return Err(BidError::TooLow);
///         }
///         held.fence().map_err(BidError::Lock) // store it beside the bid: every later grant has a larger fence
///     }
/// }
///
/// let bids = Bids { locks: Locks::memory() };
/// assert!(bids.bid(BidCommand { auction_id: 7, price: 120 }).await.is_ok());
/// # }
/// ```
///
/// The function must return a `Result` whose error implements `From<LockError>`. It may be a free function or a method,
/// generic, and part of an `impl` of a trait. It must not be under `#[async_trait]`, which removes the `async`.
///
/// # What happens
/// - The function builds the name, waits for the lock, runs the body, releases the lock, and then returns. It awaits
///   the release on every way out: the end, `return`, `?`. A panic and a dropped future cannot await: they drop the
///   guard, which releases the lock in the background.
/// - When the lock is lost, the body is dropped at its next await point, and the function fails with
///   [`LockError::Lost`]. It also fails so if the body succeeds after the lock was lost, or if the release is not
///   certain. An error of the body is returned unchanged.
/// - An invalid name, a wait that ran out, or a store that does not reply is an error before the body runs.
///
/// # Options
/// - `key = "AUCTION:{command.auction_id}"`: the name of the lock. Braces hold an argument or `self`, or its fields and
///   its methods without arguments, each formatted by `Display`. A result with anything but `A–Z a–z 0–9 . _ : @ -` is
///   [`LockError::Input`].
/// - `locks = self.locks`: the [`Locks`], or any expression whose `&` coerces to `&Locks`. The default is `self.locks`.
/// - `wait = "5s"`: how long to wait, at most `1h`; 5 s by default. `"0s"` takes the lock only if it is free.
/// - `lease = "3s"`: how long the lock outlasts this process, `100ms` to `192h`; 30 s by default. The lock is renewed as
///   long as the body runs.
/// - `shared`: lets other requests that share the lock hold it at the same time, as readers of a read/write lock; see
///   [`LockRequest::shared`]. `permits = 3`: lets at most so many hold it, `1` to `1000`; see [`LockRequest::permits`].
///   Without either, the function holds the lock alone.
/// - `ordered`, `fenced`: fail with [`LockError::NotGuaranteed`], before anything is sent, if the store does not promise
///   the order of arrival or a fence.
/// - `owner = "{command.bidder}"`: the holder's name as other clients see it; see [`LockRequest::owner`].
/// - `guard = held`: the name under which the body sees the [`Guard`].
/// - `retry = 3`: runs the body again from its start when it returns an error that [is a conflict](lock::Retry), at
///   most this often (up to 100). All runs share one hold and get clones of the original arguments. No run begins after
///   the lock was lost. Before each retry there is a `pause = "100ms"`, at most `1m`, plus or minus a quarter.
/// - `transaction(tx = self.database.begin())`: a future of a `Result` of a [`Transaction`](lock::Transaction). It
///   begins after the grant and checks the fence. The body sees it under this name as `&mut`. It is committed before
///   the lock is released, and rolled back on an error or a lost lock. If it is dropped, by a panic or with the future,
///   it must undo itself. The function's error must implement `From` for the transaction's errors too. A committed
///   transaction stays a success even if the lock was lost meanwhile, because the transaction checked the fence. Each
///   retry has its own transaction, and a conflict may also come from the commit. Transactions of sqlx work as they
///   are, see [`fence`].
pub use firstcome_macros::distributed_lock;

pub use auction::{BidRequest, ListingHandle, PurchaseRequest};
pub use coupon::{ClaimRequest, CouponHandle, Outcome};
pub use error::{AuctionError, CouponError, EraseError, Error, InputError, RoomError};
pub use fence::FenceToken;
#[cfg(feature = "http")]
pub use firstcome_client as http;
#[cfg(feature = "cluster")]
pub use firstcome_cluster as cluster;
#[cfg(feature = "etcd")]
pub use firstcome_etcd as etcd;
#[cfg(feature = "redis")]
pub use firstcome_redis as redis;
#[cfg(feature = "sqlite")]
pub use firstcome_sqlite as sqlite;
pub use firstcome_store::Check;
#[doc(hidden)]
pub use firstcome_store::Shared;
pub use firstcome_store::address;
pub use firstcome_store::archive;
/// For custom stores, and for the simulator.
pub use firstcome_store::embedded;
pub use firstcome_store::purge;
pub use firstcome_store::{
    Answer, ApiKeyStore, AuctionAnswer, AuctionStore, ClaimRecord, ClaimReply, Claimed, Closings, CouponStore,
    CouponView, Demand, Durability, Embedded, EraseAnswer, EraseStore, Fault, FaultKind, FaultScope, Faults, Fencing,
    Glance, GrantOrder, Guarantees, HandleKey, Handoff, HeadPage, HeldLockView, HoldKeeper, Joining, KeyAnswer,
    ListingView, LiveAdmissions, LockEvent, LockInbox, LockStore, MemoryLocks, MovePoints, Names, Numbered, OpenFault,
    Page, PassCheck, PlaceBid, PlaceEvent, PlaceStream, Purchase, PurgeAnswer, PurgeRejection, PurgeRequest,
    PurgeStore, Purged, Put, Receipt, ReceiptReply, ReceiptStore, RedeemRequest, Refused, Retention, RoomAnswer,
    RoomStore, RoomSummary, RoomTotals, Sharing, ShownCode, StoreError, Survival, TicketAnswer, TicketKey, TicketWatch,
    TimedLockView, Transfer, VoucherCode, VoucherKey, core, edge, outage, stats, throttle, trace, work,
};
pub use lock::{
    Election, Fence, Guard, Leader, Lease, LockError, LockRequest, Locks, MultiGuard, MultiLock, Once, Run,
};
pub use points::{MemberHandle, MovementRequest};
pub use room::{Admission, JoinRequest, RoomWatch, WaitingRoom};
pub use store::{AnyStore, Store};
