//! Erases a person: a pseudonym takes the place of the name, and what only the name was good for goes.
//!
//! A pure set of rules. Serials, instants, redemptions, numbers, balances and records stay as they are, so every count and
//! every sum stays true. The chain of a member's records covers the name, so it is made again under the pseudonym
//! ([`Record::renamed`](crate::points::Record::renamed)).
//!
//! # Invariants
//! - A pseudonym is drawn at random. Nothing leads from it to the name, neither a key nor a digest.
//! - No caller can give a pseudonym as a name: it begins with a character that no name begins with.
//! - A user who comes again after the erasure is a new user.

use crate::auction::{ListingStanding, ListingState};
use crate::id::{ListingName, MemberName, UserId};
use crate::points::Balance;
use crate::time::Timestamp;
use std::fmt;

/// What every pseudonym begins with.
pub(crate) const PREFIX: &str = "_erased:";
/// The hexadecimal digits behind [`PREFIX`].
const DIGITS: usize = 32;

/// A name in place of an erased one.
#[derive(Clone, PartialEq, Eq)]
pub struct Pseudonym(Box<str>);

impl fmt::Debug for Pseudonym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pseudonym({})", &self.0)
    }
}

impl Pseudonym {
    /// Makes a pseudonym from 128 random bits. Draw them anew for each erasure, and keep them nowhere else.
    pub fn new(random: u128) -> Self {
        Self(format!("{PREFIX}{random:032x}").into())
    }

    /// Returns the pseudonym as text, e.g. `_erased:0f6c…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the pseudonym as the name of a user.
    pub fn user(&self) -> UserId {
        UserId::of_pseudonym(self)
    }

    /// Returns the pseudonym as the name of a member.
    pub fn member(&self) -> MemberName {
        MemberName::of_pseudonym(self)
    }
}

/// Whether a text has the form of a pseudonym.
pub fn is_pseudonym(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix(PREFIX).is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// How many rows of each kind an erasure changed. All are 0 if the store held nothing of the person.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Erased {
    /// Claims, whose user is a pseudonym now.
    pub claims: u64,
    /// Tickets that named the user. Those that lived have left.
    pub tickets: u64,
    /// Members, whose name is a pseudonym now: 0 or 1.
    pub members: u64,
    /// Records of the member, whose chain was made again.
    pub records: u64,
    /// Listings that named the member as owner, highest bidder or buyer.
    pub listings: u64,
}

impl Erased {
    /// Returns whether the store held nothing of the person.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the rows of another step of the same erasure.
    pub const fn add(&mut self, other: Self) {
        self.claims += other.claims;
        self.tickets += other.tickets;
        self.members += other.members;
        self.records += other.records;
        self.listings += other.listings;
    }
}

/// Why a person is not erased. An expected answer: nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// This many points of the member are held for bids in auctions that are not settled.
    PointsHeld(u64),
    /// The member owns this auction, which is not over.
    OwnsAuction(ListingName),
}

impl Rejection {
    /// Returns the stable code in HTTP, CLI and metrics. Variants may be added; codes never change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::PointsHeld(_) => "points_held",
            Self::OwnsAuction(_) => "owns_auction",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PointsHeld(points) => {
                write!(
                    f,
                    "{points} points are held for bids: settle these auctions, or wait until they end, and erase again"
                )
            }
            Self::OwnsAuction(listing) => {
                write!(f, "the auction {listing} of this member is not over: wait until it is settled, and erase again")
            }
        }
    }
}

impl std::error::Error for Rejection {}

/// Judges whether a member can be erased, and changes nothing.
///
/// Order of checks: points held, owns an auction that is scheduled, runs, or waits for its winner. A listing at a fixed price
/// is no obstacle: its price goes to the pseudonym.
pub fn judge<'a>(
    member: &MemberName,
    balance: Balance,
    listings: impl Iterator<Item = &'a ListingStanding>,
    now: Timestamp,
) -> Result<(), Rejection> {
    if 0 < balance.held() {
        return Err(Rejection::PointsHeld(balance.held()));
    }
    let is_open = |listing: &&ListingStanding| {
        let state = listing.state(now);
        let is_over = matches!(state, ListingState::Sold | ListingState::Unsold);
        listing.owner == *member && listing.auction_terms().is_some() && !is_over
    };
    // The first by name, so that the same state always gives the same answer.
    let first = listings.filter(is_open).map(|listing| &listing.name).min();
    first.map_or(Ok(()), |name| Err(Rejection::OwnsAuction(name.clone())))
}

#[cfg(test)]
mod tests;
