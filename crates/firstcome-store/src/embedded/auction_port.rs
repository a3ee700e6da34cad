//! The port for auctions, purchases and points over the embedded store.

use super::auction::{Job, ListingCell};
use super::{Command, Embedded, Reply, blocking};
use crate::auction::{AuctionAnswer, AuctionStore, Closings, ListingView, MovePoints, Numbered, PlaceBid, Purchase};
use crate::error::StoreError;
use crate::names::Names;
use crate::port::Put;
use firstcome_core::auction::{Bid, ListingSettings, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Balance, Record};
use firstcome_core::revision::Revision;
use std::sync::Arc;

impl Embedded {
    async fn trade<T>(&self, job: impl FnOnce(Reply<T, Rejection>) -> Job) -> AuctionAnswer<T> {
        let (reply, answer) = Reply::pair();
        self.ask(Command::Auctions(job(reply)), answer).await
    }

    fn listing_cell(&self, listing: &ListingName) -> Result<Arc<ListingCell>, Rejection> {
        self.inner.shared.auctions().listing(listing.as_str()).ok_or(Rejection::UnknownListing)
    }

    /// How many listings and members there are.
    pub fn auction_counts(&self) -> (usize, usize) {
        self.inner.shared.auctions().counts()
    }
}

/// Makes a page from items that were read with one more than `count`.
fn page<T>(mut items: Vec<T>, count: usize, number: impl Fn(&T) -> u64) -> Numbered<T> {
    let more = count < items.len();
    items.truncate(count);
    let next = items.last().filter(|_| more).map(number);
    Numbered { items, next, removed_to: 0 }
}

impl AuctionStore for Embedded {
    async fn put_listing(
        &self,
        listing: &ListingName,
        revision: impl Into<Revision<ListingSettings>> + Send,
    ) -> AuctionAnswer<Put> {
        let (listing, revision) = (listing.clone(), Box::new(revision.into()));
        self.trade(|reply| Job::Put(listing, revision, reply)).await
    }

    async fn listing(&self, listing: &ListingName) -> AuctionAnswer<ListingView> {
        let cell = match self.listing_cell(listing) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        // Read before the standing, which is then at least as new.
        let (judged_at, now) = (self.inner.shared.auctions().judged_at(), self.now());
        let mut standing = cell.standing();
        // The state has changed by time since the writer last decided, and the writer may be about to commit earlier
        // changes. One turn of the writer is enough, however many auctions are left to close. If the writer has
        // stopped, and the outcome of all its commits is known, time decides on the durable state. Otherwise this read
        // has no reply.
        if standing.state(now) != standing.state(judged_at) {
            let (reply, answer) = Reply::pair();
            if let Err(error) = self.ask(Command::Tick(None, reply), answer).await
                && !self.inner.shared.is_settled()
            {
                return Err(error);
            }
            standing = cell.standing();
        }
        // The reported instant is never before the last change.
        let now = now.max(standing.last_at);
        Ok(Ok(ListingView { standing, now }))
    }

    async fn bids(&self, listing: &ListingName, after: Option<u64>, count: usize) -> AuctionAnswer<Numbered<Bid>> {
        let cell = match self.listing_cell(listing) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let Ok(after) = u32::try_from(after.unwrap_or(0)) else { return Ok(Ok(page(Vec::new(), count, |_| 0))) };
        let rows = Arc::clone(&self.inner.shared.rows);
        // A row may exist before its commit is known to be durable. Return only rows that other readers see too.
        let durable = cell.standing().bids;
        let mut bids = blocking(move || rows.bids(cell.id, after, count.saturating_add(1))).await?;
        bids.retain(|bid| bid.number <= durable);
        Ok(Ok(page(bids, count, |bid| bid.number.into())))
    }

    async fn place_bid(&self, listing: &ListingName, bid: PlaceBid) -> AuctionAnswer<Effect<PlacedBid>> {
        self.trade(|reply| Job::Bid(listing.clone(), bid, reply)).await
    }

    async fn purchase(&self, listing: &ListingName, purchase: Purchase) -> AuctionAnswer<Effect<Sale>> {
        self.trade(|reply| Job::Purchase(listing.clone(), purchase, reply)).await
    }

    async fn move_points(&self, member: &MemberName, movement: MovePoints) -> AuctionAnswer<Effect<Balance>> {
        self.trade(|reply| Job::Move(member.clone(), movement, reply)).await
    }

    async fn balance(&self, member: &MemberName) -> Result<Balance, StoreError> {
        Ok(self.inner.shared.auctions().member(member.as_str()).map_or(Balance::default(), |cell| cell.balance()))
    }

    async fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Result<Numbered<Record>, StoreError> {
        let Some(cell) = self.inner.shared.auctions().member(member.as_str()) else {
            return Ok(page(Vec::new(), count, |_| 0));
        };
        let rows = Arc::clone(&self.inner.shared.rows);
        let (id, after, durable) = (cell.id, after.unwrap_or(0), cell.records());
        let mut records = blocking(move || rows.records(id, after, count.saturating_add(1))).await?;
        // What is missing at the beginning of the page was removed. The cell may not say so yet: it is published after the commit.
        let missing = records.first().map_or(0, |first| first.number - 1);
        let removed_to = cell.removed_to().max(if after < missing { missing } else { 0 });
        records.retain(|record| record.number <= durable);
        Ok(Numbered { removed_to, ..page(records, count, |record| record.number) })
    }

    async fn close_due(&self) -> Result<(), StoreError> {
        self.tick_over().await
    }

    async fn listing_names(
        &self,
        after: Option<&ListingName>,
        count: usize,
    ) -> Result<Option<Names<ListingName>>, StoreError> {
        Ok(Some(self.inner.shared.auctions().listing_names(after, count)))
    }

    async fn member_names(
        &self,
        after: Option<&MemberName>,
        count: usize,
    ) -> Result<Option<Names<MemberName>>, StoreError> {
        Ok(Some(self.inner.shared.auctions().member_names(after, count)))
    }

    fn closings(&self) -> Closings {
        self.inner.shared.auctions().closings()
    }
}
