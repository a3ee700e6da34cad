//! What a store offers that keeps its lines or holds by rules of its own, and not by the steps of the core.
//!
//! The futures are boxed: each of these calls costs at least one round trip, beside which an allocation is nothing.

use super::{Fence, LockError, Terms};
use crate::fence::FenceToken;
use firstcome_store::core::id::LockName;
use firstcome_store::{Guarantees, TimedLockView};
use std::any::Any;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The locks of such a store.
pub(super) trait OtherLocks: Any + Send + Sync {
    fn guarantees(&self) -> Guarantees;

    /// Waits for a lock; with no wait, tries once. Dropping the future leaves nothing behind.
    fn acquire<'a>(&'a self, terms: &'a Terms) -> BoxFuture<'a, Result<Arc<dyn OtherHold>, LockError>>;

    fn view(&self, name: LockName) -> BoxFuture<'_, Result<TimedLockView, LockError>> {
        drop(name);
        Box::pin(ready(Err(LockError::Unsupported { operation: "show a lock" })))
    }

    /// Whether a hold can outlive this process, until its lease ends: see [`OtherHold::leave`].
    fn can_leave(&self) -> bool {
        false
    }

    /// Resolves when the store knows that this process wants and holds nothing any more.
    fn quiet(&self) -> BoxFuture<'_, ()>;
}

/// A hold of such a store, shared by its guards. Dropping it releases the lock in the background.
pub(super) trait OtherHold: Any + Send + Sync {
    fn name(&self) -> &str;

    /// The fence; `None` if the store has none.
    fn fence(&self) -> Option<Fence>;

    /// The token of a hold with this fence.
    fn token(&self, fence: Fence) -> Result<FenceToken, LockError>;

    /// Until when the hold certainly lasts; `None` if it has no end of its own.
    fn deadline(&self) -> Option<Instant>;

    fn is_lost(&self) -> bool;

    fn lost(&self) -> BoxFuture<'static, ()>;

    /// Returns the hold of one guard more. Where guards are not counted it is the same, from [`share`].
    fn reenter(self: Arc<Self>) -> BoxFuture<'static, Result<Arc<dyn OtherHold>, LockError>>;

    fn renew(&self, lease: Duration) -> BoxFuture<'_, Result<(), LockError>>;

    /// Ends the guard without a release: the hold ends with its lease. Only where [`OtherLocks::can_leave`] is true;
    /// elsewhere it is a drop.
    fn leave(self: Arc<Self>) {}

    /// Releases the lock; while there are other guards, only this one ends.
    fn release(self: Arc<Self>) -> BoxFuture<'static, Result<(), LockError>>;
}

/// Shares a hold with one guard more. No request.
#[cfg(any(feature = "etcd", feature = "http", feature = "sql"))]
pub(super) fn share<H: OtherHold>(hold: Arc<H>) -> BoxFuture<'static, Result<Arc<dyn OtherHold>, LockError>> {
    let shared = if hold.is_lost() { Err(LockError::Lost) } else { Ok(hold as Arc<dyn OtherHold>) };
    Box::pin(ready(shared))
}
