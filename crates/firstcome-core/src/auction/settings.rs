//! Settings of a listing.

use crate::id::MemberName;
use crate::limits::{EXTENSION_MS_MAX, EXTENSIONS_MAX, SETTLE_MS_MAX};
use crate::points::Amount;
use crate::time::Timestamp;

/// How late bids extend an auction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extend {
    /// How long before the end a bid counts as late.
    pub window_ms: u64,
    /// By how much an accepted late bid extends the auction.
    pub by_ms: u64,
    /// How many extensions there are at most: the end moves by no more than this times [`Self::by_ms`].
    pub max_count: u32,
}

/// How a thing is sold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terms {
    /// To the first buyer, at the price.
    FixedPrice,
    /// To the highest bidder.
    Auction(AuctionTerms),
}

/// The terms of an auction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuctionTerms {
    /// The last instant at which a bid counts.
    pub ends_at: Timestamp,
    /// By how much a bid must exceed the one before it; 1 without it.
    pub min_increment: Option<Amount>,
    /// How late bids extend the auction; without it the end is fixed.
    pub extend: Option<Extend>,
    /// How long the winner may take to settle after the end. Then the hold is released and the listing is unsold. Without it
    /// there is no limit.
    pub settle_within_ms: Option<u64>,
}

/// The settings of a listing. Valid once [`ListingSettings::check`] has accepted them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingSettings {
    /// The member who sells, and is paid.
    pub owner: MemberName,
    /// The price; for an auction, the lowest first bid.
    pub price: Amount,
    /// The first instant at which a bid or a purchase counts. Without it, the instant of the put.
    pub starts_at: Option<Timestamp>,
    /// How it is sold.
    pub terms: Terms,
}

impl ListingSettings {
    /// Makes settings for a fixed price, on sale from the put on.
    pub const fn fixed_price(owner: MemberName, price: Amount) -> Self {
        Self { owner, price, starts_at: None, terms: Terms::FixedPrice }
    }

    /// Makes settings for an auction that runs from the put on, with an end and no other terms.
    pub const fn auction(owner: MemberName, price: Amount, ends_at: Timestamp) -> Self {
        let terms = AuctionTerms { ends_at, min_increment: None, extend: None, settle_within_ms: None };
        Self { owner, price, starts_at: None, terms: Terms::Auction(terms) }
    }

    /// Returns the terms of an auction; `None` for a fixed price.
    pub const fn auction_terms(&self) -> Option<&AuctionTerms> {
        match &self.terms {
            Terms::Auction(terms) => Some(terms),
            Terms::FixedPrice => None,
        }
    }

    /// Checks the settings. The error names the first field that is out of range, and its range. Checks that need a clock
    /// come later.
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
