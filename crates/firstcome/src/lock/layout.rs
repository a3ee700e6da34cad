//! How locks are stored on Redis or Valkey: in the layout of this library, or in one that other libraries share.
//!
//! | layout | shared with | waits by | order | fence | servers |
//! |---|---|---|---|---|---|
//! | [`Native`] | no other library | a push | of arrival | on every grant | one, Sentinel, Cluster |
//! | [`Redisson`] | Redisson's `RLock` and `RFencedLock` | a channel for each lock, then a race | none | none | one, Sentinel, Cluster |
//! | [`SingleKey`] | redis-py, redsync, node-redlock, redis-semaphore, python-redis-lock, rslock, Spring | polling | none | none | one, Sentinel, Cluster |
//!
//! Use one layout per lock. Each layout sees a lock of the other as held by another client, because a hash is not a
//! string.
//!
//! # Names
//! The name becomes the key unchanged. So it must be the key that the other library derives from its own name.
//! redis-py, redsync, node-redlock and Redisson use the name as it is. redis-semaphore puts `mutex:` before it,
//! python-redis-lock `lock:`.
//!
//! # Waking each other
//! With [`Redisson`] both libraries wake each other within a round trip. `RFairLock` keeps its hash under the same key,
//! so both libraries exclude each other. But its waiters try again only when the lease that they saw is over. With
//! [`SingleKey`] no library wakes another: python-redis-lock listens for its own releases only, and tries again when
//! its time is up.

use super::{KeyLocks, Locks};
use firstcome_redis::{LinkOptions, OpenError, RedisLocks};
use firstcome_store::core::lock::ClientId;
use firstcome_store::edge::draw_id;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

/// The layout of this library, which keeps every promise of [`Locks`].
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// The layout of Redisson's `RLock`, see [`firstcome_redis::Redisson`]. Java services that use the same name and this
/// library exclude and wake each other. [`KeyGuard::reenter`](super::KeyGuard::reenter) counts as Redisson does.
#[derive(Clone, Copy, Debug)]
pub struct Redisson;

/// One key per lock, see [`SpinLocks`](super::SpinLocks).
#[derive(Clone, Copy, Debug)]
pub struct SingleKey;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Native {}
    impl Sealed for super::Redisson {}
    impl Sealed for super::SingleKey {}
}

/// A layout, chosen by its type.
pub trait Layout: sealed::Sealed + Send + 'static {
    /// The locks of this layout.
    type Locks: Send;

    /// Connects; see [`OpenRedis`].
    #[doc(hidden)]
    fn open(self, url: &str, options: LinkOptions) -> impl Future<Output = Result<Self::Locks, OpenError>> + Send;
}

impl Layout for Native {
    type Locks = Locks;

    async fn open(self, url: &str, options: LinkOptions) -> Result<Locks, OpenError> {
        let client = draw_id().map_err(|fault| OpenError::Address { says: fault.to_string() })?;
        let store = RedisLocks::open(url, ClientId(client), options).await?;
        Ok(Locks::over_as(ClientId(client), store))
    }
}

impl Layout for Redisson {
    type Locks = KeyLocks<firstcome_redis::Redisson>;

    async fn open(self, url: &str, options: LinkOptions) -> Result<Self::Locks, OpenError> {
        Ok(KeyLocks::over(firstcome_redis::Redisson::open(url, options).await?))
    }
}

impl Layout for SingleKey {
    type Locks = KeyLocks<firstcome_redis::SingleKey>;

    async fn open(self, url: &str, options: LinkOptions) -> Result<Self::Locks, OpenError> {
        KeyLocks::<firstcome_redis::SingleKey>::redis_with(url, options).await
    }
}

/// A connection to Redis or Valkey that is about to be opened: await it to get the locks. See [`Locks::redis`].
///
/// Fails as [`firstcome_redis::Link::open`] does. Dropping the future leaves no connection behind.
#[must_use = "nothing is opened before it is awaited"]
pub struct OpenRedis<L> {
    url: Box<str>,
    options: LinkOptions,
    layout: L,
}

impl OpenRedis<Native> {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.into(), options: LinkOptions::default(), layout: Native }
    }
}

impl<L: Layout> OpenRedis<L> {
    /// Sets time-outs, or allows a server that may evict keys.
    pub fn options(mut self, options: LinkOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the layout; [`Native`] by default.
    pub fn layout<M: Layout>(self, layout: M) -> OpenRedis<M> {
        OpenRedis { url: self.url, options: self.options, layout }
    }
}

impl<L: Layout> IntoFuture for OpenRedis<L> {
    type Output = Result<L::Locks, OpenError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { url, options, layout } = self;
        Box::pin(async move { layout.open(&url, options).await })
    }
}

impl<L: fmt::Debug> fmt::Debug for OpenRedis<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the address, which may hold a password.
        f.debug_struct("OpenRedis").field("layout", &self.layout).finish_non_exhaustive()
    }
}
