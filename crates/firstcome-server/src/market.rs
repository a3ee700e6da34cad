//! What the rows of members and listings are served from, whichever store it is.

use firstcome::core::auction::{Bid, ListingSettings, PlacedBid, Sale};
use firstcome::core::coupon::Effect;
use firstcome::core::id::{ListingName, MemberName};
use firstcome::core::points::{Balance, Record};
use firstcome::{
    Closings, Faults, ListingView, MarketAnswer, MarketStore, MovePoints, Numbered, PlaceBid, Purchase, Put, StoreError,
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
pub(crate) struct Market(Arc<dyn AnyMarket>);

impl Market {
    pub(crate) fn over(store: impl MarketStore + 'static) -> Self {
        Self(Arc::new(store))
    }
}

impl Deref for Market {
    type Target = dyn AnyMarket;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
