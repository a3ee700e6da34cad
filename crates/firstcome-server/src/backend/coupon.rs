//! The coupons of a service behind their port.

use super::{Backend, SHOWN_COUNT_MAX, SHOWN_MAX};
use firstcome::cluster::{Cluster, DeadLetter};
use firstcome::core::coupon::{Claim, CouponSettings, Effect, Serial};
use firstcome::core::id::CouponName;
use firstcome::core::revision::Revision;
use firstcome::{
    Answer, ClaimRecord, ClaimReply, Claimed, CouponStore, CouponView, Durability, Embedded, HeadPage, Names, Numbered,
    Page, Put, ReceiptReply, ReceiptStore, RedeemRequest, Refused, Shared, StoreError,
};

/// The store of coupons.
pub(crate) enum Coupons {
    /// In this process.
    Embedded(Embedded),
    /// On a cluster, with the copies that this node shows to callers without a key.
    Cluster(Cluster, Shared<CouponName, Result<CouponView, Refused>>),
}

impl Coupons {
    pub(crate) fn new(backend: &Backend) -> Self {
        match backend {
            Backend::Embedded(store) => Self::Embedded(store.clone()),
            Backend::Cluster(store, _) => Self::Cluster(store.clone(), Shared::new(SHOWN_MAX, SHOWN_COUNT_MAX)),
        }
    }

    /// Shows a coupon to a caller without a key. Over a cluster it is at most [`SHOWN_MAX`] old, and it includes every write that this
    /// node has acknowledged.
    pub(crate) async fn shown(&self, coupon: &CouponName) -> Answer<CouponView> {
        match self {
            Self::Embedded(store) => store.coupon(coupon).await,
            Self::Cluster(store, copies) => copies.get(coupon, || store.coupon(coupon)).await,
        }
    }

    /// Lists the claims of a coupon that no node could read. The embedded store has none. Refused: `unknown_coupon`.
    pub(crate) async fn dead_letters(
        &self,
        coupon: &CouponName,
        after: Option<u64>,
        count: usize,
    ) -> Answer<Numbered<DeadLetter>> {
        match self {
            Self::Embedded(store) => {
                let view = store.coupon(coupon).await?;
                Ok(view.map(|_| Numbered { items: Vec::new(), next: None, removed_to: 0 }))
            }
            Self::Cluster(store, _) => Box::pin(store.dead_letters(coupon, after, count)).await,
        }
    }

    /// Returns published heads of a coupon. See [`ReceiptStore::coupon_heads`].
    pub(crate) async fn coupon_heads(&self, coupon: &CouponName, after: u64, count: usize) -> Answer<HeadPage> {
        forward!(self.coupon_heads(coupon, after, count).await)
    }

    /// Returns the receipt of a claim. See [`ReceiptStore::claim_receipt`].
    pub(crate) async fn claim_receipt(&self, coupon: &CouponName, user: &str) -> Answer<ReceiptReply> {
        forward!(self.claim_receipt(coupon, user).await)
    }

    /// Lists coupons by name, deleted ones included, for operators.
    pub(crate) async fn names(
        &self,
        after: Option<&CouponName>,
        count: usize,
    ) -> Result<Names<CouponName>, StoreError> {
        match self {
            Self::Embedded(store) => Ok(store.coupon_names(after, count)),
            Self::Cluster(store, _) => Box::pin(store.coupon_names(after, count)).await,
        }
    }

    /// Drops the copy that a write has made stale.
    fn forget(&self, coupon: &CouponName) {
        if let Self::Cluster(_, copies) = self {
            copies.forget(coupon);
        }
    }
}

impl CouponStore for Coupons {
    fn durability(&self) -> Durability {
        forward!(self.durability())
    }

    async fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> Answer<Put> {
        let answer = forward!(self.put_coupon(coupon, revision).await);
        self.forget(coupon);
        answer
    }

    async fn delete_coupon(&self, coupon: &CouponName) -> Answer<()> {
        let answer = forward!(self.delete_coupon(coupon).await);
        self.forget(coupon);
        answer
    }

    async fn coupon(&self, coupon: &CouponName) -> Answer<CouponView> {
        forward!(self.coupon(coupon).await)
    }

    async fn claim(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<Claimed>> {
        let answer = forward!(self.claim(coupon, claim).await);
        self.forget(coupon);
        answer
    }

    async fn claim_early(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<ClaimReply>> {
        let answer = forward!(self.claim_early(coupon, claim).await);
        self.forget(coupon);
        answer
    }

    async fn claim_of(&self, coupon: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        forward!(self.claim_of(coupon, user).await)
    }

    async fn claims(&self, coupon: &CouponName, after: Option<Serial>, count: usize) -> Answer<Page<ClaimRecord>> {
        forward!(self.claims(coupon, after, count).await)
    }

    async fn redeem(&self, coupon: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        forward!(self.redeem(coupon, redeem).await)
    }
}
