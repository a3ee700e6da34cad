//! The endpoint that renews tickets.

use super::answer::Answer;
use super::body;
use super::room::{PathTicket, pass_of, refused};
use super::room_shape::Ticket;
use super::shape::Problem as ProblemShape;
use super::{answered, measured};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::state::App;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use firstcome::core::id::RoomName;
use firstcome::core::room::RenewalKey;
use firstcome::{RoomStore, TicketAnswer};
use std::pin::pin;
use std::sync::Arc;

/// Renew a ticket
///
/// Gives the place another ticket, and answers as a poll with the new `ticket`. The ticket of the path is void then: at this
/// node at once, at other nodes of a cluster within 250 ms. Number, place and pass stay. A ticket is renewed once. A repeat with
/// the same `Idempotency-Key` is answered with the same new ticket, as long as that one is not renewed; any other request is
/// refused with `ticket_renewed`. The key is needed: without it, a lost answer would lose the place. A place that is gone keeps
/// its ticket. No body is read. Order of refusals: `invalid_idempotency_key`, `unknown_room`, `unknown_ticket`,
/// `ticket_renewed`.
#[utoipa::path(post, path = "/v1/rooms/{room}/tickets/{ticket}/renew", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"), ("ticket" = String, Path, description = "What joining returned, or the last renewal"),
        ("Idempotency-Key" = String, Header, description = "1 to 128 visible ASCII characters; on public calls at least 22 of base64url")),
    responses(
        (status = 200, description = "The place, with its new ticket", body = Ticket),
        (status = 400, description = "`invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room` `unknown_ticket`", body = ProblemShape),
        (status = 409, description = "`ticket_renewed`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_renewal(State(app): State<Arc<App>>, path: PathTicket, headers: HeaderMap) -> Response {
    let call = pin!(async {
        let caller = app.caller(&headers)?;
        let Path((room, ticket)) = path.map_err(|_| body::undecodable())?;
        let room = body::room(&room)?;
        let request = body::request(&headers, caller, (room.as_str(), "renewals"), &[ticket.as_bytes()])?;
        let needed = "a renewal needs this header: with it a repeat finds the same ticket";
        let request = request.ok_or_else(|| Problem::new(Code::InvalidIdempotencyKey).detail(needed))?;
        let told = renew(&app, &room, &ticket, RenewalKey::new(request.key)).await?;
        let shown = Ticket::new(&told, pass_of(&app, &room, &told)?).with_ticket(&room, &told.ticket);
        Ok(Answer::new(StatusCode::OK, &shown))
    });
    measured(&app, Route::PostRenewal, call).await
}

/// Gives the place of a ticket another ticket.
pub(crate) async fn renew(app: &App, room: &RoomName, ticket: &str, key: RenewalKey) -> Result<TicketAnswer, Problem> {
    answered(app, pin!(app.rooms.renew(room, ticket, key))).await?.map_err(refused)
}
