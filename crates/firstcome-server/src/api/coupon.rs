//! The coupon rows of the contract.

use super::body::{self, PageQuery, PathName};
use super::shape::{
    Claim, ClaimBody, ClaimPage, Coupon, CouponBody, Problem as ProblemShape, Redemption, RedemptionBody,
};
use super::{PASS_HEADER, measured};
use crate::auth::Scope;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use firstcome::core::coupon::{Attributes, Claim as ClaimCommand, Effect, Rejection};
use firstcome::core::id::CouponName;
use firstcome::{Answer, CouponStore, Put, RedeemRequest, Refused, StoreError};
use std::sync::Arc;

/// What a rule's refusal looks like over HTTP.
fn refused(app: &App, coupon: &CouponName, user: &str, refused: &Refused) -> Problem {
    match refused.rejection {
        Rejection::UnknownCoupon => Code::UnknownCoupon.into(),
        Rejection::KeyReused(_) => Code::IdempotencyKeyReused.into(),
        Rejection::AlreadyIssued(_) => {
            let problem = Problem::new(Code::AlreadyIssued);
            let claim = refused.claim.as_ref().map(|claim| Claim::new(coupon, user, claim, app.durability()));
            match claim.map(serde_json::to_value) {
                Some(Ok(claim)) => problem.with("claim", claim),
                _ => problem,
            }
        }
        Rejection::Deleted => Code::Deleted.into(),
        Rejection::NotOpen(opens_at) => {
            let wait_us = opens_at.as_us().saturating_sub(app.store.now().as_us()).max(0);
            let problem = Problem::new(Code::NotOpen).with("opens_at", instant(opens_at));
            problem.retry_after_ms(wait_us.unsigned_abs().div_ceil(1_000))
        }
        Rejection::Expired(at) => Problem::new(Code::Expired).with("expired_at", instant(at)),
        Rejection::SoldOut => Code::SoldOut.into(),
        Rejection::LimitBelowIssued(issued) => Problem::new(Code::LimitBelowIssued).with("issued", issued),
        Rejection::RoomFixed => Code::RoomFixed.into(),
        Rejection::UnknownCode => Code::UnknownCode.into(),
        Rejection::WrongUser => Code::WrongUser.into(),
        Rejection::AlreadyRedeemed(redeemed) => {
            Problem::new(Code::AlreadyRedeemed).with("redeemed_at", instant(redeemed.redeemed_at))
        }
        // A rule that this service does not know yet: its caller must not take it for a yes.
        _ => Code::OutcomeUnknown.into(),
    }
}

/// Waits for the store, but no longer than a caller should. Whoever is told "unknown" may ask again safely.
async fn answered<T>(app: &App, answer: impl Future<Output = Answer<T>>) -> Result<Result<T, Refused>, Problem> {
    match tokio::time::timeout(app.config.limits.answer, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(StoreError::Unknown.into()),
    }
}

const NO_STORE: [(header::HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];

/// Create a coupon or replace its settings
///
/// All settings are replaced: what is left out is unset. The limit may be raised, or lowered to no less than what is
/// issued. The room is fixed by the first claim. A deleted name is never used again.
#[utoipa::path(put, path = "/v1/coupons/{coupon}", tag = "Coupons", security(("admin" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon")), request_body = CouponBody,
    responses(
        (status = 200, description = "Settings replaced", body = Coupon),
        (status = 201, description = "Created", body = Coupon),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`limit_below_issued` `room_fixed`", body = ProblemShape),
        (status = 410, description = "`deleted`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn put_coupon(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = async {
        let (parts, body) = request.into_parts();
        app.caller(&parts.headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let settings = body::parse::<CouponBody>(&bytes)?.settings()?;
        let put = answered(&app, app.store.put_coupon(&coupon, settings)).await?;
        let put = put.map_err(|refusal| refused(&app, &coupon, "", &refusal))?;
        let status = if put == Put::Created { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, show(&app, &coupon).await?))
    };
    measured(&app, Route::PutCoupon, call).await
}

async fn show(app: &App, coupon: &CouponName) -> Result<Response, Problem> {
    let view = answered(app, app.store.coupon(coupon)).await?;
    let view = view.map_err(|refusal| refused(app, coupon, "", &refusal))?;
    Ok(Json(Coupon::new(coupon, &view)).into_response())
}

/// Show a coupon
#[utoipa::path(get, path = "/v1/coupons/{coupon}", tag = "Coupons",
    params(("coupon" = String, Path, description = "Name of the coupon")),
    responses(
        (status = 200, description = "The coupon", body = Coupon),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: a key came, and it is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_coupon(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = async {
        app.caller(&headers)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        show(&app, &coupon).await
    };
    measured(&app, Route::GetCoupon, call).await
}

/// Delete a coupon for good
///
/// Its claims stay readable and redeemable. A second time has no effect.
#[utoipa::path(delete, path = "/v1/coupons/{coupon}", tag = "Coupons", security(("admin" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn delete_coupon(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let deleted = answered(&app, app.store.delete_coupon(&coupon)).await?;
        deleted.map_err(|refusal| refused(&app, &coupon, "", &refusal))?;
        Ok(StatusCode::NO_CONTENT)
    };
    measured(&app, Route::DeleteCoupon, call).await
}

/// Who may claim: a service key for anybody; else a pass of the coupon's room.
async fn may_claim(app: &App, headers: &HeaderMap, coupon: &CouponName) -> Result<crate::auth::Caller, Problem> {
    let caller = app.caller(headers)?;
    if headers.contains_key(PASS_HEADER) {
        // A pass that is sent is always judged. This service has no rooms, so none can be valid.
        return Err(Code::InvalidPass.into());
    }
    if caller.scope == Scope::Public {
        let view = answered(app, app.store.coupon(coupon)).await?;
        if view.is_ok_and(|view| view.settings.room.is_some()) {
            return Err(Code::PassRequired.into());
        }
    }
    caller.require(Scope::Service)
}

/// Claim one coupon for a user
///
/// First come, first served, one each. The answer comes after the claim is durable. A repeat by the same user has no
/// second effect: with the same `Idempotency-Key` and body it is answered 201 again, else 409 `already_issued` with
/// the claim. Order of refusals: `idempotency_key_reused`, `already_issued`, `deleted`, `not_open`, `expired`,
/// `sold_out`.
#[utoipa::path(post, path = "/v1/coupons/{coupon}/claims", tag = "Coupons", security(("service" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = ClaimBody,
    responses(
        (status = 201, description = "The claim", body = Claim),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`pass_required` `invalid_pass`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`already_issued` (with `claim`), `sold_out`", body = ProblemShape),
        (status = 410, description = "`expired` `deleted`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 425, description = "`not_open`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_claim(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = async {
        let (parts, body) = request.into_parts();
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let caller = may_claim(&app, &parts.headers, &coupon).await?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let wanted = body::parse::<ClaimBody<'_>>(&bytes)?;
        let user = body::user(&wanted.user)?;
        let attributes = wanted.attributes()?;
        let meaning = [user.as_str().as_bytes(), attributes.as_ref().map_or("", Attributes::as_str).as_bytes()];
        let request = body::request(&parts.headers, caller, (&coupon, "claims"), &meaning)?;
        let claim = ClaimCommand { user, attributes, request };
        let claimed = answered(&app, app.store.claim(&coupon, claim)).await?;
        let claimed = claimed.map_err(|refusal| refused(&app, &coupon, &wanted.user, &refusal))?.into_inner();
        let claim = Claim::new(&coupon, &wanted.user, &claimed, app.durability());
        Ok((StatusCode::CREATED, NO_STORE, Json(claim)).into_response())
    };
    measured(&app, Route::PostClaim, call).await
}

/// Show a user's claim
#[utoipa::path(get, path = "/v1/coupons/{coupon}/claims/{user}", tag = "Coupons", security(("service" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"), ("user" = String, Path, description = "Whose")),
    responses(
        (status = 200, description = "The claim", body = Claim),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon` `unknown_claim`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_claim(
    State(app): State<Arc<App>>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    headers: HeaderMap,
) -> Response {
    let call = async {
        app.caller(&headers)?.require(Scope::Service)?;
        let Path((coupon, user)) = path.map_err(|_| body::undecodable())?;
        let coupon = body::coupon(&coupon)?;
        let found = answered(&app, app.store.claim_of(&coupon, body::looked_up_user(&user)?)).await?;
        let found = found.map_err(|refusal| refused(&app, &coupon, &user, &refusal))?;
        let record = found.ok_or(Code::UnknownClaim)?;
        Ok((NO_STORE, Json(Claim::of_record(&coupon, &record, app.durability()))).into_response())
    };
    measured(&app, Route::GetClaim, call).await
}

/// List claims in serial order
#[utoipa::path(get, path = "/v1/coupons/{coupon}/claims", tag = "Coupons", security(("admin" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("after" = Option<u32>, Query, description = "Begin after this serial"),
        ("limit" = Option<u32>, Query, description = "At most so many: 1 to 1000, 100 without it")),
    responses(
        (status = 200, description = "A page", body = ClaimPage),
        (status = 400, description = "`invalid_name` `invalid_query`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_claims(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap, uri: Uri) -> Response {
    let call = async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let page = PageQuery::parse(uri.query().unwrap_or_default())?;
        let found = answered(&app, app.store.claims(&coupon, page.after, page.limit)).await?;
        let found = found.map_err(|refusal| refused(&app, &coupon, "", &refusal))?;
        let claim = |record| Claim::of_record(&coupon, record, app.durability());
        let items = found.items.iter().map(claim).collect();
        Ok((NO_STORE, Json(ClaimPage { items, next: found.next.map(|serial| serial.get()) })).into_response())
    };
    measured(&app, Route::GetClaims, call).await
}

/// Use up a coupon by its code
///
/// Once each. Codes of a deleted or sold-out coupon stay redeemable. Order of refusals: `unknown_code`, `wrong_user`,
/// `already_redeemed`, `expired`.
#[utoipa::path(post, path = "/v1/coupons/{coupon}/redemptions", tag = "Coupons", security(("service" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = RedemptionBody,
    responses(
        (status = 201, description = "Redeemed", body = Redemption),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon` `unknown_code`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`wrong_user` `already_redeemed`", body = ProblemShape),
        (status = 410, description = "`expired`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_redemption(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Service)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let wanted = body::parse::<RedemptionBody>(&bytes)?;
        let user = wanted.user.as_deref().map(body::user).transpose()?;
        let code: String = wanted.code.chars().filter(|character| !matches!(character, '-' | ' ')).collect();
        let code = code.to_ascii_uppercase();
        let meaning = [code.as_bytes(), wanted.user.as_deref().unwrap_or_default().as_bytes()];
        let request = body::request(&parts.headers, caller, (&coupon, "redemptions"), &meaning)?;
        let redeem = RedeemRequest { code: wanted.code, user, request };
        let redeemed = answered(&app, app.store.redeem(&coupon, redeem)).await?;
        let record = redeemed.map(Effect::into_inner).map_err(|refusal| refused(&app, &coupon, "", &refusal))?;
        Ok((StatusCode::CREATED, NO_STORE, Json(Redemption::new(&coupon, &record))))
    };
    measured(&app, Route::PostRedemption, call).await
}
