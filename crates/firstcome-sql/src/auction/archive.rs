//! Rows of members, listings and bids as they come in from elsewhere or go out, many at once. Both kinds of databases are told
//! the same.

use super::changes::{Before, ListingChange, stored};
use super::dialect::{LISTING_COLUMNS, RequestScope};
use super::load::{self, Columns};
use crate::SqlError;
use crate::dialect::{Dialect, Row, list, maybe, quoted};
use crate::reader::{Reader, wrong};
use firstcome_core::auction::{Bid, Listing, ListingStanding, PlacedBid, Terms};
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Anchor, Record, Renaming, Wallet};
use firstcome_core::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Makes members that are new; their numbers are read by [`numbers`].
pub fn make_members(names: &[&str]) -> String {
    let names = list(names, |text, name| {
        text.push('(');
        quoted(text, name);
        text.push(')');
    });
    format!("INSERT INTO firstcome_member (name) VALUES {names};")
}

/// Makes listings that are new as they were at first, for their bids and records to name: [`write_listing`] follows.
pub fn make_listings(listings: &[(i64, &ListingStanding)]) -> String {
    let rows = list(listings, |text, (owner, standing)| {
        text.push('(');
        quoted(text, standing.name.as_str());
        let _ = write!(text, ",{owner},");
        quoted(text, standing.owner.as_str());
        let ends_at = standing.auction_terms().map(|terms| terms.ends_at.as_us());
        let kind = u8::from(standing.terms != Terms::FixedPrice);
        let _ = write!(text, ",{},{},{kind},", standing.price.get(), standing.starts_at.as_us());
        maybe(text, ends_at);
        let (end, last) = (standing.effective_ends_at.as_us(), standing.last_at.as_us());
        let _ = write!(text, ",{end},0,0,0,{},{last},0)", stored(standing.version));
    });
    format!(
        "INSERT INTO firstcome_listing (name,owner_id,owner,price,starts_at,kind,ends_at,effective_ends_at,extensions,bids,phase,\
         version,last_at,writer) VALUES {rows};"
    )
}

/// Reads the numbers of members or listings by their names.
pub fn numbers(table: &str, names: &[&str]) -> String {
    format!("SELECT id,name FROM {table} WHERE name IN ({});", list(names, |text, name| quoted(text, name)))
}

/// Writes a listing as it is after all its bids. `None` if no rule allows it.
pub fn write_listing(
    text: &mut String,
    id: i64,
    owner: i64,
    highest: Option<(i64, Bid)>,
    standing: ListingStanding,
    writer: i64,
) -> Option<()> {
    let (highest_id, highest) = highest.unzip();
    let version = standing.version;
    let listing = Listing::restore(ListingStanding { highest, ..standing }).ok()?;
    let change = ListingChange { before: Some(Before { id, version }), listing, owner, highest: highest_id };
    change.write(text, writer, false);
    Some(())
}

/// Writes bids, each with the numbers of its listing and its member.
pub fn write_bids(bids: &[(i64, i64, &PlacedBid)]) -> String {
    let rows = list(bids, |text, (listing, member, placed)| {
        let PlacedBid { bid, effective_ends_at, fence } = placed;
        let (price, at, end) = (bid.price.get(), bid.at.as_us(), effective_ends_at.as_us());
        let _ = write!(text, "({listing},{},{member},{price},{at},{end},{})", bid.number, stored(*fence));
    });
    format!("INSERT INTO firstcome_bid (listing,number,member,price,at,ends_at,fence) VALUES {rows};")
}

/// Writes records, each with the numbers of its member and of the listing that it is about.
pub fn write_records(dialect: Dialect, records: &[(i64, Option<i64>, &Record)], writer: i64) -> String {
    let rows = list(records, |text, (member, listing, record)| {
        let (kind, amount) = (record.kind.number(), record.amount.get());
        let _ = write!(text, "({member},{},{kind},{amount},", record.number);
        maybe(text, *listing);
        text.push(',');
        maybe(text, record.about.as_ref().and_then(|about| about.bid).map(i64::from));
        let (total, held) = (record.balance.total(), record.balance.held());
        let _ = write!(text, ",{},{total},{held},{writer},", record.at.as_us());
        dialect.bytes(text, &record.chain.0);
        text.push(')');
    });
    let columns = "member,number,kind,amount,listing,bid,at,total,held,writer,chain";
    format!("INSERT INTO firstcome_record ({columns}) VALUES {rows};")
}

/// A request that had an effect: what it was for, its number there, and when.
pub struct Keyed {
    /// Whether it is the key of a bid, rather than of a movement of points.
    pub of_listing: bool,
    /// The number of the listing or of the member.
    pub scope: i64,
    /// The key.
    pub request: RequestId,
    /// The number of the bid or of the record that it made.
    pub number: u64,
    /// When.
    pub at: Timestamp,
}

firstcome_core::debug_by_name!(Keyed);

/// Writes requests.
pub fn write_requests(dialect: Dialect, requests: &[Keyed]) -> String {
    let rows = list(requests, |text, keyed| {
        let scope =
            if keyed.of_listing { RequestScope::Listing(keyed.scope) } else { RequestScope::Member(keyed.scope) };
        let (kind, scope) = scope.parts();
        let _ = write!(text, "({kind},{scope},");
        dialect.bytes(text, &keyed.request.key.to_be_bytes());
        let _ = write!(text, ",{},{},{})", keyed.request.body.cast_signed(), keyed.number, keyed.at.as_us());
    });
    format!("INSERT INTO firstcome_request (kind,scope,request,body,number,at) VALUES {rows};")
}

/// Writes what a new member has.
pub fn write_wallet(dialect: Dialect, text: &mut String, id: i64, wallet: &Wallet) {
    let (total, held) = (wallet.balance.total(), wallet.balance.held());
    let (records, last) = (wallet.records, wallet.last_at.as_us());
    let _ =
        write!(text, "UPDATE firstcome_member SET total={total},held={held},records={records},last_at={last},chain=");
    dialect.bytes(text, &wallet.chain.0);
    let _ = write!(text, " WHERE id={id} AND records=0;");
}

/// Writes what takes the place of removed records of a new member.
pub fn write_anchor(dialect: Dialect, text: &mut String, id: i64, anchor: &Anchor) {
    super::dialect::put_anchor(dialect, text, id, anchor);
}

/// Reads a number and a name.
pub fn number_and_name(row: &Row) -> Result<(i64, String), SqlError> {
    let mut columns = Reader::at(row, 0);
    Ok((columns.integer()?, columns.maybe_text()?.unwrap_or_default()))
}

/// What reads listings after a number, by their numbers.
pub fn listings_after(id: i64, count: usize) -> String {
    format!("SELECT id,{} FROM firstcome_listing WHERE id>{id} ORDER BY id LIMIT {count};", LISTING_COLUMNS.join(","))
}

/// A listing and its number.
pub fn listing_of(row: &Row) -> Result<(i64, ListingStanding), SqlError> {
    let Columns { standing, .. } = load::columns(row)?;
    Ok((Reader::at(row, 0).integer()?, standing))
}

/// What reads members after a number, by their numbers.
pub fn members_after(id: i64, count: usize) -> String {
    format!(
        "SELECT m.id,m.name,{},{} FROM firstcome_member m LEFT JOIN firstcome_anchor a ON a.member=m.id \
         LEFT JOIN firstcome_renaming n ON n.member=m.id WHERE m.id>{id} ORDER BY m.id LIMIT {count};",
        load::ANCHOR_COLUMNS,
        load::RENAMING_COLUMNS
    )
}

/// A member as an export needs it.
pub struct ArchivedMember {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: MemberName,
    /// What stands in the place of removed records, if some were removed.
    pub anchor: Option<Arc<Anchor>>,
    /// What is left to chain again, if the member got another name.
    pub renaming: Option<Arc<Renaming>>,
}

firstcome_core::debug_by_name!(ArchivedMember);

/// Reads a row of [`members_after`].
pub fn member_of(row: &Row) -> Result<ArchivedMember, SqlError> {
    let mut columns = Reader::at(row, 0);
    let (id, name) = (columns.integer()?, columns.member()?);
    let renaming = load::renaming_of(&mut Reader::at(row, columns.position() + load::ANCHOR_WIDTH))?;
    Ok(ArchivedMember { id, name, anchor: load::anchor_of(&mut columns)?, renaming })
}

/// The columns of a record after the number of its member.
pub const RECORD_COLUMNS: &str = "number,kind,amount,listing,bid,at,total,held,chain";

/// A record of a member.
pub fn record_of(
    columns: &mut Reader<'_>,
    member: &MemberName,
    listings: &BTreeMap<i64, ListingName>,
) -> Result<Record, SqlError> {
    load::record_of(columns, member, |columns| {
        let listing = columns.maybe_integer()?;
        let name = |id| listings.get(&id).cloned().ok_or_else(|| wrong("a record of a listing that is not there"));
        listing.map(name).transpose()
    })
}
