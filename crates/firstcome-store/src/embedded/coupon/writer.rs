//! The writer's state of coupons: the claims and redemptions of a batch, and settings.
//!
//! Claims and redemptions change the state in memory before the commit. Readers see them only once
//! [`CouponCell::durable`] includes them. Settings and deletions change the state after their own commit.

use super::CouponCell;
use crate::embedded::journal::{Change, CouponId, CouponPut, Journal};
use crate::embedded::writer::{Log, Primitive};
use crate::embedded::{Reply, Shared};
use crate::error::{Fault, StoreError};
use crate::port::Put;
use crate::voucher::VoucherKey;
use firstcome_core::coupon::{Claim, Coupon, CouponSettings, Effect, Issued, Redeem, Redeemed, Rejection};
use firstcome_core::id::CouponName;
use firstcome_core::revision::Revision;
use firstcome_core::time::Now;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A reply that waits for the commit.
enum PendingReply {
    Claim(Reply<Effect<Issued>>, Result<Effect<Issued>, Rejection>),
    Redeem(Reply<Effect<Redeemed>>, Result<Effect<Redeemed>, Rejection>),
}

impl PendingReply {
    fn send(self) {
        match self {
            Self::Claim(reply, answer) => reply.send(Ok(answer)),
            Self::Redeem(reply, answer) => reply.send(Ok(answer)),
        }
    }

    fn refuse(self, error: &StoreError) {
        match self {
            Self::Claim(reply, _) => reply.send(Err(error.clone())),
            Self::Redeem(reply, _) => reply.send(Err(error.clone())),
        }
    }
}

/// A command to claim.
pub(in crate::embedded) struct ClaimCommand {
    pub(in crate::embedded) cell: Arc<CouponCell>,
    pub(in crate::embedded) claim: Claim,
    pub(in crate::embedded) reply: Reply<Effect<Issued>>,
}

/// The writer's state of coupons.
pub(in crate::embedded) struct CouponWriter {
    hasher: RandomState,
    next: u32,
    touched: Vec<Arc<CouponCell>>,
    pending: Vec<PendingReply>,
}

impl CouponWriter {
    pub(in crate::embedded) const fn new(hasher: RandomState, next: CouponId) -> Self {
        Self { hasher, next: next.0, touched: Vec::new(), pending: Vec::new() }
    }

    /// Decides a run of claims of one coupon under one hold of its lock.
    pub(in crate::embedded) fn claims(
        &mut self,
        cell: &Arc<CouponCell>,
        run: impl Iterator<Item = ClaimCommand>,
        log: &mut Log,
        now: Now,
    ) {
        let fault = log.shared.fault();
        let changes = log.changes.len();
        let mut coupon = cell.coupon.write();
        for ClaimCommand { claim, reply, .. } in run {
            // The caller dropped its future: skip the claim, as if it had never come.
            if reply.is_closed() {
                continue;
            }
            if let Some(fault) = &fault {
                reply.send(Err(StoreError::Faulted(Arc::clone(fault))));
                continue;
            }
            let answer = coupon.claim(&claim, now.wall);
            if let Ok(Effect::New(issued)) = answer {
                log.changes.push(Change::Claimed { id: cell.id, issued, claim });
            }
            self.pending.push(PendingReply::Claim(reply, answer));
        }
        drop(coupon);
        if changes < log.changes.len() {
            self.touch(cell);
        }
        #[cfg(feature = "planted-bugs")]
        if firstcome_core::planted::is(firstcome_core::planted::Bug::AnswerBeforeCommit) {
            self.reply();
        }
    }

    pub(in crate::embedded) fn redeem(
        &mut self,
        cell: &Arc<CouponCell>,
        redeem: &Redeem,
        reply: Reply<Effect<Redeemed>>,
        log: &mut Log,
        now: Now,
    ) {
        if reply.is_closed() {
            return;
        }
        if let Err(error) = log.check() {
            return reply.send(Err(error));
        }
        let answer = {
            let mut coupon = cell.coupon.write();
            let answer = coupon.redeem(redeem, now.wall);
            if let Ok(Effect::New(redeemed)) = answer {
                cell.redeeming.lock().insert(redeemed.serial);
            }
            answer
        };
        if let Ok(Effect::New(redeemed)) = answer {
            self.touch(cell);
            log.changes.push(Change::Redeemed { id: cell.id, redeemed, request: redeem.request });
        }
        self.pending.push(PendingReply::Redeem(reply, answer));
    }

    /// Creates a coupon or replaces its settings, in a separate commit.
    pub(in crate::embedded) fn put(
        &mut self,
        name: CouponName,
        revision: Revision<CouponSettings>,
        voucher_key: VoucherKey,
        log: &mut Log,
        now: Now,
    ) -> Result<Result<Put, Rejection>, StoreError> {
        log.check()?;
        let known = log.shared.cell(name.as_str());
        let judged = match &known {
            Some(cell) => cell.coupon.read().judge_settings(&revision),
            None if revision.replaces.is_some() => Err(Rejection::UnknownCoupon),
            None => Ok(()),
        };
        if let Err(rejection) = judged {
            return Ok(Err(rejection));
        }
        let settings = revision.settings;
        let (id, voucher_key) =
            known.as_ref().map_or((CouponId(self.next), voucher_key), |cell| (cell.id, cell.voucher_key.clone()));
        let put = CouponPut { id, name, settings, voucher_key, at: now.wall };
        log.commit(Change::CouponPut(Box::new(put.clone())))?;
        let CouponPut { name, settings, voucher_key, .. } = put;
        if let Some(cell) = known {
            cell.coupon.write().replace_settings(settings);
            return Ok(Ok(Put::Replaced));
        }
        self.next += 1;
        let coupon = Coupon::new(settings, self.hasher.clone());
        log.shared.add(name, CouponCell::new(id, voucher_key, coupon));
        Ok(Ok(Put::Created))
    }

    /// Deletes a coupon, in a separate commit. Deleting it again has no effect.
    pub(in crate::embedded) fn delete(
        cell: &CouponCell,
        log: &mut Log,
        now: Now,
    ) -> Result<Result<(), Rejection>, StoreError> {
        if !cell.coupon.read().is_deleted() {
            log.commit(Change::CouponDeleted { id: cell.id, at: now.wall })?;
            cell.coupon.write().delete();
        }
        Ok(Ok(()))
    }

    fn touch(&mut self, cell: &Arc<CouponCell>) {
        if !self.touched.iter().any(|known| Arc::ptr_eq(known, cell)) {
            self.touched.push(Arc::clone(cell));
        }
    }
}

impl Primitive for CouponWriter {
    fn publish(&mut self, _shared: &Shared, _now: Now) {
        for cell in self.touched.drain(..) {
            let issued = cell.coupon.read().issued();
            cell.durable.store(issued, Ordering::Release);
            cell.redeeming.lock().clear();
        }
    }

    fn reply(&mut self) {
        self.pending.drain(..).for_each(PendingReply::send);
    }

    fn refuse(&mut self, error: &StoreError) {
        self.pending.drain(..).for_each(|pending| pending.refuse(error));
        self.touched.clear();
    }

    fn take_back(&mut self, changes: &[Change], _journal: &mut dyn Journal, _now: Now) -> Result<(), Fault> {
        #[cfg(feature = "planted-bugs")]
        if firstcome_core::planted::is(firstcome_core::planted::Bug::ClaimsNotTakenBack) {
            self.touched.clear();
        }
        self.touched.iter().for_each(|cell| cell.take_back(changes));
        Ok(())
    }
}
