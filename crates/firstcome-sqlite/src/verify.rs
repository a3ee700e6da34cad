//! Checks every stored invariant from the rows alone, without the rules that wrote them.

use super::coupon::{CouponRow, coupons, for_each_claim, for_each_redemption};
use super::faults::fault;
use super::{DATABASE_FILE, open_reader, schema, verify_auction, verify_receipt, verify_room};
use firstcome_core::coupon::Attributes;
use firstcome_core::id::UserId;
use firstcome_core::time::Timestamp;
use firstcome_store::Fault;
use firstcome_store::check::Check;
use firstcome_store::embedded::journal::CouponId;
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// A coupon while the check reads its claims.
#[derive(Default)]
struct CouponCheck {
    name: String,
    limit: u32,
    codes_bound_from: u32,
    /// How many claims it had when a purge marked it.
    purged_issued: Option<u32>,
    /// How many claims a purge has removed: those of the first serials.
    removed: u32,
    issued: u32,
    last_issued_at: Option<Timestamp>,
    users: HashSet<Box<str>>,
    keys: HashSet<u128>,
    issued_at: Vec<Timestamp>,
    redemption_keys: HashSet<u128>,
}

/// Checks every invariant of the store in a directory. Works beside a running service: it reads one consistent snapshot.
/// Memory: about 100 bytes per claim. Each entry names its invariant and counts the checks.
pub fn verify(directory: &Path) -> Result<Vec<Check>, Fault> {
    let connection = open_reader(&directory.join(DATABASE_FILE), &schema::STORE)?;
    let snapshot = connection.unchecked_transaction().map_err(|error| fault(&error, "cannot read"))?;
    let mut file = Check::new("the file is sound (pages, cells, indexes)");
    integrity(&snapshot, &mut file)?;
    let mut checks = Checks::new();
    let mut seen: HashMap<CouponId, CouponCheck> = coupons(&snapshot)?.iter().map(remember).collect();
    for_each_claim(&snapshot, None, |claim| {
        let serial = claim.issued.serial.get();
        let known = seen.get_mut(&claim.coupon);
        checks.owned.check(known.is_some(), || format!("claim {serial} of coupon number {}", claim.coupon.0));
        let Some(coupon) = known else { return Ok(()) };
        let name = coupon.name.clone();
        let here = || format!("coupon {name}, serial {serial}");
        if coupon.purged_issued.is_some() && coupon.issued == 0 {
            (coupon.removed, coupon.issued) = (serial - 1, serial - 1);
        }
        checks.gapless.check(serial == coupon.issued + 1, here);
        checks.ordered.check(coupon.last_issued_at <= Some(claim.issued.issued_at), here);
        checks.once.check(coupon.users.insert(claim.user.into()), || format!("{}: user {}", here(), claim.user));
        let fits =
            UserId::restore(claim.user).is_ok() && claim.attributes.is_none_or(|it| Attributes::new(it).is_some());
        checks.valid.check(fits, here);
        if let Some(request) = claim.request {
            checks.keys.check(coupon.keys.insert(request.key), here);
        }
        coupon.issued = serial;
        coupon.last_issued_at = Some(claim.issued.issued_at);
        coupon.issued_at.push(claim.issued.issued_at);
        Ok(())
    })?;
    for_each_redemption(&snapshot, |row| {
        let serial = row.redeemed.serial.get();
        let coupon = seen.get_mut(&row.coupon);
        let claim = coupon.as_ref().and_then(|coupon| coupon.claim_at(serial));
        let here = || format!("redemption of serial {serial} of coupon number {}", row.coupon.0);
        checks.redeemed.check(claim.is_some_and(|issued_at| issued_at <= row.redeemed.redeemed_at), here);
        if let (Some(coupon), Some(request)) = (coupon, row.request) {
            checks.keys.check(coupon.redemption_keys.insert(request.key), here);
        }
        Ok(())
    })?;
    for coupon in seen.values() {
        let here = || format!("coupon {}: {} of {}", coupon.name, coupon.issued_at.len(), coupon.limit);
        let issued = coupon.purged_issued.unwrap_or(coupon.issued_at.len() as u32);
        checks.limit.check(issued <= coupon.limit, here);
        // The rows that a purge has left are those of the last serials.
        if coupon.purged_issued.is_some() && !coupon.issued_at.is_empty() {
            checks.gapless.check(issued == coupon.issued_at.len() as u32 + coupon.removed, here);
        }
        let from =
            || format!("coupon {}: from serial {} on, and {} are issued", coupon.name, coupon.codes_bound_from, issued);
        checks.codes.check(coupon.codes_bound_from <= issued + 1, from);
    }
    let rooms = verify_room::check(&snapshot)?;
    let auctions = verify_auction::check(&snapshot)?;
    let heads = verify_receipt::check(&snapshot)?;
    Ok(std::iter::once(file).chain(checks.all()).chain(rooms).chain(auctions).chain(heads).collect())
}

fn remember(row: &CouponRow) -> (CouponId, CouponCheck) {
    let (limit, codes_bound_from) = (row.settings.limit.get(), row.voucher_key.codes_bound_from());
    let (name, purged_issued) = (row.name.to_string(), row.purged.map(|purged| purged.issued));
    (row.id, CouponCheck { name, limit, codes_bound_from, purged_issued, ..CouponCheck::default() })
}

impl CouponCheck {
    /// Returns when the claim of a serial was issued, if its row is there.
    fn claim_at(&self, serial: u32) -> Option<Timestamp> {
        let at = serial.checked_sub(self.removed + 1)?;
        self.issued_at.get(at as usize).copied()
    }
}

struct Checks {
    limit: Check,
    once: Check,
    gapless: Check,
    ordered: Check,
    owned: Check,
    valid: Check,
    keys: Check,
    redeemed: Check,
    codes: Check,
}

impl Checks {
    const fn new() -> Self {
        Self {
            limit: Check::new("no oversell: a coupon has at most as many claims as its limit"),
            once: Check::new("one each: a user holds at most one claim of a coupon"),
            gapless: Check::new(
                "gapless: the serials of a coupon are exactly 1..issued; the first ones may be purged if it is marked",
            ),
            ordered: Check::new("in order: a later serial never has an earlier instant"),
            owned: Check::new("every claim belongs to a coupon"),
            valid: Check::new("users and attributes are within their limits"),
            keys: Check::new("an idempotency key has one effect"),
            redeemed: Check::new("a redemption has its claim, and comes after it"),
            codes: Check::new("a code names one claim: the codes of future claims are bound to them"),
        }
    }

    fn all(self) -> [Check; 9] {
        let Self { limit, once, gapless, ordered, owned, valid, keys, redeemed, codes } = self;
        [limit, once, gapless, ordered, owned, valid, keys, redeemed, codes]
    }
}

pub(super) fn integrity(connection: &Connection, check: &mut Check) -> Result<(), Fault> {
    let broken = |error: &rusqlite::Error| fault(error, "cannot check the file");
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(|error| broken(&error))?;
    let mut rows = statement.query([]).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        let finding: String = row.get(0).map_err(|error| broken(&error))?;
        check.check(finding == "ok", || finding.clone());
    }
    let pages = connection.pragma_query_value(None, "page_count", |row| row.get(0));
    check.checked = pages.map(i64::cast_unsigned).map_err(|error| broken(&error))?;
    Ok(())
}
