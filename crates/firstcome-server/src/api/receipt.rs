//! Heads and receipts: texts that a client can check without this service.

use super::body::{self, PageQuery, PathName};
use super::coupon::refused as refused_coupon;
use super::room::{PathTicket, refused as refused_room};
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured};
use crate::auth::Scope;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::state::App;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, Uri, header};
use axum::response::{IntoResponse, Response};
use firstcome::core::id::{CouponName, RoomName};
use firstcome::core::room::TicketNumber;
use firstcome::receipt::HEADS_PER_PAGE_MAX;
use firstcome::{HeadPage, Receipt, ReceiptReply};
use std::pin::pin;
use std::sync::Arc;

/// When a client asks again for a receipt that no head covers yet.
const PENDING_MS: u64 = 1_000;
/// The detail for a receipt that would name removed heads.
const RECEIPT_REMOVED: &str = "A purge removed published heads that the receipt would name, so it can no longer be made. A \
    receipt that was saved before still verifies.";
const TEXT: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];

fn text(text: String) -> Response {
    (NO_STORE, TEXT, text).into_response()
}

fn page_of(uri: &Uri) -> Result<(u64, usize), Problem> {
    let page = PageQuery::numbers(uri.query().unwrap_or_default())?;
    Ok((page.after.unwrap_or(0), page.limit.min(HEADS_PER_PAGE_MAX)))
}

/// Shows a page of the heads after a sequence.
fn shown(page: &HeadPage, after: u64) -> Result<Response, Problem> {
    // A client that follows the chain would not notice that heads are missing. Without a sequence it asks for what there is.
    match page.removed_to(after).filter(|_| 0 < after) {
        Some(removed_to) => Err(Problem::new(Code::HeadsRemoved).with("removed_to", removed_to)),
        None => Ok(text(page.text())),
    }
}

/// Returns a receipt, or says when to ask for it, or why there is none.
fn ready(reply: ReceiptReply) -> Result<Box<Receipt>, Problem> {
    match reply {
        ReceiptReply::Ready(receipt) => Ok(receipt),
        ReceiptReply::Pending => Err(Problem::new(Code::ReceiptPending).retry_after_ms(PENDING_MS)),
        ReceiptReply::Absent => Err(Code::UnknownClaim.into()),
        ReceiptReply::Removed => Err(Problem::new(Code::HeadsRemoved).detail(RECEIPT_REMOVED)),
    }
}

/// Returns the receipt of a ticket.
pub(crate) async fn of_ticket(app: &App, room: &RoomName, ticket: &str) -> Result<Box<Receipt>, Problem> {
    let reply = answered(app, pin!(app.rooms.ticket_receipt(room, ticket))).await?.map_err(refused_room)?;
    ready(reply)
}

/// Returns the receipt of a living place, for an operator.
pub(crate) async fn of_place(app: &App, room: &RoomName, number: TicketNumber) -> Result<Box<Receipt>, Problem> {
    let reply = answered(app, pin!(app.rooms.place_receipt(room, number))).await?.map_err(refused_room)?;
    ready(reply)
}

/// Returns the receipt of the claim of a user.
pub(crate) async fn of_claim(app: &App, coupon: &CouponName, user: &str) -> Result<Box<Receipt>, Problem> {
    let reply = answered(app, pin!(app.coupons.claim_receipt(coupon, body::looked_up_user(user)?))).await?;
    ready(reply.map_err(|refusal| refused_coupon(app, coupon, user, &refusal))?)
}

/// List the published heads of a room
///
/// The service publishes a head every second while visitors are in line or inside. A head is a signed text that names the
/// one before it by its SHA-256. Public, and the same for all. `after` is the last `sequence` that a client has; a page has
/// at most 100 heads. Keep heads to check receipts later: a purge may remove the first ones. Then a page without `after`
/// begins with the first head that is left, and an earlier `after` is refused.
#[utoipa::path(get, path = "/v1/rooms/{room}/heads", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"),
        ("after" = Option<u64>, Query, description = "Begin after the head of this sequence"),
        ("limit" = Option<u32>, Query, description = "At most so many: 1 to 1000; no page has more than 100")),
    responses(
        (status = 200, description = "The public key, and heads in their order", body = String, content_type = "text/plain"),
        (status = 400, description = "`invalid_name` `invalid_query`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 410, description = "`heads_removed`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_room_heads(
    State(app): State<Arc<App>>,
    path: PathName,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let call = pin!(async {
        app.reader(&headers)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let (after, count) = page_of(&uri)?;
        let page = answered(&app, pin!(app.rooms.room_heads(&room, after, count))).await?;
        shown(&page.map_err(refused_room)?, after)
    });
    measured(&app, Route::GetRoomHeads, call).await
}

/// Show the receipt of a ticket
///
/// A signed statement of the number, with the two published heads between which the room gave it. It names the admission,
/// once the ticket is inside and a later head is published. Needs the ticket, and counts as no poll. Ask in time: once a
/// purge has removed a head that the receipt would name, it can no longer be made.
/// `firstcome verify --receipt FILE` and the page `/receipts` check it without the service.
#[utoipa::path(get, path = "/v1/rooms/{room}/tickets/{ticket}/receipt", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"), ("ticket" = String, Path, description = "What joining returned")),
    responses(
        (status = 200, description = "The receipt", body = String, content_type = "text/plain"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room` `unknown_ticket`", body = ProblemShape),
        (status = 409, description = "`receipt_pending`", body = ProblemShape),
        (status = 410, description = "`heads_removed`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_ticket_receipt(State(app): State<Arc<App>>, path: PathTicket, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?;
        let Path((room, ticket)) = path.map_err(|_| body::undecodable())?;
        Ok(text(of_ticket(&app, &body::room(&room)?, &ticket).await?.text()))
    });
    measured(&app, Route::GetTicketReceipt, call).await
}

/// List the published heads of a coupon
///
/// The service publishes a head in the second after a claim or a new limit. Public, and the same for all. See the heads of
/// a room.
#[utoipa::path(get, path = "/v1/coupons/{coupon}/heads", tag = "Coupons",
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("after" = Option<u64>, Query, description = "Begin after the head of this sequence"),
        ("limit" = Option<u32>, Query, description = "At most so many: 1 to 1000; no page has more than 100")),
    responses(
        (status = 200, description = "The public key, and heads in their order", body = String, content_type = "text/plain"),
        (status = 400, description = "`invalid_name` `invalid_query`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 410, description = "`heads_removed`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_coupon_heads(
    State(app): State<Arc<App>>,
    path: PathName,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let call = pin!(async {
        app.reader(&headers)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let (after, count) = page_of(&uri)?;
        let page = answered(&app, pin!(app.coupons.coupon_heads(&coupon, after, count))).await?;
        shown(&page.map_err(|refusal| refused_coupon(&app, &coupon, "", &refusal))?, after)
    });
    measured(&app, Route::GetCouponHeads, call).await
}

/// Show the receipt of a user's claim
///
/// A signed statement of serial, user and instant, with the two published heads between which the claim was issued. Once a
/// purge has removed one of these, the receipt can no longer be made.
/// `firstcome verify --receipt FILE` and the page `/receipts` check it without the service.
#[utoipa::path(get, path = "/v1/coupons/{coupon}/claims/{user}/receipt", tag = "Coupons", security(("service" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"), ("user" = String, Path, description = "Whose")),
    responses(
        (status = 200, description = "The receipt", body = String, content_type = "text/plain"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon` `unknown_claim`", body = ProblemShape),
        (status = 409, description = "`receipt_pending`", body = ProblemShape),
        (status = 410, description = "`purged` `heads_removed`", body = ProblemShape),
        (status = 503, description = "`overloaded` `not_stored_yet` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_claim_receipt(State(app): State<Arc<App>>, path: PathTicket, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Service)?;
        let Path((coupon, user)) = path.map_err(|_| body::undecodable())?;
        Ok(text(of_claim(&app, &body::coupon(&coupon)?, &user).await?.text()))
    });
    measured(&app, Route::GetClaimReceipt, call).await
}
