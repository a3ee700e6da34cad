//! Steers a room on the day: pause, resume, and reports of the origin.

use super::body::{self, PathName};
use super::json::Json;
use super::room::{refused, service_call, show};
use super::room_shape::Room;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured, revision};
use crate::auth::Scope;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use firstcome::RoomStore;
use firstcome::core::room::{OriginReport, RatePace, RoomSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// A latency above this counts as slow, unless the report says otherwise.
const LATENCY_MS_MAX: u64 = 2_000;
/// More errors than this part of the requests count as trouble, unless the report says otherwise.
const ERROR_SHARE_MAX: f64 = 0.05;

/// Whether a room admits.
#[derive(Clone, Copy)]
enum Flow {
    Paused,
    Resumed,
}

async fn turn(app: &App, flow: Flow, path: PathName, headers: &HeaderMap) -> Result<Response, Problem> {
    let caller = app.caller(headers)?.require(Scope::Admin)?;
    let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
    let patch = Map::from_iter([("paused".to_owned(), Value::Bool(matches!(flow, Flow::Paused)))]);
    revision::patch::<RoomSettings>(app, &room, headers, &patch).await?;
    show(app, caller, &room).await
}

/// Pause a room
///
/// The room admits no visitor until it is resumed. Visitors may join, and those inside stay. A second time has no effect.
#[utoipa::path(post, path = "/v1/rooms/{room}/pause", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room"),
        ("If-Match" = Option<String>, Header, description = "Change only the settings of this `ETag`")),
    responses(
        (status = 200, description = "Paused", body = Room),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 412, description = "`settings_changed`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_pause(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    measured(&app, Route::PostPause, pin!(turn(&app, Flow::Paused, path, &headers))).await
}

/// Resume a room
///
/// The room admits again, according to its settings. A second time has no effect.
#[utoipa::path(post, path = "/v1/rooms/{room}/resume", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room"),
        ("If-Match" = Option<String>, Header, description = "Change only the settings of this `ETag`")),
    responses(
        (status = 200, description = "Resumed", body = Room),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 412, description = "`settings_changed`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_resume(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    measured(&app, Route::PostResume, pin!(turn(&app, Flow::Resumed, path, &headers))).await
}

/// What the site measured since its last report: a latency, or requests with errors, or both
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct FeedbackBody {
    /// The latency that the site wants to keep low, such as its 95th percentile
    #[schema(minimum = 0, maximum = 86_400_000)]
    latency_ms: Option<u64>,
    /// A higher latency is slow; 2000 without it
    #[schema(minimum = 1, maximum = 86_400_000)]
    latency_ms_max: Option<u64>,
    /// Requests since the last report
    requests: Option<u64>,
    /// How many of these failed
    errors: Option<u64>,
    /// A greater part of errors is trouble; 0.05 without it
    #[schema(minimum = 0, maximum = 1)]
    error_share_max: Option<f64>,
}

impl FeedbackBody {
    /// Judges the report. Errors count before latency.
    fn report(&self) -> Result<OriginReport, Problem> {
        let wrong = |field, says: &str| Err(Problem::field(Code::InvalidField, field, says));
        const MS_MAX: u64 = 86_400_000;
        if self.latency_ms.is_some_and(|ms| MS_MAX < ms) {
            return wrong("latency_ms", "latency_ms must be 0 to 86400000");
        }
        if self.latency_ms_max.is_some_and(|ms| !(1..=MS_MAX).contains(&ms)) {
            return wrong("latency_ms_max", "latency_ms_max must be 1 to 86400000");
        }
        if self.error_share_max.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return wrong("error_share_max", "error_share_max must be 0 to 1");
        }
        let is_failing = match (self.requests, self.errors) {
            (Some(requests), Some(errors)) if requests < errors => {
                return wrong("errors", "errors must be no more than requests");
            }
            (Some(requests), Some(errors)) => {
                requests as f64 * self.error_share_max.unwrap_or(ERROR_SHARE_MAX) < errors as f64
            }
            (Some(_), None) => return wrong("errors", "errors must come with requests"),
            (None, Some(_)) => return wrong("requests", "requests must come with errors"),
            (None, None) if self.latency_ms.is_none() => {
                return wrong("latency_ms", "latency_ms, or requests and errors, must be given");
            }
            (None, None) => false,
        };
        let is_slow = self.latency_ms.is_some_and(|ms| self.latency_ms_max.unwrap_or(LATENCY_MS_MAX) < ms);
        Ok(match (is_failing, is_slow) {
            (true, _) => OriginReport::Failing,
            (false, true) => OriginReport::Slow,
            (false, false) => OriginReport::Fine,
        })
    }
}

/// Why a room admits as fast as it does
#[derive(Serialize, ToSchema)]
pub(crate) struct Pace {
    /// What decides the present rate
    #[schema(example = "limit")]
    reason: &'static str,
    /// The rate of the settings, in visitors per second; null without one
    set_per_s: Option<f64>,
    /// The part of the limit that reports of the origin leave: 0.25 to 1
    origin_share: f64,
    /// Visitors per second who took their slots lately
    arrivals_per_s: f64,
    /// The part of the visitors admitted lately who did not come; null if none was admitted
    no_show_share: Option<f64>,
    /// Visitors per second who were admitted lately in place of others who did not come
    made_up_per_s: f64,
}

impl Pace {
    pub(crate) fn new(pace: &RatePace) -> Self {
        let rounded = |number: f64| (number * 1_000.0).round() / 1_000.0;
        Self {
            reason: pace.reason.as_str(),
            set_per_s: pace.set_per_s.map(rounded),
            origin_share: rounded(pace.origin_share),
            arrivals_per_s: rounded(pace.arrivals_per_s),
            no_show_share: pace.no_show_share.map(rounded),
            made_up_per_s: rounded(pace.made_up_per_s),
        }
    }
}

/// How a report was judged, and what the rate is now
#[derive(Serialize, ToSchema)]
pub(crate) struct Feedback {
    /// fine, slow or failing
    #[schema(example = "fine")]
    report: &'static str,
    pace: Pace,
}

/// Report how the site behind the room is
///
/// A site that is slow or fails gets fewer visitors: such a report lowers the rate by three tenths, down to a quarter of
/// the settings' at the lowest; without a rate, the same part of the slots. A good report raises it by a twentieth.
/// At most one report in 5 s has an effect, so several back ends may report. When reports end, the rate recovers by
/// itself: from 15 s after the last one on, half of the reduction is left after each 30 s.
#[utoipa::path(post, path = "/v1/rooms/{room}/feedback", tag = "Rooms", security(("service" = [])),
    params(("room" = String, Path, description = "Name of the room")), request_body = FeedbackBody,
    responses(
        (status = 200, description = "The report counts", body = Feedback),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_feedback(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (room, bytes) = service_call(&app, path, request).await?;
        let report = body::parse::<FeedbackBody>(&bytes)?.report()?;
        let pace = answered(&app, pin!(app.rooms.report_origin(&room, report))).await?.map_err(refused)?;
        let feedback = Feedback { report: report.as_str(), pace: Pace::new(&pace) };
        Ok((NO_STORE, Json(feedback)).into_response())
    });
    measured(&app, Route::PostFeedback, call).await
}
