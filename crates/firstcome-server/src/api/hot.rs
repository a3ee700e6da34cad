//! Answers the calls that come by the ten thousand without the router: claims, joins, polls, bids and `/healthz`.
//!
//! A hot call has the same handler as its endpoint, so it has the same checks and the same answer. What it saves is
//! the router's work: boxes for handler and body, extracted parameters, extensions. The router takes all other calls,
//! and each hot call that is special: from a page of another origin, with a name that is percent-encoded.

use super::answer::{Answer, Whole, settle, whole};
use super::{coupon, listing, room};
use crate::error::Problem;
use crate::metrics::Route;
use crate::state::App;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use firstcome::edge::Stopwatch;
use hyper::body::Body;
use std::net::IpAddr;

/// A call that needs no router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HotCall {
    Health,
    Poll,
    Claim,
    Join,
    Bid,
}

impl HotCall {
    /// Recognizes a hot call. Returns `None` if the router has to answer.
    pub(crate) fn of<B>(app: &App, request: &Request<B>) -> Option<Self> {
        if request.headers().contains_key(header::ORIGIN) || !app.lacks().is_empty() {
            return None;
        }
        Self::at(request.method(), request.uri().path())
    }

    fn at(method: &Method, path: &str) -> Option<Self> {
        if path == "/healthz" {
            return (*method == Method::GET).then_some(Self::Health);
        }
        let mut segments = path.strip_prefix("/v1/")?.split('/');
        let (kind, name, action, last) = (segments.next()?, segments.next()?, segments.next()?, segments.next());
        let is_plain = |text: &str| !text.is_empty() && !text.contains('%');
        if segments.next().is_some() || !is_plain(name) || !last.is_none_or(is_plain) {
            return None;
        }
        match (kind, action, last.is_some()) {
            ("coupons", "claims", false) if *method == Method::POST => Some(Self::Claim),
            ("rooms", "tickets", false) if *method == Method::POST => Some(Self::Join),
            ("rooms", "tickets", true) if *method == Method::GET => Some(Self::Poll),
            ("listings", "bids", false) if *method == Method::POST => Some(Self::Bid),
            _ => None,
        }
    }

    /// Answers the call. Returns the request if the router has to answer after all.
    pub(crate) async fn answer<B>(self, app: &App, peer: IpAddr, request: Request<B>) -> Result<Whole, Request<B>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let watch = Stopwatch::start();
        if self == Self::Poll {
            let Some(answer) = poll(app, &request) else { return Err(request) };
            let whole = answer.whole(request.into_parts().0.headers);
            app.metrics.answered(Route::GetTicket, whole.status().as_u16(), watch.elapsed());
            return Ok(whole);
        }
        let (Parts { uri, headers, .. }, body) = request.into_parts();
        let name = uri.path().split('/').nth(3).unwrap_or_default();
        let (route, outcome) = match self {
            Self::Health | Self::Poll => return Ok(health(app, headers)),
            Self::Claim => (Route::PostClaim, coupon::claim(app, name, &headers, body).await),
            Self::Join => (Route::PostTicket, room::join(app, name, Some(peer), &headers, body).await),
            Self::Bid => (Route::PostBid, listing::bid(app, name, &headers, body).await),
        };
        Ok(counted(app, route, &watch, outcome, headers))
    }
}

fn health(app: &App, headers: HeaderMap) -> Whole {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    match super::health::alive(app) {
        Ok(body) => whole(StatusCode::OK, headers, Bytes::from_static(body.as_bytes()), kind),
        Err(problem) => problem.whole(headers),
    }
}

/// Answers the poll of a waiting ticket. Returns `None` for a ticket in any other state.
fn poll<B>(app: &App, request: &Request<B>) -> Option<Answer> {
    let (room, ticket) = request.uri().path().strip_prefix("/v1/rooms/")?.split_once("/tickets/")?;
    room::told_at_once(app, request.headers(), room, ticket)
}

fn counted(app: &App, route: Route, watch: &Stopwatch, outcome: Result<Answer, Problem>, headers: HeaderMap) -> Whole {
    if let Err(problem) = &outcome {
        app.metrics.refused(problem.code());
    }
    let whole = settle(outcome, headers);
    app.metrics.answered(route, whole.status().as_u16(), watch.elapsed());
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_of_hot_endpoints_go_past_the_router() {
        let rows = [
            (Method::GET, "/healthz", Some(HotCall::Health)),
            (Method::HEAD, "/healthz", None),
            (Method::GET, "/healthz/", None),
            (Method::POST, "/v1/coupons/launch/claims", Some(HotCall::Claim)),
            (Method::GET, "/v1/coupons/launch/claims", None),
            (Method::POST, "/v1/coupons/launch/claims/", None),
            (Method::POST, "/v1/coupons/launch/claims/ann", None),
            (Method::POST, "/v1/coupons//claims", None),
            (Method::POST, "/v1/coupons/l%61unch/claims", None),
            (Method::POST, "/v1/coupons/launch/redemptions", None),
            (Method::POST, "/v2/coupons/launch/claims", None),
            (Method::POST, "/v1/rooms/sale/tickets", Some(HotCall::Join)),
            (Method::GET, "/v1/rooms/sale/tickets", None),
            (Method::GET, "/v1/rooms/sale/tickets/abc", Some(HotCall::Poll)),
            (Method::GET, "/v1/rooms/sale/tickets/a%62c", None),
            (Method::GET, "/v1/rooms/sale/tickets/", None),
            (Method::DELETE, "/v1/rooms/sale/tickets/abc", None),
            (Method::GET, "/v1/rooms/sale/tickets/abc/d", None),
            (Method::POST, "/v1/listings/lamp/bids", Some(HotCall::Bid)),
            (Method::POST, "/v1/listings/lamp/purchase", None),
            (Method::GET, "/", None),
        ];
        for (method, path, wanted) in rows {
            assert_eq!(HotCall::at(&method, path), wanted, "{method} {path}");
        }
    }
}
