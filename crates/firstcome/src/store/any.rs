//! One type for every store, so that the type of a root does not say where its data is.
//!
//! # Invariants
//! - Each call goes to one store, unchanged, and its answer comes back unchanged.

use std::sync::Arc;

#[cfg(feature = "http")]
use firstcome_client::HttpStore;
#[cfg(feature = "cluster")]
use firstcome_cluster::Cluster;
#[cfg(feature = "cluster")]
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::{Bid, ListingSettings, PlacedBid, Sale};
use firstcome_store::core::coupon::{Claim, CouponSettings, Effect, Serial};
use firstcome_store::core::id::{CouponName, ListingName, MemberName, RoomName, UserId};
use firstcome_store::core::points::{Balance, Record};
use firstcome_store::core::revision::Revision;
use firstcome_store::core::room::appearance::Appearance;
use firstcome_store::core::room::{Join, OriginReport, RatePace, RenewalKey, RoomSettings, TicketNumber};
use firstcome_store::embedded::journal::{PassSecret, PassSecretRevocation};
use firstcome_store::{
    Answer, AuctionAnswer, AuctionStore, ClaimRecord, ClaimReply, Claimed, Closings, CouponStore, CouponView,
    Durability, Embedded, EraseAnswer, EraseStore, Faults, Handoff, HeadPage, Joining, ListingView, LiveAdmissions,
    MovePoints, Numbered, Page, PassCheck, PlaceBid, PlaceStream, Purchase, Put, ReceiptReply, ReceiptStore,
    RedeemRequest, RoomAnswer, RoomStore, RoomSummary, StoreError, TicketAnswer,
};

/// A store of any kind: in this process, on a cluster, or of a service over HTTP. [`Store`](crate::Store) and its handles
/// are over this type unless they name another.
///
/// Make one with [`Store::memory`](crate::Store::memory) and its siblings, or from a store of one kind:
///
/// ```
/// use firstcome::{AnyStore, Embedded, Store};
///
/// let store: Store = Store::over(AnyStore::from(Embedded::memory()));
/// ```
///
/// A call costs one branch more than on the store itself, and on a cluster and over HTTP one allocation.
pub struct AnyStore(Kind);

firstcome_store::core::debug_by_name!(AnyStore);

/// Where the data is.
enum Kind {
    Embedded(Embedded),
    /// Coupons and rooms are decided in Redis, listings and members in the database.
    #[cfg(feature = "cluster")]
    Cluster(Box<(Cluster, SqlAuctions)>),
    #[cfg(feature = "http")]
    Http(HttpStore),
}

impl AnyStore {
    /// Returns the store of this process, for what only it can do; `None` for a store of another kind.
    pub fn as_embedded(&self) -> Option<&Embedded> {
        match &self.0 {
            Kind::Embedded(store) => Some(store),
            #[cfg(any(feature = "cluster", feature = "http"))]
            _ => None,
        }
    }

    /// Returns the listings and members of a cluster, for what only they can do; `None` for a store of another kind.
    #[cfg(feature = "cluster")]
    pub fn as_auctions(&self) -> Option<&SqlAuctions> {
        if let Kind::Cluster(stores) = &self.0 { Some(&stores.1) } else { None }
    }

    /// Returns the node of a cluster, for what only it can do; `None` for a store of another kind.
    #[cfg(feature = "cluster")]
    pub fn as_cluster(&self) -> Option<&Cluster> {
        if let Kind::Cluster(stores) = &self.0 { Some(&stores.0) } else { None }
    }
}

impl From<Embedded> for AnyStore {
    fn from(store: Embedded) -> Self {
        Self(Kind::Embedded(store))
    }
}

/// A node of a cluster, with the auctions in its database.
#[cfg(feature = "cluster")]
impl From<(Cluster, SqlAuctions)> for AnyStore {
    fn from(stores: (Cluster, SqlAuctions)) -> Self {
        Self(Kind::Cluster(Box::new(stores)))
    }
}

#[cfg(feature = "http")]
impl From<HttpStore> for AnyStore {
    fn from(store: HttpStore) -> Self {
        Self(Kind::Http(store))
    }
}

/// Calls the same method of the store that there is; `$part` says which one of a cluster. The futures of a cluster and
/// of HTTP have some kilobytes: boxed, they do not swell those of the embedded store.
macro_rules! forward {
    ($self:ident, $part:tt, $method:ident($($argument:expr),*).await) => {
        match &$self.0 {
            Kind::Embedded(store) => store.$method($($argument),*).await,
            #[cfg(feature = "cluster")]
            Kind::Cluster(stores) => Box::pin(stores.$part.$method($($argument),*)).await,
            #[cfg(feature = "http")]
            Kind::Http(store) => Box::pin(store.$method($($argument),*)).await,
        }
    };
    ($self:ident, $part:tt, $method:ident()) => {
        match &$self.0 {
            Kind::Embedded(store) => store.$method(),
            #[cfg(feature = "cluster")]
            Kind::Cluster(stores) => stores.$part.$method(),
            #[cfg(feature = "http")]
            Kind::Http(store) => store.$method(),
        }
    };
}

impl CouponStore for AnyStore {
    fn durability(&self) -> Durability {
        forward!(self, 0, durability())
    }

    async fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> Answer<Put> {
        forward!(self, 0, put_coupon(coupon, revision).await)
    }

    async fn delete_coupon(&self, coupon: &CouponName) -> Answer<()> {
        forward!(self, 0, delete_coupon(coupon).await)
    }

    async fn coupon(&self, coupon: &CouponName) -> Answer<CouponView> {
        forward!(self, 0, coupon(coupon).await)
    }

    async fn claim(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<Claimed>> {
        forward!(self, 0, claim(coupon, claim).await)
    }

    async fn claim_early(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<ClaimReply>> {
        forward!(self, 0, claim_early(coupon, claim).await)
    }

    async fn claim_of(&self, coupon: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        forward!(self, 0, claim_of(coupon, user).await)
    }

    async fn claims(&self, coupon: &CouponName, after: Option<Serial>, count: usize) -> Answer<Page<ClaimRecord>> {
        forward!(self, 0, claims(coupon, after, count).await)
    }

    async fn redeem(&self, coupon: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        forward!(self, 0, redeem(coupon, redeem).await)
    }
}

impl RoomStore for AnyStore {
    async fn put_room(&self, room: &RoomName, revision: impl Into<Revision<RoomSettings>> + Send) -> RoomAnswer<Put> {
        forward!(self, 0, put_room(room, revision).await)
    }

    async fn close_room(&self, room: &RoomName) -> RoomAnswer<()> {
        forward!(self, 0, close_room(room).await)
    }

    async fn room(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        forward!(self, 0, room(room).await)
    }

    async fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> RoomAnswer<()> {
        forward!(self, 0, put_appearance(room, appearance).await)
    }

    async fn appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        forward!(self, 0, appearance(room).await)
    }

    async fn join(&self, room: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        forward!(self, 0, join(room, join).await)
    }

    async fn poll(&self, room: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        forward!(self, 0, poll(room, ticket).await)
    }

    async fn place_stream(&self, room: &RoomName, ticket: &str) -> Option<Box<dyn PlaceStream>> {
        forward!(self, 0, place_stream(room, ticket).await)
    }

    async fn renew(&self, room: &RoomName, ticket: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        forward!(self, 0, renew(room, ticket, key).await)
    }

    async fn hand_off(&self, room: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        forward!(self, 0, hand_off(room, ticket).await)
    }

    async fn redeem_handoff(&self, room: &RoomName, code: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        forward!(self, 0, redeem_handoff(room, code, key).await)
    }

    async fn leave(&self, room: &RoomName, ticket: &str) -> RoomAnswer<()> {
        forward!(self, 0, leave(room, ticket).await)
    }

    async fn release(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        forward!(self, 0, release(room, number, admission).await)
    }

    async fn check_pass(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<Option<PassCheck>> {
        forward!(self, 0, check_pass(room, number, admission).await)
    }

    async fn admissions(&self, room: &RoomName) -> RoomAnswer<LiveAdmissions> {
        forward!(self, 0, admissions(room).await)
    }

    async fn report_origin(&self, room: &RoomName, report: OriginReport) -> RoomAnswer<RatePace> {
        forward!(self, 0, report_origin(room, report).await)
    }

    async fn tick(&self) -> Result<(), StoreError> {
        forward!(self, 0, tick().await)
    }

    fn pass_secrets(&self) -> Vec<PassSecret> {
        forward!(self, 0, pass_secrets())
    }

    async fn rotate_pass_secret(&self) -> Result<PassSecret, StoreError> {
        forward!(self, 0, rotate_pass_secret().await)
    }

    async fn revoke_pass_secret(&self, id: u32) -> Result<PassSecretRevocation, StoreError> {
        forward!(self, 0, revoke_pass_secret(id).await)
    }
}

impl ReceiptStore for AnyStore {
    async fn publish_heads(&self) -> Result<(), StoreError> {
        forward!(self, 0, publish_heads().await)
    }

    async fn room_heads(&self, room: &RoomName, after: u64, count: usize) -> RoomAnswer<HeadPage> {
        forward!(self, 0, room_heads(room, after, count).await)
    }

    async fn coupon_heads(&self, coupon: &CouponName, after: u64, count: usize) -> Answer<HeadPage> {
        forward!(self, 0, coupon_heads(coupon, after, count).await)
    }

    async fn ticket_receipt(&self, room: &RoomName, ticket: &str) -> RoomAnswer<ReceiptReply> {
        forward!(self, 0, ticket_receipt(room, ticket).await)
    }

    async fn claim_receipt(&self, coupon: &CouponName, user: &str) -> Answer<ReceiptReply> {
        forward!(self, 0, claim_receipt(coupon, user).await)
    }
}

impl AuctionStore for AnyStore {
    async fn put_listing(
        &self,
        listing: &ListingName,
        revision: impl Into<Revision<ListingSettings>> + Send,
    ) -> AuctionAnswer<Put> {
        forward!(self, 1, put_listing(listing, revision).await)
    }

    async fn listing(&self, listing: &ListingName) -> AuctionAnswer<ListingView> {
        forward!(self, 1, listing(listing).await)
    }

    async fn bids(&self, listing: &ListingName, after: Option<u64>, count: usize) -> AuctionAnswer<Numbered<Bid>> {
        forward!(self, 1, bids(listing, after, count).await)
    }

    async fn place_bid(&self, listing: &ListingName, bid: PlaceBid) -> AuctionAnswer<Effect<PlacedBid>> {
        forward!(self, 1, place_bid(listing, bid).await)
    }

    async fn purchase(&self, listing: &ListingName, purchase: Purchase) -> AuctionAnswer<Effect<Sale>> {
        forward!(self, 1, purchase(listing, purchase).await)
    }

    async fn move_points(&self, member: &MemberName, movement: MovePoints) -> AuctionAnswer<Effect<Balance>> {
        forward!(self, 1, move_points(member, movement).await)
    }

    async fn balance(&self, member: &MemberName) -> Result<Balance, StoreError> {
        forward!(self, 1, balance(member).await)
    }

    async fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Result<Numbered<Record>, StoreError> {
        forward!(self, 1, records(member, after, count).await)
    }

    async fn close_due(&self) -> Result<(), StoreError> {
        forward!(self, 1, close_due().await)
    }

    fn closings(&self) -> Closings {
        forward!(self, 1, closings())
    }

    fn faults(&self) -> Faults {
        forward!(self, 1, faults())
    }
}

impl EraseStore for AnyStore {
    async fn erase(&self, user: &UserId) -> EraseAnswer {
        match &self.0 {
            Kind::Embedded(store) => store.erase(user).await,
            #[cfg(feature = "cluster")]
            Kind::Cluster(stores) => {
                // First what may refuse it.
                let mut erased = match Box::pin(stores.1.erase(user)).await? {
                    Ok(erased) => erased,
                    Err(rejection) => return Ok(Err(rejection)),
                };
                Ok(Box::pin(stores.0.erase(user)).await?.map(|others| {
                    erased.add(others);
                    erased
                }))
            }
            #[cfg(feature = "http")]
            Kind::Http(store) => Box::pin(store.erase(user)).await,
        }
    }
}
