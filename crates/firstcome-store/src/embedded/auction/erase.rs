//! The writer's part of erasures: a member gets another name, and its records are chained again, a page in each turn.
//!
//! The first turn changes the name, and the first page of records and of keys of bids. The rest follows with the ticks of the store,
//! also after a restart. [`PublishedAuctions::is_left`] tells callers when it is done.

use super::published::{LeftName, ShownMember};
use super::wallets::Member;
use super::{AuctionWriter, PublishedAuctions, WriterListing};
use crate::embedded::Judged;
use crate::embedded::journal::{Change, ListingId, MemberErased, MemberId, Rows};
use crate::embedded::writer::Log;
use crate::error::{Fault, FaultKind, StoreError};
use crate::purge::PAGE_ROWS_MAX;
use firstcome_core::auction::{Listing, Phase};
use firstcome_core::erase::{self, Erased, Rejection};
use firstcome_core::id::{MemberName, RequestId};
use firstcome_core::points::Wallet;
use firstcome_core::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// What an erasure changes of members and listings.
pub(in crate::embedded) struct AuctionErasure {
    member: Option<(Renamed, MemberErased)>,
    listings: Vec<ListingErasure>,
}

/// A member of whom not all records are chained again.
pub(super) struct Renamed {
    place: usize,
    /// Bids whose keys are stored.
    bids: Vec<(ListingId, u32)>,
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
            bids.extend(known.keyed_bids_of(member));
            let mut listing = known.listing.clone();
            let is_sold_to = matches!(&listing.standing().phase, Phase::Sold(sale) if sale.buyer == *member);
            if listing.rename(member, pseudonym) {
                let sale_request = known.sale_request.filter(|_| !is_sold_to);
                listings.push(ListingErasure { place, id: known.id, listing, sale_request });
            }
        }
        let member = match place {
            Some(place) => {
                let known = &self.wallets.members[place];
                let renamed = Renamed { place, bids };
                let page = renamed.page(known.id, known.wallet.renamed(pseudonym.clone()), rows)?;
                Some((renamed, MemberErased { before: Some(member.clone()), ..page }))
            }
            None => None,
        };
        Ok(Ok(AuctionErasure { member, listings }))
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
        let Some((renamed, page)) = member else { return erased };
        let MemberErased { id, wallet, .. } = &page;
        (erased.members, erased.records) = (1, wallet.records - wallet.begins_with().number);
        let before = self.wallets.members[renamed.place].wallet.member.clone();
        for known in &mut self.listings {
            known.keyed_bids.retain(|_, (_, placed)| placed.bid.bidder != before);
        }
        self.movements.retain(|_, movement| movement.member != *id);
        self.wallets.places.remove(&before);
        self.wallets.places.insert(wallet.member.clone(), renamed.place);
        if let Some(cell) = names.members.remove(&before) {
            names.members.insert(wallet.member.clone(), cell);
        }
        drop(names);
        self.take_page(page, renamed, auctions);
        erased
    }

    /// Takes a page into account, after it is durable. Keeps what is left for the next one.
    fn take_page(&mut self, page: MemberErased, mut renamed: Renamed, auctions: &PublishedAuctions) {
        let known = &mut self.wallets.members[renamed.place];
        known.wallet = page.wallet;
        if let Some(cell) = &known.cell {
            *cell.shown.lock() = ShownMember::of(&known.wallet);
        }
        if known.wallet.renaming.is_some() {
            renamed.bids.truncate(renamed.bids.len() - page.bids.len());
            self.renamed.push_back(renamed);
        }
        self.show_left(auctions);
    }

    /// Finds the members of whom a process before has not chained all records again, and forgets the keys of their movements. `bids` are
    /// those whose keys are stored.
    pub(super) fn restore_renamed(&mut self, mut bids: HashMap<MemberName, Vec<(ListingId, u32)>>) {
        for (place, Member { id, wallet, .. }) in self.wallets.members.iter().enumerate() {
            if wallet.renaming.is_some() {
                self.movements.retain(|_, movement| movement.member != *id);
                let bids = bids.remove(&wallet.member).unwrap_or_default();
                self.renamed.push_back(Renamed { place, bids });
            }
        }
    }

    /// Shows which names are not wholly erased.
    pub(super) fn show_left(&self, auctions: &PublishedAuctions) {
        let of = |renamed: &Renamed| self.wallets.members[renamed.place].wallet.renaming.as_ref();
        let under_way = self.renamed.iter().map(|renamed| (renamed, None));
        let left = under_way.chain(self.stuck.iter().map(|(renamed, error)| (renamed, Some(error.clone()))));
        let left = left.filter_map(|(renamed, stuck)| Some(LeftName { name: of(renamed)?.before.clone(), stuck }));
        *auctions.left.lock() = left.collect();
    }

    /// Whether there are members of whom a page is due.
    pub(in crate::embedded) fn has_renamed(&self) -> bool {
        !self.renamed.is_empty()
    }

    /// Chains the next page of one member again, in a separate commit. Everything that the writer has decided is durable.
    ///
    /// A member whose rows are damaged is left aside until the next start, and holds up no other one.
    pub(in crate::embedded) fn chain_again(&mut self, log: &mut Log) -> Result<(), StoreError> {
        log.check()?;
        let Some(renamed) = self.renamed.front() else { return Ok(()) };
        let known = &self.wallets.members[renamed.place];
        let page = match renamed.page(known.id, known.wallet.clone(), log.shared.rows.as_ref()) {
            Ok(page) => page,
            Err(error) => {
                let member = &known.wallet.member;
                tracing::error!(%member, %error, "an erasure cannot go on: run `firstcome verify`; the next start tries again");
                let renamed = self.renamed.pop_front();
                self.stuck.extend(renamed.map(|renamed| (renamed, error)));
                self.show_left(log.shared.auctions());
                return Ok(());
            }
        };
        log.commit_all([Change::Erasure, Change::MemberErased(Box::new(page.clone()))])?;
        if let Some(renamed) = self.renamed.pop_front() {
            self.take_page(page, renamed, log.shared.auctions());
        }
        Ok(())
    }
}

impl Renamed {
    /// Makes the next page: keys of bids, and records once no key is left. `wallet` is as it is before.
    fn page(&self, id: MemberId, wallet: Wallet, rows: &dyn Rows) -> Result<MemberErased, StoreError> {
        let left = self.bids.len().saturating_sub(PAGE_ROWS_MAX);
        let mut page =
            MemberErased { id, before: None, wallet, first: 0, chains: Vec::new(), bids: self.bids[left..].to_vec() };
        if let Some(renaming) = page.wallet.renaming.as_ref().filter(|_| left == 0) {
            page.first = renaming.done + 1;
            let records = rows.records(id, renaming.done, PAGE_ROWS_MAX)?;
            page.chains = page.wallet.chain_again(records).map_err(|damage| {
                let says = format!("member {}: {}", page.wallet.member, damage.as_str());
                StoreError::Faulted(Arc::new(Fault::new(FaultKind::Damaged, says)))
            })?;
        }
        Ok(page)
    }
}

impl WriterListing {
    fn keyed_bids_of(&self, bidder: &MemberName) -> impl Iterator<Item = (ListingId, u32)> {
        let keyed = self.keyed_bids.values().filter(|(_, placed)| placed.bid.bidder == *bidder);
        keyed.map(|(_, placed)| (self.id, placed.bid.number))
    }
}
