//! Coupons and their claims, from the rows alone, page by page.

use crate::database::coupon::{settings_columns, settings_of};
use firstcome_core::coupon::Attributes;
use firstcome_core::id::{CouponName, UserId};
use firstcome_sql::SqlError;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::{PAGE, Reading};
use firstcome_store::check::Check;
use std::collections::BTreeMap;

/// A coupon as it is stored, and as far as its claims have gone by.
struct CouponCheck {
    name: String,
    limit: i64,
    issued: i64,
    last_at: i64,
    generation: i64,
    position: i64,
    anchor: i64,
    codes_bound_from: i64,
    /// Up to which serial a purge has removed the claims; `None` if none did.
    purged_to: Option<i64>,
    claims: i64,
    last_claim_at: i64,
}

/// The instant of a coupon without claims.
const NEVER: i64 = firstcome_core::time::Timestamp::MIN.as_us();

struct Checks {
    limit: Check,
    once: Check,
    gapless: Check,
    ordered: Check,
    owned: Check,
    valid: Check,
    keys: Check,
    redeemed: Check,
    stands: Check,
    settings: Check,
    letters: Check,
    codes: Check,
}

impl Checks {
    const fn new() -> Self {
        Self {
            limit: Check::new("no oversell: a coupon has at most as many claims as its limit"),
            once: Check::new("one each: a user holds at most one claim of a coupon"),
            gapless: Check::new("gapless: the serials of a coupon are exactly 1..issued"),
            ordered: Check::new("in order: a later serial never has an earlier instant"),
            owned: Check::new("every claim belongs to a coupon"),
            valid: Check::new("users and attributes are within their limits"),
            keys: Check::new("an idempotency key has one effect"),
            redeemed: Check::new("a redemption has its claim, and comes after it"),
            stands: Check::new("a coupon stands as its claims lead to: how many, the last instant, a ticket for each"),
            settings: Check::new("names and settings of coupons are within their limits"),
            letters: Check::new("a dead letter is of a coupon, and of a ticket that was passed over"),
            codes: Check::new("a code names one claim: the codes of future claims are bound to them"),
        }
    }

    fn all(self) -> [Check; 12] {
        let Self { limit, once, gapless, ordered, owned, valid, keys, redeemed, stands, settings, letters, codes } =
            self;
        [limit, once, gapless, ordered, owned, valid, keys, redeemed, stands, settings, letters, codes]
    }
}

pub(super) async fn check(reading: &mut Reading) -> Result<[Check; 12], SqlError> {
    let mut checks = Checks::new();
    let mut seen = coupons(reading, &mut checks).await?;
    claims(reading, &mut checks, &mut seen).await?;
    for (id, coupon) in &seen {
        let here = || format!("coupon {}: {} of {}", coupon.name, coupon.claims, coupon.limit);
        checks.limit.check(coupon.claims <= coupon.limit, here);
        // The last claim of a purged coupon went with the others.
        let is_purged = coupon.purged_to == Some(coupon.issued);
        let stands = coupon.claims == coupon.issued && (is_purged || coupon.last_claim_at == coupon.last_at);
        let has_stream = coupon.issued <= coupon.position && 0 <= coupon.generation && 0 <= coupon.anchor;
        checks.stands.check(stands && has_stream, || {
            format!(
                "{}, issued {}, at ticket {} of generation {}",
                here(),
                coupon.issued,
                coupon.position,
                coupon.generation
            )
        });
        checks.codes.check(coupon.codes_bound_from <= coupon.issued + 1, || {
            format!("{}, issued {}, codes bound from serial {} on", here(), coupon.issued, coupon.codes_bound_from)
        });
        once(reading, &mut checks, *id, coupon).await?;
    }
    redemptions(reading, &mut checks).await?;
    for kind in [1, 2] {
        keys(reading, &mut checks, kind).await?;
    }
    letters(reading, &mut checks, &seen).await?;
    Ok(checks.all())
}

async fn coupons(reading: &mut Reading, checks: &mut Checks) -> Result<BTreeMap<i64, CouponCheck>, SqlError> {
    let what = format!(
        "SELECT id,name,version,limit_count,issued,last_at,generation,position,anchor,codes_bound_from,purged_at,purged_to,{} \
         FROM firstcome_coupon",
        settings_columns()
    );
    let mut seen = BTreeMap::new();
    reading
        .numbered(&what, |id, row| {
            let mut columns = Reader::at(row, 1);
            let name = columns.maybe_text()?.unwrap_or_default();
            let has_version = 0 < columns.integer()?;
            let [limit, issued, last_at] = [columns.integer()?, columns.integer()?, columns.integer()?];
            let [generation, position, anchor] = [columns.integer()?, columns.integer()?, columns.integer()?];
            let codes_bound_from = columns.integer()?;
            let purged_at = columns.maybe_integer()?;
            let purged_to = Some(columns.integer()?).filter(|_| purged_at.is_some());
            let coupon = CouponCheck {
                limit,
                issued,
                last_at,
                generation,
                position,
                anchor,
                codes_bound_from,
                purged_to,
                claims: purged_to.unwrap_or(0),
                last_claim_at: NEVER,
                name,
            };
            let fits = CouponName::parse(&coupon.name).is_ok() && has_version && settings_of(&mut columns).is_ok();
            checks.settings.check(fits, || format!("coupon {}", coupon.name));
            seen.insert(id, coupon);
            Ok(())
        })
        .await?;
    Ok(seen)
}

async fn claims(
    reading: &mut Reading,
    checks: &mut Checks,
    seen: &mut BTreeMap<i64, CouponCheck>,
) -> Result<(), SqlError> {
    reading
        .paired("serial,name,issued_at,attributes FROM firstcome_claim", ["coupon", "serial"], |id, columns| {
            let serial = columns.integer()?;
            let user = columns.maybe_text()?.unwrap_or_default();
            let issued_at = columns.integer()?;
            let attributes = columns.maybe_blob()?;
            let known = seen.get_mut(&id);
            checks.owned.check(known.is_some(), || format!("claim {serial} of coupon number {id}"));
            let Some(coupon) = known else { return Ok(()) };
            let here = || format!("coupon {}, serial {serial}", coupon.name);
            checks.gapless.check(serial == coupon.claims + 1, here);
            checks.ordered.check(coupon.last_claim_at <= issued_at, here);
            let is_attribute = |text: &Vec<u8>| std::str::from_utf8(text).is_ok_and(|it| Attributes::new(it).is_some());
            let fits = UserId::restore(&user).is_ok() && attributes.as_ref().is_none_or(is_attribute);
            checks.valid.check(fits, here);
            coupon.claims = serial;
            coupon.last_claim_at = issued_at;
            Ok(())
        })
        .await
}

/// That no name comes twice its index sees to, unless a caller has taken it away.
async fn once(reading: &mut Reading, checks: &mut Checks, id: i64, coupon: &CouponCheck) -> Result<(), SqlError> {
    let text =
        format!("SELECT name FROM firstcome_claim WHERE coupon={id} GROUP BY name HAVING COUNT(*)>1 LIMIT {PAGE};");
    let rows = reading.ask_of_all(text).await?;
    checks.once.checked += coupon.claims.unsigned_abs().saturating_sub(rows.len() as u64);
    for row in &rows {
        let user = Reader::at(row, 0).maybe_text()?.unwrap_or_default();
        checks.once.check(false, || format!("coupon {}: user {user}", coupon.name));
    }
    Ok(())
}

async fn redemptions(reading: &mut Reading, checks: &mut Checks) -> Result<(), SqlError> {
    let what = "r.serial,r.redeemed_at,c.issued_at FROM firstcome_redemption r \
                LEFT JOIN firstcome_claim c ON c.coupon=r.coupon AND c.serial=r.serial";
    reading
        .paired(what, ["r.coupon", "r.serial"], |coupon, columns| {
            let (serial, at) = (columns.integer()?, columns.integer()?);
            let issued_at = columns.maybe_integer()?;
            let here = || format!("redemption of serial {serial} of coupon number {coupon}");
            checks.redeemed.check(issued_at.is_some_and(|issued_at| issued_at <= at), here);
            Ok(())
        })
        .await
}

/// That a key comes once its table sees to; it remains that what it stands for is there.
async fn keys(reading: &mut Reading, checks: &mut Checks, kind: i64) -> Result<(), SqlError> {
    let (table, name) = if kind == 1 { ("firstcome_claim", "claim") } else { ("firstcome_redemption", "redemption") };
    let (mut coupon, mut key) = (i64::MIN, [0; 16]);
    loop {
        let mut request = String::new();
        reading.dialect().bytes(&mut request, &key);
        let after = reading.dialect().after(["q.coupon", "q.request"], coupon, &request);
        let text = format!(
            "SELECT q.coupon,q.request,q.serial,e.serial FROM firstcome_coupon_request q \
             LEFT JOIN {table} e ON e.coupon=q.coupon AND e.serial=q.serial WHERE q.kind={kind} AND {after} \
             ORDER BY q.coupon,q.request LIMIT {PAGE};"
        );
        let rows = reading.ask(text).await?;
        for row in &rows {
            let mut columns = Reader::at(row, 0);
            coupon = columns.integer()?;
            key = columns.key()?.to_be_bytes();
            let serial = columns.integer()?;
            let effect = columns.maybe_integer()?;
            checks.keys.check(effect.is_some(), || format!("coupon number {coupon}: no {name} of serial {serial}"));
        }
        if rows.len() < PAGE {
            return Ok(());
        }
    }
}

async fn letters(
    reading: &mut Reading,
    checks: &mut Checks,
    seen: &BTreeMap<i64, CouponCheck>,
) -> Result<(), SqlError> {
    // A position is of one generation: it grows over all of them.
    reading
        .paired("position,generation FROM firstcome_dead_letter", ["coupon", "position"], |id, columns| {
            let (position, generation) = (columns.integer()?, columns.integer()?);
            let coupon = seen.get(&id);
            let is_of = |it: &CouponCheck| 0 < generation && generation <= it.generation && position <= it.position;
            let of = || coupon.map_or_else(|| format!("number {id}"), |coupon| coupon.name.clone());
            checks.letters.check(coupon.is_some_and(is_of), || {
                format!("coupon {}: ticket {position} of generation {generation}", of())
            });
            Ok(())
        })
        .await
}
