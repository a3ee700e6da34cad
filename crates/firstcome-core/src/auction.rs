//! Sells one thing once: to the highest bidder in time, or to the first buyer at a fixed price. Members pay in points.
//!
//! A pure state machine. Its caller owns a [`Listing`] and the wallets of all members who take part. It applies commands one
//! at a time and passes in `now`; the order of application *is* the order of arrival.
//!
//! # Invariants
//! - As long as an auction is not settled, a hold of exactly its price backs the highest bid, and no other bid.
//! - Each hold ends once: released by a higher bid or after the time to settle, or captured by the sale.
//! - Bids rise, each by the increment at least, and their instants never fall. No bid counts outside
//!   `starts_at ≤ now ≤ effective_ends_at`.
//! - Only an accepted late bid extends the auction, at most `max_count` times. The highest bidder at the final end wins.
//! - A listing is closed once and sold once; the owner gets what the buyer pays, in the same step.
//! - A refusal changes nothing.

mod answers;
mod settings;
#[cfg(test)]
mod tests;

pub use answers::{Bid, Damage, ListingState, PlacedBid, Rejection, Sale};
pub use settings::{AuctionTerms, Extend, ListingSettings, Terms};

use crate::id::{ListingName, MemberName};
use crate::limits::{BALANCE_MAX, BIDS_MAX};
#[cfg(feature = "planted-bugs")]
use crate::planted::{self, Bug};
use crate::points::{Amount, Balance, Kind, Record, Reference, Wallet};
use crate::revision::Revision;
use crate::time::Timestamp;

/// The wallets of all members who may take part in a command: its sender, the owner, and the highest bidder.
pub trait Wallets {
    /// Returns a member's balance; zero for an unknown member.
    fn balance(&self, member: &MemberName) -> Balance;

    /// Returns the wallet of a member whose points are about to move; a new one for an unknown member.
    fn wallet(&mut self, member: &MemberName) -> &mut Wallet;
}

/// The phase of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not closed, though its time may be over.
    Open,
    /// Closed at this instant; the highest bidder may settle.
    Ended(Timestamp),
    /// Sold and paid for.
    Sold(Sale),
    /// Closed at this instant for good: no member bought it, and no points are held.
    Unsold(Timestamp),
}

/// The complete state of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingStanding {
    /// The name of the listing.
    pub name: ListingName,
    /// The member who sells, and is paid.
    pub owner: MemberName,
    /// The price; for an auction, the lowest first bid.
    pub price: Amount,
    /// The first instant at which a bid or a purchase counts.
    pub starts_at: Timestamp,
    /// How it is sold.
    pub terms: Terms,
    /// The last instant at which a bid counts, with extensions; [`Timestamp::MAX`] for a fixed price.
    pub effective_ends_at: Timestamp,
    /// How often late bids have extended the auction.
    pub extensions: u32,
    /// How many bids were accepted.
    pub bids: u32,
    /// The last accepted bid, which is the highest.
    pub highest: Option<Bid>,
    /// The phase of the listing.
    pub phase: Phase,
    /// The number of changes, from 1. The fence of every effect of a change.
    pub version: u64,
    /// The instant of the last change.
    pub last_at: Timestamp,
}

/// The effect of time on a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advance {
    /// Nothing happened.
    Nothing,
    /// The auction was closed, with a winner who may settle or without one.
    Closed,
    /// The winner did not settle, so the hold was released. The auction may have been closed in the same step.
    Defaulted,
}

/// One thing that is sold once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    standing: ListingStanding,
}

impl ListingStanding {
    /// Returns the terms of an auction; `None` for a fixed price.
    pub const fn auction_terms(&self) -> Option<&AuctionTerms> {
        match &self.terms {
            Terms::Auction(terms) => Some(terms),
            Terms::FixedPrice => None,
        }
    }

    /// Returns the settings in force. The start is always set.
    pub fn settings(&self) -> ListingSettings {
        let (owner, terms) = (self.owner.clone(), self.terms);
        ListingSettings { owner, price: self.price, starts_at: Some(self.starts_at), terms }
    }

    /// Returns the last instant at which the winner may settle, if there is one.
    pub fn settles_until(&self) -> Option<Timestamp> {
        let within_ms = self.auction_terms()?.settle_within_ms?;
        Some(self.effective_ends_at.plus_ms(within_ms))
    }

    /// Returns the state of the listing. It depends on the time, whether or not the listing has been closed.
    pub fn state(&self, now: Timestamp) -> ListingState {
        let now = now.max(self.last_at);
        match &self.phase {
            Phase::Sold(_) => ListingState::Sold,
            Phase::Unsold(_) => ListingState::Unsold,
            Phase::Open if now < self.starts_at => ListingState::Scheduled,
            Phase::Open if now <= self.effective_ends_at => ListingState::Running,
            _ if self.highest.is_none() || self.settles_until().is_some_and(|until| until < now) => {
                ListingState::Unsold
            }
            _ => ListingState::Ended,
        }
    }

    /// Returns the lowest price of the next bid.
    pub fn minimum(&self) -> u64 {
        let step = self.auction_terms().and_then(|terms| terms.min_increment).map_or(1, Amount::get);
        self.highest.as_ref().map_or(self.price.get(), |highest| highest.price.get() + step)
    }

    fn is_late(&self, now: Timestamp) -> Option<Extend> {
        let extend = self.auction_terms()?.extend?;
        let late = self.effective_ends_at <= now.plus_ms(extend.window_ms);
        (late && self.extensions < extend.max_count).then_some(extend)
    }

    fn has_sound_bids(&self) -> bool {
        let Some(bid) = &self.highest else { return self.bids == 0 };
        let counts = bid.number == self.bids && 0 < self.bids && u64::from(self.bids) < self.version;
        let in_time = self.starts_at <= bid.at && bid.at <= self.effective_ends_at.min(self.last_at);
        let may_bid = self.auction_terms().is_some() && bid.bidder != self.owner && self.price <= bid.price;
        counts && in_time && may_bid
    }

    fn has_sound_end(&self) -> bool {
        let Some(terms) = self.auction_terms() else {
            return self.effective_ends_at == Timestamp::MAX && self.extensions == 0;
        };
        let (by_ms, max_count) = terms.extend.map_or((0, 0), |extend| (extend.by_ms, extend.max_count));
        let last = terms.ends_at.plus_ms(by_ms.saturating_mul(self.extensions.into()));
        // Each extension belongs to one accepted bid.
        let extended = self.extensions <= max_count.min(self.bids);
        extended && self.starts_at <= terms.ends_at && (terms.ends_at..=last).contains(&self.effective_ends_at)
    }

    fn has_sound_outcome(&self) -> bool {
        // A listing at a fixed price never ends by time, so it is never `over`. No instant is after the last change.
        let over = |at: Timestamp| self.effective_ends_at < at && at <= self.last_at;
        let expired = |at: Timestamp| self.settles_until().is_some_and(|until| until < at);
        match (&self.phase, &self.highest) {
            (Phase::Open, _) => true,
            (Phase::Ended(at), highest) => highest.is_some() && over(*at) && !expired(*at),
            (Phase::Unsold(at), None) => over(*at),
            (Phase::Unsold(at), Some(_)) => over(*at) && expired(*at),
            (Phase::Sold(sale), Some(bid)) => {
                (&sale.buyer, sale.price) == (&bid.bidder, bid.price) && over(sale.at) && !expired(sale.at)
            }
            (Phase::Sold(sale), None) => {
                let fixed_price = self.terms == Terms::FixedPrice && sale.price == self.price;
                let in_time = self.starts_at <= sale.at && sale.at <= self.last_at;
                fixed_price && sale.buyer != self.owner && in_time
            }
        }
    }
}

impl Listing {
    /// Makes a new listing. The settings must have passed [`ListingSettings::check`]. Refused: `ends_before_start`.
    pub fn new(name: ListingName, settings: ListingSettings, now: Timestamp) -> Result<Self, Rejection> {
        let ListingSettings { owner, price, starts_at, terms } = settings;
        let starts_at = starts_at.unwrap_or(now);
        let effective_ends_at = match &terms {
            Terms::Auction(terms) => terms.ends_at,
            Terms::FixedPrice => Timestamp::MAX,
        };
        if effective_ends_at < starts_at {
            return Err(Rejection::EndsBeforeStart);
        }
        let (extensions, bids, highest) = (0, 0, None);
        let (phase, version, last_at) = (Phase::Open, 1, now);
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
        Ok(Self { standing })
    }

    /// Restores a stored listing. The error says what cannot be true of it.
    pub fn restore(standing: ListingStanding) -> Result<Self, Damage> {
        // No listing reaches a version above the limit, and a higher one could overflow.
        if !standing.has_sound_bids() || !(1..=BALANCE_MAX).contains(&standing.version) {
            return Err(Damage::Bids);
        }
        if !standing.has_sound_end() {
            return Err(Damage::End);
        }
        if standing.has_sound_outcome() { Ok(Self { standing }) } else { Err(Damage::Outcome) }
    }

    /// Returns the complete state of the listing.
    pub const fn standing(&self) -> &ListingStanding {
        &self.standing
    }

    /// Gives a member another name, wherever the listing has it: owner, highest bidder, buyer. The version stays, because
    /// nothing else changes. Returns false if the listing does not name the member.
    pub fn rename(&mut self, member: &MemberName, other: &MemberName) -> bool {
        let ListingStanding { owner, highest, phase, .. } = &mut self.standing;
        let buyer = if let Phase::Sold(sale) = phase { Some(&mut sale.buyer) } else { None };
        let names = [Some(owner), highest.as_mut().map(|bid| &mut bid.bidder), buyer];
        let mut is_named = false;
        for name in names.into_iter().flatten().filter(|name| *name == member) {
            *name = other.clone();
            is_named = true;
        }
        is_named
    }

    /// Replaces the settings. Before the start everything may change. While an auction runs, only its end may change, to a
    /// later one. Settings without a start keep the present one. Returns false if nothing changes.
    ///
    /// Refused: `settings_changed`, `ends_before_start`, `listing_ended`, `listing_running`.
    pub fn replace(
        &mut self,
        revision: impl Into<Revision<ListingSettings>>,
        now: Timestamp,
    ) -> Result<bool, Rejection> {
        let revision = revision.into();
        if revision.replaces.is_some() && !revision.may_replace(&self.standing.settings()) {
            return Err(Rejection::SettingsChanged);
        }
        let settings = revision.settings;
        let now = now.max(self.standing.last_at);
        let state = self.standing.state(now);
        if state == ListingState::Scheduled {
            let fresh = Self::new(self.standing.name.clone(), settings, now)?.standing;
            let version = self.standing.version;
            let differs = ListingStanding { version, last_at: self.standing.last_at, ..fresh.clone() } != self.standing;
            if differs {
                self.standing = ListingStanding { version: version + 1, ..fresh };
            }
            return Ok(differs);
        }
        let standing = &self.standing;
        let starts_at = settings.starts_at.unwrap_or(standing.starts_at);
        let same =
            (&settings.owner, settings.price, starts_at) == (&standing.owner, standing.price, standing.starts_at);
        if same && settings.terms == standing.terms {
            return Ok(false);
        }
        if state != ListingState::Running {
            return Err(Rejection::ListingEnded);
        }
        let later = match (settings.terms, standing.terms) {
            (Terms::Auction(new), Terms::Auction(old)) if same && old.ends_at < new.ends_at => {
                (AuctionTerms { ends_at: old.ends_at, ..new } == old).then_some(new)
            }
            _ => None,
        };
        let terms = later.ok_or(Rejection::ListingRunning)?;
        let effective_ends_at = standing.effective_ends_at.max(terms.ends_at);
        self.change(now, |standing| {
            standing.terms = Terms::Auction(terms);
            standing.effective_ends_at = effective_ends_at;
        });
        Ok(true)
    }

    /// Judges one bid and changes nothing. Calls `available` only if the result depends on it.
    ///
    /// Order of checks: own listing, not in progress, already highest bidder, too low, not enough points.
    pub fn judge_bid(
        &self,
        bidder: &MemberName,
        price: Amount,
        available: impl FnOnce() -> u64,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let standing = &self.standing;
        if *bidder == standing.owner {
            return Err(Rejection::OwnListing);
        }
        let takes_bids = standing.auction_terms().is_some() && standing.bids < BIDS_MAX;
        if !takes_bids || standing.state(now) != ListingState::Running {
            return Err(Rejection::NotInProgress);
        }
        if standing.highest.as_ref().is_some_and(|highest| highest.bidder == *bidder) {
            return Err(Rejection::AlreadyHighestBidder);
        }
        let minimum = standing.minimum();
        if price.get() < minimum {
            return Err(Rejection::BidTooLow(minimum));
        }
        let available = available();
        if available < price.get() { Err(Rejection::InsufficientPoints(available)) } else { Ok(()) }
    }

    /// Places a bid: holds the bidder's points and releases those of the previous highest bidder. Adds the records of both to
    /// `records`. Refused as [`Self::judge_bid`] says.
    pub fn bid(
        &mut self,
        bidder: &MemberName,
        price: Amount,
        wallets: &mut impl Wallets,
        now: Timestamp,
        records: &mut Vec<Record>,
    ) -> Result<PlacedBid, Rejection> {
        let now = now.max(self.standing.last_at);
        let judged = self.judge_bid(bidder, price, || wallets.balance(bidder).available(), now);
        #[cfg(feature = "planted-bugs")]
        if judged.is_err() && planted::is(Bug::ExtendedByRefused) {
            self.put_off(now);
        }
        judged?;
        let outbid = self.standing.highest.take();
        assert!(outbid.as_ref().is_none_or(|outbid| outbid.price < price), "a bid that does not rise");
        let bid = Bid { number: self.standing.bids + 1, bidder: bidder.clone(), price, at: now };
        move_points(wallets, bidder, Kind::Hold, price, self.about(Some(bid.number)), now, records);
        if let Some(outbid) = outbid {
            self.release(&outbid, wallets, now, records);
        }
        self.change(now, |standing| {
            standing.bids = bid.number;
            standing.highest = Some(bid.clone());
        });
        self.put_off(now);
        let effective_ends_at = self.standing.effective_ends_at;
        Ok(PlacedBid { bid, effective_ends_at, fence: self.standing.version })
    }

    /// Sells the listing to `buyer`: settles an auction with its winner, or sells at the fixed price. Adds the records of buyer
    /// and owner to `records`.
    ///
    /// Order of checks for an auction: not ended, not the winner, already sold, settlement expired. For a fixed price: own
    /// listing, not in progress (before its start), already sold, not enough points. Last in both: the owner's balance would be
    /// too large.
    pub fn purchase(
        &mut self,
        buyer: &MemberName,
        wallets: &mut impl Wallets,
        now: Timestamp,
        records: &mut Vec<Record>,
    ) -> Result<Sale, Rejection> {
        let now = now.max(self.standing.last_at);
        let bid = self.judge_purchase(buyer, || wallets.balance(buyer).available(), now)?;
        let price = bid.as_ref().map_or(self.standing.price, |bid| bid.price);
        let owner = self.standing.owner.clone();
        if wallets.balance(&owner).after(Kind::Sold, price).is_err() {
            return Err(Rejection::BalanceTooLarge);
        }
        if let Some(bid) = &bid {
            self.close(now);
            move_points(wallets, buyer, Kind::Capture, price, self.about(Some(bid.number)), now, records);
        }
        move_points(wallets, buyer, Kind::Purchase, price, self.about(None), now, records);
        move_points(wallets, &owner, Kind::Sold, price, self.about(None), now, records);
        let sale = Sale { buyer: buyer.clone(), price, at: now };
        self.change(now, |standing| standing.phase = Phase::Sold(sale.clone()));
        Ok(sale)
    }

    /// Returns the winning bid that the buyer pays for; `None` for a fixed price.
    fn judge_purchase(
        &self,
        buyer: &MemberName,
        available: impl FnOnce() -> u64,
        now: Timestamp,
    ) -> Result<Option<Bid>, Rejection> {
        let standing = &self.standing;
        let sold = |sale: &Sale| Err(Rejection::AlreadySold(sale.clone()));
        if standing.auction_terms().is_none() {
            if *buyer == standing.owner {
                return Err(Rejection::OwnListing);
            }
            if standing.state(now) == ListingState::Scheduled {
                return Err(Rejection::NotInProgress);
            }
            if let Phase::Sold(sale) = &standing.phase {
                return sold(sale);
            }
            let available = available();
            let enough = standing.price.get() <= available;
            return if enough { Ok(None) } else { Err(Rejection::InsufficientPoints(available)) };
        }
        if now <= standing.effective_ends_at {
            return Err(Rejection::AuctionNotEnded(standing.effective_ends_at));
        }
        let Some(bid) = standing.highest.as_ref().filter(|bid| bid.bidder == *buyer) else {
            return Err(Rejection::NotWinner);
        };
        if let Phase::Sold(sale) = &standing.phase {
            return sold(sale);
        }
        match standing.settles_until() {
            Some(until) if until < now => Err(Rejection::SettlementExpired(until)),
            _ => Ok(Some(bid.clone())),
        }
    }

    /// Returns when [`Self::advance`] is due; `None` if time changes nothing any more.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.standing.auction_terms()?;
        // The last instant of a period belongs to it. So a period that lasts to the end of time is never over.
        let after = |last: Timestamp| Timestamp::from_us(last.as_us() + 1);
        match self.standing.phase {
            Phase::Open => after(self.standing.effective_ends_at),
            Phase::Ended(_) => self.standing.settles_until().and_then(after),
            #[cfg(feature = "planted-bugs")]
            Phase::Unsold(_) if planted::is(Bug::ClosedTwice) => self.standing.settles_until().and_then(after),
            Phase::Sold(_) | Phase::Unsold(_) => None,
        }
    }

    /// Does what is due: closes the auction, and releases the hold of a winner who did not settle. Adds the record of that to
    /// `records`. A second call has no effect.
    pub fn advance(&mut self, wallets: &mut impl Wallets, now: Timestamp, records: &mut Vec<Record>) -> Advance {
        let now = now.max(self.standing.last_at);
        if self.due_at().is_none_or(|due_at| now < due_at) {
            return Advance::Nothing;
        }
        #[cfg(feature = "planted-bugs")]
        if let (Phase::Unsold(_), Some(bid)) = (&self.standing.phase, self.standing.highest.clone()) {
            if bid.price.get() <= wallets.balance(&bid.bidder).held() {
                self.release(&bid, wallets, now, records);
            }
            self.change(now, |_| ());
            return Advance::Defaulted;
        }
        self.close(now);
        let expired = self.standing.settles_until().is_some_and(|until| until < now);
        match (&self.standing.phase, &self.standing.highest) {
            (Phase::Ended(_), Some(bid)) if expired => {
                let bid = bid.clone();
                self.release(&bid, wallets, now, records);
                self.change(now, |standing| standing.phase = Phase::Unsold(now));
                Advance::Defaulted
            }
            _ => Advance::Closed,
        }
    }

    /// Releases the hold behind a bid whose bidder will not pay.
    fn release(&self, bid: &Bid, wallets: &mut impl Wallets, now: Timestamp, records: &mut Vec<Record>) {
        #[cfg(feature = "planted-bugs")]
        if planted::is(Bug::HoldNotReleased) {
            return;
        }
        move_points(wallets, &bid.bidder, Kind::Release, bid.price, self.about(Some(bid.number)), now, records);
        #[cfg(feature = "planted-bugs")]
        if planted::is(Bug::ReleasedTwice) && bid.price.get() <= wallets.balance(&bid.bidder).held() {
            move_points(wallets, &bid.bidder, Kind::Release, bid.price, self.about(Some(bid.number)), now, records);
        }
    }

    /// Closes an open auction whose time is over.
    fn close(&mut self, now: Timestamp) {
        if self.standing.phase == Phase::Open {
            assert!(self.standing.effective_ends_at < now, "closed before its end");
            let phase = if self.standing.highest.is_some() { Phase::Ended(now) } else { Phase::Unsold(now) };
            self.change(now, |standing| standing.phase = phase);
        }
    }

    /// Extends the auction if a bid at this instant is late.
    fn put_off(&mut self, now: Timestamp) {
        if let Some(extend) = self.standing.is_late(now) {
            self.standing.effective_ends_at = self.standing.effective_ends_at.plus_ms(extend.by_ms);
            self.standing.extensions += 1;
        }
    }

    fn change(&mut self, now: Timestamp, change: impl FnOnce(&mut ListingStanding)) {
        change(&mut self.standing);
        self.standing.version += 1;
        self.standing.last_at = now;
    }

    fn about(&self, bid: Option<u32>) -> Reference {
        Reference { listing: self.standing.name.clone(), bid }
    }
}

/// Moves points. The movement was judged before, so it cannot fail.
fn move_points(
    wallets: &mut impl Wallets,
    member: &MemberName,
    kind: Kind,
    amount: Amount,
    about: Reference,
    now: Timestamp,
    records: &mut Vec<Record>,
) {
    let moved = wallets.wallet(member).apply(kind, amount, Some(about), now);
    #[expect(clippy::panic, reason = "a movement that was judged and does not fit is a broken invariant")]
    match moved {
        Ok(record) => records.push(record),
        Err(error) => panic!("{} of {} points of {member}: {error:?}", kind.as_str(), amount.get()),
    }
}
