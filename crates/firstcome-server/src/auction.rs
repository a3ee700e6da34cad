//! The storage backend of the member and listing endpoints.

use crate::backend::{SHOWN_COUNT_MAX, SHOWN_MAX};
use firstcome::core::auction::{Bid, ListingSettings, PlacedBid, Rejection, Sale};
use firstcome::core::coupon::Effect;
use firstcome::core::id::{ListingName, MemberName, UserId};
use firstcome::core::points::{Balance, Record};
use firstcome::core::revision::Revision;
use firstcome::{
    AuctionAnswer, AuctionStore, Closings, EraseAnswer, EraseStore, Faults, ListingView, MovePoints, Names, Numbered,
    PlaceBid, Purchase, PurgeAnswer, PurgeRequest, PurgeStore, Put, Shared, StoreError,
};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

/// A boxed future of an answer.
type Coming<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`AuctionStore`] with boxed futures, so that one service can hold any store. The guarantees of each call are
/// documented there.
pub(crate) trait AnyAuctionStore: Send + Sync {
    fn put_listing<'a>(
        &'a self,
        listing: &'a ListingName,
        revision: Revision<ListingSettings>,
    ) -> Coming<'a, AuctionAnswer<Put>>;
    fn listing<'a>(&'a self, listing: &'a ListingName) -> Coming<'a, AuctionAnswer<ListingView>>;
    fn bids<'a>(
        &'a self,
        listing: &'a ListingName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, AuctionAnswer<Numbered<Bid>>>;
    fn place_bid<'a>(&'a self, listing: &'a ListingName, bid: PlaceBid)
    -> Coming<'a, AuctionAnswer<Effect<PlacedBid>>>;
    fn purchase<'a>(&'a self, listing: &'a ListingName, purchase: Purchase) -> Coming<'a, AuctionAnswer<Effect<Sale>>>;
    fn move_points<'a>(
        &'a self,
        member: &'a MemberName,
        movement: MovePoints,
    ) -> Coming<'a, AuctionAnswer<Effect<Balance>>>;
    fn balance<'a>(&'a self, member: &'a MemberName) -> Coming<'a, Result<Balance, StoreError>>;
    fn records<'a>(
        &'a self,
        member: &'a MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, Result<Numbered<Record>, StoreError>>;
    fn listing_names<'a>(
        &'a self,
        after: Option<&'a ListingName>,
        count: usize,
    ) -> Coming<'a, Result<Option<Names<ListingName>>, StoreError>>;
    fn member_names<'a>(
        &'a self,
        after: Option<&'a MemberName>,
        count: usize,
    ) -> Coming<'a, Result<Option<Names<MemberName>>, StoreError>>;
    fn erase<'a>(&'a self, user: &'a UserId) -> Coming<'a, EraseAnswer>;
    fn purge(&self, request: PurgeRequest) -> Coming<'_, PurgeAnswer>;
    fn closings(&self) -> Closings;
    fn faults(&self) -> Faults;
}

impl<S: AuctionStore + EraseStore + PurgeStore> AnyAuctionStore for S {
    fn put_listing<'a>(
        &'a self,
        listing: &'a ListingName,
        revision: Revision<ListingSettings>,
    ) -> Coming<'a, AuctionAnswer<Put>> {
        Box::pin(AuctionStore::put_listing(self, listing, revision))
    }

    fn listing<'a>(&'a self, listing: &'a ListingName) -> Coming<'a, AuctionAnswer<ListingView>> {
        Box::pin(AuctionStore::listing(self, listing))
    }

    fn bids<'a>(
        &'a self,
        listing: &'a ListingName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, AuctionAnswer<Numbered<Bid>>> {
        Box::pin(AuctionStore::bids(self, listing, after, count))
    }

    fn place_bid<'a>(
        &'a self,
        listing: &'a ListingName,
        bid: PlaceBid,
    ) -> Coming<'a, AuctionAnswer<Effect<PlacedBid>>> {
        Box::pin(AuctionStore::place_bid(self, listing, bid))
    }

    fn purchase<'a>(&'a self, listing: &'a ListingName, purchase: Purchase) -> Coming<'a, AuctionAnswer<Effect<Sale>>> {
        Box::pin(AuctionStore::purchase(self, listing, purchase))
    }

    fn move_points<'a>(
        &'a self,
        member: &'a MemberName,
        movement: MovePoints,
    ) -> Coming<'a, AuctionAnswer<Effect<Balance>>> {
        Box::pin(AuctionStore::move_points(self, member, movement))
    }

    fn balance<'a>(&'a self, member: &'a MemberName) -> Coming<'a, Result<Balance, StoreError>> {
        Box::pin(AuctionStore::balance(self, member))
    }

    fn records<'a>(
        &'a self,
        member: &'a MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, Result<Numbered<Record>, StoreError>> {
        Box::pin(AuctionStore::records(self, member, after, count))
    }

    fn listing_names<'a>(
        &'a self,
        after: Option<&'a ListingName>,
        count: usize,
    ) -> Coming<'a, Result<Option<Names<ListingName>>, StoreError>> {
        Box::pin(AuctionStore::listing_names(self, after, count))
    }

    fn member_names<'a>(
        &'a self,
        after: Option<&'a MemberName>,
        count: usize,
    ) -> Coming<'a, Result<Option<Names<MemberName>>, StoreError>> {
        Box::pin(AuctionStore::member_names(self, after, count))
    }

    fn erase<'a>(&'a self, user: &'a UserId) -> Coming<'a, EraseAnswer> {
        Box::pin(EraseStore::erase(self, user))
    }

    fn purge(&self, request: PurgeRequest) -> Coming<'_, PurgeAnswer> {
        Box::pin(PurgeStore::purge(self, request))
    }

    fn closings(&self) -> Closings {
        AuctionStore::closings(self)
    }

    fn faults(&self) -> Faults {
        AuctionStore::faults(self)
    }
}

/// The store of members and listings of a service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Auctions {
    store: Arc<dyn AnyAuctionStore>,
    /// Caches whether a listing exists, for stores where each question costs a query: any client may ask for any name.
    is_there: Option<Arc<Shared<ListingName, bool>>>,
}

impl Auctions {
    /// Wraps a store in this process.
    pub(crate) fn over(store: impl AuctionStore + EraseStore + PurgeStore + 'static) -> Self {
        Self { store: Arc::new(store), is_there: None }
    }

    /// Wraps a store behind a network. Caches for at most [`SHOWN_MAX`] that a listing does not exist. An existing
    /// listing is read each time, since a reader must see every acknowledged bid.
    pub(crate) fn beyond(store: impl AuctionStore + EraseStore + PurgeStore + 'static) -> Self {
        let is_there = Shared::new(SHOWN_MAX, SHOWN_COUNT_MAX);
        Self { store: Arc::new(store), is_there: Some(Arc::new(is_there)) }
    }

    /// Shows a listing; see [`AuctionStore::listing`].
    pub(crate) async fn listing(&self, listing: &ListingName) -> AuctionAnswer<ListingView> {
        self.of(listing, || self.store.listing(listing)).await
    }

    /// Lists bids; see [`AuctionStore::bids`].
    pub(crate) async fn bids(
        &self,
        listing: &ListingName,
        after: Option<u64>,
        count: usize,
    ) -> AuctionAnswer<Numbered<Bid>> {
        self.of(listing, || self.store.bids(listing, after, count)).await
    }

    /// Puts a listing; see [`AuctionStore::put_listing`].
    pub(crate) async fn put_listing(
        &self,
        listing: &ListingName,
        revision: Revision<ListingSettings>,
    ) -> AuctionAnswer<Put> {
        let told = self.store.put_listing(listing, revision).await;
        if let Some(is_there) = &self.is_there {
            is_there.forget(listing);
        }
        told
    }

    /// Asks the store about a listing, unless the cache says that it does not exist.
    async fn of<'a, T>(
        &self,
        listing: &ListingName,
        ask: impl Fn() -> Coming<'a, AuctionAnswer<T>>,
    ) -> AuctionAnswer<T> {
        let Some(is_there) = &self.is_there else { return ask().await };
        let mut told = None;
        let first = async || {
            let answer = ask().await?;
            let is_there = !matches!(answer, Err(Rejection::UnknownListing));
            told = Some(answer);
            Ok(is_there)
        };
        let is_there = is_there.get(listing, first).await?;
        match told {
            Some(answer) => Ok(answer),
            None if is_there => ask().await,
            None => Ok(Err(Rejection::UnknownListing)),
        }
    }
}

impl Deref for Auctions {
    type Target = dyn AnyAuctionStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}
