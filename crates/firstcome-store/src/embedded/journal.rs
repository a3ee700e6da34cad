//! The journal to which the engine commits its decisions before it answers.

use super::StoredRoom;
use crate::error::{Fault, FaultKind, StoreError};
use crate::ticket::TicketKey;
use crate::voucher::VoucherKey;
use firstcome_core::auction::{Bid, ListingStanding, PlacedBid};
use firstcome_core::coupon::{Attributes, Claim, CouponSettings, Issued, Redeemed, Serial};
use firstcome_core::id::{CouponName, RequestId, RoomName};
use firstcome_core::points::{Record, Wallet};
use firstcome_core::room::{self, RoomSettings, TicketNumber};
use firstcome_core::time::{Now, Timestamp};
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::ops::Bound;
use std::sync::Arc;

/// The store's own number for a coupon. Never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CouponId(pub u32);

impl CouponId {
    /// The key of a claim's row: coupon above, serial below, so that one integer index serves all.
    pub const fn row(self, serial: Serial) -> i64 {
        (self.0 as i64) << 32 | serial.get() as i64
    }
}

/// A coupon that is new, or has new settings.
#[derive(Clone, Debug)]
pub struct CouponPut {
    /// Which.
    pub id: CouponId,
    /// Its name; fixed for a given id.
    pub name: CouponName,
    /// The settings from now on.
    pub settings: CouponSettings,
    /// The secret of its codes, and from which serial on they are bound; fixed for a given id.
    pub voucher_key: VoucherKey,
    /// When it was decided.
    pub at: Timestamp,
}

/// The store's own number for a room. Never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoomId(pub u32);

impl RoomId {
    /// The key of a ticket's row, and of its slot's: room above, number below.
    pub const fn row(self, number: TicketNumber) -> i64 {
        (self.0 as i64) << 32 | number.get() as i64
    }
}

/// A room that is new, has new settings, or is open again.
#[derive(Clone, Debug)]
pub struct RoomPut {
    /// Which.
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
    /// Its number, which passes name. Never given twice.
    pub id: u32,
    /// 32 secret random bytes.
    pub bytes: [u8; 32],
    /// Since when it signs.
    pub created_at: Timestamp,
}

impl std::fmt::Debug for PassSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PassSecret({}, secret)", self.id)
    }
}

/// The store's own number for a member, from 1. Never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u32);

/// Bits of a record's row key that count the records of its member: 68 thousand million.
const RECORD_BITS: u32 = 36;

impl MemberId {
    /// The key of a record's row: member above, number below, so that the records of a member lie together.
    pub const fn row(self, number: u64) -> i64 {
        (self.0 as i64) << RECORD_BITS | number.cast_signed()
    }

    /// Member and number of a row key; `None` if it cannot be one.
    pub fn of_row(row: i64) -> Option<(Self, u64)> {
        let member = u32::try_from(row >> RECORD_BITS).ok()?;
        Some((Self(member), (row & ((1 << RECORD_BITS) - 1)).cast_unsigned()))
    }
}

/// The store's own number for a listing, from 1. Never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListingId(pub u32);

impl ListingId {
    /// The key of a bid's row: listing above, number below.
    pub const fn row(self, number: u32) -> i64 {
        (self.0 as i64) << 32 | number as i64
    }
}

/// One thing that the rules decided.
#[derive(Clone, Debug)]
pub enum Change {
    /// A coupon is new, or has new settings.
    CouponPut(Box<CouponPut>),
    /// A coupon is deleted.
    CouponDeleted {
        /// Which.
        id: CouponId,
        /// When it was decided.
        at: Timestamp,
    },
    /// Codes of a coupon are bound to their claims from another serial on: after an import, which knows it only once all
    /// claims have come.
    CodesBound {
        /// Which.
        id: CouponId,
        /// The first serial with a bound code.
        from: u32,
    },
    /// A claim was accepted.
    Claimed {
        /// Of which coupon.
        id: CouponId,
        /// Its place.
        issued: Issued,
        /// What was asked.
        claim: Claim,
    },
    /// A coupon was used up.
    Redeemed {
        /// Of which coupon.
        id: CouponId,
        /// Which serial, and when.
        redeemed: Redeemed,
        /// The request, if it carried a key.
        request: Option<RequestId>,
    },
    /// A room is new, has new settings, or is open again.
    RoomPut(Box<RoomPut>),
    /// A room is closed: all its tickets are void.
    RoomClosed {
        /// Which.
        id: RoomId,
        /// The number that would have been drawn next; the ones before it are void.
        first: u32,
        /// When it was decided.
        at: Timestamp,
    },
    /// Something happened in a room.
    Room {
        /// In which.
        id: RoomId,
        /// What.
        change: room::Change,
    },
    /// A bid was accepted.
    Bid {
        /// Of which listing.
        id: ListingId,
        /// Who bids.
        member: MemberId,
        /// The bid.
        placed: PlacedBid,
        /// The request, if it carried a key.
        request: Option<RequestId>,
    },
    /// Points moved.
    Moved {
        /// Whose.
        id: MemberId,
        /// What it is about.
        listing: Option<ListingId>,
        /// The movement.
        record: Record,
        /// The request, if it was one for just this and carried a key.
        request: Option<RequestId>,
    },
    /// A member has these points from now on. Once per commit, after all movements.
    Member {
        /// Whose.
        id: MemberId,
        /// What there is.
        wallet: Box<Wallet>,
    },
    /// A listing stands so from now on. Once per commit, after all its bids.
    Listing {
        /// Which.
        id: ListingId,
        /// All that is known of it.
        standing: Box<ListingStanding>,
        /// The request that bought it, if it carried a key.
        sale_request: Option<RequestId>,
    },
    /// What both clocks showed: so that time-outs go on after a restart as if no clock had been set.
    Clock(Now),
    /// From now on passes are signed with this secret; those of it and of `kept` are valid.
    PassSecret {
        /// The new one.
        fresh: PassSecret,
        /// The oldest one whose passes may still be alive.
        oldest_kept: u32,
    },
}

/// Why a commit did not succeed.
#[derive(Debug)]
pub struct JournalError {
    /// Whether the changes may survive all the same.
    pub outcome: Outcome,
    /// What happened.
    pub fault: Fault,
}

/// What became of the changes of a commit that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// None of them is stored, and the cause may pass: the journal takes further commits.
    Passing,
    /// None of them is stored, and nothing more will be.
    Nothing,
    /// All of them or none: only a restart will tell.
    Unknown,
}

/// Makes changes durable. Called by one thread.
pub trait Journal: Send {
    /// Writes all changes, or none, and returns after they are durable. After an error other than [`Outcome::Passing`] it is
    /// not called again.
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError>;

    /// Reads a room as it is stored, as a start does: every ticket counts as just seen. Called after [`Outcome::Passing`] for
    /// each room that the commit would have changed. An error stops all writes.
    fn room(&mut self, id: RoomId, _hasher: &RandomState, _now: Now) -> Result<StoredRoom, Fault> {
        Err(Fault::new(FaultKind::Stopped, format!("room {} cannot be read again", id.0)))
    }

    /// Puts things in order before a proper end. Nothing depends on it.
    fn close(&mut self) {}
}

/// Reads what the rules do not keep in memory. Called from any thread; may block.
pub trait Rows: Send + Sync {
    /// The attributes of the claims `first..=last` that have some.
    fn attributes(
        &self,
        coupon: CouponId,
        first: Serial,
        last: Serial,
    ) -> Result<BTreeMap<Serial, Attributes>, StoreError>;

    /// The bids of a listing after `after`, at most `count`, in their order. None where nothing is sold.
    fn bids(&self, _listing: ListingId, _after: u32, _count: usize) -> Result<Vec<Bid>, StoreError> {
        Ok(Vec::new())
    }

    /// The records of a member after `after`, at most `count`, in their order. None where nothing is sold.
    fn records(&self, _member: MemberId, _after: u64, _count: usize) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }
}

/// The journal of a store in memory: it keeps what the rules do not, and nothing else.
#[derive(Clone, Default)]
pub(super) struct Memory {
    kept: Arc<parking_lot::RwLock<MemoryRows>>,
}

#[derive(Default)]
struct MemoryRows {
    attributes: BTreeMap<(CouponId, Serial), Attributes>,
    bids: BTreeMap<(ListingId, u32), Bid>,
    records: BTreeMap<(MemberId, u64), Record>,
}

impl Journal for Memory {
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        for change in changes {
            match change {
                Change::Claimed { id, issued, claim } => {
                    if let Some(attributes) = &claim.attributes {
                        self.kept.write().attributes.insert((*id, issued.serial), attributes.clone());
                    }
                }
                Change::Bid { id, placed, .. } => {
                    self.kept.write().bids.insert((*id, placed.bid.number), placed.bid.clone());
                }
                Change::Moved { id, record, .. } => {
                    self.kept.write().records.insert((*id, record.number), record.clone());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Rows for Memory {
    fn attributes(
        &self,
        coupon: CouponId,
        first: Serial,
        last: Serial,
    ) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        let kept = self.kept.read();
        let range = kept.attributes.range((coupon, first)..=(coupon, last));
        Ok(range.map(|((_, serial), value)| (*serial, value.clone())).collect())
    }

    fn bids(&self, listing: ListingId, after: u32, count: usize) -> Result<Vec<Bid>, StoreError> {
        let range = (Bound::Excluded((listing, after)), Bound::Included((listing, u32::MAX)));
        Ok(self.kept.read().bids.range(range).take(count).map(|(_, bid)| bid.clone()).collect())
    }

    fn records(&self, member: MemberId, after: u64, count: usize) -> Result<Vec<Record>, StoreError> {
        let range = (Bound::Excluded((member, after)), Bound::Included((member, u64::MAX)));
        Ok(self.kept.read().records.range(range).take(count).map(|(_, record)| record.clone()).collect())
    }
}
