//! The journal to which the engine commits its decisions before it replies.

use super::StoredRoom;
use crate::error::{Fault, FaultKind, StoreError};
use crate::receipt::{HeadWanted, SignedHead};
use crate::ticket::TicketKey;
use crate::voucher::VoucherKey;
use firstcome_core::api_key::KeyChange;
use firstcome_core::auction::{Bid, ListingStanding, PlacedBid};
use firstcome_core::coupon::{Attributes, Claim, CouponSettings, Issued, KeyedEffect, Redeemed, Serial};
use firstcome_core::id::{CouponName, MemberName, RequestId, RoomName, UserId};
use firstcome_core::points::{Anchor, Chain, Record, Wallet};
use firstcome_core::receipt::Object;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{self, GoneTickets, RoomSettings, TicketNumber};
use firstcome_core::time::{Now, Timestamp};
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::Arc;

/// The store's own number for a coupon. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CouponId(pub u32);

impl CouponId {
    /// The key of a claim's row: the coupon in the high bits, the serial in the low bits, so that one integer index
    /// serves all.
    pub const fn row(self, serial: Serial) -> i64 {
        (self.0 as i64) << 32 | serial.get() as i64
    }
}

/// A new coupon, or new settings of one.
#[derive(Clone, Debug)]
pub struct CouponPut {
    /// The coupon.
    pub id: CouponId,
    /// Its name; fixed for a given id.
    pub name: CouponName,
    /// The settings from now on.
    pub settings: CouponSettings,
    /// The secret of its codes, and the first serial with a bound code; fixed for a given id.
    pub voucher_key: VoucherKey,
    /// When it was decided.
    pub at: Timestamp,
}

/// The store's own number for a room. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoomId(pub u32);

impl RoomId {
    /// The key of a ticket's row, and of its slot's: the room in the high bits, the number in the low bits.
    pub const fn row(self, number: TicketNumber) -> i64 {
        (self.0 as i64) << 32 | number.get() as i64
    }
}

/// A new room, new settings of one, or a room that is open again.
#[derive(Clone, Debug)]
pub struct RoomPut {
    /// The room.
    pub id: RoomId,
    /// Its name; fixed for a given id.
    pub name: RoomName,
    /// The settings from now on.
    pub settings: RoomSettings,
    /// The secret of its tickets; fixed for a given id.
    pub ticket_key: TicketKey,
    /// When it was decided.
    pub at: Timestamp,
}

/// A secret that signs passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PassSecret {
    /// Its number, which passes carry. Never reused.
    pub id: u32,
    /// 32 secret random bytes.
    pub bytes: [u8; 32],
    /// Since when it signs passes.
    pub created_at: Timestamp,
}

impl std::fmt::Debug for PassSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PassSecret({}, secret)", self.id)
    }
}

/// Names a set of secrets that sign passes. Numbers are never reused and secrets only leave a set, so two sets with the same
/// name are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassSecretSet {
    /// The number of the newest secret, which signs.
    pub newest: u32,
    /// How many secrets there are.
    pub count: usize,
}

impl PassSecretSet {
    /// Returns the name of these secrets, the newest last. `None` if there are none.
    pub fn of(secrets: &[PassSecret]) -> Option<Self> {
        secrets.last().map(|newest| Self { newest: newest.id, count: secrets.len() })
    }
}

/// What a revocation of a secret that signs passes has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassSecretRevocation {
    /// The secret is gone. If it was the one that signs, a new one signs.
    Revoked,
    /// There was such a secret, and it is gone already: revoked before, or forgotten after its last pass had ended.
    GoneBefore,
    /// There never was such a secret.
    Unknown,
}

impl PassSecretRevocation {
    /// Judges a revocation by the number of the secret that is asked for, and those that there are, the newest last.
    pub fn of(id: u32, secrets: &[PassSecret]) -> Self {
        if secrets.iter().any(|secret| secret.id == id) {
            return Self::Revoked;
        }
        // Numbers begin at 1, and the newest secret is always there.
        match secrets.last() {
            Some(newest) if (1..newest.id).contains(&id) => Self::GoneBefore,
            _ => Self::Unknown,
        }
    }
}

/// The store's own number for a member, from 1. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u32);

/// The bits of a record's row key that hold the number of the record: up to 68 billion.
const RECORD_BITS: u32 = 36;

impl MemberId {
    /// The key of a record's row: the member in the high bits, the number in the low bits, so that the records of a
    /// member lie together.
    pub const fn row(self, number: u64) -> i64 {
        (self.0 as i64) << RECORD_BITS | number.cast_signed()
    }

    /// Returns the member and the number of a row key; `None` if it is not a valid key.
    pub fn of_row(row: i64) -> Option<(Self, u64)> {
        let member = u32::try_from(row >> RECORD_BITS).ok()?;
        Some((Self(member), (row & ((1 << RECORD_BITS) - 1)).cast_unsigned()))
    }
}

/// The store's own number for a listing, from 1. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListingId(pub u32);

impl ListingId {
    /// The key of a bid's row: the listing in the high bits, the number in the low bits.
    pub const fn row(self, number: u32) -> i64 {
        (self.0 as i64) << 32 | number as i64
    }
}

/// A page of the erasure of a member's name. Nothing of the records changes but their chain, and that they have no idempotency keys.
#[derive(Clone, Debug)]
pub struct MemberErased {
    /// The member.
    pub id: MemberId,
    /// The name until now; on the first page.
    pub before: Option<MemberName>,
    /// The wallet from now on: the pseudonym, the anchor under it, and what is left to chain again.
    pub wallet: Wallet,
    /// The number of the first record of the page.
    pub first: u64,
    /// The chain of each record from now on.
    pub chains: Vec<Chain>,
    /// Bids of the member whose idempotency key goes.
    pub bids: Vec<(ListingId, u32)>,
}

/// The first records of a member go, and an anchor takes their place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordsRemoved {
    /// The member.
    pub id: MemberId,
    /// Its name.
    pub member: MemberName,
    /// What takes their place: all records up to its number go.
    pub anchor: Anchor,
}

/// A coupon whose claims may be over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CouponOver {
    /// The coupon.
    pub id: CouponId,
    /// When it was deleted, if it was.
    pub deleted_at: Option<Timestamp>,
    /// The first serial whose row is there.
    pub first: Serial,
}

/// A request whose idempotency key is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForgottenRequest {
    /// A claim or a redemption of a coupon.
    Coupon(CouponId, KeyedEffect),
    /// The bid with this number.
    Bid(ListingId, u32),
    /// The purchase of a listing.
    Purchase(ListingId),
    /// The movement of points with this number.
    Movement(MemberId, u64),
}

/// One change that the rules decided.
#[derive(Clone, Debug)]
pub enum Change {
    /// A coupon is new, or has new settings.
    CouponPut(Box<CouponPut>),
    /// A coupon is deleted.
    CouponDeleted {
        /// The coupon.
        id: CouponId,
        /// When it was decided.
        at: Timestamp,
    },
    /// Codes of a coupon are bound to their claims from another serial on. An import writes this once all claims have
    /// come.
    CodesBound {
        /// The coupon.
        id: CouponId,
        /// The first serial with a bound code.
        from: u32,
    },
    /// A claim was accepted.
    Claimed {
        /// The coupon.
        id: CouponId,
        /// The serial and the instant.
        issued: Issued,
        /// The request.
        claim: Claim,
    },
    /// A claim was redeemed.
    Redeemed {
        /// The coupon.
        id: CouponId,
        /// The serial and the instant.
        redeemed: Redeemed,
        /// The request, if it carried a key.
        request: Option<RequestId>,
    },
    /// A room is new, has new settings, or is open again.
    RoomPut(Box<RoomPut>),
    /// A room is closed: all its tickets are void.
    RoomClosed {
        /// The room.
        id: RoomId,
        /// The next number; the numbers before it are void.
        first: u32,
        /// When it was decided.
        at: Timestamp,
    },
    /// A room looks otherwise.
    AppearancePut {
        /// The room.
        id: RoomId,
        /// How it looks from now on.
        appearance: Arc<Appearance>,
    },
    /// The first change of a commit that erases a person: no copy of what it overwrites may stay.
    Erasure,
    /// The user of a claim was erased: a pseudonym takes its place, and its attributes and idempotency keys go.
    ClaimErased {
        /// The coupon.
        id: CouponId,
        /// The claim.
        serial: Serial,
        /// The user from now on.
        pseudonym: UserId,
    },
    /// The user of tickets was erased, and their idempotency keys.
    TicketsErased(Vec<(RoomId, TicketNumber)>),
    /// A member was erased.
    MemberErased(Box<MemberErased>),
    /// The claims of a coupon are over for so long that they go: from now on none of them is known.
    CouponPurged {
        /// The coupon.
        id: CouponId,
        /// When.
        at: Timestamp,
        /// How many claims it has.
        issued: u32,
    },
    /// The rows of a purged coupon's claims go, with their redemptions.
    ClaimsPurged {
        /// The coupon.
        id: CouponId,
        /// The first serial whose row is there.
        first: Serial,
        /// The last serial whose row goes.
        last: Serial,
    },
    /// Something happened in a room.
    Room {
        /// The room.
        id: RoomId,
        /// What happened.
        change: room::Change,
        /// When it was decided: what the later of both clocks showed.
        at: Timestamp,
    },
    /// Tickets of a room are gone for so long that their rows go: all before a number.
    TicketsPurged {
        /// The room.
        id: RoomId,
        /// Which tickets.
        gone: GoneTickets,
    },
    /// A part of what a room remembers: it replaces the part with the same first number. Empty: no row is needed any more.
    Remembered {
        /// The room.
        id: RoomId,
        /// The part.
        memory: room::Memory,
    },
    /// A bid was accepted.
    Bid {
        /// The listing.
        id: ListingId,
        /// The bidder.
        member: MemberId,
        /// The bid.
        placed: PlacedBid,
        /// The request, if it carried a key.
        request: Option<RequestId>,
    },
    /// Points moved.
    Moved {
        /// The member.
        id: MemberId,
        /// The listing that the movement is about.
        listing: Option<ListingId>,
        /// The movement.
        record: Record,
        /// The request, if it made only this movement and carried a key.
        request: Option<RequestId>,
    },
    /// The new wallet of a member. Once per commit, after all movements.
    Member {
        /// The member.
        id: MemberId,
        /// Its wallet.
        wallet: Box<Wallet>,
    },
    /// The new state of a listing. Once per commit, after all its bids.
    Listing {
        /// The listing.
        id: ListingId,
        /// Its state.
        standing: Box<ListingStanding>,
        /// The request that bought it, if it carried a key.
        sale_request: Option<RequestId>,
    },
    /// A room or a coupon has a new head.
    Headed(Box<SignedHead>),
    /// A purge, or an import of what a purge has left, removed the heads of an object up to a sequence.
    HeadsRemoved {
        /// The room or the coupon.
        object: Object,
        /// The sequence of the last one.
        to: u64,
        /// How many of them were there.
        count: u64,
    },
    /// API keys are new, end, or are forgotten.
    ApiKeys(Box<KeyChange>),
    /// Idempotency keys are forgotten.
    RequestsForgotten(Vec<ForgottenRequest>),
    /// A purge, or an import of what a purge has left, removed records.
    RecordsRemoved(Box<RecordsRemoved>),
    /// A purge has ended. No data depend on it: the next purge compares its clock with it.
    PurgeEnded(Timestamp),
    /// Both clocks, so that time-outs continue after a restart as if no clock had been set.
    Clock(Now),
    /// From now on this secret signs passes. Passes of older secrets stay valid from `oldest_kept` on.
    PassSecret {
        /// The new secret.
        fresh: PassSecret,
        /// The oldest secret whose passes may still be alive.
        oldest_kept: u32,
    },
    /// The passes of this secret are void.
    PassSecretRevoked {
        /// The number of the secret.
        id: u32,
        /// The secret that signs from now on, if the revoked one did.
        fresh: Option<PassSecret>,
    },
}

impl Change {
    /// Makes the change of a room that was decided now.
    pub fn of_room(id: RoomId, change: room::Change, now: Now) -> Self {
        let at = Timestamp::clamped_us(now.wall.as_us().max(now.steady.as_us()));
        Self::Room { id, change, at }
    }
}

/// Why a commit failed.
#[derive(Debug)]
pub struct JournalError {
    /// Whether the changes may be stored nevertheless.
    pub outcome: Outcome,
    /// What happened.
    pub fault: Fault,
}

/// What became of the changes of a failed commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// None of them is stored, and the cause may pass: the journal accepts further commits.
    Passing,
    /// None of them is stored, and no later one will be.
    Nothing,
    /// All of them are stored, or none: only a restart will tell.
    Unknown,
}

/// Makes changes durable. Called by one thread.
pub trait Journal: Send {
    /// Writes all changes or none, and returns after they are durable. Not called again after an error other than
    /// [`Outcome::Passing`].
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError>;

    /// Reads a room as it is stored, as when a store opens: every ticket counts as just seen. Called after
    /// [`Outcome::Passing`] for each room that the commit would have changed. An error stops all writes permanently.
    fn room(&mut self, id: RoomId, _hasher: &RandomState, _now: Now) -> Result<StoredRoom, Fault> {
        Err(Fault::new(FaultKind::Stopped, format!("room {} cannot be read again", id.0)))
    }

    /// Tidies up before a regular end. Nothing depends on it.
    fn close(&mut self) {}
}

/// Reads data that the rules do not keep in memory. Called from any thread; may block.
pub trait Rows: Send + Sync {
    /// Returns the attributes of the claims `first..=last` that have some.
    fn attributes(
        &self,
        coupon: CouponId,
        first: Serial,
        last: Serial,
    ) -> Result<BTreeMap<Serial, Attributes>, StoreError>;

    /// Returns the heads of an object after a sequence, at most `count`, in order. Empty if the store publishes none. Begins later
    /// if a purge removed some.
    fn heads(&self, _object: &Object, _after: u64, _count: usize) -> Result<Vec<SignedHead>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the first head of an object that is the wanted one or a later one.
    fn first_head(&self, _object: &Object, _wanted: HeadWanted) -> Result<Option<SignedHead>, StoreError> {
        Ok(None)
    }

    /// Returns charges and refunds before `since` whose idempotency keys are stored, at most `count`. Empty if the store keeps none
    /// beside memory.
    fn keyed_movements(&self, _since: Timestamp, _count: usize) -> Result<Vec<(MemberId, u64)>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the coupons whose claims may be over, by their settings or by a deletion, and that have rows of claims. Empty if the
    /// store keeps none beside memory.
    fn coupons_over(&self) -> Result<Vec<CouponOver>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the number before which all tickets of a room from `from` on are gone since before `since`: looks at `count` of them
    /// at most. `from` if the store keeps no rows of tickets.
    fn gone_before(&self, _room: RoomId, from: u32, _since: Timestamp, _count: u32) -> Result<u32, StoreError> {
        Ok(from)
    }

    /// Returns the bids of a listing after number `after`, at most `count`, in order. Empty if the store has no
    /// auctions.
    fn bids(&self, _listing: ListingId, _after: u32, _count: usize) -> Result<Vec<Bid>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the tickets of rooms that name a user, the departed ones included. `None` if the store keeps no rows of tickets.
    /// Reads all tickets.
    fn tickets_of(&self, _user: &UserId) -> Result<Option<Vec<(RoomId, TicketNumber)>>, StoreError> {
        Ok(None)
    }

    /// Returns the records of a member after number `after`, at most `count`, in order. Empty if the store has no
    /// auctions.
    fn records(&self, _member: MemberId, _after: u64, _count: usize) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }
}
