//! The port for locks by key: each hold is known by a key of its own that only its holder has.

use crate::error::StoreError;
use firstcome_core::limits::LEASE_MS_MAX;
use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

/// What became of a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried<G> {
    /// It is ours, for the lease from when the try was taken, which is not before it was sent; with what comes with it.
    Taken(G),
    /// Another caller has it.
    Held {
        /// How long it lasts unless it is renewed; `None` if for ever.
        lasts: Option<Duration>,
    },
}

/// The port for locks by key. What is promised here is as much as layouts of others can keep: no order, and a fence only where
/// [`Self::Grant`] has one.
///
/// - A caller that takes a lock has it for the lease, or until it gives it back; no other caller does meanwhile, as far as the store
///   keeps what it has acknowledged.
/// - Repeatable: a step that is sent again with the same word has no second effect. [`StoreError::Unknown`] means that it may
///   have been taken, any other error that it was not.
/// - Cancel-safe: a caller that goes away leaves the step taken or not taken. A caller that has tried in vain, or does not know,
///   gives back what it may have.
pub trait KeyStore: Send + Sync + 'static {
    /// What comes with a lock: a fence, where the store has such.
    type Grant: Copy + Send + Sync + 'static;
    /// Hears when a lock may have become free.
    type Notifications: Notifications;

    /// The longest lease that can be had here.
    fn lease_ms_max(&self) -> u32 {
        LEASE_MS_MAX
    }

    /// Tries to take a lock once. The same try may be repeated, also while an earlier one may yet arrive.
    fn take(
        &self,
        key: &str,
        word: &str,
        lease_ms: u32,
    ) -> impl Future<Output = Result<Tried<Self::Grant>, StoreError>> + Send;

    /// [`Self::take`] for so many passes, which are served one after the other by one hold: where a fence comes with a lock, each
    /// has one of its own, see [`Self::pass`].
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

    /// What comes with the pass that has so many more after it, from what was told of a lock that was taken for several.
    fn pass(last: Self::Grant, to_come: u32) -> Self::Grant {
        let _ = to_come;
        last
    }

    /// Lets a lock last so long from now on, if this word has it.
    fn renew(&self, key: &str, word: &str, lease_ms: u32) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Gives a lock back, if this word has it.
    fn release(&self, key: &str, word: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Writes down how many times over a word has a lock, where the layout has a place for that; says whether it has it.
    /// Without such a place nothing is sent, and nothing is known that was not known before.
    fn count(&self, key: &str, word: &str, times: NonZeroU32) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = (key, word, times);
        std::future::ready(Ok(true))
    }

    /// As [`Self::listen`], where a try of this word is all that it takes: then it is heard from that try on. Sends nothing.
    fn listen_by_trying(&self, key: &str, word: &str) -> Option<Self::Notifications> {
        let _ = (key, word);
        None
    }

    /// From when this resolves on it is heard when the lock may have become free. `None` if no caller tells, or cannot now: then
    /// it is asked again after a pause, as it is in any case.
    fn listen(&self, key: &str, word: &str) -> impl Future<Output = Option<Self::Notifications>> + Send;

    /// Resolves when nothing is under way that the store gives back by itself, after the callers were answered. At once where
    /// there is no such thing.
    fn quiet(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Hears when one lock may have become free, from its making to its end.
pub trait Notifications: Send {
    /// Resolves when it may have; a hint that may be wrong, and may fail to come. Cancel-safe.
    fn freed(&mut self) -> impl Future<Output = ()> + Send;

    /// How long to wait for that before the lock is asked for without it, where `usual` would be the pause without an ear
    /// and the lock lasts so long as far as is known ([`Duration::MAX`] if for ever). The usual pause for one that often
    /// fails.
    fn patience(&self, usual: Duration, lasts: Duration) -> Duration {
        let _ = lasts;
        usual
    }
}

/// Of a store that tells no caller.
#[derive(Debug)]
pub enum Deaf {}

impl Notifications for Deaf {
    async fn freed(&mut self) {
        match *self {}
    }
}
