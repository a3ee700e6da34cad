//! The endpoints of the HTTP API about members and their points.

use super::auction_shape::{AmountBody, Balance, Record, RecordPage};
use super::body::{self, PageQuery, PathName};
use super::json::Json;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, listing, measured, replayed};
use crate::auth::Scope;
use crate::error::{Code, Problem};
use crate::metrics::{Movement, Route};
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use firstcome::core::coupon::Effect;
use firstcome::{MovePoints, Transfer};
use std::pin::pin;
use std::sync::Arc;

/// Show a member's balance
///
/// Members need not be created: a member that was never charged has 0 points.
#[utoipa::path(get, path = "/v1/members/{member}", tag = "Points", security(("service" = [])),
    params(("member" = String, Path, description = "Name of the member")),
    responses(
        (status = 200, description = "The balance", body = Balance),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_member(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Service)?;
        let member = body::member("member", &path.map_err(|_| body::undecodable())?.0)?;
        let balance = listing::read(&app, app.auctions.balance(&member)).await?;
        Ok((NO_STORE, Json(Balance::new(&member, balance))).into_response())
    });
    measured(&app, Route::GetMember, call).await
}

/// List the movements of a member's points
///
/// In order. Each record is written once and never changed; `hash` covers it and all before it. The balance is the sum
/// of the deltas, unless a purge removed the first records. When the winner of an auction settles, one step writes two records:
/// CAPTURE ends the hold, and PURCHASE pays with the held points. A purchase at a fixed price writes only the PURCHASE record of the buyer.
#[utoipa::path(get, path = "/v1/members/{member}/points/records", tag = "Points", security(("service" = [])),
    params(("member" = String, Path, description = "Name of the member"),
        ("after" = Option<u64>, Query, description = "Begin after this number"),
        ("limit" = Option<u32>, Query, description = "At most so many: 1 to 1000, 100 without it")),
    responses(
        (status = 200, description = "A page", body = RecordPage),
        (status = 400, description = "`invalid_name` `invalid_query`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 410, description = "`records_removed`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_records(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap, uri: Uri) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Service)?;
        let member = body::member("member", &path.map_err(|_| body::undecodable())?.0)?;
        let page = PageQuery::numbers(uri.query().unwrap_or_default())?;
        let found = listing::read(&app, app.auctions.records(&member, page.after, page.limit)).await?;
        // A caller that walks the pages would not notice that some are missing. Without a number it asks for what there is.
        if (1..found.removed_to).contains(&page.after.unwrap_or(0)) {
            return Err(Problem::new(Code::RecordsRemoved).with("removed_to", found.removed_to));
        }
        let items = found.items.iter().map(Record::new).collect();
        let removed_to = Some(found.removed_to).filter(|removed_to| 0 < *removed_to);
        Ok((NO_STORE, Json(RecordPage { items, next: found.next, removed_to })).into_response())
    });
    measured(&app, Route::GetRecords, call).await
}

/// Add points that come in from outside
///
/// The first charge creates the member. Send an `Idempotency-Key`, since a repeat without one charges again. The key
/// is remembered for 30 days, and a repeat is answered with the balance after the first charge.
#[utoipa::path(post, path = "/v1/members/{member}/points/charge", tag = "Points", security(("service" = [])),
    params(("member" = String, Path, description = "Name of the member"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = AmountBody,
    responses(
        (status = 200, description = "The balance after it", body = Balance),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`balance_too_large`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_charge(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    measured(&app, Route::PostCharge, pin!(move_points(&app, Transfer::Charge, path, request))).await
}

/// Take out points that are paid back to the person
///
/// Points that back a bid cannot be refunded. Send an `Idempotency-Key`, as with a charge.
#[utoipa::path(post, path = "/v1/members/{member}/points/refund", tag = "Points", security(("service" = [])),
    params(("member" = String, Path, description = "Name of the member"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = AmountBody,
    responses(
        (status = 200, description = "The balance after it", body = Balance),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`insufficient_points` (with `available`)", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_refund(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    measured(&app, Route::PostRefund, pin!(move_points(&app, Transfer::Refund, path, request))).await
}

async fn move_points(app: &App, transfer: Transfer, path: PathName, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let caller = app.caller(&parts.headers)?.require(Scope::Service)?;
    let member = body::member("member", &path.map_err(|_| body::undecodable())?.0)?;
    let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
    let amount = body::parse::<AmountBody>(&bytes)?.amount();
    let (row, movement) = match transfer {
        Transfer::Charge => ("charge", Movement::Charge),
        Transfer::Refund => ("refund", Movement::Refund),
    };
    let meaning = amount.get().to_be_bytes();
    let request = body::request(&parts.headers, caller, (member.as_str(), row), &[&meaning])?;
    let moved =
        answered(app, pin!(app.auctions.move_points(&member, MovePoints { transfer, amount, request }))).await?;
    let moved = moved.map_err(|rejection| listing::refused(&rejection))?;
    if matches!(moved, Effect::New(_)) {
        app.metrics.auctions.moved(movement, amount.get());
    }
    Ok((NO_STORE, replayed(&moved), Json(Balance::new(&member, moved.into_inner()))).into_response())
}
