//! Imports members, listings and bids.

use super::intake::Intake;
use super::{ArchivedBid, ArchivedListing, ArchivedRecord, ImportError};
use crate::embedded::journal::{Change, ListingId, MemberId, RecordsRemoved};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::Wallet;
use std::collections::HashMap;
use std::hash::RandomState;

/// The members and listings imported so far.
pub struct IncomingAuctionRows {
    /// Whether the store had a member or a listing before the import.
    is_there: bool,
    members: HashMap<MemberName, (MemberId, Wallet), RandomState>,
    listings: HashMap<ListingName, ListingId, RandomState>,
}

firstcome_core::debug_by_name!(IncomingAuctionRows);

impl IncomingAuctionRows {
    pub(super) fn new(is_there: bool, hasher: &RandomState) -> Self {
        let (members, listings) = (HashMap::with_hasher(hasher.clone()), HashMap::with_hasher(hasher.clone()));
        Self { is_there, members, listings }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.listings.is_empty()
    }

    /// Returns the balances that all records have led to.
    pub(super) fn balances(&self) -> impl Iterator<Item = Change> {
        self.members.values().map(|(id, wallet)| Change::Member { id: *id, wallet: Box::new(wallet.clone()) })
    }

    fn known_listing(&self, name: &ListingName) -> Result<ListingId, ImportError> {
        self.listings.get(name).copied().ok_or_else(|| ImportError::UnknownListing(name.clone()))
    }
}

impl Intake {
    /// Returns the members and listings imported so far.
    pub const fn auctions(&self) -> &IncomingAuctionRows {
        &self.auctions
    }

    /// Fails if the store had members or listings before: the imported ones cannot be mixed with them.
    const fn begin_auctions(&self) -> Result<(), ImportError> {
        if self.auctions.is_there { Err(ImportError::AuctionsThere) } else { Ok(()) }
    }

    /// Takes a listing. It must come before its bids and its records.
    pub(super) fn listing(&mut self, archived: ArchivedListing) -> Result<(), ImportError> {
        self.begin_auctions()?;
        let ArchivedListing { standing, sale_request } = archived;
        let id = ListingId(self.auctions.listings.len() as u32 + 1);
        if self.auctions.listings.insert(standing.name.clone(), id).is_some() {
            return Err(ImportError::ListingTwice(standing.name));
        }
        self.change(Change::Listing { id, standing: Box::new(standing), sale_request });
        Ok(())
    }

    /// Takes a record. It must be the next one of its member, and its balance and hash must be right.
    pub(super) fn record(&mut self, archived: ArchivedRecord) -> Result<(), ImportError> {
        self.begin_auctions()?;
        let ArchivedRecord { record, request, anchor } = archived;
        let listing = match &record.about {
            Some(about) => Some(self.auctions.known_listing(&about.listing)?),
            None => None,
        };
        let next = MemberId(self.auctions.members.len() as u32 + 1);
        let removed = anchor.as_deref().filter(|_| !self.auctions.members.contains_key(&record.member)).copied();
        let fresh = || (next, Wallet::anchored(record.member.clone(), anchor));
        let (id, wallet) = self.auctions.members.entry(record.member.clone()).or_insert_with(fresh);
        wallet.restore(&record).map_err(|damage| ImportError::BrokenRecord {
            member: record.member.clone(),
            number: record.number,
            damage,
        })?;
        let id = *id;
        if let Some(anchor) = removed {
            let member = record.member.clone();
            self.change(Change::RecordsRemoved(Box::new(RecordsRemoved { id, member, anchor })));
        }
        self.change(Change::Moved { id, listing, record, request });
        Ok(())
    }

    /// Takes a bid, after the records of its member. All bids are checked together at the end.
    pub(super) fn bid(&mut self, archived: ArchivedBid) -> Result<(), ImportError> {
        let ArchivedBid { listing, placed, request } = archived;
        let id = self.auctions.known_listing(&listing)?;
        let bidder = &placed.bid.bidder;
        let Some((member, _)) = self.auctions.members.get(bidder) else {
            return Err(ImportError::UnknownMember(bidder.clone()));
        };
        let member = *member;
        self.change(Change::Bid { id, member, placed, request });
        Ok(())
    }
}
