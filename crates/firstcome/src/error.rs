//! How a request ends: yes, no, or unknown.

use firstcome_store::StoreError;
use firstcome_store::core::id::NameError;
use firstcome_store::core::room::appearance::AppearanceError;
use firstcome_store::core::{auction, coupon, erase, room};
use std::time::Duration;

/// A name or a value that a caller chose is outside its limits. Nothing was sent.
///
/// ```
/// use firstcome::{InputError, Store};
///
/// let wrong = Store::memory().coupon("two words").unwrap_err();
/// assert!(matches!(wrong, InputError::Name { field: "coupon", .. }));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// Invalid name.
    #[error("{field} {error}")]
    Name {
        /// The field with the name.
        field: &'static str,
        /// What is wrong with it.
        #[source]
        error: NameError,
    },
    /// A value is outside its limits.
    #[error("{field} must be {wanted}")]
    Value {
        /// Which value.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// Settings of a room or a listing are outside their limits.
    #[error("{says}")]
    Settings {
        /// The setting.
        field: &'static str,
        /// What it must be.
        says: String,
    },
    /// An appearance is outside its limits, or cannot be read.
    #[error(transparent)]
    Appearance(AppearanceError),
}

impl InputError {
    /// The field, setting or value that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Name { field, .. } | Self::Value { field, .. } | Self::Settings { field, .. } => field,
            Self::Appearance(error) => error.field(),
        }
    }
}

/// Why a request did not succeed. Its variants keep apart what a caller must never mix: *no* ([`Self::Refused`]),
/// *nothing happened* ([`Self::Input`], [`Self::Unavailable`]) and *unknown* ([`Self::Unknown`], [`Self::NotStoredYet`]).
///
/// `?` hands it on, and `match` tells the cases apart:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::core::coupon::Rejection;
/// use firstcome::{Error, Outcome, Store};
///
/// let launch = Store::memory().coupon("launch")?;
/// launch.put_limit(1).await?;
/// launch.claim("ann")?.send().await?;
/// match launch.claim("bob")?.idempotency_key("click-7")?.send().await {
///     Ok(Outcome::Issued(claim) | Outcome::AlreadyIssued(claim)) => println!("yes: {:?}", claim.code),
///     Err(Error::Refused(Rejection::SoldOut)) => println!("no: all are gone"),
///     Err(Error::Refused(why)) => println!("no: {why}"),
///     Err(Error::Unknown | Error::NotStoredYet { .. }) => println!("unknown: send the same claim with the same key again"),
///     Err(error) => println!("nothing happened: {error}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<R> {
    /// No: a rule refused it.
    #[error(transparent)]
    Refused(R),
    /// Nothing was sent: a name or a value is outside its limits.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Nothing was done: the store is [busy](StoreError::Busy) or has a [fault](StoreError::Faulted).
    #[error(transparent)]
    Unavailable(StoreError),
    /// The claim has its place, and is not stored yet. It is neither a yes nor a no: send the same request again after this
    /// time.
    #[error("the claim has its place and is not stored yet; ask again in {} ms", retry_after.as_millis())]
    NotStoredYet {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The request may or may not have happened. Send the same request with the same idempotency key again, never a new
    /// one.
    #[error("the outcome is unknown; repeat the same request")]
    Unknown,
}

/// Why a request about a coupon did not succeed.
pub type CouponError = Error<coupon::Rejection>;
/// Why a request about a room did not succeed.
pub type RoomError = Error<room::Rejection>;
/// Why a person was not erased.
pub type EraseError = Error<erase::Rejection>;
/// Why a request about a listing or a member did not succeed.
pub type AuctionError = Error<auction::Rejection>;

impl<R> Error<R> {
    /// Returns the rule that refused the request; `None` if none did.
    pub const fn rejection(&self) -> Option<&R> {
        match self {
            Self::Refused(rejection) => Some(rejection),
            Self::Input(_) | Self::Unavailable(_) | Self::NotStoredYet { .. } | Self::Unknown => None,
        }
    }
}

impl<R> From<StoreError> for Error<R> {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unknown => Self::Unknown,
            StoreError::NotStoredYet { retry_after } => Self::NotStoredYet { retry_after },
            error => Self::Unavailable(error),
        }
    }
}

/// Joins what the store replied with whether it replied.
pub(crate) fn flat<T, R, F>(answer: Result<Result<T, F>, StoreError>) -> Result<T, Error<R>>
where
    R: From<F>,
{
    answer?.map_err(|refused| Error::Refused(refused.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_neither_no_nor_nothing() {
        let unknown = CouponError::from(StoreError::Unknown);
        assert_eq!((unknown.rejection(), &unknown), (None, &Error::Unknown));
        let busy = CouponError::from(StoreError::busy(Duration::from_millis(7)));
        assert!(matches!(busy, Error::Unavailable(StoreError::Busy { .. })), "{busy}");
        let retry_after = Duration::from_millis(9);
        let waits = CouponError::from(StoreError::NotStoredYet { retry_after });
        assert_eq!((waits.rejection(), &waits), (None, &Error::NotStoredYet { retry_after }));
        let told: Result<(), CouponError> = flat(Ok(Err(coupon::Rejection::SoldOut)));
        assert_eq!(told.unwrap_err().rejection(), Some(&coupon::Rejection::SoldOut));
    }
}
