//! The gate of a room: a proxy asks it for each visitor, and reads the verdict from the status alone.

use super::body::{self, PathName};
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, PASS_HEADER, answered, measured};
use crate::accept::Peer;
use crate::address;
use crate::cookie;
use crate::error::{Code, Problem};
use crate::grace::{self, Ruling};
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

pub(crate) const NUMBER_HEADER: HeaderName = HeaderName::from_static("x-firstcome-number");
pub(crate) const USER_HEADER: HeaderName = HeaderName::from_static("x-firstcome-user");
const EXPIRES_HEADER: HeaderName = HeaderName::from_static("x-firstcome-pass-expires-at");

/// Returns the pass of a call: from the header, else from the first cookie of that name.
pub(crate) fn pass_of(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = || Problem::from(Code::NoPass);
    let mut values = headers.get_all(PASS_HEADER).iter();
    if let Some(value) = values.next() {
        let pass = value.to_str().ok().filter(|_| values.next().is_none());
        return pass.ok_or_else(|| missing().detail("`X-Firstcome-Pass` came twice, or is not ASCII."));
    }
    cookie::read(headers, cookie::PASS).ok_or_else(missing)
}

/// Whether a path is that of the gate of a room.
pub(crate) fn is_at(path: &str) -> bool {
    let room = path.strip_prefix("/v1/rooms/").and_then(|path| path.strip_suffix("/gate"));
    room.is_some_and(|room| !room.is_empty() && !room.contains('/'))
}

/// Who asks a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedBy {
    /// The connection has counted the call.
    NoKey,
    /// A back end with a key of this service: neither the call nor what its visitors have shown counts against its address.
    BackEnd,
    /// Its `Authorization` is no key of this service, or was not read. It belongs to the visitor, for the shop behind the
    /// proxy: it neither locks a visitor out nor exempts a caller from the rate limit.
    Visitor(IpAddr),
}

/// An answer to a back end: see [`AskedBy::BackEnd`].
#[derive(Clone, Copy)]
pub(crate) struct ToBackEnd;

impl AskedBy {
    /// An address that has shown no valid key has as many texts read here in a minute as it may fail to authenticate: the
    /// answer could tell a key from another text.
    fn of(app: &App, parts: &Parts) -> Self {
        let Some(Peer(peer)) = parts.extensions.get::<Peer>().filter(|_| parts.headers.contains_key(AUTHORIZATION))
        else {
            return Self::NoKey;
        };
        let client = address::client(*peer, &parts.headers, &app.config.proxies);
        if app.may_show_text(client).is_err() || app.reader(&parts.headers).is_err() {
            return Self::Visitor(client);
        }
        app.failures.prove(client);
        Self::BackEnd
    }
}

/// Says why a pass is not valid.
fn invalid(reason: &'static str) -> Problem {
    let code = if reason == "malformed" { Code::NoPass } else { Code::InvalidPass };
    Problem::of_pass(code, reason)
}

/// Whether a visitor may pass, by the status
///
/// For nginx (auth_request), Caddy (forward_auth), Traefik (forwardAuth) and similar proxies. `passes/verify` answers
/// 200 with a verdict; this call refuses by the status. **204**: the pass is valid now. **401**: no pass came, or it
/// is malformed. **403**: a pass came that is not valid here. A check counts as a contact for the idle time-out. An
/// `Authorization` that is not a key of this service is ignored: it belongs to the visitor. While the store gives no
/// answer, passes whose admission had not ended count for `--grace`; then this answers 503 to all, or 204 with
/// `--on-loss open`.
#[utoipa::path(get, path = "/v1/rooms/{room}/gate", tag = "Rooms",
    params(("room" = String, Path, description = "Name of the room"),
        ("X-Firstcome-Pass" = Option<String>, Header, description = "The pass"),
        ("firstcome_pass" = Option<String>, Cookie, description = "The pass, where the header is missing")),
    responses(
        (status = 204, description = "The pass is valid, or the store is lost and the gate open", headers(
            ("X-Firstcome-Number" = u32, description = "The number in the line, if there is a pass"),
            ("X-Firstcome-User" = String, description = "Whose pass it is, if a service key joined for a user"),
            ("X-Firstcome-Pass-Expires-At" = String, description = "When its slot ends"))),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`no_pass`", body = ProblemShape),
        (status = 403, description = "`invalid_pass`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_gate(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let asked_by = AskedBy::of(&app, &parts);
    let call = pin!(async {
        if let AskedBy::Visitor(client) = asked_by {
            app.may_call(client)?;
        }
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let pass = pass_of(&parts.headers);
        let ruled = grace::rule(&app, &room, pass.as_deref().ok()).await?;
        if matches!(ruled, Ruling::Judged(Err(_)) | Ruling::NoPass) && !app.gates.is_silent(&room) {
            // A valid pass names a room that exists; any other may not.
            answered(&app, pin!(app.rooms.shown(&room))).await?.map_err(super::room::refused)?;
        }
        let mut headers = HeaderMap::new();
        let (grant, until) = match ruled {
            Ruling::NoPass => return Err(pass.err().unwrap_or_else(|| Code::NoPass.into())),
            Ruling::Judged(judged) => judged.map(|(grant, check)| (grant, check.until)).map_err(invalid)?,
            Ruling::Unjudged(None) => return Ok((StatusCode::NO_CONTENT, NO_STORE, headers)),
            Ruling::Unjudged(Some(grant)) => {
                let until = grant.expires_at;
                (grant, until)
            }
        };
        headers.insert(NUMBER_HEADER, HeaderValue::from(grant.number));
        let user = grant.user.as_ref().map(|user| user.as_str().to_owned());
        for (name, text) in [(USER_HEADER, user), (EXPIRES_HEADER, Some(instant(until)))] {
            if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
                headers.insert(name, value);
            }
        }
        Ok((StatusCode::NO_CONTENT, NO_STORE, headers))
    });
    let mut response = measured(&app, Route::GetGate, call).await;
    if asked_by == AskedBy::BackEnd {
        response.extensions_mut().insert(ToBackEnd);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_gate_of_a_room_is_at_its_path() {
        assert!(is_at("/v1/rooms/sale/gate"));
        for path in ["/v1/rooms/gate", "/v1/rooms//gate", "/v1/coupons/gate", "/v1/rooms/sale/tickets/gate", "/gate"] {
            assert!(!is_at(path), "{path}");
        }
    }

    #[test]
    fn a_pass_is_read_from_the_header_or_else_from_its_cookie() {
        let of = |lines: &[(&'static str, &'static [u8])]| {
            let line = |&(name, value): &(&'static str, &'static [u8])| {
                (HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("a value"))
            };
            let headers: HeaderMap = lines.iter().map(line).collect();
            pass_of(&headers).map(str::to_owned).map_err(|problem| problem.code())
        };
        let found = |pass: &str| Ok(pass.to_owned());
        assert_eq!(of(&[("x-firstcome-pass", b"a"), ("cookie", b"firstcome_pass=b")]), found("a"));
        assert_eq!(of(&[("cookie", b"x=1; firstcome_pass=b ;firstcome_pass=c")]), found("b"));
        assert_eq!(of(&[("cookie", b"x=\xff"), ("cookie", b"firstcome_pass=b=c")]), found("b=c"));
        assert_eq!(of(&[("cookie", b"firstcome_pass=\"b\"")]), found("\"b\""));
        let wrong: [&[(&str, &[u8])]; 6] = [
            &[],
            &[("cookie", b"Firstcome_pass=b; firstcome_pass_=c; firstcome_pass")],
            &[("cookie", b"firstcome_pass=")],
            &[("cookie", b"firstcome_pass=\xff")],
            &[("x-firstcome-pass", b"a"), ("x-firstcome-pass", b"a")],
            &[("x-firstcome-pass", b"\xff"), ("cookie", b"firstcome_pass=b")],
        ];
        for lines in wrong {
            assert_eq!(of(lines), Err(Code::NoPass), "{lines:?}");
        }
    }
}
