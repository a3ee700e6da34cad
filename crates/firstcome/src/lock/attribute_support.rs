//! What `#[distributed_lock]` expands to, and the traits by which it knows errors and transactions.

use super::{Guard, LockError};
use crate::fence::FenceToken;
use firstcome_store::edge::draw_id;
use std::future::Future;
use std::time::Duration;

/// An error that may be a version conflict: a process changed what was read, nothing was written, and to do it all again
/// may well succeed. Needed for [`retry`](crate::distributed_lock#options).
#[diagnostic::on_unimplemented(
    message = "`retry` needs to know which errors are version conflicts, and `{Self}` does not say",
    label = "`{Self}` must implement `firstcome::lock::Retry`"
)]
pub trait Retry {
    /// Whether the section must be run again from its start.
    fn is_conflict(&self) -> bool;
}

/// A transaction that lives within a lock; see [`transaction`](crate::distributed_lock#options).
///
/// Dropping it must undo it, at once or in the background: nothing is awaited when a future is dropped or panics.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that can live within a lock",
    label = "`{Self}` must implement `firstcome::lock::Transaction`"
)]
pub trait Transaction: Sized + Send {
    /// Why a step failed.
    type Error;

    /// Refuses a token by the rule of [`fence::accepts`](crate::fence::accepts), and remembers it otherwise. The first step
    /// of the transaction. With the feature `sqlx` its transactions do this by [`fence::sqlx`](crate::fence).
    ///
    /// The row that remembers it must stay locked until the transaction ends (one row per lock, updated if its fence is not
    /// larger): then a transaction whose lock was lost after this either ends before the next holder's begins to read,
    /// or fails. The same token again is fine.
    fn check_fence(&mut self, token: &FenceToken) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes it durable.
    fn commit(self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Undoes it. What fails here ends with the connection, so there is nothing to return.
    fn rollback(self) -> impl Future<Output = ()> + Send;
}

/// What a function under the attribute returns.
#[diagnostic::on_unimplemented(
    message = "a function under `#[distributed_lock]` returns a `Result`, and `{Self}` is none",
    label = "must be a `Result` whose error implements `From<LockError>`"
)]
pub trait Outcome: Sized {
    /// There is no lock, or no lock any more.
    fn refused(error: LockError) -> Self;

    /// Whether the section says that it did its work.
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

/// An argument for one more run of the body.
pub fn clone_for_retry<T: Clone>(argument: &T) -> T {
    argument.clone()
}

/// Begins a transaction and shows it the fence.
pub async fn begin<X, E, B>(guard: &Guard, begin: impl Future<Output = Result<X, B>>) -> Result<Result<X, E>, LockError>
where
    X: Transaction,
    E: From<B> + From<X::Error>,
{
    let mut transaction = match guard.run(begin).await? {
        Ok(transaction) => transaction,
        Err(error) => return Ok(Err(error.into())),
    };
    let token = guard.token();
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

/// Commits what a body did that ended well within its lock, and undoes everything else. A commit that has begun is not
/// cancelled when the lock is lost: the fence, which was checked within it, decides.
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

/// Waits `pause`, give or take a quarter of it, and says whether the lock is still held.
pub async fn pause(guard: &Guard, pause: Duration) -> bool {
    let quarter_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX) / 4;
    // Chance only spreads those who collided: without any, they do so by what they take for their work.
    let chance_us = draw_id().unwrap_or(quarter_us) % (2 * quarter_us + 1);
    guard.sleep(Duration::from_micros(3 * quarter_us + chance_us)).await.is_ok()
}

/// Gives the lock back. A success is one only if the lock was held to its end; an error of the body's own stays.
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

/// Gives the lock back after a transaction. What it says stands, no matter what becomes of the lock: it checked the fence.
pub async fn release_concluded<R: Outcome>(guard: Guard, returned: Result<R, LockError>) -> R {
    let outcome = match returned {
        Ok(outcome) => outcome,
        Err(error) => return R::refused(error),
    };
    // Lost or unanswered, the hold ends with its lease.
    let _ = guard.release().await;
    outcome
}
