//! From rows back to what the rules know. What cannot be true is an error, never repaired.

use super::changes::Before;
use super::dialect::LISTING_COLUMNS;
use crate::SqlError;
use crate::dialect::RowReader;
use crate::reader::{Reader, wrong};
use firstcome_core::auction::{AuctionTerms, Bid, Extend, Listing, ListingStanding, Phase, Sale, Terms};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Amount, Kind, Record, Reference, Wallet};

/// A listing as it stands in its table.
pub(super) struct Stored {
    pub(super) before: Before,
    pub(super) owner: i64,
    pub(super) highest: Option<i64>,
    pub(super) listing: Listing,
}

/// Reads the columns of a listing; `id` is known to whoever asked.
pub(super) fn listing<R: RowReader>(row: &R, id: i64) -> Result<Stored, SqlError> {
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
pub(super) fn columns<R: RowReader>(row: &R) -> Result<Columns, SqlError> {
    let mut cells = Reader::at(row, 1);
    let name = cells.maybe_listing()?.ok_or_else(|| wrong("a listing without a name"))?;
    let owner_id = cells.integer()?;
    let owner = cells.member()?;
    let price = cells.amount()?;
    let starts_at = cells.instant()?;
    let terms = terms(&mut cells)?;
    let effective_ends_at = cells.instant()?;
    let extensions = cells.small()?;
    let bids = cells.small()?;
    let highest_id = cells.maybe_integer()?;
    let bidder = cells.maybe_member()?;
    let highest_price = cells.maybe_count()?.and_then(Amount::new);
    let highest_at = cells.maybe_instant()?;
    let highest = match (bidder, highest_price, highest_at) {
        (Some(bidder), Some(price), Some(at)) => Some(Bid { number: bids, bidder, price, at }),
        (None, None, None) => None,
        _ => return Err(wrong("half a highest bid")),
    };
    let phase = cells.integer()?;
    let phase_at = cells.maybe_instant()?;
    let buyer = cells.maybe_member()?;
    let phase = match (phase, phase_at, buyer) {
        (0, None, None) => Phase::Open,
        (1, Some(at), None) => Phase::Ended(at),
        (2, Some(at), Some(buyer)) => {
            Phase::Sold(Sale { buyer, price: highest.as_ref().map_or(price, |bid| bid.price), at })
        }
        (3, Some(at), None) => Phase::Unsold(at),
        _ => return Err(wrong("an outcome that is none")),
    };
    let version = cells.count()?;
    let last_at = cells.instant()?;
    debug_assert_eq!(cells.position(), 1 + LISTING_COLUMNS.len(), "all columns are read");
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

fn terms<R: RowReader>(cells: &mut Reader<'_, R>) -> Result<Terms, SqlError> {
    let kind = cells.integer()?;
    let ends_at = cells.maybe_instant()?;
    let min_increment = cells.maybe_count()?.and_then(Amount::new);
    let (window_ms, by_ms) = (cells.maybe_count()?, cells.maybe_count()?);
    let max_count = cells.maybe_bid()?;
    let settle_within_ms = cells.maybe_count()?;
    let extend = match (window_ms, by_ms, max_count) {
        (Some(window_ms), Some(by_ms), Some(max_count)) => Some(Extend { window_ms, by_ms, max_count }),
        (None, None, None) => None,
        _ => return Err(wrong("half an extension")),
    };
    match (kind, ends_at) {
        (0, None) => Ok(Terms::FixedPrice),
        (1, Some(ends_at)) => Ok(Terms::Auction(AuctionTerms { ends_at, min_increment, extend, settle_within_ms })),
        _ => Err(wrong("terms that are none")),
    }
}

/// Reads a wallet and its number.
pub(super) fn wallet<R: RowReader>(row: &R) -> Result<(i64, Wallet), SqlError> {
    let mut cells = Reader::at(row, 1);
    Ok((cells.integer()?, wallet_of(&mut cells)?))
}

/// Reads a wallet from its member's name on.
pub(super) fn wallet_of<R: RowReader>(cells: &mut Reader<'_, R>) -> Result<Wallet, SqlError> {
    let member = cells.member()?;
    let balance = cells.balance()?;
    let records = cells.count()?;
    let last_at = cells.instant()?;
    let chain = cells.chain()?;
    Ok(Wallet { member, balance, records, last_at, chain })
}

/// Reads a bid from number, bidder, price and instant.
pub(super) fn bid<R: RowReader>(cells: &mut Reader<'_, R>) -> Result<Bid, SqlError> {
    Ok(Bid { number: cells.small()?, bidder: cells.member()?, price: cells.amount()?, at: cells.instant()? })
}

/// Reads a record of a member.
pub(super) fn record<R: RowReader>(row: &R, member: &MemberName) -> Result<Record, SqlError> {
    record_of(&mut Reader::at(row, 1), member, Reader::maybe_listing)
}

/// Reads a record from its number on; `listing` reads what it is about.
pub(super) fn record_of<'a, R: RowReader>(
    cells: &mut Reader<'a, R>,
    member: &MemberName,
    listing: impl FnOnce(&mut Reader<'a, R>) -> Result<Option<ListingName>, SqlError>,
) -> Result<Record, SqlError> {
    let number = cells.count()?;
    let kind = u8::try_from(cells.integer()?).ok().and_then(Kind::from_number);
    let kind = kind.ok_or_else(|| wrong("a record of no kind"))?;
    let amount = cells.amount()?;
    let listing = listing(cells)?;
    let bid = cells.maybe_bid()?;
    let about = listing.map(|listing| Reference { listing, bid });
    let at = cells.instant()?;
    let balance = cells.balance()?;
    let chain = cells.chain()?;
    Ok(Record { member: member.clone(), number, kind, amount, about, at, balance, chain })
}
