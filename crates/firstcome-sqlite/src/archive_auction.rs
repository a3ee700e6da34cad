//! Exports the members, listings and bids of a directory.

use super::archive::{Archive, stoppable};
use super::auction;
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
            stoppable(&mut visit, |visit| {
                auction::for_each_record(&self.connection, member.id, &member.wallet.member, |record, request| {
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
                visit(ArchivedBid { listing, placed: row.placed, request: row.request })
            })
        })
    }
}
