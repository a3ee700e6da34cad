//! The listing endpoints of the HTTP API: fixed prices and auctions.

use super::answer::Answer;
use super::auction_shape::{
    Bid, BidBody, BidPage, Listing, ListingBody, PlacedBid, Purchase, PurchaseBody, ends_before_start, listing_settings,
};
use super::body::{self, PageQuery, PathName};
use super::json::Json;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured, replayed, revision};
use crate::auth::{Caller, Scope};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use firstcome::core::auction::{ListingSettings, Rejection};
use firstcome::core::coupon::Effect;
use firstcome::core::id::ListingName;
use firstcome::core::revision::Revision;
use firstcome::{PlaceBid, Purchase as PurchaseCommand, Put, StoreError};
use hyper::body::Body;
use serde_json::Value;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

/// Translates a rule's refusal to an HTTP problem, except for `already_sold` with its purchase.
pub(crate) fn refused(rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::UnknownListing => Code::UnknownListing.into(),
        Rejection::KeyReused => Code::IdempotencyKeyReused.into(),
        Rejection::OwnListing => Code::OwnListing.into(),
        Rejection::NotInProgress => Code::NotInProgress.into(),
        Rejection::AlreadyHighestBidder => Code::AlreadyHighestBidder.into(),
        Rejection::BidTooLow(minimum) => Problem::new(Code::BidTooLow).with("minimum", *minimum),
        Rejection::InsufficientPoints(available) => {
            Problem::new(Code::InsufficientPoints).with("available", *available)
        }
        Rejection::AuctionNotEnded(until) => {
            Problem::new(Code::AuctionNotEnded).with("effective_ends_at", instant(*until))
        }
        Rejection::NotWinner => Code::NotWinner.into(),
        Rejection::AlreadySold(_) => Code::AlreadySold.into(),
        Rejection::SettlementExpired(until) => {
            Problem::new(Code::SettlementExpired).with("settles_until", instant(*until))
        }
        Rejection::SettingsChanged => Code::SettingsChanged.into(),
        Rejection::ListingRunning => Code::ListingRunning.into(),
        Rejection::ListingEnded => Code::ListingEnded.into(),
        Rejection::EndsBeforeStart => ends_before_start(),
        Rejection::BalanceTooLarge => Code::BalanceTooLarge.into(),
        // A rejection that this version does not know: the caller must not take it for a success.
        _ => Code::OutcomeUnknown.into(),
    }
}

fn refused_purchase(listing: &ListingName, rejection: &Rejection) -> Problem {
    let problem = refused(rejection);
    let Rejection::AlreadySold(sale) = rejection else { return problem };
    match serde_json::to_value(Purchase::new(listing, sale)) {
        Ok(purchase) => problem.with("purchase", purchase),
        Err(_) => problem,
    }
}

/// Waits for a read of the store that no rule can refuse.
pub(super) async fn read<T>(app: &App, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, Problem> {
    let answer = async { answer.await.map(Ok::<T, Infallible>) };
    match answered(app, pin!(answer)).await? {
        Ok(found) => Ok(found),
        Err(never) => match never {},
    }
}

/// Authorizes a call that changes a listing, and reads its name and body.
async fn service_call(
    app: &App,
    path: PathName,
    request: Request,
) -> Result<(Caller, ListingName, Parts, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    let caller = app.caller(&parts.headers)?.require(Scope::Service)?;
    let listing = body::listing(&path.map_err(|_| body::undecodable())?.0)?;
    let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
    Ok((caller, listing, parts, bytes))
}

/// Create a listing or replace its settings
///
/// At a fixed price the first buyer gets the listing, in an auction the highest bid at the end. Every setting may
/// change before the start. A running auction may get a later end, and no other change. Late bids may already have put
/// the effective end off beyond the new one: then the effective end stays. The same settings again have no effect.
/// With `If-Match` only the settings of that `ETag` are replaced, and nothing is created. Order of refusals:
/// `settings_changed`, `ends_before_start`, `listing_ended`, `listing_running`.
#[utoipa::path(put, path = "/v1/listings/{listing}", tag = "Listings", security(("service" = [])),
    params(("listing" = String, Path, description = "Name of the listing"),
        ("If-Match" = Option<String>, Header, description = "Replace only the settings of this `ETag`")),
    request_body = ListingBody,
    responses(
        (status = 200, description = "Settings replaced", body = Listing),
        (status = 201, description = "Created", body = Listing),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `ends_before_start`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_listing`: with `If-Match`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`listing_running` `listing_ended`", body = ProblemShape),
        (status = 412, description = "`settings_changed`: with `If-Match`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn put_listing(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (caller, listing, parts, bytes) = service_call(&app, path, request).await?;
        let put = revision::put::<ListingSettings>(&app, &listing, &parts.headers, &bytes).await?;
        let status = if put == Put::Created { StatusCode::CREATED } else { StatusCode::OK };
        // The settings are stored: a failure of the read must not say that the change failed.
        let shown = show(&app, caller, &listing).await.map_err(|_| StoreError::Unknown)?;
        Ok((status, shown))
    });
    measured(&app, Route::PutListing, call).await
}

/// Change some settings of a listing
///
/// A merge patch (RFC 7396): it replaces the members that it names, null unsets one, the others stay. If another
/// caller changes the settings meanwhile, the patch is merged again; with `If-Match` it is refused. The same changes
/// are allowed as with PUT, in the same order of refusals.
#[utoipa::path(patch, path = "/v1/listings/{listing}", tag = "Listings", security(("service" = [])),
    params(("listing" = String, Path, description = "Name of the listing"),
        ("If-Match" = Option<String>, Header, description = "Change only the settings of this `ETag`")),
    request_body(content = ListingBody, description = "Members of it", content_type = "application/merge-patch+json"),
    responses(
        (status = 200, description = "Changed", body = Listing),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `ends_before_start`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_listing`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`listing_running` `listing_ended`", body = ProblemShape),
        (status = 412, description = "`settings_changed`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn patch_listing(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Service)?;
        let listing = body::listing(&path.map_err(|_| body::undecodable())?.0)?;
        let patch = body::read_patch(&parts.headers, body, app.config.limits.body).await?;
        revision::patch::<ListingSettings>(&app, &listing, &parts.headers, &patch).await?;
        // The settings are stored: a failure of the read must not say that the change failed.
        Ok(show(&app, caller, &listing).await.map_err(|_| StoreError::Unknown)?)
    });
    measured(&app, Route::PatchListing, call).await
}

impl revision::Settings for ListingSettings {
    type Name = ListingName;

    async fn in_force(app: &App, listing: &ListingName) -> Result<Self, Problem> {
        let view = answered(app, pin!(app.auctions.listing(listing))).await?;
        Ok(view.map_err(|rejection| refused(&rejection))?.standing.settings())
    }

    fn shown(&self, _: &App) -> Value {
        listing_settings(self)
    }

    async fn read(_: &App, body: &[u8]) -> Result<Self, Problem> {
        body::parse::<ListingBody<'_>>(body)?.settings()
    }

    async fn put(app: &App, listing: &ListingName, revision: Revision<Self>) -> Result<Put, Problem> {
        let put = answered(app, pin!(app.auctions.put_listing(listing, revision))).await?;
        put.map_err(|rejection| refused(&rejection))
    }
}

async fn show(app: &App, caller: Caller, listing: &ListingName) -> Result<Response, Problem> {
    let view = answered(app, pin!(app.auctions.listing(listing))).await?;
    let view = view.map_err(|rejection| refused(&rejection))?;
    let is_service = caller.require(Scope::Service).is_ok();
    let mut shown = Listing::new(&view, is_service);
    if !is_service {
        return Ok((NO_STORE, Json(shown)).into_response());
    }
    let settings = listing_settings(&view.standing.settings());
    let tag = revision::tag_header(&settings);
    shown.settings = Some(settings);
    Ok((NO_STORE, [tag], Json(shown)).into_response())
}

/// Show a listing
///
/// The state follows from the time, whether or not the auction has been closed. Only a service key sees `purchase`,
/// and the `settings` with their `ETag`. The highest bid shows every caller who has won an auction.
#[utoipa::path(get, path = "/v1/listings/{listing}", tag = "Listings",
    params(("listing" = String, Path, description = "Name of the listing")),
    responses(
        (status = 200, description = "The listing", body = Listing),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: a key came, and it is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_listing`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_listing(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        let caller = app.reader(&headers)?;
        let listing = body::listing(&path.map_err(|_| body::undecodable())?.0)?;
        show(&app, caller, &listing).await
    });
    measured(&app, Route::GetListing, call).await
}

/// List the accepted bids in their order
#[utoipa::path(get, path = "/v1/listings/{listing}/bids", tag = "Listings", security(("service" = [])),
    params(("listing" = String, Path, description = "Name of the listing"),
        ("after" = Option<u64>, Query, description = "Begin after this bid"),
        ("limit" = Option<u32>, Query, description = "At most so many: 1 to 1000, 100 without it")),
    responses(
        (status = 200, description = "A page", body = BidPage),
        (status = 400, description = "`invalid_name` `invalid_query`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_listing`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_bids(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap, uri: Uri) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Service)?;
        let listing = body::listing(&path.map_err(|_| body::undecodable())?.0)?;
        let page = PageQuery::numbers(uri.query().unwrap_or_default())?;
        let found = answered(&app, pin!(app.auctions.bids(&listing, page.after, page.limit))).await?;
        let found = found.map_err(|rejection| refused(&rejection))?;
        let items = found.items.iter().map(Bid::new).collect();
        Ok((NO_STORE, Json(BidPage { items, next: found.next })).into_response())
    });
    measured(&app, Route::GetBids, call).await
}

/// Bid
///
/// Bids at the first and at the last instant of the period count. In one step this holds the bidder's points and frees
/// those of the previous bidder. A late bid may put the end off. With an `Idempotency-Key` a repeat gets the first
/// answer again, even if another member has bid more since. Order of refusals: `unknown_listing`,
/// `idempotency_key_reused`, `own_listing`, `not_in_progress`, `already_highest_bidder`, `bid_too_low`,
/// `insufficient_points`.
#[utoipa::path(post, path = "/v1/listings/{listing}/bids", tag = "Listings", security(("service" = [])),
    params(("listing" = String, Path, description = "Name of the listing"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = BidBody,
    responses(
        (status = 201, description = "Accepted: the highest bid", body = PlacedBid),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_listing`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`own_listing` `not_in_progress` `already_highest_bidder`, `bid_too_low` (with `minimum`), `insufficient_points` (with `available`)", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_bid(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        bid(&app, &path.map_err(|_| body::undecodable())?.0, &parts.headers, body).await
    });
    measured(&app, Route::PostBid, call).await
}

/// Answers a bid on the listing that the path names.
pub(super) async fn bid(
    app: &App,
    listing: &str,
    headers: &HeaderMap,
    body: impl Body<Data = Bytes> + Unpin,
) -> Result<Answer, Problem> {
    let caller = app.caller(headers)?.require(Scope::Service)?;
    let listing = body::listing(listing)?;
    let bytes = body::read(headers, body, app.config.limits.body).await?;
    let (bidder, price) = body::parse::<BidBody<'_>>(&bytes)?.bid()?;
    let meaning = [bidder.as_str().as_bytes(), &price.get().to_be_bytes()];
    let request = body::request(headers, caller, (listing.as_str(), "bids"), &meaning)?;
    let bid = PlaceBid { bidder, price, request };
    let placed = answered(app, pin!(app.auctions.place_bid(&listing, bid))).await?;
    let placed = placed.map_err(|rejection| {
        app.metrics.auctions.bid_refused(&rejection);
        refused(&rejection)
    })?;
    if matches!(placed, Effect::New(_)) {
        app.metrics.auctions.bid_accepted();
    }
    let (Effect::New(bid) | Effect::Again(bid)) = &placed;
    Ok(Answer::new(StatusCode::CREATED, &PlacedBid::new(&listing, bid)).replayed(&placed))
}

/// Buy, or settle an auction that was won
///
/// Moves the price from the buyer to the owner in one step. The winner of an auction pays with the points that back
/// the winning bid. A listing is sold once. With an `Idempotency-Key` a repeat gets the first answer again, else
/// `already_sold` with the purchase. Order of refusals for an auction: `auction_not_ended`, `not_winner`,
/// `already_sold`, `settlement_expired`; at a fixed price: `own_listing`, `not_in_progress`, `already_sold`,
/// `insufficient_points`; for both, at the end: `balance_too_large` (of the owner).
#[utoipa::path(post, path = "/v1/listings/{listing}/purchase", tag = "Listings", security(("service" = [])),
    params(("listing" = String, Path, description = "Name of the listing"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = PurchaseBody,
    responses(
        (status = 201, description = "Sold", body = Purchase),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_listing`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`auction_not_ended` (with the end), `not_winner`, `already_sold` (with `purchase`), `settlement_expired` (with the end of that time), `own_listing`, `not_in_progress`, `insufficient_points` (with `available`), `balance_too_large`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_purchase(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (caller, listing, parts, bytes) = service_call(&app, path, request).await?;
        let buyer = body::parse::<PurchaseBody<'_>>(&bytes)?.buyer()?;
        let meaning = [buyer.as_str().as_bytes()];
        let request = body::request(&parts.headers, caller, (listing.as_str(), "purchase"), &meaning)?;
        let sold = answered(&app, pin!(app.auctions.purchase(&listing, PurchaseCommand { buyer, request }))).await?;
        let sold = sold.map_err(|rejection| refused_purchase(&listing, &rejection))?;
        if let Effect::New(sale) = &sold {
            app.metrics.auctions.sold(sale.price.get());
        }
        let (replayed, sale) = (replayed(&sold), sold.into_inner());
        Ok((StatusCode::CREATED, NO_STORE, replayed, Json(Purchase::new(&listing, &sale))).into_response())
    });
    measured(&app, Route::PostPurchase, call).await
}
