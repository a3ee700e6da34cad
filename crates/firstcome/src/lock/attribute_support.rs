//! The functions that `#[distributed_lock]` expands to, and the traits for errors and transactions under it.

use super::{Guard, LockError};
use crate::fence::FenceToken;
use firstcome_store::edge::draw_id;
use std::future::Future;
use std::time::Duration;

/// An error that may be a version conflict: another writer changed what the body had read, and nothing was written.
/// Running the body again may succeed. Needed for [`retry`](crate::distributed_lock#options).
#[diagnostic::on_unimplemented(
    message = "`retry` needs to know which errors are version conflicts, and `{Self}` does not say",
    label = "`{Self}` must implement `firstcome::lock::Retry`"
)]
pub trait Retry {
    /// Whether the body must run again from its start.
    fn is_conflict(&self) -> bool;
}

/// A transaction that lives within a lock; see [`transaction`](crate::distributed_lock#options).
///
/// Dropping it must undo it, at once or in the background, because nothing can be awaited when a future is dropped or
/// panics.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that can live within a lock",
    label = "`{Self}` must implement `firstcome::lock::Transaction`"
)]
pub trait Transaction: Sized + Send {
    /// Why a step failed.
    type Error;

    /// Refuses a token by the rule of [`fence::accepts`](crate::fence::accepts), or remembers it. This is the first
    /// step of the transaction. With the feature `sqlx`, its transactions do this by [`fence::sqlx`](crate::fence).
    ///
    /// The row that remembers the token must stay locked until the transaction ends: one row per lock, updated if its
    /// fence is not larger. Then a transaction whose lock is lost after this step either ends before the next holder's
    /// transaction begins to read, or fails. Accepts the same token again.
    fn check_fence(&mut self, token: &FenceToken) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes the transaction durable.
    fn commit(self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Undoes the transaction. If this fails, the transaction ends with its connection, so there is nothing to return.
    fn rollback(self) -> impl Future<Output = ()> + Send;
}

/// The return type of a function under the attribute.
#[diagnostic::on_unimplemented(
    message = "a function under `#[distributed_lock]` returns a `Result`, and `{Self}` is not a `Result`",
    label = "must be a `Result` whose error implements `From<LockError>`"
)]
pub trait Outcome: Sized {
    /// Makes the return value for a lock that was not obtained or was lost.
    fn refused(error: LockError) -> Self;

    /// Whether the body succeeded.
    fn is_ok(&self) -> bool;
}

impl<T, E: From<LockError>> Outcome for Result<T, E> {
    fn refused(error: LockError) -> Self {
        Err(error.into())
    }

    fn is_ok(&self) -> bool {
        self.is_ok()
    }
}

/// Clones an argument for another run of the body.
pub fn clone_for_retry<T: Clone>(argument: &T) -> T {
    argument.clone()
}

/// Begins a transaction and checks the fence in it.
pub async fn begin<X, E, B>(guard: &Guard, begin: impl Future<Output = Result<X, B>>) -> Result<Result<X, E>, LockError>
where
    X: Transaction,
    E: From<B> + From<X::Error>,
{
    let token = guard.token()?;
    let mut transaction = match guard.run(begin).await? {
        Ok(transaction) => transaction,
        Err(error) => return Ok(Err(error.into())),
    };
    let checked = guard.run(transaction.check_fence(&token)).await;
    match checked {
        Ok(Ok(())) => Ok(Ok(transaction)),
        Ok(Err(error)) => {
            transaction.rollback().await;
            Ok(Err(error.into()))
        }
        Err(lost) => {
            transaction.rollback().await;
            Err(lost)
        }
    }
}

/// Commits the transaction of a body that succeeded while the lock was held, and rolls back every other one. A commit
/// that has begun is not cancelled when the lock is lost: the fence check inside the transaction decides.
pub async fn conclude<T, E, X>(
    guard: &Guard,
    transaction: X,
    returned: Result<Result<T, E>, LockError>,
) -> Result<Result<T, E>, LockError>
where
    X: Transaction,
    E: From<X::Error>,
{
    match returned {
        Ok(Ok(_)) if guard.is_lost() => {
            transaction.rollback().await;
            Err(LockError::Lost)
        }
        Ok(Ok(value)) => Ok(transaction.commit().await.map(|()| value).map_err(E::from)),
        failed => {
            transaction.rollback().await;
            failed
        }
    }
}

/// Whether the body ended with a version conflict.
pub fn is_conflict<T, E: Retry>(returned: &Result<Result<T, E>, LockError>) -> bool {
    matches!(returned, Ok(Err(error)) if error.is_conflict())
}

/// Waits `pause`, plus or minus a quarter of it. Returns whether the lock is still held.
pub async fn pause(guard: &Guard, pause: Duration) -> bool {
    let quarter_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX) / 4;
    // Chance only spreads retries that collided. Without it, their different work times spread them.
    let chance_us = draw_id().unwrap_or(quarter_us) % (2 * quarter_us + 1);
    guard.sleep(Duration::from_micros(3 * quarter_us + chance_us)).await.is_ok()
}

/// Releases the lock. A success counts only if the lock was held to its end. An error of the body is returned
/// unchanged.
pub async fn release<R: Outcome>(guard: Guard, returned: Result<R, LockError>) -> R {
    let outcome = match returned {
        Ok(outcome) => outcome,
        Err(error) => return R::refused(error),
    };
    // A body that does not await can outlast its lock unnoticed.
    let released = if guard.is_lost() { Err(LockError::Lost) } else { guard.release().await };
    match released {
        Err(error) if outcome.is_ok() => R::refused(error),
        _ => outcome,
    }
}

/// Releases the lock after a transaction. The result stands even if the lock was lost, because the transaction
/// checked the fence.
pub async fn release_concluded<R: Outcome>(guard: Guard, returned: Result<R, LockError>) -> R {
    let outcome = match returned {
        Ok(outcome) => outcome,
        Err(error) => return R::refused(error),
    };
    // If the release fails, the hold ends with its lease.
    let _ = guard.release().await;
    outcome
}
