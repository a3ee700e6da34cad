//! Where firstcome keeps what it promised: ports, and adapters for them.
//!
//! A port method is one atomic step ([`CouponStore`]). Adapters:
//!
//! - [`Embedded`]: this process owns the state and runs the rules of `firstcome-core` itself; in memory, or (feature
//!   `sqlite`) durable in one SQLite file.
//! - For locks: [`MemoryLocks`], and `sqlite::SqliteLocks`, `redis::RedisLocks`, `sql::PostgresLocks` under the features of
//!   these names. `sql::SessionLocks` are no such store: a database server's own locks, without leases. Nor are
//!   `etcd::EtcdLocks` (feature `etcd`), whose line etcd keeps itself.
//!
//! The suite in `conformance` (feature of that name) says what every adapter promises, and tests it.

#[cfg(any(feature = "etcd", feature = "redis"))]
mod address;
#[cfg(any(feature = "sqlite", all(feature = "redis", feature = "sql")))]
pub mod archive;
#[cfg(feature = "sql")]
mod boxed;
#[cfg(any(feature = "sql", feature = "sqlite"))]
mod check;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod edge;
pub mod embedded;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod faults;
#[cfg(all(feature = "redis", feature = "sql"))]
pub mod fleet;
mod handle;
pub mod key;
mod lock;
mod market;
mod port;
#[cfg(feature = "redis")]
pub mod redis;
mod room;
mod seal;
#[cfg(all(feature = "redis", feature = "sql"))]
mod shared;
#[cfg(feature = "sql")]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod stats;
mod ticket;
mod voucher;

#[cfg(any(feature = "sql", feature = "sqlite"))]
pub use check::Check;
pub use embedded::{Embedded, MemoryLocks};
pub use error::{Fault, FaultKind, StoreError};
pub use faults::{Faults, OpenFault};
pub use firstcome_core as core;
pub use handle::HandleKey;
pub use lock::{LockEvent, LockInbox, LockSeen, LockStore, StandingLock};
pub use market::{
    Closings, ListingView, MarketAnswer, MarketStore, MovePoints, Numbered, PlaceBid, Purchase, Transfer,
};
pub use port::{
    Answer, ClaimRecord, Claimed, CouponStore, CouponView, Durability, Given, Page, Put, RedeemRequest, Refused,
};
pub use room::{Joining, PassCheck, RoomAnswer, RoomStore, RoomSummary, TicketAnswer};
#[cfg(all(feature = "redis", feature = "sql"))]
pub use shared::Shared;
pub use ticket::TicketKey;
pub use voucher::{ShownCode, VoucherCode, VoucherKey};
