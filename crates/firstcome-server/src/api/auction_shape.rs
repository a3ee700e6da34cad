//! The request and response bodies of members and listings. `/openapi.json` shows the same names and units.

use super::body;
use super::shape::{read_instant, without_nulls};
use crate::error::{Code, Problem as Refusal};
use crate::rfc3339::format as instant;
use firstcome::ListingView;
use firstcome::core::auction::{
    AuctionTerms, Bid as StoredBid, Extend as ExtendTerms, ListingSettings, ListingState, Phase,
    PlacedBid as StoredPlacedBid, Sale, Terms,
};
use firstcome::core::id::{ListingName, MemberName};
use firstcome::core::limits::AMOUNT_MAX;
use firstcome::core::points::{Amount, Balance as StoredBalance, Record as StoredRecord};
use firstcome::core::time::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use utoipa::ToSchema;

/// An amount of a body. Parsed here, so that the error for any other value says what is expected.
struct Points(Amount);

struct PointsVisitor;

impl Visitor<'_> for PointsVisitor {
    type Value = Points;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {AMOUNT_MAX}")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Points, E> {
        Amount::new(number).map(Points).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

impl<'de> Deserialize<'de> for Points {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(PointsVisitor)
    }
}

/// An amount of points to charge or refund
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct AmountBody {
    /// How many points
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000_000_000_u64, example = 500)]
    amount: Points,
}

impl AmountBody {
    pub(crate) const fn amount(&self) -> Amount {
        self.amount.0
    }
}

/// A member's balance
#[derive(Serialize, ToSchema)]
pub(crate) struct Balance<'a> {
    member: &'a str,
    /// All points, including those that back a bid
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    total: u64,
    /// Points that can be spent
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    available: u64,
}

impl<'a> Balance<'a> {
    pub(crate) fn new(member: &'a MemberName, balance: StoredBalance) -> Self {
        Self { member: member.as_str(), total: balance.total(), available: balance.available() }
    }
}

/// One movement of a member's points
#[derive(Serialize, ToSchema)]
pub(crate) struct Record {
    /// Its place among the records of the member: 1 for the first
    number: u64,
    /// CHARGE, REFUND, HOLD, RELEASE, CAPTURE, PURCHASE or SOLD
    #[schema(example = "HOLD")]
    kind: &'static str,
    /// The change of the total
    total_delta: i64,
    /// The change of the points that can be spent
    available_delta: i64,
    /// All points of the member after it
    total: u64,
    /// The points that can be spent after it
    available: u64,
    #[schema(format = DateTime)]
    at: String,
    /// The listing, or `listing#bid`, that it is about; null for a charge or a refund
    #[schema(example = "lamp#7")]
    r#ref: Option<String>,
    /// SHA-256 of this record and of all before it of the same member
    hash: String,
}

impl Record {
    pub(crate) fn new(record: &StoredRecord) -> Self {
        let (total_delta, available_delta) = record.kind.deltas(record.amount);
        Self {
            number: record.number,
            kind: record.kind.as_str(),
            total_delta,
            available_delta,
            total: record.balance.total(),
            available: record.balance.available(),
            at: instant(record.at),
            r#ref: record.about.as_ref().map(ToString::to_string),
            hash: record.chain.to_string(),
        }
    }
}

/// A page of a member's records
#[derive(Serialize, ToSchema)]
pub(crate) struct RecordPage {
    pub(crate) items: Vec<Record>,
    /// Ask again with `after` set to this; absent at the end
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
    /// A purge removed the records up to this number; absent if it removed none
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) removed_to: Option<u64>,
}

/// How late bids put off the end
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    /// A bid is late within this time before the end, in milliseconds
    #[schema(minimum = 1, maximum = 86_400_000, example = 60_000)]
    window_ms: u64,
    /// How far an accepted late bid puts the end off, in milliseconds
    #[schema(minimum = 1, maximum = 86_400_000, example = 60_000)]
    by_ms: u64,
    /// The most extensions
    #[schema(minimum = 1, maximum = 1_000, example = 10)]
    max_count: u32,
}

/// Accepts only an object: serde would otherwise take a list of the fields in their order.
struct ExtendVisitor;

impl<'de> Visitor<'de> for ExtendVisitor {
    type Value = Option<Extend>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with window_ms, by_ms and max_count")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Extend::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

fn read_extend<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Extend>, D::Error> {
    deserializer.deserialize_any(ExtendVisitor)
}

/// Settings of a listing
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct ListingBody<'a> {
    /// The seller, who is paid
    #[serde(borrow)]
    #[schema(value_type = String, example = "eve")]
    owner: Cow<'a, str>,
    /// fixed_price or auction
    #[serde(borrow)]
    #[schema(value_type = String, example = "auction")]
    kind: Cow<'a, str>,
    /// The price; for an auction the least first bid
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000_000_000_u64, example = 100)]
    price: Points,
    /// The first instant at which a bid counts, or the listing can be bought; now without it
    #[schema(format = DateTime)]
    starts_at: Option<String>,
    /// The last instant at which a bid counts; required for an auction
    #[schema(format = DateTime)]
    ends_at: Option<String>,
    /// The least amount by which a bid exceeds the one before it; 1 without it
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_u64)]
    min_increment: Option<Points>,
    /// Without it no bid puts the end off
    #[serde(default, deserialize_with = "read_extend")]
    extend: Option<Extend>,
    /// How long the winner may settle after the end; forever without it
    #[schema(minimum = 1, maximum = 31_622_400_000_u64)]
    settle_within_ms: Option<u64>,
    /// What happens to the points of a winner who does not settle in time; release is the only choice
    #[serde(borrow)]
    #[schema(value_type = Option<String>, example = "release")]
    on_default: Option<Cow<'a, str>>,
}

fn wrong(field: &str, detail: &str) -> Refusal {
    Refusal::field(Code::InvalidField, field, format!("{field} {detail}"))
}

impl ListingBody<'_> {
    pub(crate) fn settings(&self) -> Result<ListingSettings, Refusal> {
        let owner = body::member("owner", &self.owner)?;
        let starts_at = read_instant("starts_at", self.starts_at.as_deref())?;
        let terms = match &*self.kind {
            "fixed_price" => self.fixed_price()?,
            "auction" => Terms::Auction(self.auction(starts_at)?),
            _ => return Err(wrong("kind", "must be fixed_price or auction")),
        };
        let settings = ListingSettings { owner, price: self.price.0, starts_at, terms };
        settings.check().map_err(|(field, says)| Refusal::field(Code::InvalidField, field, says))?;
        Ok(settings)
    }

    fn fixed_price(&self) -> Result<Terms, Refusal> {
        let of_auctions = [
            ("ends_at", self.ends_at.is_some()),
            ("min_increment", self.min_increment.is_some()),
            ("extend", self.extend.is_some()),
            ("settle_within_ms", self.settle_within_ms.is_some()),
            ("on_default", self.on_default.is_some()),
        ];
        match of_auctions.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => Err(wrong(field, "must be left out for a fixed price")),
            None => Ok(Terms::FixedPrice),
        }
    }

    fn auction(&self, starts_at: Option<Timestamp>) -> Result<AuctionTerms, Refusal> {
        let ends_at = read_instant("ends_at", self.ends_at.as_deref())?;
        let ends_at = ends_at.ok_or_else(|| wrong("ends_at", "must be given for an auction"))?;
        if starts_at.is_some_and(|starts_at| ends_at < starts_at) {
            return Err(ends_before_start());
        }
        match self.on_default.as_deref() {
            None => {}
            Some("release") if self.settle_within_ms.is_some() => {}
            Some("release") => return Err(wrong("on_default", "must come with settle_within_ms")),
            Some(_) => return Err(wrong("on_default", "must be release")),
        }
        let extend = self.extend.as_ref().map(|extend| {
            let Extend { window_ms, by_ms, max_count } = *extend;
            ExtendTerms { window_ms, by_ms, max_count }
        });
        let min_increment = self.min_increment.as_ref().map(|step| step.0);
        Ok(AuctionTerms { ends_at, min_increment, extend, settle_within_ms: self.settle_within_ms })
    }
}

/// Returns the refusal of an end that is before the start, or before now.
pub(crate) fn ends_before_start() -> Refusal {
    Refusal::new(Code::EndsBeforeStart).with("field", "ends_at")
}

/// A bid that was accepted
#[derive(Serialize, ToSchema)]
pub(crate) struct Bid<'a> {
    /// Its place among the accepted bids of the listing: 1 for the first
    bid: u32,
    bidder: &'a str,
    price: u64,
    #[schema(format = DateTime)]
    at: String,
}

impl<'a> Bid<'a> {
    pub(crate) fn new(bid: &'a StoredBid) -> Self {
        Self { bid: bid.number, bidder: bid.bidder.as_str(), price: bid.price.get(), at: instant(bid.at) }
    }
}

/// A page of accepted bids
#[derive(Serialize, ToSchema)]
pub(crate) struct BidPage<'a> {
    pub(crate) items: Vec<Bid<'a>>,
    /// Ask again with `after` set to this; absent at the end
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
}

/// A listing
#[derive(Serialize, ToSchema)]
pub(crate) struct Listing<'a> {
    listing: &'a str,
    owner: &'a str,
    /// fixed_price or auction
    #[schema(example = "auction")]
    kind: &'static str,
    price: u64,
    /// scheduled, running, ended, sold or unsold
    #[schema(example = "running")]
    state: &'static str,
    #[schema(format = DateTime)]
    starts_at: String,
    /// The end as it was set
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    ends_at: Option<String>,
    /// The end as late bids have put it off: the last instant at which a bid counts
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    effective_ends_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_increment: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extend: Option<Extend>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settle_within_ms: Option<u64>,
    /// The last instant at which the winner may settle
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    settles_until: Option<String>,
    /// What happens to the points of a winner who does not settle in time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "release")]
    on_default: Option<&'static str>,
    /// How often late bids have put the end off
    #[serde(skip_serializing_if = "Option::is_none")]
    extensions: Option<u32>,
    /// open, ended, sold or unsold: what is recorded, while `state` follows the time
    #[schema(example = "open")]
    phase: &'static str,
    /// When the auction was closed; absent while it is open and once it is sold
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    closed_at: Option<String>,
    /// The instant of the last change
    #[schema(format = DateTime)]
    changed_at: String,
    /// How many bids were accepted
    bids: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    highest: Option<Bid<'a>>,
    /// The least price of the next bid, as long as one can be accepted
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<u64>,
    /// Buyer, price and instant of the sale; shown to a service key alone
    #[serde(skip_serializing_if = "Option::is_none")]
    purchase: Option<Purchase<'a>>,
    /// The body of a PUT with these settings; shown to a service key alone
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ListingBody>)]
    pub(crate) settings: Option<Value>,
    /// Counts the changes, from 1: never the same twice
    version: u64,
    /// The instant of this answer
    #[schema(format = DateTime)]
    as_of: String,
}

/// Returns the settings of a listing as the body of a PUT.
pub(super) fn listing_settings(settings: &ListingSettings) -> Value {
    let terms = settings.auction_terms();
    let extend = |ExtendTerms { window_ms, by_ms, max_count }| json!({"window_ms": window_ms, "by_ms": by_ms, "max_count": max_count});
    without_nulls(json!({
        "owner": settings.owner.as_str(),
        "kind": if terms.is_some() { "auction" } else { "fixed_price" },
        "price": settings.price.get(),
        "starts_at": settings.starts_at.map(instant),
        "ends_at": terms.map(|terms| instant(terms.ends_at)),
        "min_increment": terms.and_then(|terms| terms.min_increment).map(Amount::get),
        "extend": terms.and_then(|terms| terms.extend).map(extend),
        "settle_within_ms": terms.and_then(|terms| terms.settle_within_ms),
    }))
}

impl<'a> Listing<'a> {
    pub(crate) fn new(view: &'a ListingView, shows_buyer: bool) -> Self {
        let (standing, state) = (&view.standing, view.standing.state(view.now));
        let terms = standing.auction_terms();
        let takes_bids = terms.is_some() && [ListingState::Scheduled, ListingState::Running].contains(&state);
        let extend = |extend: ExtendTerms| {
            let ExtendTerms { window_ms, by_ms, max_count } = extend;
            Extend { window_ms, by_ms, max_count }
        };
        let phase = match &standing.phase {
            Phase::Open => ("open", None),
            Phase::Ended(at) => ("ended", Some(*at)),
            Phase::Sold(_) => ("sold", None),
            Phase::Unsold(at) => ("unsold", Some(*at)),
        };
        let purchase = match &standing.phase {
            Phase::Sold(sale) if shows_buyer => Some(Purchase::new(&standing.name, sale)),
            _ => None,
        };
        Self {
            listing: standing.name.as_str(),
            owner: standing.owner.as_str(),
            kind: if terms.is_some() { "auction" } else { "fixed_price" },
            price: standing.price.get(),
            state: state.as_str(),
            starts_at: instant(standing.starts_at),
            ends_at: terms.map(|terms| instant(terms.ends_at)),
            effective_ends_at: terms.map(|_| instant(standing.effective_ends_at)),
            min_increment: terms.and_then(|terms| terms.min_increment).map(Amount::get),
            extend: terms.and_then(|terms| terms.extend).map(extend),
            settle_within_ms: terms.and_then(|terms| terms.settle_within_ms),
            settles_until: standing.settles_until().map(instant),
            on_default: standing.settles_until().map(|_| "release"),
            extensions: terms.map(|_| standing.extensions),
            phase: phase.0,
            closed_at: phase.1.map(instant),
            changed_at: instant(standing.last_at),
            bids: standing.bids,
            highest: standing.highest.as_ref().map(Bid::new),
            minimum: takes_bids.then(|| standing.minimum()),
            purchase,
            settings: None,
            version: standing.version,
            as_of: instant(view.now),
        }
    }
}

/// A bid
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct BidBody<'a> {
    /// The bidder
    #[serde(borrow)]
    #[schema(value_type = String, example = "ann")]
    bidder: Cow<'a, str>,
    /// The price that is offered
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000_000_000_u64, example = 150)]
    price: Points,
}

impl BidBody<'_> {
    pub(crate) fn bid(&self) -> Result<(MemberName, Amount), Refusal> {
        Ok((body::member("bidder", &self.bidder)?, self.price.0))
    }
}

/// An accepted bid, with its effect
#[derive(Serialize, ToSchema)]
pub(crate) struct PlacedBid<'a> {
    listing: &'a str,
    /// Its place among the accepted bids: 1 for the first
    bid: u32,
    /// This bid, which was the highest when it was accepted
    highest: Bid<'a>,
    /// The end of the auction after this bid
    #[schema(format = DateTime)]
    effective_ends_at: String,
    /// Grows with every change of the listing: let everything that follows from this bid refuse a smaller one than it has seen
    fence: u64,
}

impl<'a> PlacedBid<'a> {
    pub(crate) fn new(listing: &'a ListingName, placed: &'a StoredPlacedBid) -> Self {
        Self {
            listing: listing.as_str(),
            bid: placed.bid.number,
            highest: Bid::new(&placed.bid),
            effective_ends_at: instant(placed.effective_ends_at),
            fence: placed.fence,
        }
    }
}

/// A request to buy, or to settle
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct PurchaseBody<'a> {
    /// The buyer; for an auction its winner
    #[serde(borrow)]
    #[schema(value_type = String, example = "ann")]
    buyer: Cow<'a, str>,
}

impl PurchaseBody<'_> {
    pub(crate) fn buyer(&self) -> Result<MemberName, Refusal> {
        body::member("buyer", &self.buyer)
    }
}

/// A sold listing
#[derive(Serialize, ToSchema)]
pub(crate) struct Purchase<'a> {
    listing: &'a str,
    buyer: &'a str,
    price: u64,
    #[schema(format = DateTime)]
    at: String,
}

impl<'a> Purchase<'a> {
    pub(crate) fn new(listing: &'a ListingName, sale: &'a Sale) -> Self {
        Self { listing: listing.as_str(), buyer: sale.buyer.as_str(), price: sale.price.get(), at: instant(sale.at) }
    }
}
