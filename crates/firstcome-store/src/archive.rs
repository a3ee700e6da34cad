//! The rows of an export, and ([`Intake`]) the rules by which an import puts them into any store. An export and an
//! import lose nothing, and keep every rule.
//!
//! # Order
//! Each row comes after the rows that it names: a coupon before its claims, a room before its tickets, listings before
//! records before bids. Claims come in the order of serials, tickets in the order of numbers, heads in that of their chains.

mod auction;
mod intake;
mod receipt;
mod room;

pub use intake::{Before, Intake};
pub use room::RoomsBefore;

use crate::embedded::journal::PassSecret;
use crate::error::Fault;
use crate::receipt::SignedHead;
use crate::ticket::TicketKey;
use crate::voucher::{VoucherCode, VoucherKey};
use firstcome_core::auction::{ListingStanding, PlacedBid};
use firstcome_core::coupon::{self, Attributes, CouponSettings, Issued, Serial};
use firstcome_core::id::{CouponName, ListingName, MemberName, RequestId, RoomName, UserId};
use firstcome_core::points::{self, Anchor, Record};
use firstcome_core::receipt::Object;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{self as core_room, Departure, Draw, Join, Renewal, RoomSettings, TicketNumber};
use firstcome_core::time::Timestamp;
use std::sync::Arc;

/// A coupon in an export or import.
#[derive(Clone, Debug)]
pub struct ArchivedCoupon {
    /// Its name.
    pub name: CouponName,
    /// Its settings.
    pub settings: CouponSettings,
    /// The secret of its codes, and the first serial whose code is bound to its claim. For a coupon from a version
    /// without bound codes: [`VoucherKey::unbound`]. The serials after the imported ones have bound codes in any case.
    pub voucher_key: VoucherKey,
    /// When it was deleted, if it was.
    pub deleted_at: Option<Timestamp>,
    /// What is known of its claims if they were purged: then none of them follows.
    pub purged: Option<ArchivedPurge>,
}

/// The claims of a purged coupon in an export or import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchivedPurge {
    /// When the purge began.
    pub at: Timestamp,
    /// How many claims there were; at most the limit.
    pub issued: u32,
}

/// A claim in an export.
#[derive(Clone, Debug)]
pub struct ArchivedClaim {
    /// The coupon.
    pub coupon: CouponName,
    /// The serial and the instant.
    pub issued: Issued,
    /// The claimant.
    pub user: UserId,
    /// The attributes of the claim.
    pub attributes: Option<Attributes>,
    /// The request that made it, if it carried a key.
    pub request: Option<RequestId>,
    /// When it was redeemed, and by which request, if it was.
    pub redeemed: Option<(Timestamp, Option<RequestId>)>,
    /// Its code, made with the coupon's key.
    pub code: VoucherCode,
}

/// A claim in an import. A missing serial means the next one.
#[derive(Clone, Debug)]
pub struct IncomingClaim {
    /// The coupon.
    pub coupon: CouponName,
    /// Its serial, if the source has it: it must then be the next one.
    pub serial: Option<Serial>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// The claimant.
    pub user: UserId,
    /// The attributes of the claim.
    pub attributes: Option<Attributes>,
    /// The request that made it.
    pub request: Option<RequestId>,
    /// When it was redeemed, and by which request.
    pub redeemed: Option<(Timestamp, Option<RequestId>)>,
    /// Its code, if the source has it: the coupon's key must then make the same code.
    pub code: Option<String>,
}

/// A listing in an export or import.
#[derive(Clone, Debug)]
pub struct ArchivedListing {
    /// The state of the listing without its highest bid, which is its last bid.
    pub standing: ListingStanding,
    /// The request that bought it, if it carried a key.
    pub sale_request: Option<RequestId>,
}

/// A bid in an export or import.
#[derive(Clone, Debug)]
pub struct ArchivedBid {
    /// The listing.
    pub listing: ListingName,
    /// The bid and its effects.
    pub placed: PlacedBid,
    /// The request that made it, if it carried a key.
    pub request: Option<RequestId>,
}

/// A movement of points in an export or import. The records of a member determine its balance.
#[derive(Clone, Debug)]
pub struct ArchivedRecord {
    /// The movement.
    pub record: Record,
    /// The request that made it, if the request made only this movement and carried a key.
    pub request: Option<RequestId>,
    /// Of the first record of a member: what takes the place of the records before it, if a purge removed some.
    pub anchor: Option<Arc<Anchor>>,
}

/// A room in an export or import. Its tickets follow, one for every number from `first` to `drawn`.
#[derive(Clone, Debug)]
pub struct ArchivedRoom {
    /// Its name.
    pub name: RoomName,
    /// Its settings.
    pub settings: RoomSettings,
    /// How its page looks.
    pub appearance: Arc<Appearance>,
    /// The secret of its tickets.
    pub ticket_key: TicketKey,
    /// Whether an operator closed it.
    pub is_closed: bool,
    /// The first valid number; numbers before it are void.
    pub first: u32,
    /// The line has reached all turns before this one: numbers, or after a draw places.
    pub reached: u32,
    /// The highest number that may have been drawn; `first - 1` if none was.
    pub drawn: u32,
    /// The highest number of an admission.
    pub admissions: u64,
    /// The draw, if it took place.
    pub draw: Option<Draw>,
}

/// The slot of a ticket in an export or import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchivedSlot {
    /// The number of the admission.
    pub admission: u64,
    /// The instant of the admission.
    pub admitted_at: Timestamp,
    /// Whether the visitor took the slot; otherwise it is still offered.
    pub is_taken: bool,
    /// When it ends, by the wall clock.
    pub until: Timestamp,
}

/// The state of a ticket, or of a run of unknown tickets, in an export or import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TicketState {
    /// It waits in line or has a slot.
    Living {
        /// The join that drew it.
        join: Join,
        /// The instant of the join, if it is known.
        joined_at: Option<Timestamp>,
        /// Its slot, if it has one.
        slot: Option<ArchivedSlot>,
        /// The last renewal of its ticket, if it was renewed.
        renewal: Option<Renewal>,
    },
    /// It ended.
    Gone(Departure),
    /// All numbers from this ticket's to the given one may have been drawn, and nothing is known of them. A visitor
    /// that has such a ticket keeps its place.
    Lost(TicketNumber),
}

/// A ticket in an export or import.
#[derive(Clone, Debug)]
pub struct ArchivedTicket {
    /// The room.
    pub room: RoomName,
    /// Its number.
    pub number: TicketNumber,
    /// Its state.
    pub state: TicketState,
}

/// A room, or the next ticket of it, in an export.
#[derive(Clone, Debug)]
pub enum ArchivedLine {
    /// A room.
    Room(Box<ArchivedRoom>),
    /// The next ticket of the room before it.
    Ticket(Box<ArchivedTicket>),
}

/// A secret that all nodes of a deployment, or the service of a directory, share: digests of callers' keys, and the key
/// that signs lock handles.
#[derive(Clone, PartialEq, Eq)]
pub struct ArchivedSecret {
    /// The name of the secret.
    pub name: String,
    /// The secret.
    pub bytes: [u8; 32],
}

impl std::fmt::Debug for ArchivedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArchivedSecret({}, secret)", self.name)
    }
}

/// One row of an import.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// A coupon.
    Coupon(Box<ArchivedCoupon>),
    /// A claim.
    Claim(Box<IncomingClaim>),
    /// A room.
    Room(Box<ArchivedRoom>),
    /// A ticket.
    Ticket(Box<ArchivedTicket>),
    /// A secret that signs passes.
    PassSecret(PassSecret),
    /// A listing.
    Listing(Box<ArchivedListing>),
    /// A movement of points.
    Record(Box<ArchivedRecord>),
    /// A bid.
    Bid(Box<ArchivedBid>),
    /// A published head of a room or a coupon.
    Head(Box<ArchivedHead>),
    /// A secret of the service.
    Secret(ArchivedSecret),
}

/// A published head of a room or a coupon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchivedHead {
    /// The head.
    pub signed: SignedHead,
    /// Of the first head of a room or coupon: up to which sequence a purge removed those before it. 0 if none did, and of all
    /// later heads.
    pub removed_to: u64,
}

impl ArchivedHead {
    /// The next head of an export, after one of `before`. `removed_to` tells up to which sequence a purge removed the heads of an
    /// object.
    pub fn next(before: Option<&Object>, signed: SignedHead, removed_to: impl FnOnce(&Object) -> u64) -> Self {
        let object = &signed.head.object;
        let removed_to = if before == Some(object) { 0 } else { removed_to(object) };
        Self { signed, removed_to }
    }
}

/// Why an import fails. Nothing of the import is kept then.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A coupon of that name exists, with other settings, another secret, or claims.
    #[error("coupon {0} exists already and differs")]
    CouponDiffers(CouponName),
    /// A coupon of that name exists.
    #[error("coupon {0} exists already: import into a store without it")]
    CouponThere(CouponName),
    /// A claim of a coupon that neither exists nor came before.
    #[error("there is no coupon {0}: put it first, or import the JSON lines that carry it")]
    UnknownCoupon(CouponName),
    /// More claims of a purged coupon than its limit allows.
    #[error("coupon {0}: more claims were purged than its limit allows")]
    PurgedTooMany(CouponName),
    /// A claim of a purged coupon.
    #[error("coupon {0}: its claims were purged, and yet one comes")]
    ClaimOfPurged(CouponName),
    /// The claim breaks a rule.
    #[error("coupon {coupon}, serial {}: {}", serial.get(), damage.as_str())]
    Broken {
        /// The coupon.
        coupon: CouponName,
        /// The serial of the claim.
        serial: Serial,
        /// The broken rule.
        damage: coupon::Damage,
    },
    /// The claim's code was made with another secret: its holder could never redeem it here.
    #[error("coupon {coupon}, serial {}: the code was made with another secret; import the JSON lines, which carry it", serial.get())]
    OtherCode {
        /// The coupon.
        coupon: CouponName,
        /// The serial of the claim.
        serial: Serial,
    },
    /// The claim was redeemed before it was issued. A claim without its own instant counts as issued at the import.
    #[error("coupon {coupon}, serial {}: redeemed before it was issued", serial.get())]
    RedeemedTooEarly {
        /// The coupon.
        coupon: CouponName,
        /// The serial of the claim.
        serial: Serial,
    },
    /// A room of that name exists, or comes twice.
    #[error("room {0} exists already: import into a store without it")]
    RoomThere(RoomName),
    /// A ticket of a room that did not come before.
    #[error("there is no room {0}: it must come before its tickets")]
    UnknownRoom(RoomName),
    /// The line of a room has impossible numbers.
    #[error("room {room}: {says}")]
    BrokenRoom {
        /// The room.
        room: RoomName,
        /// What is wrong.
        says: &'static str,
    },
    /// A ticket or its slot breaks a rule.
    #[error("room {room}, number {}: {}", number.get(), damage.as_str())]
    BrokenTicket {
        /// The room.
        room: RoomName,
        /// The number of the ticket.
        number: TicketNumber,
        /// The broken rule.
        damage: core_room::Damage,
    },
    /// Some tickets of a room are missing.
    #[error("room {room}: tickets up to number {drawn} were drawn, and those from {next} on did not come")]
    TicketsMissing {
        /// The room.
        room: RoomName,
        /// The first missing number.
        next: u32,
        /// The last number that was drawn.
        drawn: u32,
    },
    /// A head of what did not come before, or one that is not the next of its chain, or signed with another key.
    #[error("{object}, head {sequence}: {says}")]
    BrokenHead {
        /// The room or the coupon.
        object: Object,
        /// The sequence of the head.
        sequence: u64,
        /// What is wrong with it.
        says: &'static str,
    },
    /// Other secrets sign passes in this store.
    #[error("there are rooms already, whose passes other secrets sign: import where there are none")]
    PassSecretsDiffer,
    /// Another secret has that name in this store.
    #[error(
        "another {0} exists already: import where no service was started yet, or export coupon by coupon (--coupon), which \
         carries none"
    )]
    SecretDiffers(String),
    /// The store has members or listings already, and the imported ones cannot be mixed with them.
    #[error("there are members or listings already: import where there are none")]
    AuctionsThere,
    /// A listing came twice.
    #[error("listing {0} comes twice")]
    ListingTwice(ListingName),
    /// A record or a bid of a listing that did not come before.
    #[error("there is no listing {0}: it must come before its bids and records")]
    UnknownListing(ListingName),
    /// A bid of a member without an earlier record.
    #[error("there is no member {0}: records must come before bids")]
    UnknownMember(MemberName),
    /// The record does not follow the records before it.
    #[error("member {member}, record {number}: {}", damage.as_str())]
    BrokenRecord {
        /// The member.
        member: MemberName,
        /// The number of the record.
        number: u64,
        /// What is wrong with it.
        damage: points::Damage,
    },
    /// The imported auctions together break an invariant.
    #[error("{invariant}: {example}")]
    AuctionsBroken {
        /// The invariant.
        invariant: &'static str,
        /// An example of where it is broken.
        example: String,
    },
    /// The store cannot be written.
    #[error(transparent)]
    Fault(#[from] Fault),
}
