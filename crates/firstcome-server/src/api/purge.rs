//! The endpoint of the HTTP API that purges what is over.

use super::body;
use super::json::Json;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured};
use crate::auth::Scope;
use crate::dashboard::calls;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use firstcome::purge::{ClockCheck, PurgeMode, PurgeRejection, PurgeRequest};
use firstcome::{Purged, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// How to purge
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct PurgeBody {
    /// Count what a purge would remove, and remove nothing
    #[serde(default)]
    dry_run: bool,
    /// Believe the clock of the service: an operator has looked at it
    #[serde(default)]
    trust_clock: bool,
}

/// How many rows a purge removed, or would remove
#[derive(Serialize, ToSchema)]
pub(crate) struct PurgeShown {
    /// Idempotency keys
    requests: u64,
    /// Tickets that left or expired
    tickets: u64,
    /// Admissions that ended
    admissions: u64,
    /// Claims of coupons that are over
    claims: u64,
    /// Coupons whose last claim went
    coupons: u64,
    /// Claims that a cluster could not store
    dead_letters: u64,
    /// Records of members' points
    records: u64,
    /// Published heads of rooms and coupons
    heads: u64,
}

impl From<Purged> for PurgeShown {
    fn from(purged: Purged) -> Self {
        let Purged { requests, tickets, admissions, claims, coupons, dead_letters, records, heads } = purged;
        Self { requests, tickets, admissions, claims, coupons, dead_letters, records, heads }
    }
}

fn refused(rejection: PurgeRejection) -> Problem {
    let problem = Problem::new(Code::PurgeRefused).with("reason", rejection.code());
    match rejection {
        PurgeRejection::ClockBehind(at) => {
            problem.detail("The clock is earlier than the last record.").with("last_at", instant(at))
        }
        PurgeRejection::ClockAhead(at) => {
            let says = "The clock is more than a year ahead of the last purge, or of the last record.";
            problem.detail(says).with("last_at", instant(at))
        }
        _ => problem.detail("Another purge runs: wait until it has ended."),
    }
}

/// Purge what is over
///
/// Removes what the settings of the service do not keep any longer, as the service does by itself every hour, and answers how much
/// that was. The nodes of a cluster purge what they share, one at a time. A purge that takes longer than an answer may goes on after `outcome_unknown`, and the log has its end.
#[utoipa::path(post, path = "/v1/purge", tag = "Retention", security(("admin" = [])),
    request_body = PurgeBody,
    responses(
        (status = 200, description = "What was removed, or would be", body = PurgeShown),
        (status = 400, description = "`invalid_json` `invalid_field`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`purge_refused`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_purge(State(app): State<Arc<App>>, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        app.caller(&parts.headers)?.require(Scope::Admin)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let PurgeBody { dry_run, trust_clock } = body::parse(&bytes)?;
        let request = PurgeRequest {
            mode: if dry_run { PurgeMode::Count } else { PurgeMode::Remove },
            clock: if trust_clock { ClockCheck::Skip } else { ClockCheck::Refuse },
            ..PurgeRequest::new(app.config.retention)
        };
        // A task of its own, which goes on when the caller has left.
        let ours = Arc::clone(&app);
        let purge = tokio::spawn(async move { ours.purge(request).await });
        let purged = async { purge.await.unwrap_or(Err(StoreError::Unknown)) };
        let purged = answered(&app, pin!(purged)).await?.map_err(refused)?;
        let shown = PurgeShown::from(purged);
        calls::changed(None, &json!({"dry_run": dry_run, "removed": &shown}));
        Ok((StatusCode::OK, NO_STORE, Json(shown)).into_response())
    });
    measured(&app, Route::PostPurge, call).await
}
