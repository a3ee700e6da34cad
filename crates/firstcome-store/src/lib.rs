//! The ports of firstcome's stores, the store that one process owns, and the code that all adapters share.
//!
//! A port method is one atomic step ([`CouponStore`], [`RoomStore`], [`AuctionStore`], [`LockStore`]). This crate has
//! the adapters that need no server. [`Embedded`] runs the rules of `firstcome-core` itself and writes to a
//! [`Journal`](embedded::journal::Journal). [`MemoryLocks`] keeps locks in memory. The other adapters are separate
//! crates, one for each kind of server or file.
//!
//! The suite in `conformance` (feature of that name) states what every adapter promises, and tests it.

#![warn(missing_debug_implementations)]

pub mod address;
mod api_key;
pub mod archive;
mod auction;
pub mod batcher;
pub mod check;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod edge;
pub mod embedded;
mod erase;
mod error;
mod faults;
mod guarantees;
mod handle;
pub mod handoff;
pub mod key;
mod lock;
pub mod lock_queue;
mod names;
pub mod outage;
mod port;
pub mod purge;
pub mod receipt;
mod room;
mod seal;
mod shared;
pub mod stats;
pub mod throttle;
mod ticket;
pub mod trace;
mod voucher;
mod watch;
pub mod work;

pub use api_key::{ApiKeyStore, KeyAnswer};
pub use auction::{
    AuctionAnswer, AuctionStore, Closings, ListingView, MovePoints, Numbered, PlaceBid, Purchase, Transfer,
};
pub use check::Check;
pub use embedded::{Embedded, MemoryLocks};
pub use erase::{EraseAnswer, EraseStore};
pub use error::{Fault, FaultKind, StoreError};
pub use faults::{FaultScope, Faults, OpenFault};
pub use firstcome_core as core;
pub use guarantees::{Demand, Fencing, GrantOrder, Guarantees, HoldKeeper, Sharing, Survival};
pub use handle::HandleKey;
pub use handoff::Handoff;
pub use lock::{HeldLockView, LockEvent, LockInbox, LockStore, TimedLockView};
pub use names::Names;
pub use port::{
    Answer, ClaimRecord, ClaimReply, Claimed, CouponStore, CouponView, Durability, Page, Put, RedeemRequest, Refused,
};
pub use purge::{PurgeAnswer, PurgeRejection, PurgeRequest, PurgeStore, Purged, Retention};
pub use receipt::{HeadPage, Receipt, ReceiptReply, ReceiptStore};
pub use room::{
    Glance, Joining, LiveAdmissions, PassCheck, RoomAnswer, RoomStore, RoomSummary, RoomTotals, TicketAnswer,
};
pub use shared::Shared;
pub use ticket::TicketKey;
pub use voucher::{ShownCode, VoucherCode, VoucherKey};
pub use watch::{PlaceEvent, PlaceStream, TicketWatch};
