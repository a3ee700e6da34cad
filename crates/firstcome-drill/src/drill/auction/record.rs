//! The history of an auction drill: every answer, and the state at the end.

use crate::drill::clock::RunClock;
use crate::drill::record::Restart;
use std::collections::BTreeMap;

/// An instant on the drill's clock, in microseconds; negative before its start.
pub(crate) type Instant = i64;
/// A member, or a listing, that the drill did not create.
pub(crate) const STRANGER: u32 = u32::MAX;

/// How late bids put the end off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extend {
    pub(crate) window_us: i64,
    pub(crate) by_us: i64,
    pub(crate) max_count: u32,
}

/// The terms that only an auction has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) ends_us: Instant,
    pub(crate) increment: Option<u64>,
    pub(crate) extend: Option<Extend>,
    pub(crate) settle_us: Option<i64>,
}

/// A listing as the drill created it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListingRecord {
    pub(crate) owner: u32,
    pub(crate) price: u64,
    pub(crate) starts_us: Instant,
    /// Absent at a fixed price.
    pub(crate) terms: Option<Terms>,
}

impl ListingRecord {
    /// Returns how much a bid must exceed the one before it.
    pub(crate) fn step(&self) -> u64 {
        self.terms.and_then(|terms| terms.increment).unwrap_or(1)
    }
}

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub(crate) enum RequestKind {
    Charge,
    Refund,
    Bid,
    Purchase,
    /// Changes nothing: reads a listing.
    View,
}

impl RequestKind {
    pub(crate) const ALL: [Self; 5] = [Self::Charge, Self::Refund, Self::Bid, Self::Purchase, Self::View];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Bid => "bid",
            Self::Purchase => "purchase",
            Self::View => "look at listing",
        }
    }
}

/// One request with its key and body. Every repeat sends the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub(crate) what: RequestKind,
    pub(crate) member: u32,
    /// [`STRANGER`] for a charge or a refund.
    pub(crate) listing: u32,
    /// 0 for a bid that was not sent yet.
    pub(crate) amount: u64,
    /// The key's number. Orders that send another body under the same key share it.
    pub(crate) key: u32,
}

/// A sale as an answer told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sale {
    pub(crate) buyer: u32,
    pub(crate) price: u64,
    pub(crate) at_us: Instant,
}

/// The parsed answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrillReply {
    /// No answer came: the effect may have happened.
    Lost,
    /// The service did not know the outcome.
    Undecided,
    Placed(AcceptedBid),
    Sold(Sale),
    Moved {
        total: u64,
        available: u64,
    },
    OwnListing,
    NotInProgress,
    AlreadyHighest,
    TooLow(u64),
    Insufficient(u64),
    NotEnded(Instant),
    NotWinner,
    AlreadySold(Sale),
    SettlementExpired(Instant),
    KeyReused,
    /// An answer that the API does not allow for this call.
    Unexpected,
}

/// An accepted bid, as its bidder was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AcceptedBid {
    pub(crate) bid: Bid,
    pub(crate) ends_us: Instant,
    pub(crate) fence: u64,
}

impl DrillReply {
    /// Whether the outcome is unknown, so that the sender asks again.
    pub(crate) const fn is_undecided(self) -> bool {
        matches!(self, Self::Lost | Self::Undecided)
    }

    pub(crate) const fn is_effect(self) -> bool {
        matches!(self, Self::Placed(_) | Self::Sold(_) | Self::Moved { .. })
    }
}

/// One request and its answer. Its effect, if it had one, happened between sent and received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedReply {
    pub(crate) order: u32,
    pub(crate) sent_us: Instant,
    pub(crate) received_us: Instant,
    pub(crate) told: DrillReply,
}

/// An accepted bid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bid {
    pub(crate) number: u32,
    pub(crate) bidder: u32,
    pub(crate) price: u64,
    pub(crate) at_us: Instant,
}

/// The state of a listing as the service shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Scheduled,
    Running,
    Ended,
    Sold,
    Unsold,
    Unknown,
}

/// A read of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListingObservation {
    pub(crate) listing: u32,
    pub(crate) sent_us: Instant,
    pub(crate) received_us: Instant,
    pub(crate) state: State,
    pub(crate) bids: u32,
    pub(crate) highest: Option<Bid>,
    pub(crate) ends_us: Option<Instant>,
    pub(crate) version: u64,
    pub(crate) sale: Option<Sale>,
}

/// The kind of a movement of points.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Charge,
    Refund,
    Hold,
    Release,
    Capture,
    Purchase,
    Sold,
}

impl Kind {
    /// All kinds, each with its name and the number that its hash covers.
    pub(crate) const ALL: [(Self, &'static str, u8); 7] = [
        (Self::Charge, "CHARGE", 1),
        (Self::Refund, "REFUND", 2),
        (Self::Hold, "HOLD", 3),
        (Self::Release, "RELEASE", 4),
        (Self::Capture, "CAPTURE", 5),
        (Self::Purchase, "PURCHASE", 6),
        (Self::Sold, "SOLD", 7),
    ];

    /// The signs of the change of the total, and of the spendable points.
    pub(crate) const fn signs(self) -> (i64, i64) {
        match self {
            Self::Charge | Self::Sold => (1, 1),
            Self::Refund | Self::Purchase => (-1, -1),
            Self::Hold => (0, -1),
            Self::Release | Self::Capture => (0, 1),
        }
    }
}

/// One record of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Movement {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) total_delta: i64,
    pub(crate) available_delta: i64,
    pub(crate) at_us: Instant,
    /// The listing, or [`STRANGER`] for none.
    pub(crate) listing: u32,
    /// The bid that it is about, or 0 for none.
    pub(crate) bid: u32,
    pub(crate) hash: [u8; 32],
}

/// The balance of a member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Balance {
    pub(crate) total: i64,
    pub(crate) available: i64,
}

/// The names of members and listings.
#[derive(Clone, Default)]
pub(crate) struct Names {
    /// Unique to this drill: the service may have seen others.
    pub(crate) prefix: String,
    pub(crate) members: u32,
    pub(crate) listings: u32,
}

impl Names {
    pub(crate) fn member(&self, member: u32) -> String {
        format!("{}-m{member}", self.prefix)
    }

    pub(crate) fn listing(&self, listing: u32) -> String {
        format!("{}-l{listing}", self.prefix)
    }

    fn number(&self, name: &str, sort: char, end: u32) -> u32 {
        let number = name.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_prefix('-')?.strip_prefix(sort));
        number.and_then(|number| number.parse().ok()).filter(|number| *number < end).unwrap_or(STRANGER)
    }

    pub(crate) fn member_of(&self, name: &str) -> u32 {
        self.number(name, 'm', self.members)
    }

    pub(crate) fn listing_of(&self, name: &str) -> u32 {
        self.number(name, 'l', self.listings)
    }
}

/// All answers, and the state at the end.
#[derive(Clone, Default)]
pub(crate) struct History {
    pub(crate) names: Names,
    /// The wall clock's reading at instant 0.
    pub(crate) start_wall_us: i64,
    /// How far two readings of the same instant may differ.
    pub(crate) reading_us: i64,
    pub(crate) listings: Vec<ListingRecord>,
    pub(crate) orders: Vec<Order>,
    /// The answers in order of arrival.
    pub(crate) on_reply: Vec<ReceivedReply>,
    pub(crate) looks: Vec<ListingObservation>,
    pub(crate) restarts: Vec<Restart>,
    /// The last read of each listing.
    pub(crate) last: Vec<ListingObservation>,
    /// The listed bids of each listing.
    pub(crate) bids: Vec<Vec<Bid>>,
    /// The records of each member.
    pub(crate) records: Vec<Vec<Movement>>,
    /// The last balance of each member.
    pub(crate) balances: Vec<Balance>,
    /// The text of the first answers that the API does not allow.
    pub(crate) strange: Vec<String>,
    /// The number of reads with such an answer. Such an answer to an order is recorded as [`DrillReply::Unexpected`].
    pub(crate) strange_looks: u64,
}

impl History {
    pub(crate) fn new(names: Names, clock: RunClock, listings: Vec<ListingRecord>, orders: Vec<Order>) -> Self {
        Self { names, start_wall_us: clock.start_wall_us(), reading_us: 2_000, listings, orders, ..Self::default() }
    }

    /// Returns the answers to each order, in order of arrival.
    pub(crate) fn by_order(&self) -> BTreeMap<u32, Vec<&ReceivedReply>> {
        let mut on_reply: BTreeMap<u32, Vec<&ReceivedReply>> = BTreeMap::new();
        for one in &self.on_reply {
            on_reply.entry(one.order).or_default().push(one);
        }
        on_reply
    }

    pub(crate) fn order(&self, on_reply: &ReceivedReply) -> &Order {
        &self.orders[on_reply.order as usize]
    }
}
