//! Rows of coupons: written in the order of the decisions, restored through the rules.

use super::faults::fault;
use super::{api_key, auction, erase, purge, receipt, room};
use firstcome_core::coupon::{
    Attributes, Coupon, CouponLimit, CouponSettings, Damage, Issued, Redeemed, Serial, Title,
};
use firstcome_core::id::{CouponName, RequestId, RoomName, UserId};
use firstcome_core::time::Timestamp;
use firstcome_store::VoucherKey;
use firstcome_store::embedded::StoredCoupon;
use firstcome_store::embedded::journal::{Change, CouponId, CouponPut};
use firstcome_store::{Fault, FaultKind};
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;

const PUT_COUPON: &str = "\
INSERT INTO coupon (id, name, limit_count, opens_at, expires_at, redeem_until, title, room, voucher_key, codes_bound_from,
    created_at, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?11, ?10, ?10)
ON CONFLICT (id) DO UPDATE SET limit_count = ?3, opens_at = ?4, expires_at = ?5, redeem_until = ?6, title = ?7,
    room = ?8, changed_at = ?10";
const DELETE_COUPON: &str = "UPDATE coupon SET deleted_at = ?2, changed_at = ?2 WHERE id = ?1 AND deleted_at IS NULL";
const BIND_CODES: &str = "UPDATE coupon SET codes_bound_from = ?2 WHERE id = ?1";
pub(super) const INSERT_CLAIM: &str =
    "INSERT INTO claim (id, user, issued_at, attributes, request_key, request_body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const INSERT_REDEMPTION: &str =
    "INSERT INTO redemption (id, redeemed_at, request_key, request_body) VALUES (?1, ?2, ?3, ?4)";

/// Writes changes within the open transaction.
pub(super) fn write(connection: &Connection, changes: &[Change]) -> rusqlite::Result<()> {
    let mut insert_claim = connection.prepare_cached(INSERT_CLAIM)?;
    for change in changes {
        match change {
            Change::Claimed { id, issued, claim } => {
                let (key, body) = request_columns(claim.request);
                let attributes = claim.attributes.as_ref().map(Attributes::as_str);
                let row = id.row(issued.serial);
                insert_claim.execute(params![
                    row,
                    claim.user.as_str(),
                    issued.issued_at.as_us(),
                    attributes,
                    key,
                    body
                ])?;
            }
            Change::Redeemed { id, redeemed, request } => {
                let (key, body) = request_columns(*request);
                let row = id.row(redeemed.serial);
                let mut insert = connection.prepare_cached(INSERT_REDEMPTION)?;
                insert.execute(params![row, redeemed.redeemed_at.as_us(), key, body])?;
            }
            Change::CouponPut(put) => put_coupon(connection, put)?,
            Change::CodesBound { id, from } => {
                connection.prepare_cached(BIND_CODES)?.execute(params![id.0, from])?;
            }
            Change::CouponDeleted { id, at } => {
                connection.prepare_cached(DELETE_COUPON)?.execute(params![id.0, at.as_us()])?;
            }
            Change::Room { id, change, at } => room::write(connection, *id, change, *at)?,
            Change::CouponPurged { id, at, issued } => purge::mark_coupon(connection, *id, *at, *issued)?,
            Change::ClaimsPurged { id, first, last } => purge::remove_claims(connection, *id, [*first, *last])?,
            Change::TicketsPurged { id, gone } => purge::remove_tickets(connection, *id, *gone)?,
            Change::Remembered { id, memory } => room::put_memory(connection, *id, memory)?,
            Change::RoomPut(put) => room::put_room(connection, put)?,
            Change::RoomClosed { id, first, at } => room::close_room(connection, *id, *first, *at)?,
            Change::AppearancePut { id, appearance } => room::put_appearance(connection, *id, appearance)?,
            Change::Bid { .. } | Change::Moved { .. } | Change::Member { .. } | Change::Listing { .. } => {
                auction::write(connection, change)?;
            }
            Change::Erasure | Change::ClaimErased { .. } | Change::TicketsErased(_) | Change::MemberErased(_) => {
                erase::write(connection, change)?;
            }
            Change::Headed(signed) => receipt::put_head(connection, signed)?,
            Change::HeadsRemoved { object, to, .. } => receipt::remove_heads(connection, object, *to)?,
            Change::ApiKeys(change) => api_key::write(connection, change)?,
            Change::RequestsForgotten(requests) => purge::forget(connection, requests)?,
            Change::RecordsRemoved(removed) => purge::remove_records(connection, removed)?,
            Change::PurgeEnded(at) => purge::put_ended(connection, *at)?,
            Change::Clock(now) => room::put_clock(connection, *now)?,
            Change::PassSecret { fresh, oldest_kept } => room::put_secret(connection, *fresh, *oldest_kept)?,
            Change::PassSecretRevoked { id, fresh } => room::revoke_secret(connection, *id, *fresh)?,
        }
    }
    Ok(())
}

fn put_coupon(connection: &Connection, put: &CouponPut) -> rusqlite::Result<()> {
    let CouponPut { id, name, settings, voucher_key, at } = put;
    let us = |instant: Option<Timestamp>| instant.map(Timestamp::as_us);
    connection.prepare_cached(PUT_COUPON)?.execute(params![
        id.0,
        name.as_str(),
        settings.limit.get(),
        us(settings.opens_at),
        us(settings.expires_at),
        us(settings.redeem_until),
        settings.title.as_ref().map(Title::as_str),
        settings.room.as_ref().map(RoomName::as_str),
        voucher_key.as_bytes(),
        at.as_us(),
        voucher_key.codes_bound_from()
    ])?;
    Ok(())
}

pub(super) fn request_columns(request: Option<RequestId>) -> (Option<[u8; 16]>, Option<i64>) {
    (request.map(|request| request.key.to_be_bytes()), request.map(|request| request.body.cast_signed()))
}

/// Makes a fault for a stored value that no rule could have written.
pub(super) fn damaged(what: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Damaged, what)
}

pub(super) fn request_of(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<RequestId>> {
    let key: Option<[u8; 16]> = row.get(first)?;
    let body: Option<i64> = row.get(first + 1)?;
    Ok(key.zip(body).map(|(key, body)| RequestId { key: u128::from_be_bytes(key), body: body.cast_unsigned() }))
}

/// A coupon's row.
pub(super) struct CouponRow {
    pub(super) id: CouponId,
    pub(super) name: CouponName,
    pub(super) settings: CouponSettings,
    pub(super) voucher_key: VoucherKey,
    pub(super) deleted_at: Option<Timestamp>,
    pub(super) purged: Option<CouponPurge>,
}

/// What is known of the claims of a purged coupon. Rows that are left are those of the last serials.
#[derive(Clone, Copy)]
pub(super) struct CouponPurge {
    pub(super) at: Timestamp,
    pub(super) issued: u32,
}

/// A claim's row. The user is still text, which the visitor parses if it needs a [`UserId`].
pub(super) struct ClaimRow<'a> {
    pub(super) coupon: CouponId,
    pub(super) issued: Issued,
    pub(super) user: &'a str,
    pub(super) attributes: Option<&'a str>,
    pub(super) request: Option<RequestId>,
}

/// A redemption's row.
pub(super) struct RedemptionRow {
    pub(super) coupon: CouponId,
    pub(super) redeemed: Redeemed,
    pub(super) request: Option<RequestId>,
}

pub(super) fn instant(us: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_us(us).ok_or_else(|| damaged(format!("{us} is not an instant")))
}

fn key_of(row: i64) -> Result<(CouponId, Serial), Fault> {
    let coupon = u32::try_from(row >> 32).ok();
    let serial = Serial::new(row as u32);
    coupon.map(CouponId).zip(serial).ok_or_else(|| damaged(format!("{row} is not the key of a claim")))
}

/// Returns the range of the keys of a coupon's claims.
pub(super) fn range(id: CouponId) -> [i64; 2] {
    let first = i64::from(id.0) << 32;
    [first, first | i64::from(u32::MAX)]
}

/// Reads all coupons, in the order of their creation.
pub(super) fn coupons(connection: &Connection) -> Result<Vec<CouponRow>, Fault> {
    let query =
        "SELECT id, name, limit_count, opens_at, expires_at, redeem_until, title, room, voucher_key, deleted_at,
        codes_bound_from, purged_at, purged_issued FROM coupon ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the coupons");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query([]).map_err(|error| broken(&error))?;
    let mut coupons = Vec::new();
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        coupons.push(coupon_row(row).map_err(|error| broken(&error))??);
    }
    Ok(coupons)
}

fn coupon_row(row: &Row<'_>) -> rusqlite::Result<Result<CouponRow, Fault>> {
    let name: String = row.get(1)?;
    let limit: u32 = row.get(2)?;
    let instants: [Option<i64>; 5] = [row.get(3)?, row.get(4)?, row.get(5)?, row.get(9)?, row.get(11)?];
    let purged_issued: Option<u32> = row.get(12)?;
    let title: Option<String> = row.get(6)?;
    let room: Option<String> = row.get(7)?;
    let voucher_key = VoucherKey::new(row.get(8)?).bound_from(row.get(10)?);
    let id = CouponId(row.get(0)?);
    let read = || {
        let wrong = || damaged(format!("coupon {name:?} has settings that no rule allows"));
        let [opens_at, expires_at, redeem_until, deleted_at, purged_at] =
            instants.map(|us| us.map(instant).transpose());
        let settings = CouponSettings {
            limit: CouponLimit::new(limit).ok_or_else(wrong)?,
            opens_at: opens_at?,
            expires_at: expires_at?,
            redeem_until: redeem_until?,
            title: title.as_deref().map(|title| Title::new(title).ok_or_else(wrong)).transpose()?,
            room: room.as_deref().map(|room| RoomName::parse(room).map_err(|_| wrong())).transpose()?,
            acknowledge: firstcome_core::coupon::Acknowledge::Stored,
        };
        let name = CouponName::parse(&name).map_err(|_| wrong())?;
        let purged = purged_at?.zip(purged_issued).map(|(at, issued)| CouponPurge { at, issued });
        Ok(CouponRow { id, name, settings, voucher_key, deleted_at: deleted_at?, purged })
    };
    Ok(read())
}

/// Visits claims in key order: by coupon, then by serial. `only` restricts the walk to one coupon.
pub(super) fn for_each_claim(
    connection: &Connection,
    only: Option<CouponId>,
    mut visit: impl FnMut(ClaimRow<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query = "SELECT id, user, issued_at, attributes, request_key, request_body FROM claim
        WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the claims");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query(only.map_or([i64::MIN, i64::MAX], range)).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        let read = || -> rusqlite::Result<_> {
            let user = row.get_ref(1)?.as_str()?;
            let attributes = row.get_ref(3)?.as_str_or_null()?;
            Ok((row.get::<_, i64>(0)?, user, row.get::<_, i64>(2)?, attributes, request_of(row, 4)?))
        };
        let (key, user, issued_at, attributes, request) = read().map_err(|error| broken(&error))?;
        let (coupon, serial) = key_of(key)?;
        let issued = Issued { serial, issued_at: instant(issued_at)? };
        visit(ClaimRow { coupon, issued, user, attributes, request })?;
    }
    Ok(())
}

/// Visits redemptions in key order.
pub(super) fn for_each_redemption(
    connection: &Connection,
    mut visit: impl FnMut(RedemptionRow) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query = "SELECT id, redeemed_at, request_key, request_body FROM redemption ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the redemptions");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query([]).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        let read = || -> rusqlite::Result<_> { Ok((row.get(0)?, row.get(1)?, request_of(row, 2)?)) };
        let (key, redeemed_at, request) = read().map_err(|error| broken(&error))?;
        let (coupon, serial) = key_of(key)?;
        visit(RedemptionRow { coupon, redeemed: Redeemed { serial, redeemed_at: instant(redeemed_at)? }, request })?;
    }
    Ok(())
}

/// Loads all coupons and restores them through the rules: a contradiction is [`FaultKind::Damaged`].
pub(super) fn load(connection: &Connection, hasher: &RandomState) -> Result<Vec<StoredCoupon>, Fault> {
    let mut deleted = Vec::new();
    let mut loaded: Vec<StoredCoupon> = Vec::new();
    let mut place: HashMap<CouponId, usize> = HashMap::new();
    for row in coupons(connection)? {
        place.insert(row.id, loaded.len());
        deleted.push(row.deleted_at.is_some());
        let mut coupon = Coupon::new(row.settings, hasher.clone());
        if let Some(CouponPurge { at, issued }) = row.purged {
            let restored = coupon.restore_purged(at, issued, hasher.clone());
            restored.map_err(|damage| damaged(format!("coupon {}: {}", row.name, damage.as_str())))?;
        }
        loaded.push(StoredCoupon { id: row.id, name: row.name, voucher_key: row.voucher_key, coupon });
    }
    let stray = |key: CouponId| damaged(format!("rows of a coupon {} that does not exist", key.0));
    let wrong = |name: &CouponName, serial: Serial, damage: Damage| {
        damaged(format!("coupon {name}, serial {}: {}", serial.get(), damage.as_str()))
    };
    for_each_claim(connection, None, |claim| {
        let stored = &mut loaded[*place.get(&claim.coupon).ok_or_else(|| stray(claim.coupon))?];
        // The next purge removes it.
        if stored.coupon.is_purged() {
            return Ok(());
        }
        let user = UserId::restore(claim.user).map_err(|error| {
            damaged(format!("coupon {}, serial {}: user {error}", stored.name, claim.issued.serial.get()))
        })?;
        let restored = stored.coupon.restore_claim(claim.issued, &user, claim.request);
        restored.map_err(|damage| wrong(&stored.name, claim.issued.serial, damage))
    })?;
    if let Some(stored) = loaded.iter().find(|it| it.coupon.issued() + 1 < it.voucher_key.codes_bound_from()) {
        return Err(damaged(format!("coupon {}: the codes of future claims are not bound to them", stored.name)));
    }
    for_each_redemption(connection, |row| {
        let stored = &mut loaded[*place.get(&row.coupon).ok_or_else(|| stray(row.coupon))?];
        if stored.coupon.is_purged() {
            return Ok(());
        }
        let restored = stored.coupon.restore_redemption(row.redeemed, row.request);
        restored.map_err(|damage| wrong(&stored.name, row.redeemed.serial, damage))
    })?;
    for (stored, _) in loaded.iter_mut().zip(deleted).filter(|(_, deleted)| *deleted) {
        stored.coupon.delete();
    }
    Ok(loaded)
}

/// Reads the attributes of the claims `first..=last` that have any.
pub(super) fn attributes(
    connection: &Connection,
    coupon: CouponId,
    first: Serial,
    last: Serial,
) -> rusqlite::Result<BTreeMap<Serial, Attributes>> {
    let query = "SELECT id, attributes FROM claim WHERE id BETWEEN ?1 AND ?2 AND attributes IS NOT NULL";
    let mut statement = connection.prepare_cached(query)?;
    let mut rows = statement.query([coupon.row(first), coupon.row(last)])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let serial = Serial::new(row.get::<_, i64>(0)? as u32);
        let attributes = Attributes::new(row.get_ref(1)?.as_str()?);
        if let Some((serial, attributes)) = serial.zip(attributes) {
            found.insert(serial, attributes);
        }
    }
    Ok(found)
}
