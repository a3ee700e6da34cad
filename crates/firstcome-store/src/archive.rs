//! What goes out of a store and into another one, row by row, with nothing lost and every rule kept: the rows, and
//! ([`Intake`]) the rules by which they come in, in any store.
//!
//! # Order
//! What a row names comes before it: a coupon before its claims, a room before its tickets, listings before records before
//! bids. Claims come by their serials, tickets by their numbers.

mod auction;
mod intake;
mod room;

pub use intake::{Before, Intake};
pub use room::RoomsBefore;

use crate::embedded::journal::PassSecret;
use crate::error::Fault;
use crate::ticket::TicketKey;
use crate::voucher::{VoucherCode, VoucherKey};
use firstcome_core::auction::{ListingStanding, PlacedBid};
use firstcome_core::coupon::{self, Attributes, CouponSettings, Issued, Serial};
use firstcome_core::id::{CouponName, ListingName, MemberName, RequestId, RoomName, UserId};
use firstcome_core::points::{self, Record};
use firstcome_core::room::{self as core_room, Departure, Join, RoomSettings, TicketNumber};
use firstcome_core::time::Timestamp;

/// A coupon on its way out or in.
#[derive(Clone, Debug)]
pub struct ArchivedCoupon {
    /// Its name.
    pub name: CouponName,
    /// Its settings.
    pub settings: CouponSettings,
    /// The secret of its codes, and from which serial on they are bound to their claims. Of a coupon that came from a version
    /// without such codes: [`VoucherKey::unbound`]. The serials after those that come in have bound codes in any case.
    pub voucher_key: VoucherKey,
    /// When it was deleted, if it was.
    pub deleted_at: Option<Timestamp>,
}

/// A claim on its way out.
#[derive(Clone, Debug)]
pub struct ArchivedClaim {
    /// Of which coupon.
    pub coupon: CouponName,
    /// Place and instant.
    pub issued: Issued,
    /// Whose.
    pub user: UserId,
    /// What it carries.
    pub attributes: Option<Attributes>,
    /// The request that made it, if it carried a key.
    pub request: Option<RequestId>,
    /// When it was redeemed, and by which request, if it was.
    pub redeemed: Option<(Timestamp, Option<RequestId>)>,
    /// Its code, as the coupon's key makes it.
    pub code: VoucherCode,
}

/// A claim that comes in. What is left out is filled in: the next serial.
#[derive(Clone, Debug)]
pub struct IncomingClaim {
    /// Of which coupon.
    pub coupon: CouponName,
    /// Its place, if the source knows it: it must then be the next one.
    pub serial: Option<Serial>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// Whose.
    pub user: UserId,
    /// What it carries.
    pub attributes: Option<Attributes>,
    /// The request that made it.
    pub request: Option<RequestId>,
    /// When it was redeemed, and by which request.
    pub redeemed: Option<(Timestamp, Option<RequestId>)>,
    /// Its code, if the source knows it: it must then be ours.
    pub code: Option<String>,
}

/// A listing on its way out or in.
#[derive(Clone, Debug)]
pub struct ArchivedListing {
    /// All that is known of it, except for the highest bid, which is its last.
    pub standing: ListingStanding,
    /// The request that bought it, if it carried a key.
    pub sale_request: Option<RequestId>,
}

/// A bid on its way out or in.
#[derive(Clone, Debug)]
pub struct ArchivedBid {
    /// Of which listing.
    pub listing: ListingName,
    /// The bid, and what it did.
    pub placed: PlacedBid,
    /// The request that made it, if it carried a key.
    pub request: Option<RequestId>,
}

/// A movement of points on its way out or in. Members are what their records make them.
#[derive(Clone, Debug)]
pub struct ArchivedRecord {
    /// The movement.
    pub record: Record,
    /// The request that made it, if it was one for just this and carried a key.
    pub request: Option<RequestId>,
}

/// A room on its way out or in. Its tickets follow, one for every number from `first` to `drawn`.
#[derive(Clone, Debug)]
pub struct ArchivedRoom {
    /// Its name.
    pub name: RoomName,
    /// Its settings.
    pub settings: RoomSettings,
    /// The secret of its tickets.
    pub ticket_key: TicketKey,
    /// Whether an operator closed it.
    pub is_closed: bool,
    /// Numbers before it are void.
    pub first: u32,
    /// The line has reached all before it.
    pub reached: u32,
    /// The highest number that may have been drawn; `first - 1` if none.
    pub drawn: u32,
    /// The highest admission.
    pub admissions: u64,
}

/// The slot of a ticket on its way out or in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchivedSlot {
    /// Which admission.
    pub admission: u64,
    /// When.
    pub admitted_at: Timestamp,
    /// Whether its pass was minted; else it waits to be taken.
    pub is_taken: bool,
    /// When it ends, by the wall clock.
    pub until: Timestamp,
}

/// A ticket, or several of which nothing is known, on their way out or in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TicketState {
    /// It waits, or is inside.
    Living {
        /// By whom it was drawn.
        join: Join,
        /// When, if that is known.
        joined_at: Option<Timestamp>,
        /// Its slot, if it has one.
        slot: Option<ArchivedSlot>,
    },
    /// It is gone.
    Gone(Departure),
    /// All from this one to the given number were perhaps drawn, and nothing is known of them: a caller that has such a ticket has its
    /// place.
    Lost(TicketNumber),
}

/// A ticket on its way out or in.
#[derive(Clone, Debug)]
pub struct ArchivedTicket {
    /// Of which room.
    pub room: RoomName,
    /// Its number.
    pub number: TicketNumber,
    /// What is known of it.
    pub state: TicketState,
}

/// A room, or the next of its tickets, on its way out.
#[derive(Clone, Debug)]
pub enum ArchivedLine {
    /// A room.
    Room(Box<ArchivedRoom>),
    /// The next ticket of the room before it.
    Ticket(Box<ArchivedTicket>),
}

/// What all nodes of a deployment know and no other caller, or the service of a directory: keys of callers as digests, what signs
/// the handles of locks.
#[derive(Clone, PartialEq, Eq)]
pub struct ArchivedSecret {
    /// Under which name.
    pub name: String,
    /// The secret.
    pub bytes: [u8; 32],
}

impl std::fmt::Debug for ArchivedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArchivedSecret({}, secret)", self.name)
    }
}

/// One row that comes in.
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
    /// A secret of the service.
    Secret(ArchivedSecret),
}

/// Why something cannot come in. Nothing of the whole import is kept then.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A coupon of that name is there already, with other settings, another secret, or claims.
    #[error("coupon {0} is there already and differs")]
    CouponDiffers(CouponName),
    /// A coupon of that name is there already.
    #[error("coupon {0} is there already: import where it is not")]
    CouponThere(CouponName),
    /// A claim of a coupon that is neither there nor came before.
    #[error("there is no coupon {0}: put it first, or import the JSON lines that carry it")]
    UnknownCoupon(CouponName),
    /// The claim breaks a rule.
    #[error("coupon {coupon}, serial {}: {}", serial.get(), damage.as_str())]
    Broken {
        /// Which coupon.
        coupon: CouponName,
        /// Which claim.
        serial: Serial,
        /// Which rule.
        damage: coupon::Damage,
    },
    /// The claim's code was made with another secret: its holder could never redeem it here.
    #[error("coupon {coupon}, serial {}: the code was made with another secret; import the JSON lines, which carry it", serial.get())]
    OtherCode {
        /// Which coupon.
        coupon: CouponName,
        /// Which claim.
        serial: Serial,
    },
    /// The claim was redeemed before it was issued, or, without an instant of its own, before it came in.
    #[error("coupon {coupon}, serial {}: redeemed before it was issued", serial.get())]
    RedeemedTooEarly {
        /// Which coupon.
        coupon: CouponName,
        /// Which claim.
        serial: Serial,
    },
    /// A room of that name is there already, or comes twice.
    #[error("room {0} is there already: import where it is not")]
    RoomThere(RoomName),
    /// A ticket of a room that did not come before.
    #[error("there is no room {0}: it must come before its tickets")]
    UnknownRoom(RoomName),
    /// What stands in the line of a room cannot be.
    #[error("room {room}: {says}")]
    BrokenRoom {
        /// Which room.
        room: RoomName,
        /// What is wrong.
        says: &'static str,
    },
    /// A ticket or its slot breaks a rule.
    #[error("room {room}, number {}: {}", number.get(), damage.as_str())]
    BrokenTicket {
        /// Which room.
        room: RoomName,
        /// Which ticket.
        number: TicketNumber,
        /// Which rule.
        damage: core_room::Damage,
    },
    /// Not all tickets of a room have come.
    #[error("room {room}: tickets up to number {drawn} were drawn, and those from {next} on did not come")]
    TicketsMissing {
        /// Which room.
        room: RoomName,
        /// The first one that is missing.
        next: u32,
        /// The last one that was drawn.
        drawn: u32,
    },
    /// Other secrets sign passes here.
    #[error("there are rooms already, whose passes other secrets sign: import where there are none")]
    PassSecretsDiffer,
    /// Another secret is kept under that name.
    #[error(
        "another {0} is there already: import where no service was started yet, or export coupon by coupon (--coupon), which \
         carries none"
    )]
    SecretDiffers(String),
    /// There are members or listings, and theirs cannot be mixed with others.
    #[error("there are members or listings already: import where there are none")]
    AuctionsThere,
    /// A listing came twice.
    #[error("listing {0} comes twice")]
    ListingTwice(ListingName),
    /// A record or a bid of a listing that did not come before.
    #[error("there is no listing {0}: it must come before its bids and records")]
    UnknownListing(ListingName),
    /// A bid of a member of whom no record came before.
    #[error("there is no member {0}: records must come before bids")]
    UnknownMember(MemberName),
    /// The record is not one that follows those before it.
    #[error("member {member}, record {number}: {}", damage.as_str())]
    BrokenRecord {
        /// Of which member.
        member: MemberName,
        /// Which record.
        number: u64,
        /// What is wrong with it.
        damage: points::Damage,
    },
    /// All of it together breaks an invariant.
    #[error("{invariant}: {example}")]
    AuctionsBroken {
        /// Which invariant.
        invariant: &'static str,
        /// Where.
        example: String,
    },
    /// The store cannot be written.
    #[error(transparent)]
    Fault(#[from] Fault),
}
