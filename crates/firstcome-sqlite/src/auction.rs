//! Rows of members, listings and bids: written in the order of the decisions, restored through the rules.

use super::coupon::{damaged, instant, request_columns, request_of};
use super::faults::fault;
use firstcome_core::auction::{AuctionTerms, Bid, Extend, Listing, ListingStanding, Phase, PlacedBid, Sale, Terms};
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Amount, Anchor, Balance, Chain, Kind, Record, Reference, Renaming, Wallet};
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::Fault;
use firstcome_store::embedded::journal::{Change, ListingId, MemberId};
use firstcome_store::embedded::{KeyedMovement, StoredAuctions, StoredListing, StoredMember, keys_kept_since};
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;
use std::sync::Arc;

const INSERT_BID: &str = "\
INSERT INTO bid (id, member, price, at, ends_at, fence, request_key, request_body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const INSERT_RECORD: &str = "\
INSERT INTO record (id, kind, amount, listing, bid, at, total, held, chain, request_key, request_body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const PUT_MEMBER: &str = "\
INSERT INTO member (id, name, total, held, records, last_at, chain) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO UPDATE SET total = ?3, held = ?4, records = ?5, last_at = ?6, chain = ?7";
const PUT_LISTING: &str = "\
INSERT INTO listing (id, name, owner, price, starts_at, ends_at, min_increment, extend_window_ms, extend_by_ms,
    extend_max_count, settle_within_ms, effective_ends_at, extensions, bids, phase, phase_at, buyer, sold_for, request_key,
    request_body, version, last_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
ON CONFLICT (id) DO UPDATE SET owner = ?3, price = ?4, starts_at = ?5, ends_at = ?6, min_increment = ?7,
    extend_window_ms = ?8, extend_by_ms = ?9, extend_max_count = ?10, settle_within_ms = ?11, effective_ends_at = ?12,
    extensions = ?13, bids = ?14, phase = ?15, phase_at = ?16, buyer = ?17, sold_for = ?18, request_key = ?19,
    request_body = ?20, version = ?21, last_at = ?22";

const SELECT_MEMBER: &str = "\
SELECT member.id, member.name, member.total, member.held, member.records, member.last_at, member.chain,
    anchor.number, anchor.total, anchor.held, anchor.at, anchor.charged, anchor.chain,
    renaming.before, renaming.last, renaming.done, renaming.old, renaming.renewed
FROM member LEFT JOIN anchor ON anchor.member = member.id LEFT JOIN renaming ON renaming.member = member.id
ORDER BY member.id";
const SELECT_LISTING: &str = "\
SELECT id, name, owner, price, starts_at, ends_at, min_increment, extend_window_ms, extend_by_ms, extend_max_count,
    settle_within_ms, effective_ends_at, extensions, bids, phase, phase_at, buyer, sold_for, request_key, request_body,
    version, last_at FROM listing ORDER BY id";
const SELECT_BID: &str = "\
SELECT bid.id, member.name, bid.price, bid.at, bid.ends_at, bid.fence, bid.request_key, bid.request_body
FROM bid LEFT JOIN member ON member.id = bid.member";
const SELECT_RECORD: &str = "\
SELECT record.id, record.kind, record.amount, listing.name, record.bid, record.at, record.total, record.held,
    record.chain, record.request_key, record.request_body
FROM record LEFT JOIN listing ON listing.id = record.listing";

/// Writes one change of auctions within the open transaction.
pub(super) fn write(connection: &Connection, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Bid { id, member, placed, request } => {
            let PlacedBid { bid, effective_ends_at, fence } = placed;
            let (key, body) = request_columns(*request);
            connection.prepare_cached(INSERT_BID)?.execute(params![
                id.row(bid.number),
                member.0,
                bid.price.get().cast_signed(),
                bid.at.as_us(),
                effective_ends_at.as_us(),
                fence.cast_signed(),
                key,
                body
            ])?;
        }
        Change::Moved { id, listing, record, request } => {
            let (key, body) = request_columns(*request);
            connection.prepare_cached(INSERT_RECORD)?.execute(params![
                id.row(record.number),
                record.kind.number(),
                record.amount.get().cast_signed(),
                listing.map(|listing| listing.0),
                record.about.as_ref().and_then(|about| about.bid),
                record.at.as_us(),
                record.balance.total().cast_signed(),
                record.balance.held().cast_signed(),
                &record.chain.0[..],
                key,
                body
            ])?;
        }
        Change::Member { id, wallet } => {
            connection.prepare_cached(PUT_MEMBER)?.execute(params![
                id.0,
                wallet.member.as_str(),
                wallet.balance.total().cast_signed(),
                wallet.balance.held().cast_signed(),
                wallet.records.cast_signed(),
                wallet.last_at.as_us(),
                &wallet.chain.0[..]
            ])?;
        }
        Change::Listing { id, standing, sale_request } => put_listing(connection, *id, standing, *sale_request)?,
        // `coupon::write` handles all other changes.
        _ => {}
    }
    Ok(())
}

fn put_listing(
    connection: &Connection,
    id: ListingId,
    standing: &ListingStanding,
    sale_request: Option<RequestId>,
) -> rusqlite::Result<()> {
    let terms = standing.auction_terms();
    let extend = terms.and_then(|terms| terms.extend);
    let (phase, phase_at, sale) = match &standing.phase {
        Phase::Open => (0, None, None),
        Phase::Ended(at) => (1, Some(*at), None),
        Phase::Sold(sale) => (2, Some(sale.at), Some(sale)),
        Phase::Unsold(at) => (3, Some(*at), None),
    };
    let (key, body) = request_columns(sale_request);
    connection.prepare_cached(PUT_LISTING)?.execute(params![
        id.0,
        standing.name.as_str(),
        standing.owner.as_str(),
        standing.price.get().cast_signed(),
        standing.starts_at.as_us(),
        terms.map(|terms| terms.ends_at.as_us()),
        terms.and_then(|terms| terms.min_increment).map(|step| step.get().cast_signed()),
        extend.map(|extend| extend.window_ms.cast_signed()),
        extend.map(|extend| extend.by_ms.cast_signed()),
        extend.map(|extend| extend.max_count),
        terms.and_then(|terms| terms.settle_within_ms).map(u64::cast_signed),
        standing.effective_ends_at.as_us(),
        standing.extensions,
        standing.bids,
        phase,
        phase_at.map(Timestamp::as_us),
        sale.map(|sale| sale.buyer.as_str()),
        sale.map(|sale| sale.price.get().cast_signed()),
        key,
        body,
        standing.version.cast_signed(),
        standing.last_at.as_us()
    ])?;
    Ok(())
}

/// A bid's row.
pub(super) struct BidRow {
    pub(super) listing: ListingId,
    pub(super) placed: PlacedBid,
    pub(super) request: Option<RequestId>,
}

/// A listing's row. It does not repeat its highest bid, which is the last row among its bids.
pub(super) struct ListingRow {
    pub(super) id: ListingId,
    pub(super) standing: ListingStanding,
    pub(super) sale_request: Option<RequestId>,
}

fn amount(points: i64) -> Result<Amount, Fault> {
    u64::try_from(points).ok().and_then(Amount::new).ok_or_else(|| damaged(format!("{points} is not an amount")))
}

fn balance(total: i64, held: i64) -> Result<Balance, Fault> {
    let parts = u64::try_from(total).ok().zip(u64::try_from(held).ok());
    let balance = parts.and_then(|(total, held)| Balance::new(total, held));
    balance.ok_or_else(|| damaged(format!("{held} of {total} points held is no balance")))
}

fn member_name(text: &str) -> Result<MemberName, Fault> {
    MemberName::restore(text).map_err(|error| damaged(format!("member {text:?}: {error}")))
}

/// Visits rows. An error of the file, or a value that no rule could have written, ends the walk.
fn for_each(
    connection: &Connection,
    query: &str,
    range: [i64; 2],
    what: &str,
    mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<Result<(), Fault>>,
) -> Result<(), Fault> {
    let broken = |error: &rusqlite::Error| fault(error, format!("cannot read the {what}"));
    let mut statement = connection.prepare_cached(query).map_err(|error| broken(&error))?;
    let range: &[i64] = if statement.parameter_count() == 0 { &[] } else { &range };
    let mut rows = statement.query(rusqlite::params_from_iter(range)).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        visit(row).map_err(|error| broken(&error))??;
    }
    Ok(())
}

/// Reads all members, in the order of their creation.
pub(super) fn members(connection: &Connection) -> Result<Vec<StoredMember>, Fault> {
    let mut members = Vec::new();
    for_each(connection, SELECT_MEMBER, [0; 2], "members", |row| {
        let (id, name): (u32, String) = (row.get(0)?, row.get(1)?);
        let (total, held, records, last_at) = (row.get(2)?, row.get(3)?, row.get::<_, i64>(4)?, row.get(5)?);
        let chain = Chain(row.get(6)?);
        let (anchor, renaming) = (anchor_of(row)?, renaming_of(row)?);
        let read = || {
            let records = u64::try_from(records).map_err(|_| damaged(format!("member {name}: {records} records")))?;
            let (member, balance, last_at) = (member_name(&name)?, balance(total, held)?, instant(last_at)?);
            let (anchor, renaming) = (anchor?.map(Arc::new), renaming?.map(Arc::new));
            let wallet = Wallet { member, balance, records, last_at, chain, anchor, renaming };
            members.push(StoredMember { id: MemberId(id), wallet });
            Ok(())
        };
        Ok(read())
    })?;
    Ok(members)
}

/// Reads the anchor of a member behind its wallet.
fn anchor_of(row: &Row<'_>) -> rusqlite::Result<Result<Option<Anchor>, Fault>> {
    let Some(number) = row.get::<_, Option<i64>>(7)? else { return Ok(Ok(None)) };
    let (total, held, at, charged) = (row.get(8)?, row.get(9)?, row.get(10)?, row.get(11)?);
    let chain = Chain(row.get(12)?);
    let read = || {
        let number = u64::try_from(number).map_err(|_| damaged(format!("{number} is not the number of an anchor")))?;
        Ok(Some(Anchor { number, balance: balance(total, held)?, at: instant(at)?, charged, chain }))
    };
    Ok(read())
}

/// Reads what is left to chain again of a member, behind its wallet and its anchor.
fn renaming_of(row: &Row<'_>) -> rusqlite::Result<Result<Option<Renaming>, Fault>> {
    let Some(before) = row.get::<_, Option<String>>(13)? else { return Ok(Ok(None)) };
    let (last, done): (i64, i64) = (row.get(14)?, row.get(15)?);
    let (old, renewed) = (Chain(row.get(16)?), Chain(row.get(17)?));
    let (last, done) = (last.cast_unsigned(), done.cast_unsigned());
    Ok(member_name(&before).map(|before| Some(Renaming { before, last, done, old, renewed })))
}

/// Reads all listings, in the order of their creation, without their highest bids.
pub(super) fn listings(connection: &Connection) -> Result<Vec<ListingRow>, Fault> {
    let mut listings = Vec::new();
    for_each(connection, SELECT_LISTING, [0; 2], "listings", |row| {
        Ok(listing_row(row)?.map(|listing| listings.push(listing)))
    })?;
    Ok(listings)
}

fn listing_row(row: &Row<'_>) -> rusqlite::Result<Result<ListingRow, Fault>> {
    let (id, name, owner): (u32, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (price, starts_at, ends_at): (i64, i64, Option<i64>) = (row.get(3)?, row.get(4)?, row.get(5)?);
    let (min_increment, extend) =
        (row.get::<_, Option<i64>>(6)?, (row.get::<_, Option<i64>>(7)?, row.get::<_, Option<i64>>(8)?, row.get(9)?));
    let settle_within_ms = row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned);
    let (effective_ends_at, extensions, bids): (i64, u32, u32) = (row.get(11)?, row.get(12)?, row.get(13)?);
    let (phase, phase_at): (u8, Option<i64>) = (row.get(14)?, row.get(15)?);
    let (buyer, sold_for): (Option<String>, Option<i64>) = (row.get(16)?, row.get(17)?);
    let (sale_request, version, last_at) = (request_of(row, 18)?, row.get::<_, i64>(20)?, row.get::<_, i64>(21)?);
    let read = || {
        let wrong = || damaged(format!("listing {name:?} has a state that no rule allows"));
        let terms = match ends_at {
            None => Terms::FixedPrice,
            Some(ends_at) => Terms::Auction(AuctionTerms {
                ends_at: instant(ends_at)?,
                min_increment: min_increment.map(amount).transpose()?,
                extend: match extend {
                    (Some(window_ms), Some(by_ms), Some(max_count)) => {
                        Some(Extend { window_ms: window_ms.cast_unsigned(), by_ms: by_ms.cast_unsigned(), max_count })
                    }
                    _ => None,
                },
                settle_within_ms,
            }),
        };
        let phase_at = phase_at.map(instant).transpose()?;
        let phase = match (phase, phase_at, buyer.as_deref(), sold_for) {
            (0, None, None, None) => Phase::Open,
            (1, Some(at), None, None) => Phase::Ended(at),
            (2, Some(at), Some(buyer), Some(price)) => {
                Phase::Sold(Sale { buyer: member_name(buyer)?, price: amount(price)?, at })
            }
            (3, Some(at), None, None) => Phase::Unsold(at),
            _ => return Err(wrong()),
        };
        let standing = ListingStanding {
            name: ListingName::parse(&name).map_err(|_| wrong())?,
            owner: member_name(&owner)?,
            price: amount(price)?,
            starts_at: instant(starts_at)?,
            terms,
            effective_ends_at: instant(effective_ends_at)?,
            extensions,
            bids,
            highest: None,
            phase,
            version: version.cast_unsigned(),
            last_at: instant(last_at)?,
        };
        Ok(ListingRow { id: ListingId(id), standing, sale_request })
    };
    Ok(read())
}

fn bid_row(row: &Row<'_>) -> rusqlite::Result<Result<BidRow, Fault>> {
    let (key, bidder): (i64, Option<String>) = (row.get(0)?, row.get(1)?);
    let (price, at, ends_at, fence) = (row.get(2)?, row.get(3)?, row.get(4)?, row.get::<_, i64>(5)?);
    let request = request_of(row, 6)?;
    let read = || {
        let listing = u32::try_from(key >> 32).map_err(|_| damaged(format!("{key} is not the key of a bid")))?;
        let bidder = bidder.ok_or_else(|| damaged(format!("bid {key} of a member who does not exist")))?;
        let bid = Bid { number: key as u32, bidder: member_name(&bidder)?, price: amount(price)?, at: instant(at)? };
        let placed = PlacedBid { bid, effective_ends_at: instant(ends_at)?, fence: fence.cast_unsigned() };
        Ok(BidRow { listing: ListingId(listing), placed, request })
    };
    Ok(read())
}

fn record_row(row: &Row<'_>, member: &MemberName) -> rusqlite::Result<Result<Record, Fault>> {
    let (key, kind, points): (i64, u8, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (listing, bid): (Option<String>, Option<u32>) = (row.get(3)?, row.get(4)?);
    let (at, total, held) = (row.get(5)?, row.get(6)?, row.get(7)?);
    let chain = Chain(row.get(8)?);
    let read = || {
        let wrong = || damaged(format!("{key} is not a record that a rule could have written"));
        let (_, number) = MemberId::of_row(key).ok_or_else(wrong)?;
        let about = match listing {
            Some(listing) => Some(Reference { listing: ListingName::parse(&listing).map_err(|_| wrong())?, bid }),
            None => None,
        };
        Ok(Record {
            member: member.clone(),
            number,
            kind: Kind::from_number(kind).ok_or_else(wrong)?,
            amount: amount(points)?,
            about,
            at: instant(at)?,
            balance: balance(total, held)?,
            chain,
        })
    };
    Ok(read())
}

/// Visits the bids of all listings, in key order.
pub(super) fn for_each_bid(
    connection: &Connection,
    mut visit: impl FnMut(BidRow) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query = format!("{SELECT_BID} ORDER BY bid.id");
    for_each(connection, &query, [0; 2], "bids", |row| Ok(bid_row(row)?.and_then(&mut visit)))
}

/// Visits the records of one member in order, each with its request if that had a key.
pub(super) fn for_each_record(
    connection: &Connection,
    id: MemberId,
    member: &MemberName,
    mut visit: impl FnMut(Record, Option<RequestId>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query = format!("{SELECT_RECORD} WHERE record.id BETWEEN ?1 AND ?2 ORDER BY record.id");
    let range = [id.row(0), MemberId(id.0 + 1).row(0) - 1];
    for_each(connection, &query, range, "records", |row| {
        let request = request_of(row, 9)?;
        Ok(record_row(row, member)?.and_then(|record| visit(record, request)))
    })
}

/// Reads at most `count` bids of a listing in order, from the one after number `after`.
pub(super) fn bids(connection: &Connection, id: ListingId, after: u32, count: usize) -> Result<Vec<Bid>, Fault> {
    let query = format!("{SELECT_BID} WHERE bid.id > ?1 AND bid.id <= ?2 ORDER BY bid.id LIMIT {count}");
    let mut bids = Vec::new();
    for_each(connection, &query, [id.row(after), id.row(u32::MAX)], "bids", |row| {
        Ok(bid_row(row)?.map(|row| bids.push(row.placed.bid)))
    })?;
    Ok(bids)
}

/// Reads at most `count` records of a member in order, from the one after number `after`.
pub(super) fn records(connection: &Connection, id: MemberId, after: u64, count: usize) -> Result<Vec<Record>, Fault> {
    let last = MemberId(id.0 + 1).row(0) - 1;
    let Some(after) = i64::try_from(after).ok().and_then(|after| id.row(0).checked_add(after)) else {
        return Ok(Vec::new());
    };
    let broken = |error: rusqlite::Error| fault(&error, "cannot read the records");
    let name: String =
        connection.query_row("SELECT name FROM member WHERE id = ?1", [id.0], |row| row.get(0)).map_err(broken)?;
    let name = member_name(&name)?;
    let query = format!("{SELECT_RECORD} WHERE record.id > ?1 AND record.id <= ?2 ORDER BY record.id LIMIT {count}");
    let mut records = Vec::new();
    for_each(connection, &query, [after, last], "records", |row| {
        Ok(record_row(row, &name)?.map(|row| records.push(row)))
    })?;
    Ok(records)
}

/// Finds a key of the table that is not in `first..end`. Costs two look-ups.
fn outside(connection: &Connection, table: &str, [first, end]: [i64; 2]) -> Result<Option<i64>, Fault> {
    let query = format!("SELECT id FROM {table} WHERE id < ?1 UNION ALL SELECT id FROM {table} WHERE id >= ?2 LIMIT 1");
    let mut found = None;
    for_each(connection, &query, [first, end], "keys", |row| {
        found = Some(row.get(0)?);
        Ok(Ok(()))
    })?;
    Ok(found)
}

/// Visits the keys of records whose member does not exist. Only `verify` calls it, since it reads all records.
pub(super) fn for_each_stray_record(connection: &Connection, mut visit: impl FnMut(i64)) -> Result<(), Fault> {
    let query = "SELECT record.id FROM record LEFT JOIN member ON member.id = record.id >> 36 WHERE member.id IS NULL";
    for_each(connection, query, [0; 2], "records", |row| {
        visit(row.get(0)?);
        Ok(Ok(()))
    })
}

/// Loads everything except the history and restores it through the rules: a contradiction is [`crate::FaultKind::Damaged`].
/// Compares each member's last record and each listing's last bid with it. No record or bid may belong to a member or a
/// listing that does not exist. `verify` checks the whole history.
pub(super) fn load(connection: &Connection, now: Now) -> Result<StoredAuctions, Fault> {
    let members = members(connection)?;
    let end = MemberId(members.last().map_or(1, |member| member.id.0 + 1)).row(0);
    if let Some(key) = outside(connection, "record", [MemberId(1).row(1), end])? {
        return Err(damaged(format!("record {key} of a member who does not exist")));
    }
    for (place, member) in members.iter().enumerate() {
        let wallet = &member.wallet;
        let wrong = |what: &str| damaged(format!("member {}: {what}", wallet.member));
        if member.id.0 as usize != place + 1 {
            return Err(wrong("members are not numbered without gaps"));
        }
        let last = records(connection, member.id, wallet.records.saturating_sub(1), 2)?;
        let agrees = |record: &Record| {
            (record.number, record.balance, record.chain) == (wallet.records, wallet.balance, wallet.chain)
        };
        if !matches!(last.as_slice(), [record] if agrees(record)) {
            return Err(wrong("the balance is not that of the last record"));
        }
        let goes_on = |renaming: &Renaming| {
            let begins = wallet.begins_with().number;
            (begins..wallet.records).contains(&renaming.done) && renaming.last <= wallet.records
        };
        if !wallet.renaming.as_deref().is_none_or(goes_on) {
            return Err(wrong("its records are not what an erasure has left"));
        }
    }
    let mut stored = StoredAuctions { members, ..StoredAuctions::default() };
    let mut held: HashMap<MemberName, u64> = HashMap::new();
    let listings = listings(connection)?;
    let end = ListingId(listings.last().map_or(1, |row| row.id.0 + 1)).row(0);
    if let Some(key) = outside(connection, "bid", [ListingId(1).row(1), end])? {
        return Err(damaged(format!("bid {key} of a listing that does not exist")));
    }
    for (place, ListingRow { id, mut standing, sale_request }) in listings.into_iter().enumerate() {
        let wrong = |standing: &ListingStanding, what: &str| damaged(format!("listing {}: {what}", standing.name));
        if id.0 as usize != place + 1 {
            return Err(wrong(&standing, "listings are not numbered without gaps"));
        }
        standing.highest = bids(connection, id, standing.bids.saturating_sub(1), 2)?.pop();
        if let (Some(bid), Phase::Open | Phase::Ended(_)) = (&standing.highest, &standing.phase) {
            *held.entry(bid.bidder.clone()).or_default() += bid.price.get();
        }
        let name = standing.name.clone();
        let listing =
            Listing::restore(standing).map_err(|error| damaged(format!("listing {name}: {}", error.as_str())))?;
        stored.listings.push(StoredListing { id, listing, keyed_bids: Vec::new(), sale_request });
    }
    for member in &stored.members {
        let wallet = &member.wallet;
        if wallet.balance.held() != held.remove(&wallet.member).unwrap_or(0) {
            return Err(damaged(format!(
                "member {}: the held points differ from the sum of the highest bids",
                wallet.member
            )));
        }
    }
    load_keys(connection, now, &mut stored)?;
    Ok(stored)
}

fn load_keys(connection: &Connection, now: Now, stored: &mut StoredAuctions) -> Result<(), Fault> {
    let query = format!("{SELECT_BID} WHERE bid.request_key IS NOT NULL ORDER BY bid.id");
    for_each(connection, &query, [0; 2], "bids", |row| {
        let read = bid_row(row)?;
        Ok(read.and_then(|BidRow { listing, placed, request }| {
            let known = stored.listings.get_mut((listing.0 as usize).wrapping_sub(1));
            let known =
                known.ok_or_else(|| damaged(format!("a bid of a listing {} that does not exist", listing.0)))?;
            known.keyed_bids.extend(request.map(|request| (request, placed)));
            Ok(())
        }))
    })?;
    let since = keys_kept_since(now).as_us();
    let query = "SELECT total, held, at, request_key, request_body, id FROM record
        WHERE request_key IS NOT NULL AND at BETWEEN ?1 AND ?2 ORDER BY at";
    for_each(connection, query, [since, i64::MAX], "records", |row| {
        let (total, held, at): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (request, key) = (request_of(row, 3)?, row.get(5)?);
        let mut read = || {
            let (balance, at) = (balance(total, held)?, instant(at)?);
            let member = MemberId::of_row(key).ok_or_else(|| damaged(format!("{key} is not the key of a record")))?.0;
            stored.keyed_movements.extend(request.map(|request| KeyedMovement { member, request, balance, at }));
            Ok(())
        };
        Ok(read())
    })
}
