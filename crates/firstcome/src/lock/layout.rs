//! How locks are kept on Redis or Valkey: as only this library does, or as others do who share them.
//!
//! | layout | shared with | waits by | order | fence | servers |
//! |---|---|---|---|---|---|
//! | [`Native`] | no process | being told | of arrival | on every grant | one, Sentinel, Cluster |
//! | [`Redisson`] | Redisson's `RLock` and `RFencedLock` | a channel for each lock, then a race | none | none | one, Sentinel, Cluster |
//! | [`SingleKey`] | redis-py, redsync, node-redlock, redis-semaphore, python-redis-lock, rslock, Spring | asking again | none | none | one, Sentinel, Cluster |
//!
//! Two layouts never share a lock: a hash is another process's to those who keep a word, and the other way round.
//!
//! # Names
//! A name is used as it is, so the key must be what the other library makes of the name that it is given: redis-py, redsync,
//! node-redlock and Redisson use it is; redis-semaphore puts `mutex:` before it, python-redis-lock `lock:`.
//!
//! # Waking each other
//! [`Redisson`]: both ways, within a round trip. `RFairLock` keeps its hash there too, so it excludes and is excluded, but it
//! is only tried again when the lease is over that it has seen. [`SingleKey`]: no process; python-redis-lock listens to its own
//! releases only, and tries again when its time is up.

use super::{KeyLocks, Locks};
use firstcome_redis::{LinkOptions, OpenError, RedisLocks};
use firstcome_store::core::lock::ClientId;
use firstcome_store::edge::draw_id;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

/// The layout of this library, with everything that [`Locks`] promises.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// The layout of Redisson's `RLock`, see [`firstcome_redis::Redisson`]: Java services with the same name exclude us and are excluded,
/// wake us and are woken. [`KeyGuard::reenter`](super::KeyGuard::reenter) counts as theirs does.
#[derive(Clone, Copy, Debug)]
pub struct Redisson;

/// One key for each lock, see [`SpinLocks`](super::SpinLocks).
#[derive(Clone, Copy, Debug)]
pub struct SingleKey;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Native {}
    impl Sealed for super::Redisson {}
    impl Sealed for super::SingleKey {}
}

/// A layout by its name.
pub trait Layout: sealed::Sealed + Send + 'static {
    /// The locks that are kept so.
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

/// Locks on Redis or Valkey that are about to be opened: awaited, they are. See [`Locks::redis`].
///
/// Fails as [`firstcome_redis::Link::open`] does. A future that is dropped leaves no connection behind.
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
    /// With time-outs of one's own, or on a server that may forget keys.
    pub fn options(mut self, options: LinkOptions) -> Self {
        self.options = options;
        self
    }

    /// How the locks are kept; [`Native`] without this.
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
        // Without the address, in which a password may stand.
        f.debug_struct("OpenRedis").field("layout", &self.layout).finish_non_exhaustive()
    }
}
