//! Limited coupons, on any store.

use crate::AnyStore;
use crate::error::{CouponError, Error, InputError, flat};
use crate::request::{checked_key, request_id};
use firstcome_store::core::coupon::{Attributes, Claim, CouponLimit, CouponSettings, Effect, Rejection, Serial};
use firstcome_store::core::id::{CouponName, RequestId, UserId};
use firstcome_store::{ClaimRecord, Claimed, CouponStore, CouponView, Page, Put, RedeemRequest, Refused};
use std::fmt;
use std::sync::Arc;

/// What a user has after a claim that was not refused: see [`CouponHandle`] for an example.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "the claim says whose number it is"]
pub enum Outcome {
    /// The user has a claim, from this request or from an earlier one with the same idempotency key.
    Issued(Claimed),
    /// The user has a claim from another request.
    AlreadyIssued(Claimed),
}

impl Outcome {
    /// The claim that the user has, from whichever request.
    pub const fn claim(&self) -> &Claimed {
        match self {
            Self::Issued(claim) | Self::AlreadyIssued(claim) => claim,
        }
    }
}

/// One coupon of a store: issued first come, first served. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::{Outcome, Store};
///
/// let launch = Store::memory().coupon("launch")?;
/// launch.put_limit(100).await?;
///
/// let outcome = launch.claim("ann")?.attributes(r#"{"seat":"A7"}"#)?.idempotency_key("click-7")?.send().await?;
/// let Outcome::Issued(claim) = outcome else { return Err("ann has claimed before".into()) };
/// launch.redeem(claim.code.as_str(), Some("ann")).await?; // at the door
///
/// assert_eq!(launch.view().await?.issued, 1);
/// assert!(launch.claim_of("ann").await?.is_some_and(|claim| claim.redeemed.is_some()));
/// for claim in launch.claims(None, 100).await?.items {
///     println!("{}: {}", claim.claimed.issued.serial.get(), claim.user);
/// }
/// # Ok(()) }
/// ```
pub struct CouponHandle<S = AnyStore> {
    pub(crate) store: Arc<S>,
    pub(crate) name: CouponName,
}

impl<S> fmt::Debug for CouponHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CouponHandle({})", self.name)
    }
}

impl<S> Clone for CouponHandle<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), name: self.name.clone() }
    }
}

impl<S: CouponStore> CouponHandle<S> {
    /// Creates the coupon or replaces its settings. Refused: `deleted`, `limit_below_issued`, `room_fixed`.
    pub async fn put(&self, settings: CouponSettings) -> Result<Put, CouponError> {
        flat(self.store.put_coupon(&self.name, settings).await)
    }

    /// Calls [`Self::put`] with a limit and no other settings.
    pub async fn put_limit(&self, limit: u32) -> Result<Put, CouponError> {
        let wanted = "1 to 100 000 000";
        let limit = CouponLimit::new(limit).ok_or(InputError::Value { field: "limit", wanted })?;
        self.put(CouponSettings::with_limit(limit)).await
    }

    /// Ends the coupon for good; claims stay readable and redeemable until a purge removes them. Refused: `unknown_coupon`.
    pub async fn delete(&self) -> Result<(), CouponError> {
        flat(self.store.delete_coupon(&self.name).await)
    }

    /// Shows the settings, the number of claims, the state, and whether the claims are purged. Refused: `unknown_coupon`.
    pub async fn view(&self) -> Result<CouponView, CouponError> {
        flat(self.store.coupon(&self.name).await)
    }

    /// Begins a claim for a user; nothing happens before [`ClaimRequest::send`].
    pub fn claim(&self, user: &str) -> Result<ClaimRequest<'_, S>, InputError> {
        let user = UserId::parse(user).map_err(|error| InputError::Name { field: "user", error })?;
        Ok(ClaimRequest { coupon: self, claim: Claim { user, attributes: None, request: None }, key: None })
    }

    /// Returns the claim of a user, if there is one. Refused: `unknown_coupon`, `purged`.
    pub async fn claim_of(&self, user: &str) -> Result<Option<ClaimRecord>, CouponError> {
        flat(self.store.claim_of(&self.name, user).await)
    }

    /// Returns claims in the order of serials: at most `count`, beginning after serial `after`. Refused:
    /// `unknown_coupon`, `purged`.
    pub async fn claims(&self, after: Option<Serial>, count: usize) -> Result<Page<ClaimRecord>, CouponError> {
        flat(self.store.claims(&self.name, after, count).await)
    }

    /// Redeems a claim by its code. The claimant must be `user`, if given. Refused, in this order: `unknown_coupon`,
    /// `unknown_code`, `wrong_user`, `already_redeemed`, `expired`. Once the claims are purged: `deleted` or `expired`.
    pub async fn redeem(&self, code: &str, user: Option<&str>) -> Result<ClaimRecord, CouponError> {
        let user = user.map(UserId::parse).transpose().map_err(|error| InputError::Name { field: "user", error })?;
        let request = RedeemRequest { code: code.into(), user, request: None };
        flat(self.store.redeem(&self.name, request).await).map(Effect::into_inner)
    }
}

/// A claim, before it is sent: made by [`CouponHandle::claim`].
///
/// Dropping the future of [`Self::send`] leaves the claim done or not done, never half done. Send the same claim again
/// to learn which.
#[must_use = "nothing is sent before `send`"]
pub struct ClaimRequest<'a, S = AnyStore> {
    coupon: &'a CouponHandle<S>,
    claim: Claim,
    key: Option<String>,
}

firstcome_store::core::debug_by_name!(['a, S] ClaimRequest<'a, S>);

impl<S: CouponStore> ClaimRequest<'_, S> {
    /// Attaches JSON to the claim, at most 1 KiB. The store keeps it unchanged, and checks nothing but its length.
    pub fn attributes(mut self, json: &str) -> Result<Self, InputError> {
        let wanted = "at most 1024 bytes";
        let attributes = Attributes::new(json).ok_or(InputError::Value { field: "attributes", wanted })?;
        self.claim.attributes = Some(attributes);
        Ok(self)
    }

    /// Makes a repeat of this request recognisable. The repeat returns [`Outcome::Issued`] again. The same key with
    /// another user or other attributes is refused as `idempotency_key_reused`.
    pub fn idempotency_key(mut self, key: &str) -> Result<Self, InputError> {
        self.key = Some(checked_key(key)?);
        Ok(self)
    }

    /// Sends the claim. One step of the store; on disk, one sync shared with all other requests that have arrived.
    ///
    /// Refused, in this order: `unknown_coupon`, `idempotency_key_reused`, `deleted`, `not_open`, `expired`, `sold_out`.
    pub async fn send(self) -> Result<Outcome, CouponError> {
        let Self { coupon, mut claim, key } = self;
        claim.request = key.map(|key| request_of(&claim, &key));
        match coupon.store.claim(&coupon.name, claim).await? {
            Ok(effect) => Ok(Outcome::Issued(effect.into_inner())),
            Err(Refused { rejection: Rejection::AlreadyIssued(_), claim: Some(claim) }) => {
                Ok(Outcome::AlreadyIssued(claim))
            }
            Err(refused) => Err(Error::Refused(refused.rejection)),
        }
    }
}

fn request_of(claim: &Claim, key: &str) -> RequestId {
    let attributes = claim.attributes.as_ref().map_or("", Attributes::as_str);
    request_id(&[b"library"], key, &[claim.user.as_str().as_bytes(), attributes.as_bytes()])
}
