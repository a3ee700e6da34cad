//! The rows of coupons as the disk keeps them.

use crate::journal::Tables;
use firstcome_core::coupon::{Attributes, Claim, CouponSettings, Issued, Redeemed, Serial};
use firstcome_core::id::{CouponName, RequestId};
use firstcome_store::VoucherKey;
use firstcome_store::embedded::journal::{Change, CouponId, CouponPut};
use std::collections::BTreeMap;

/// The rows of one coupon.
#[derive(Clone, Debug)]
pub struct CouponRows {
    /// Its name.
    pub name: CouponName,
    /// The settings that were stored last.
    pub settings: CouponSettings,
    /// The secret of its codes.
    pub voucher_key: VoucherKey,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Its claims, in the order in which they were stored.
    pub claims: Vec<(Issued, Claim)>,
    /// Its redemptions, in the order in which they were stored.
    pub redemptions: Vec<(Redeemed, Option<RequestId>)>,
}

impl CouponRows {
    /// Whether a code is that of the stored claim with this serial.
    pub fn is_code_of(&self, code: &str, serial: Serial) -> bool {
        let claim = self.claims.iter().find(|(issued, _)| issued.serial == serial);
        claim.is_some_and(|(issued, claim)| self.voucher_key.is_code_of(code, *issued, claim.user.as_str()))
    }
}

/// Everything that is stored.
pub type Stored = BTreeMap<CouponId, CouponRows>;

/// The rows of a coupon by name.
pub fn rows_of<'a>(stored: &'a Stored, coupon: &CouponName) -> Option<&'a CouponRows> {
    stored.values().find(|rows| rows.name == *coupon)
}

impl Tables for Stored {
    fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::CouponPut(put) => {
                let CouponPut { id, name, settings, voucher_key, .. } = *put;
                let (claims, redemptions) = (Vec::new(), Vec::new());
                let fresh = CouponRows { name, settings, voucher_key, deleted: false, claims, redemptions };
                let settings = fresh.settings.clone();
                self.entry(id).or_insert(fresh).settings = settings;
            }
            Change::CouponDeleted { id, .. } => known(self, id).deleted = true,
            Change::Claimed { id, issued, claim } => known(self, id).claims.push((issued, claim)),
            Change::Redeemed { id, redeemed, request } => known(self, id).redemptions.push((redeemed, request)),
            // The world of coupons makes no rooms.
            _ => {}
        }
    }

    fn attributes(&self, coupon: CouponId, first: Serial, last: Serial) -> BTreeMap<Serial, Attributes> {
        let claims = self.get(&coupon).into_iter().flat_map(|rows| &rows.claims);
        let wanted = claims.filter(|(issued, _)| first <= issued.serial && issued.serial <= last);
        wanted.filter_map(|(issued, claim)| Some((issued.serial, claim.attributes.clone()?))).collect()
    }
}

fn known(stored: &mut Stored, id: CouponId) -> &mut CouponRows {
    match stored.get_mut(&id) {
        Some(rows) => rows,
        None => panic!("a change of coupon {} came before the coupon", id.0),
    }
}
