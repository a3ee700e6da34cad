//! One connection, from its first request to its end.

use super::guests::TooMany;
use super::leftover::{LentBody, Rest, Slot};
use super::slots::ConnectionSlot;
use super::stream::PeerStream;
use super::watch::{Phase, Protocol, Watch, Watched};
use super::{HEAD_BYTES_MAX, Panic, Peer, Port, PortContext, Tracked, caught};
use crate::api::hot::HotCall;
use crate::api::room_gate::{self, ToBackEnd};
use crate::error::{Code, Problem};
use crate::failures::Credential;
use crate::live::Streaming;
use crate::request_id::{self, RequestScope};
use crate::security_headers;
use crate::state::App;
use crate::trace::Through;
use crate::{address, api, auth};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, Version, header};
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
pub(super) type Outgoing = Response<Either<Full<Bytes>, Body>>;

const METRICS: &str = "/metrics";

/// Serves one connection until it ends.
pub(super) async fn serve(stream: impl PeerStream, peer: IpAddr, place: &ConnectionSlot, context: &PortContext) {
    let watch = &place.watch;
    let io = TokioIo::new(Watched::new(stream, Arc::clone(watch), Protocol::Sequential));
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
    let mut response = named_answer(context, peer, request).await;
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

/// Answers one request, also one whose handler panics, with the id of the request and what TLS asks for.
pub(super) async fn named_answer(context: &PortContext, peer: IpAddr, request: hyper::Request<LentBody>) -> Outgoing {
    let trace = context.app.tracer.as_ref().and_then(|tracer| tracer.begin(&request, Through::Service));
    let mut scope = RequestScope::of(request_id::given(request.headers())).traced(trace);
    let is_secure = context.app.is_secure(context.entry.transport(), peer, request.headers());
    let outcome = caught(&mut scope, pin!(guarded(context, peer, request))).await;
    let (id, trace) = scope.into_parts();
    let mut response = match outcome {
        Ok(mut response) => {
            // A drawn id is an allocation more: hot calls go without unless the service has failed.
            let status = response.status();
            let is_of_router = matches!(response.body(), Either::Right(_));
            let is_error = status.is_server_error() || is_of_router && status.is_client_error();
            request_id::name(response.headers_mut(), id, is_error);
            response
        }
        Err(panic) => panicked(&context.app, &panic, id.as_ref()),
    };
    context.app.end_trace(trace, response.status(), response.headers());
    if is_secure {
        security_headers::add_transport(response.headers_mut());
    }
    response
}

/// Answers a request whose handler has panicked. The connection ends: its body may be half read.
fn panicked(app: &App, panic: &Panic, id: Option<&HeaderValue>) -> Outgoing {
    app.metrics.refused(Code::InternalError);
    let mut response = refuse(panic.problem(app, id));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
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
    let path = request.uri().path();
    let is_counted = match context.port {
        Port::Service => {
            let is_limited = ["/v1/", "/rooms/", "/coupons/", METRICS].iter().any(|rows| path.starts_with(rows));
            is_limited && *request.method() != Method::OPTIONS
        }
        Port::Admin => path == METRICS && request.headers().contains_key(header::AUTHORIZATION),
    };
    if !is_counted {
        return answer(context, peer, request).await;
    }
    let client = address::client(peer, request.headers(), &app.config.proxies);
    let is_proxied = app.config.proxies.trusts(peer);
    if !is_proxied && app.forwarders.note(peer, request.headers()) {
        app.metrics.forwarded_untrusted();
    }
    // A connection of HTTP/2 carries many requests, as one of a proxy does.
    let is_one_of_many = is_proxied || request.version() == Version::HTTP_2;
    let guest = if is_one_of_many { context.guests.enter(client) } else { Ok(None) };
    let has_key = request.headers().contains_key(header::AUTHORIZATION);
    let is_judged = has_key && Authorization::at(request.uri().path()) == Authorization::Key;
    let refused = match guest {
        Err(TooMany) => {
            app.metrics.client_refused();
            let detail = "Too many requests of this client are under way.";
            Some(Problem::new(Code::RateLimited).detail(detail).of_address(client).retry_after_ms(1_000))
        }
        Ok(_) => may_ask(app, client, &request).err(),
    };
    if let Some(problem) = refused {
        return api::limited(app, &request.into_parts().0, problem).map(Either::Right);
    }
    let response = answer(context, peer, request).await;
    let is_to_back_end = || is_judged || response.extensions().get::<ToBackEnd>().is_some();
    let judged = match response.extensions().get::<Credential>() {
        // No key came.
        Some(Credential::Key) if !has_key => Ok(()),
        // A back end shows what its visitors have shown to it. Its key was judged before.
        Some(Credential::Pass | Credential::Ticket) if is_to_back_end() => Ok(()),
        Some(&shown) => failed(app, client, shown),
        None => {
            if is_judged && response.status().is_success() {
                app.failures.prove(client);
            }
            Ok(())
        }
    };
    if let Err(problem) = judged {
        app.metrics.refused(problem.code());
        return refuse(problem);
    }
    drop(guest);
    response
}

/// What an `Authorization` means at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authorization {
    /// It holds a key of this service.
    Key,
    /// It belongs to the visitor, for the site behind a proxy. The handler counts what is no key.
    OfVisitor,
    /// It means nothing: pages know no keys.
    Nothing,
}

impl Authorization {
    fn at(path: &str) -> Self {
        if room_gate::is_at(path) {
            Self::OfVisitor
        } else if path.starts_with("/v1/") || path == METRICS {
            Self::Key
        } else {
            Self::Nothing
        }
    }
}

/// Counts a call without a key, and refuses a key or a pass unread if too many were wrong.
fn may_ask<B>(app: &App, client: IpAddr, request: &hyper::Request<B>) -> Result<(), Problem> {
    let (headers, path) = (request.headers(), request.uri().path());
    let has_key = headers.contains_key(header::AUTHORIZATION);
    let meaning = Authorization::at(path);
    if !has_key || meaning == Authorization::Nothing {
        app.may_call(client)?;
    }
    if app.failures.are_few() {
        return Ok(());
    }
    if has_key && meaning == Authorization::Key {
        return app.may_show_key(client);
    }
    let reads_pass = path.ends_with("/claims") || room_gate::is_at(path);
    if reads_pass && let Ok(pass) = room_gate::pass_of(headers) {
        app.may_show_pass(client, pass)?;
    }
    Ok(())
}

/// Counts what was shown in vain. An unknown key gives no exemption from the rate limit: trying keys counts as a call.
fn failed(app: &App, client: IpAddr, shown: Credential) -> Result<(), Problem> {
    if shown == Credential::Key {
        app.may_call(client)?;
    }
    app.failed_to_authenticate(client, shown)
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
