//! Members, listings and bids out of a directory and into another one.

use super::archive::{Archive, ImportError, Importer};
use super::faults::fault;
use super::{market, verify_market};
use crate::embedded::journal::{Change, ListingId, MemberId};
use crate::error::{Fault, FaultKind};
use firstcome_core::auction::{PlacedBid, Standing};
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Record, Wallet};
use firstcome_core::time::{Now, Steady, Timestamp};
use rusqlite::Connection;
use std::collections::HashMap;

/// A listing on its way out or in.
#[derive(Clone, Debug)]
pub struct ArchivedListing {
    /// All that is known of it, but for the highest bid, which is its last.
    pub standing: Standing,
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

impl Archive {
    /// All listings, in the order in which they were made.
    pub fn listings(&self) -> Result<Vec<ArchivedListing>, Fault> {
        let rows = market::listings(&self.connection)?.into_iter();
        Ok(rows.map(|row| ArchivedListing { standing: row.standing, sale_request: row.sale_request }).collect())
    }

    /// Walks over all records, member by member in the order in which they came. Stops at the first error of the visitor.
    pub fn for_each_record<E: From<Fault>>(
        &self,
        mut visit: impl FnMut(ArchivedRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        for member in market::members(&self.connection)? {
            let mut stopped = None;
            let walked =
                market::for_each_record(&self.connection, member.id, &member.wallet.member, |record, request| {
                    visit(ArchivedRecord { record, request }).map_err(|error| {
                        stopped = Some(error);
                        super::coupon::damaged("stopped by the visitor")
                    })
                });
            if let Some(error) = stopped {
                return Err(error);
            }
            walked?;
        }
        Ok(())
    }

    /// Walks over all bids, listing by listing, in their order. Stops at the first error of the visitor.
    pub fn for_each_bid<E: From<Fault>>(&self, mut visit: impl FnMut(ArchivedBid) -> Result<(), E>) -> Result<(), E> {
        let names: HashMap<ListingId, ListingName> =
            market::listings(&self.connection)?.into_iter().map(|row| (row.id, row.standing.name)).collect();
        let mut stopped = None;
        let walked = market::for_each_bid(&self.connection, |row| {
            let Some(listing) = names.get(&row.listing).cloned() else {
                return Err(super::coupon::damaged(format!(
                    "a bid of a listing {} that does not exist",
                    row.listing.0
                )));
            };
            visit(ArchivedBid { listing, placed: row.placed, request: row.request }).map_err(|error| {
                stopped = Some(error);
                super::coupon::damaged("stopped by the visitor")
            })
        });
        match stopped {
            Some(error) => Err(error),
            None => Ok(walked?),
        }
    }
}

/// What has come in of the market so far.
#[derive(Default)]
pub(super) struct IncomingMarket {
    members: HashMap<MemberName, (MemberId, Wallet)>,
    listings: HashMap<ListingName, ListingId>,
}

impl IncomingMarket {
    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.listings.is_empty()
    }

    /// The balances that all records have led to.
    pub(super) fn balances(&self) -> impl Iterator<Item = Change> {
        self.members.values().map(|(id, wallet)| Change::Member { id: *id, wallet: Box::new(wallet.clone()) })
    }

    /// Checks the whole of it, as a start does and as `verify` does, before it is kept.
    pub(super) fn check(&self, connection: &Connection) -> Result<(), ImportError> {
        if self.is_empty() {
            return Ok(());
        }
        let end_of_time = Now { wall: Timestamp::MAX, steady: Steady::from_us(Timestamp::MAX.as_us()) };
        // First, since what `verify` takes time for is only what a start lets through.
        market::load(connection, end_of_time).map_err(|fault| match fault.kind {
            FaultKind::Damaged => {
                ImportError::MarketBroken { invariant: "what comes in can be opened again", example: fault.detail }
            }
            _ => fault.into(),
        })?;
        let broken = verify_market::check(connection)?.into_iter().find(|check| 0 < check.breaches);
        match broken {
            Some(check) => {
                let example = check.examples.into_iter().next().unwrap_or_default();
                Err(ImportError::MarketBroken { invariant: check.invariant, example })
            }
            None => Ok(()),
        }
    }
}

impl Importer {
    /// Members and listings belong together and cannot be mixed with others.
    fn begin_market(&self) -> Result<(), ImportError> {
        if !self.market.is_empty() {
            return Ok(());
        }
        let query = "SELECT EXISTS (SELECT 1 FROM member) OR EXISTS (SELECT 1 FROM listing)";
        let there = self.connection.query_row(query, [], |row| row.get::<_, bool>(0));
        let there = there.map_err(|error| fault(&error, "cannot read"))?;
        // What has come in is written in parts, so this is asked before the first one alone.
        if there { Err(ImportError::MarketThere) } else { Ok(()) }
    }

    /// Takes a listing, before its bids and before records that are about it. There must be no other market in the directory.
    pub fn listing(&mut self, archived: ArchivedListing) -> Result<(), ImportError> {
        self.begin_market()?;
        let ArchivedListing { standing, sale_request } = archived;
        let id = ListingId(self.market.listings.len() as u32 + 1);
        if self.market.listings.insert(standing.name.clone(), id).is_some() {
            return Err(ImportError::ListingTwice(standing.name));
        }
        self.change(Change::Listing { id, standing: Box::new(standing), sale_request })
    }

    /// Takes a record. It must be the next of its member, and lead to the balance and the hash that it says.
    pub fn record(&mut self, archived: ArchivedRecord) -> Result<(), ImportError> {
        self.begin_market()?;
        let ArchivedRecord { record, request } = archived;
        let listing = match &record.about {
            Some(about) => Some(self.known_listing(&about.listing)?),
            None => None,
        };
        let next = MemberId(self.market.members.len() as u32 + 1);
        let fresh = || (next, Wallet::empty(record.member.clone()));
        let (id, wallet) = self.market.members.entry(record.member.clone()).or_insert_with(fresh);
        wallet.restore(&record).map_err(|damage| ImportError::BrokenRecord {
            member: record.member.clone(),
            number: record.number,
            damage,
        })?;
        let id = *id;
        self.change(Change::Moved { id, listing, record, request })
    }

    /// Takes a bid, after the records of its member. All bids are checked together at the end.
    pub fn bid(&mut self, archived: ArchivedBid) -> Result<(), ImportError> {
        let ArchivedBid { listing, placed, request } = archived;
        let id = self.known_listing(&listing)?;
        let bidder = &placed.bid.bidder;
        let Some((member, _)) = self.market.members.get(bidder) else {
            return Err(ImportError::UnknownMember(bidder.clone()));
        };
        let member = *member;
        self.change(Change::Bid { id, member, placed, request })
    }

    fn known_listing(&self, name: &ListingName) -> Result<ListingId, ImportError> {
        self.market.listings.get(name).copied().ok_or_else(|| ImportError::UnknownListing(name.clone()))
    }
}
