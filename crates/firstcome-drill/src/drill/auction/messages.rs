//! Parses the service's answers about members and listings.

use super::record::{
    AcceptedBid, Balance, Bid, DrillReply, Kind, ListingObservation, Movement, Names, RequestKind, STRANGER, Sale,
    State,
};
use crate::drill::clock::RunClock;
use serde::Deserialize;
use std::borrow::Cow;

/// A bid, in its own answer, in a listing, or in a list.
#[derive(Deserialize)]
pub(crate) struct BidBody<'a> {
    bid: u32,
    #[serde(borrow)]
    bidder: Cow<'a, str>,
    price: u64,
    #[serde(borrow)]
    at: Cow<'a, str>,
}

/// A purchase, in its own answer, in a refusal, or in a listing.
#[derive(Deserialize)]
struct SaleBody<'a> {
    #[serde(borrow)]
    buyer: Cow<'a, str>,
    price: u64,
    #[serde(borrow)]
    at: Cow<'a, str>,
}

/// All fields that answers to orders can have.
#[derive(Deserialize, Default)]
pub(crate) struct Body<'a> {
    #[serde(default, borrow)]
    code: Option<&'a str>,
    #[serde(default)]
    pub(crate) retry_after_ms: Option<u64>,
    #[serde(default)]
    bid: Option<u32>,
    #[serde(default, borrow)]
    highest: Option<BidBody<'a>>,
    #[serde(default, borrow)]
    effective_ends_at: Option<&'a str>,
    #[serde(default)]
    fence: Option<u64>,
    #[serde(default, borrow)]
    buyer: Option<&'a str>,
    #[serde(default)]
    price: Option<u64>,
    #[serde(default, borrow)]
    at: Option<&'a str>,
    #[serde(default)]
    total: Option<u64>,
    #[serde(default)]
    available: Option<u64>,
    #[serde(default)]
    minimum: Option<u64>,
    #[serde(default, borrow)]
    purchase: Option<SaleBody<'a>>,
    #[serde(default, borrow)]
    settles_until: Option<&'a str>,
}

/// A listing.
#[derive(Deserialize)]
struct ListingBody<'a> {
    state: &'a str,
    bids: u32,
    #[serde(default, borrow)]
    highest: Option<BidBody<'a>>,
    #[serde(default, borrow)]
    effective_ends_at: Option<&'a str>,
    #[serde(default, borrow)]
    purchase: Option<SaleBody<'a>>,
    version: u64,
}

/// The instant of a shown listing.
#[derive(Deserialize)]
struct AsOfBody<'a> {
    as_of: &'a str,
}

/// A page of bids.
#[derive(Deserialize)]
pub(crate) struct BidPage<'a> {
    #[serde(borrow)]
    pub(crate) items: Vec<BidBody<'a>>,
    #[serde(default)]
    pub(crate) next: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct RecordBody<'a> {
    number: u64,
    kind: &'a str,
    total_delta: i64,
    available_delta: i64,
    at: &'a str,
    #[serde(borrow)]
    r#ref: Option<&'a str>,
    hash: &'a str,
}

/// A page of records.
#[derive(Deserialize)]
pub(crate) struct RecordPage<'a> {
    #[serde(borrow)]
    pub(crate) items: Vec<RecordBody<'a>>,
    #[serde(default)]
    pub(crate) next: Option<u64>,
}

#[derive(Deserialize)]
struct BalanceBody {
    total: i64,
    available: i64,
}

/// Parses answers, with the names of the drill and its clock.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) names: Names,
    pub(crate) clock: RunClock,
}

impl Reader {
    /// Returns the instant of a shown listing.
    pub(crate) fn as_of(&self, bytes: &[u8]) -> Option<i64> {
        self.clock.instant_of(serde_json::from_slice::<AsOfBody<'_>>(bytes).ok()?.as_of)
    }

    pub(crate) fn bid(&self, body: &BidBody<'_>) -> Option<Bid> {
        let at_us = self.clock.instant_of(&body.at)?;
        Some(Bid { number: body.bid, bidder: self.names.member_of(&body.bidder), price: body.price, at_us })
    }

    fn sale(&self, body: &SaleBody<'_>) -> Option<Sale> {
        let at_us = self.clock.instant_of(&body.at)?;
        Some(Sale { buyer: self.names.member_of(&body.buyer), price: body.price, at_us })
    }

    pub(crate) fn record(&self, body: &RecordBody<'_>) -> Option<Movement> {
        let (kind, _, _) = Kind::ALL.into_iter().find(|(_, name, _)| *name == body.kind)?;
        let (listing, bid) = match body.r#ref.map(|text| text.split_once('#').unwrap_or((text, "0"))) {
            Some((listing, bid)) => (self.names.listing_of(listing), bid.parse().ok()?),
            None => (STRANGER, 0),
        };
        Some(Movement {
            number: body.number,
            kind,
            total_delta: body.total_delta,
            available_delta: body.available_delta,
            at_us: self.clock.instant_of(body.at)?,
            listing,
            bid,
            hash: unhexed(body.hash)?,
        })
    }

    pub(crate) fn balance(bytes: &[u8]) -> Option<Balance> {
        let BalanceBody { total, available } = serde_json::from_slice(bytes).ok()?;
        Some(Balance { total, available })
    }

    /// Parses a listing.
    pub(crate) fn look(
        &self,
        listing: u32,
        sent_us: i64,
        received_us: i64,
        bytes: &[u8],
    ) -> Option<ListingObservation> {
        let body: ListingBody<'_> = serde_json::from_slice(bytes).ok()?;
        let state = match body.state {
            "scheduled" => State::Scheduled,
            "running" => State::Running,
            "ended" => State::Ended,
            "sold" => State::Sold,
            "unsold" => State::Unsold,
            _ => State::Unknown,
        };
        Some(ListingObservation {
            listing,
            sent_us,
            received_us,
            state,
            bids: body.bids,
            highest: body.highest.as_ref().map(|bid| self.bid(bid)).map_or(Some(None), |bid| bid.map(Some))?,
            ends_us: body.effective_ends_at.and_then(|text| self.clock.instant_of(text)),
            version: body.version,
            sale: body.purchase.as_ref().and_then(|sale| self.sale(sale)),
        })
    }

    /// Classifies an answer to this call. A code with a wrong status is unexpected, as is an answer without its
    /// required fields.
    pub(crate) fn told(&self, what: RequestKind, status: u16, body: &Body<'_>) -> DrillReply {
        let told = if 300 <= status { self.refused(what, status, body) } else { self.done(what, status, body) };
        told.unwrap_or(DrillReply::Unexpected)
    }

    fn done(&self, what: RequestKind, status: u16, body: &Body<'_>) -> Option<DrillReply> {
        match (what, status) {
            (RequestKind::Charge | RequestKind::Refund, 200) => {
                Some(DrillReply::Moved { total: body.total?, available: body.available? })
            }
            (RequestKind::Bid, 201) => {
                let bid = self.bid(body.highest.as_ref()?)?;
                let ends_us = self.clock.instant_of(body.effective_ends_at?)?;
                let placed = AcceptedBid { bid, ends_us, fence: body.fence? };
                (body.bid == Some(bid.number)).then_some(DrillReply::Placed(placed))
            }
            (RequestKind::Purchase, 201) => Some(DrillReply::Sold(Sale {
                buyer: self.names.member_of(body.buyer?),
                price: body.price?,
                at_us: self.clock.instant_of(body.at?)?,
            })),
            _ => None,
        }
    }

    fn refused(&self, what: RequestKind, status: u16, body: &Body<'_>) -> Option<DrillReply> {
        let instant = |text: Option<&str>| self.clock.instant_of(text?);
        let told = match (what, status, body.code?) {
            (_, 422, "idempotency_key_reused") => DrillReply::KeyReused,
            (_, 503, "overloaded" | "store_unavailable" | "outcome_unknown") => DrillReply::Undecided,
            (RequestKind::Bid | RequestKind::Purchase, 409, "own_listing") => DrillReply::OwnListing,
            (RequestKind::Bid | RequestKind::Purchase, 409, "not_in_progress") => DrillReply::NotInProgress,
            (RequestKind::Bid, 409, "already_highest_bidder") => DrillReply::AlreadyHighest,
            (RequestKind::Bid, 409, "bid_too_low") => DrillReply::TooLow(body.minimum?),
            (RequestKind::Bid | RequestKind::Purchase | RequestKind::Refund, 409, "insufficient_points") => {
                DrillReply::Insufficient(body.available?)
            }
            (RequestKind::Purchase, 409, "auction_not_ended") => DrillReply::NotEnded(instant(body.effective_ends_at)?),
            (RequestKind::Purchase, 409, "not_winner") => DrillReply::NotWinner,
            (RequestKind::Purchase, 409, "already_sold") => {
                DrillReply::AlreadySold(self.sale(body.purchase.as_ref()?)?)
            }
            (RequestKind::Purchase, 409, "settlement_expired") => {
                DrillReply::SettlementExpired(instant(body.settles_until)?)
            }
            _ => return None,
        };
        Some(told)
    }
}

/// Parses 32 bytes from 64 hexadecimal digits.
fn unhexed(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> Reader {
        Reader { names: Names { prefix: "d".into(), members: 9, listings: 9 }, clock: RunClock::start() }
    }

    #[test]
    fn answers_are_known_by_status_and_code_together() {
        let reader = reader();
        let at = "2026-01-01T00:00:00.5Z";
        let rows = [
            (RequestKind::Charge, 200, r#"{"member":"d-m1","total":5,"available":3}"#.to_owned(), true),
            (RequestKind::Charge, 201, r#"{"total":5,"available":3}"#.to_owned(), false),
            (RequestKind::Bid, 409, r#"{"code":"bid_too_low","minimum":7}"#.to_owned(), true),
            (RequestKind::Bid, 409, r#"{"code":"bid_too_low"}"#.to_owned(), false),
            (RequestKind::Bid, 410, r#"{"code":"bid_too_low","minimum":7}"#.to_owned(), false),
            (RequestKind::Purchase, 409, r#"{"code":"bid_too_low","minimum":7}"#.to_owned(), false),
            (RequestKind::Purchase, 201, format!(r#"{{"listing":"l","buyer":"d-m3","price":4,"at":"{at}"}}"#), true),
            (RequestKind::Refund, 404, r#"{"code":"unknown_listing"}"#.to_owned(), false),
        ];
        for (what, status, text, known) in rows {
            let body = serde_json::from_str(&text).unwrap();
            assert_eq!(reader.told(what, status, &body) != DrillReply::Unexpected, known, "{what:?} {status} {text}");
        }
        let placed = format!(
            r#"{{"bid":2,"highest":{{"bid":2,"bidder":"d-m3","price":4,"at":"{at}"}},"effective_ends_at":"{at}","fence":3}}"#
        );
        let told = reader.told(RequestKind::Bid, 201, &serde_json::from_str(&placed).unwrap());
        assert!(matches!(
            told,
            DrillReply::Placed(AcceptedBid { bid: Bid { number: 2, bidder: 3, price: 4, .. }, fence: 3, .. })
        ));
        let other = placed.replacen("\"bid\":2", "\"bid\":1", 1);
        assert_eq!(reader.told(RequestKind::Bid, 201, &serde_json::from_str(&other).unwrap()), DrillReply::Unexpected);
    }

    #[test]
    fn names_are_those_of_this_drill() {
        let names = reader().names;
        assert_eq!((names.member_of(&names.member(8)), names.listing_of(&names.listing(0))), (8, 0));
        for other in ["e-m1", "d-m9", "d-l1", "d-m", "dm1", ""] {
            assert_eq!(names.member_of(other), STRANGER, "{other}");
        }
    }
}
