//! The writer's part of erasures: a member gets another name, and its chain is made again.

use super::published::ShownMember;
use super::{AuctionWriter, PublishedAuctions};
use crate::embedded::Judged;
use crate::embedded::journal::{Change, ListingId, MemberErased, MemberId, Rows};
use crate::error::StoreError;
use firstcome_core::auction::{Listing, Phase};
use firstcome_core::erase::{self, Erased, Rejection};
use firstcome_core::id::{MemberName, RequestId};
use firstcome_core::points::{Chain, Wallet};
use firstcome_core::time::Timestamp;
use std::sync::Arc;

/// How many records one read brings.
const RECORDS_PER_READ: usize = 1_024;

/// What an erasure changes of members and listings.
pub(in crate::embedded) struct AuctionErasure {
    member: Option<(usize, MemberErased)>,
    listings: Vec<ListingErasure>,
}

struct ListingErasure {
    place: usize,
    id: ListingId,
    listing: Listing,
    sale_request: Option<RequestId>,
}

impl AuctionErasure {
    pub(in crate::embedded) fn add_changes(&self, changes: &mut Vec<Change>) {
        changes.extend(self.member.iter().map(|(_, member)| Change::MemberErased(Box::new(member.clone()))));
        changes.extend(self.listings.iter().map(|erased| Change::Listing {
            id: erased.id,
            standing: Box::new(erased.listing.standing().clone()),
            sale_request: erased.sale_request,
        }));
    }
}

impl AuctionWriter {
    /// Judges the erasure of a member, and prepares it. Changes nothing. Everything that the writer has decided is durable.
    pub(in crate::embedded) fn judge_erase(
        &self,
        member: &MemberName,
        pseudonym: &MemberName,
        rows: &dyn Rows,
        now: Timestamp,
    ) -> Judged<AuctionErasure, Rejection> {
        let place = self.wallets.places.get(member).copied();
        let balance = place.map_or_else(Default::default, |place| self.wallets.members[place].wallet.balance);
        let standings = self.listings.iter().map(|listing| listing.listing.standing());
        if let Err(rejection) = erase::judge(member, balance, standings, now) {
            return Ok(Err(rejection));
        }
        let mut listings = Vec::new();
        let mut bids = Vec::new();
        for (place, known) in self.listings.iter().enumerate() {
            let keyed = known.keyed_bids.values().filter(|(_, placed)| placed.bid.bidder == *member);
            bids.extend(keyed.map(|(_, placed)| (known.id, placed.bid.number)));
            let mut listing = known.listing.clone();
            let is_sold_to = matches!(&listing.standing().phase, Phase::Sold(sale) if sale.buyer == *member);
            if listing.rename(member, pseudonym) {
                let sale_request = known.sale_request.filter(|_| !is_sold_to);
                listings.push(ListingErasure { place, id: known.id, listing, sale_request });
            }
        }
        let erased = match place {
            Some(place) => {
                let known = &self.wallets.members[place];
                let anchor = known.wallet.anchor.as_ref().map(|anchor| Arc::new(anchor.renamed(pseudonym)));
                let begun = Wallet::anchored(pseudonym.clone(), anchor.as_ref().map(Arc::clone));
                let chains = chains(known.id, &known.wallet, &begun, rows)?;
                let chain = chains.last().copied().unwrap_or(begun.chain);
                let wallet = Wallet { member: pseudonym.clone(), chain, anchor, ..known.wallet.clone() };
                Some((place, MemberErased { id: known.id, before: member.clone(), wallet, chains, bids }))
            }
            None => None,
        };
        Ok(Ok(AuctionErasure { member: erased, listings }))
    }

    /// Does what [`Self::judge_erase`] prepared, after it is durable, and publishes it.
    pub(in crate::embedded) fn erase(&mut self, erasure: AuctionErasure, auctions: &PublishedAuctions) -> Erased {
        let AuctionErasure { member, listings } = erasure;
        let mut erased = Erased { listings: listings.len() as u64, ..Erased::default() };
        let mut names = auctions.names.write();
        for ListingErasure { place, listing, sale_request, .. } in listings {
            let known = &mut self.listings[place];
            if let Some(cell) = &known.cell {
                *cell.standing.write() = listing.standing().clone();
            }
            (known.listing, known.sale_request) = (listing, sale_request);
        }
        let Some((place, MemberErased { id, before, wallet, chains, .. })) = member else { return erased };
        (erased.members, erased.records) = (1, chains.len() as u64);
        for known in &mut self.listings {
            known.keyed_bids.retain(|_, (_, placed)| placed.bid.bidder != before);
        }
        self.movements.retain(|_, movement| movement.member != id);
        self.wallets.places.remove(&before);
        self.wallets.places.insert(wallet.member.clone(), place);
        if let Some(cell) = names.members.remove(&before) {
            names.members.insert(wallet.member.clone(), cell);
        }
        let known = &mut self.wallets.members[place];
        known.wallet = wallet;
        if let Some(cell) = &known.cell {
            *cell.shown.lock() = ShownMember::of(&known.wallet);
        }
        erased
    }
}

/// Makes the chain of a member's records again, under another name. `begun` is the wallet of that name before the first record.
fn chains(id: MemberId, wallet: &Wallet, begun: &Wallet, rows: &dyn Rows) -> Result<Vec<Chain>, StoreError> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut chain = begun.chain;
    loop {
        let records = rows.records(id, begun.records + chains.len() as u64, RECORDS_PER_READ)?;
        let is_last = records.len() < RECORDS_PER_READ;
        for record in records {
            chain = record.renamed(begun.member.clone(), chain).chain;
            chains.push(chain);
        }
        if is_last {
            assert_eq!(
                begun.records + chains.len() as u64,
                wallet.records,
                "a member has as many records as its wallet says"
            );
            return Ok(chains);
        }
    }
}
