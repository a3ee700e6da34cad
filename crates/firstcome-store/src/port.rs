//! The ports: one method is one atomic step. The conformance suites test what stands here.

use crate::error::StoreError;
use crate::voucher::VoucherCode;
use firstcome_core::coupon::{
    Attributes, Claim, CouponSettings, CouponState, Effect, Issued, Redeemed, Rejection, Serial,
};
use firstcome_core::id::{CouponName, RequestId, UserId};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use std::future::Future;

/// Outer: did the store answer? Inner: what was the answer?
pub type Answer<T> = Result<Result<T, Refused>, StoreError>;

/// How much an acknowledged claim survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Durability {
    /// The claim is gone with the process.
    Memory,
    /// The claim survives `kill -9` and a power cut: it was synced to disk before it was answered.
    Disk,
    /// The claim survives the node: Redis has accepted it, and the database does not hold it yet.
    Redis,
    /// The claim survives the loss of Redis: the database had committed it before it was answered.
    Database,
}

impl Durability {
    /// The durability as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Redis => "redis",
            Self::Database => "database",
        }
    }
}

/// A refusal by a rule, with the claim that it is about where there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Which rule.
    pub rejection: Rejection,
    /// For `already_issued`: the claim that the user holds.
    pub claim: Option<Claimed>,
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, claim: None }
    }
}

/// A claim as its holder sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// Place and instant.
    pub issued: Issued,
    /// What the holder shows to redeem it.
    pub code: VoucherCode,
}

/// What a claimant is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimReply {
    /// The claim, which is stored.
    Stored(Claimed),
    /// A place among those who get one, since this instant. It can be lost with the server that decides the order; serial
    /// and code come with the storing.
    Placed(Timestamp),
}

/// A claim as the operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimRecord {
    /// The claimant; for a claim by a pass without a user `pass:{number}`.
    pub user: Box<str>,
    /// Place, instant, code.
    pub claimed: Claimed,
    /// What came with the claim.
    pub attributes: Option<Attributes>,
    /// When it was redeemed, if it was.
    pub redeemed: Option<Redeemed>,
}

/// Some items in order, and whether more follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Ask again after this serial for the next ones; `None` at the end.
    pub next: Option<Serial>,
}

/// Whether a put made something new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// There was none of that name.
    Created,
    /// The settings of an existing one were replaced.
    Replaced,
}

/// A coupon as everybody may see it. All of it is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CouponView {
    /// The settings in force.
    pub settings: CouponSettings,
    /// How many are issued.
    pub issued: u32,
    /// Where it stands.
    pub state: CouponState,
}

/// One request to use up a coupon by its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedeemRequest {
    /// What the holder shows. Case, blanks and dashes do not matter.
    pub code: String,
    /// Checked against the claimant if given.
    pub user: Option<UserId>,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// The port for limited coupons. Every adapter passes `conformance::coupon`:
///
/// - Linearizable per coupon: answers are those of [`firstcome_core::coupon::Coupon`] applied in some order that agrees
///   with real time. Serials count that order.
/// - Clock: `now` is the store's own, read in the same step as the judgement.
/// - Durable before told: an answer that rests on a claim, refusals included, is given only once that claim survives
///   what [`CouponStore::durability`] says.
/// - Cancel-safe: a caller that goes away leaves the command done or not done, never half done.
pub trait CouponStore: Send + Sync {
    /// What an acknowledged claim survives.
    fn durability(&self) -> Durability;

    /// Creates a coupon or replaces its settings. A [`Revision`] replaces only the settings that it names, and creates nothing.
    ///
    /// Refused, in this order: `unknown_coupon` (a revision), `deleted`, `settings_changed` (a revision), `limit_below_issued`,
    /// `room_fixed`.
    fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> impl Future<Output = Answer<Put>> + Send;

    /// Ends a coupon for good; a second time has no effect. Refused: `unknown_coupon`.
    fn delete_coupon(&self, coupon: &CouponName) -> impl Future<Output = Answer<()>> + Send;

    /// Shows a coupon. Refused: `unknown_coupon`.
    fn coupon(&self, coupon: &CouponName) -> impl Future<Output = Answer<CouponView>> + Send;

    /// Claims one coupon for a user. A repeat by the same user has no second effect.
    ///
    /// Refused, in this order: `unknown_coupon`, `idempotency_key_reused`, `already_issued` (with the claim),
    /// `deleted`, `not_open`, `expired`, `sold_out`.
    fn claim(&self, coupon: &CouponName, claim: Claim) -> impl Future<Output = Answer<Effect<Claimed>>> + Send;

    /// [`Self::claim`], but told as soon as the coupon's settings say ([`CouponSettings::acknowledge`]). Refusals are told once
    /// they are stored, no matter what these say.
    fn claim_early(
        &self,
        coupon: &CouponName,
        claim: Claim,
    ) -> impl Future<Output = Answer<Effect<ClaimReply>>> + Send {
        async move { Ok(self.claim(coupon, claim).await?.map(|effect| effect.map(ClaimReply::Stored))) }
    }

    /// The claim of one user, if there is one. Refused: `unknown_coupon`. [`StoreError::NotYet`] while it has a place
    /// ([`ClaimReply::Placed`]) and is not stored.
    fn claim_of(&self, coupon: &CouponName, user: &str) -> impl Future<Output = Answer<Option<ClaimRecord>>> + Send;

    /// Claims in serial order, from the one after `after` (from the first without it), at most `count`.
    /// Refused: `unknown_coupon`.
    fn claims(
        &self,
        coupon: &CouponName,
        after: Option<Serial>,
        count: usize,
    ) -> impl Future<Output = Answer<Page<ClaimRecord>>> + Send;

    /// Uses up a coupon by its code; the record that comes back has `redeemed` set, and no attributes. Refused, in this order: `unknown_coupon`, `idempotency_key_reused`,
    /// `unknown_code`, `wrong_user`, `already_redeemed`, `expired`.
    fn redeem(
        &self,
        coupon: &CouponName,
        redeem: RedeemRequest,
    ) -> impl Future<Output = Answer<Effect<ClaimRecord>>> + Send;
}
