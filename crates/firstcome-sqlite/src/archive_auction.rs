//! Exports the members, listings and bids of a directory.

use super::archive::{Archive, stoppable};
use super::auction;
use firstcome_core::erase::is_pseudonym;
use firstcome_core::id::ListingName;
use firstcome_store::Fault;
use firstcome_store::archive::{ArchivedBid, ArchivedListing, ArchivedRecord};
use firstcome_store::embedded::journal::ListingId;
use std::collections::HashMap;
use std::sync::Arc;

impl Archive {
    /// Returns all listings, in the order of their creation.
    pub fn listings(&self) -> Result<Vec<ArchivedListing>, Fault> {
        let rows = auction::listings(&self.connection)?.into_iter();
        Ok(rows.map(|row| ArchivedListing { standing: row.standing, sale_request: row.sale_request }).collect())
    }

    /// Visits all records in order, member by member in the order of their creation. Stops at the first error of `visit`.
    pub fn for_each_record<E: From<Fault>>(
        &self,
        mut visit: impl FnMut(ArchivedRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        for member in auction::members(&self.connection)? {
            let mut anchor = member.wallet.anchor.as_ref().map(Arc::clone);
            let mut renaming = member.wallet.renaming.as_deref().cloned();
            stoppable(&mut visit, |visit| {
                auction::for_each_record(&self.connection, member.id, &member.wallet.member, |record, request| {
                    // An erasure that is under way is in the export as if it were done.
                    let (record, request) = match &mut renaming {
                        Some(renaming) => (renaming.read(record), None),
                        None => (record, request),
                    };
                    visit(ArchivedRecord { record, request, anchor: anchor.take() })
                })
            })?;
        }
        Ok(())
    }

    /// Visits all bids in order, listing by listing. Stops at the first error of `visit`.
    pub fn for_each_bid<E: From<Fault>>(&self, mut visit: impl FnMut(ArchivedBid) -> Result<(), E>) -> Result<(), E> {
        let names: HashMap<ListingId, ListingName> =
            auction::listings(&self.connection)?.into_iter().map(|row| (row.id, row.standing.name)).collect();
        stoppable(&mut visit, |visit| {
            auction::for_each_bid(&self.connection, |row| {
                let missing = || format!("a bid of a listing {} that does not exist", row.listing.0);
                let listing = names.get(&row.listing).cloned();
                let listing = listing.ok_or_else(|| super::coupon::damaged(missing()))?;
                let request = row.request.filter(|_| !is_pseudonym(row.placed.bid.bidder.as_str()));
                visit(ArchivedBid { listing, placed: row.placed, request })
            })
        })
    }
}
