//! From rows back to what the rules know. What cannot be true is an error, never repaired.

use super::changes::Before;
use super::dialect::LISTING_COLUMNS;
use crate::SqlError;
use crate::dialect::Row;
use crate::reader::{Reader, wrong};
use firstcome_core::auction::{AuctionTerms, Bid, Extend, Listing, ListingStanding, Phase, Sale, Terms};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Amount, Anchor, Kind, Record, Reference, Renaming, Wallet};
use std::sync::Arc;

/// A listing as it stands in its table.
pub(super) struct Stored {
    pub(super) before: Before,
    pub(super) owner: i64,
    pub(super) highest: Option<i64>,
    pub(super) listing: Listing,
}

/// Reads the columns of a listing; `id` is known to the caller that asked.
pub(super) fn listing(row: &Row, id: i64) -> Result<Stored, SqlError> {
    let Columns { owner, highest, standing } = columns(row)?;
    let version = standing.version;
    let listing = Listing::restore(standing).map_err(|damage| wrong(damage.as_str()))?;
    Ok(Stored { before: Before { id, version }, owner, highest, listing })
}

/// The columns of a listing, not yet held against the rules.
pub(super) struct Columns {
    /// The number of the owner.
    pub(super) owner: i64,
    /// The number of the highest bidder.
    pub(super) highest: Option<i64>,
    pub(super) standing: ListingStanding,
}

/// Reads the columns of a listing.
pub(super) fn columns(row: &Row) -> Result<Columns, SqlError> {
    let mut columns = Reader::at(row, 1);
    let name = columns.maybe_listing()?.ok_or_else(|| wrong("a listing without a name"))?;
    let owner_id = columns.integer()?;
    let owner = columns.member()?;
    let price = columns.amount()?;
    let starts_at = columns.instant()?;
    let terms = terms(&mut columns)?;
    let effective_ends_at = columns.instant()?;
    let extensions = columns.small()?;
    let bids = columns.small()?;
    let highest_id = columns.maybe_integer()?;
    let bidder = columns.maybe_member()?;
    let highest_price = columns.maybe_count()?.and_then(Amount::new);
    let highest_at = columns.maybe_instant()?;
    let highest = match (bidder, highest_price, highest_at) {
        (Some(bidder), Some(price), Some(at)) => Some(Bid { number: bids, bidder, price, at }),
        (None, None, None) => None,
        _ => return Err(wrong("half a highest bid")),
    };
    let phase = columns.integer()?;
    let phase_at = columns.maybe_instant()?;
    let buyer = columns.maybe_member()?;
    let phase = match (phase, phase_at, buyer) {
        (0, None, None) => Phase::Open,
        (1, Some(at), None) => Phase::Ended(at),
        (2, Some(at), Some(buyer)) => {
            Phase::Sold(Sale { buyer, price: highest.as_ref().map_or(price, |bid| bid.price), at })
        }
        (3, Some(at), None) => Phase::Unsold(at),
        _ => return Err(wrong("an invalid outcome")),
    };
    let version = columns.count()?;
    let last_at = columns.instant()?;
    debug_assert_eq!(columns.position(), 1 + LISTING_COLUMNS.len(), "all columns are read");
    let standing = ListingStanding {
        name,
        owner,
        price,
        starts_at,
        terms,
        effective_ends_at,
        extensions,
        bids,
        highest,
        phase,
        version,
        last_at,
    };
    Ok(Columns { owner: owner_id, highest: highest_id, standing })
}

fn terms(columns: &mut Reader<'_>) -> Result<Terms, SqlError> {
    let kind = columns.integer()?;
    let ends_at = columns.maybe_instant()?;
    let min_increment = columns.maybe_count()?.and_then(Amount::new);
    let (window_ms, by_ms) = (columns.maybe_count()?, columns.maybe_count()?);
    let max_count = columns.maybe_bid()?;
    let settle_within_ms = columns.maybe_count()?;
    let extend = match (window_ms, by_ms, max_count) {
        (Some(window_ms), Some(by_ms), Some(max_count)) => Some(Extend { window_ms, by_ms, max_count }),
        (None, None, None) => None,
        _ => return Err(wrong("half an extension")),
    };
    match (kind, ends_at) {
        (0, None) => Ok(Terms::FixedPrice),
        (1, Some(ends_at)) => Ok(Terms::Auction(AuctionTerms { ends_at, min_increment, extend, settle_within_ms })),
        _ => Err(wrong("invalid terms")),
    }
}

/// Reads a wallet and its number.
pub(super) fn wallet(row: &Row) -> Result<(i64, Wallet), SqlError> {
    let mut columns = Reader::at(row, 1);
    Ok((columns.integer()?, wallet_of(&mut columns)?))
}

/// The columns of the anchor of a member in the order in which [`anchor_of`] reads them.
pub(super) const ANCHOR_COLUMNS: &str = "a.number,a.total,a.held,a.at,a.charged,a.chain";
/// How many they are.
pub(super) const ANCHOR_WIDTH: usize = 6;

/// Reads the anchor of a member, whose columns are `NULL` if there is none.
pub(super) fn anchor_of(columns: &mut Reader<'_>) -> Result<Option<Arc<Anchor>>, SqlError> {
    let Some(number) = columns.maybe_count()? else { return Ok(None) };
    let (balance, at, charged) = (columns.balance()?, columns.instant()?, columns.integer()?);
    Ok(Some(Arc::new(Anchor { number, balance, at, charged, chain: columns.chain()? })))
}

/// The columns of what is left to chain again of a member, in the order in which [`renaming_of`] reads them.
pub(super) const RENAMING_COLUMNS: &str = "n.done,n.last,n.name,n.chain,n.renewed";

/// Reads what is left to chain again of a member; the columns are `NULL` if nothing is.
pub(super) fn renaming_of(columns: &mut Reader<'_>) -> Result<Option<Arc<Renaming>>, SqlError> {
    let Some(done) = columns.maybe_count()? else { return Ok(None) };
    let (last, before) = (columns.count()?, columns.member()?);
    Ok(Some(Arc::new(Renaming { before, last, done, old: columns.chain()?, renewed: columns.chain()? })))
}

/// Reads a wallet from its member's name on, without its anchor and its mark of another name, which no
/// rule needs to move points.
pub(super) fn wallet_of(columns: &mut Reader<'_>) -> Result<Wallet, SqlError> {
    let member = columns.member()?;
    let balance = columns.balance()?;
    let records = columns.count()?;
    let last_at = columns.instant()?;
    let chain = columns.chain()?;
    Ok(Wallet { member, balance, records, last_at, chain, anchor: None, renaming: None })
}

/// Reads a bid from number, bidder, price and instant.
pub(super) fn bid(columns: &mut Reader<'_>) -> Result<Bid, SqlError> {
    Ok(Bid { number: columns.small()?, bidder: columns.member()?, price: columns.amount()?, at: columns.instant()? })
}

/// Reads a record of a member.
pub(super) fn record(row: &Row, member: &MemberName) -> Result<Record, SqlError> {
    record_of(&mut Reader::at(row, 1), member, Reader::maybe_listing)
}

/// Reads a record from its number on; `listing` reads what it is about.
pub(super) fn record_of<'a>(
    columns: &mut Reader<'a>,
    member: &MemberName,
    listing: impl FnOnce(&mut Reader<'a>) -> Result<Option<ListingName>, SqlError>,
) -> Result<Record, SqlError> {
    let number = columns.count()?;
    let kind = u8::try_from(columns.integer()?).ok().and_then(Kind::from_number);
    let kind = kind.ok_or_else(|| wrong("a record of no kind"))?;
    let amount = columns.amount()?;
    let listing = listing(columns)?;
    let bid = columns.maybe_bid()?;
    let about = listing.map(|listing| Reference { listing, bid });
    let at = columns.instant()?;
    let balance = columns.balance()?;
    let chain = columns.chain()?;
    Ok(Record { member: member.clone(), number, kind, amount, about, at, balance, chain })
}
