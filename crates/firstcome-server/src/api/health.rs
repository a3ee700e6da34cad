//! Is it alive, should it get requests, how is it doing.

use crate::auth::Scope;
use crate::error::Problem;
use crate::state::App;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

/// Whether the process is alive
///
/// Says nothing about the store.
#[utoipa::path(get, path = "/healthz", tag = "Operations", responses((status = 200, description = "It is")))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether it should get requests
///
/// The stores answer and take writes, and the service does not drain. `reason` is a fixed word.
#[utoipa::path(get, path = "/readyz", tag = "Operations", responses(
    (status = 200, description = "It should"),
    (status = 503, description = "It should not")
))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let unready = match app.unready() {
        None if !app.stores_answer().await => Some("store_unavailable"),
        reason => reason,
    };
    match unready {
        None => Json(json!({"ready": true})).into_response(),
        Some(reason) => {
            let body = Json(json!({"ready": false, "reason": reason}));
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], body).into_response()
        }
    }
}

/// Figures for Prometheus
///
/// Also on `--admin-listen`, without a key.
#[utoipa::path(get, path = "/metrics", tag = "Operations", security(("admin" = [])), responses(
    (status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text"),
    (status = 401, description = "`unauthorized`", body = super::shape::Problem),
    (status = 403, description = "`forbidden`", body = super::shape::Problem)
))]
pub(crate) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    app.caller(&headers)?.require(Scope::Admin)?;
    Ok(metrics_unguarded(State(app)).await)
}

pub(crate) async fn metrics_unguarded(State(app): State<Arc<App>>) -> Response {
    app.desk.sweep();
    match app.metrics.render() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
