//! The port for locks by key: a secret word, which only the holder knows, identifies each hold.

use crate::error::StoreError;
use crate::guarantees::Guarantees;
use firstcome_core::limits::LEASE_MS_MAX;
use firstcome_core::lock::Fence;
use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

/// The outcome of a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried<G> {
    /// The caller has the lock, for the lease from when the store took the try, which is not before the caller sent it.
    Taken(G),
    /// Another client has the lock.
    Held {
        /// How long that hold lasts unless it is renewed; `None` if it has no end.
        lasts: Option<Duration>,
    },
}

/// The port for locks by key. It promises what the layouts of other libraries can keep: no order, and a fence only if
/// [`Self::Grant`] is one.
///
/// - A client that takes a lock has it for the lease, or until it releases it. No other client has it meanwhile, as far
///   as the store keeps what it has acknowledged.
/// - Repeatable: sending a step again with the same word has no second effect. [`StoreError::Unknown`] means that the
///   step may have been taken, any other error that it was not.
/// - Cancel-safe: a caller that drops its future leaves the step taken or not taken. A caller whose try failed or has
///   an unknown outcome must release what it may have.
pub trait KeyStore: Send + Sync + 'static {
    /// What comes with a grant: a fence, if the store has fences.
    type Grant: Copy + Send + Sync + 'static;
    /// Reports that a lock may have become free.
    type Notifications: Notifications;

    /// What this store promises. No request.
    fn guarantees(&self) -> Guarantees;

    /// Returns the fence of a grant, if the store has fences.
    fn fence(grant: Self::Grant) -> Option<Fence>;

    /// The longest lease that this store allows.
    fn lease_ms_max(&self) -> u32 {
        LEASE_MS_MAX
    }

    /// Tries once to take a lock. The caller may repeat the same try, even while an earlier one may still arrive.
    fn take(
        &self,
        key: &str,
        word: &str,
        lease_ms: u32,
    ) -> impl Future<Output = Result<Tried<Self::Grant>, StoreError>> + Send;

    /// Takes a lock like [`Self::take`], for `passes` passes that share one hold one after the other. If the store has
    /// fences, each pass has its own, see [`Self::pass`].
    fn take_for(
        &self,
        key: &str,
        word: &str,
        lease_ms: u32,
        passes: NonZeroU32,
    ) -> impl Future<Output = Result<Tried<Self::Grant>, StoreError>> + Send {
        let _ = passes;
        self.take(key, word, lease_ms)
    }

    /// Returns the grant of the pass with `to_come` passes after it, from the grant of the whole hold.
    fn pass(last: Self::Grant, to_come: u32) -> Self::Grant {
        let _ = to_come;
        last
    }

    /// Lets a lock last for `lease_ms` from now on, if this word holds it. Returns whether it does.
    fn renew(&self, key: &str, word: &str, lease_ms: u32) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Releases a lock, if this word holds it. Returns whether it did.
    fn release(&self, key: &str, word: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Stores how many times this word holds a lock, if the layout has a place for that. Returns whether the word holds
    /// the lock. In other layouts it sends nothing and returns `true`.
    fn count(&self, key: &str, word: &str, times: NonZeroU32) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = (key, word, times);
        std::future::ready(Ok(true))
    }

    /// Returns notifications that begin with the first try of this word, if the store needs no subscription. Otherwise
    /// `None`, see [`Self::listen`]. Sends nothing.
    fn listen_by_trying(&self, key: &str, word: &str) -> Option<Self::Notifications> {
        let _ = (key, word);
        None
    }

    /// Subscribes to notifications of a lock; from when this resolves on they report when the lock may have become
    /// free. `None` if the store cannot notify, or cannot now: the caller then polls with pauses, as it does in any
    /// case.
    fn listen(&self, key: &str, word: &str) -> impl Future<Output = Option<Self::Notifications>> + Send;

    /// Resolves when the store has no release under way in the background, after the callers got their replies.
    /// Resolves at once in stores that have none.
    fn quiet(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Reports when one lock may have become free, from its creation until it is dropped.
pub trait Notifications: Send {
    /// Resolves when the lock may have become free. This hint may be wrong, and may fail to come. Cancel-safe.
    fn freed(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns how long to wait for a notification before the next try. `usual` is the pause without notifications;
    /// `lasts` is how long the lock lasts as far as is known ([`Duration::MAX`] if it has no end). A store whose
    /// notifications often fail returns `usual`.
    fn patience(&self, usual: Duration, lasts: Duration) -> Duration {
        let _ = lasts;
        usual
    }
}

/// For stores that send no notifications.
#[derive(Debug)]
pub enum Deaf {}

impl Notifications for Deaf {
    async fn freed(&mut self) {
        match *self {}
    }
}
