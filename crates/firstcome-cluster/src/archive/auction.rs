//! Imports members, listings and bids into a database.

use super::{Import, ROWS_MAX, STATEMENTS_MAX, TransferError};
use firstcome_core::auction::{Bid, ListingStanding, Phase, PlacedBid};
use firstcome_core::id::RequestId;
use firstcome_core::points::{Record, Wallet};
use firstcome_sql::SqlError;
use firstcome_sql::auction::archive::{self, Keyed};
use firstcome_sql::reader::wrong;
use firstcome_store::Fault;
use firstcome_store::archive::ImportError;
use firstcome_store::check::auction::Replay;
use firstcome_store::edge::draw_id;
use firstcome_store::embedded::journal::{Change, RecordsRemoved};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A listing until all its bids have come.
struct Coming {
    id: i64,
    owner: i64,
    standing: ListingStanding,
    highest: Option<(i64, Bid)>,
}

/// What has come of auctions so far.
pub(super) struct IncomingAuctions {
    /// Numbers of members, by name.
    members: BTreeMap<String, i64>,
    /// By the numbers of the import.
    listings: BTreeMap<u32, Coming>,
    /// What the records of each member have led to.
    wallets: BTreeMap<String, Wallet>,
    replay: Option<Replay>,
    /// The number that this import leaves in its rows.
    writer: i64,
}

impl IncomingAuctions {
    pub(super) fn new() -> Result<Self, SqlError> {
        let drawn = draw_id().map_err(|fault: Fault| SqlError::broken(fault.to_string()))?;
        Ok(Self {
            members: BTreeMap::new(),
            listings: BTreeMap::new(),
            wallets: BTreeMap::new(),
            replay: None,
            writer: (drawn >> 1).cast_signed(),
        })
    }
}

/// Changes by their kind, in the order in which they came.
#[derive(Default)]
struct Sorted {
    listings: Vec<(u32, ListingStanding, Option<RequestId>)>,
    records: Vec<(Option<u32>, Record, Option<RequestId>)>,
    bids: Vec<(u32, PlacedBid, Option<RequestId>)>,
    removed: Vec<RecordsRemoved>,
    wallets: Vec<Wallet>,
}

fn sorted(changes: Vec<Change>) -> Sorted {
    let mut sorted = Sorted::default();
    for change in changes {
        match change {
            Change::Listing { id, standing, sale_request } => sorted.listings.push((id.0, *standing, sale_request)),
            Change::Moved { listing, record, request, .. } => {
                sorted.records.push((listing.map(|id| id.0), record, request));
            }
            Change::Bid { id, placed, request, .. } => sorted.bids.push((id.0, placed, request)),
            Change::RecordsRemoved(removed) => sorted.removed.push(*removed),
            Change::Member { wallet, .. } => sorted.wallets.push(*wallet),
            _ => {}
        }
    }
    sorted
}

impl Import {
    /// Writes changes of auctions, and plays them.
    pub(super) async fn auctions(&mut self, changes: Vec<Change>) -> Result<(), TransferError> {
        if changes.is_empty() {
            return Ok(());
        }
        let sorted = sorted(changes);
        let owners = sorted.listings.iter().map(|(_, standing, _)| standing.owner.as_str());
        let named = owners.chain(sorted.records.iter().map(|(_, record, _)| record.member.as_str()));
        let mut fresh: Vec<&str> = named.filter(|name| !self.auctions.members.contains_key(*name)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        for names in fresh.chunks(ROWS_MAX) {
            self.session.run(archive::make_members(names)).await?;
            let rows = self.session.ask(archive::numbers("firstcome_member", names)).await?;
            for row in &rows {
                let (id, name) = archive::number_and_name(row)?;
                self.auctions.members.insert(name, id);
            }
        }
        let mut keyed = Vec::new();
        self.listings(&sorted, &mut keyed).await?;
        self.anchors(&sorted).await?;
        self.records(&sorted, &mut keyed).await?;
        self.bids(&sorted, &mut keyed).await?;
        let dialect = self.session.dialect();
        self.run_all(keyed.chunks(ROWS_MAX).map(|rows| archive::write_requests(dialect, rows))).await?;
        self.wallets(&sorted.wallets).await
    }

    fn member(&self, name: &str) -> Result<i64, SqlError> {
        self.auctions.members.get(name).copied().ok_or_else(|| wrong("a member that was not made"))
    }

    async fn listings(&mut self, sorted: &Sorted, keyed: &mut Vec<Keyed>) -> Result<(), TransferError> {
        for listings in sorted.listings.chunks(ROWS_MAX) {
            let mut rows = Vec::with_capacity(listings.len());
            for (_, standing, _) in listings {
                rows.push((self.member(standing.owner.as_str())?, standing));
            }
            self.session.run(archive::make_listings(&rows)).await?;
            let names: Vec<&str> = listings.iter().map(|(_, standing, _)| standing.name.as_str()).collect();
            let made = self.session.ask(archive::numbers("firstcome_listing", &names)).await?;
            let made: BTreeMap<String, i64> = made
                .iter()
                .map(|row| archive::number_and_name(row).map(|(id, name)| (name, id)))
                .collect::<Result<_, _>>()?;
            let replay = self.auctions.replay.get_or_insert_with(Replay::new);
            for ((owner, _), (number, standing, sale_request)) in rows.into_iter().zip(listings) {
                let id = made.get(standing.name.as_str()).copied();
                let id = id.ok_or_else(|| wrong("a listing that was not made"))?;
                replay.listing((*number).into(), standing.clone());
                if let (Some(request), Phase::Sold(sale)) = (sale_request, &standing.phase) {
                    keyed.push(Keyed { of_listing: true, scope: id, request: *request, number: 0, at: sale.at });
                    replay.key((*number).into(), 0, request.key);
                }
                let coming = Coming { id, owner, standing: standing.clone(), highest: None };
                self.auctions.listings.insert(*number, coming);
            }
        }
        Ok(())
    }

    async fn records(&mut self, sorted: &Sorted, keyed: &mut Vec<Keyed>) -> Result<(), TransferError> {
        for records in sorted.records.chunks(ROWS_MAX) {
            let mut rows = Vec::with_capacity(records.len());
            for (listing, record, request) in records {
                let member = self.member(record.member.as_str())?;
                let listing = listing.and_then(|id| self.auctions.listings.get(&id)).map(|listing| listing.id);
                rows.push((member, listing, record));
                let replay = self.auctions.replay.get_or_insert_with(Replay::new);
                let fresh = || Wallet::empty(record.member.clone());
                let wallet = self.auctions.wallets.entry(record.member.to_string()).or_insert_with(fresh);
                replay.record(wallet, record);
                keyed.extend(request.map(|request| {
                    let number = record.number;
                    Keyed { of_listing: false, scope: member, request, number, at: record.at }
                }));
            }
            let text = archive::write_records(self.session.dialect(), &rows, self.auctions.writer);
            self.session.run(text).await?;
        }
        Ok(())
    }

    /// Writes what takes the place of records that were removed elsewhere: the first record of the member follows.
    async fn anchors(&mut self, sorted: &Sorted) -> Result<(), TransferError> {
        for removed in sorted.removed.chunks(STATEMENTS_MAX) {
            let mut text = String::new();
            for RecordsRemoved { member, anchor, .. } in removed {
                archive::write_anchor(self.session.dialect(), &mut text, self.member(member.as_str())?, anchor);
                let stored = Wallet::anchored(member.clone(), Some(Arc::new(*anchor)));
                let begun = self.auctions.replay.get_or_insert_with(Replay::new).begin(&stored);
                self.auctions.wallets.insert(member.to_string(), begun);
            }
            self.session.run(text).await?;
        }
        Ok(())
    }

    async fn bids(&mut self, sorted: &Sorted, keyed: &mut Vec<Keyed>) -> Result<(), TransferError> {
        for bids in sorted.bids.chunks(ROWS_MAX) {
            let mut rows = Vec::with_capacity(bids.len());
            for (number, placed, request) in bids {
                let member = self.member(placed.bid.bidder.as_str())?;
                let coming = self.auctions.listings.get_mut(number);
                let coming = coming.ok_or_else(|| wrong("a bid of a listing that was not made"))?;
                coming.highest = Some((member, placed.bid.clone()));
                rows.push((coming.id, member, placed));
                if let Some(replay) = &mut self.auctions.replay {
                    replay.bid((*number).into(), placed.bid.clone());
                    if let Some(request) = request {
                        replay.key((*number).into(), placed.bid.number, request.key);
                    }
                }
                keyed.extend(request.map(|request| {
                    let (scope, at) = (coming.id, placed.bid.at);
                    Keyed { of_listing: true, scope, request, number: placed.bid.number.into(), at }
                }));
            }
            self.session.run(archive::write_bids(&rows)).await?;
        }
        Ok(())
    }

    /// What all records have led to.
    async fn wallets(&mut self, wallets: &[Wallet]) -> Result<(), TransferError> {
        for wallets in wallets.chunks(STATEMENTS_MAX) {
            let mut text = String::new();
            for wallet in wallets {
                let name = wallet.member.as_str();
                archive::write_wallet(self.session.dialect(), &mut text, self.member(name)?, wallet);
                let played = self.auctions.wallets.remove(name).unwrap_or_else(|| Wallet::empty(wallet.member.clone()));
                self.auctions.replay.get_or_insert_with(Replay::new).member(&played, wallet);
            }
            if self.session.run(text).await? != wallets.len() as u64 {
                return Err(wrong("a member who has points already").into());
            }
        }
        Ok(())
    }

    /// Writes listings as they are after all bids, and holds all auctions against its invariants.
    pub(super) async fn finish_auctions(&mut self) -> Result<(), TransferError> {
        let broken = self.auctions.replay.take().map(Replay::finish);
        if let Some(check) = broken.into_iter().flatten().find(|check| 0 < check.breaches) {
            let example = check.examples.into_iter().next().unwrap_or_default();
            return Err(ImportError::AuctionsBroken { invariant: check.invariant, example }.into());
        }
        let mut text = String::new();
        let mut count = 0;
        let writer = self.auctions.writer;
        while let Some((_, Coming { id, owner, standing, highest })) = self.auctions.listings.pop_first() {
            let name = standing.name.clone();
            archive::write_listing(&mut text, id, owner, highest, standing, writer).ok_or_else(|| {
                let invariant = "what comes in can be opened again";
                ImportError::AuctionsBroken { invariant, example: format!("listing {name}") }
            })?;
            count += 1;
            if count == STATEMENTS_MAX || self.auctions.listings.is_empty() {
                if self.session.run(std::mem::take(&mut text)).await? != count as u64 {
                    return Err(wrong("a listing that another writer has changed").into());
                }
                count = 0;
            }
        }
        Ok(())
    }
}
