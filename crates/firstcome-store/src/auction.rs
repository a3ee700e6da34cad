//! The port for auctions, purchases and points.

use crate::error::StoreError;
use crate::faults::Faults;
use crate::port::Put;
use firstcome_core::auction::{Bid, ListingSettings, ListingStanding, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Amount, Balance, Record};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use std::future::Future;

/// Outer: did the store answer? Inner: what was the answer?
pub type AuctionAnswer<T> = Result<Result<T, Rejection>, StoreError>;

/// One request to place a bid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceBid {
    /// Who bids.
    pub bidder: MemberName,
    /// How much.
    pub price: Amount,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// One request to buy, or to settle an auction that was won.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purchase {
    /// Who buys.
    pub buyer: MemberName,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// Which way points go between a member and the world outside.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transfer {
    /// They come in: a charge.
    Charge,
    /// They go out: a refund.
    Refund,
}

/// One request to charge or refund points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovePoints {
    /// Which way.
    pub transfer: Transfer,
    /// How many.
    pub amount: Amount,
    /// Present if the caller sent an idempotency key. It is remembered for 30 days.
    pub request: Option<RequestId>,
}

/// A listing as everybody may see it, and when. All of it is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingView {
    /// All that is known of it.
    pub standing: ListingStanding,
    /// When this was true, by the store's clock.
    pub now: Timestamp,
}

/// Some items in order, and whether more follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered<T> {
    /// The items.
    pub items: Vec<T>,
    /// Ask again after this number for the next ones; `None` at the end.
    pub next: Option<u64>,
}

/// What a store did by itself since it was opened, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Closings {
    /// Auctions that were closed.
    pub closed: u64,
    /// Of these, those whose winner did not settle in time.
    pub defaulted: u64,
}

/// The port for auctions, purchases and points. Every adapter passes `conformance::auction`:
///
/// - Linearizable over all listings and members: answers are those of [`firstcome_core::auction::Listing`] and
///   [`firstcome_core::points::Wallet`], applied in some order that agrees with real time. Bids count that order. Reads are
///   part of it: each is of one listing or one member at one instant. Two calls are two instants, the later one's no
///   earlier: a caller that has seen one part of a step sees all of it from then on.
/// - One step moves all points that it moves, writes their records and changes the listing; or does nothing.
/// - Clock: `now` is the store's own, read in the same step as the judgement, after every wait.
/// - Durable before told: an answer that rests on a change, refusals included, is given only once that change is durable.
/// - Auctions close by time, without anybody's call. [`AuctionStore::close_due`] only makes it happen now. What time has
///   decided is answered so in any case.
/// - Cancel-safe: a caller that goes away leaves the command done or not done, never half done.
/// - [`StoreError::Unknown`]: it may have been done; the same request, with the same key, tells.
pub trait AuctionStore: Send + Sync {
    /// Creates a listing or replaces its settings, which must have passed [`ListingSettings::check`]. The same settings again
    /// have no effect. A [`Revision`] replaces only the settings that it names, and creates nothing.
    ///
    /// Refused: `unknown_listing` and `settings_changed` (a revision), `ends_before_start`, `listing_running`, `listing_ended`.
    fn put_listing(
        &self,
        listing: &ListingName,
        revision: impl Into<Revision<ListingSettings>> + Send,
    ) -> impl Future<Output = AuctionAnswer<Put>> + Send;

    /// Shows a listing. Refused: `unknown_listing`.
    fn listing(&self, listing: &ListingName) -> impl Future<Output = AuctionAnswer<ListingView>> + Send;

    /// The accepted bids in their order, from the one after `after` (from the first without it), at most `count`.
    /// Refused: `unknown_listing`.
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

    /// Buys at the fixed price, or settles an auction that was won.
    ///
    /// Refused, in this order: `unknown_listing`, `idempotency_key_reused`; an auction: `auction_not_ended`, `not_winner`,
    /// `already_sold`, `settlement_expired`; a fixed price: `own_listing`, `not_in_progress`, `already_sold`,
    /// `insufficient_points`; both: `balance_too_large` (of the owner).
    fn purchase(
        &self,
        listing: &ListingName,
        purchase: Purchase,
    ) -> impl Future<Output = AuctionAnswer<Effect<Sale>>> + Send;

    /// Charges or refunds points, and tells the balance after it. The first charge creates the member.
    ///
    /// Refused, in this order: `idempotency_key_reused`, `insufficient_points`, `balance_too_large`.
    fn move_points(
        &self,
        member: &MemberName,
        movement: MovePoints,
    ) -> impl Future<Output = AuctionAnswer<Effect<Balance>>> + Send;

    /// What a member has; nothing of an unknown one.
    fn balance(&self, member: &MemberName) -> impl Future<Output = Result<Balance, StoreError>> + Send;

    /// The records of a member in their order, from the one after `after` (from the first without it), at most `count`;
    /// none of an unknown one.
    fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> impl Future<Output = Result<Numbered<Record>, StoreError>> + Send;

    /// Closes now what time has made due, and returns when it is durable. It may take several steps, between which others
    /// are served; what becomes due meanwhile may be left.
    fn close_due(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What was closed since this store was opened.
    fn closings(&self) -> Closings;

    /// The faults that are open now. None where the store keeps no list.
    fn faults(&self) -> Faults {
        Faults::default()
    }
}
