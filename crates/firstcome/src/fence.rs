//! Ready-made checks for what a lock protects.
//!
//! A holder that stands still for longer than its lease (a long pause, a machine that sleeps, a write that is stuck in the
//! network) does not notice that the lock is another process's by now. No lock can keep its late write away; only what is
//! written to can, if it refuses a smaller fence than it has seen. A process that writes shows a [`FenceToken`], and one of these
//! compares it with what is remembered, in the same atomic step as the write or as the beginning of its transaction:
//!
//! | what is protected | check | where the fence is remembered | cost |
//! |---|---|---|---|
//! | rows that a transaction writes | [`sqlx::check`] (PostgreSQL, MySQL, MariaDB), [`sqlite::check`] | a table `fences`, a row per lock | one statement, the first of the transaction |
//! | one row | [`sql::Columns`] in the one `UPDATE` | two columns of that row | none |
//! | one key of Redis or Valkey | [`redis::GuardedKey`]; [`redis::FENCE_LUA`] in a script of one's own | a hash beside the key, in its slot | none |
//! | what another service does | the header [`HEADER`], then one of the above behind it | as there | none |
//!
//! `#[distributed_lock(…, transaction(tx = self.pool.begin()))]` does the first by itself: a transaction of sqlx implements
//! [`lock::Transaction`](crate::lock::Transaction). The features `sqlx` (0.9), `redis`, `axum` and, by default, `sqlite` switch
//! the checks on; the rule, the token and the statements as texts are always there.
//!
//! # The rule
//! It is the same everywhere, and stated once in [`accepts`]: a token is accepted if nothing is remembered for its lock, if
//! its fence is larger than the remembered one, or if fence and owner are the remembered ones. An older one is refused, and
//! so is an equal one of another owner, which only a store of locks can show that lost its memory.
//!
//! # Three outcomes
//! `Ok(())`: accepted, and remembered. [`FenceError::Stale`]: refused, nothing was written. [`FenceError::Failed`]: the
//! database gave no answer or an error, and each check says what may have happened then. None is ever told as another.
//!
//! # Not promised
//! - Anything after the store of the fences forgets: a table that is emptied, a Redis that fails over to a replica that had
//!   not heard of the last write.
//! - Protection from the process that lies. A fence is a number, and who shows a large one is believed, and shuts the others out:
//!   take tokens only from callers that may write anyway.

mod header;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "axum")]
mod refusal;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;

pub use header::{HEADER, HeaderError};
#[cfg(feature = "axum")]
pub use refusal::HeaderRejection;

use crate::lock::{Fence, Request};
use firstcome_store::core::id::{LockName, NameError, OwnerName};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Bytes of the owner in a token. Room for an owner's name and the tag of its hold; protects the size of rows and headers.
pub const OWNER_BYTES_MAX: usize = 160;

/// What a writer shows: which lock it holds, the fence of that hold, and whose hold it is.
///
/// [`Guard::token`](crate::Guard::token) and [`Lease::token`](crate::Lease::token) make it; over HTTP it is the header
/// [`HEADER`]. It is no secret: it allows neither to renew the hold nor to give it back.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = firstcome::Locks::memory();
/// use firstcome::fence::FenceToken;
///
/// let guard = locks.lock("auction:7").owner("worker-3").acquire().await?;
/// let token = guard.token();
/// assert_eq!((token.lock(), token.fence()), ("auction:7", guard.fence()));
/// assert!(token.owner().starts_with("worker-3#"));
/// assert_eq!(token.to_header().parse::<FenceToken>()?, token);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FenceToken {
    lock: LockName,
    fence: Fence,
    owner: Arc<str>,
}

/// Why something is not a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The name of the lock is not one.
    #[error("lock {0}")]
    Lock(NameError),
    /// The owner is empty, too long, or holds what it must not.
    #[error("owner must be 1 to 160 visible ASCII characters without \" and \\")]
    Owner,
}

impl FenceToken {
    /// A token from its parts, as when it comes from another language or from a row.
    ///
    /// The owner must be 1 to 160 bytes of visible ASCII without quote and backslash, and must name one hold: two holds that
    /// are given the same name and the same fence are taken for one.
    pub fn new(lock: &str, fence: Fence, owner: &str) -> Result<Self, TokenError> {
        let lock = LockName::parse(lock).map_err(TokenError::Lock)?;
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        if owner.is_empty() || OWNER_BYTES_MAX < owner.len() || !owner.bytes().all(allowed) {
            return Err(TokenError::Owner);
        }
        Ok(Self { lock, fence, owner: owner.into() })
    }

    /// The token of a hold. The owner's name may be shared by many; the tag tells the holds apart, and no process can make the
    /// request, which allows to give the lock back, out of it.
    pub(crate) fn of_hold(lock: &LockName, fence: Fence, owner: &OwnerName, request: Request) -> Self {
        let digest = Sha256::new()
            .chain_update(b"firstcome fence owner\0")
            .chain_update(request.client.0.to_be_bytes())
            .chain_update(request.number.to_be_bytes())
            .finalize();
        // A name has no `#`, so no name is another one with a tag.
        let mut tagged = format!("{owner}#");
        for byte in digest.iter().take(8) {
            // Writing to a `String` cannot fail.
            let _ = write!(tagged, "{byte:02x}");
        }
        Self { lock: lock.clone(), fence, owner: tagged.into() }
    }

    /// The name of the lock.
    pub fn lock(&self) -> &str {
        self.lock.as_str()
    }

    /// The fence of the hold: larger than that of every hold of this lock before it.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Which hold it is.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fence as databases count. It is below 2^53, so it is the same number.
    #[cfg(any(feature = "sqlite", feature = "sqlx"))]
    fn fence_i64(&self) -> i64 {
        self.fence.get().cast_signed()
    }
}

impl fmt::Debug for FenceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FenceToken({})", self.to_header())
    }
}

/// Whether a token is accepted after what is remembered for its lock. Pure: this is what every check means.
///
/// ```
/// use firstcome::Fence;
/// use firstcome::fence::{FenceToken, accepts};
///
/// let token = |fence, owner| FenceToken::new("auction:7", Fence::new(fence).unwrap(), owner).unwrap();
/// assert!(accepts(None, &token(5, "ann")));
/// assert!(accepts(Some(&token(5, "ann")), &token(6, "bob"))); // newer
/// assert!(accepts(Some(&token(5, "ann")), &token(5, "ann"))); // the same once more
/// assert!(!accepts(Some(&token(5, "ann")), &token(4, "ann"))); // older
/// assert!(!accepts(Some(&token(5, "ann")), &token(5, "bob"))); // of two holds
/// ```
pub fn accepts(remembered: Option<&FenceToken>, shown: &FenceToken) -> bool {
    match remembered.filter(|remembered| remembered.lock == shown.lock) {
        None => true,
        Some(last) if last.fence == shown.fence => last.owner == shown.owner,
        Some(last) => last.fence < shown.fence,
    }
}

/// A token was refused: another holder has written since, and nothing was written now.
///
/// To ask for the lock again and to begin from the start is right; to send the same again is not: it never succeeds.
///
/// With the feature `axum` it is an answer: 409 with the code `stale_fence`, see [`HeaderRejection`] for the shape.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fence {} of lock {} is stale: a newer holder has written", shown.fence, shown.lock)]
pub struct StaleFence {
    shown: FenceToken,
}

impl StaleFence {
    /// For checks of one's own that refuse by [`accepts`].
    pub const fn new(shown: FenceToken) -> Self {
        Self { shown }
    }

    /// The token that was refused.
    pub const fn token(&self) -> &FenceToken {
        &self.shown
    }

    /// Stable code, as over HTTP.
    pub const fn code(&self) -> &'static str {
        "stale_fence"
    }
}

/// Why a check did not accept a token.
#[derive(Debug, thiserror::Error)]
pub enum FenceError<E> {
    /// Refused. An expected answer: not to be repeated, and no fault of the database.
    #[error(transparent)]
    Stale(StaleFence),
    /// No answer, or an error of the database: neither accepted for certain nor refused.
    #[error("the fence was neither accepted for certain nor refused")]
    Failed(#[source] E),
}

impl<E> FenceError<E> {
    /// Whether the token was refused.
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_))
    }

    #[cfg(any(feature = "redis", feature = "sqlite", feature = "sqlx"))]
    fn stale(shown: &FenceToken) -> Self {
        Self::Stale(StaleFence::new(shown.clone()))
    }
}
