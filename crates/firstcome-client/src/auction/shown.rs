//! Listings, members and points as the service shows them.

use crate::coupon::optional_instant;
use crate::instant;
use firstcome_store::ListingView;
use firstcome_store::core::auction::{AuctionTerms, Bid, Extend, ListingStanding, Phase, PlacedBid, Sale, Terms};
use firstcome_store::core::id::{ListingName, MemberName};
use firstcome_store::core::points::{Amount, Balance, Chain, Kind, Record, Reference};
use firstcome_store::core::time::Timestamp;
use serde::Deserialize;

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct PageShown<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<u64>,
    #[serde(default)]
    pub(super) removed_to: u64,
}

#[derive(Deserialize)]
pub(super) struct BidShown {
    bid: u32,
    bidder: String,
    price: u64,
    at: String,
}

impl BidShown {
    pub(super) fn bid(&self) -> Option<Bid> {
        let bidder = MemberName::restore(&self.bidder).ok()?;
        Some(Bid { number: self.bid, bidder, price: Amount::new(self.price)?, at: instant::parse(&self.at)? })
    }
}

#[derive(Deserialize)]
pub(super) struct PlacedBidShown {
    highest: BidShown,
    effective_ends_at: String,
    fence: u64,
}

impl PlacedBidShown {
    pub(super) fn placed(&self) -> Option<PlacedBid> {
        let effective_ends_at = instant::parse(&self.effective_ends_at)?;
        Some(PlacedBid { bid: self.highest.bid()?, effective_ends_at, fence: self.fence })
    }
}

#[derive(Deserialize)]
pub(super) struct SaleShown {
    buyer: String,
    price: u64,
    at: String,
}

impl SaleShown {
    pub(super) fn sale(&self) -> Option<Sale> {
        let buyer = MemberName::restore(&self.buyer).ok()?;
        Some(Sale { buyer, price: Amount::new(self.price)?, at: instant::parse(&self.at)? })
    }
}

#[derive(Deserialize)]
struct ExtendShown {
    window_ms: u64,
    by_ms: u64,
    max_count: u32,
}

#[derive(Deserialize)]
pub(super) struct ListingShown {
    owner: String,
    kind: String,
    price: u64,
    starts_at: String,
    ends_at: Option<String>,
    effective_ends_at: Option<String>,
    min_increment: Option<u64>,
    extend: Option<ExtendShown>,
    settle_within_ms: Option<u64>,
    extensions: Option<u32>,
    phase: String,
    closed_at: Option<String>,
    changed_at: String,
    bids: u32,
    highest: Option<BidShown>,
    purchase: Option<SaleShown>,
    version: u64,
    as_of: String,
}

impl ListingShown {
    pub(super) fn view(&self, name: &ListingName) -> Option<ListingView> {
        let is_auction = match self.kind.as_str() {
            "auction" => true,
            "fixed_price" => false,
            _ => return None,
        };
        let end = optional_instant(self.effective_ends_at.as_deref())?;
        let highest = match &self.highest {
            None => None,
            Some(highest) => Some(highest.bid()?),
        };
        let standing = ListingStanding {
            name: name.clone(),
            owner: MemberName::restore(&self.owner).ok()?,
            price: Amount::new(self.price)?,
            starts_at: instant::parse(&self.starts_at)?,
            terms: if is_auction { Terms::Auction(self.terms()?) } else { Terms::FixedPrice },
            effective_ends_at: if is_auction { end? } else { Timestamp::MAX },
            extensions: self.extensions.unwrap_or(0),
            bids: self.bids,
            highest,
            phase: self.phase()?,
            version: self.version,
            last_at: instant::parse(&self.changed_at)?,
        };
        Some(ListingView { standing, now: instant::parse(&self.as_of)? })
    }

    fn terms(&self) -> Option<AuctionTerms> {
        let min_increment = match self.min_increment {
            None => None,
            Some(points) => Some(Amount::new(points)?),
        };
        let extend = |shown: &ExtendShown| {
            let ExtendShown { window_ms, by_ms, max_count } = *shown;
            Extend { window_ms, by_ms, max_count }
        };
        Some(AuctionTerms {
            ends_at: instant::parse(self.ends_at.as_deref()?)?,
            min_increment,
            extend: self.extend.as_ref().map(extend),
            settle_within_ms: self.settle_within_ms,
        })
    }

    fn phase(&self) -> Option<Phase> {
        let closed_at = optional_instant(self.closed_at.as_deref())?;
        match self.phase.as_str() {
            "open" => Some(Phase::Open),
            "ended" => Some(Phase::Ended(closed_at?)),
            "unsold" => Some(Phase::Unsold(closed_at?)),
            "sold" => Some(Phase::Sold(self.purchase.as_ref()?.sale()?)),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct BalanceShown {
    total: u64,
    available: u64,
}

impl BalanceShown {
    pub(super) fn balance(&self) -> Option<Balance> {
        Balance::new(self.total, self.total.checked_sub(self.available)?)
    }
}

#[derive(Deserialize)]
pub(super) struct RecordShown {
    number: u64,
    kind: String,
    available_delta: i64,
    total: u64,
    available: u64,
    at: String,
    r#ref: Option<String>,
    hash: String,
}

impl RecordShown {
    pub(super) fn record(&self, member: &MemberName) -> Option<Record> {
        let about = match self.r#ref.as_deref().map(|text| (text, text.split_once('#'))) {
            None => None,
            Some((_, Some((listing, bid)))) => {
                Some(Reference { listing: ListingName::parse(listing).ok()?, bid: Some(bid.parse().ok()?) })
            }
            Some((listing, None)) => Some(Reference { listing: ListingName::parse(listing).ok()?, bid: None }),
        };
        Some(Record {
            member: member.clone(),
            number: self.number,
            kind: Kind::ALL.into_iter().find(|kind| kind.as_str() == self.kind)?,
            amount: Amount::new(self.available_delta.unsigned_abs())?,
            about,
            at: instant::parse(&self.at)?,
            balance: BalanceShown { total: self.total, available: self.available }.balance()?,
            chain: chain(&self.hash)?,
        })
    }
}

/// Reads 32 bytes in hexadecimal digits.
fn chain(text: &str) -> Option<Chain> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(Chain(bytes))
}
