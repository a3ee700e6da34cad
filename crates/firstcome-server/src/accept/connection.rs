//! One connection, from its first request to its end.

use super::guests::TooMany;
use super::leftover::{LentBody, Rest, Slot};
use super::slots::ConnectionSlot;
use super::stream::PeerStream;
use super::watch::{Phase, Watch, Watched};
use super::{HEAD_BYTES_MAX, Peer, Port, PortContext, Tracked};
use crate::api::hot::HotCall;
use crate::error::{Code, Problem};
use crate::live::Streaming;
use crate::{address, api, auth};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tower::ServiceExt;

/// A response: of a hot call, or of the router.
type Outgoing = Response<Either<Full<Bytes>, Body>>;

/// Serves one connection until it ends.
pub(super) async fn serve(stream: impl PeerStream, peer: IpAddr, place: &ConnectionSlot, context: &PortContext) {
    let watch = &place.watch;
    let io = TokioIo::new(Watched::new(stream, Arc::clone(watch)));
    let slot = Slot::default();
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let slot = slot.clone();
        let request = request.map(|body| slot.lend(body));
        watch.enter(Phase::Busy);
        let answer = answer_one(context, peer, watch, slot, request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let http = hyper::server::conn::http1::Builder::new()
        .max_header_size(HEAD_BYTES_MAX)
        .half_close(false)
        .header_read_timeout(None)
        .serve_connection(io, service);
    // It also ends when the peer leaves or breaks the protocol: hyper has then sent every answer that it could.
    watch.until_end(pin!(http)).await;
}

/// Answers one request of a connection, and adds `connection: close` if the connection ends after it.
async fn answer_one(
    context: &PortContext,
    peer: IpAddr,
    watch: &Watch,
    slot: Slot,
    mut request: hyper::Request<LentBody>,
) -> Outgoing {
    let client_waits = request.headers().contains_key(header::EXPECT);
    let may_wait = api::may_wait(&request);
    if may_wait {
        request.extensions_mut().insert(Tracked);
        watch.waits.store(true, Ordering::Relaxed);
    }
    let mut response = guarded(context, peer, request).await;
    if may_wait {
        watch.waits.store(false, Ordering::Relaxed);
        watch.carry(response.extensions_mut().remove());
    }
    if slot.read_rest(client_waits).await == Rest::Left || watch.is_leaving() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // A stream goes on, and its connection ends with it.
    let is_stream = matches!(response.body(), Either::Right(_)) && response.extensions().get::<Streaming>().is_some();
    watch.enter(if is_stream { Phase::Busy } else { Phase::Idle });
    response
}

/// Answers a request, unless its address has too many requests or calls too often.
async fn guarded(context: &PortContext, peer: IpAddr, request: hyper::Request<LentBody>) -> Outgoing {
    let app = &*context.app;
    if app.is_dev() {
        return match auth::dev_gate(request.headers(), context.entry.transport()) {
            Ok(()) => answer(context, peer, request).await,
            Err(problem) => refuse(problem),
        };
    }
    let is_counted = context.port == Port::Service
        && ["/v1/", "/rooms/", "/coupons/"].iter().any(|rows| request.uri().path().starts_with(rows))
        && *request.method() != Method::OPTIONS;
    if !is_counted {
        return answer(context, peer, request).await;
    }
    let client = address::client(peer, request.headers(), &app.config.proxies);
    let is_proxied = app.config.proxies.trusts(peer);
    if !is_proxied && app.forwarders.note(peer, request.headers()) {
        app.metrics.forwarded_untrusted();
    }
    let guest = if is_proxied { context.guests.enter(client) } else { Ok(None) };
    let has_key = request.headers().contains_key(header::AUTHORIZATION);
    let refused = match guest {
        Err(TooMany) => {
            app.metrics.client_refused();
            let detail = "Too many requests of this client are under way.";
            Some(Problem::new(Code::RateLimited).detail(detail).of_address(client).retry_after_ms(1_000))
        }
        Ok(_) if has_key => None,
        Ok(_) => app.may_call(client).err(),
    };
    if let Some(problem) = refused {
        return api::limited(app, &request.into_parts().0, problem).map(Either::Right);
    }
    let response = answer(context, peer, request).await;
    // An unknown key gives no exemption from the rate limit: trying keys counts as a call. A 401 for a missing pass
    // has another scheme.
    if has_key
        && response.headers().get(header::WWW_AUTHENTICATE).is_some_and(|scheme| scheme == "Bearer")
        && let Err(problem) = app.may_call(client)
    {
        app.metrics.refused(problem.code());
        return refuse(problem);
    }
    drop(guest);
    response
}

fn refuse(problem: Problem) -> Outgoing {
    problem.whole(HeaderMap::with_capacity(api::HEADERS_USUAL)).map(Either::Left)
}

async fn answer(context: &PortContext, peer: IpAddr, mut request: hyper::Request<LentBody>) -> Outgoing {
    if let Some(call) = HotCall::of(&context.app, &request) {
        request = match call.answer(&context.app, peer, request).await {
            Ok(whole) => return whole.map(Either::Left),
            Err(request) => request,
        };
    }
    request.extensions_mut().insert(Peer(peer));
    // A box keeps the router's future out of the one of hot calls, which would be as large, and slower to move.
    match Box::pin(context.router.clone().oneshot(request.map(Body::new))).await {
        Ok(response) => response.map(Either::Right),
        Err(never) => match never {},
    }
}
