//! The store of a firstcome service, over HTTP, behind the ports of the library.
//!
//! [`HttpStore`] implements the same ports as the embedded store, so a program moves from the one to the other without
//! another change.
//!
//! [`HttpLocks`] is the wire of the locks; the library's `Locks::http` renews and releases over it.
//!
//! # Promises
//! - Yes, no and unknown are never mixed. A refusal by a rule is the very `Rejection` of the core, with its values.
//! - A write whose answer is lost is repeated under the same idempotency key until there is an answer, or until
//!   [`HttpOptions::retry_for`] is over: then it is [`StoreError::Unknown`](firstcome_store::StoreError::Unknown). A
//!   write without a key is repeated only if a second copy has no second effect.
//! - `overloaded` and its like are obeyed within the same time: the client waits as long as the service says, and up to
//!   half of it longer, so that clients do not return all at once.
//! - Dropping a future leaves its command done or not done, never half done. The service may do it a moment later.
//! - The key is in no error and in no `Debug`.
//!
//! # Not promised
//! - What the service's own store does not promise.
//! - That a page of more than a thousand items shows one instant: it takes several requests.
//!
//! All calls need a Tokio runtime with time and IO.

#![warn(missing_debug_implementations)]

mod api_key;
mod appearance;
mod auction;
mod call;
mod coupon;
mod erase;
mod handoff;
mod instant;
mod link;
mod lock;

mod options;
mod pass;
mod problem;
mod purge;
mod receipt;
mod room;
mod watch;

pub use api_key::{ApiKeyRefusal, ApiKeyReply, ApiKeyText, ApiKeyView};
pub use call::refusal_of;
pub use lock::{Acquire, Acquired, HoldReply, HttpLocks, LockHandle, LockShown};
pub use options::{HttpOptions, OpenHttpError};
pub use pass::{AdmissionsChange, AdmissionsTag, PassClaims, PassPublicKey, PassPublicKeys, RevokedPassKey};

pub use firstcome_store::trace::{TraceContext, traced};
pub use firstcome_tls::{TlsError, TlsFiles, Trust};

use call::Service;
use link::Link;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// The coupons, waiting rooms, listings and members of a firstcome service.
///
/// ```no_run
/// use firstcome_client::HttpStore;
///
/// let store = HttpStore::new("https://queue.example.org", "the key of the service")?;
/// # Ok::<(), firstcome_client::OpenHttpError>(())
/// ```
///
/// A service key is enough to claim, redeem, join, poll, check passes, sell, bid, buy and move points. An admin key is
/// needed to put and end coupons and rooms, to list claims, and to show a room with its settings: without it these
/// calls fail as
/// [`StoreError::Faulted`](firstcome_store::StoreError::Faulted) of the kind
/// [`FaultKind::Unfit`](firstcome_store::FaultKind::Unfit), as do all calls with a wrong key.
///
/// Each method of a port says what differs from the embedded store. All others keep the port's promises.
#[derive(Debug)]
pub struct HttpStore {
    service: Arc<Service>,
    /// The durability of the last claim that the service showed.
    durability: AtomicU8,
}

impl HttpStore {
    /// Prepares a client of the service at `url`, which begins with `http://` or `https://`. Sends nothing.
    ///
    /// Fails if the address has another scheme, a user, a password or a query, if the key is empty or not of visible
    /// ASCII characters, and for `https://` if this machine has no certificates to trust.
    pub fn new(url: &str, key: &str) -> Result<Self, OpenHttpError> {
        Self::with(url, key, HttpOptions::default())
    }

    /// Prepares a client like [`Self::new`], with options. Fails also if one is out of its range.
    pub fn with(url: &str, key: &str, options: HttpOptions) -> Result<Self, OpenHttpError> {
        Self::trusting(url, key, options, &Trust::default())
    }

    /// Prepares a client like [`Self::with`] that trusts an authority of its own, and shows a certificate of its own if it has one.
    pub fn trusting(url: &str, key: &str, options: HttpOptions, trust: &Trust) -> Result<Self, OpenHttpError> {
        let service = Arc::new(Service::new(Link::new(url, key, &options, trust)?, options));
        Ok(Self { service, durability: AtomicU8::new(0) })
    }
}
