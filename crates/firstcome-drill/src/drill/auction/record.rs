//! What a drill of auctions keeps of every answer, and of the last look at everything.

use crate::drill::clock::RunClock;
use crate::drill::record::Restart;
use std::collections::BTreeMap;

/// An instant on the drill's clock, in microseconds; negative before its start.
pub(crate) type Instant = i64;
/// A person, or a listing, that the drill did not make.
pub(crate) const STRANGER: u32 = u32::MAX;

/// How late bids put the end off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extend {
    pub(crate) window_us: i64,
    pub(crate) by_us: i64,
    pub(crate) max_count: u32,
}

/// What only an auction has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) ends_us: Instant,
    pub(crate) increment: Option<u64>,
    pub(crate) extend: Option<Extend>,
    pub(crate) settle_us: Option<i64>,
}

/// A listing as the drill made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListingRecord {
    pub(crate) owner: u32,
    pub(crate) price: u64,
    pub(crate) starts_us: Instant,
    /// None at a fixed price.
    pub(crate) terms: Option<Terms>,
}

impl ListingRecord {
    /// By so much at least a bid exceeds the one before it.
    pub(crate) fn step(&self) -> u64 {
        self.terms.and_then(|terms| terms.increment).unwrap_or(1)
    }
}

/// Which call changes something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub(crate) enum RequestKind {
    Charge,
    Refund,
    Bid,
    Purchase,
    /// Changes nothing: a look at a listing.
    Look,
}

impl RequestKind {
    pub(crate) const ALL: [Self; 5] = [Self::Charge, Self::Refund, Self::Bid, Self::Purchase, Self::Look];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Bid => "bid",
            Self::Purchase => "purchase",
            Self::Look => "look at listing",
        }
    }
}

/// One wish: a key and a body. However often it is sent, it is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub(crate) what: RequestKind,
    pub(crate) member: u32,
    /// [`STRANGER`] of a charge or a refund.
    pub(crate) listing: u32,
    /// Of a bid 0 until it is sent.
    pub(crate) amount: u64,
    /// Orders with the same key and another body share it.
    pub(crate) key: u32,
}

/// A sale as a person was told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sale {
    pub(crate) buyer: u32,
    pub(crate) price: u64,
    pub(crate) at_us: Instant,
}

/// What the answer was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrillReply {
    /// No answer: the effect may have happened.
    Lost,
    /// The service could not say.
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
    /// Nothing that the API knows for this call.
    Unexpected,
}

/// A bid that was accepted, as its bidder was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AcceptedBid {
    pub(crate) bid: Bid,
    pub(crate) ends_us: Instant,
    pub(crate) fence: u64,
}

impl DrillReply {
    /// Whether a person that hears this asks again, since nothing was decided.
    pub(crate) const fn is_undecided(self) -> bool {
        matches!(self, Self::Lost | Self::Undecided)
    }

    pub(crate) const fn is_effect(self) -> bool {
        matches!(self, Self::Placed(_) | Self::Sold(_) | Self::Moved { .. })
    }
}

/// One request and its answer. Its effect, if it had one, happened somewhere between sent and received.
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

/// Where a listing stands, as it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Scheduled,
    Running,
    Ended,
    Sold,
    Unsold,
    Unknown,
}

/// A look at a listing.
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

/// What kind of movement of points.
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
    /// Each with its name and the number under which it is hashed.
    pub(crate) const ALL: [(Self, &'static str, u8); 7] = [
        (Self::Charge, "CHARGE", 1),
        (Self::Refund, "REFUND", 2),
        (Self::Hold, "HOLD", 3),
        (Self::Release, "RELEASE", 4),
        (Self::Capture, "CAPTURE", 5),
        (Self::Purchase, "PURCHASE", 6),
        (Self::Sold, "SOLD", 7),
    ];

    /// Which way it moves all points, and those that can be spent.
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
    /// The listing, [`STRANGER`] for none.
    pub(crate) listing: u32,
    /// The bid that it is about, 0 for none.
    pub(crate) bid: u32,
    pub(crate) hash: [u8; 32],
}

/// What a member has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Balance {
    pub(crate) total: i64,
    pub(crate) available: i64,
}

/// How members and listings are called.
#[derive(Clone, Default)]
pub(crate) struct Names {
    /// Of this drill alone: the service may have seen others.
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

/// Everything that was heard, and what is there at the end.
#[derive(Clone, Default)]
pub(crate) struct History {
    pub(crate) names: Names,
    /// The wall clock's reading at instant 0.
    pub(crate) start_wall_us: i64,
    /// How far two readings of the same instant may lie apart.
    pub(crate) reading_us: i64,
    pub(crate) listings: Vec<ListingRecord>,
    pub(crate) orders: Vec<Order>,
    /// In the order in which the answers came.
    pub(crate) on_reply: Vec<ReceivedReply>,
    pub(crate) looks: Vec<ListingObservation>,
    pub(crate) restarts: Vec<Restart>,
    /// The last look at each listing.
    pub(crate) last: Vec<ListingObservation>,
    /// The listed bids of each listing.
    pub(crate) bids: Vec<Vec<Bid>>,
    /// The records of each member.
    pub(crate) records: Vec<Vec<Movement>>,
    /// The last balance of each member.
    pub(crate) balances: Vec<Balance>,
    /// Answers that the API does not know, in words: the first ones.
    pub(crate) strange: Vec<String>,
    /// Looks that were answered so. A person that asked for something has heard [`DrillReply::Unexpected`].
    pub(crate) strange_looks: u64,
}

impl History {
    pub(crate) fn new(names: Names, clock: RunClock, listings: Vec<ListingRecord>, orders: Vec<Order>) -> Self {
        Self { names, start_wall_us: clock.start_wall_us(), reading_us: 2_000, listings, orders, ..Self::default() }
    }

    /// What was heard of each order, in the order in which the answers came.
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
