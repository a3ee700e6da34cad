//! The rules of a coupon that need no claim.

use super::{CouponSettings, CouponState, Rejection};
use crate::revision::Revision;
use crate::time::Timestamp;

/// A coupon without its claims, and their number: enough to judge a user without a claim. For stores that keep the claims
/// elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct CouponStanding<'a> {
    /// The settings in force.
    pub settings: &'a CouponSettings,
    /// Whether the coupon is deleted.
    pub deleted: bool,
    /// When a purge began to remove its claims, if one did: from then on the coupon is over.
    pub purged_at: Option<Timestamp>,
    /// How many coupons are issued.
    pub issued: u32,
}

/// How a coupon that is over refuses: expired if it was by then, else deleted.
fn ended(until: Option<Timestamp>, now: Timestamp) -> Rejection {
    until.filter(|until| *until <= now).map_or(Rejection::Deleted, Rejection::Expired)
}

impl CouponStanding<'_> {
    /// Returns the refusal that every user without a claim gets now, at any count. Order: deleted, not open, expired. A purged
    /// coupon is expired or, by a clock that was set back since, deleted.
    pub fn closed(self, now: Timestamp) -> Option<Rejection> {
        if self.deleted {
            return Some(Rejection::Deleted);
        }
        if self.purged_at.is_some() {
            return Some(ended(self.settings.expires_at, now));
        }
        if let Some(opens_at) = self.settings.opens_at
            && now < opens_at
        {
            return Some(Rejection::NotOpen(opens_at));
        }
        if let Some(expires_at) = self.settings.expires_at
            && expires_at <= now
        {
            return Some(Rejection::Expired(expires_at));
        }
        None
    }

    /// Judges a claim of a user without one. Order of checks: deleted, not open, expired, sold out.
    pub fn judge_newcomer(self, now: Timestamp) -> Result<(), Rejection> {
        if let Some(rejection) = self.closed(now) {
            return Err(rejection);
        }
        let (issued, limit) = (self.issued, self.sellable());
        assert!(issued <= limit, "oversold: {issued} of {limit}");
        if issued == limit { Err(Rejection::SoldOut) } else { Ok(()) }
    }

    /// Returns the coupon's state. Same order as [`Self::judge_newcomer`].
    pub fn state(self, now: Timestamp) -> CouponState {
        match self.closed(now) {
            Some(Rejection::Deleted) => CouponState::Deleted,
            Some(Rejection::NotOpen(_)) => CouponState::Scheduled,
            Some(_) => CouponState::Expired,
            None if self.settings.limit.get() <= self.issued => CouponState::SoldOut,
            None => CouponState::Open,
        }
    }

    /// Judges whether claims of this coupon can be redeemed at all: a purged coupon has none. Refuses as over what it does not
    /// know.
    pub fn judge_redemptions(self, now: Timestamp) -> Result<(), Rejection> {
        if self.purged_at.is_some() { Err(ended(self.settings.redeem_until, now)) } else { Ok(()) }
    }

    /// Judges whether claims of this coupon can be read: a purged coupon has none.
    pub fn judge_reads(self) -> Result<(), Rejection> {
        self.purged_at.map_or(Ok(()), |at| Err(Rejection::Purged(at)))
    }

    /// Judges new settings. Order of checks: deleted or purged, settings changed, limit below issued, room fixed.
    pub fn judge_settings(self, revision: &Revision<CouponSettings>) -> Result<(), Rejection> {
        if self.deleted || self.purged_at.is_some() {
            return Err(Rejection::Deleted);
        }
        if !revision.may_replace(self.settings) {
            return Err(Rejection::SettingsChanged);
        }
        let settings = &revision.settings;
        if settings.limit.get() < self.issued {
            return Err(Rejection::LimitBelowIssued(self.issued));
        }
        if 0 < self.issued && settings.room != self.settings.room {
            return Err(Rejection::RoomFixed);
        }
        Ok(())
    }

    pub(super) fn sellable(self) -> u32 {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::OversellByOne) {
            return self.settings.limit.get() + 1;
        }
        self.settings.limit.get()
    }
}
