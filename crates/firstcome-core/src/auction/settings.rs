//! Settings of a listing.

use crate::id::MemberName;
use crate::limits::{EXTENSION_MS_MAX, EXTENSIONS_MAX, SETTLE_MS_MAX};
use crate::points::Amount;
use crate::time::Timestamp;

/// How late bids put off the end of an auction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extend {
    /// A bid is late from so long before the end on.
    pub window_ms: u64,
    /// By so much an accepted late bid puts the end off.
    pub by_ms: u64,
    /// So often at most: the end is never put off by more than this times [`Self::by_ms`].
    pub max_count: u32,
}

/// How a thing is sold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terms {
    /// To the member that comes first, at the price.
    FixedPrice,
    /// To the member that bids most.
    Auction(AuctionTerms),
}

/// What only an auction has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuctionTerms {
    /// The last instant at which a bid counts.
    pub ends_at: Timestamp,
    /// By so much at least a bid exceeds the one before it; by 1 without it.
    pub min_increment: Option<Amount>,
    /// Without it the end stands.
    pub extend: Option<Extend>,
    /// The winner has so long after the end; then the points are released and no member has bought. For ever without it.
    pub settle_within_ms: Option<u64>,
}

/// What a seller decides about a listing. Valid once [`ListingSettings::check`] has said so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingSettings {
    /// Who sells, and is paid.
    pub owner: MemberName,
    /// The price; of an auction the least first bid.
    pub price: Amount,
    /// The first instant at which a bid counts, or the thing can be bought; that of the put without it.
    pub starts_at: Option<Timestamp>,
    /// How it is sold.
    pub terms: Terms,
}

impl ListingSettings {
    /// A thing at a fixed price, on sale from the put on.
    pub const fn fixed_price(owner: MemberName, price: Amount) -> Self {
        Self { owner, price, starts_at: None, terms: Terms::FixedPrice }
    }

    /// An auction that runs from the put on, with nothing but its end.
    pub const fn auction(owner: MemberName, price: Amount, ends_at: Timestamp) -> Self {
        let terms = AuctionTerms { ends_at, min_increment: None, extend: None, settle_within_ms: None };
        Self { owner, price, starts_at: None, terms: Terms::Auction(terms) }
    }

    /// What only an auction has, if it is one.
    pub const fn auction_terms(&self) -> Option<&AuctionTerms> {
        match &self.terms {
            Terms::Auction(terms) => Some(terms),
            Terms::FixedPrice => None,
        }
    }

    /// Names the first field that is out of range, and what it must be. What needs a clock is for the rules to say.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let Some(terms) = self.auction_terms() else { return Ok(()) };
        if self.starts_at.is_some_and(|starts_at| terms.ends_at < starts_at) {
            return Err(("ends_at", "ends_at must not be before starts_at".into()));
        }
        if let Some(extend) = terms.extend {
            within("extend.window_ms", extend.window_ms, EXTENSION_MS_MAX)?;
            within("extend.by_ms", extend.by_ms, EXTENSION_MS_MAX)?;
            within("extend.max_count", extend.max_count.into(), EXTENSIONS_MAX.into())?;
        }
        terms.settle_within_ms.map_or(Ok(()), |ms| within("settle_within_ms", ms, SETTLE_MS_MAX))
    }
}

fn within(field: &'static str, value: u64, most: u64) -> Result<(), (&'static str, String)> {
    if (1..=most).contains(&value) { Ok(()) } else { Err((field, format!("{field} must be 1 to {most}"))) }
}
