//! Listings, records and bids as JSON lines: all listings, then the records of all members, then the bids.

use super::json_lines::RequestLine;
use super::read_instant;
use anyhow::{Context, anyhow};
use firstcome::archive::{ArchivedBid, ArchivedListing, ArchivedRecord};
use firstcome::core::auction::{
    AuctionTerms, Bid, Extend, ListingSettings, ListingStanding, Phase, PlacedBid, Sale, Terms,
};
use firstcome::core::id::{ListingName, MemberName, RequestId};
use firstcome::core::points::{Amount, Anchor, Balance, Chain, Kind, Record, Reference};
use firstcome::core::time::Timestamp;
use firstcome_server::rfc3339;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListingLine {
    listing: String,
    owner: String,
    price: u64,
    starts_at: String,
    /// Absent for a fixed price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_increment: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extend: Option<ExtendLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settle_within_ms: Option<u64>,
    effective_ends_at: String,
    extensions: u32,
    bids: u32,
    phase: PhaseLine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestLine>,
    version: u64,
    last_at: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtendLine {
    window_ms: u64,
    by_ms: u64,
    max_count: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum PhaseLine {
    Open,
    Ended { at: String },
    Sold { buyer: String, price: u64, at: String },
    Unsold { at: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordLine {
    member: String,
    number: u64,
    movement: String,
    amount: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listing: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bid: Option<u32>,
    at: String,
    total: u64,
    held: u64,
    hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestLine>,
    /// Of the first record of a member: what takes the place of the records before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removed: Option<AnchorLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnchorLine {
    to: u64,
    total: u64,
    held: u64,
    at: String,
    charged: i64,
    hash: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BidLine {
    listing: String,
    bid: u32,
    bidder: String,
    price: u64,
    at: String,
    ends_at: String,
    fence: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestLine>,
}

fn instant(at: Timestamp) -> String {
    rfc3339::format(at)
}

fn amount(field: &str, points: u64) -> anyhow::Result<Amount> {
    Amount::new(points).ok_or_else(|| anyhow!("{field} must be 1 to 1000000000000"))
}

fn listing_name(text: &str) -> anyhow::Result<ListingName> {
    ListingName::parse(text).map_err(|error| anyhow!("listing {error}"))
}

fn member_name(field: &str, text: &str) -> anyhow::Result<MemberName> {
    MemberName::restore(text).map_err(|error| anyhow!("{field} {error}"))
}

fn request(line: Option<RequestLine>) -> anyhow::Result<Option<RequestId>> {
    line.map(|line| line.read().context("request")).transpose()
}

impl ListingLine {
    pub(super) fn new(archived: &ArchivedListing) -> Self {
        let standing = &archived.standing;
        let terms = standing.auction_terms();
        let extend = |extend: Extend| {
            let Extend { window_ms, by_ms, max_count } = extend;
            ExtendLine { window_ms, by_ms, max_count }
        };
        Self {
            listing: standing.name.to_string(),
            owner: standing.owner.to_string(),
            price: standing.price.get(),
            starts_at: instant(standing.starts_at),
            ends_at: terms.map(|terms| instant(terms.ends_at)),
            min_increment: terms.and_then(|terms| terms.min_increment).map(Amount::get),
            extend: terms.and_then(|terms| terms.extend).map(extend),
            settle_within_ms: terms.and_then(|terms| terms.settle_within_ms),
            effective_ends_at: instant(standing.effective_ends_at),
            extensions: standing.extensions,
            bids: standing.bids,
            phase: match &standing.phase {
                Phase::Open => PhaseLine::Open,
                Phase::Ended(at) => PhaseLine::Ended { at: instant(*at) },
                Phase::Sold(Sale { buyer, price, at }) => {
                    PhaseLine::Sold { buyer: buyer.to_string(), price: price.get(), at: instant(*at) }
                }
                Phase::Unsold(at) => PhaseLine::Unsold { at: instant(*at) },
            },
            request: archived.sale_request.map(RequestLine::new),
            version: standing.version,
            last_at: instant(standing.last_at),
        }
    }

    fn terms(&self) -> anyhow::Result<Terms> {
        let Some(ends_at) = &self.ends_at else { return Ok(Terms::FixedPrice) };
        let extend = |line: &ExtendLine| {
            let ExtendLine { window_ms, by_ms, max_count } = *line;
            Extend { window_ms, by_ms, max_count }
        };
        Ok(Terms::Auction(AuctionTerms {
            ends_at: read_instant(ends_at)?,
            min_increment: self.min_increment.map(|step| amount("min_increment", step)).transpose()?,
            extend: self.extend.as_ref().map(extend),
            settle_within_ms: self.settle_within_ms,
        }))
    }

    pub(super) fn read(self) -> anyhow::Result<ArchivedListing> {
        let terms = self.terms()?;
        let phase = match &self.phase {
            PhaseLine::Open => Phase::Open,
            PhaseLine::Ended { at } => Phase::Ended(read_instant(at)?),
            PhaseLine::Sold { buyer, price, at } => Phase::Sold(Sale {
                buyer: member_name("buyer", buyer)?,
                price: amount("price", *price)?,
                at: read_instant(at)?,
            }),
            PhaseLine::Unsold { at } => Phase::Unsold(read_instant(at)?),
        };
        let (owner, price) = (member_name("owner", &self.owner)?, amount("price", self.price)?);
        let starts_at = read_instant(&self.starts_at)?;
        let settings = ListingSettings { owner: owner.clone(), price, starts_at: Some(starts_at), terms };
        settings.check().map_err(|(_, says)| anyhow!(says))?;
        let standing = ListingStanding {
            name: listing_name(&self.listing)?,
            owner,
            price,
            starts_at,
            terms,
            effective_ends_at: read_instant(&self.effective_ends_at)?,
            extensions: self.extensions,
            bids: self.bids,
            highest: None,
            phase,
            version: self.version,
            last_at: read_instant(&self.last_at)?,
        };
        Ok(ArchivedListing { standing, sale_request: request(self.request)? })
    }
}

impl RecordLine {
    pub(super) fn new(archived: &ArchivedRecord) -> Self {
        let record = &archived.record;
        Self {
            member: record.member.to_string(),
            number: record.number,
            movement: record.kind.as_str().to_owned(),
            amount: record.amount.get(),
            listing: record.about.as_ref().map(|about| about.listing.to_string()),
            bid: record.about.as_ref().and_then(|about| about.bid),
            at: instant(record.at),
            total: record.balance.total(),
            held: record.balance.held(),
            hash: record.chain.to_string(),
            request: archived.request.map(RequestLine::new),
            removed: archived.anchor.as_deref().map(AnchorLine::new),
        }
    }

    pub(super) fn read(self) -> anyhow::Result<ArchivedRecord> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == self.movement);
        let about = match (&self.listing, self.bid) {
            (None, None) => None,
            (None, Some(_)) => return Err(anyhow!("a bid needs its listing")),
            (Some(listing), bid) => Some(Reference { listing: listing_name(listing)?, bid }),
        };
        let record = Record {
            member: member_name("member", &self.member)?,
            number: self.number,
            kind: kind.ok_or_else(|| anyhow!("{:?} is no movement", self.movement))?,
            amount: amount("amount", self.amount)?,
            about,
            at: read_instant(&self.at)?,
            balance: Balance::new(self.total, self.held).ok_or_else(|| anyhow!("total and held are no balance"))?,
            chain: Chain(super::secrecy::bytes("hash", &self.hash)?),
        };
        let anchor = self.removed.map(|line| line.read().context("removed")).transpose()?.map(Arc::new);
        Ok(ArchivedRecord { record, request: request(self.request)?, anchor })
    }
}

impl AnchorLine {
    fn new(anchor: &Anchor) -> Self {
        Self {
            to: anchor.number,
            total: anchor.balance.total(),
            held: anchor.balance.held(),
            at: instant(anchor.at),
            charged: anchor.charged,
            hash: anchor.chain.to_string(),
        }
    }

    fn read(self) -> anyhow::Result<Anchor> {
        Ok(Anchor {
            number: self.to,
            balance: Balance::new(self.total, self.held).ok_or_else(|| anyhow!("total and held are no balance"))?,
            at: read_instant(&self.at)?,
            charged: self.charged,
            chain: Chain(super::secrecy::bytes("hash", &self.hash)?),
        })
    }
}

impl BidLine {
    pub(super) fn new(archived: &ArchivedBid) -> Self {
        let PlacedBid { bid, effective_ends_at, fence } = &archived.placed;
        Self {
            listing: archived.listing.to_string(),
            bid: bid.number,
            bidder: bid.bidder.to_string(),
            price: bid.price.get(),
            at: instant(bid.at),
            ends_at: instant(*effective_ends_at),
            fence: *fence,
            request: archived.request.map(RequestLine::new),
        }
    }

    pub(super) fn read(self) -> anyhow::Result<ArchivedBid> {
        let bid = Bid {
            number: self.bid,
            bidder: member_name("bidder", &self.bidder)?,
            price: amount("price", self.price)?,
            at: read_instant(&self.at)?,
        };
        let placed = PlacedBid { bid, effective_ends_at: read_instant(&self.ends_at)?, fence: self.fence };
        Ok(ArchivedBid { listing: listing_name(&self.listing)?, placed, request: request(self.request)? })
    }
}
