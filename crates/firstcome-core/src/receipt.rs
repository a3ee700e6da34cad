//! Heads and statements: what a store publishes every second, so that visitors can prove later where they stood.
//!
//! A [`Head`] says how far a room or a coupon was at an instant, and names the head before it by its SHA-256. So heads are a
//! chain: a client that keeps one head holds the store to every head before it. A [`Statement`] says which number a visitor
//! has, and names the head that covers it. Both are short texts, so that any program can compute their digests.
//!
//! # Invariants
//! - A chain has no gap: sequences count from 1, and each head names the digest of the one before it. A store may remove its first
//!   heads, and says up to which one.
//! - Nothing in a chain falls: no instant, no first number, no count. A restored number never appears above a later one.
//! - Numbers are given in their order. So a number above the count of one head and not above that of the next was given between
//!   the two, and no later joiner gets a number that a published head covers.
//!
//! # Not promised
//! That every number went to a person: an operator can join, too. What the chain shows is that it was done before, and not after.

mod text;

use crate::id::{CouponName, RoomName, UserId};
use crate::time::Timestamp;
use sha2::{Digest as _, Sha256};
use std::fmt;
pub use text::{Lines, TextError, hexadecimal};

/// No chain comes so far: a head each second for longer than the universe is old. A text with a higher sequence is no head.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// Two heads of a room are at least so far apart. A store publishes them every second; its timer may be early.
pub const HEAD_MS_MIN: u64 = 900;

/// The SHA-256 of the text of a head, or of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest that the first head of a chain names.
    pub const NONE: Self = Self([0; 32]);

    /// Makes a digest of its bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Computes the digest of a text.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a chain is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Object {
    /// A waiting room.
    Room(RoomName),
    /// A coupon.
    Coupon(CouponName),
}

impl fmt::Display for Object {
    /// Writes `room NAME` or `coupon NAME`: the key of its rows, and a line of its texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room(room) => write!(f, "room {room}"),
            Self::Coupon(coupon) => write!(f, "coupon {coupon}"),
        }
    }
}

/// How far something is. No field ever falls along a chain, except the limit of a coupon, which an operator sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figures {
    /// Of a waiting room.
    Room {
        /// Numbers before this one are void: the room was closed after them.
        first: u32,
        /// The last number that was given.
        given: u32,
        /// Visitors with a turn before this one were admitted, left, or were passed over while they were away; none with a
        /// later turn was admitted.
        front: u32,
    },
    /// Of a coupon.
    Coupon {
        /// How many may be issued.
        limit: u32,
        /// How many were issued.
        issued: u32,
    },
}

impl Figures {
    /// Returns the last number or serial that was given.
    pub const fn given(self) -> u32 {
        match self {
            Self::Room { given, .. } => given,
            Self::Coupon { issued, .. } => issued,
        }
    }

    /// Returns these figures, none of them below what was published before. After a loss that an operator accepted, a store
    /// may know less than it published.
    const fn not_below(self, before: Self) -> Self {
        const fn max(one: u32, other: u32) -> u32 {
            if one < other { other } else { one }
        }
        match (self, before) {
            (Self::Room { first, given, front }, Self::Room { first: void, given: known, front: reached }) => {
                Self::Room { first: max(first, void), given: max(given, known), front: max(front, reached) }
            }
            (Self::Coupon { limit, issued }, Self::Coupon { issued: known, .. }) => {
                Self::Coupon { limit, issued: max(issued, known) }
            }
            _ => self,
        }
    }
}

/// When a store publishes the next head of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rhythm {
    /// Every second: visitors are in line or inside.
    EachSecond,
    /// When a figure is another one.
    OnChange,
}

/// How far a room or a coupon was at an instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// What it is about.
    pub object: Object,
    /// Counts the heads of the object, from 1.
    pub sequence: u64,
    /// For a room: when the figures were true, by the clock of its admissions. For a coupon: the instant of its last claim.
    pub at: Timestamp,
    /// How far it was.
    pub figures: Figures,
    /// The digest of the head before it; [`Digest::NONE`] in the first head.
    pub previous: Digest,
}

impl Head {
    /// Returns the head after `previous`, or `None` if it is too early for one.
    ///
    /// # Panics
    /// If `previous` is about another object.
    pub fn next(
        previous: Option<&Self>,
        object: &Object,
        figures: Figures,
        at: Timestamp,
        rhythm: Rhythm,
    ) -> Option<Self> {
        let Some(previous) = previous else {
            let is_unused = figures.given() == 0;
            let head = Self { object: object.clone(), sequence: 1, at, figures, previous: Digest::NONE };
            return (!is_unused).then_some(head);
        };
        assert!(previous.object == *object, "a head follows a head of the same object");
        let figures = figures.not_below(previous.figures);
        let is_early = previous.at <= at && at < previous.at.plus_ms(HEAD_MS_MIN);
        let is_same = figures == previous.figures;
        match (rhythm, object) {
            (Rhythm::OnChange, _) if is_same => return None,
            (_, Object::Room(_)) if is_early => return None,
            _ => {}
        }
        let sequence = previous.sequence + 1;
        let head =
            Self { object: object.clone(), sequence, at: at.max(previous.at), figures, previous: previous.digest() };
        assert!(head.follows(previous).is_ok(), "a chain has no gap, and nothing in it falls");
        Some(head)
    }

    /// Computes the digest by which the next head names this one.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.text())
    }

    /// Checks that this head is the next one of a chain: after `before`, or the first one.
    pub fn continues(&self, before: Option<&Self>) -> Result<(), Breach> {
        match before {
            Some(before) => self.follows(before),
            None if self.sequence == 1 && self.previous == Digest::NONE => Ok(()),
            None => Err(Breach::Gap),
        }
    }

    /// Checks that this head is the first one of a chain whose heads up to `removed_to` a purge removed; 0 if it removed none.
    pub fn begins_after(&self, removed_to: u64) -> Result<(), Breach> {
        match removed_to {
            0 => self.continues(None),
            _ if self.sequence.checked_sub(1) == Some(removed_to) && self.previous != Digest::NONE => Ok(()),
            _ => Err(Breach::Gap),
        }
    }

    /// Checks that this head is the next one of a chain after `previous`.
    pub fn follows(&self, previous: &Self) -> Result<(), Breach> {
        if self.object != previous.object {
            return Err(Breach::OtherObject);
        }
        if self.sequence != previous.sequence + 1 {
            return Err(Breach::Gap);
        }
        if self.previous != previous.digest() {
            return Err(Breach::OtherChain);
        }
        let falls = self.at < previous.at || self.figures.not_below(previous.figures) != self.figures;
        if falls { Err(Breach::Falls) } else { Ok(()) }
    }
}

/// How a visitor was admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admission {
    /// The turn of the ticket: its number, or after a draw in which it took part its place.
    pub turn: u32,
    /// When it was admitted; not before the head before [`Self::by`].
    pub at: Timestamp,
    /// The first head after the admission, whose front is past the turn.
    pub by: Cover,
}

/// A head that a statement names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cover {
    /// Its sequence.
    pub sequence: u64,
    /// Its digest.
    pub digest: Digest,
}

impl Cover {
    /// Names a head.
    pub fn of(head: &Head) -> Self {
        Self { sequence: head.sequence, digest: head.digest() }
    }
}

/// What a visitor has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A place in a room.
    Ticket {
        /// The room.
        room: RoomName,
        /// The number.
        number: u32,
        /// The digest of the ticket, so that its holder can show that the receipt is about it.
        ticket: Digest,
        /// How it was admitted, once it is inside and a later head is published.
        admission: Option<Admission>,
    },
    /// A claim of a coupon.
    Claim {
        /// The coupon.
        coupon: CouponName,
        /// The serial.
        serial: u32,
        /// Who has it.
        user: UserId,
        /// When it was issued.
        issued_at: Timestamp,
    },
}

impl Subject {
    /// Returns what its chain is about.
    pub fn object(&self) -> Object {
        match self {
            Self::Ticket { room, .. } => Object::Room(room.clone()),
            Self::Claim { coupon, .. } => Object::Coupon(coupon.clone()),
        }
    }

    /// Returns the number or the serial.
    pub const fn number(&self) -> u32 {
        match self {
            Self::Ticket { number, .. } => *number,
            Self::Claim { serial, .. } => *serial,
        }
    }
}

/// Which number a visitor has, and the first head that covers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// What the visitor has.
    pub subject: Subject,
    /// The first head that covers the number.
    pub by: Cover,
}

/// A head, and the head before it in its chain. The first head of a chain has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The head before.
    pub before: Option<Head>,
    /// The head.
    pub by: Head,
}

impl Link {
    fn judge(&self, object: &Object, cover: Cover) -> Result<(), Breach> {
        if self.by.object != *object {
            return Err(Breach::OtherObject);
        }
        if Cover::of(&self.by) != cover {
            return Err(Breach::OtherHead);
        }
        self.by.continues(self.before.as_ref())
    }
}

impl Statement {
    /// Checks a statement against the heads that it names: `by` covers the number, `admitted` the admission.
    pub fn judge(&self, by: &Link, admitted: Option<&Link>) -> Result<(), Breach> {
        let (object, number) = (self.subject.object(), self.subject.number());
        by.judge(&object, self.by)?;
        let given_before = by.before.as_ref().map_or(0, |before| before.figures.given());
        if number <= given_before || by.by.figures.given() < number {
            return Err(Breach::NotBetween);
        }
        match &self.subject {
            Subject::Ticket { admission, .. } => match (admission, admitted) {
                (None, None) => Ok(()),
                (Some(admission), Some(link)) => {
                    link.judge(&object, admission.by)?;
                    admission.judge(link)
                }
                _ => Err(Breach::Gap),
            },
            Subject::Claim { issued_at, .. } => {
                let is_late = by.by.at < *issued_at;
                let is_early = by.before.as_ref().is_some_and(|before| *issued_at < before.at);
                if is_late || is_early { Err(Breach::NotBetween) } else { Ok(()) }
            }
        }
    }
}

impl Admission {
    /// Checks that the line had reached the turn when the first head after the admission was published.
    fn judge(&self, link: &Link) -> Result<(), Breach> {
        let is_early = link.before.as_ref().is_some_and(|before| self.at < before.at);
        let Figures::Room { front, .. } = link.by.figures else { return Err(Breach::OtherObject) };
        if is_early || link.by.at <= self.at {
            return Err(Breach::NotBetween);
        }
        if front <= self.turn { Err(Breach::LetInAhead) } else { Ok(()) }
    }
}

/// Why heads and a statement do not fit together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breach {
    /// They are about different rooms or coupons.
    OtherObject,
    /// A head is missing.
    Gap,
    /// A head names another head as the one before it.
    OtherChain,
    /// A count or an instant is lower than in the head before.
    Falls,
    /// The statement names another head.
    OtherHead,
    /// The number was not given, or the admission did not happen, between the head and the one before it.
    NotBetween,
    /// The ticket was admitted before the line had reached its turn.
    LetInAhead,
}

impl Breach {
    /// All breaches.
    pub const ALL: [Self; 7] = [
        Self::OtherObject,
        Self::Gap,
        Self::OtherChain,
        Self::Falls,
        Self::OtherHead,
        Self::NotBetween,
        Self::LetInAhead,
    ];

    /// Says what does not fit, for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherObject => "the texts are about different rooms or coupons",
            Self::Gap => "a head is missing",
            Self::OtherChain => "a head names another head as the one before it: the service published two chains",
            Self::Falls => "a count or a time is lower than in the head before",
            Self::OtherHead => "the statement names another head",
            Self::NotBetween => "it did not happen between the two heads that the receipt names",
            Self::LetInAhead => "the ticket was admitted before the line had reached its turn",
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Breach {}

#[cfg(test)]
mod tests;
