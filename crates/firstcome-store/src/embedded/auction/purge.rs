//! Forgets idempotency keys of bids and purchases, and removes records of members.

use super::AuctionWriter;
use super::published::ShownMember;
use crate::embedded::journal::{ForgottenRequest, MemberId, RecordsRemoved};
use crate::purge::{PAGE_ROWS_MAX, PurgeMode};
use firstcome_core::auction::Phase;
use firstcome_core::time::Timestamp;
use std::sync::Arc;

/// How many keys and listings the writer looks at in one page, beyond the last listing: other commands wait for these.
const LOOKED_MAX: usize = 10_000;

impl AuctionWriter {
    /// Returns requests of bids and purchases that came before `since`, from the listing at this place on, and the place at which
    /// the next page goes on. To remove them, at most a page of them.
    pub(in crate::embedded) fn keys_before(
        &self,
        since: Timestamp,
        place: usize,
        mode: PurgeMode,
    ) -> (Vec<ForgottenRequest>, Option<usize>) {
        let count_max = if mode == PurgeMode::Remove { PAGE_ROWS_MAX } else { usize::MAX };
        let (mut found, mut looked) = (Vec::new(), 0);
        for (at, listing) in self.listings.iter().enumerate().skip(place) {
            if LOOKED_MAX <= looked {
                return (found, Some(at));
            }
            looked += 1 + listing.keyed_bids.len();
            let sale = match &listing.listing.standing().phase {
                Phase::Sold(sale) if listing.sale_request.is_some() && sale.at < since => {
                    Some(ForgottenRequest::Purchase(listing.id))
                }
                _ => None,
            };
            let bids = listing.keyed_bids.values().filter(|(_, placed)| placed.bid.at < since);
            let bids = bids.map(|(_, placed)| ForgottenRequest::Bid(listing.id, placed.bid.number));
            for request in sale.into_iter().chain(bids) {
                if found.len() == count_max {
                    return (found, Some(at));
                }
                found.push(request);
            }
        }
        (found, None)
    }

    /// Whether records of a member may go: it still has this name, the anchor with the number `before`, and no other name before that some
    /// records are chained under.
    pub(in crate::embedded) fn may_remove(&self, removed: &RecordsRemoved, before: u64) -> bool {
        let RecordsRemoved { id, member, anchor } = removed;
        let wallet = self.wallets.members.get(place_of(*id)).map(|known| &known.wallet);
        wallet.is_some_and(|wallet| {
            let begins = wallet.begins_with().number == before;
            let is_whole = wallet.renaming.is_none();
            wallet.member == *member && begins && is_whole && (before + 1..wallet.records).contains(&anchor.number)
        })
    }

    /// Takes removed records into account, after that is durable, and shows it.
    pub(in crate::embedded) fn remove_records(&mut self, removed: &RecordsRemoved) {
        let Some(known) = self.wallets.members.get_mut(place_of(removed.id)) else { return };
        known.wallet.anchor = Some(Arc::new(removed.anchor));
        if let Some(cell) = &known.cell {
            *cell.shown.lock() = ShownMember::of(&known.wallet);
        }
    }

    /// Forgets requests that [`Self::keys_before`] found.
    pub(in crate::embedded) fn forget_requests(&mut self, requests: &[ForgottenRequest]) {
        // They come listing by listing, and the listing with number N has place N - 1.
        for same in requests.chunk_by(|one, other| listing_of(one) == listing_of(other)) {
            let place = same.first().and_then(listing_of).map(|id| (id as usize).wrapping_sub(1));
            let Some(listing) = place.and_then(|place| self.listings.get_mut(place)) else { continue };
            let numbers: std::collections::HashSet<u32> = same
                .iter()
                .filter_map(|request| if let ForgottenRequest::Bid(_, number) = request { Some(*number) } else { None })
                .collect();
            if same.iter().any(|request| matches!(request, ForgottenRequest::Purchase(_))) {
                listing.sale_request = None;
            }
            listing.keyed_bids.retain(|_, (_, placed)| !numbers.contains(&placed.bid.number));
            if 4 * listing.keyed_bids.len() < listing.keyed_bids.capacity() {
                listing.keyed_bids.shrink_to_fit();
            }
        }
    }
}

/// The member with number N has place N - 1.
const fn place_of(id: MemberId) -> usize {
    (id.0 as usize).wrapping_sub(1)
}

const fn listing_of(request: &ForgottenRequest) -> Option<u32> {
    match request {
        ForgottenRequest::Bid(listing, _) | ForgottenRequest::Purchase(listing) => Some(listing.0),
        ForgottenRequest::Coupon(..) | ForgottenRequest::Movement(..) => None,
    }
}
