//! The lock endpoints of the HTTP API.

use super::body::{self, PathName};
use super::json::Json;
use super::lock_shape::{AcquireBody, HeldLock, Lock, ReleaseBody, ReleasedLock, RenewBody, RenewedLock};
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, measured};
use crate::accept::{Parcel, Tracked};
use crate::auth::{Caller, Scope};
use crate::error::{Code, Problem};
use crate::lock::Refusal;
use crate::metrics::Route;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use firstcome::core::id::LockName;
use firstcome::{InputError, LockError};
use std::pin::pin;
use std::sync::Arc;

/// When a client may try again after an unknown outcome or an overload, in milliseconds.
const RETRY_MS: u64 = 1_000;

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn failed(error: LockError) -> Problem {
    match error {
        LockError::Input(wrong) => {
            let code = if let InputError::Name { .. } = wrong { Code::InvalidName } else { Code::InvalidField };
            Problem::field(code, wrong.field(), wrong.to_string())
        }
        LockError::Unavailable(error) => error.into(),
        LockError::Lost => Code::LockLost.into(),
        // If the store did grant the lock, the grant is released, or ends with its lease.
        _ => Problem::new(Code::OutcomeUnknown).retry_after_ms(RETRY_MS),
    }
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Contended { holder, waiters, ttl, position } => {
            let problem = Problem::new(Code::Contended).with("holder", holder).with("waiters", waiters);
            let problem = problem.with("ttl_ms", millis(ttl));
            match position {
                Some(ahead) => problem.with("position", ahead),
                None => problem,
            }
        }
        Refusal::Overloaded => Problem::new(Code::Overloaded).retry_after_ms(RETRY_MS),
        Refusal::KeyReused => Code::IdempotencyKeyReused.into(),
        Refusal::Store(error) => failed(error),
    }
}

/// Authorizes a call about a lock, and reads its name and body.
async fn service_call(
    app: &App,
    path: PathName,
    request: Request,
) -> Result<(Caller, LockName, Parts, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    let caller = app.caller(&parts.headers)?.require(Scope::Service)?;
    let lock = body::lock(&path.map_err(|_| body::undecodable())?.0)?;
    let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
    Ok((caller, lock, parts, bytes))
}

/// Acquire a lock
///
/// Grants in order of arrival. Without a wait the answer comes at once, otherwise when the request is first in line.
/// Keep the connection open: closing it gives up the place in line. The lock ends with its lease unless it is renewed.
/// With an `Idempotency-Key` a repeat at the same node joins the wait. It gets the same handle as long as the lock is
/// held and the node has not restarted. At another node a repeat waits on its own, behind its own hold. `contended`
/// answers a try, and, with `position` (how many requests were still ahead), a wait that ran out. `overloaded` answers
/// a request that would have to wait when too many do, and every waiting request when the service stops.
#[utoipa::path(post, path = "/v1/locks/{lock}/acquire", tag = "Locks", security(("service" = [])),
    params(("lock" = String, Path, description = "Name of the lock"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = AcquireBody,
    responses(
        (status = 200, description = "The lock is yours", body = HeldLock),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`contended` (with `holder`, `waiters` and how long it is held, and `position` after a wait)", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_acquire(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (caller, lock, parts, bytes) = service_call(&app, path, request).await?;
        let wanted = body::parse::<AcquireBody<'_>>(&bytes)?.wanted(lock.clone())?;
        let (wait, lease) = (wanted.wait.as_millis().to_be_bytes(), wanted.lease.as_millis().to_be_bytes());
        let permits = wanted.permits.map(u32::to_be_bytes);
        let shared = permits.as_ref().map(<[u8; 4]>::as_slice);
        let meaning = [wanted.owner.as_str().as_bytes(), &wait, &lease];
        let meaning: Vec<&[u8]> = meaning.into_iter().chain(shared).collect();
        let id = body::request(&parts.headers, caller, (lock.as_str(), "acquire"), &meaning)?;
        let mut grant = app.service.acquire(wanted, id).await.map_err(refused)?;
        let offer = grant.offer.take();
        let mut response = (NO_STORE, Json(HeldLock::new(&lock, &grant))).into_response();
        match offer {
            // The connection keeps the offer once the answer leaves.
            Some(offer) if parts.extensions.get::<Tracked>().is_some() => {
                response.extensions_mut().insert(Parcel(offer));
            }
            Some(offer) => offer.keep(),
            None => {}
        }
        Ok(response)
    });
    measured(&app, Route::PostAcquire, call).await
}

/// Hold a lock for longer
///
/// The lease runs from now, and the hold never gets shorter. Renew three times per lease. On `lock_lost`, stop the
/// work that the lock guards.
#[utoipa::path(post, path = "/v1/locks/{lock}/renew", tag = "Locks", security(("service" = [])),
    params(("lock" = String, Path, description = "Name of the lock")), request_body = RenewBody,
    responses(
        (status = 200, description = "The lock is yours for longer", body = RenewedLock),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 410, description = "`lock_lost`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_renew(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (_, lock, _, bytes) = service_call(&app, path, request).await?;
        let wanted = body::parse::<RenewBody<'_>>(&bytes)?;
        let lease = wanted.lease()?;
        let renewed = app.service.renew(&lock, &wanted.handle, lease).await.map_err(failed)?;
        Ok((NO_STORE, Json(RenewedLock::new(&lock, renewed))).into_response())
    });
    measured(&app, Route::PostRenew, call).await
}

/// Give a lock back
///
/// The next waiter has the lock when this is answered. A second release is `lock_lost`, as is a release after the end
/// of the lease.
#[utoipa::path(post, path = "/v1/locks/{lock}/release", tag = "Locks", security(("service" = [])),
    params(("lock" = String, Path, description = "Name of the lock")), request_body = ReleaseBody,
    responses(
        (status = 200, description = "The lock is given back", body = ReleasedLock),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 410, description = "`lock_lost`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_lock_release(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (_, lock, _, bytes) = service_call(&app, path, request).await?;
        let wanted = body::parse::<ReleaseBody<'_>>(&bytes)?;
        wanted.check()?;
        let fence = app.service.release(&lock, &wanted.handle).await.map_err(failed)?;
        Ok((NO_STORE, Json(ReleasedLock::new(&lock, fence))).into_response())
    });
    measured(&app, Route::PostLockRelease, call).await
}

/// Show a lock
///
/// Every name is a lock; a lock without a holder is free.
#[utoipa::path(get, path = "/v1/locks/{lock}", tag = "Locks", security(("service" = [])),
    params(("lock" = String, Path, description = "Name of the lock")),
    responses(
        (status = 200, description = "The lock", body = Lock),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_lock(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Service)?;
        let lock = body::lock(&path.map_err(|_| body::undecodable())?.0)?;
        let seen = app.service.view(&lock).await.map_err(failed)?;
        Ok((NO_STORE, Json(Lock::new(&lock, &seen))).into_response())
    });
    measured(&app, Route::GetLock, call).await
}
