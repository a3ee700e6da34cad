//! Ready-made checks for what a lock protects.
//!
//! A holder may stand still for longer than its lease: a long pause, a machine that sleeps, a write that is stuck in
//! the network. It does not notice that another process has the lock by now. No lock can prevent its late write. Only
//! the store that it writes to can, if it refuses a smaller fence than it has seen. The writer shows a [`FenceToken`].
//! One of these checks compares it with the remembered token, in the same atomic step as the write or as the beginning
//! of its transaction:
//!
//! | what is protected | check | where the fence is remembered | cost |
//! |---|---|---|---|
//! | rows that a transaction writes | [`sqlx::check`] (PostgreSQL, MySQL, MariaDB), [`sqlite::check`] | a table `fences`, a row per lock | one statement, the first of the transaction |
//! | one row | [`sql::Columns`] in the one `UPDATE` | two columns of that row | none |
//! | one key of Redis or Valkey | [`redis::GuardedKey`]; [`redis::FENCE_LUA`] in a custom script | a hash beside the key, in its slot | none |
//! | the work of another service | the header [`HEADER`], then one of these checks in that service | as in that check | none |
//!
//! `#[distributed_lock(…, transaction(tx = self.pool.begin()))]` does the first check by itself: a transaction of sqlx
//! implements [`lock::Transaction`](crate::lock::Transaction). The features `sqlx` (0.9), `redis`, `axum` and, by
//! default, `sqlite` enable the checks. The rule, the token and the texts of the statements are always available.
//!
//! # The rule
//! All checks follow one rule, which [`accepts`] states. A token is accepted if nothing is remembered for its lock, if
//! its fence is larger than the remembered one, or if fence and owner equal the remembered ones. A smaller fence is
//! refused. So is an equal fence of another owner, which can only come from a lock store that lost its memory. Holds that
//! [share](crate::LockRequest::shared) a lock in one turn have one fence and count as one owner.
//!
//! # Three outcomes
//! `Ok(())`: accepted, and remembered. [`FenceError::Stale`]: refused, nothing was written. [`FenceError::Failed`]: the
//! database failed or did not answer; each check says what may have happened then. A check never reports one of these
//! as another.
//!
//! # Not promised
//! - Anything after the store of the fences forgets: a table that is emptied, or a Redis that fails over to a replica
//!   without the last write.
//! - Protection from a client that lies. A fence is a number. A client that shows a large one is believed, and shuts
//!   the others out: accept tokens only from callers that may write anyway.

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
use firstcome_store::core::lock::Mode;
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// The most bytes of the owner in a token: an owner's name and the tag of its hold. Limits the size of rows and
/// headers.
pub const OWNER_BYTES_MAX: usize = 160;

/// What a writer shows to a guarded store: its lock, the fence of its hold, and the owner of that hold.
///
/// [`Guard::token`](crate::Guard::token) and [`Lease::token`](crate::Lease::token) make it. Over HTTP it is the header
/// [`HEADER`]. It is not a secret: it allows neither a renewal nor a release of the hold.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = firstcome::Locks::memory();
/// use firstcome::fence::FenceToken;
///
/// let guard = locks.lock("auction:7").owner("worker-3").acquire().await?;
/// let token = guard.token()?;
/// assert_eq!((token.lock(), token.fence()), ("auction:7", guard.fence()?));
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

/// Why the parts do not make a token: see [`FenceToken::new`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The name of the lock is invalid.
    #[error("lock {0}")]
    Lock(NameError),
    /// The owner is empty, too long, or has a character that it must not have.
    #[error("owner must be 1 to 160 visible ASCII characters without \" and \\")]
    Owner,
}

impl FenceToken {
    /// Makes a token from its parts, for example from another language or from a row.
    ///
    /// The owner must be 1 to 160 bytes of visible ASCII without quote and backslash. It must identify one hold: a
    /// check cannot tell apart two holds with the same owner and the same fence.
    pub fn new(lock: &str, fence: Fence, owner: &str) -> Result<Self, TokenError> {
        let lock = LockName::parse(lock).map_err(TokenError::Lock)?;
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        if owner.is_empty() || OWNER_BYTES_MAX < owner.len() || !owner.bytes().all(allowed) {
            return Err(TokenError::Owner);
        }
        Ok(Self { lock, fence, owner: owner.into() })
    }

    /// Makes the token of a hold that the lock was granted for in this mode. All holds of a turn share the lock and the
    /// fence, so they have one token: a check accepts them beside each other.
    pub(crate) fn of_mode(lock: &LockName, fence: Fence, owner: &OwnerName, request: Request, mode: Mode) -> Self {
        match mode {
            Mode::Exclusive { .. } => Self::of_hold(lock, fence, owner, request),
            // A name has no `#`.
            Mode::Shared { .. } => Self { lock: lock.clone(), fence, owner: "shared#".into() },
        }
    }

    /// Makes the token of a hold. Many holds may share an owner's name; the tag tells them apart. The tag is a digest,
    /// so no client can derive the request, which would allow a release, from it.
    pub(crate) fn of_hold(lock: &LockName, fence: Fence, owner: &OwnerName, request: Request) -> Self {
        let digest = Sha256::new()
            .chain_update(b"firstcome fence owner\0")
            .chain_update(request.client.0.to_be_bytes())
            .chain_update(request.number.to_be_bytes())
            .finalize();
        // A name has no `#`, so a name with a tag never equals another name.
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

    /// The owner of the hold, which identifies it.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fence as a signed number, as databases count. It is below 2^53, so it does not change.
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

/// Whether a token is accepted, given what is remembered for its lock. Pure: this is the rule of every check.
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
/// assert!(!accepts(Some(&token(5, "ann")), &token(5, "bob"))); // the same fence of another hold
/// ```
pub fn accepts(remembered: Option<&FenceToken>, shown: &FenceToken) -> bool {
    match remembered.filter(|remembered| remembered.lock == shown.lock) {
        None => true,
        Some(last) if last.fence == shown.fence => last.owner == shown.owner,
        Some(last) => last.fence < shown.fence,
    }
}

/// A refusal: another holder has written since, and nothing was written now.
///
/// Ask for the lock again and begin from the start. Sending the same request again never succeeds.
///
/// With the feature `axum` this is a response: 409 with the code `stale_fence`, see [`HeaderRejection`] for its shape.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fence {} of lock {} is stale: a newer holder has written", shown.fence, shown.lock)]
pub struct StaleFence {
    shown: FenceToken,
}

impl StaleFence {
    /// For custom checks that refuse by [`accepts`].
    pub const fn new(shown: FenceToken) -> Self {
        Self { shown }
    }

    /// The token that was refused.
    pub const fn token(&self) -> &FenceToken {
        &self.shown
    }

    /// The stable code, as over HTTP.
    pub const fn code(&self) -> &'static str {
        "stale_fence"
    }
}

/// Why a check did not accept a token. [`fence`](self) has an example.
#[derive(Debug, thiserror::Error)]
pub enum FenceError<E> {
    /// Refused. This is an expected answer and no fault of the database: do not repeat the request.
    #[error(transparent)]
    Stale(StaleFence),
    /// The database failed or did not answer, so the token was neither accepted for certain nor refused.
    #[error("it is unknown whether the fence was accepted")]
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
