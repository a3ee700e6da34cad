//! Listings, members and points over HTTP.

mod shown;

use crate::HttpStore;
use crate::call::{Call, CallReply};
use crate::coupon::{no_tag, segment};
use crate::instant;
use crate::problem::Problem;
use firstcome_store::core::auction::{AuctionTerms, Bid, Extend, ListingSettings, PlacedBid, Rejection, Sale};
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::id::{ListingName, MemberName};
use firstcome_store::core::limits::PAGE_ITEMS_MAX;
use firstcome_store::core::points::{Amount, Balance, Record};
use firstcome_store::core::revision::Revision;
use firstcome_store::{
    AuctionAnswer, AuctionStore, Closings, ListingView, MovePoints, Numbered, PlaceBid, Purchase, Put, StoreError,
    Transfer,
};
use http::StatusCode;
use http::header::{ETAG, IF_MATCH};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shown::{BalanceShown, BidShown, ListingShown, PageShown, PlacedBidShown, RecordShown, SaleShown};

/// The largest number after which the service lists: what JSON readers keep exactly. No list is so long.
const NUMBER_MAX: u64 = (1 << 53) - 1;
/// The code of a list that begins later, since a purge removed its first items.
const RECORDS_REMOVED: &str = "records_removed";

#[derive(Serialize)]
struct ExtendBody {
    window_ms: u64,
    by_ms: u64,
    max_count: u32,
}

/// The body of a PUT of a listing.
#[derive(Serialize)]
struct ListingBody<'a> {
    owner: &'a str,
    kind: &'static str,
    price: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_increment: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extend: Option<ExtendBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settle_within_ms: Option<u64>,
}

impl<'a> ListingBody<'a> {
    fn new(settings: &'a ListingSettings) -> Self {
        let terms: Option<&AuctionTerms> = settings.auction_terms();
        let extend = |Extend { window_ms, by_ms, max_count }| ExtendBody { window_ms, by_ms, max_count };
        Self {
            owner: settings.owner.as_str(),
            kind: if terms.is_some() { "auction" } else { "fixed_price" },
            price: settings.price.get(),
            starts_at: settings.starts_at.map(instant::format),
            ends_at: terms.map(|terms| instant::format(terms.ends_at)),
            min_increment: terms.and_then(|terms| terms.min_increment).map(Amount::get),
            extend: terms.and_then(|terms| terms.extend).map(extend),
            settle_within_ms: terms.and_then(|terms| terms.settle_within_ms),
        }
    }
}

#[derive(Serialize)]
struct BidBody<'a> {
    bidder: &'a str,
    price: u64,
}

#[derive(Serialize)]
struct PurchaseBody<'a> {
    buyer: &'a str,
}

#[derive(Serialize)]
struct AmountBody {
    amount: u64,
}

/// Reads a refusal by a rule; `None` if it is none, or not understood.
fn rejection(problem: &Problem) -> Option<Rejection> {
    Some(match problem.code() {
        "unknown_listing" => Rejection::UnknownListing,
        "idempotency_key_reused" => Rejection::KeyReused,
        "own_listing" => Rejection::OwnListing,
        "not_in_progress" => Rejection::NotInProgress,
        "already_highest_bidder" => Rejection::AlreadyHighestBidder,
        "bid_too_low" => Rejection::BidTooLow(problem.number("minimum")?),
        "insufficient_points" => Rejection::InsufficientPoints(problem.number("available")?),
        "auction_not_ended" => Rejection::AuctionNotEnded(problem.instant("effective_ends_at")?),
        "not_winner" => Rejection::NotWinner,
        "already_sold" => Rejection::AlreadySold(problem.object::<SaleShown>("purchase")?.sale()?),
        "settlement_expired" => Rejection::SettlementExpired(problem.instant("settles_until")?),
        "settings_changed" => Rejection::SettingsChanged,
        "listing_running" => Rejection::ListingRunning,
        "listing_ended" => Rejection::ListingEnded,
        "ends_before_start" => Rejection::EndsBeforeStart,
        "balance_too_large" => Rejection::BalanceTooLarge,
        _ => return None,
    })
}

/// Hands on a refusal by a rule, and tells any other as an error.
fn refused<T>(told: &CallReply) -> AuctionAnswer<T> {
    match told.problem().and_then(|problem| rejection(&problem)) {
        Some(rejection) => Ok(Err(rejection)),
        None => Err(told.refused()),
    }
}

/// Reads the effect of a write.
fn effect<T: DeserializeOwned, U>(told: &CallReply, value: impl FnOnce(T) -> Option<U>) -> AuctionAnswer<Effect<U>> {
    if !told.is_yes() {
        return refused(told);
    }
    let value = value(told.read::<T>()?).ok_or_else(|| told.strange())?;
    Ok(Ok(if told.is_replayed() { Effect::Again(value) } else { Effect::New(value) }))
}

fn listing_path(listing: &ListingName) -> String {
    format!("/v1/listings/{}", segment(listing.as_str()))
}

fn member_path(member: &MemberName) -> String {
    format!("/v1/members/{}", segment(member.as_str()))
}

impl HttpStore {
    async fn view(&self, listing: &ListingName) -> AuctionAnswer<(ListingView, CallReply)> {
        let told = self.service.call(&Call::get(listing_path(listing))).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let view = told.read::<ListingShown>()?.view(listing).ok_or_else(|| told.strange())?;
        Ok(Ok((view, told)))
    }

    async fn put_settings(&self, call: Call) -> AuctionAnswer<Put> {
        let told = self.service.call(&call).await?;
        match told.status() {
            StatusCode::CREATED => Ok(Ok(Put::Created)),
            StatusCode::OK => Ok(Ok(Put::Replaced)),
            _ => refused(&told),
        }
    }

    /// Reads a list of at most `count` items, in pages as large as the service has. The inner error is a refusal.
    async fn numbered<T: DeserializeOwned, U>(
        &self,
        path: &str,
        after: Option<u64>,
        count: usize,
        item: impl Fn(&T) -> Option<U>,
    ) -> Result<Result<Numbered<U>, CallReply>, StoreError> {
        let (mut items, mut next) = (Vec::new(), after.map(|after| after.min(NUMBER_MAX)));
        let mut removed_to = 0;
        loop {
            // A page of no items still says whether there is a list.
            let limit = (count - items.len()).clamp(1, PAGE_ITEMS_MAX);
            let after = next.unwrap_or(0);
            let told = self.service.call(&Call::get(format!("{path}?after={after}&limit={limit}"))).await?;
            if !told.is_yes() {
                let problem = told.problem().filter(|problem| problem.code() == RECORDS_REMOVED);
                match problem.and_then(|problem| problem.number("removed_to")) {
                    Some(to) if after < to && items.is_empty() => next = Some(to),
                    // A purge went on while the pages were read. What was read is whole, and the next call tells.
                    Some(to) if after < to => return Ok(Ok(Numbered { items, next, removed_to })),
                    _ => return Ok(Err(told)),
                }
                continue;
            }
            let page = told.read::<PageShown<T>>()?;
            removed_to = page.removed_to;
            if count == 0 {
                return Ok(Ok(Numbered { items, next: None, removed_to }));
            }
            let shown: Option<Vec<U>> = page.items.iter().map(&item).collect();
            items.extend(shown.ok_or_else(|| told.strange())?);
            next = page.next;
            if next.is_none() || count <= items.len() {
                return Ok(Ok(Numbered { items, next, removed_to }));
            }
        }
    }
}

/// One method is one request, except: [`AuctionStore::put_listing`] of a revision (two), and lists (one for each thousand
/// items). A service key is enough for all.
impl AuctionStore for HttpStore {
    /// A lost answer is [`StoreError::Unknown`] and not repeated: a second copy could undo what another seller has put,
    /// and would not tell whether the first one created the listing.
    async fn put_listing(
        &self,
        listing: &ListingName,
        revision: impl Into<Revision<ListingSettings>> + Send,
    ) -> AuctionAnswer<Put> {
        let Revision { settings, replaces } = revision.into();
        let call = Call::put(listing_path(listing), &ListingBody::new(&settings));
        let Some(replaces) = replaces else { return self.put_settings(call).await };
        let (view, told) = match self.view(listing).await? {
            Ok(seen) => seen,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if view.standing.settings() != replaces {
            return Ok(Err(Rejection::SettingsChanged));
        }
        let tag = told.header(&ETAG).cloned().ok_or_else(no_tag)?;
        self.put_settings(call.header(IF_MATCH, tag)).await
    }

    async fn listing(&self, listing: &ListingName) -> AuctionAnswer<ListingView> {
        Ok(self.view(listing).await?.map(|(view, _)| view))
    }

    /// Beyond a thousand bids the later ones are read at a later instant.
    async fn bids(&self, listing: &ListingName, after: Option<u64>, count: usize) -> AuctionAnswer<Numbered<Bid>> {
        let path = format!("{}/bids", listing_path(listing));
        match self.numbered(&path, after, count, BidShown::bid).await? {
            Ok(found) => Ok(Ok(found)),
            Err(told) => refused(&told),
        }
    }

    async fn place_bid(&self, listing: &ListingName, bid: PlaceBid) -> AuctionAnswer<Effect<PlacedBid>> {
        let PlaceBid { bidder, price, request } = bid;
        let body = BidBody { bidder: bidder.as_str(), price: price.get() };
        let call = Call::post_once(format!("{}/bids", listing_path(listing)), &body, request)?;
        effect(&self.service.call(&call).await?, |shown: PlacedBidShown| shown.placed())
    }

    async fn purchase(&self, listing: &ListingName, purchase: Purchase) -> AuctionAnswer<Effect<Sale>> {
        let Purchase { buyer, request } = purchase;
        let body = PurchaseBody { buyer: buyer.as_str() };
        let call = Call::post_once(format!("{}/purchase", listing_path(listing)), &body, request)?;
        effect(&self.service.call(&call).await?, |shown: SaleShown| shown.sale())
    }

    async fn move_points(&self, member: &MemberName, movement: MovePoints) -> AuctionAnswer<Effect<Balance>> {
        let MovePoints { transfer, amount, request } = movement;
        let way = match transfer {
            Transfer::Charge => "charge",
            Transfer::Refund => "refund",
        };
        let body = AmountBody { amount: amount.get() };
        let call = Call::post_once(format!("{}/points/{way}", member_path(member)), &body, request)?;
        effect(&self.service.call(&call).await?, |shown: BalanceShown| shown.balance())
    }

    async fn balance(&self, member: &MemberName) -> Result<Balance, StoreError> {
        let told = self.service.call(&Call::get(member_path(member))).await?;
        if !told.is_yes() {
            return Err(told.refused());
        }
        told.read::<BalanceShown>()?.balance().ok_or_else(|| told.strange())
    }

    /// Beyond a thousand records the later ones are read at a later instant.
    async fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Result<Numbered<Record>, StoreError> {
        let path = format!("{}/points/records", member_path(member));
        let found = self.numbered(&path, after, count, |shown: &RecordShown| shown.record(member)).await?;
        found.map_err(|told| told.refused())
    }

    /// Has no effect: the service closes auctions by itself, and its replies follow the clock even before. No request.
    async fn close_due(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Always zero: only the metrics of the service count closings.
    fn closings(&self) -> Closings {
        Closings::default()
    }
}
