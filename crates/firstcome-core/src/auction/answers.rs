//! Answers and refusals of auctions.

use crate::id::MemberName;
use crate::points::Amount;
use crate::time::Timestamp;
use std::fmt;

/// A bid that was accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bid {
    /// Its number among the accepted bids of its listing: 1 for the first, without gaps.
    pub number: u32,
    /// The member who bids.
    pub bidder: MemberName,
    /// The price that the member offers.
    pub price: Amount,
    /// When, by the store's clock; never before the previous bid.
    pub at: Timestamp,
}

/// A bid and its effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedBid {
    /// The bid. It was the highest one when it was accepted.
    pub bid: Bid,
    /// The end of the auction after the bid.
    pub effective_ends_at: Timestamp,
    /// The version of the listing after the bid. It grows strictly, so a system that acts on this bid can refuse it once it has
    /// acted on a later one.
    pub fence: u64,
}

/// A sale, which is the end of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sale {
    /// The member who bought.
    pub buyer: MemberName,
    /// The price paid.
    pub price: Amount,
    /// When, by the store's clock.
    pub at: Timestamp,
}

/// The state of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListingState {
    /// It starts later.
    Scheduled,
    /// It takes bids, or can be bought.
    Running,
    /// The highest bidder has won, and has not settled.
    Ended,
    /// It is sold and paid for.
    Sold,
    /// No member bid, or the winner did not settle in time.
    Unsold,
}

impl ListingState {
    /// Returns the state as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Sold => "sold",
            Self::Unsold => "unsold",
        }
    }
}

/// Why a command was refused. An expected answer: not retried, not logged as an error.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// There is no such listing.
    UnknownListing,
    /// The idempotency key belongs to another request.
    KeyReused,
    /// The owner of the listing can neither bid nor buy.
    OwnListing,
    /// The listing takes no bids, or cannot be bought: not yet, not any more, or never.
    NotInProgress,
    /// The bidder has the highest bid already.
    AlreadyHighestBidder,
    /// The bid is below this lowest price. Above the largest amount if no member can bid more.
    BidTooLow(u64),
    /// The member has only this many points available.
    InsufficientPoints(u64),
    /// The auction goes on until this instant, inclusive.
    AuctionNotEnded(Timestamp),
    /// Another member won, or none did.
    NotWinner,
    /// The listing is already sold.
    AlreadySold(Sale),
    /// The winner could settle until this instant, inclusive.
    SettlementExpired(Timestamp),
    /// The settings have changed since they were read.
    SettingsChanged,
    /// These settings cannot change while the listing runs.
    ListingRunning,
    /// The listing is over: nothing changes any more.
    ListingEnded,
    /// The auction would end before it starts.
    EndsBeforeStart,
    /// A member would have more points than fit.
    BalanceTooLarge,
}

impl Rejection {
    /// Returns the stable code in HTTP, CLI and metrics. Variants may be added; codes never change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownListing => "unknown_listing",
            Self::KeyReused => "idempotency_key_reused",
            Self::OwnListing => "own_listing",
            Self::NotInProgress => "not_in_progress",
            Self::AlreadyHighestBidder => "already_highest_bidder",
            Self::BidTooLow(_) => "bid_too_low",
            Self::InsufficientPoints(_) => "insufficient_points",
            Self::AuctionNotEnded(_) => "auction_not_ended",
            Self::NotWinner => "not_winner",
            Self::AlreadySold(_) => "already_sold",
            Self::SettlementExpired(_) => "settlement_expired",
            Self::SettingsChanged => "settings_changed",
            Self::ListingRunning => "listing_running",
            Self::ListingEnded => "listing_ended",
            Self::EndsBeforeStart => "ends_before_start",
            Self::BalanceTooLarge => "balance_too_large",
        }
    }
}

/// For people: what the rule says. Programs match on the variants, or on [`Rejection::code`].
impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownListing => f.write_str("no listing has this name"),
            Self::KeyReused => f.write_str("the idempotency key came with another request before"),
            Self::OwnListing => f.write_str("the listing belongs to this member"),
            Self::NotInProgress => f.write_str("the auction does not run"),
            Self::AlreadyHighestBidder => f.write_str("this member has the highest bid already"),
            Self::BidTooLow(minimum) => write!(f, "the bid is too low: bid {minimum} at least"),
            Self::InsufficientPoints(available) => write!(f, "the member can spend {available} points only"),
            Self::AuctionNotEnded(_) => f.write_str("the auction goes on"),
            Self::NotWinner => f.write_str("another member has won, or no member has"),
            Self::AlreadySold(_) => f.write_str("the listing is sold"),
            Self::SettlementExpired(_) => f.write_str("the winner did not settle in time"),
            Self::SettingsChanged => f.write_str("the settings have changed since they were read"),
            Self::ListingRunning => f.write_str("the settings are fixed: the auction runs or has bids"),
            Self::ListingEnded => f.write_str("the listing has ended"),
            Self::EndsBeforeStart => f.write_str("the auction would end before it starts"),
            Self::BalanceTooLarge => f.write_str("a member would have more points than a balance can hold"),
        }
    }
}

impl std::error::Error for Rejection {}

/// What is wrong with a stored listing: see [`super::Listing::restore`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// Bids are missing, or the highest bid is not an acceptable one.
    Bids,
    /// The end is before that of the settings, or later than extensions by accepted bids allow.
    End,
    /// Sold or closed too early or too late, without a winner, to another member, or at another price.
    Outcome,
}

impl Damage {
    /// Describes the damage in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bids => "bids and the highest bid disagree",
            Self::End => "the end is not one that extensions lead to",
            Self::Outcome => "the outcome is not that of the highest bid",
        }
    }
}
