//! Brings a store back from its rows, as a start after a crash does, and shows that doing so twice changes nothing.

use super::rows::{CouponRows, Stored};
use firstcome_core::coupon::{Coupon, Damage, Effect};
use firstcome_store::embedded::StoredCoupon;
use std::hash::RandomState;

/// Rebuilds every coupon from its rows, claims in serial order as a table with that key gives them.
pub fn recover(stored: &Stored, hasher: &RandomState) -> Result<Vec<StoredCoupon>, String> {
    let coupons = stored.iter().map(|(&id, rows)| {
        let coupon = recover_coupon(rows, hasher).map_err(|damage| format!("{}: {}", rows.name, damage.as_str()))?;
        Ok(StoredCoupon { id, name: rows.name.clone(), voucher_key: rows.voucher_key.clone(), coupon })
    });
    coupons.collect()
}

fn recover_coupon(rows: &CouponRows, hasher: &RandomState) -> Result<Coupon, Damage> {
    let mut coupon = Coupon::new(rows.settings.clone(), hasher.clone());
    let mut claims: Vec<_> = rows.claims.iter().collect();
    claims.sort_by_key(|(issued, _)| issued.serial);
    for (issued, claim) in claims {
        coupon.restore_claim(*issued, &claim.user, claim.request)?;
    }
    for (redeemed, request) in &rows.redemptions {
        coupon.restore_redemption(*redeemed, *request)?;
    }
    if rows.deleted {
        coupon.delete();
    }
    Ok(coupon)
}

/// What a recovered store would write, were it to write everything again.
pub fn written_again(recovered: &[StoredCoupon], stored: &Stored) -> Stored {
    let rows = recovered.iter().map(|found| {
        let coupon = &found.coupon;
        let before = &stored[&found.id];
        let claims = before.claims.iter().filter_map(|(issued, claim)| {
            let (user, known) = coupon.claim_at(issued.serial)?;
            let mut claim = claim.clone();
            // The rules keep digests, not texts: whether a key is known shows in how its request is judged.
            let repeated = coupon.judge_claim(&claim, known.issued_at) == Ok(Effect::Again(known));
            claim.request = claim.request.filter(|_| repeated);
            (user == claim.user.as_str()).then_some((known, claim))
        });
        let redemptions = before
            .redemptions
            .iter()
            .filter_map(|(redeemed, request)| Some((coupon.redeemed(redeemed.serial)?, *request)));
        let rows = CouponRows {
            name: found.name.clone(),
            settings: coupon.settings().clone(),
            voucher_key: found.voucher_key.clone(),
            deleted: coupon.is_deleted(),
            claims: claims.collect(),
            redemptions: redemptions.collect(),
        };
        (found.id, rows)
    });
    rows.collect()
}

/// Why two sets of rows differ, if they do.
pub fn difference(left: &Stored, right: &Stored) -> Option<String> {
    if left.len() != right.len() {
        return Some(format!("{} coupons became {}", left.len(), right.len()));
    }
    left.iter().zip(right).find_map(|((id, before), (other, after))| {
        let same = id == other
            && before.name == after.name
            && before.settings == after.settings
            && before.voucher_key == after.voucher_key
            && before.deleted == after.deleted
            && before.claims == after.claims
            && before.redemptions == after.redemptions;
        (!same).then(|| format!("{}: {before:?} became {after:?}", before.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome_core::coupon::{Claim, CouponLimit, CouponSettings, Issued, Serial};
    use firstcome_core::id::{CouponName, UserId};
    use firstcome_core::time::Timestamp;
    use firstcome_store::VoucherKey;
    use firstcome_store::edge::draw_hasher;
    use firstcome_store::embedded::journal::CouponId;

    fn stored(serials: &[u32]) -> Stored {
        let claim = |&serial| {
            let user = UserId::parse(&format!("user-{serial}")).unwrap();
            let issued = Issued { serial: Serial::new(serial).unwrap(), issued_at: Timestamp::MIN };
            (issued, Claim { user, attributes: None, request: None })
        };
        let rows = CouponRows {
            name: CouponName::parse("c").unwrap(),
            settings: CouponSettings::with_limit(CouponLimit::new(3).unwrap()),
            voucher_key: VoucherKey::new([1; 32]),
            deleted: true,
            claims: serials.iter().map(claim).collect(),
            redemptions: Vec::new(),
        };
        Stored::from([(CouponId(4), rows)])
    }

    #[test]
    fn what_comes_back_is_what_was_stored() {
        let stored = stored(&[1, 2]);
        let recovered = recover(&stored, &draw_hasher()).unwrap_or_else(|_| panic!("these rows are whole"));
        assert_eq!(difference(&stored, &written_again(&recovered, &stored)), None);
    }

    #[test]
    fn a_claim_that_went_missing_is_a_difference() {
        assert!(difference(&stored(&[1, 2]), &stored(&[1])).is_some());
    }

    #[test]
    fn rows_with_a_gap_are_refused() {
        let damage = recover(&stored(&[1, 3]), &draw_hasher()).err();
        assert_eq!(damage, Some(format!("c: {}", Damage::Gap.as_str())));
    }
}
