//! One connection of HTTP/2: many requests at once, each in a stream of its own.
//!
//! # What it promises
//! - A request counts against the same limits as one of HTTP/1.1: of calls, of failed authentications, of joins, and of requests
//!   under way of one client. The number of connections of an address bounds these too: see [`Guests`](super::Guests).
//! - A connection has at most [`STREAMS_MAX`] requests under way, and keeps at most [`PIECE_BYTES`] of each answer beyond what
//!   its peer has room for. A stream whose peer takes nothing for [`Limits::write`] is reset, and its connection goes on.
//! - A peer that resets most of its requests before they are answered is told GOAWAY and cut off.
//! - A connection that has to end is told GOAWAY first. Requests that it has sent by then are answered.
//!
//! # What it does not promise
//! - That a peer which opens no request and sends other frames is noticed before [`Limits::idle`]: none of these frames prolongs
//!   the time of a connection.

use super::leftover::Slot;
use super::slots::ConnectionSlot;
use super::stream::PeerStream;
use super::watch::{Protocol, Watch, Watched};
use super::{HEAD_BYTES_MAX, Limits, Parcel, PortContext, TICK, Tracked, connection};
use crate::api;
use axum::body::Body;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderMap, HeaderValue, Request, Response, header};
use bytes::Bytes;
use firstcome::edge::Stopwatch;
use http_body_util::{Either, Full};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The most requests of a connection that are under way at once. Browsers expect a hundred (RFC 9113, 6.5.2).
const STREAMS_MAX: u32 = 100;
/// Bytes of a body that a peer may send before a handler reads them: those of one request, and of all of a connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes of an answer that are handed on at once. When the last of them wait for room at the peer, the stream counts no more: a
/// peer that never makes room keeps as many for each stream, until its connection has been idle for too long.
const PIECE_BYTES: usize = 8 * 1024;
/// Bytes of the answer of a stream that wait to be written to a connection whose peer has room.
const SEND_BYTES_MAX: usize = 64 * 1024;
/// Streams that a peer may reset before they were accepted. The default of the library, named since it is a guard.
const UNACCEPTED_RESETS_MAX: usize = 20;
/// Streams that this side may reset since the peer broke the protocol on them.
const OWN_RESETS_MAX: usize = 100;
/// From so many requests on that were reset before they were answered, they must not be most of all requests.
const RESETS_MAX: u64 = 200;

/// Serves one connection until it ends.
pub(super) async fn serve(
    stream: impl PeerStream + Send,
    peer: IpAddr,
    place: &ConnectionSlot,
    context: Arc<PortContext>,
) {
    let watch = &place.watch;
    watch.multiplex();
    let limits = context.app.config.limits;
    let streams = Arc::new(Streams::new(Arc::clone(watch)));
    let io = TokioIo::new(Watched::new(stream, Arc::clone(watch), Protocol::Multiplexed));
    let of_requests = Arc::clone(&streams);
    let service = service_fn(|request: Request<Incoming>| {
        let sending = of_requests.begin();
        let answer = answer(Arc::clone(&context), peer, sending, request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut http = pin!(
        http2::Builder::new(StreamExecutor(Arc::clone(&streams)))
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BYTES_MAX)
            .max_pending_accept_reset_streams(UNACCEPTED_RESETS_MAX)
            .max_local_error_reset_streams(OWN_RESETS_MAX)
            .serve_connection(io, service)
    );
    let (clock, mut ticked, mut is_told, mut cut_at) = (Stopwatch::start(), Duration::ZERO, false, None);
    let served = poll_fn(|cx| {
        let now = clock.elapsed();
        if TICK <= now - ticked {
            ticked = now;
            streams.tick(&limits);
        }
        let is_abused = streams.are_abused();
        if (is_abused || watch.is_leaving()) && !is_told {
            is_told = true;
            cut_at = is_abused.then_some(now + TICK);
            http.as_mut().graceful_shutdown();
        }
        if cut_at.is_some_and(|at| at <= now) {
            return Poll::Ready(());
        }
        // An error is a peer that left or broke the protocol: the library has told it so.
        http.as_mut().poll(cx).map(drop)
    });
    watch.until_end(pin!(served)).await;
}

/// Answers one request.
async fn answer(
    context: Arc<PortContext>,
    peer: IpAddr,
    sending: Arc<Sending>,
    request: Request<Incoming>,
) -> Response<StreamBody> {
    let slot = Slot::default();
    let mut request = as_of_http1(request.map(|body| slot.lend(body)));
    if api::may_wait(&request) {
        request.extensions_mut().insert(Tracked);
    }
    let mut response = connection::named_answer(&context, peer, request).await;
    let parcel: Option<Parcel> = response.extensions_mut().remove();
    sending.enter(State::Answered);
    response.map(|body| StreamBody::new(body, parcel, sending))
}

/// Gives a request the form that handlers know: the host in a header, no authority in the address, one header of cookies.
fn as_of_http1<B>(mut request: Request<B>) -> Request<B> {
    if let Some(host) = request.uri().authority().and_then(|host| HeaderValue::try_from(host.as_str()).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
    // An address without a path is that of `CONNECT`, which no handler serves.
    let address = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(address);
    join_cookies(request.headers_mut());
    request
}

/// A browser may send each cookie in a header of its own (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(_)) = (cookies.next(), cookies.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    for cookie in headers.get_all(header::COOKIE).iter().skip(1) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(header::COOKIE, joined);
    }
}

/// The requests of a connection.
struct Streams {
    watch: Arc<Watch>,
    state: Mutex<StreamsState>,
    /// Requests that ended before they were answered, and all that ended.
    ended: Mutex<(u64, u64)>,
}

#[derive(Default)]
struct StreamsState {
    open: Vec<Arc<Sending>>,
    /// The request that hyper has just handed over, whose future it executes next.
    next: Option<Arc<Sending>>,
}

impl Streams {
    fn new(watch: Arc<Watch>) -> Self {
        Self { watch, state: Mutex::default(), ended: Mutex::default() }
    }

    fn begin(&self) -> Arc<Sending> {
        let sending = Arc::new(Sending::default());
        let mut state = self.state.lock();
        if state.open.is_empty() {
            self.watch.begin_requests();
        }
        state.open.push(Arc::clone(&sending));
        state.next = Some(Arc::clone(&sending));
        sending
    }

    fn end(&self, ended: &Arc<Sending>) {
        let mut state = self.state.lock();
        state.open.retain(|open| !Arc::ptr_eq(open, ended));
        if state.open.is_empty() {
            self.watch.end_requests();
        }
        drop(state);
        let (resets, all) = &mut *self.ended.lock();
        *resets += u64::from(ended.is_at(State::Unanswered));
        *all += 1;
    }

    /// Whether the peer has reset most of its requests before they were answered.
    fn are_abused(&self) -> bool {
        let (resets, all) = *self.ended.lock();
        RESETS_MAX <= resets && all <= 2 * resets
    }

    /// Counts a tick of each answer whose peer has no room for more, and cuts off those that have used up their time.
    fn tick(&self, limits: &Limits) {
        let state = self.state.lock();
        state.open.iter().filter(|sending| limits.write < TICK * sending.tick()).for_each(|sending| sending.cut());
    }
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// No answer has begun.
    Unanswered,
    /// The answer has begun, and nothing of it waits for the peer.
    Answered,
    /// A piece of the answer waits for room at the peer.
    Waiting,
}

/// The answer of one stream, as the peer takes it.
#[derive(Default)]
struct Sending {
    state: AtomicU8,
    /// Ticks since the peer made room for a piece.
    ticks: AtomicU32,
    is_cut: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Sending {
    fn enter(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
        self.ticks.store(0, Ordering::Relaxed);
    }

    fn is_at(&self, state: State) -> bool {
        self.state.load(Ordering::Relaxed) == state as u8
    }

    /// Counts a tick, and returns how many there are.
    fn tick(&self) -> u32 {
        if self.is_at(State::Waiting) { self.ticks.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        let task = self.task.lock().clone();
        task.iter().for_each(Waker::wake_by_ref);
    }
}

/// Runs the streams of a connection, each as a task: a panic in the body of an answer ends that stream alone.
#[derive(Clone)]
struct StreamExecutor(Arc<Streams>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        // hyper executes the future of a request right after it has made it, and upgrades none.
        let Some(sending) = self.0.state.lock().next.take() else { return };
        let open = OpenStream { streams: Arc::clone(&self.0), sending };
        tokio::spawn(async move {
            let mut stream = Box::pin(stream);
            poll_fn(|cx| {
                let mut task = open.sending.task.lock();
                if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                    *task = Some(cx.waker().clone());
                }
                drop(task);
                // A stream that is dropped before its end is reset.
                if open.sending.is_cut.load(Ordering::SeqCst) { Poll::Ready(()) } else { stream.as_mut().poll(cx) }
            })
            .await;
            drop(stream);
            drop(open);
        });
    }
}

/// Counts a stream as open until it is dropped, also by a panic.
struct OpenStream {
    streams: Arc<Streams>,
    sending: Arc<Sending>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.end(&self.sending);
    }
}

/// The body of an answer, in pieces.
struct StreamBody {
    body: Either<Full<Bytes>, Body>,
    /// What is left of the frame that is handed on.
    rest: Bytes,
    /// An offer that is kept once the answer leaves.
    parcel: Option<Parcel>,
    sending: Arc<Sending>,
}

impl StreamBody {
    fn new(body: Either<Full<Bytes>, Body>, parcel: Option<Parcel>, sending: Arc<Sending>) -> Self {
        Self { body, rest: Bytes::new(), parcel, sending }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        self.sending.enter(State::Waiting);
        Frame::data(self.rest.split_to(PIECE_BYTES.min(self.rest.len())))
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // hyper asks for the body once the stream has taken the head of the answer, so its peer has not reset it.
        if let Some(Parcel(offer)) = self.parcel.take() {
            offer.keep();
        }
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let polled = match &mut self.body {
            Either::Left(whole) => Pin::new(whole).poll_frame(cx).map_err(|never| match never {}),
            Either::Right(body) => Pin::new(body).poll_frame(cx),
        };
        match polled {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    Poll::Ready(Some(Ok(self.piece())))
                }
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
            },
            polled => {
                self.sending.enter(State::Answered);
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // An answer with an offer is asked for its body, so that the offer is kept.
        self.parcel.is_none() && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut sum = SizeHint::new();
        if let Some(upper) = hint.upper() {
            sum.set_upper(upper + rest);
        }
        sum.set_lower(hint.lower() + rest);
        sum
    }
}
