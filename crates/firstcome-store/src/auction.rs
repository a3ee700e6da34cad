//! The port for auctions, purchases and points.

use crate::error::StoreError;
use crate::faults::Faults;
use crate::names::Names;
use crate::port::Put;
use firstcome_core::auction::{Bid, ListingSettings, ListingStanding, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Amount, Balance, Record};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use std::future::Future;

/// The outer result says whether the store replied, the inner one what it replied.
pub type AuctionAnswer<T> = Result<Result<T, Rejection>, StoreError>;

/// A request to place a bid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceBid {
    /// The bidder.
    pub bidder: MemberName,
    /// The points bid.
    pub price: Amount,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// A request to buy, or to settle a won auction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purchase {
    /// The buyer.
    pub buyer: MemberName,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// The direction of points between a member and the outside world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transfer {
    /// Points come in: a charge.
    Charge,
    /// Points go out: a refund.
    Refund,
}

/// A request to charge or refund points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovePoints {
    /// The direction.
    pub transfer: Transfer,
    /// The points moved.
    pub amount: Amount,
    /// Present if the caller sent an idempotency key. The store remembers it for 30 days.
    pub request: Option<RequestId>,
}

/// A listing as every client may see it. All of it is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingView {
    /// The state of the listing.
    pub standing: ListingStanding,
    /// When this was true, by the store's clock.
    pub now: Timestamp,
}

/// Some items in order, and where the next ones begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered<T> {
    /// The items.
    pub items: Vec<T>,
    /// Ask again after this number for the next items; `None` at the end.
    pub next: Option<u64>,
    /// A purge removed the items up to this number; 0 if it removed none. A caller that asks after an earlier number misses some.
    pub removed_to: u64,
}

/// How many auctions a store closed since it was opened, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Closings {
    /// Auctions that the store closed.
    pub closed: u64,
    /// Those of them whose winner did not settle in time.
    pub defaulted: u64,
}

/// The port for auctions, purchases and points. Every adapter passes `conformance::auction`:
///
/// - Linearizable over all listings and members: replies are those of [`firstcome_core::auction::Listing`] and
///   [`firstcome_core::points::Wallet`], applied in some order that agrees with real time. Bids count that order. Reads
///   are part of it: each shows one listing or one member at one instant. A later read shows a later instant or the
///   same one, so a caller that has seen one part of a step sees all of it from then on.
/// - One step moves all its points, writes their records and changes the listing; or it does nothing.
/// - Clock: `now` is the store's own, read in the same step as the decision, after every wait.
/// - Durable before the reply: a reply that depends on a change, refusals included, leaves only once that change is
///   durable.
/// - The store closes auctions by itself. [`AuctionStore::close_due`] only does it now. Replies always follow the
///   clock, even before an auction is closed.
/// - Cancel-safe: a caller that drops its future leaves the command done or not done, never half done.
/// - After [`StoreError::Unknown`] the command may be done; the same request with the same key tells.
pub trait AuctionStore: Send + Sync {
    /// Creates a listing or replaces its settings, which must have passed [`ListingSettings::check`]. The same settings
    /// again have no effect. A [`Revision`] that names the settings in force replaces only those, and creates nothing.
    ///
    /// Refused: `unknown_listing` and `settings_changed` (a revision), `ends_before_start`, `listing_running`, `listing_ended`.
    fn put_listing(
        &self,
        listing: &ListingName,
        revision: impl Into<Revision<ListingSettings>> + Send,
    ) -> impl Future<Output = AuctionAnswer<Put>> + Send;

    /// Shows a listing. Refused: `unknown_listing`.
    fn listing(&self, listing: &ListingName) -> impl Future<Output = AuctionAnswer<ListingView>> + Send;

    /// Returns the accepted bids in order, at most `count`, beginning after number `after` (with the first one if
    /// `None`). Refused: `unknown_listing`.
    fn bids(
        &self,
        listing: &ListingName,
        after: Option<u64>,
        count: usize,
    ) -> impl Future<Output = AuctionAnswer<Numbered<Bid>>> + Send;

    /// Places a bid.
    ///
    /// Refused, in this order: `unknown_listing`, `idempotency_key_reused`, `own_listing`, `not_in_progress`,
    /// `already_highest_bidder`, `bid_too_low`, `insufficient_points`.
    fn place_bid(
        &self,
        listing: &ListingName,
        bid: PlaceBid,
    ) -> impl Future<Output = AuctionAnswer<Effect<PlacedBid>>> + Send;

    /// Buys at the fixed price, or settles a won auction.
    ///
    /// Refused, in this order: `unknown_listing`, `idempotency_key_reused`; an auction: `auction_not_ended`, `not_winner`,
    /// `already_sold`, `settlement_expired`; a fixed price: `own_listing`, `not_in_progress`, `already_sold`,
    /// `insufficient_points`; both: `balance_too_large` (of the owner).
    fn purchase(
        &self,
        listing: &ListingName,
        purchase: Purchase,
    ) -> impl Future<Output = AuctionAnswer<Effect<Sale>>> + Send;

    /// Charges or refunds points, and returns the balance after it. The first charge creates the member.
    ///
    /// Refused, in this order: `idempotency_key_reused`, `insufficient_points`, `balance_too_large`.
    fn move_points(
        &self,
        member: &MemberName,
        movement: MovePoints,
    ) -> impl Future<Output = AuctionAnswer<Effect<Balance>>> + Send;

    /// Returns the points of a member. An unknown member has none.
    fn balance(&self, member: &MemberName) -> impl Future<Output = Result<Balance, StoreError>> + Send;

    /// Returns the records of a member in order, at most `count`, beginning after number `after` (with the first one if
    /// `None`). An unknown member has none. [`Numbered::removed_to`] says which ones a purge removed.
    fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> impl Future<Output = Result<Numbered<Record>, StoreError>> + Send;

    /// Closes all auctions that are due now, and returns when that is durable. It may take several steps, and the store
    /// serves other commands between them. Auctions that become due meanwhile may stay open.
    fn close_due(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns how many auctions were closed since this store was opened.
    fn closings(&self) -> Closings;

    /// Lists listings by name, those that are over included. `None` if the store keeps no list for operators.
    fn listing_names(
        &self,
        after: Option<&ListingName>,
        count: usize,
    ) -> impl Future<Output = Result<Option<Names<ListingName>>, StoreError>> + Send {
        let _ = (after, count);
        std::future::ready(Ok(None))
    }

    /// Lists members by name: all that have or had points. `None` if the store keeps no list for operators.
    fn member_names(
        &self,
        after: Option<&MemberName>,
        count: usize,
    ) -> impl Future<Output = Result<Option<Names<MemberName>>, StoreError>> + Send {
        let _ = (after, count);
        std::future::ready(Ok(None))
    }

    /// The faults that are open now. Empty if the store keeps no list.
    fn faults(&self) -> Faults {
        Faults::default()
    }
}
