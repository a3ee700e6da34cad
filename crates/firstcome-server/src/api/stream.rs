//! The endpoints whose answers are streams of events.

use super::body::{self, PathName};
use super::json::json_bytes;
use super::measured;
use super::room::{self, PathTicket};
use super::room_shape::{Room, Ticket};
use super::shape::Problem as ProblemShape;
use crate::auth::Scope;
use crate::error::{Code, Problem};
use crate::live::{Figures, FiguresScope, StreamLast, Tell, Visitor};
use crate::metrics::Route;
use crate::state::App;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use firstcome::core::id::RoomName;
use serde::Serialize;
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// What the event `place` tells
#[derive(Serialize, ToSchema)]
pub(crate) struct PlaceEvent<'a> {
    ticket: Ticket<'a>,
    room: Room<'a>,
}

/// Finds the place of a visitor who asks for a stream. Refused unless the ticket is in line near the front.
pub(crate) async fn visitor(app: &App, room: &RoomName, ticket: &str, tell: Tell) -> Result<Visitor, Problem> {
    let told = match app.rooms.poll_settled(room.as_str(), ticket) {
        Some(Ok(answer)) => answer,
        _ => Box::pin(room::poll(app, room.as_str(), ticket)).await?,
    };
    if !told.state.is_near() {
        return Err(Problem::new(Code::NotNear).with("poll_after_ms", told.poll_after_ms));
    }
    let summary = room::summary(app, room).await?;
    // The store has just opened this ticket.
    let shown = app.rooms.ticket_id(room, ticket).ok_or(Code::UnknownTicket)?;
    Ok(Visitor { room: room.clone(), ticket: shown, told, summary, tell })
}

/// Hear of a place near the front
///
/// A stream of events for a ticket whose poll says `stream`. It begins with an event `place`, and sends another when the
/// position, the room or the estimate has changed. Opening it is a poll. While it is open the visitor counts as present, and
/// needs no polls. Its last event is `end`, which says when to poll. The reason is `turn` (a slot is offered, and the
/// poll takes it), `poll` (a poll tells what has become of the ticket), `renew` (after about a minute; the poll says
/// whether to open another one), `stopping` or `unavailable`. Comments come at least every 15 s. A client that takes no byte for 10 s is cut off. `not_near` and `streams_full` mean: poll.
#[utoipa::path(get, path = "/v1/rooms/{room}/tickets/{ticket}/events", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"), ("ticket" = String, Path, description = "What joining returned")),
    responses(
        (status = 200, description = "Events `place` and `end`", content(
            (PlaceEvent = "text/event-stream"),
            (StreamLast = "text/event-stream; event=end"))),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room` `unknown_ticket`", body = ProblemShape),
        (status = 409, description = "`not_near` `ticket_renewed`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`streams_full` `overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_ticket_events(State(app): State<Arc<App>>, path: PathTicket, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?;
        let Path((name, ticket)) = path.map_err(|_| body::undecodable())?;
        let name = body::room(&name)?;
        let of_room = name.clone();
        let tell: Tell = Box::new(move |summary, answer| {
            json_bytes(&PlaceEvent { ticket: Ticket::new(answer, None), room: Room::new(&of_room, summary) })
        });
        app.live.open(&app, visitor(&app, &name, &ticket, tell).await?)
    });
    measured(&app, Route::GetTicketEvents, call).await
}

/// Hear of all rooms
///
/// A stream of events for operators: `figures` once a second, and `end` when the service stops.
#[utoipa::path(get, path = "/v1/events", tag = "Rooms", security(("admin" = [])), responses(
    (status = 200, description = "Events `figures`", body = Figures, content_type = "text/event-stream"),
    (status = 401, description = "`unauthorized`", body = ProblemShape),
    (status = 403, description = "`forbidden`", body = ProblemShape),
    (status = 503, description = "`streams_full`", body = ProblemShape)
))]
pub(crate) async fn get_events(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Admin)?;
        app.live.open_figures(&app, FiguresScope::All)
    });
    measured(&app, Route::GetEvents, call).await
}

/// Hear of a room
///
/// A stream of events for operators: `figures` of this room once a second, and `end` when the service stops.
#[utoipa::path(get, path = "/v1/rooms/{room}/events", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room")),
    responses(
        (status = 200, description = "Events `figures`", body = Figures, content_type = "text/event-stream"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 503, description = "`streams_full` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_room_events(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Admin)?;
        let name = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        room::summary(&app, &name).await?;
        app.live.open_figures(&app, FiguresScope::Room(name))
    });
    measured(&app, Route::GetRoomEvents, call).await
}
