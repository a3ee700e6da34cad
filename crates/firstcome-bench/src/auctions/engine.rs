//! Bids through [`AuctionStore`]: on the embedded store, and on the database adapter that combines bids.

use super::audit::{AuditedWallet, Entry, Facts};
use super::hot::{BidOutcome, Bidding, PlacedOnHot, Run};
use anyhow::{Context, anyhow, bail};
use firstcome::core::auction::{Bid, ListingSettings};
use firstcome::core::coupon::Effect;
use firstcome::core::id::{ListingName, MemberName};
use firstcome::core::points::{Amount, Record};
use firstcome::core::time::Timestamp;
use firstcome::{AuctionStore, MovePoints, Numbered, PlaceBid, StoreError, Transfer};
use std::future::Future;

/// The points of every bidder at first: more than any price of a run.
pub(super) const POINTS: u64 = 1_000_000_000_000;
/// How many rows are read at a time.
const PAGE: usize = 10_000;

/// One auction in a store.
pub(super) struct Auction<S> {
    pub(super) store: S,
    listing: ListingName,
    bidders: Vec<MemberName>,
}

pub(super) fn member(text: &str) -> anyhow::Result<MemberName> {
    MemberName::parse(text).map_err(|error| anyhow!("{error}"))
}

/// Returns the names of this auction's bidders, which bid in no other auction.
pub(super) fn bidders(listing: &str, count: usize) -> anyhow::Result<Vec<MemberName>> {
    (0..count).map(|bidder| member(&format!("{listing}-{bidder:05}"))).collect()
}

impl<S: AuctionStore> Auction<S> {
    /// Creates an auction that never ends, and bidders with enough points.
    pub(super) async fn open(store: S, listing: &str, count: usize) -> anyhow::Result<Self> {
        let bidders = bidders(listing, count)?;
        let listing = ListingName::parse(listing).map_err(|error| anyhow!("{error}"))?;
        let price = Amount::new(1).context("a price")?;
        let settings = ListingSettings::auction(member("seller")?, price, Timestamp::MAX);
        store.put_listing(&listing, settings).await?.map_err(|rejection| anyhow!("{}", rejection.code()))?;
        let charge =
            MovePoints { transfer: Transfer::Charge, amount: Amount::new(POINTS).context("points")?, request: None };
        for bidder in &bidders {
            let moved = store.move_points(bidder, charge.clone()).await?;
            moved.map_err(|rejection| anyhow!("{}", rejection.code()))?;
        }
        Ok(Self { store, listing, bidders })
    }

    /// Returns an existing auction.
    pub(super) fn at(store: S, listing: &str, count: usize) -> anyhow::Result<Self> {
        let bidders = bidders(listing, count)?;
        let listing = ListingName::parse(listing).map_err(|error| anyhow!("{error}"))?;
        Ok(Self { store, listing, bidders })
    }

    fn placed(&self, bid: &Bid) -> PlacedOnHot {
        // An unknown bidder gets an index beyond all others, so that the audit notices it.
        let bidder = self.bidders.binary_search(&bid.bidder).unwrap_or(self.bidders.len());
        PlacedOnHot { number: bid.number, bidder, price: bid.price.get() }
    }

    /// Reads the stored bids and wallets, together with the answers of the run.
    pub(super) async fn facts(&self, run: &Run) -> anyhow::Result<Facts> {
        let view = self.store.listing(&self.listing).await?.map_err(|rejection| anyhow!("{}", rejection.code()))?;
        let highest = view.standing.highest.as_ref().map(|bid| self.placed(bid));
        let bids = pages(async |after| {
            let page = self.store.bids(&self.listing, after, PAGE).await?;
            page.map_err(|rejection| anyhow!("{}", rejection.code()))
        });
        let placed = bids.await?.iter().map(|bid| self.placed(bid)).collect();
        let mut wallets = Vec::new();
        for bidder in &self.bidders {
            let balance = self.store.balance(bidder).await?;
            let records = pages(async |after| Ok(self.store.records(bidder, after, PAGE).await?)).await?;
            wallets.push(AuditedWallet {
                total: balance.total().cast_signed(),
                held: balance.held().cast_signed(),
                records: records.iter().map(entry).collect(),
            });
        }
        Ok(Facts {
            points: POINTS.cast_signed(),
            accepted: run.accepted,
            told: run.placed.clone(),
            may_be_done: run.may_be_done,
            bids: view.standing.bids.into(),
            highest: highest.map(|bid| (bid.bidder, bid.price.cast_signed())),
            placed,
            wallets,
        })
    }
}

fn entry(record: &Record) -> Entry {
    Entry {
        number: record.number.cast_signed(),
        kind: Some(record.kind),
        amount: record.amount.get().cast_signed(),
        bid: record.about.as_ref().and_then(|about| about.bid),
        total: record.balance.total().cast_signed(),
        held: record.balance.held().cast_signed(),
    }
}

async fn pages<T>(mut page: impl AsyncFnMut(Option<u64>) -> anyhow::Result<Numbered<T>>) -> anyhow::Result<Vec<T>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Numbered { items, next, removed_to } = page(after).await?;
        if 0 < removed_to {
            bail!("records were removed, which an audit needs");
        }
        if items.is_empty() && next.is_some() {
            bail!("a page without items has a next one");
        }
        all.extend(items);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

impl<S: AuctionStore + 'static> Bidding for Auction<S> {
    fn place(&self, bidder: usize, price: u64) -> impl Future<Output = BidOutcome> + Send {
        let bid =
            Amount::new(price).map(|price| PlaceBid { bidder: self.bidders[bidder].clone(), price, request: None });
        async move {
            let Some(bid) = bid else {
                return BidOutcome::Failed { may_be_done: false, says: "prices end here".into() };
            };
            match self.store.place_bid(&self.listing, bid).await {
                Ok(Ok(placed)) => {
                    BidOutcome::Accepted(PlacedOnHot { number: Effect::into_inner(placed).bid.number, bidder, price })
                }
                Ok(Err(_)) => BidOutcome::Refused,
                Err(error) => {
                    let may_be_done = matches!(error, StoreError::Unknown);
                    BidOutcome::Failed { may_be_done, says: error.to_string() }
                }
            }
        }
    }
}
