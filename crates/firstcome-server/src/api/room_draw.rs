//! The public record of a room's draw.

use super::body::{self, PathName};
use super::json::Json;
use super::room::summary;
use super::room_shape::Draw;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, measured};
use crate::error::Code;
use crate::metrics::Route;
use crate::state::App;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use std::pin::pin;
use std::sync::Arc;

/// Show the draw of a room
///
/// Before the draw its commitment, after it all that anyone needs to compute each place. Public, and the same for all.
#[utoipa::path(get, path = "/v1/rooms/{room}/draw", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room")),
    responses(
        (status = 200, description = "The draw", body = Draw),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room` `no_draw`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_draw(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let summary = summary(&app, &room).await?;
        let draw = Draw::new(&room, &summary).ok_or(Code::NoDraw)?;
        Ok((NO_STORE, Json(draw)).into_response())
    });
    measured(&app, Route::GetDraw, call).await
}
