//! The endpoints that hand the place of an admitted visitor from the page of a room to a site on another host.

use super::answer::Answer;
use super::body::{self, PathName};
use super::room::{PathTicket, pass_of, refused, service_call};
use super::room_shape::Ticket;
use super::shape::Problem as ProblemShape;
use super::{answered, measured};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use firstcome::core::id::RoomName;
use firstcome::core::room::RenewalKey;
use firstcome::{Handoff, RoomStore};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// A code that moves a place to a site, once
#[derive(Serialize, ToSchema)]
pub(crate) struct HandoffCode {
    /// The code: letters of base64url. A site that has it has the place
    #[schema(example = "AAAAAQAAAAAAAAGcTqFf0QqO9pJm2Yf0vB1rWw3Z")]
    code: Box<str>,
    /// When the code ends
    #[schema(format = DateTime)]
    expires_at: String,
}

/// A code to redeem
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct HandoffBody<'a> {
    /// The code, from the parameter `firstcome_handoff=CODE` of the address that the visitor opened
    #[serde(borrow)]
    #[schema(value_type = String)]
    code: Cow<'a, str>,
}

/// Make a hand-off code
///
/// For a page of yours that leads to a site on another host: the code takes the place there, once. Append it to the address of the
/// site, as the parameter `firstcome_handoff=CODE`. It ends after a minute, and with the slot. The ticket stays valid until the
/// site has redeemed the code. No body is read. Order of refusals: `unknown_room`, `unknown_ticket`, `ticket_renewed`,
/// `not_admitted`.
#[utoipa::path(post, path = "/v1/rooms/{room}/tickets/{ticket}/handoff", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"), ("ticket" = String, Path, description = "What joining returned, or the last renewal")),
    responses(
        (status = 200, description = "The code", body = HandoffCode),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room` `unknown_ticket`", body = ProblemShape),
        (status = 409, description = "`ticket_renewed` `not_admitted`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_handoff(State(app): State<Arc<App>>, path: PathTicket, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?;
        let Path((room, ticket)) = path.map_err(|_| body::undecodable())?;
        let room = body::room(&room)?;
        let Handoff { code, until } = hand_off(&app, &room, &ticket).await?;
        Ok(Answer::new(StatusCode::OK, &HandoffCode { code, expires_at: instant(until) }))
    });
    measured(&app, Route::PostHandoff, call).await
}

/// Makes a code of a ticket.
pub(crate) async fn hand_off(app: &App, room: &RoomName, ticket: &str) -> Result<Handoff, Problem> {
    answered(app, pin!(app.rooms.hand_off(room, ticket))).await?.map_err(refused)
}

/// Redeem a hand-off code
///
/// For the site on which a visitor arrives with the parameter `firstcome_handoff=CODE`. Answers as a poll, with the `pass` of the
/// visitor and a new `ticket`; keep them in the session of the visitor. The ticket of the page is void then. A code counts once: a
/// repeat with the same `Idempotency-Key` is answered with the same, until the code ends; any other request is refused with
/// `handoff_used`. The key is needed: without it, a lost answer would lose the place. Order of refusals:
/// `invalid_idempotency_key`, `unknown_room`, `invalid_handoff`, `handoff_used`.
#[utoipa::path(post, path = "/v1/rooms/{room}/handoffs", tag = "Rooms", security(("service" = [])),
    params(("room" = String, Path, description = "Name of the room"),
        ("Idempotency-Key" = String, Header, description = "1 to 128 visible ASCII characters; draw one at random for each arrival")),
    request_body = HandoffBody,
    responses(
        (status = 200, description = "The place, with its new ticket", body = Ticket),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`invalid_handoff`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`handoff_used`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_redeemed_handoff(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let headers = request.headers().clone();
        let (room, bytes) = service_call(&app, path, request).await?;
        let caller = app.caller(&headers)?;
        let HandoffBody { code } = body::parse(&bytes)?;
        let request = body::request(&headers, caller, (room.as_str(), "handoffs"), &[code.as_bytes()])?;
        let needed = "a redemption needs this header: with it a repeat finds the same place";
        let request = request.ok_or_else(|| Problem::new(Code::InvalidIdempotencyKey).detail(needed))?;
        let key = RenewalKey::new(request.key);
        let told = answered(&app, pin!(app.rooms.redeem_handoff(&room, &code, key))).await?.map_err(refused)?;
        let shown = Ticket::new(&told, pass_of(&app, &room, &told)?).with_ticket(&room, &told.ticket);
        Ok(Answer::new(StatusCode::OK, &shown))
    });
    measured(&app, Route::PostRedeemedHandoff, call).await
}
