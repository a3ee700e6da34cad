//! What the members of auctions asked and what they were told.
//!
//! Events are numbered in the order in which they happened, those of the disk among them, so "before" is a comparison
//! of two numbers. The clock stands still over many events. An operation without a told answer may take effect until
//! its store's life ends.

use firstcome_core::auction::{Bid, ListingSettings, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Balance, Record};
use firstcome_core::time::Timestamp;
use firstcome_store::{ListingView, MovePoints, Numbered, PlaceBid, Purchase, Put, Transfer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of an event; later events have larger ones.
pub type Event = u64;

/// The place of an operation in the history.
pub type OperationId = usize;

/// Numbers events, those of clients and those of the disk.
#[derive(Clone, Default)]
pub struct Events(Arc<AtomicU64>);

impl Events {
    /// The number of an event that happens now.
    pub fn next(&self) -> Event {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Command {
    /// A seller makes a listing, or changes its settings.
    Put(ListingName, Box<ListingSettings>),
    /// Anybody looks at a listing.
    View(ListingName),
    /// Anybody reads bids: after which, and how many.
    Bids(ListingName, Option<u64>, usize),
    /// A member bids.
    Bid(ListingName, PlaceBid),
    /// A member buys, or settles.
    Purchase(ListingName, Purchase),
    /// Points come in or go out.
    Move(MemberName, MovePoints),
    /// Anybody looks at a balance.
    Balance(MemberName),
    /// Anybody reads records: after which, and how many.
    Records(MemberName, Option<u64>, usize),
    /// The clockwork closes what is due.
    CloseDue,
}

impl Command {
    /// The kind of command, for tables.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Put(..) => "listing put",
            Self::View(_) => "listing",
            Self::Bids(..) => "bids",
            Self::Bid(..) => "bid",
            Self::Purchase(..) => "purchase",
            Self::Move(_, MovePoints { transfer: Transfer::Charge, .. }) => "charge",
            Self::Move(_, MovePoints { transfer: Transfer::Refund, .. }) => "refund",
            Self::Balance(_) => "balance",
            Self::Records(..) => "records",
            Self::CloseDue => "close due",
        }
    }
}

/// An answer that reached its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuctionReply {
    /// The settings are in force.
    Put(Put),
    /// The listing as everybody sees it.
    View(Box<ListingView>),
    /// Bids in their order.
    Bids(Numbered<Bid>),
    /// The bid is accepted.
    Placed(Effect<PlacedBid>),
    /// The thing is bought.
    Bought(Effect<Sale>),
    /// Points have moved, and led to this.
    Moved(Effect<Balance>),
    /// What a member has.
    Balance(Balance),
    /// Records in their order.
    Records(Numbered<Record>),
    /// What was due is closed.
    Closed,
    /// A rule refused.
    Refused(Rejection),
}

impl AuctionReply {
    /// The answer in a word, for tables.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Put(Put::Created) => "created",
            Self::Put(Put::Replaced) => "replaced",
            Self::View(view) => view.standing.state(view.now).as_str(),
            Self::Placed(Effect::New(_)) | Self::Bought(Effect::New(_)) | Self::Moved(Effect::New(_)) => "accepted",
            Self::Placed(Effect::Again(_)) | Self::Bought(Effect::Again(_)) | Self::Moved(Effect::Again(_)) => {
                "repeated"
            }
            Self::Bids(Numbered { next, .. }) => page_kind(*next),
            Self::Records(Numbered { next, .. }) => page_kind(*next),
            Self::Balance(_) | Self::Closed => "done",
            Self::Refused(rejection) => rejection.code(),
        }
    }
}

const fn page_kind(next: Option<u64>) -> &'static str {
    if next.is_some() { "a page" } else { "to the end" }
}

/// What became of an operation, as far as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No answer yet.
    Pending,
    /// The store answered.
    Told(AuctionReply),
    /// The store said that nothing was done.
    NotDone,
    /// It may have been done or not.
    Unknown,
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What was asked.
    pub command: Command,
    /// What came back.
    pub outcome: Outcome,
    /// When it was asked.
    pub asked: Event,
    /// After this event it has no effect any more: its answer, or the end of the store's life. `None`: not yet.
    pub ended: Option<Event>,
    /// The clock when it was asked.
    pub asked_at: Timestamp,
    /// The clock when it ended.
    pub ended_at: Timestamp,
}

impl Operation {
    /// The answer, if one came.
    pub const fn told(&self) -> Option<&AuctionReply> {
        match &self.outcome {
            Outcome::Told(told) => Some(told),
            _ => None,
        }
    }

    /// When it was answered, or could last have had an effect.
    pub fn end(&self) -> Event {
        self.ended.unwrap_or(Event::MAX)
    }

    /// Whether it may have had an effect that no client knows of.
    pub const fn is_unclear(&self) -> bool {
        matches!(self.outcome, Outcome::Pending | Outcome::Unknown)
    }

    /// Whether something that came into force in this event came between question and answer.
    pub fn spans(&self, event: Event) -> bool {
        self.asked < event && event < self.end()
    }
}

/// All operations of one run.
#[derive(Default)]
pub struct History {
    operations: Vec<Operation>,
    events: Events,
}

impl History {
    /// What numbers its events, to be shared with the disk.
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    /// All operations, in the order in which they were asked.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// A client asks.
    pub fn ask(&mut self, command: Command, now: Timestamp) -> OperationId {
        let (outcome, asked) = (Outcome::Pending, self.events.next());
        let operation = Operation { command, outcome, asked, ended: None, asked_at: now, ended_at: Timestamp::MAX };
        self.operations.push(operation);
        self.operations.len() - 1
    }

    /// A client is answered, or goes away.
    pub fn answer(&mut self, id: OperationId, outcome: Outcome, now: Timestamp) {
        let event = self.events.next();
        let operation = &mut self.operations[id];
        assert_eq!(operation.outcome, Outcome::Pending, "an operation has one answer");
        // Of an unclear one the end comes with the life.
        if !matches!(outcome, Outcome::Unknown) {
            (operation.ended, operation.ended_at) = (Some(event), now);
        }
        operation.outcome = outcome;
    }

    /// The process is gone: nothing of it takes effect any more.
    pub fn end_life(&mut self, now: Timestamp) {
        let event = self.events.next();
        for operation in self.operations.iter_mut().filter(|operation| operation.ended.is_none()) {
            (operation.ended, operation.ended_at) = (Some(event), now);
            operation.outcome = Outcome::Unknown;
        }
    }
}
