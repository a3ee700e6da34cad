//! The port for coupons. One method is one atomic step. The conformance suite tests the promises of this module.

use crate::error::StoreError;
use crate::voucher::VoucherCode;
use firstcome_core::coupon::{
    Attributes, Claim, CouponSettings, CouponState, Effect, Issued, Redeemed, Rejection, Serial,
};
use firstcome_core::id::{CouponName, RequestId, UserId};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use std::future::Future;

/// The outer result says whether the store replied, the inner one what it replied.
pub type Answer<T> = Result<Result<T, Refused>, StoreError>;

/// What an acknowledged claim survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: the claim ends with the process.
    Memory,
    /// `kill -9` and a power cut: the claim was synced to disk before the reply.
    Disk,
    /// The loss of the node: Redis has accepted the claim, and the database does not hold it yet.
    Redis,
    /// The loss of Redis: the database committed the claim before the reply.
    Database,
}

impl Durability {
    /// Returns the durability as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Redis => "redis",
            Self::Database => "database",
        }
    }
}

/// A refusal by a rule, with the existing claim if it is about one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The rule.
    pub rejection: Rejection,
    /// For `already_issued`: the claim that the user holds.
    pub claim: Option<Claimed>,
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, claim: None }
    }
}

impl From<Refused> for Rejection {
    fn from(refused: Refused) -> Self {
        refused.rejection
    }
}

/// A claim as its holder sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// The serial and the instant.
    pub issued: Issued,
    /// The code that the holder shows to redeem the claim.
    pub code: VoucherCode,
}

/// The reply to a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimReply {
    /// The store holds the claim.
    Stored(Claimed),
    /// The user is among those who get one, since this instant. The server that decides the order can still lose this
    /// place. The serial and the code are known once the claim is stored.
    Placed(Timestamp),
}

/// A claim as the operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimRecord {
    /// The user; for a claim by a pass without a user `pass:{number}`.
    pub user: Box<str>,
    /// The serial, the instant and the code.
    pub claimed: Claimed,
    /// The JSON that came with the claim.
    pub attributes: Option<Attributes>,
    /// When it was redeemed, if it was.
    pub redeemed: Option<Redeemed>,
}

/// Some items in order, and where the next ones begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Ask again after this serial for the next items; `None` at the end.
    pub next: Option<Serial>,
}

/// Whether a put created something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// Nothing of that name existed.
    Created,
    /// The settings of an existing one were replaced.
    Replaced,
}

/// A coupon as every client may see it. All of it is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CouponView {
    /// The settings in force.
    pub settings: CouponSettings,
    /// How many claims are issued.
    pub issued: u32,
    /// The state of the coupon.
    pub state: CouponState,
    /// When a purge began to remove its claims, if one did. The coupon is over: see [`CouponStore`].
    pub purged_at: Option<Timestamp>,
}

/// A request to redeem a claim by its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedeemRequest {
    /// The code that the holder shows. Case, blanks and dashes do not matter.
    pub code: String,
    /// Must be the claimant, if given.
    pub user: Option<UserId>,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// The port for limited coupons. Every adapter passes `conformance::coupon`:
///
/// - Linearizable per coupon: replies are those of [`firstcome_core::coupon::Coupon`], applied in some order that
///   agrees with real time. Serials count that order.
/// - Clock: `now` is the store's own, read in the same step as the decision.
/// - Durable before the reply: a reply that depends on a claim, refusals included, leaves only once that claim survives
///   what [`CouponStore::durability`] says.
/// - Cancel-safe: a caller that drops its future leaves the command done or not done, never half done.
/// - Purged: once a purge has begun to remove the claims of a coupon ([`CouponView::purged_at`]), the coupon keeps its name, its
///   settings and the number of its claims, also if the clock is set back. It refuses new settings as `deleted`, claims and
///   redemptions as `deleted` or `expired`, and to show claims as `purged`.
pub trait CouponStore: Send + Sync {
    /// What an acknowledged claim survives.
    fn durability(&self) -> Durability;

    /// Creates a coupon or replaces its settings. A [`Revision`] that names the settings in force replaces only those,
    /// and creates nothing.
    ///
    /// Refused, in this order: `unknown_coupon` (a revision), `deleted`, `settings_changed` (a revision), `limit_below_issued`,
    /// `room_fixed`.
    fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> impl Future<Output = Answer<Put>> + Send;

    /// Ends a coupon for good. A second call has no effect. Refused: `unknown_coupon`.
    fn delete_coupon(&self, coupon: &CouponName) -> impl Future<Output = Answer<()>> + Send;

    /// Shows a coupon. Refused: `unknown_coupon`.
    fn coupon(&self, coupon: &CouponName) -> impl Future<Output = Answer<CouponView>> + Send;

    /// Claims one coupon for a user. A repeat by the same user has no second effect.
    ///
    /// Refused, in this order: `unknown_coupon`, `idempotency_key_reused`, `already_issued` (with the claim),
    /// `deleted`, `not_open`, `expired`, `sold_out`.
    fn claim(&self, coupon: &CouponName, claim: Claim) -> impl Future<Output = Answer<Effect<Claimed>>> + Send;

    /// Claims like [`Self::claim`], but replies as early as the coupon's settings say
    /// ([`CouponSettings::acknowledge`]). A refusal always waits until the claim that it depends on is stored.
    fn claim_early(
        &self,
        coupon: &CouponName,
        claim: Claim,
    ) -> impl Future<Output = Answer<Effect<ClaimReply>>> + Send {
        async move { Ok(self.claim(coupon, claim).await?.map(|effect| effect.map(ClaimReply::Stored))) }
    }

    /// Returns the claim of one user, if there is one. Refused: `unknown_coupon`, `purged`. Fails with [`StoreError::NotStoredYet`]
    /// while the claim has a place ([`ClaimReply::Placed`]) and is not stored.
    fn claim_of(&self, coupon: &CouponName, user: &str) -> impl Future<Output = Answer<Option<ClaimRecord>>> + Send;

    /// Returns claims in the order of serials, at most `count`, beginning after serial `after` (with the first one if
    /// `None`). Refused: `unknown_coupon`, `purged`.
    fn claims(
        &self,
        coupon: &CouponName,
        after: Option<Serial>,
        count: usize,
    ) -> impl Future<Output = Answer<Page<ClaimRecord>>> + Send;

    /// Redeems a claim by its code. The returned record has `redeemed` set, and no attributes.
    ///
    /// Refused, in this order: `unknown_coupon`, `idempotency_key_reused`, `unknown_code`, `wrong_user`,
    /// `already_redeemed`, `expired`.
    fn redeem(
        &self,
        coupon: &CouponName,
        redeem: RedeemRequest,
    ) -> impl Future<Output = Answer<Effect<ClaimRecord>>> + Send;
}
