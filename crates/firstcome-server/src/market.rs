//! What the rows of members and listings are served from, whichever store it is.

use crate::backend::{SHOWN_COUNT_MAX, SHOWN_MAX};
use firstcome::core::auction::{Bid, ListingSettings, PlacedBid, Rejection, Sale};
use firstcome::core::coupon::Effect;
use firstcome::core::id::{ListingName, MemberName};
use firstcome::core::points::{Balance, Record};
use firstcome::{
    Closings, Faults, ListingView, MarketAnswer, MarketStore, MovePoints, Numbered, PlaceBid, Purchase, Put, Shared,
    StoreError,
};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

/// An answer on its way.
type Coming<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`MarketStore`] with futures in boxes, so that one service can have this store or that one. What each call promises
/// stands there.
pub(crate) trait AnyMarket: Send + Sync {
    fn put_listing<'a>(&'a self, listing: &'a ListingName, settings: ListingSettings) -> Coming<'a, MarketAnswer<Put>>;
    fn listing<'a>(&'a self, listing: &'a ListingName) -> Coming<'a, MarketAnswer<ListingView>>;
    fn bids<'a>(
        &'a self,
        listing: &'a ListingName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, MarketAnswer<Numbered<Bid>>>;
    fn place_bid<'a>(&'a self, listing: &'a ListingName, bid: PlaceBid) -> Coming<'a, MarketAnswer<Effect<PlacedBid>>>;
    fn purchase<'a>(&'a self, listing: &'a ListingName, purchase: Purchase) -> Coming<'a, MarketAnswer<Effect<Sale>>>;
    fn move_points<'a>(
        &'a self,
        member: &'a MemberName,
        movement: MovePoints,
    ) -> Coming<'a, MarketAnswer<Effect<Balance>>>;
    fn balance<'a>(&'a self, member: &'a MemberName) -> Coming<'a, Result<Balance, StoreError>>;
    fn records<'a>(
        &'a self,
        member: &'a MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, Result<Numbered<Record>, StoreError>>;
    fn closings(&self) -> Closings;
    fn faults(&self) -> Faults;
}

impl<S: MarketStore> AnyMarket for S {
    fn put_listing<'a>(&'a self, listing: &'a ListingName, settings: ListingSettings) -> Coming<'a, MarketAnswer<Put>> {
        Box::pin(MarketStore::put_listing(self, listing, settings))
    }

    fn listing<'a>(&'a self, listing: &'a ListingName) -> Coming<'a, MarketAnswer<ListingView>> {
        Box::pin(MarketStore::listing(self, listing))
    }

    fn bids<'a>(
        &'a self,
        listing: &'a ListingName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, MarketAnswer<Numbered<Bid>>> {
        Box::pin(MarketStore::bids(self, listing, after, count))
    }

    fn place_bid<'a>(&'a self, listing: &'a ListingName, bid: PlaceBid) -> Coming<'a, MarketAnswer<Effect<PlacedBid>>> {
        Box::pin(MarketStore::place_bid(self, listing, bid))
    }

    fn purchase<'a>(&'a self, listing: &'a ListingName, purchase: Purchase) -> Coming<'a, MarketAnswer<Effect<Sale>>> {
        Box::pin(MarketStore::purchase(self, listing, purchase))
    }

    fn move_points<'a>(
        &'a self,
        member: &'a MemberName,
        movement: MovePoints,
    ) -> Coming<'a, MarketAnswer<Effect<Balance>>> {
        Box::pin(MarketStore::move_points(self, member, movement))
    }

    fn balance<'a>(&'a self, member: &'a MemberName) -> Coming<'a, Result<Balance, StoreError>> {
        Box::pin(MarketStore::balance(self, member))
    }

    fn records<'a>(
        &'a self,
        member: &'a MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Coming<'a, Result<Numbered<Record>, StoreError>> {
        Box::pin(MarketStore::records(self, member, after, count))
    }

    fn closings(&self) -> Closings {
        MarketStore::closings(self)
    }

    fn faults(&self) -> Faults {
        MarketStore::faults(self)
    }
}

/// The store of members and listings of a service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Market {
    store: Arc<dyn AnyMarket>,
    /// What anybody may ask for, without a key, where each question costs a query.
    shown: Option<Arc<Shared<ListingName, Result<ListingView, Rejection>>>>,
}

impl Market {
    /// A store in this process.
    pub(crate) fn over(store: impl MarketStore + 'static) -> Self {
        Self { store: Arc::new(store), shown: None }
    }

    /// A store that is asked over a network: what is shown to anybody is at most [`SHOWN_MAX`] old, and has all that this service has
    /// done.
    pub(crate) fn beyond(store: impl MarketStore + 'static) -> Self {
        let shown = Shared::new(SHOWN_MAX, SHOWN_COUNT_MAX);
        Self { store: Arc::new(store), shown: Some(Arc::new(shown)) }
    }

    /// See [`MarketStore::listing`].
    pub(crate) async fn listing(&self, listing: &ListingName) -> MarketAnswer<ListingView> {
        match &self.shown {
            Some(shown) => shown.get(listing, self.store.listing(listing)).await,
            None => self.store.listing(listing).await,
        }
    }

    /// See [`MarketStore::put_listing`].
    pub(crate) async fn put_listing(&self, listing: &ListingName, settings: ListingSettings) -> MarketAnswer<Put> {
        let told = self.store.put_listing(listing, settings).await;
        self.forget(listing);
        told
    }

    /// See [`MarketStore::place_bid`].
    pub(crate) async fn place_bid(&self, listing: &ListingName, bid: PlaceBid) -> MarketAnswer<Effect<PlacedBid>> {
        let told = self.store.place_bid(listing, bid).await;
        self.forget(listing);
        told
    }

    /// See [`MarketStore::purchase`].
    pub(crate) async fn purchase(&self, listing: &ListingName, purchase: Purchase) -> MarketAnswer<Effect<Sale>> {
        let told = self.store.purchase(listing, purchase).await;
        self.forget(listing);
        told
    }

    fn forget(&self, listing: &ListingName) {
        if let Some(shown) = &self.shown {
            shown.forget(listing);
        }
    }
}

impl Deref for Market {
    type Target = dyn AnyMarket;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}
