//! A gate in front of a site: a visitor with a valid pass reaches the site, any other sees the page of the room.
//!
//! # What it promises
//! - A request for a path behind the gate reaches the site only with a pass that is valid at that moment. While the store
//!   gives no answer, [`GracePolicy`](crate::GracePolicy) decides.
//! - The site gets neither tickets nor passes. `X-Firstcome-Number` and `X-Firstcome-Admission` name the slot, by which
//!   the site can release it; no visitor can write them.
//! - Bodies stream both ways, each until its own end: a site may answer an upload before it has all of it.
//! - A connection may become a WebSocket. It may change to no other protocol.
//! - A request that may have reached the site is not sent again.
//! - An address has no more connections, and a client no more requests whose answer has not begun, than
//!   [`Limits::connections_per_address`](crate::Limits). A visitor who takes no byte of an answer of the site for a minute
//!   (six times [`Limits::write`](crate::Limits)), or of the gate for ten seconds, loses the connection.
//! - A visitor who still sends the body of a request that the gate answers itself sees the answer: the gate reads the
//!   rest if it is short, and otherwise says that the connection ends.
//!
//! # What it does not promise
//! - TLS to the site, and HTTP/2: it speaks HTTP/1.1 to visitors, by TLS if [`Config::tls`](crate::Config::tls) has a certificate,
//!   and HTTP/1.1 in plain text to the site.
//! - That a visitor leaves when the slot ends: an answer, or a WebSocket, that has begun goes on.

mod forward;
mod origin;
mod path;
mod whole;

use origin::{Answered, OriginWatch};
pub use path::{PathRule, PathRuleError, PathRules};

use crate::accept::{
    AbortOnDrop, ConnectionSlot, ConnectionThreads, Entry, Guests, HEAD_BYTES_MAX, LentBody, Limits, Peer, PeerStream,
    Rest, Slot, TooMany, caught, secured,
};
use crate::address::{self, FORWARDED_URI};
use crate::api::room_gate::{self, NUMBER_HEADER, USER_HEADER};
use crate::error::{Code, Problem};
use crate::failures::Credential;
use crate::grace::{self, Ruling, Stay};
use crate::metrics::Passage;
use crate::pages::{self, Base, Format};
use crate::pass::{Grant, PassError};
use crate::request_id::{self, RequestScope};
use crate::security_headers;
use crate::state::App;
use crate::trace::{OutgoingCall, Through};
use axum::Router;
use axum::body::Body;
use axum::http::header;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use axum::response::IntoResponse;
use firstcome::RoomStore;
use firstcome::core::id::{RoomName, UserId};
use firstcome::edge::{Stopwatch, draw_hasher};
use firstcome_tls::Alpn;
use http_body_util::Either;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt;
use whole::{AnswerBody, Whole};

/// Where the gate has its own addresses within the site.
const BASE: &str = "/.firstcome";
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long the site may take to begin its answer to a request without a body.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The same for a request with a body, which a visitor may send slowly.
const ANSWER_TO_BODY_WITHIN: Duration = Duration::from_secs(600);
/// Many sites close a connection that is idle for 5 s. The gate closes it before, so that no request meets the close.
const POOL_IDLE: Duration = Duration::from_secs(4);
const POOL_IDLE_MAX: usize = 1_024;
/// A peer that has vanished is noticed some probes after so long, also on a WebSocket that is silent.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long a visitor's connection may wait for its next request.
const IDLE: Duration = Duration::from_secs(30);
const ADMISSION_HEADER: HeaderName = HeaderName::from_static("x-firstcome-admission");

/// A visitor may take so many times longer to take the next bytes of an answer of the site than of the gate. Answers of
/// sites are large: a socket that a slow visitor empties is writable again only after megabytes.
const WRITE_TIMES: u32 = 6;

/// An answer of the site, or of the gate itself.
type Outgoing = Response<AnswerBody>;

/// The address of a site, as `http://127.0.0.1:3000`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream(Authority);

/// Why a text is no address of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpstreamError;

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be http:// with a host and a port, such as http://127.0.0.1:3000, and no path")
    }
}

impl std::error::Error for UpstreamError {}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.parse().map_err(|_| UpstreamError)?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && uri.scheme() == Some(&Scheme::HTTP);
        let authority = uri.authority().filter(|authority| is_bare && !authority.as_str().contains('@'));
        Ok(Self(authority.ok_or(UpstreamError)?.clone()))
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// What stands behind a gate, and which room is before it.
#[derive(Clone, Debug)]
pub struct GateConfig {
    /// The room.
    pub room: RoomName,
    /// The site.
    pub upstream: Upstream,
    /// Which paths of the site need a pass.
    pub paths: PathRules,
    /// An answer of the site that begins later than this counts as slow: the gate reports that, and errors, to the room, which
    /// admits fewer then. `None`: the gate reports nothing.
    pub slow_after: Option<Duration>,
}

struct Gate {
    app: Arc<App>,
    config: GateConfig,
    router: Router,
    /// The threads that serve the connections; absent if the runtime of the caller serves them.
    threads: Option<Weak<ConnectionThreads>>,
    guests: Guests,
    entry: Entry,
    watch: Option<OriginWatch>,
    /// The time since the gate started.
    clock: Stopwatch,
}

thread_local! {
    /// The connections to sites that this thread has opened. A connection stays on its thread, as those of visitors do: a
    /// task that wakes another one of its thread makes no system call.
    static CLIENT: Client<HttpConnector, LentBody> = client();
}

fn client() -> Client<HttpConnector, LentBody> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    connector.set_keepalive(Some(KEEPALIVE));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_IDLE_MAX)
        .build(connector)
}

/// Serves visitors of the site until `shutdown` resolves, then lets requests under way finish, for
/// [`Limits::drain`](crate::Limits) at most. `router` is that of the service. Each connection is served on one of the
/// threads, or on the runtime of the caller. Does not close the store. Call within a Tokio runtime. If the future is dropped,
/// the gate takes no more connections, and those under way end by themselves.
pub async fn serve_gate(
    threads: Option<Arc<ConnectionThreads>>,
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    config: GateConfig,
    shutdown: impl Future<Output = ()>,
) {
    let limits = app.config.limits;
    // Weak, since connections share the gate: threads that are waited for must not be held by their own tasks.
    let gate = Arc::new(Gate::new(threads.as_ref().map(Arc::downgrade), app, router, config));
    grace::look_after(&gate.app, &gate.config.room, Stay::Always);
    let watching = Arc::clone(&gate);
    // Ends with this call, also if the caller drops it.
    let _watch = AbortOnDrop(tokio::spawn(async move {
        // A large answer may take its time, and a connection has a shorter one between two requests than a program.
        let limits = Limits { idle: IDLE, send: Duration::MAX, ..limits };
        tokio::join!(watching.entry.watch_over(&watching.app, &limits), watching.app.keep_publishing());
    }));
    // Each connection has a receiver: all have ended when there is none.
    let (stop, stopping) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => gate.admit(stream, peer.ip().to_canonical(), stopping.clone()),
            Err(error) => gate.entry.make_room_after(&gate.app, &error).await,
        }
    }
    drop((listener, stopping));
    stop.send_replace(());
    if tokio::time::timeout(limits.drain, stop.closed()).await.is_err() {
        tracing::warn!("some connections of the gate did not end in time");
    }
    drop(threads);
}

impl Gate {
    fn new(threads: Option<Weak<ConnectionThreads>>, app: Arc<App>, router: Router, config: GateConfig) -> Self {
        let limits = app.config.limits;
        let guests = Guests::new(limits.connections_per_address, draw_hasher());
        let entry = Entry::new(limits.connections_max, limits.connections_per_address, app.config.tls.clone());
        let watch = config.slow_after.map(OriginWatch::new);
        Self { app, config, router, threads, guests, entry, watch, clock: Stopwatch::start() }
    }

    /// Serves a connection in a new task, or refuses it if there are too many.
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: IpAddr, stopping: watch::Receiver<()>) {
        let Some((stream, place)) = self.entry.admit(&self.app, stream, peer) else { return };
        let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
        let (gate, place) = (Arc::clone(self), Arc::new(place));
        let served = move |stream| async move {
            match &gate.entry.tls {
                None => gate.serve(stream, peer, &place, stopping).await,
                Some(tls) => {
                    let within = gate.app.config.limits.head;
                    // WebSockets need HTTP/1.1.
                    if let Some((stream, _)) = secured(tls, Alpn::Http1, stream, within).await {
                        gate.serve(stream, peer, &place, stopping).await;
                    }
                }
            }
        };
        match self.threads.as_ref().map(Weak::upgrade) {
            None => drop(tokio::spawn(served(stream))),
            Some(Some(threads)) => threads.serve(stream, served),
            // The gate has ended.
            Some(None) => {}
        }
    }

    /// Serves one connection until it ends.
    async fn serve(
        self: &Arc<Self>,
        stream: impl PeerStream + Send + 'static,
        peer: IpAddr,
        place: &Arc<ConnectionSlot>,
        mut stopping: watch::Receiver<()>,
    ) {
        let (gate, of_requests, rest) = (Arc::clone(self), Arc::clone(place), Slot::default());
        let service = service_fn(move |request: Request<Incoming>| {
            let (gate, place, rest) = (Arc::clone(&gate), Arc::clone(&of_requests), rest.clone());
            place.begin_request();
            async move { Ok::<_, Infallible>(gate.answer(peer, request, place, rest).await) }
        });
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(place.watched(stream)), service)
            .with_upgrades();
        let served = async {
            let mut connection = pin!(connection);
            // An error is a peer that left, was too slow, or broke the protocol.
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        };
        place.until_end(pin!(served)).await;
    }

    async fn answer(
        &self,
        peer: IpAddr,
        request: Request<Incoming>,
        place: Arc<ConnectionSlot>,
        rest: Slot,
    ) -> Response<Whole> {
        let format = Format::of(request.headers());
        let client_waits = request.headers().contains_key(header::EXPECT);
        let request = request.map(|body| rest.lend(body));
        let trace = self.app.tracer.as_ref().and_then(|tracer| tracer.begin(&request, Through::Gate));
        let mut scope = RequestScope::of(request_id::given(request.headers())).traced(trace);
        let is_secure = self.app.is_secure(self.app.config.transport(), peer, request.headers());
        let decided = caught(&mut scope, Box::pin(self.decide(peer, request, Arc::clone(&place))).as_mut()).await;
        let (id, trace) = scope.into_parts();
        let mut id = if decided.is_err() { id.or_else(|| Some(request_id::draw())) } else { id };
        let (passage, mut answer) = match decided.unwrap_or_else(|panic| Err(panic.problem(&self.app, id.as_ref()))) {
            Ok((passage, response)) => (passage, response),
            Err(problem) => {
                self.app.metrics.refused(problem.code());
                let mut scope = RequestScope::of(id);
                let mut response = scope.within(|| match format {
                    Format::Html => pages::refusal(problem, BASE),
                    Format::Json => problem.into_response(),
                });
                id = scope.into_id();
                security_headers::complete_at_site(response.headers_mut());
                (Passage::Failed, response.map(Either::Right))
            }
        };
        // What the site has answered passes unchanged.
        if matches!(passage, Passage::Shown | Passage::Failed) {
            request_id::name(answer.headers_mut(), id, passage == Passage::Failed);
            if is_secure {
                security_headers::add_transport(answer.headers_mut());
            }
        }
        self.app.end_trace(trace, answer.status(), answer.headers());
        self.app.metrics.passed(passage);
        place.allow_write(if matches!(answer.body(), Either::Left(_)) { WRITE_TIMES } else { 1 });
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return answer.map(|body| Whole::new(body, None));
        }
        if rest.read_rest(client_waits).await == Rest::Left || place.is_leaving() {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        answer.map(|body| Whole::new(body, Some(place)))
    }

    async fn decide(
        &self,
        peer: IpAddr,
        mut request: Request<LentBody>,
        place: Arc<ConnectionSlot>,
    ) -> Result<(Passage, Outgoing), Problem> {
        let app = &*self.app;
        let client = address::client(peer, request.headers(), &app.config.proxies);
        if *request.method() == Method::CONNECT {
            return Err(Code::MethodNotAllowed.into());
        }
        if !app.config.proxies.trusts(peer) && app.forwarders.note(peer, request.headers()) {
            app.metrics.forwarded_untrusted();
        }
        let guest = self.guests.enter(client).map_err(|TooMany| {
            let detail = "Too many requests of this client are under way.";
            Problem::new(Code::RateLimited).detail(detail).of_address(client).retry_after_ms(1_000)
        })?;
        let path = request.uri().path();
        if let Some(own) = path.strip_prefix(BASE).filter(|own| own.starts_with('/')) {
            if !self.is_shown(own) {
                return Err(Code::NotFound.into());
            }
            let address = request.uri().path_and_query().map_or(own, |address| &address.as_str()[BASE.len()..]);
            let address = address.parse().map_err(|_| Problem::new(Code::NotFound))?;
            request.headers_mut().remove(FORWARDED_URI);
            return Ok((Passage::Shown, self.page(peer, client, request, address).await?));
        }
        if !self.config.paths.needs_pass(path) {
            return Ok((Passage::Open, self.forward(peer, request, place, None).await?));
        }
        let pass = room_gate::pass_of(request.headers()).ok();
        if let Some(pass) = pass.filter(|_| !app.is_dev())
            && let Err(error) = {
                app.may_show_pass(client, pass)?;
                app.passes().map_or(Err(PassError::UnknownKey), |passes| passes.read(pass))
            }
        {
            // A cluster is asked for the key of such a pass: it costs more than a request for the page.
            app.may_call(client)?;
            if error == PassError::Forged {
                app.failed_to_authenticate(client, Credential::Pass)?;
            }
        }
        let (passage, visitor) = match grace::rule(&self.app, &self.config.room, pass).await? {
            Ruling::Judged(Ok((grant, _))) => (Passage::Passed, Some(Visitor::of(grant))),
            Ruling::Unjudged(grant) => (Passage::Unjudged, grant.map(Visitor::of)),
            Ruling::Judged(Err(_)) | Ruling::NoPass => {
                return Ok((Passage::Shown, self.waiting_page(peer, client, request).await?));
            }
        };
        let answer = self.forward(peer, request, place, visitor).await;
        drop(guest);
        Ok((passage, answer?))
    }

    /// Shows the page of the room in place of the wanted one.
    async fn waiting_page(
        &self,
        peer: IpAddr,
        client: IpAddr,
        mut request: Request<LentBody>,
    ) -> Result<Outgoing, Problem> {
        if let Some(problem) = grace::hides_page(&self.app, &self.config.room) {
            return Err(problem);
        }
        let wanted = request.uri().path_and_query().map(|wanted| HeaderValue::try_from(wanted.as_str()));
        request.headers_mut().remove(FORWARDED_URI);
        if let Some(Ok(wanted)) = wanted {
            request.headers_mut().insert(FORWARDED_URI, wanted);
        }
        let address = format!("/rooms/{}", self.config.room.as_str());
        let address = address.parse().map_err(|_| Problem::new(Code::NotFound))?;
        self.page(peer, client, request, address).await
    }

    /// Notes an answer of the site, and reports to the room what its answers say, if `slow_after` is set.
    fn report(&self, answered: Answered, took: Duration) {
        let noted = self.watch.as_ref().and_then(|watch| watch.note(answered, took, self.clock.elapsed()));
        let Some(report) = noted else { return };
        let (app, room) = (Arc::clone(&self.app), self.config.room.clone());
        tokio::spawn(async move {
            // A report that is lost is followed by the next one.
            if let Err(error) = app.rooms.report_origin(&room, report).await {
                tracing::debug!(%error, "a report of the site did not reach its room");
            }
        });
    }

    /// Whether the gate shows this address of the service to visitors.
    fn is_shown(&self, path: &str) -> bool {
        let of_room = path.strip_prefix("/rooms/").and_then(|rest| rest.strip_prefix(self.config.room.as_str()));
        of_room.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            || path.starts_with("/assets/room.")
            || path == "/assets/draw.js"
            || matches!(path, "/healthz" | "/readyz")
    }

    /// Lets the service answer.
    async fn page(
        &self,
        peer: IpAddr,
        client: IpAddr,
        mut request: Request<LentBody>,
        address: PathAndQuery,
    ) -> Result<Outgoing, Problem> {
        if !self.app.is_dev() {
            self.app.may_call(client)?;
        }
        *request.uri_mut() = Uri::from(address);
        request.extensions_mut().insert(Base(BASE));
        request.extensions_mut().insert(Peer(peer));
        match self.router.clone().oneshot(request.map(Body::new)).await {
            Ok(mut response) => {
                if let Some(&shown) = response.extensions().get::<Credential>().filter(|_| !self.app.is_dev()) {
                    self.app.failed_to_authenticate(client, shown)?;
                }
                security_headers::complete_at_site(response.headers_mut());
                Ok(response.map(Either::Right))
            }
            Err(never) => match never {},
        }
    }

    /// Lets the site answer.
    async fn forward(
        &self,
        peer: IpAddr,
        mut request: Request<LentBody>,
        place: Arc<ConnectionSlot>,
        visitor: Option<Visitor>,
    ) -> Result<Outgoing, Problem> {
        let target = request.uri().authority().cloned();
        forward::keep_one_host(request.headers_mut(), target.as_ref());
        let address = request.uri().path_and_query().cloned().filter(|address| address.path().starts_with('/'));
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.config.upstream.0.clone())
            .path_and_query(address.ok_or(Code::NotFound)?)
            .build();
        *request.uri_mut() = uri.map_err(|_| Problem::new(Code::NotFound))?;
        *request.version_mut() = Version::HTTP_11;
        let theirs = hyper::upgrade::on(&mut request);
        let transport = self.app.config.transport();
        let upgrade = forward::to_site(request.headers_mut(), peer, transport, &self.app.config.proxies);
        if let Some(visitor) = visitor {
            visitor.name_to(request.headers_mut());
        }
        if let Some(upgrade) = upgrade {
            forward::keep_upgrade(request.headers_mut(), upgrade);
        }
        if request.body().size_hint().exact().is_none() {
            // Otherwise hyper sends a GET without its body.
            request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let within = if request.body().is_end_stream() { ANSWER_WITHIN } else { ANSWER_TO_BODY_WITHIN };
        let call = OutgoingCall::begin(request.headers_mut());
        let asked = Stopwatch::start();
        let request = request.map(|body| body.keep(&place));
        let answer = tokio::time::timeout(within, CLIENT.with(|client| client.request(request))).await;
        let is_well = matches!(&answer, Ok(Ok(response)) if !response.status().is_server_error());
        if let Some(call) = call {
            call.end(answer.as_ref().ok().and_then(|answer| Some(answer.as_ref().ok()?.status())));
        }
        self.report(if is_well { Answered::Well } else { Answered::Failed }, asked.elapsed());
        let mut response = answer.map_err(|_| Problem::new(Code::UpstreamSilent))?.map_err(|error| {
            tracing::debug!(%error, "the site did not answer");
            Problem::new(if error.is_connect() { Code::UpstreamUnreachable } else { Code::UpstreamSilent })
        })?;
        let upgrade = forward::strip(response.headers_mut());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let ours = hyper::upgrade::on(&mut response);
            tokio::spawn(join(theirs, ours, place));
            if let Some(upgrade) = upgrade {
                forward::keep_upgrade(response.headers_mut(), upgrade);
            }
        }
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(Either::Left))
    }
}

/// Carries bytes between a visitor and the site, once both have changed the protocol. Ends when either side ends.
async fn join(theirs: hyper::upgrade::OnUpgrade, ours: hyper::upgrade::OnUpgrade, place: Arc<ConnectionSlot>) {
    let carried = async {
        let Ok((theirs, ours)) = tokio::try_join!(theirs, ours) else { return };
        let (mut from_visitor, mut to_visitor) = tokio::io::split(TokioIo::new(theirs));
        let (mut from_site, mut to_site) = tokio::io::split(TokioIo::new(ours));
        // An end, or an error, of one direction ends both: a side that is gone must not hold the other.
        tokio::select! {
            _ = tokio::io::copy(&mut from_visitor, &mut to_site) => {}
            _ = tokio::io::copy(&mut from_site, &mut to_visitor) => {}
        }
    };
    place.until_end(pin!(carried)).await;
}

/// The slot of a visitor who passes.
struct Visitor {
    number: u32,
    admission: u64,
    user: Option<UserId>,
}

impl Visitor {
    fn of(grant: Grant) -> Self {
        Self { number: grant.number, admission: grant.slot, user: grant.user }
    }

    fn name_to(self, headers: &mut axum::http::HeaderMap) {
        headers.insert(NUMBER_HEADER, HeaderValue::from(self.number));
        headers.insert(ADMISSION_HEADER, HeaderValue::from(self.admission));
        if let Some(user) = self.user.and_then(|user| HeaderValue::try_from(user.as_str()).ok()) {
            headers.insert(USER_HEADER, user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_bare_http_address() {
        for text in ["http://127.0.0.1:3000", "http://site:80/", "http://[::1]:3000", "http://site"] {
            assert!(text.parse::<Upstream>().is_ok(), "{text}");
        }
        for text in
            ["", "127.0.0.1:3000", "https://site", "http://site/path", "http://site?x", "http://a@site", "http://"]
        {
            assert_eq!(text.parse::<Upstream>(), Err(UpstreamError), "{text}");
        }
    }
}
