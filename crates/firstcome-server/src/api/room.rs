//! The waiting room endpoints of the HTTP API.

use super::answer::Answer;
use super::body::{self, PathName};
use super::json::Json;
use super::room_shape::{PassBody, PassVerdict, Room, RoomBody, Shown, Ticket, TicketBody, room_settings};
use super::shape::Problem as ProblemShape;
use super::steering::Pace;
use super::{NO_STORE, answered, measured, revision};
use crate::accept::Peer;
use crate::auth::{Caller, Scope};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::pass::{Grant, PassError};
use crate::rfc3339::format as instant;
use crate::state::App;
use crate::work;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use firstcome::core::coupon::Effect;
use firstcome::core::id::{RequestId, RoomName, UserId};
use firstcome::core::revision::Revision;
use firstcome::core::room::{Join, Rejection, RoomSettings, TicketNumber, TicketState};
use firstcome::core::time::Timestamp;
use firstcome::{Joining, PassCheck, Put, RoomStore, RoomSummary, StoreError, TicketAnswer};
use hyper::body::Body;
use serde_json::Value;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

/// A room and one of its tickets, as the path names them.
pub(super) type PathTicket = Result<Path<(String, String)>, PathRejection>;

/// Translates a rule's refusal to an HTTP problem.
pub(crate) fn refused(rejection: Rejection) -> Problem {
    match rejection {
        Rejection::UnknownRoom => Code::UnknownRoom.into(),
        Rejection::UnknownTicket => Code::UnknownTicket.into(),
        Rejection::TicketRenewed => Code::TicketRenewed.into(),
        Rejection::NotAdmitted => Code::NotAdmitted.into(),
        Rejection::InvalidHandoff => Code::InvalidHandoff.into(),
        Rejection::HandoffUsed => Code::HandoffUsed.into(),
        Rejection::KeyReused(number) => Problem::new(Code::IdempotencyKeyReused).with("number", number.get()),
        Rejection::SettingsChanged => Code::SettingsChanged.into(),
        Rejection::DrawFixed => Code::DrawFixed.into(),
        Rejection::Closed => Code::RoomClosed.into(),
        Rejection::Full { retry_after_ms } => Problem::new(Code::RoomFull).retry_after_ms(retry_after_ms),
        // A rejection that this version does not know: the caller must not take it for a success.
        _ => Code::OutcomeUnknown.into(),
    }
}

/// Rounds the end of a pass down to a whole second, so that a pass ends no later than its slot.
fn whole_second(until: Timestamp) -> Timestamp {
    Timestamp::clamped_us(until.as_us().div_euclid(1_000_000) * 1_000_000)
}

/// Mints the pass of an admitted ticket.
pub(crate) fn pass_of(
    app: &App,
    room: &RoomName,
    answer: &TicketAnswer,
) -> Result<Option<(String, Timestamp)>, Problem> {
    let (TicketState::Admitted { slot, .. }, Some(until)) = (answer.state, answer.until) else { return Ok(None) };
    let user = answer.user.as_deref().and_then(|user| UserId::parse(user).ok());
    let grant = Grant {
        room: room.clone(),
        number: answer.number.get(),
        slot: slot.admission,
        user,
        issued_at: slot.admitted_at,
        expires_at: whole_second(until),
    };
    // Creating a room also creates the first secret.
    let passes = app.passes().ok_or(StoreError::Unknown)?;
    Ok(Some((passes.mint(&grant), grant.expires_at)))
}

/// Reads a pass, or says why it is none of this service. Another node may just have made the secret that the pass
/// names: then this asks the store for new secrets. Fails if the store cannot answer.
async fn read_pass(app: &App, pass: &str) -> Result<Result<Grant, PassError>, Problem> {
    let read = || app.passes().map_or(Err(PassError::UnknownKey), |passes| passes.read(pass));
    match read() {
        Err(PassError::UnknownKey) => {
            let refreshed = async { app.rooms.refresh_pass_secrets().await.map(Ok::<_, Rejection>) };
            answered(app, pin!(refreshed)).await?.map_err(refused)?;
            Ok(read())
        }
        told => Ok(told),
    }
}

/// Checks that a pass of this room is valid now, or says why not.
pub(crate) async fn judge_pass(
    app: &App,
    room: &RoomName,
    pass: &str,
) -> Result<Result<(Grant, PassCheck), &'static str>, Problem> {
    let grant = match read_pass(app, pass).await? {
        Ok(grant) if grant.room == *room => grant,
        Ok(_) => return Ok(Err("other_room")),
        Err(error) => return Ok(Err(error.code())),
    };
    let Some(number) = TicketNumber::new(grant.number) else { return Ok(Err("malformed")) };
    let over = if grant.expired(app.backend.now()) { "expired" } else { "over" };
    match answered(app, pin!(app.rooms.check_pass(room, number, grant.slot))).await? {
        Ok(Some(check)) => Ok(Ok((grant, check))),
        Ok(None) | Err(_) => Ok(Err(over)),
    }
}

/// Create a room or replace its settings
///
/// All settings are replaced: an omitted setting gets its default. A closed room opens again. Its numbers go on, and
/// its earlier tickets and passes stay void. Slots that were given keep their ends. With `If-Match` only the settings
/// of that `ETag` are replaced, and nothing is created.
#[utoipa::path(put, path = "/v1/rooms/{room}", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room"),
        ("If-Match" = Option<String>, Header, description = "Replace only the settings of this `ETag`")),
    request_body = RoomBody,
    responses(
        (status = 200, description = "Settings replaced", body = Room),
        (status = 201, description = "Created", body = Room),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`: with `If-Match`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`draw_fixed`", body = ProblemShape),
        (status = 412, description = "`settings_changed`: with `If-Match`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn put_room(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Admin)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let put = revision::put::<RoomSettings>(&app, &room, &parts.headers, &bytes).await?;
        let status = if put == Put::Created { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, show(&app, caller, &room).await?))
    });
    measured(&app, Route::PutRoom, call).await
}

/// Change some settings of a room
///
/// A merge patch (RFC 7396): it replaces the members that it names, null sets the default, the others stay. If another
/// operator changes the settings meanwhile, the patch is merged again; with `If-Match` it is refused. A closed room
/// opens again.
#[utoipa::path(patch, path = "/v1/rooms/{room}", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room"),
        ("If-Match" = Option<String>, Header, description = "Change only the settings of this `ETag`")),
    request_body(content = RoomBody, description = "Members of it", content_type = "application/merge-patch+json"),
    responses(
        (status = 200, description = "Changed", body = Room),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`draw_fixed`", body = ProblemShape),
        (status = 412, description = "`settings_changed`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn patch_room(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Admin)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let patch = body::read_patch(&parts.headers, body, app.config.limits.body).await?;
        revision::patch::<RoomSettings>(&app, &room, &parts.headers, &patch).await?;
        show(&app, caller, &room).await
    });
    measured(&app, Route::PatchRoom, call).await
}

impl revision::Settings for RoomSettings {
    type Name = RoomName;

    async fn in_force(app: &App, room: &RoomName) -> Result<Self, Problem> {
        Ok(answered(app, pin!(app.rooms.room(room))).await?.map_err(refused)?.settings)
    }

    fn shown(&self, _: &App) -> Value {
        room_settings(self)
    }

    async fn read(_: &App, body: &[u8]) -> Result<Self, Problem> {
        body::parse::<RoomBody>(body)?.settings()
    }

    async fn put(app: &App, room: &RoomName, revision: Revision<Self>) -> Result<Put, Problem> {
        answered(app, pin!(app.rooms.put_room(room, revision))).await?.map_err(refused)
    }
}

/// Shows the room. An admin also sees the settings, read from the store and not from the cache.
pub(super) async fn show(app: &App, caller: Caller, room: &RoomName) -> Result<Response, Problem> {
    if caller.require(Scope::Admin).is_err() {
        let summary = summary(app, room).await?;
        return Ok((NO_STORE, Json(Room::new(room, &summary))).into_response());
    }
    let summary = answered(app, pin!(app.rooms.room(room))).await?.map_err(refused)?;
    let settings = room_settings(&summary.settings);
    let tag = revision::tag_header(&settings);
    let mut shown = Room::new(room, &summary);
    (shown.settings, shown.pace) = (Some(settings), Some(Pace::new(&summary.view.pace)));
    Ok((NO_STORE, [tag], Json(shown)).into_response())
}

/// Show a room
///
/// An admin key is shown the `settings` too, as a PUT would set them, and their `ETag`.
#[utoipa::path(get, path = "/v1/rooms/{room}", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room")),
    responses(
        (status = 200, description = "The room", body = Room),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_room(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        let caller = app.reader(&headers)?;
        show(&app, caller, &body::room(&path.map_err(|_| body::undecodable())?.0)?).await
    });
    measured(&app, Route::GetRoom, call).await
}

/// Close a room
///
/// All its tickets and passes are void. A second time has no effect.
#[utoipa::path(delete, path = "/v1/rooms/{room}", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room")),
    responses(
        (status = 204, description = "Closed"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn delete_room(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        answered(&app, pin!(app.rooms.close_room(&room))).await?.map_err(refused)?;
        Ok(StatusCode::NO_CONTENT)
    });
    measured(&app, Route::DeleteRoom, call).await
}

/// Join the line
///
/// Draws the next number; the answer comes after it is durable. Any client may join without a user. A join with a user
/// needs a service key, and a user has at most one living place: a repeat is 200 with the same ticket. With an
/// `Idempotency-Key` a repeat is 201 with the same ticket, as long as the place exists. The key is free again once the
/// ticket has left or expired, or the room is closed. A visitor who joins stays in line until the next admission, at
/// most a tenth of a second later. If a burst is longer than the line may be, the rest gets `room_full`, although
/// slots may be free. If the operator demands work, a join without a key shows it in `X-Firstcome-Work`, or is told a
/// challenge: 403 `work_required`. All joins that show one challenge are one request, which has one living place: repeat a join
/// with the same work. Order of refusals: `work_required`, `rate_limited`, `too_many_joins`, `unknown_room`, `idempotency_key_reused`,
/// `room_closed`, `room_full`.
#[utoipa::path(post, path = "/v1/rooms/{room}/tickets", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters; on public calls at least 22 of base64url"),
        ("X-Firstcome-Work" = Option<String>, Header, description = "The work of a join without a key, if the operator demands it: `challenge.nonce`, or after a wait the challenge")),
    request_body = TicketBody,
    responses(
        (status = 200, description = "The place that the user has already", body = Ticket),
        (status = 201, description = "A place in line", body = Ticket),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: a user needs a service key", body = ProblemShape),
        (status = 403, description = "`work_required`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`room_full`", body = ProblemShape),
        (status = 410, description = "`room_closed`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key; `too_many_joins`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_ticket(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0);
        join(&app, &path.map_err(|_| body::undecodable())?.0, peer, &parts.headers, body).await
    });
    measured(&app, Route::PostTicket, call).await
}

/// Answers a join of the room that the path names. A call within the process has no `peer`.
pub(super) async fn join(
    app: &App,
    room: &str,
    peer: Option<IpAddr>,
    headers: &HeaderMap,
    body: impl Body<Data = Bytes> + Unpin,
) -> Result<Answer, Problem> {
    let caller = app.caller(headers)?;
    let room = body::room(room)?;
    let bytes = body::read(headers, body, app.config.limits.body).await?;
    let wanted = body::parse::<TicketBody<'_>>(&bytes)?;
    let user = wanted.user.as_deref().map(body::user).transpose()?;
    if user.is_some() {
        caller.require(Scope::Service)?;
    }
    let work = match caller.scope {
        Scope::Public => app.may_join(&room, work::shown(headers), peer, headers)?,
        _ => None,
    };
    let meaning = [user.as_ref().map_or("", UserId::as_str).as_bytes()];
    let request = body::request(headers, caller, (room.as_str(), "tickets"), &meaning)?;
    let request = work.map_or(request, |work| Some(work.request(&room, request)));
    let joined = answered(app, pin!(app.rooms.join(&room, Join { user, request }))).await?;
    let (joining, answer) = joined.map_err(refused)?;
    let status = if joining == Joining::SameUser { StatusCode::OK } else { StatusCode::CREATED };
    let effect = match joining {
        Joining::SameRequest => Effect::Again(()),
        Joining::New | Joining::SameUser => Effect::New(()),
    };
    let ticket = Ticket::new(&answer, pass_of(app, &room, &answer)?).with_ticket(&room, &answer.ticket);
    Ok(Answer::new(status, &ticket).replayed(&effect))
}

/// Show the place of a ticket
///
/// Poll again when the answer says. A visitor who is silent for three times that delay (at least 30 s) is passed over, and
/// is next after the next poll. The first poll after the admission takes the slot and returns the pass. A ticket of a
/// room that was closed is `expired`, even if the room opens again.
#[utoipa::path(get, path = "/v1/rooms/{room}/tickets/{ticket}", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"), ("ticket" = String, Path, description = "What joining returned")),
    responses(
        (status = 200, description = "The place", body = Ticket),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room` `unknown_ticket`", body = ProblemShape),
        (status = 409, description = "`ticket_renewed`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_ticket(State(app): State<Arc<App>>, path: PathTicket, request: Request) -> Response {
    // Takes the whole request and borrows its head: extracting the head would copy it.
    let caller = app.caller(request.headers());
    drop(request);
    let call = pin!(async {
        caller?;
        let Path((room, ticket)) = path.map_err(|_| body::undecodable())?;
        let told = match app.rooms.poll_settled(&room, &ticket) {
            Some(Ok(answer)) => answer,
            // Rare, and a large future: in a box it does not enlarge the others.
            _ => Box::pin(poll(&app, &room, &ticket)).await?,
        };
        let pass = if told.until.is_some() { pass_of(&app, &body::room(&room)?, &told)? } else { None };
        Ok((NO_STORE, Json(Ticket::new(&told, pass))).into_response())
    });
    measured(&app, Route::GetTicket, call).await
}

/// Answers a poll of a waiting ticket from memory. Returns `None` for a ticket in any other state.
pub(super) fn told_at_once(app: &App, headers: &HeaderMap, room: &str, ticket: &str) -> Option<Answer> {
    app.caller(headers).ok()?;
    let told = app.rooms.poll_settled(room, ticket)?.ok()?;
    matches!(told.state, TicketState::Waiting { .. } | TicketState::InDraw { .. })
        .then(|| Answer::new(StatusCode::OK, &Ticket::new(&told, None)))
}

/// Polls a ticket.
pub(crate) async fn poll(app: &App, room: &str, ticket: &str) -> Result<TicketAnswer, Problem> {
    answered(app, pin!(app.rooms.poll(&body::room(room)?, ticket))).await?.map_err(refused)
}

/// Shows a room, from the cache.
pub(crate) async fn summary(app: &App, room: &RoomName) -> Result<RoomSummary, Problem> {
    answered(app, pin!(app.rooms.shown(room))).await?.map_err(refused)
}

/// Joins for the bearer of the ticket.
pub(crate) async fn join_unnamed(
    app: &App,
    room: &RoomName,
    request: Option<RequestId>,
) -> Result<TicketAnswer, Problem> {
    let join = Join { user: None, request };
    let (_, answer) = answered(app, pin!(app.rooms.join(room, join))).await?.map_err(refused)?;
    Ok(answer)
}

/// Gives up a ticket.
pub(crate) async fn leave(app: &App, room: &RoomName, ticket: &str) -> Result<(), Problem> {
    answered(app, pin!(app.rooms.leave(room, ticket))).await?.map_err(refused)
}

/// Leave
///
/// Gives up the place, or the slot, which is free at once. A second time has no effect.
#[utoipa::path(delete, path = "/v1/rooms/{room}/tickets/{ticket}", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"), ("ticket" = String, Path, description = "What joining returned")),
    responses(
        (status = 204, description = "Left"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
        (status = 404, description = "`unknown_room` `unknown_ticket`", body = ProblemShape),
        (status = 409, description = "`ticket_renewed`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn delete_ticket(State(app): State<Arc<App>>, path: PathTicket, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?;
        let Path((room, ticket)) = path.map_err(|_| body::undecodable())?;
        leave(&app, &body::room(&room)?, &ticket).await?;
        Ok(StatusCode::NO_CONTENT)
    });
    measured(&app, Route::DeleteTicket, call).await
}

/// Whether a pass is valid now
///
/// Judged by the slot itself: a pass is over the moment its slot is given up. A check counts as a contact for the idle
/// time-out.
#[utoipa::path(post, path = "/v1/rooms/{room}/passes/verify", tag = "Rooms", security(("service" = [])),
    params(("room" = String, Path, description = "Name of the room")), request_body = PassBody,
    responses(
        (status = 200, description = "The verdict", body = PassVerdict),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_verify(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (room, bytes) = service_call(&app, path, request).await?;
        let wanted = body::parse::<PassBody<'_>>(&bytes)?;
        let judged = match wanted.shown()? {
            Shown::Pass(pass) => judge_pass(&app, &room, pass).await?.map(|(grant, check)| (grant.number, check)),
            Shown::Slot(number, admission) => {
                let check = answered(&app, pin!(app.rooms.check_pass(&room, number, admission))).await?;
                check.map_err(refused)?.map(|check| (number.get(), check)).ok_or("over")
            }
        };
        if judged.is_err() {
            // A valid pass names a room that exists; any other may not.
            answered(&app, pin!(app.rooms.shown(&room))).await?.map_err(refused)?;
        }
        let verdict = match judged {
            Ok((number, check)) => PassVerdict {
                valid: true,
                reason: None,
                number: Some(number),
                user: check.user.map(Into::into),
                expires_at: Some(instant(check.until)),
            },
            Err(reason) => PassVerdict { reason: Some(reason), ..PassVerdict::default() },
        };
        Ok((NO_STORE, Json(verdict)))
    });
    measured(&app, Route::PostVerify, call).await
}

/// Authorizes a call of a back end about a room, and reads its name and body.
pub(super) async fn service_call(app: &App, path: PathName, request: Request) -> Result<(RoomName, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    app.caller(&parts.headers)?.require(Scope::Service)?;
    let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
    let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
    Ok((room, bytes))
}

/// Returns the slot that a pass of this room names.
async fn slot_of(app: &App, room: &RoomName, pass: &str) -> Result<(TicketNumber, u64), Problem> {
    let invalid = |reason| Problem::new(Code::InvalidPass).with("reason", reason);
    let grant = read_pass(app, pass).await?.map_err(|error| invalid(error.code()))?;
    if grant.room != *room {
        return Err(invalid("other_room"));
    }
    let number = TicketNumber::new(grant.number).ok_or_else(|| invalid("malformed"))?;
    Ok((number, grant.slot))
}

/// Give a slot back
///
/// For a back end: the visit is over, the payment done. The slot is free at once. A second time has no effect.
#[utoipa::path(post, path = "/v1/rooms/{room}/passes/release", tag = "Rooms", security(("service" = [])),
    params(("room" = String, Path, description = "Name of the room")), request_body = PassBody,
    responses(
        (status = 204, description = "The slot is free"),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`invalid_pass`: not a pass of this room", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_release(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (room, bytes) = service_call(&app, path, request).await?;
        let wanted = body::parse::<PassBody<'_>>(&bytes)?;
        answered(&app, pin!(app.rooms.shown(&room))).await?.map_err(refused)?;
        let (number, admission) = match wanted.shown()? {
            Shown::Pass(pass) => slot_of(&app, &room, pass).await?,
            Shown::Slot(number, admission) => (number, admission),
        };
        answered(&app, pin!(app.rooms.release(&room, number, admission))).await?.map_err(refused)?;
        Ok(StatusCode::NO_CONTENT)
    });
    measured(&app, Route::PostRelease, call).await
}
