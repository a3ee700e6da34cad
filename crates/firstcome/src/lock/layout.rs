//! How locks are stored on Redis or Valkey: in the layout of this library, or in one that other libraries share.
//!
//! | layout | shared with | waits by | order | fence | servers |
//! |---|---|---|---|---|---|
//! | [`Native`](Layout::Native) | no other library | a push | of arrival | on every grant | one, Sentinel, Cluster |
//! | [`Redisson`](Layout::Redisson) | Redisson's `RLock` and `RFencedLock` | a channel for each lock, then a race | none | none | one, Sentinel, Cluster |
//! | [`SingleKey`](Layout::SingleKey) | redis-py, redsync, node-redlock, redis-semaphore, python-redis-lock, rslock, Spring | polling | none | none | one, Sentinel, Cluster |
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
//! With [`Redisson`](Layout::Redisson) both libraries wake each other within a round trip. `RFairLock` keeps its hash under the same key,
//! so both libraries exclude each other. But its waiters try again only when the lease that they saw is over. With
//! [`SingleKey`](Layout::SingleKey) no library wakes another: python-redis-lock listens for its own releases only, and tries again when
//! its time is up.

//!
//! # Locks of one key
//! The layout of redis-py, redsync, rslock, Spring and many others: `SET key word NX PX lease`, with a fresh word of 160
//! random bits for every acquisition. Only a script that finds this word renews or releases the lock. All programs that
//! use the same key exclude each other.
//!
//! Use it, and that of Redisson, only to share a lock with such programs. Among programs that all use this library, the
//! layout of this library grants in the order of arrival, waits without polling, and gives a fence.
//!
//! - A try whose answer was lost is repeated with the same word, and recognises a lock that it has taken already.
//! - Not promised, an order: the client that tries at the right moment gets the lock, and a client may never get it.
//! - Not promised, a fence: the layouts have no place for one. Let the guarded store compare a version before it writes.
//!   Another holder may overlap with a holder that stood still for a lease, and neither notices.
//! - Not promised, that a hold lasts. It ends when the server loses the key: at the end of the lease, and possibly in a
//!   failover.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::Locks;
//! use firstcome::lock::Layout;
//! use std::time::Duration;
//!
//! let locks = Locks::redis("redis://localhost").layout(Layout::SingleKey).await?;
//! let guard = locks.lock("coupon:lock:{SPRING}").wait(Duration::from_secs(2)).acquire().await?;
//! guard.release().await?;
//! # Ok(()) }
//! ```

pub use super::address::Layout;

use super::Locks;
use super::keyed::KeyLocks;
use firstcome_redis::{Counts, LinkOptions, OpenError, RedisLocks, Redisson, SingleKey};
use firstcome_store::core::lock::ClientId;
use firstcome_store::edge::draw_id;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

/// A connection to Redis or Valkey that is about to be opened: await it to get the locks. See [`Locks::redis`].
///
/// Fails as [`firstcome_redis::Link::open`] does. Dropping the future leaves no connection behind.
#[must_use = "nothing is opened before it is awaited"]
pub struct OpenRedis {
    url: Box<str>,
    options: LinkOptions,
    layout: Layout,
}

impl OpenRedis {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.into(), options: LinkOptions::default(), layout: Layout::Native }
    }

    /// Sets time-outs, or allows a server that may evict keys.
    pub fn options(mut self, options: LinkOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the layout; [`Layout::Native`] by default.
    pub const fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    async fn open(self) -> Result<Locks, OpenError> {
        let Self { url, options, layout } = self;
        Ok(match layout {
            Layout::Native => {
                let client = draw_id().map_err(|fault| OpenError::Address { says: fault.to_string() })?;
                let store = RedisLocks::open(&url, ClientId(client), options).await?;
                Locks::over_as(ClientId(client), store)
            }
            Layout::Redisson => Locks::other(KeyLocks::over(Redisson::open(&url, options).await?)),
            Layout::SingleKey => Locks::other(KeyLocks::over(SingleKey::open(&url, options).await?)),
        })
    }
}

impl IntoFuture for OpenRedis {
    type Output = Result<Locks, OpenError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

impl fmt::Debug for OpenRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the address, which may hold a password.
        f.debug_struct("OpenRedis").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Returns what was sent so far, in a layout of other libraries; `None` for other locks. No request.
pub fn counts(locks: &Locks) -> Option<Counts> {
    let single_key = locks.as_other().map(|locks: &KeyLocks<SingleKey>| locks.store().link().counts());
    single_key.or_else(|| locks.as_other().map(|locks: &KeyLocks<Redisson>| locks.store().counts()))
}
