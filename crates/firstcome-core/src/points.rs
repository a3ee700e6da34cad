//! Points of members: totals, holds, and the chained record of every movement.
//!
//! A pure state machine. The caller applies one movement at a time to a [`Wallet`]. [`crate::auction`] decides what is sold
//! for points, and when a hold begins and ends.
//!
//! # Invariants
//! - `0 ≤ held ≤ total ≤` [`BALANCE_MAX`]: no member owes points, and no sum overflows.
//! - A balance is the sum of its records, and each [`Record`] carries the balance that it led to.
//! - The records of a member are a chain: each carries the hash of itself and of all before it. So a record cannot be
//!   changed, left out or moved unless all later ones are written again. A purge may remove the first ones: it leaves an [`Anchor`].
//! - Over all members `Σ total = Σ charged − Σ refunded`: a sale only moves points from one member to another.

mod anchor;
mod renaming;
#[cfg(test)]
mod tests;

pub use anchor::Anchor;
pub use renaming::Renaming;

use crate::id::{ListingName, MemberName};
use crate::limits::{AMOUNT_MAX, BALANCE_MAX};
use crate::time::Timestamp;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Points that one step moves, or a price: 1 to [`AMOUNT_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Amount(u64);

impl Amount {
    /// Makes an amount from its number; `None` outside `1..=`[`AMOUNT_MAX`].
    pub const fn new(points: u64) -> Option<Self> {
        if points == 0 || AMOUNT_MAX < points { None } else { Some(Self(points)) }
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A member's points: the total, and the part that is held.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Balance {
    total: u64,
    held: u64,
}

impl Balance {
    /// Makes a balance from its parts; `None` unless `held ≤ total ≤` [`BALANCE_MAX`].
    pub const fn new(total: u64, held: u64) -> Option<Self> {
        if total < held || BALANCE_MAX < total { None } else { Some(Self { total, held }) }
    }

    /// Returns all points, including held ones.
    pub const fn total(self) -> u64 {
        self.total
    }

    /// Returns the points that back a bid.
    pub const fn held(self) -> u64 {
        self.held
    }

    /// Returns the points that can be spent: total − held.
    pub const fn available(self) -> u64 {
        self.total - self.held
    }

    /// Returns the balance after a movement, or why the movement is impossible.
    pub const fn after(self, kind: Kind, amount: Amount) -> Result<Self, NoBalance> {
        let (total, held) = (self.total, self.held);
        let spends = matches!(kind, Kind::Refund | Kind::Hold | Kind::Purchase);
        if spends && self.available() < amount.0 {
            return Err(NoBalance::Insufficient);
        }
        // Numbers below 2^54, checked above or below: no sum here can overflow.
        let after = match kind {
            Kind::Charge | Kind::Sold => Self::new(total + amount.0, held),
            Kind::Refund | Kind::Purchase => Self::new(total - amount.0, held),
            Kind::Hold => Self::new(total, held + amount.0),
            Kind::Release | Kind::Capture if held < amount.0 => return Err(NoBalance::NotHeld),
            Kind::Release | Kind::Capture => Self::new(total, held - amount.0),
        };
        match after {
            Some(after) => Ok(after),
            None => Err(NoBalance::TooLarge),
        }
    }
}

/// Why a movement is impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBalance {
    /// Fewer points are available.
    Insufficient,
    /// The total would be more than [`BALANCE_MAX`].
    TooLarge,
    /// Fewer points are held. A fault of the code that ends holds, never of a caller.
    NotHeld,
}

/// The kind of a movement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Points come in from outside.
    Charge,
    /// Points go out: they are paid back to the member.
    Refund,
    /// Points are held for a bid.
    Hold,
    /// A hold ends because another member bid more, or because the winner did not settle.
    Release,
    /// A hold ends as payment: the purchase follows in the same step.
    Capture,
    /// The member pays for a listing.
    Purchase,
    /// The member receives the price of a sold listing.
    Sold,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Charge, Self::Refund, Self::Hold, Self::Release, Self::Capture, Self::Purchase, Self::Sold];

    /// Returns the kind as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Charge => "CHARGE",
            Self::Refund => "REFUND",
            Self::Hold => "HOLD",
            Self::Release => "RELEASE",
            Self::Capture => "CAPTURE",
            Self::Purchase => "PURCHASE",
            Self::Sold => "SOLD",
        }
    }

    /// Returns the number under which stores keep and hash the kind. Never changes.
    pub const fn number(self) -> u8 {
        match self {
            Self::Charge => 1,
            Self::Refund => 2,
            Self::Hold => 3,
            Self::Release => 4,
            Self::Capture => 5,
            Self::Purchase => 6,
            Self::Sold => 7,
        }
    }

    /// Returns the kind of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Returns how a movement of this kind changes the total and the available points.
    pub const fn deltas(self, amount: Amount) -> (i64, i64) {
        // An amount has at most 40 bits.
        let points = amount.0 as i64;
        match self {
            Self::Charge | Self::Sold => (points, points),
            Self::Refund | Self::Purchase => (-points, -points),
            Self::Hold => (0, -points),
            Self::Release | Self::Capture => (0, points),
        }
    }
}

/// The listing that a movement is about, and for a hold the bid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The listing.
    pub listing: ListingName,
    /// The bid that the hold backs or backed; `None` for a purchase or a sale.
    pub bid: Option<u32>,
}

impl std::fmt::Display for Reference {
    /// Writes `lamp`, or `lamp#7` for its seventh bid: no name has a `#`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bid {
            Some(bid) => write!(f, "{}#{bid}", self.listing),
            None => write!(f, "{}", self.listing),
        }
    }
}

/// The hash of a record and of all earlier records of the same member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Chain(pub [u8; 32]);

impl std::fmt::Display for Chain {
    /// Writes the hash in hexadecimal digits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One movement, written once and never changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The member whose points move.
    pub member: MemberName,
    /// Its place among the records of that member: 1 for the first, without gaps.
    pub number: u64,
    /// The kind of the movement.
    pub kind: Kind,
    /// The points that move.
    pub amount: Amount,
    /// The listing and the bid, if it has any.
    pub about: Option<Reference>,
    /// When, by the store's clock; never before the previous record.
    pub at: Timestamp,
    /// The member's balance after it.
    pub balance: Balance,
    /// The chain up to and including this record.
    pub chain: Chain,
}

/// The points of one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wallet {
    /// The owner of the points.
    pub member: MemberName,
    /// The present balance.
    pub balance: Balance,
    /// The number of records.
    pub records: u64,
    /// The instant of the last record.
    pub last_at: Timestamp,
    /// The chain up to the last record.
    pub chain: Chain,
    /// What stands in the place of removed records, if some were removed.
    pub anchor: Option<Arc<Anchor>>,
    /// How far the records are chained again, if the member got another name and some are not.
    pub renaming: Option<Arc<Renaming>>,
}

impl Wallet {
    /// Makes the wallet of a member without records: it is empty.
    pub const fn empty(member: MemberName) -> Self {
        let Anchor { number, balance, at, chain, .. } = Anchor::START;
        Self { member, balance, records: number, last_at: at, chain, anchor: None, renaming: None }
    }

    /// Makes the wallet of a member as it was after the last removed record: [`Self::restore`] goes on with the next one.
    pub fn anchored(member: MemberName, anchor: Option<Arc<Anchor>>) -> Self {
        let Anchor { number, balance, at, chain, .. } = anchor.as_deref().copied().unwrap_or(Anchor::START);
        Self { member, balance, records: number, last_at: at, chain, anchor, renaming: None }
    }

    /// Returns this wallet as it was before its first record that is not removed: [`Self::restore`] goes on with that one.
    pub fn at_first(&self) -> Self {
        let anchor = self.anchor.as_ref().map(Arc::clone);
        Self { renaming: self.renaming.as_ref().map(Arc::clone), ..Self::anchored(self.member.clone(), anchor) }
    }

    /// Returns the anchor that the records begin with: [`Anchor::START`] if none was removed.
    pub fn begins_with(&self) -> Anchor {
        self.anchor.as_deref().copied().unwrap_or(Anchor::START)
    }

    /// Moves points and returns the record. On an error nothing changes.
    pub fn apply(
        &mut self,
        kind: Kind,
        amount: Amount,
        about: Option<Reference>,
        now: Timestamp,
    ) -> Result<Record, NoBalance> {
        let balance = self.balance.after(kind, amount)?;
        assert!(balance.held <= balance.total && balance.total <= BALANCE_MAX, "a balance out of its range");
        let (number, at) = (self.records + 1, now.max(self.last_at));
        let member = self.member.clone();
        let mut record = Record { member, number, kind, amount, about, at, balance, chain: self.chain };
        record.chain = record.chained();
        self.take(&record);
        Ok(record)
    }

    /// Restores a stored record. Call it for every record, in order, from the first one after [`Self::anchored`]. The error says what is wrong with it.
    pub fn restore(&mut self, record: &Record) -> Result<(), Damage> {
        if record.number != self.records + 1 {
            return Err(Damage::Gap);
        }
        if record.at < self.last_at {
            return Err(Damage::TimeFell);
        }
        if self.balance.after(record.kind, record.amount) != Ok(record.balance) {
            return Err(Damage::WrongBalance);
        }
        let (member, chain) = match &self.renaming {
            Some(renaming) => renaming.made_with(record.number, &self.member, self.chain),
            None => (&self.member, self.chain),
        };
        let follows = Record { member: member.clone(), chain, ..record.clone() };
        // Bids count from 1. The hash writes "no bid" as 0, so a stored bid 0 would have the same hash.
        let bid_zero = record.about.as_ref().is_some_and(|about| about.bid == Some(0));
        if record.member != self.member || bid_zero || follows.chained() != record.chain {
            return Err(Damage::BrokenChain);
        }
        self.take(record);
        Ok(())
    }

    fn take(&mut self, record: &Record) {
        self.balance = record.balance;
        self.records = record.number;
        self.last_at = record.at;
        self.chain = record.chain;
    }
}

impl Record {
    /// Returns this record under another name of its member. `before` is the chain of the renamed record before it. Renaming all
    /// records of a member in order gives a chain as sound as the first one; the values of the first one no longer hold.
    #[must_use]
    pub fn renamed(self, member: MemberName, before: Chain) -> Self {
        let mut record = Self { member, chain: before, ..self };
        record.chain = record.chained();
        record
    }

    /// Returns the chain with this record at its end. `chain` still holds that of the previous record.
    ///
    /// SHA-256 over the previous chain, then number, kind, amount, instant and bid as big-endian integers (0 for no bid), then
    /// member and listing, each after its length in one byte. Any reader can recompute it from the fields of a record.
    fn chained(&self) -> Chain {
        let mut hash = Sha256::new();
        let (listing, bid) =
            self.about.as_ref().map_or(("", 0), |about| (about.listing.as_str(), about.bid.unwrap_or(0)));
        hash.update(self.chain.0);
        hash.update(self.number.to_be_bytes());
        hash.update([self.kind.number()]);
        hash.update(self.amount.0.to_be_bytes());
        hash.update(self.at.as_us().to_be_bytes());
        hash.update(bid.to_be_bytes());
        for name in [self.member.as_str(), listing] {
            // A name has 128 bytes at most.
            hash.update([name.len() as u8]);
            hash.update(name.as_bytes());
        }
        Chain(hash.finalize().into())
    }
}

/// What is wrong with stored records: see [`Wallet::restore`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// A record is missing or occurs twice.
    Gap,
    /// A later record has an earlier instant.
    TimeFell,
    /// The stored balance is not the result of the movement.
    WrongBalance,
    /// This record, or one before it, was changed after it was written.
    BrokenChain,
}

impl Damage {
    /// Describes the damage in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "records are not exactly 1..count, or those after the anchor",
            Self::TimeFell => "a later record has an earlier instant",
            Self::WrongBalance => "a balance is not the sum of its records",
            Self::BrokenChain => "a record was changed after it was written",
        }
    }
}
