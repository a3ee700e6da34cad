//! First come, first served, at scale.
//!
//! People arrive faster than you can serve them, and what they want is limited. firstcome decides the order of arrival
//! in one atomic step and makes it durable before it is told.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::{Coupons, Outcome};
//!
//! let coupons = Coupons::memory(); // or Coupons::open("./firstcome-data")? for claims that survive
//! let launch = coupons.coupon("launch")?;
//! launch.put_limit(2).await?;
//!
//! for user in ["ann", "bob", "ann", "cid"] {
//!     match launch.claim(user)?.send().await? {
//!         Outcome::Issued(claim) => println!("{user} is number {}: {:?}", claim.issued.serial.get(), claim.code),
//!         Outcome::AlreadyIssued(claim) => println!("{user} holds number {} already", claim.issued.serial.get()),
//!         Outcome::Refused(why) => println!("{user} gets nothing: {}", why.code()),
//!     }
//! }
//! # assert_eq!(launch.view().await?.map(|view| view.issued), Ok(2));
//! # Ok(()) }
//! ```
//!
//! Before the counter there may be a line: [`WaitingRooms`] let in as many people as what is behind can carry, in the
//! order of their arrival. [`Coupons::rooms`] are those of the same store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::core::room::{RoomSettings, TicketState};
//! use firstcome::{Coupons, Joining};
//!
//! let coupons = Coupons::memory();
//! let sale = coupons.rooms().room("sale")?;
//! sale.put(RoomSettings::with_rate(100, 1_000)).await?.unwrap(); // 100 people per second
//!
//! let (joining, place) = sale.join_user("ann")?.send().await?.unwrap();
//! assert_eq!((joining, place.number.get()), (Joining::New, 1));
//! match sale.poll(&place.ticket).await?.unwrap().state {
//!     TicketState::Waiting { position, .. } => println!("{position} people are before you"),
//!     TicketState::Admitted { until, .. } => println!("come in; until {until:?} the place is yours"),
//!     TicketState::Gone(how) => println!("{how:?}"),
//! }
//! # Ok(()) }
//! ```
//!
//! What there is once goes to the caller that bids most in time, or comes first at a fixed price, and is paid in points of members:
//! [`Auctions`] and [`Points`]. [`Coupons::auctions`] and [`Coupons::points`] are those of the same store.
//!
//! # What it promises
//! - Exactly N: never one too many, and no caller is told "sold out" before all N are durably issued.
//! - One each, and the same claim again for the caller that asks again.
//! - Serials 1..N without a gap, in the order in which claims were accepted.
//! - Numbers of a room in the order in which joins were accepted, each once; admission in the order of numbers among
//!   those present, within the rate and the slots that the room has.
//! - The highest bid, and no other one, is backed by points; one sale per listing; no caller owes points, and none are lost.
//! - Told means durable, as far as [`Durability`] says.
//!
//! # What it does not promise
//! - An answer to everybody: an [`Error::Store`] of kind `Unknown` means that the claim may or may not have happened.
//!   Send the same one again: it has no second effect.
//! - Order between requests that overlap in time. If one was answered before the other was sent, it is first.
//!
//! [`Coupons::open`] needs a Tokio runtime around it only for reading pages of claims; everything else works under
//! any executor.

mod auction;
mod coupon;
pub mod fence;
pub mod lock;
mod points;
pub mod request;
mod room;

/// Runs an async function within a lock whose name is made of its arguments.
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
///         Ok(held.fence()) // to be written beside the bid: a caller that comes later has a larger one
///     }
/// }
///
/// let bids = Bids { locks: Locks::memory() };
/// assert!(bids.bid(BidCommand { auction_id: 7, price: 120 }).await.is_ok());
/// # }
/// ```
///
/// The function must return a `Result` whose error implements `From<LockError>`. It may be free or a method, generic, and
/// in an `impl` of a trait, but not under `#[async_trait]`, which takes its `async` away.
///
/// # What happens
/// - The name is made, the lock is waited for, the body runs, the lock is given back, and then the function returns. This
///   is awaited on every way out: the end, `return`, `?`. A panic and a dropped future cannot await: there the guard is
///   dropped, which gives the lock back in the background.
/// - When the lock is lost the body is dropped at its next await point, and the function fails with [`LockError::Lost`].
///   So it does if a success comes after the lock was lost, or if the lock cannot be given back for certain. An error of
///   the body's own is returned as it is.
/// - A name that is made wrong, a wait that is over, or a store that gives no answer is an error before the body runs.
///
/// # Options
/// - `key = "AUCTION:{command.auction_id}"`: the name. In braces an argument or `self`, or fields and methods without
///   arguments in it, each by its `Display`. Anything but `A–Z a–z 0–9 . _ : @ -` that comes out is
///   [`LockError::Name`].
/// - `locks = self.locks`: the [`Locks`], or anything that a `&` makes one; `self.locks` without this.
/// - `wait = "5s"`, at most `1h`, 5 s without this; `"0s"` takes the lock only if it is free. `lease = "3s"`, `100ms` to
///   `24h`, 30 s without this: how long the lock outlasts this process. It is renewed as long as the body runs.
/// - `owner = "{command.bidder}"`: as what others see the holder; see [`LockRequest::owner`].
/// - `guard = held`: the body has the [`Guard`] under this name.
/// - `retry = 3`: when the body returns an error that [is a conflict](lock::Retry), it is run again from its start, up to so
///   many times (at most 100), under the same hold, with clones of the arguments as they came in, and never after the
///   lock was lost. Before each run there is a `pause = "100ms"`, at most `1m`, give or take a quarter.
/// - `transaction(tx = self.database.begin())`: a future of a `Result` of a [`Transaction`](lock::Transaction). It
///   begins after the grant and checks the fence; the body has `&mut` it under this name; it is committed before the lock
///   is given back, and rolled back on an error and on a lost lock. Dropped in a panic or with the future, it must undo
///   itself. The function's error must be made from its errors too. What is committed stays a success even if the lock
///   was lost meanwhile, since the fence was checked in it. Each retry has a transaction of its own; a conflict may also
///   come from the commit. Those of sqlx are ready to be used, see [`fence`].
pub use firstcome_macros::distributed_lock;

pub use auction::{Auctions, BidRequest, ListingHandle, PurchaseRequest};
pub use coupon::{ClaimRequest, CouponHandle, Coupons, Error, Outcome};
pub use fence::FenceToken;
#[cfg(feature = "cluster")]
pub use firstcome_cluster as cluster;
#[cfg(feature = "etcd")]
pub use firstcome_etcd as etcd;
#[cfg(feature = "redis")]
pub use firstcome_redis as redis;
#[cfg(feature = "sql")]
pub use firstcome_sql as sql;
#[cfg(feature = "sqlite")]
pub use firstcome_sqlite as sqlite;
pub use firstcome_store::Check;
#[doc(hidden)]
pub use firstcome_store::Shared;
pub use firstcome_store::archive;
/// For stores of one's own, and for the simulator.
pub use firstcome_store::embedded;
pub use firstcome_store::{
    Answer, AuctionAnswer, AuctionStore, ClaimRecord, ClaimReply, Claimed, Closings, CouponStore, CouponView,
    Durability, Embedded, Fault, FaultKind, Faults, HandleKey, HeldLockView, Joining, ListingView, LockEvent,
    LockInbox, LockStore, MemoryLocks, MovePoints, Numbered, OpenFault, Page, PassCheck, PlaceBid, Purchase, Put,
    RedeemRequest, Refused, RoomAnswer, RoomStore, RoomSummary, ShownCode, StoreError, TicketAnswer, TicketKey,
    TimedLockView, Transfer, VoucherCode, VoucherKey, core, edge, stats,
};
#[cfg(feature = "etcd")]
pub use lock::{EtcdGuard, EtcdLocks, EtcdRequest};
pub use lock::{Fence, Guard, Lease, LockError, LockRequest, Locks, MultiGuard, MultiLock};
#[cfg(feature = "redis")]
pub use lock::{
    KeyGuard, KeyLocks, KeyRequest, OpenRedis, QuorumGuard, QuorumLocks, QuorumRequest, SpinGuard, SpinLocks,
    SpinRequest,
};
#[cfg(feature = "sql")]
pub use lock::{SessionGuard, SessionLocks, SessionRequest};
pub use points::{MemberHandle, MovementRequest, Points};
pub use room::{Admission, JoinRequest, WaitingRoom, WaitingRooms};
