//! The coupon endpoints of the HTTP API.

use super::answer::Answer;
use super::body::{self, PageQuery, PathName};
use super::json::Json;
use super::shape::{
    Claim, ClaimBody, ClaimPage, Coupon, CouponBody, Problem as ProblemShape, Redemption, RedemptionBody,
    coupon_settings,
};
use super::{NO_STORE, PASS_HEADER, answered, measured, replayed, revision, room};
use crate::auth::{Caller, Scope};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::pass::Grant;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use firstcome::core::coupon::{Acknowledge, Attributes, Claim as ClaimCommand, CouponSettings, Effect, Rejection};
use firstcome::core::id::{CouponName, UserId};
use firstcome::core::revision::Revision;
use firstcome::core::room::TicketNumber;
use firstcome::{ClaimReply, CouponStore, Put, RedeemRequest, Refused};
use hyper::body::Body;
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;

/// Translates a rule's refusal to an HTTP problem.
pub(crate) fn refused(app: &App, coupon: &CouponName, user: &str, refused: &Refused) -> Problem {
    match refused.rejection {
        Rejection::UnknownCoupon => Code::UnknownCoupon.into(),
        Rejection::KeyReused(serial) => Problem::new(Code::IdempotencyKeyReused).with("serial", serial.get()),
        Rejection::AlreadyIssued(_) => {
            let problem = Problem::new(Code::AlreadyIssued);
            let claim = refused.claim.as_ref().map(|claim| Claim::new(coupon, user, claim, app.durability().as_str()));
            match claim.map(serde_json::to_value) {
                Some(Ok(claim)) => problem.with("claim", claim),
                _ => problem,
            }
        }
        Rejection::Deleted => Code::Deleted.into(),
        Rejection::Purged(at) => Problem::new(Code::Purged).with("purged_at", instant(at)),
        Rejection::NotOpen(opens_at) => {
            let wait_us = opens_at.as_us().saturating_sub(app.backend.now().as_us()).max(0);
            let problem = Problem::new(Code::NotOpen).with("opens_at", instant(opens_at));
            problem.retry_after_ms(wait_us.unsigned_abs().div_ceil(1_000))
        }
        Rejection::Expired(at) => Problem::new(Code::Expired).with("expired_at", instant(at)),
        Rejection::SoldOut => Code::SoldOut.into(),
        Rejection::SettingsChanged => Code::SettingsChanged.into(),
        Rejection::LimitBelowIssued(issued) => Problem::new(Code::LimitBelowIssued).with("issued", issued),
        Rejection::RoomFixed => Code::RoomFixed.into(),
        Rejection::UnknownCode => Code::UnknownCode.into(),
        Rejection::WrongUser => Code::WrongUser.into(),
        Rejection::AlreadyRedeemed(redeemed) => {
            Problem::new(Code::AlreadyRedeemed).with("redeemed_at", instant(redeemed.redeemed_at))
        }
        // A rejection that this version does not know: the caller must not take it for a success.
        _ => Code::OutcomeUnknown.into(),
    }
}

/// Create a coupon or replace its settings
///
/// All settings are replaced: an omitted setting is unset. The limit may be raised, or lowered to no less than the
/// number of issued claims. The room must exist, and the first claim fixes it. A deleted name is never used again.
/// With `If-Match` only the settings of that `ETag` are replaced, and nothing is created.
#[utoipa::path(put, path = "/v1/coupons/{coupon}", tag = "Coupons", security(("admin" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("If-Match" = Option<String>, Header, description = "Replace only the settings of this `ETag`")),
    request_body = CouponBody,
    responses(
        (status = 200, description = "Settings replaced", body = Coupon),
        (status = 201, description = "Created", body = Coupon),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`: with `If-Match`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`limit_below_issued` `room_fixed`", body = ProblemShape),
        (status = 410, description = "`deleted`", body = ProblemShape),
        (status = 412, description = "`settings_changed`: with `If-Match`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn put_coupon(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let put = revision::put::<CouponSettings>(&app, &coupon, &parts.headers, &bytes).await?;
        let status = if put == Put::Created { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, show(&app, caller, &coupon).await?))
    });
    measured(&app, Route::PutCoupon, call).await
}

/// Change some settings of a coupon
///
/// A merge patch (RFC 7396): it replaces the members that it names, null unsets one, the others stay. If another
/// operator changes the settings meanwhile, the patch is merged again; with `If-Match` it is refused.
#[utoipa::path(patch, path = "/v1/coupons/{coupon}", tag = "Coupons", security(("admin" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("If-Match" = Option<String>, Header, description = "Change only the settings of this `ETag`")),
    request_body(content = CouponBody, description = "Members of it", content_type = "application/merge-patch+json"),
    responses(
        (status = 200, description = "Changed", body = Coupon),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`limit_below_issued` `room_fixed`", body = ProblemShape),
        (status = 410, description = "`deleted`", body = ProblemShape),
        (status = 412, description = "`settings_changed`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn patch_coupon(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let patch = body::read_patch(&parts.headers, body, app.config.limits.body).await?;
        revision::patch::<CouponSettings>(&app, &coupon, &parts.headers, &patch).await?;
        show(&app, caller, &coupon).await
    });
    measured(&app, Route::PatchCoupon, call).await
}

impl revision::Settings for CouponSettings {
    type Name = CouponName;

    async fn in_force(app: &App, coupon: &CouponName) -> Result<Self, Problem> {
        let view = answered(app, pin!(app.coupons.coupon(coupon))).await?;
        Ok(view.map_err(|refusal| refused(app, coupon, "", &refusal))?.settings)
    }

    fn shown(&self, app: &App) -> Value {
        coupon_settings(self, app.backend.as_cluster().is_some())
    }

    async fn read(app: &App, body: &[u8]) -> Result<Self, Problem> {
        let settings = body::parse::<CouponBody>(body)?.settings(app.backend.as_cluster().is_some())?;
        may_acknowledge(app, &settings).await?;
        has_room(app, &settings).await?;
        Ok(settings)
    }

    async fn put(app: &App, coupon: &CouponName, revision: Revision<Self>) -> Result<Put, Problem> {
        let put = answered(app, pin!(app.coupons.put_coupon(coupon, revision))).await?;
        put.map_err(|refusal| refused(app, coupon, "", &refusal))
    }
}

/// Shows the coupon. An admin also sees the settings, read from the store and not from the cache.
async fn show(app: &App, caller: Caller, coupon: &CouponName) -> Result<Response, Problem> {
    let may_change = caller.require(Scope::Admin).is_ok();
    let view = if may_change {
        answered(app, pin!(app.coupons.coupon(coupon))).await?
    } else {
        answered(app, pin!(app.coupons.shown(coupon))).await?
    };
    let view = view.map_err(|refusal| refused(app, coupon, "", &refusal))?;
    let mut shown = Coupon::new(coupon, &view, app.backend.as_cluster().is_some());
    if !may_change {
        return Ok(Json(shown).into_response());
    }
    let settings = revision::Settings::shown(&view.settings, app);
    let tag = revision::tag_header(&settings);
    shown.settings = Some(settings);
    Ok(([tag], Json(shown)).into_response())
}

/// Refuses a room that does not exist: no visitor could ever claim.
async fn has_room(app: &App, settings: &CouponSettings) -> Result<(), Problem> {
    let Some(room) = &settings.room else { return Ok(()) };
    match answered(app, pin!(app.rooms.shown(room))).await? {
        Ok(_) => Ok(()),
        Err(_) => {
            let detail = format!("room {room} is not there: make it first, with PUT /v1/rooms/{room}");
            Err(Problem::field(Code::InvalidField, "room", detail))
        }
    }
}

/// Refuses `durability: redis` on a Redis that would lose such claims when it restarts.
async fn may_acknowledge(app: &App, settings: &CouponSettings) -> Result<(), Problem> {
    let Some(cluster) = app.backend.as_cluster().filter(|_| settings.acknowledge == Acknowledge::Placed) else {
        return Ok(());
    };
    let forgets = answered(app, pin!(async { Ok(Ok::<_, Refused>(cluster.redis_forgets().await?)) })).await?;
    if let Ok(None) = forgets {
        return Ok(());
    }
    let detail = "durability redis needs a Redis that syncs each write: appendonly yes and appendfsync always";
    Err(Problem::field(Code::InvalidField, "durability", detail))
}

/// Show a coupon
///
/// An admin key is shown the `settings` too, as a PUT would set them, and their `ETag`.
#[utoipa::path(get, path = "/v1/coupons/{coupon}", tag = "Coupons",
    params(("coupon" = String, Path, description = "Name of the coupon")),
    responses(
        (status = 200, description = "The coupon", body = Coupon),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: a key came, and it is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_coupon(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        let caller = app.reader(&headers)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        show(&app, caller, &coupon).await
    });
    measured(&app, Route::GetCoupon, call).await
}

/// Delete a coupon for good
///
/// Its claims stay readable and redeemable, until `--retain-claims` removes them. A second time has no effect.
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
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let deleted = answered(&app, pin!(app.coupons.delete_coupon(&coupon))).await?;
        deleted.map_err(|refusal| refused(&app, &coupon, "", &refusal))?;
        Ok(StatusCode::NO_CONTENT)
    });
    measured(&app, Route::DeleteCoupon, call).await
}

/// The right by which a call claims.
enum Claimant {
    /// A service key, which may act for any user.
    Service(Caller),
    /// A pass of the coupon's room.
    Pass(Grant),
}

impl Claimant {
    /// Determines the right of a call: a service key, or else a pass of the coupon's room. A pass that is sent is
    /// always judged.
    async fn of(app: &App, headers: &HeaderMap, coupon: &CouponName) -> Result<Self, Problem> {
        let caller = app.caller(headers)?;
        let mut passes = headers.get_all(PASS_HEADER).iter();
        let pass = passes.next();
        if pass.is_none() && caller.scope != Scope::Public {
            return Ok(Self::Service(caller));
        }
        // Without a pass the call is refused either way, so a cached view is enough. A pass is judged by the coupon's
        // current room.
        let view = match pass {
            None => answered(app, pin!(app.coupons.shown(coupon))).await?,
            Some(_) => answered(app, pin!(app.coupons.coupon(coupon))).await?,
        };
        let room = view.ok().and_then(|view| view.settings.room);
        let Some(pass) = pass else {
            return Err(if room.is_some() { Code::PassRequired } else { Code::Unauthorized }.into());
        };
        // With two passes it is unclear which one counts, so both are refused.
        let (Some(room), None, Ok(pass)) = (room, passes.next(), pass.to_str()) else {
            return Err(Code::InvalidPass.into());
        };
        match room::judge_pass(app, &room, pass).await? {
            Ok((grant, _)) => Ok(Self::Pass(grant)),
            Err(reason) => Err(Problem::of_pass(Code::InvalidPass, reason)),
        }
    }

    /// Returns the user to claim for. `wanted` is the user in the body.
    fn user(&self, wanted: Option<&str>) -> Result<UserId, Problem> {
        match (self, wanted) {
            (Self::Service(_), Some(user)) => body::user(user),
            (Self::Service(_), None) => Err(Problem::field(Code::InvalidField, "user", "user must be given")),
            (Self::Pass(Grant { user: Some(user), .. }), None) => Ok(user.clone()),
            (Self::Pass(Grant { user: Some(user), .. }), Some(wanted)) if user.as_str() == wanted => Ok(user.clone()),
            (Self::Pass(Grant { user: None, number, .. }), None) => {
                TicketNumber::new(*number).map(UserId::of_pass).ok_or_else(|| Code::InvalidPass.into())
            }
            (Self::Pass(_), Some(wanted)) => {
                body::user(wanted)?;
                Err(Problem::new(Code::InvalidPass).detail("the pass belongs to another user"))
            }
        }
    }

    fn caller(&self) -> Caller {
        match self {
            Self::Service(caller) => *caller,
            // No other client can send this pass, so its holder has idempotency keys of its own.
            Self::Pass(grant) => Caller::of_pass(&grant.room, grant.number),
        }
    }
}

/// Claim one coupon for a user
///
/// First come, first served, one each. A service key claims for any `user`. A pass of the coupon's waiting room also
/// claims: for the user of the pass, or once for a pass without a user. The answer comes after the claim is durable. A
/// repeat by the same user has no second effect: with the same `Idempotency-Key` and body it is answered 201 again,
/// else 409 `already_issued` with the claim. An `Idempotency-Key` belongs to the pass if the call carries one, else to
/// the API key. Order of refusals: `idempotency_key_reused`, `already_issued`, `deleted`, `not_open`, `expired`,
/// `sold_out`.
///
/// If the coupon has `durability: redis`, the answer comes once Redis has accepted the claim. It has no `serial` and
/// no `code`, and says `durability: redis`. Such a claim can be lost with Redis until the user's claim is shown with
/// both.
#[utoipa::path(post, path = "/v1/coupons/{coupon}/claims", tag = "Coupons", security(("service" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("X-Firstcome-Pass" = Option<String>, Header, description = "Instead of a key: a pass of the coupon's room"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters; by a pass at least 22 of base64url")),
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
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_claim(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        claim(&app, &path.map_err(|_| body::undecodable())?.0, &parts.headers, body).await
    });
    measured(&app, Route::PostClaim, call).await
}

/// Answers a claim of the coupon that the path names.
pub(super) async fn claim(
    app: &App,
    coupon: &str,
    headers: &HeaderMap,
    body: impl Body<Data = Bytes> + Unpin,
) -> Result<Answer, Problem> {
    let coupon = body::coupon(coupon)?;
    let claimant = Claimant::of(app, headers, &coupon).await?;
    let bytes = body::read(headers, body, app.config.limits.body).await?;
    let wanted = body::parse::<ClaimBody<'_>>(&bytes)?;
    let user = claimant.user(wanted.user.as_deref())?;
    let attributes = wanted.attributes()?;
    let meaning = [user.as_str().as_bytes(), attributes.as_ref().map_or("", Attributes::as_str).as_bytes()];
    let request = body::request(headers, claimant.caller(), (coupon.as_str(), "claims"), &meaning)?;
    let claim = ClaimCommand { user: user.clone(), attributes, request };
    let given = answered(app, pin!(app.coupons.claim_early(&coupon, claim))).await?;
    let given = given.map_err(|refusal| refused(app, &coupon, user.as_str(), &refusal))?;
    let (Effect::New(reply) | Effect::Again(reply)) = &given;
    let shown = match reply {
        ClaimReply::Stored(claimed) => Claim::new(&coupon, user.as_str(), claimed, app.durability().as_str()),
        ClaimReply::Placed(since) => Claim::placed(&coupon, user.as_str(), *since),
    };
    Ok(Answer::new(StatusCode::CREATED, &shown).replayed(&given))
}

/// Show a user's claim
#[utoipa::path(get, path = "/v1/coupons/{coupon}/claims/{user}", tag = "Coupons", security(("service" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"), ("user" = String, Path, description = "Whose")),
    responses(
        (status = 200, description = "The claim", body = Claim),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon` `unknown_claim`", body = ProblemShape),
        (status = 410, description = "`purged`", body = ProblemShape),
        (status = 503, description = "`overloaded` `not_stored_yet` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_claim(
    State(app): State<Arc<App>>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    headers: HeaderMap,
) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Service)?;
        let Path((coupon, user)) = path.map_err(|_| body::undecodable())?;
        let coupon = body::coupon(&coupon)?;
        let found = answered(&app, pin!(app.coupons.claim_of(&coupon, body::looked_up_user(&user)?))).await?;
        let found = found.map_err(|refusal| refused(&app, &coupon, &user, &refusal))?;
        let record = found.ok_or(Code::UnknownClaim)?;
        Ok((NO_STORE, Json(Claim::of_record(&coupon, &record, app.durability().as_str()))).into_response())
    });
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
        (status = 410, description = "`purged`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_claims(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap, uri: Uri) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let page = PageQuery::serials(uri.query().unwrap_or_default())?;
        let found = answered(&app, pin!(app.coupons.claims(&coupon, page.after, page.limit))).await?;
        let found = found.map_err(|refusal| refused(&app, &coupon, "", &refusal))?;
        let claim = |record| Claim::of_record(&coupon, record, app.durability().as_str());
        let items = found.items.iter().map(claim).collect();
        Ok((NO_STORE, Json(ClaimPage { items, next: found.next.map(|serial| serial.get()) })).into_response())
    });
    measured(&app, Route::GetClaims, call).await
}

/// Use up a coupon by its code
///
/// A code can be redeemed once. Codes of a deleted or sold-out coupon stay redeemable, until `--retain-claims` removes
/// its claims: then each code is refused as `deleted`, or as `expired`. Case, blanks and dashes of a code do not
/// matter: another spelling is the same code, and the same body to an `Idempotency-Key`. Order of refusals:
/// `unknown_code`, `wrong_user`, `already_redeemed`, `expired`.
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
        (status = 410, description = "`expired` `deleted`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_redemption(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Service)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let wanted = body::parse::<RedemptionBody>(&bytes)?;
        let user = wanted.user.as_deref().map(body::user).transpose()?;
        let code: String = wanted.code.chars().filter(|character| !matches!(character, '-' | ' ')).collect();
        let code = code.to_ascii_uppercase();
        let meaning = [code.as_bytes(), wanted.user.as_deref().unwrap_or_default().as_bytes()];
        let request = body::request(&parts.headers, caller, (coupon.as_str(), "redemptions"), &meaning)?;
        let redeem = RedeemRequest { code: wanted.code, user, request };
        let redeemed = answered(&app, pin!(app.coupons.redeem(&coupon, redeem))).await?;
        let redeemed = redeemed.map_err(|refusal| refused(&app, &coupon, "", &refusal))?;
        let replayed = replayed(&redeemed);
        Ok((StatusCode::CREATED, NO_STORE, replayed, Json(Redemption::new(&coupon, &redeemed.into_inner()))))
    });
    measured(&app, Route::PostRedemption, call).await
}
