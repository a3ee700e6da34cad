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
//! # What it promises
//! - Exactly N: never one too many, and nobody is told "sold out" before all N are durably issued.
//! - One each, and the same claim again for whoever asks again.
//! - Serials 1..N without a gap, in the order in which claims were accepted.
//! - Numbers of a room in the order in which joins were accepted, each once; admission in the order of numbers among
//!   those present, within the rate and the slots that the room has.
//! - Told means durable, as far as [`Durability`] says.
//!
//! # What it does not promise
//! - An answer to everybody: an [`Error::Store`] of kind `Unknown` means that the claim may or may not have happened.
//!   Send the same one again: it has no second effect.
//! - Order between requests that overlap in time. If one was answered before the other was sent, it is first.
//!
//! [`Coupons::open`] needs a Tokio runtime around it only for reading pages of claims; everything else works under
//! any executor.

mod coupon;
pub mod lock;
pub mod request;
mod room;

pub use coupon::{ClaimRequest, CouponHandle, Coupons, Error, Outcome};
/// For stores of one's own, and for the simulator.
pub use firstcome_store::embedded;
#[cfg(feature = "sqlite")]
pub use firstcome_store::sqlite;
pub use firstcome_store::{
    Answer, ClaimRecord, Claimed, CouponStore, CouponView, Durability, Embedded, Fault, FaultKind, Joining, LockEvent,
    LockInbox, LockSeen, LockStore, MemoryLocks, Page, PassCheck, Put, RedeemRequest, Refused, RoomAnswer, RoomStore,
    RoomSummary, StoreError, TicketAnswer, TicketKey, VoucherCode, VoucherKey, core, edge, stats,
};
pub use lock::{Fence, Guard, Lease, LockError, LockRequest, Locks, MultiGuard, MultiLock};
pub use room::{Admission, JoinRequest, WaitingRoom, WaitingRooms};
