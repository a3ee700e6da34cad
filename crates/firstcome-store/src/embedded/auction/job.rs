//! Commands about members and listings, and their replies.

use crate::auction::{MovePoints, PlaceBid, Purchase};
use crate::embedded::Reply;
use crate::error::StoreError;
use crate::port::Put;
use firstcome_core::auction::{ListingSettings, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::Balance;
use firstcome_core::revision::Revision;

/// A command about a member or a listing.
pub(in crate::embedded) enum Job {
    Bid(ListingName, PlaceBid, Reply<Effect<PlacedBid>, Rejection>),
    Purchase(ListingName, Purchase, Reply<Effect<Sale>, Rejection>),
    Move(MemberName, MovePoints, Reply<Effect<Balance>, Rejection>),
    Put(ListingName, Box<Revision<ListingSettings>>, Reply<Put, Rejection>),
}

impl Job {
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Bid(_, _, reply) => reply.is_closed(),
            Self::Purchase(_, _, reply) => reply.is_closed(),
            Self::Move(_, _, reply) => reply.is_closed(),
            Self::Put(_, _, reply) => reply.is_closed(),
        }
    }

    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Bid(_, _, reply) => reply.send(Err(error)),
            Self::Purchase(_, _, reply) => reply.send(Err(error)),
            Self::Move(_, _, reply) => reply.send(Err(error)),
            Self::Put(_, _, reply) => reply.send(Err(error)),
        }
    }
}

/// A reply that waits for the commit.
pub(super) enum PendingAuctionReply {
    Bid(Reply<Effect<PlacedBid>, Rejection>, Result<Effect<PlacedBid>, Rejection>),
    Purchase(Reply<Effect<Sale>, Rejection>, Result<Effect<Sale>, Rejection>),
    Move(Reply<Effect<Balance>, Rejection>, Result<Effect<Balance>, Rejection>),
    Put(Reply<Put, Rejection>, Result<Put, Rejection>),
}

impl PendingAuctionReply {
    pub(super) fn send(self) {
        match self {
            Self::Bid(reply, answer) => reply.send(Ok(answer)),
            Self::Purchase(reply, answer) => reply.send(Ok(answer)),
            Self::Move(reply, answer) => reply.send(Ok(answer)),
            Self::Put(reply, answer) => reply.send(Ok(answer)),
        }
    }

    pub(super) fn refuse(self, error: &StoreError) {
        let error = error.clone();
        match self {
            Self::Bid(reply, _) => reply.send(Err(error)),
            Self::Purchase(reply, _) => reply.send(Err(error)),
            Self::Move(reply, _) => reply.send(Err(error)),
            Self::Put(reply, _) => reply.send(Err(error)),
        }
    }
}
