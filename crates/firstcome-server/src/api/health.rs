//! The endpoints for liveness, readiness and metrics.

use super::json::Json;
use crate::auth::Scope;
use crate::error::{Code, Problem};
use crate::state::App;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use firstcome::OpenFault;
use serde_json::{Value, json};
use std::sync::Arc;

/// Whether the process is alive
///
/// Says nothing about Redis, a database or a disk, which a restart does not repair. 503 means that a restart helps: the
/// writer of the embedded store has stopped, and this process takes no more writes.
#[utoipa::path(get, path = "/healthz", tag = "Operations", responses(
    (status = 200, description = "It is", body = String, content_type = "text/plain"),
    (status = 403, description = "`foreign_origin`: in development mode, from elsewhere", body = super::shape::Problem),
    (status = 503, description = "`store_unavailable`: restart the service", body = super::shape::Problem)
))]
pub(crate) async fn healthz(State(app): State<Arc<App>>) -> Result<&'static str, Problem> {
    alive(&app)
}

/// The body of `/healthz`. The problem has the fault that a restart ends, as `reason`.
pub(super) fn alive(app: &App) -> Result<&'static str, Problem> {
    let Some(kind) = app.restart_needed() else { return Ok("ok\n") };
    let says = format!("{}: {}.", kind.title(), kind.advice());
    Err(Problem::new(Code::StoreUnavailable).detail(says).with("reason", kind.code()).retry_after_ms(RESTART_MS))
}

/// A restart takes about so long.
const RESTART_MS: u64 = 5_000;

/// Whether it should get requests
///
/// Ready means that the stores answer and take writes, and that the service does not drain. `reason` is a fixed word.
/// `faults` names each coupon, room, store or server that stands still, and says why. A service where single coupons or
/// rooms stand still is ready, and serves all others. `warnings` names what an operator has probably forgotten; the
/// service is ready all the same.
///
/// `of=node` leaves out what all nodes share. The answer is then 503 only while this node drains, or while the store in
/// its process has a fault. It is 200 while Redis or the database gives no answer or has a fault. Probes of a balancer
/// that has no fallback ask this: an outage of the database takes no node away, and each node answers what it can.
#[utoipa::path(get, path = "/readyz", tag = "Operations", params(
    ("of" = Option<String>, Query, description = "`node`: leave out the servers that all nodes share")
), responses(
    (status = 200, description = "It should"),
    (status = 400, description = "`invalid_query`", body = super::shape::Problem),
    (status = 403, description = "`foreign_origin`: in development mode, from elsewhere", body = super::shape::Problem),
    (status = 503, description = "It should not")
))]
pub(crate) async fn readyz(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let unready = match Judged::read(query.as_deref().unwrap_or_default())? {
        Judged::Node => app.node_unready(),
        Judged::Service => match app.unready() {
            None if !app.stores_answer().await => Some("store_unavailable"),
            reason => reason,
        },
    };
    Ok(readiness(&app, unready))
}

/// What a caller of `/readyz` asks about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Judged {
    /// The node, and the servers that its data lie on.
    Service,
    /// The node, without the servers that all nodes share.
    Node,
}

impl Judged {
    /// Reads `?of=`. Refuses any other query: a misspelt one would show only in an outage.
    fn read(query: &str) -> Result<Self, Problem> {
        match query {
            "" => Ok(Self::Service),
            "of=node" => Ok(Self::Node),
            _ => Err(Problem::new(Code::InvalidQuery).detail("only of=node is known")),
        }
    }
}

/// Makes the answer of `/readyz`. `unready` is the reason why requests should not come.
fn readiness(app: &App, unready: Option<&'static str>) -> Response {
    let mut body = json!({"ready": unready.is_none()});
    if app.forwarders.is_noted() {
        body["warnings"] = json!([{"code": "proxy_not_trusted", "says": PROXY_SAYS, "do": PROXY_DO}]);
    }
    let faults: Vec<_> = app.faults().iter().map(shown).collect();
    if !faults.is_empty() {
        body["faults"] = faults.into();
    }
    match unready {
        None => Json(body).into_response(),
        Some(reason) => {
            body["reason"] = reason.into();
            let body = Json(body);
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], body).into_response()
        }
    }
}

const PROXY_SAYS: &str =
    "A peer that the service does not trust sends X-Forwarded-For: all clients behind it count as one address.";
const PROXY_DO: &str = "If it is your proxy, name it with --trusted-proxy.";

/// Shows a fault without its detail, which only the log has: the caller needs no key.
fn shown(open: &OpenFault) -> Value {
    let kind = open.fault.kind;
    json!({"object": open.object, "code": kind.code(), "says": kind.title(), "do": kind.advice()})
}

/// Figures for Prometheus
///
/// Also on `--admin-listen`: on loopback without a key, elsewhere with any key.
#[utoipa::path(get, path = "/metrics", tag = "Operations", security(("admin" = [])), responses(
    (status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text"),
    (status = 401, description = "`unauthorized`", body = super::shape::Problem),
    (status = 403, description = "`forbidden`", body = super::shape::Problem)
))]
pub(crate) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    app.reader(&headers)?.require(Scope::Admin)?;
    Ok(metrics_unguarded(State(app)).await)
}

/// The figures on a port of operators that other machines reach: for any key, also one to view.
pub(crate) async fn metrics_of_keys(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    app.reader(&headers)?.require(Scope::View)?;
    Ok(metrics_unguarded(State(app)).await)
}

pub(crate) async fn metrics_unguarded(State(app): State<Arc<App>>) -> Response {
    app.service.sweep();
    match app.metrics.render() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
