//! The rows of members, listings, bids and movements as the disk keeps them.

use crate::journal::Tables;
use firstcome_core::auction::{Bid, ListingStanding, PlacedBid};
use firstcome_core::id::RequestId;
use firstcome_core::points::{Record, Wallet};
use firstcome_store::embedded::journal::{Change, ListingId, MemberId};
use std::collections::BTreeMap;

/// The row of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingRow {
    /// How it stands.
    pub standing: ListingStanding,
    /// The request that bought it.
    pub sale_request: Option<RequestId>,
}

/// The row of a bid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BidRow {
    /// Whose.
    pub member: MemberId,
    /// The bid.
    pub placed: PlacedBid,
    /// The request.
    pub request: Option<RequestId>,
}

/// The row of a movement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordRow {
    /// About what.
    pub listing: Option<ListingId>,
    /// The movement.
    pub record: Record,
    /// The request.
    pub request: Option<RequestId>,
}

/// Everything that is stored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stored {
    /// What each member has.
    pub members: BTreeMap<MemberId, Wallet>,
    /// How each listing stands.
    pub listings: BTreeMap<ListingId, ListingRow>,
    /// The bids.
    pub bids: BTreeMap<(ListingId, u32), BidRow>,
    /// The movements.
    pub records: BTreeMap<(MemberId, u64), RecordRow>,
}

impl Tables for Stored {
    fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::Bid { id, member, placed, request } => {
                self.bids.insert((id, placed.bid.number), BidRow { member, placed, request });
            }
            Change::Moved { id, listing, record, request } => {
                self.records.insert((id, record.number), RecordRow { listing, record, request });
            }
            Change::Member { id, wallet } => {
                self.members.insert(id, *wallet);
            }
            Change::Listing { id, standing, sale_request } => {
                self.listings.insert(id, ListingRow { standing: *standing, sale_request });
            }
            // The world of auctions has nothing else.
            _ => {}
        }
    }

    fn bids(&self, listing: ListingId, after: u32, count: usize) -> Vec<Bid> {
        let later = self.bids.range((listing, after.saturating_add(1))..=(listing, u32::MAX));
        later.take(count).map(|(_, row)| row.placed.bid.clone()).collect()
    }

    fn records(&self, member: MemberId, after: u64, count: usize) -> Vec<Record> {
        let later = self.records.range((member, after.saturating_add(1))..=(member, u64::MAX));
        later.take(count).map(|(_, row)| row.record.clone()).collect()
    }
}
