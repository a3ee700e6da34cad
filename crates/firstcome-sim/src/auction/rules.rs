//! The rules of a listing, written independently of the core: what a bid, a purchase or new
//! settings lead to from a given standing at a given instant. An oracle must not be what it judges.

use firstcome_core::auction::{Bid, ListingSettings, ListingStanding, Phase, Rejection, Sale, Terms};
use firstcome_core::id::MemberName;
use firstcome_core::points::Amount;
use firstcome_core::time::Timestamp;

/// What matters of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingRules {
    /// Who sells.
    pub owner: MemberName,
    /// The least first bid, or the price.
    pub price: Amount,
    /// The first instant.
    pub starts_at: Timestamp,
    /// How it is sold.
    pub terms: Terms,
    /// The last instant, as late bids have put it off.
    pub end: Timestamp,
    /// How often they have.
    pub extensions: u32,
    /// How many bids there are.
    pub bids: u32,
    /// The last of them.
    pub highest: Option<Bid>,
    /// The sale, if there was one.
    pub sale: Option<Sale>,
}

impl ListingRules {
    /// What matters of a row.
    pub fn of(standing: &ListingStanding) -> Self {
        Self {
            owner: standing.owner.clone(),
            price: standing.price,
            starts_at: standing.starts_at,
            terms: standing.terms,
            end: standing.effective_ends_at,
            extensions: standing.extensions,
            bids: standing.bids,
            highest: standing.highest.clone(),
            sale: if let Phase::Sold(sale) = &standing.phase { Some(sale.clone()) } else { None },
        }
    }

    /// The listing that settings make.
    pub fn new(settings: &ListingSettings, now: Timestamp) -> Result<Self, Rejection> {
        let starts_at = settings.starts_at.unwrap_or(now);
        let end = if let Terms::Auction(terms) = settings.terms { terms.ends_at } else { Timestamp::MAX };
        if end < starts_at {
            return Err(Rejection::EndsBeforeStart);
        }
        let ListingSettings { owner, price, terms, .. } = settings.clone();
        Ok(Self { owner, price, starts_at, terms, end, extensions: 0, bids: 0, highest: None, sale: None })
    }

    /// Whether it stands so except for the sale, which no row but the one of its commit shows.
    pub fn is_but_for_sale(&self, other: &Self) -> bool {
        Self { sale: None, ..self.clone() } == Self { sale: None, ..other.clone() }
    }

    fn is_auction(&self) -> bool {
        self.terms != Terms::FixedPrice
    }

    /// The last instant to settle.
    pub fn settles_until(&self) -> Option<Timestamp> {
        let Terms::Auction(terms) = self.terms else { return None };
        terms.settle_within_ms.map(|ms| self.end.plus_ms(ms))
    }

    /// Whether bids count, or it can be bought.
    pub fn is_running(&self, now: Timestamp) -> bool {
        self.sale.is_none() && self.starts_at <= now && now <= self.end
    }

    /// The least price of the next bid.
    pub fn minimum(&self) -> u64 {
        match (&self.highest, self.terms) {
            (None, _) => self.price.get(),
            (Some(bid), Terms::Auction(terms)) => bid.price.get() + terms.min_increment.map_or(1, Amount::get),
            (Some(_), Terms::FixedPrice) => u64::MAX,
        }
    }

    /// Why a bid is refused, as far as the bidder's points do not matter.
    pub fn refuses_bid(&self, bidder: &MemberName, price: Amount, now: Timestamp) -> Option<Rejection> {
        if self.owner == *bidder {
            Some(Rejection::OwnListing)
        } else if !self.is_auction() || !self.is_running(now) {
            Some(Rejection::NotInProgress)
        } else if self.highest.as_ref().is_some_and(|highest| highest.bidder == *bidder) {
            Some(Rejection::AlreadyHighestBidder)
        } else if price.get() < self.minimum() {
            Some(Rejection::BidTooLow(self.minimum()))
        } else {
            None
        }
    }

    /// What a buyer must have that is not held yet: of an auction the winner's hold is the payment.
    pub fn price_to_have(&self) -> Option<Amount> {
        (!self.is_auction()).then_some(self.price)
    }

    /// Why a purchase is refused, as far as points do not matter.
    pub fn refuses_purchase(&self, buyer: &MemberName, now: Timestamp) -> Option<Rejection> {
        let sold = self.sale.clone().map(Rejection::AlreadySold);
        if !self.is_auction() {
            return if self.owner == *buyer {
                Some(Rejection::OwnListing)
            } else if sold.is_none() && now < self.starts_at {
                Some(Rejection::NotInProgress)
            } else {
                sold
            };
        }
        if now <= self.end {
            Some(Rejection::AuctionNotEnded(self.end))
        } else if self.highest.as_ref().is_none_or(|highest| highest.bidder != *buyer) {
            Some(Rejection::NotWinner)
        } else {
            sold.or_else(|| self.settles_until().filter(|until| *until < now).map(Rejection::SettlementExpired))
        }
    }

    /// What an accepted bid leads to, its end and its late bids included, or why it should have been refused.
    pub fn bid(&self, bid: &Bid) -> Result<Self, String> {
        if let Some(rejection) = self.refuses_bid(&bid.bidder, bid.price, bid.at) {
            return Err(format!("bid {} was accepted, and is {}", bid.number, rejection.code()));
        }
        if bid.number != self.bids + 1 {
            return Err(format!("bid {} came after bid {}", bid.number, self.bids));
        }
        let mut after = Self { bids: bid.number, highest: Some(bid.clone()), ..self.clone() };
        if let Terms::Auction(terms) = self.terms
            && let Some(extend) = terms.extend
        {
            let left_us = self.end.as_us() - bid.at.as_us();
            let is_late = left_us <= extend.window_ms.cast_signed() * 1_000;
            if is_late && self.extensions < extend.max_count {
                after.end = self.end.plus_ms(extend.by_ms);
                after.extensions += 1;
            }
        }
        Ok(after)
    }

    /// What new settings lead to; the same if they change nothing.
    pub fn put(&self, settings: &ListingSettings, now: Timestamp) -> Result<Self, Rejection> {
        if self.sale.is_none() && now < self.starts_at {
            return Self::new(settings, now);
        }
        let starts_at = settings.starts_at.unwrap_or(self.starts_at);
        let settings = ListingSettings { starts_at: Some(starts_at), ..settings.clone() };
        if settings == self.settings() {
            return Ok(self.clone());
        }
        if !self.is_running(now) {
            return Err(Rejection::ListingEnded);
        }
        // With the end of the other one they must be the same, and their own end must be later.
        let (mut end_alone, Terms::Auction(new)) = (self.settings(), settings.terms) else {
            return Err(Rejection::ListingRunning);
        };
        match &mut end_alone.terms {
            Terms::Auction(old) if old.ends_at < new.ends_at => old.ends_at = new.ends_at,
            _ => return Err(Rejection::ListingRunning),
        }
        if end_alone != settings {
            return Err(Rejection::ListingRunning);
        }
        Ok(Self { terms: settings.terms, end: self.end.max(new.ends_at), ..self.clone() })
    }

    /// The settings that it has, its start included.
    pub fn settings(&self) -> ListingSettings {
        let Self { owner, price, starts_at, terms, .. } = self.clone();
        ListingSettings { owner, price, starts_at: Some(starts_at), terms }
    }

    /// The instants of a span at which what it answers can change, both ends among them.
    pub fn instants(&self, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
        let beside = |at: Timestamp, by_us: i64| Timestamp::clamped_us(at.as_us() + by_us);
        let mut instants = vec![from, to, beside(self.starts_at, -1), self.starts_at, self.end, beside(self.end, 1)];
        instants.extend(self.settles_until().into_iter().flat_map(|until| [until, beside(until, 1)]));
        instants.retain(|at| (from..=to).contains(at));
        instants
    }
}
