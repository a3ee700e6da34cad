//! Points of members: totals, holds, and the chained record of every movement.
//!
//! A pure state machine. A member that owns a [`Wallet`] applies one movement at a time; what is sold for points, and when a
//! hold begins and ends, is for [`crate::auction`] to say.
//!
//! # Invariants
//! - `0 ≤ held ≤ total ≤` [`BALANCE_MAX`]: nothing is ever owed, and nothing wraps.
//! - A balance is the sum of its records, and each [`Record`] carries the balance that it led to.
//! - The records of a member are a chain: each carries the hash of itself and of all before it, so that none can be
//!   changed, left out or moved without all later ones being made anew.
//! - Over all members `Σ total = Σ charged − Σ refunded`: a sale only moves points from one to another.

#[cfg(test)]
mod tests;

use crate::id::{ListingName, MemberName};
use crate::limits::{AMOUNT_MAX, BALANCE_MAX};
use crate::time::Timestamp;
use sha2::{Digest, Sha256};

/// Points that one step moves, or a price: 1 to [`AMOUNT_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Amount(u64);

impl Amount {
    /// An amount from its number; `None` outside `1..=`[`AMOUNT_MAX`].
    pub const fn new(points: u64) -> Option<Self> {
        if points == 0 || AMOUNT_MAX < points { None } else { Some(Self(points)) }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What a member has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Balance {
    total: u64,
    held: u64,
}

impl Balance {
    /// A balance from its parts; `None` unless `held ≤ total ≤` [`BALANCE_MAX`].
    pub const fn new(total: u64, held: u64) -> Option<Self> {
        if total < held || BALANCE_MAX < total { None } else { Some(Self { total, held }) }
    }

    /// All points, those held included.
    pub const fn total(self) -> u64 {
        self.total
    }

    /// Points that back a bid.
    pub const fn held(self) -> u64 {
        self.held
    }

    /// Points that can be spent: total − held.
    pub const fn available(self) -> u64 {
        self.total - self.held
    }

    /// The balance after a movement, or why there is none.
    pub const fn after(self, kind: Kind, amount: Amount) -> Result<Self, NoBalance> {
        let (total, held) = (self.total, self.held);
        let spends = matches!(kind, Kind::Refund | Kind::Hold | Kind::Purchase);
        if spends && self.available() < amount.0 {
            return Err(NoBalance::Insufficient);
        }
        // Checked above or below, and of numbers below 2^54: nothing here can wrap.
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

/// Why a movement leads to no balance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBalance {
    /// Less is available.
    Insufficient,
    /// It would be more than [`BALANCE_MAX`].
    TooLarge,
    /// Less is held: a mistake of the member that ends a hold, never of a caller.
    NotHeld,
}

/// What kind of movement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Points come in from outside.
    Charge,
    /// Points go out, paid back to the person.
    Refund,
    /// Points are held for a bid.
    Hold,
    /// A hold ends, since a member bid more or the winner did not settle.
    Release,
    /// A hold ends as payment: the purchase follows in the same step.
    Capture,
    /// Points are paid for a thing.
    Purchase,
    /// Points are got for a thing.
    Sold,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Charge, Self::Refund, Self::Hold, Self::Release, Self::Capture, Self::Purchase, Self::Sold];

    /// The kind as the HTTP API spells it.
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

    /// The number under which it is stored and hashed. Never changes.
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

    /// The kind of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// By how much a movement of this kind changes the total, and what is available.
    pub const fn deltas(self, amount: Amount) -> (i64, i64) {
        // An amount has 40 bits.
        let points = amount.0 as i64;
        match self {
            Self::Charge | Self::Sold => (points, points),
            Self::Refund | Self::Purchase => (-points, -points),
            Self::Hold => (0, -points),
            Self::Release | Self::Capture => (0, points),
        }
    }
}

/// What a movement is about: a listing, and for a hold which bid of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// What is sold.
    pub listing: ListingName,
    /// The bid that is, or was, backed; none of a purchase or a sale.
    pub bid: Option<u32>,
}

impl std::fmt::Display for Reference {
    /// `lamp` or, of its seventh bid, `lamp#7`: no name has a `#`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bid {
            Some(bid) => write!(f, "{}#{bid}", self.listing),
            None => write!(f, "{}", self.listing),
        }
    }
}

/// The hash of a record and of all before it of the same member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Chain(pub [u8; 32]);

impl std::fmt::Display for Chain {
    /// In hexadecimal digits, as it is shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One movement, written once and never changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Whose points.
    pub member: MemberName,
    /// Its place among the records of that member: 1 for the first, without gaps.
    pub number: u64,
    /// What kind.
    pub kind: Kind,
    /// How many points.
    pub amount: Amount,
    /// About what.
    pub about: Option<Reference>,
    /// When, by the store's clock; never before the record in front of it.
    pub at: Timestamp,
    /// What the member has after it.
    pub balance: Balance,
    /// The chain up to it.
    pub chain: Chain,
}

/// The points of one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wallet {
    /// Whose.
    pub member: MemberName,
    /// What there is.
    pub balance: Balance,
    /// How many records there are.
    pub records: u64,
    /// When the last one was made.
    pub last_at: Timestamp,
    /// The chain up to it.
    pub chain: Chain,
}

impl Wallet {
    /// The wallet of a member of whom nothing is known: nothing in it.
    pub const fn empty(member: MemberName) -> Self {
        let chain = Chain([0; 32]);
        Self { member, balance: Balance { total: 0, held: 0 }, records: 0, last_at: Timestamp::MIN, chain }
    }

    /// Moves points, or says why not and changes nothing.
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

    /// Takes back a stored record after all before it, in order, or says what is wrong with it.
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
        let follows = Record { chain: self.chain, ..record.clone() };
        // Bids count from 1: what is hashed as "no bid" is written as none.
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
    /// The chain with this record at its end, where `chain` is still that of the one before it.
    ///
    /// SHA-256 over the chain before, then number, kind, amount, instant and bid as big-endian integers (0 for no bid), then
    /// member and listing, each after its length in one byte. Anybody can compute it again from what is shown of a record.
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

/// What is wrong with records that were stored: see [`Wallet::restore`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// A record is missing or stands twice.
    Gap,
    /// A later record has an earlier instant.
    TimeFell,
    /// The balance beside it is not what the movement leads to.
    WrongBalance,
    /// It, or one before it, is not the one that was written.
    BrokenChain,
}

impl Damage {
    /// The finding in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "records are not exactly 1..count",
            Self::TimeFell => "a later record has an earlier instant",
            Self::WrongBalance => "a balance is not the sum of its records",
            Self::BrokenChain => "a record was changed after it was written",
        }
    }
}
