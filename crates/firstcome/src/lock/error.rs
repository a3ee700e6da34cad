//! Why a lock was not obtained, or is not held any more.

use crate::InputError;
use firstcome_store::core::id::NameError;
use firstcome_store::{Demand, StoreError};
use std::time::Duration;

/// Why a lock was not obtained, or is not held any more. Its variants keep apart what a caller must never mix: *no*
/// ([`Self::Contended`], [`Self::TimedOut`], [`Self::SlotTaken`]), *nothing happened* ([`Self::Input`],
/// [`Self::NotGuaranteed`], [`Self::Unsupported`], [`Self::Unavailable`]) and *unknown* ([`Self::Unknown`],
/// [`Self::Lost`]).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::{LockError, Locks};
///
/// let locks = Locks::memory();
/// let held = locks.lock("report").owner("cron").acquire().await?;
/// match locks.lock("report").try_acquire().await {
///     Ok(_guard) => unreachable!("cron holds it"),
///     Err(LockError::Contended { holder, ttl, .. }) => println!("no: {holder} holds it for {ttl:?}"),
///     Err(LockError::Unknown) => println!("unknown: a grant ends with its lease"),
///     Err(error) => return Err(error.into()),
/// }
/// # held.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A name or a value is outside its limits. Nothing was sent.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The store does not promise what the request demands. Nothing was sent.
    #[error("this store of locks does not promise {demand}: use another store, or do not demand it")]
    NotGuaranteed {
        /// What the request demands.
        demand: Demand,
    },
    /// The store cannot do what was asked. Nothing was sent.
    #[error("this store of locks cannot {operation}")]
    Unsupported {
        /// What was asked.
        operation: &'static str,
    },
    /// Another request has the lock, and this one did not want to wait.
    #[error("held by {holder}{}", figures(*ttl, *waiters))]
    Contended {
        /// The name of the holder.
        holder: String,
        /// How many requests wait for the lock. 0 also if the store does not report it.
        waiters: u32,
        /// How long the hold lasts unless it is renewed. [`Duration::MAX`] if nothing ends it by itself, or the store does not
        /// report it.
        ttl: Duration,
    },
    /// Another process has taken this slot of a job, also if its run is over by now: see
    /// [`Locks::once`](super::Locks::once).
    #[error("taken by {holder}; the next slot begins in {} ms", next_in.as_millis())]
    SlotTaken {
        /// The name of the process that has taken it.
        holder: String,
        /// How long this slot lasts after the request, by this machine's clock.
        next_in: Duration,
    },
    /// The wait ended before the request got the lock.
    #[error("not obtained in time{}", position.map(|ahead| format!(", with {ahead} still ahead")).unwrap_or_default())]
    TimedOut {
        /// How many requests were ahead at the end, if the store reported it.
        position: Option<u32>,
    },
    /// The store did nothing: it is overloaded, or cannot do it now.
    #[error("the store did nothing: {0}")]
    Unavailable(StoreError),
    /// The store may have done it. The client undoes a grant in the background, or the grant ends with its lease.
    #[error("the store gave no answer; a grant is undone, or ends with its lease")]
    Unknown,
    /// The hold is over, or may be over.
    #[error("the lock was lost; only the fence protects what was written since")]
    Lost,
}

/// The figures of a hold, unless the store reports none.
fn figures(ttl: Duration, waiters: u32) -> String {
    match ttl {
        Duration::MAX => String::new(),
        ttl => format!(" for up to {} ms more, with {waiters} waiting", ttl.as_millis()),
    }
}

impl From<StoreError> for LockError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::Unknown) { Self::Unknown } else { Self::Unavailable(error) }
    }
}

#[cfg(feature = "sql")]
impl From<firstcome_sql::SqlError> for LockError {
    fn from(error: firstcome_sql::SqlError) -> Self {
        Self::from(StoreError::from(error))
    }
}

#[cfg(feature = "etcd")]
impl From<firstcome_etcd::EtcdError> for LockError {
    fn from(error: firstcome_etcd::EtcdError) -> Self {
        if error == firstcome_etcd::EtcdError::LeaseOver { Self::Lost } else { Self::from(StoreError::from(error)) }
    }
}

impl LockError {
    pub(super) const fn value(field: &'static str, wanted: &'static str) -> Self {
        Self::Input(InputError::Value { field, wanted })
    }

    pub(super) const fn name(field: &'static str, error: NameError) -> Self {
        Self::Input(InputError::Name { field, error })
    }

    /// The stable code, as the HTTP API spells it. `not_guaranteed`, `unsupported` and `slot_taken` are of this
    /// library alone: over HTTP every store keeps what a request can ask for, and there are no slots of jobs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Input(InputError::Name { .. }) => "invalid_name",
            Self::Input(InputError::Value { .. } | InputError::Settings { .. } | InputError::Appearance(_)) => {
                "invalid_field"
            }
            Self::NotGuaranteed { .. } => "not_guaranteed",
            Self::Unsupported { .. } => "unsupported",
            Self::Contended { .. } => "contended",
            Self::SlotTaken { .. } => "slot_taken",
            Self::TimedOut { .. } => "timed_out",
            Self::Unavailable(StoreError::Busy { .. }) => "overloaded",
            Self::Unavailable(_) => "store_unavailable",
            Self::Unknown => "outcome_unknown",
            Self::Lost => "lock_lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_has_too_much_to_do_is_not_called_unreachable() {
        let error = LockError::from(StoreError::busy(Duration::from_millis(100)));
        let says = "the store did nothing: too many requests wait; try again in 100 ms";
        assert_eq!((error.code(), error.to_string().as_str()), ("overloaded", says));
    }

    #[test]
    fn a_holder_that_the_store_does_not_describe_is_named_without_figures() {
        let contended = |waiters, ttl| LockError::Contended { holder: "cron".to_owned(), waiters, ttl }.to_string();
        assert_eq!(contended(0, Duration::MAX), "held by cron");
        assert_eq!(contended(0, Duration::from_secs(3)), "held by cron for up to 3000 ms more, with 0 waiting");
        assert_eq!(contended(2, Duration::from_secs(3)), "held by cron for up to 3000 ms more, with 2 waiting");
    }
}
