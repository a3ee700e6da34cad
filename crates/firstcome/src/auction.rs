//! Auctions and sales at a fixed price, on any store.

use crate::AnyStore;
use crate::error::{AuctionError, InputError, flat};
use crate::request::{checked_key, request_id};
use firstcome_store::core::auction::{Bid, ListingSettings, PlacedBid, Sale};
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::id::{ListingName, MemberName, RequestId};
use firstcome_store::core::points::Amount;
use firstcome_store::{AuctionStore, ListingView, Numbered, PlaceBid, Purchase, Put};
use std::fmt;
use std::sync::Arc;

/// One listing of a store: a thing that is sold once, to the highest bidder or to the first buyer at a fixed price.
/// Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::{Error, Store};
/// use firstcome::core::auction::{ListingSettings, ListingState, Rejection};
/// use firstcome::core::id::MemberName;
/// use firstcome::core::points::Amount;
/// use firstcome::edge::{Clock, SystemClock};
///
/// let store = Store::memory(); // or Store::open("./firstcome-data")?
/// for bidder in ["ann", "bob"] {
///     store.member(bidder)?.charge(1_000)?.send().await?;
/// }
///
/// let lamp = store.listing("lamp")?;
/// let (owner, price) = (MemberName::parse("eve")?, Amount::new(100).ok_or("a price")?);
/// let ends_at = SystemClock::default().now().plus_ms(60_000);
/// lamp.put(ListingSettings::auction(owner, price, ends_at)).await?;
///
/// lamp.bid("ann", 100)?.send().await?;
/// let placed = lamp.bid("bob", 150)?.idempotency_key("click-7")?.send().await?;
/// assert_eq!(placed.bid.number, 2);
/// assert_eq!(lamp.bid("ann", 150)?.send().await, Err(Error::Refused(Rejection::BidTooLow(151))));
///
/// // Bob's points back the highest bid, and ann's are free again.
/// assert_eq!(store.member("ann")?.balance().await?.available(), 1_000);
/// assert_eq!(store.member("bob")?.balance().await?.available(), 850);
/// let view = lamp.view().await?;
/// assert_eq!(view.standing.state(view.now), ListingState::Running);
/// # Ok(()) }
/// ```
///
/// # What it promises
/// - Bids count in the order in which the store accepted them, numbered 1, 2, 3 … without gaps. Each is higher than the
///   one before it.
/// - The highest bid is backed by points, and no other bid is. The step that accepts a bid holds its points. The step
///   that accepts a higher bid frees them.
/// - A thing is sold at most once. The same step takes the points of its buyer and pays its owner.
/// - Time decides: after the end no bid counts, even before the auction is closed. The store closes auctions by itself.
/// - Every reply is durable, refusals included: in the embedded store as its [`crate::Durability`] says, in a database
///   always.
///
/// # What it does not promise
/// - Order between bids that overlap in time. A bid that was answered before another was sent comes first.
/// - A view that is still true when the caller reads it.
///
/// # Errors and refusals
/// [`Error::Refused`](crate::Error::Refused) is the decision of a rule. After [`Error::Unknown`](crate::Error::Unknown)
/// send the same request with the same idempotency key again. So give every bid a key. Without one, the repeat of a bid that did happen is refused as
/// `already_highest_bidder` or `bid_too_low`, or after the end as `not_in_progress`, which says nothing about the first
/// try. The repeat of a purchase is refused as `already_sold`.
///
/// Dropping a future leaves its request done or not done, never half done.
pub struct ListingHandle<S = AnyStore> {
    pub(crate) store: Arc<S>,
    pub(crate) name: ListingName,
}

impl<S> fmt::Debug for ListingHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListingHandle({})", self.name)
    }
}

impl<S> Clone for ListingHandle<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), name: self.name.clone() }
    }
}

pub(crate) fn member(field: &'static str, name: &str) -> Result<MemberName, InputError> {
    MemberName::parse(name).map_err(|error| InputError::Name { field, error })
}

pub(crate) fn amount(field: &'static str, points: u64) -> Result<Amount, InputError> {
    Amount::new(points).ok_or(InputError::Value { field, wanted: "1 to 1 000 000 000 000" })
}

impl<S: AuctionStore> ListingHandle<S> {
    /// The name of the listing.
    pub const fn name(&self) -> &ListingName {
        &self.name
    }

    /// Creates the listing or replaces its settings. Before its start every setting may change. While it runs, an
    /// auction may only get a later end. The same settings again have no effect. One step of the store.
    ///
    /// Refused: `ends_before_start`, `listing_running`, `listing_ended`.
    pub async fn put(&self, settings: ListingSettings) -> Result<Put, AuctionError> {
        settings.check().map_err(|(field, says)| InputError::Settings { field, says })?;
        flat(self.store.put_listing(&self.name, settings).await)
    }

    /// Shows the settings, the highest bid, the end and the outcome. The embedded store needs no file access for it, a
    /// database one query. Refused: `unknown_listing`.
    pub async fn view(&self) -> Result<ListingView, AuctionError> {
        flat(self.store.listing(&self.name).await)
    }

    /// Returns accepted bids in order: at most `count`, beginning after number `after`. The read runs beside the
    /// writer. Refused: `unknown_listing`.
    pub async fn bids(&self, after: Option<u64>, count: usize) -> Result<Numbered<Bid>, AuctionError> {
        flat(self.store.bids(&self.name, after, count).await)
    }

    /// Begins a bid; nothing happens before [`BidRequest::send`].
    pub fn bid(&self, bidder: &str, price: u64) -> Result<BidRequest<'_, S>, InputError> {
        let (bidder, price) = (member("bidder", bidder)?, amount("price", price)?);
        Ok(BidRequest { listing: self, bidder, price, key: None })
    }

    /// Begins to buy at the fixed price, or to settle a won auction; nothing happens before [`PurchaseRequest::send`].
    pub fn purchase(&self, buyer: &str) -> Result<PurchaseRequest<'_, S>, InputError> {
        Ok(PurchaseRequest { listing: self, buyer: member("buyer", buyer)?, key: None })
    }

    fn request(&self, what: &[u8], key: Option<String>, body: &[&[u8]]) -> Option<RequestId> {
        key.map(|key| request_id(&[b"library", what, self.name.as_str().as_bytes()], &key, body))
    }
}

/// A bid, before it is sent.
///
/// Dropping the future of [`Self::send`] leaves the bid done or not done, never half done. To learn which, send the
/// same bid with the same idempotency key again.
#[must_use = "nothing is sent before `send`"]
pub struct BidRequest<'a, S = AnyStore> {
    listing: &'a ListingHandle<S>,
    bidder: MemberName,
    price: Amount,
    key: Option<String>,
}

firstcome_store::core::debug_by_name!(['a, S] BidRequest<'a, S>);

impl<S: AuctionStore> BidRequest<'_, S> {
    /// Makes a repeat of this request recognisable for ever. The repeat returns the original reply, even if another
    /// member has bid more since. The same key with another bidder or price is refused as `idempotency_key_reused`.
    pub fn idempotency_key(mut self, key: &str) -> Result<Self, InputError> {
        self.key = Some(checked_key(key)?);
        Ok(self)
    }

    /// Places the bid. One step of the store: one disk sync or one transaction, shared with all other requests that
    /// have arrived.
    ///
    /// Refused, in this order: `unknown_listing`, `idempotency_key_reused`, `own_listing`, `not_in_progress`,
    /// `already_highest_bidder`, `bid_too_low`, `insufficient_points`.
    pub async fn send(self) -> Result<PlacedBid, AuctionError> {
        let Self { listing, bidder, price, key } = self;
        let body: [&[u8]; 2] = [bidder.as_str().as_bytes(), &price.get().to_be_bytes()];
        let request = listing.request(b"bids", key, &body);
        let bid = PlaceBid { bidder, price, request };
        flat(listing.store.place_bid(&listing.name, bid).await).map(Effect::into_inner)
    }
}

/// A purchase, before it is sent.
///
/// Dropping the future of [`Self::send`] leaves the purchase done or not done, never half done.
#[must_use = "nothing is sent before `send`"]
pub struct PurchaseRequest<'a, S = AnyStore> {
    listing: &'a ListingHandle<S>,
    buyer: MemberName,
    key: Option<String>,
}

firstcome_store::core::debug_by_name!(['a, S] PurchaseRequest<'a, S>);

impl<S: AuctionStore> PurchaseRequest<'_, S> {
    /// Makes a repeat of this request recognisable for ever. The repeat returns the original reply. The same key with
    /// another buyer is refused as `idempotency_key_reused`.
    pub fn idempotency_key(mut self, key: &str) -> Result<Self, InputError> {
        self.key = Some(checked_key(key)?);
        Ok(self)
    }

    /// Buys the thing. One step of the store: one disk sync or one transaction, shared with all other requests that
    /// have arrived.
    ///
    /// Refused, in this order: `unknown_listing`, `idempotency_key_reused`; an auction: `auction_not_ended`, `not_winner`,
    /// `already_sold`, `settlement_expired`; a fixed price: `own_listing`, `not_in_progress`, `already_sold`,
    /// `insufficient_points`; both: `balance_too_large` (of the owner).
    pub async fn send(self) -> Result<Sale, AuctionError> {
        let Self { listing, buyer, key } = self;
        let request = listing.request(b"purchase", key, &[buyer.as_str().as_bytes()]);
        flat(listing.store.purchase(&listing.name, Purchase { buyer, request }).await).map(Effect::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::Store;
    use firstcome_store::Closings;
    use firstcome_store::Embedded;
    use firstcome_store::core::auction::Rejection;
    use firstcome_store::core::auction::{ListingState, Phase};
    use firstcome_store::core::time::Timestamp;
    use firstcome_store::edge::ManualClock;

    fn store() -> (Store, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(0)));
        (Store::over(Embedded::memory_with(Arc::clone(&clock) as _).into()), clock)
    }

    fn settings(owner: &str, price: u64) -> ListingSettings {
        let (owner, price) = (MemberName::parse(owner).unwrap(), Amount::new(price).unwrap());
        ListingSettings::auction(owner, price, Timestamp::clamped_us(0).plus_ms(1_000))
    }

    async fn charge(store: &Store, member: &str, points: u64) {
        store.member(member).unwrap().charge(points).unwrap().send().await.unwrap();
    }

    #[tokio::test]
    async fn the_winner_settles_after_the_end_and_the_owner_is_paid() {
        let (store, clock) = store();
        charge(&store, "ann", 100).await;
        let lamp = store.listing("lamp").unwrap().clone();
        assert_eq!(lamp.view().await.unwrap_err(), Error::Refused(Rejection::UnknownListing));
        assert_eq!(lamp.put(settings("eve", 10)).await, Ok(Put::Created));
        assert_eq!(lamp.put(settings("eve", 10)).await, Ok(Put::Replaced));
        lamp.bid("ann", 60).unwrap().send().await.unwrap();
        let early = lamp.purchase("ann").unwrap().send().await;
        assert_eq!(early, Err(Error::Refused(Rejection::AuctionNotEnded(Timestamp::clamped_us(0).plus_ms(1_000)))));
        clock.pass_ms(1_001);
        store.close_due().await.unwrap();
        assert_eq!(store.closings(), Closings { closed: 1, defaulted: 0 });
        let sale = lamp.purchase("ann").unwrap().send().await.unwrap();
        assert_eq!((sale.buyer.as_str(), sale.price.get()), ("ann", 60));
        let view = lamp.view().await.unwrap();
        assert_eq!((view.standing.state(view.now), view.standing.phase), (ListingState::Sold, Phase::Sold(sale)));
        let eve = store.member("eve").unwrap();
        assert_eq!(eve.balance().await.unwrap().available(), 60);
    }

    #[tokio::test]
    async fn a_key_repeats_one_bid_and_one_purchase_of_its_own_listing() {
        let (store, clock) = store();
        for member in ["ann", "bob"] {
            charge(&store, member, 1_000).await;
        }
        let [lamp, vase] = ["lamp", "vase"].map(|name| store.listing(name).unwrap());
        for listing in [&lamp, &vase] {
            listing.put(settings("eve", 10)).await.unwrap();
        }
        let bid = async |listing: &ListingHandle, bidder, price| {
            listing.bid(bidder, price).unwrap().idempotency_key("k1").unwrap().send().await
        };
        let first = bid(&lamp, "ann", 20).await.unwrap();
        lamp.bid("bob", 30).unwrap().send().await.unwrap();
        assert_eq!(bid(&lamp, "ann", 20).await, Ok(first));
        assert_eq!(bid(&lamp, "ann", 40).await, Err(Error::Refused(Rejection::KeyReused)));
        assert_eq!(bid(&lamp, "bob", 20).await, Err(Error::Refused(Rejection::KeyReused)));
        assert_eq!(bid(&vase, "ann", 20).await.unwrap().bid.number, 1);
        clock.pass_ms(1_001);
        let buy = async |buyer| lamp.purchase(buyer).unwrap().idempotency_key("k1").unwrap().send().await;
        let sale = buy("bob").await.unwrap();
        assert_eq!(buy("bob").await, Ok(sale.clone()));
        assert_eq!(buy("ann").await, Err(Error::Refused(Rejection::KeyReused)));
        assert_eq!(lamp.purchase("bob").unwrap().send().await, Err(Error::Refused(Rejection::AlreadySold(sale))));
        let bids = lamp.bids(Some(1), 9).await.unwrap();
        assert_eq!((bids.items.len(), bids.items[0].number, bids.next), (1, 2, None));
    }

    #[tokio::test]
    async fn what_is_none_is_refused_before_the_store_is_asked() {
        let (store, _) = store();
        let lamp = store.listing("lamp").unwrap();
        let field = |error: InputError| error.field();
        assert_eq!(store.listing("-").map_err(field).err(), Some("listing"));
        assert_eq!(lamp.bid("-", 1).map_err(field).err(), Some("bidder"));
        assert_eq!(lamp.purchase("-").map_err(field).err(), Some("buyer"));
        for price in [0, 1_000_000_000_001, u64::MAX] {
            assert_eq!(lamp.bid("ann", price).map_err(field).err(), Some("price"));
        }
        for key in ["", &"k".repeat(129)] {
            assert_eq!(lamp.bid("ann", 1).unwrap().idempotency_key(key).map_err(field).err(), Some("idempotency key"));
            assert_eq!(
                lamp.purchase("ann").unwrap().idempotency_key(key).map_err(field).err(),
                Some("idempotency key")
            );
        }
        let mut late = settings("eve", 10);
        late.starts_at = Some(Timestamp::clamped_us(0).plus_ms(1_001));
        assert!(matches!(lamp.put(late).await, Err(Error::Input(wrong)) if wrong.field() == "ends_at"));
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn one_store_holds_coupons_auctions_and_points() {
        let directory = tempfile::tempdir().unwrap();
        {
            let store = Store::open(directory.path()).unwrap();
            store.coupon("launch").unwrap().put_limit(1).await.unwrap();
            store.member("ann").unwrap().charge(70).unwrap().send().await.unwrap();
            let lamp = store.listing("lamp").unwrap();
            let (owner, price) = (MemberName::parse("eve").unwrap(), Amount::new(30).unwrap());
            lamp.put(ListingSettings::fixed_price(owner, price)).await.unwrap();
            lamp.purchase("ann").unwrap().send().await.unwrap();
            store.store().as_embedded().expect("it is in a directory").close();
        }
        let store = Store::open(directory.path()).unwrap();
        let view = store.listing("lamp").unwrap().view().await.unwrap();
        assert_eq!(view.standing.state(view.now), ListingState::Sold);
        let total = async |member| store.member(member).unwrap().balance().await.unwrap().total();
        assert_eq!((total("ann").await, total("eve").await), (40, 30));
    }
}
