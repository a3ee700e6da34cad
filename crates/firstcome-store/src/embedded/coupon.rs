//! One coupon, as the writer and the readers share it.

mod writer;

pub(super) use writer::{ClaimCommand, CouponWriter};

use super::journal::{Change, CouponId, Rows};
use super::receipt::Published;
use crate::edge::Clock;
use crate::error::StoreError;
use crate::port::{ClaimRecord, Claimed, CouponView, Page, Refused};
use crate::voucher::{ShownCode, VoucherKey};
use firstcome_core::coupon::{Claim, Coupon, Effect, Issued, Rejection, Serial};
use firstcome_core::time::Timestamp;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

/// One coupon. Only the writer locks it for writing.
pub(super) struct CouponCell {
    pub(super) id: CouponId,
    pub(super) voucher_key: VoucherKey,
    pub(super) coupon: RwLock<Coupon>,
    /// How many of its claims are durable. Only the writer sees claims above this number.
    pub(super) durable: AtomicU32,
    /// Redemptions that are decided and not yet durable; readers do not see them.
    pub(super) redeeming: Mutex<BTreeSet<Serial>>,
    pub(super) published: Published,
}

impl CouponCell {
    pub(super) fn new(id: CouponId, voucher_key: VoucherKey, coupon: Coupon) -> Self {
        let durable = AtomicU32::new(coupon.issued());
        let coupon = RwLock::new(coupon);
        Self { id, voucher_key, coupon, durable, redeeming: Mutex::default(), published: Published::default() }
    }

    /// Returns the reply to a claim if it depends on durable data only: then the caller need not ask the writer.
    pub(super) fn settled(&self, claim: &Claim, clock: &dyn Clock) -> Option<Result<Effect<Issued>, Rejection>> {
        let coupon = self.coupon.read();
        // A new claim gets its time from the writer, and without a window no reply here depends on the time.
        let now = if coupon.is_timed() { clock.now() } else { Timestamp::MAX };
        let answer = coupon.judge_claim(claim, now);
        coupon.rests_on(&answer).filter(|&rests_on| rests_on <= durable(self)).map(|_| answer)
    }

    /// Undoes what these changes did to this coupon. None of them is durable.
    pub(super) fn take_back(&self, changes: &[Change]) {
        let mut coupon = self.coupon.write();
        for change in changes.iter().rev() {
            match change {
                Change::Claimed { id, issued, claim } if *id == self.id => {
                    coupon.take_back_claim(*issued, claim.request);
                }
                Change::Redeemed { id, redeemed, request } if *id == self.id => {
                    coupon.take_back_redemption(*redeemed, *request);
                }
                _ => {}
            }
        }
        // Before the lock of the coupon is released: readers hide the redemptions in this set.
        self.redeeming.lock().clear();
    }

    pub(super) fn view(&self, now: Timestamp) -> CouponView {
        let coupon = self.coupon.read();
        let issued = durable(self);
        CouponView {
            settings: coupon.settings().clone(),
            issued,
            state: coupon.state(issued, now),
            purged_at: coupon.purged_at(),
        }
    }

    /// Returns a claim that was issued, with the code that its holder shows. A coupon that was purged meanwhile no longer has it.
    fn claimed(&self, issued: Issued, now: impl FnOnce() -> Timestamp) -> Result<Claimed, Rejection> {
        let coupon = self.coupon.read();
        // The stored user, because a repeated request may name another one.
        let Some((user, _)) = coupon.claim_at(issued.serial) else {
            return Err(coupon.standing().closed(now()).unwrap_or(Rejection::Deleted));
        };
        Ok(self.claimed_by(issued, user))
    }

    /// Returns the user and the claim of a serial, if it is kept.
    pub(super) fn claim_at(&self, serial: Serial) -> Option<(Box<str>, Issued)> {
        self.coupon.read().claim_at(serial).map(|(user, issued)| (user.into(), issued))
    }

    pub(super) fn claimed_by(&self, issued: Issued, user: &str) -> Claimed {
        Claimed { issued, code: self.voucher_key.code(issued, user) }
    }

    /// Returns the durable claim that a code names, if there is one.
    pub(super) fn claim_by_code(&self, code: &str) -> Option<Serial> {
        let shown = ShownCode::parse(code)?;
        let coupon = self.coupon.read();
        let (user, issued) = coupon.claim_at(shown.serial()).filter(|_| shown.serial().get() <= durable(self))?;
        self.voucher_key.fits(&shown, issued, user).then_some(issued.serial)
    }

    /// Completes a reply with the code that the holder needs.
    pub(super) fn tell(
        &self,
        answer: Result<Effect<Issued>, Rejection>,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Effect<Claimed>, Refused> {
        match answer {
            Ok(Effect::New(issued)) => Ok(Effect::New(self.claimed(issued, now)?)),
            Ok(Effect::Again(issued)) => Ok(Effect::Again(self.claimed(issued, now)?)),
            Err(rejection @ Rejection::AlreadyIssued(issued)) => {
                Err(Refused { rejection, claim: Some(self.claimed(issued, now)?) })
            }
            Err(rejection) => Err(rejection.into()),
        }
    }

    /// Returns the durable claim of a user.
    pub(super) fn serial_of(&self, user: &str) -> Option<Serial> {
        // The lock is held until the serial is compared: taking back a claim would give its serial to another user.
        let coupon = self.coupon.read();
        let serial = coupon.claim_of(user)?.serial;
        (serial.get() <= durable(self)).then_some(serial)
    }

    /// Returns the durable claims `first..=last`, with their attributes from the journal.
    pub(super) fn records(&self, rows: &dyn Rows, first: Serial, last: Serial) -> Result<Vec<ClaimRecord>, StoreError> {
        let mut attributes = rows.attributes(self.id, first, last)?;
        let coupon = self.coupon.read();
        let redeeming = self.redeeming.lock();
        let serials = (first.get()..=last.get()).filter_map(Serial::new);
        let record = |serial| {
            let (user, issued) = coupon.claim_at(serial)?;
            Some(ClaimRecord {
                user: user.into(),
                claimed: self.claimed_by(issued, user),
                attributes: attributes.remove(&serial),
                redeemed: coupon.redeemed(serial).filter(|_| !redeeming.contains(&serial)),
            })
        };
        Ok(serials.filter_map(record).collect())
    }

    /// Returns what was read of claims, unless they were purged. A purge marks the coupon before it removes a claim: without a mark now,
    /// none was missing.
    pub(super) fn shows<T>(&self, read: T) -> Result<T, Refused> {
        self.coupon.read().standing().judge_reads()?;
        Ok(read)
    }

    pub(super) fn page(
        &self,
        rows: &dyn Rows,
        after: Option<Serial>,
        count: usize,
    ) -> Result<Page<ClaimRecord>, StoreError> {
        let first = after.map_or(1, |after| after.get() + 1);
        let (Some(first), Some(end)) = (Serial::new(first), last_durable(self)) else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let wanted = u32::try_from(count).unwrap_or(u32::MAX);
        let last = Serial::new(first.get().saturating_add(wanted).saturating_sub(1)).map_or(end, |last| last.min(end));
        if wanted == 0 || last < first {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let items = self.records(rows, first, last)?;
        Ok(Page { items, next: (last < end).then_some(last) })
    }
}

/// Returns how many claims of a coupon are durable, as readers see it.
fn durable(cell: &CouponCell) -> u32 {
    cell.durable.load(Ordering::Acquire)
}

/// Returns the serial of the last durable claim of a coupon, if there is one.
fn last_durable(cell: &CouponCell) -> Option<Serial> {
    Serial::new(durable(cell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::draw_hasher;
    use firstcome_core::coupon::{CouponLimit, CouponSettings};
    use firstcome_core::id::UserId;

    /// A purge comes between the decision about a claim and its reply.
    #[test]
    fn no_reply_shows_a_claim_that_was_purged_meanwhile() {
        let (claimed_at, expires_at) = (Timestamp::clamped_us(1), Timestamp::clamped_us(2));
        let limit = CouponLimit::new(9).expect("a limit");
        let settings = CouponSettings { expires_at: Some(expires_at), ..CouponSettings::with_limit(limit) };
        let mut coupon = Coupon::new(settings, draw_hasher());
        let ann = Claim { user: UserId::parse("ann").expect("a user"), attributes: None, request: None };
        let Ok(Effect::New(issued)) = coupon.claim(&ann, claimed_at) else { panic!("it is open") };
        let cell = CouponCell::new(CouponId(1), VoucherKey::new([7; 32]), coupon);
        let answers = [Ok(Effect::New(issued)), Ok(Effect::Again(issued)), Err(Rejection::AlreadyIssued(issued))];
        let told = |now| answers.map(|answer| cell.tell(answer, || now).map(Effect::into_inner));
        let [new, again, refused] = told(claimed_at);
        assert!(new.is_ok() && new == again && refused.is_err_and(|it| it.claim == new.ok()));
        drop(cell.coupon.write().purge(expires_at));
        assert_eq!(told(expires_at), [(); 3].map(|()| Err(Rejection::Expired(expires_at).into())));
        // The clock was set back.
        assert_eq!(told(claimed_at), [(); 3].map(|()| Err(Rejection::Deleted.into())));
    }
}
