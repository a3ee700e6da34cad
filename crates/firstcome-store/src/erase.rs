//! The port for the erasure of a person.

use crate::error::StoreError;
use firstcome_core::erase::{Erased, Rejection};
use firstcome_core::id::UserId;
use std::future::Future;

/// The outer result says whether the store replied, the inner one what it replied.
pub type EraseAnswer = Result<Result<Erased, Rejection>, StoreError>;

/// Erases a person from a store.
///
/// - Durable before the reply: once it is there, no row of the store names the person any more, also after a crash.
/// - Complete or repeated: an erasure that a crash cut short has erased a part. A repeat erases the rest.
/// - Idempotent: a second erasure finds nothing, and says so ([`Erased::is_nothing`]).
/// - A claim, a join, a bid or a purchase of the same name while it runs comes before it, and is erased, or after it, and is
///   that of a new person.
pub trait EraseStore: Send + Sync {
    /// Erases the user, and the member of the same name: claims, tickets, points and listings, in all coupons, rooms and
    /// listings. A living place leaves its line; a slot is free at once.
    ///
    /// Refused, in this order, before anything is changed: `points_held`, `owns_auction`.
    ///
    /// Costs a pass over the tickets of the store, which delays no other caller, and for a member with records a pass over
    /// these.
    fn erase(&self, user: &UserId) -> impl Future<Output = EraseAnswer> + Send;
}
