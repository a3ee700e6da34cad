//! What the members of auctions ask and what they are told.
//!
//! Events of the disk are numbered among those of clients. The clock stands still over many events.

use super::workload::Auctions;
use crate::history::{self, Kind, Vocabulary};
use firstcome_core::auction::{Bid, ListingSettings, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Balance, Record};
use firstcome_store::{ListingView, MovePoints, Numbered, PlaceBid, Purchase, Put, Transfer};

/// One operation of one client.
pub type Operation = history::Operation<Auctions>;

/// All operations of one run.
pub type History = history::History<Auctions>;

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

impl Kind for Command {
    fn kind(&self) -> &'static str {
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

impl Kind for AuctionReply {
    fn kind(&self) -> &'static str {
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

impl Vocabulary for Auctions {
    type Name = ();
    type Command = Command;
    type Reply = AuctionReply;
    type Marks = ();
}
