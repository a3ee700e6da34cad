//! Connections: how many, and how long each may take for what.
//!
//! hyper's own header timer would cost an allocation and two timer operations per request, and covers neither a peer
//! that does not read nor one that idles longer than a header may take. Here every connection has one watch that ticks
//! twice a second: whatever makes progress sets it back, whatever does not in its phase's time is closed.

use crate::api;
use crate::auth;
use crate::error::{self, Code, Problem};
use crate::locks::Offer;
use crate::state::App;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use parking_lot::Mutex;
use serde_json::{Map, json};
use socket2::SockRef;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// How many connections, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; further ones are told `overloaded` and closed.
    pub connections_max: usize,
    /// From the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the end of the head to the end of the body.
    pub body: Duration,
    /// Between two requests on one connection.
    pub idle: Duration,
    /// For a peer to take the next bytes of an answer.
    pub write: Duration,
    /// For the rules and the store to answer.
    pub answer: Duration,
    /// After the signal to stop, for everything that is under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(10),
            answer: Duration::from_secs(10),
            drain: Duration::from_secs(9),
        }
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Says in a request that its connection takes care of the [`Parcel`] in the response.
#[derive(Clone, Copy)]
pub(crate) struct Tracked;

/// In a response: what is taken back unless the answer leaves for a peer who is still there.
#[derive(Clone)]
pub(crate) struct Parcel(pub(crate) Arc<Offer>);

/// Bytes of a request's head. More is answered with 431 and closed.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// How often a connection is looked at.
const TICK: Duration = Duration::from_millis(500);

/// Serves until `shutdown` resolves, then drains: no new connection, no further request on an old one, and what was
/// accepted is answered, for at most [`Limits::drain`]. The store is not closed.
pub async fn serve(listener: TcpListener, app: Arc<App>, router: Router, shutdown: impl Future<Output = ()>) {
    let limits = app.config.limits;
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let graceful = GracefulShutdown::new();
    let refusal = refusal();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    // Out of file descriptors, mostly: connections that end make room again.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            app.metrics.connections_refused();
            refuse(stream, &refusal);
            continue;
        };
        let (app, router, watcher) = (Arc::clone(&app), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            app.metrics.connection_opened();
            connection((stream, peer), &app, router, watcher).await;
            app.metrics.connection_closed();
            drop(place);
        });
    }
    drop(listener);
    app.begin_drain();
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

/// Tells a connection that there is no place for it, without waiting for anything.
fn refuse(stream: TcpStream, answer: &[u8]) {
    // Best effort: who cannot be told sees the connection close. Written past the runtime, which may not know yet that
    // a connection so young can be written to.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(answer);
    }
}

/// The answer to a connection over the limit, made once.
fn refusal() -> Vec<u8> {
    let members = Map::from_iter([("retry_after_ms".into(), json!(1_000))]);
    let body = error::body(Code::Overloaded, "Too many connections are open.", members);
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
         retry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

async fn connection((stream, peer): (TcpStream, IpAddr), app: &Arc<App>, router: Router, watcher: Watcher) {
    // Answers are small and whole: waiting to fill a packet would only delay them.
    let _ = stream.set_nodelay(true);
    let watch = Arc::new(Watch::default());
    let io = TokioIo::new(Watched { stream, watch: Arc::clone(&watch) });
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        watch.enter(Phase::Busy);
        let (watch, router) = (&watch, router.clone());
        async move {
            let may_wait = api::may_wait(&request);
            if may_wait {
                request.extensions_mut().insert(Tracked);
                watch.waits.store(true, Ordering::Relaxed);
            }
            let mut response = answer(app, router, request).await;
            if may_wait {
                watch.waits.store(false, Ordering::Relaxed);
                watch.carry(response.extensions_mut().remove());
            }
            watch.enter(Phase::Idle);
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let http = hyper::server::conn::http1::Builder::new()
        .max_header_size(HEAD_BYTES_MAX)
        .half_close(false)
        .header_read_timeout(None)
        .serve_connection(io, service);
    let mut served = pin!(watcher.watch(http));
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + TICK, TICK);
    loop {
        tokio::select! {
            // The peer went away or broke the protocol: hyper has answered what there was to answer.
            _ = &mut served => return,
            _ = ticks.tick() => if watch.overdue(&app.config.limits) {
                app.metrics.connection_overdue();
                return;
            },
        }
    }
}

async fn answer(app: &App, router: Router, request: hyper::Request<Incoming>) -> Response {
    if app.is_dev()
        && let Err(problem) = auth::dev_gate(request.headers())
    {
        return problem.into_response();
    }
    if let Some(response) = api::told_at_once(app, &request) {
        return response;
    }
    match router.oneshot(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Nothing of a request is here.
    Idle,
    /// A request has begun to arrive.
    Head,
    /// A request is being answered.
    Busy,
}

/// What a connection is at, and for how many ticks.
#[derive(Default)]
struct Watch {
    phase: AtomicU8,
    ticks: AtomicU32,
    write_ticks: AtomicU32,
    write_stalled: AtomicU8,
    /// Whether a call is under way that may wait for long.
    waits: AtomicBool,
    /// Whether there is a parcel.
    carries: AtomicBool,
    parcel: Mutex<Option<Parcel>>,
}

impl Watch {
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.ticks.store(0, Ordering::Relaxed);
    }

    fn read_some(&self) {
        // The head's time runs from its first byte: bytes that trickle in do not set it back.
        if self.phase.load(Ordering::Relaxed) == Phase::Idle as u8 {
            self.enter(Phase::Head);
        }
    }

    fn write_waits(&self, waits: bool) {
        if !waits {
            self.write_ticks.store(0, Ordering::Relaxed);
        }
        self.write_stalled.store(u8::from(waits), Ordering::Relaxed);
    }

    /// Takes charge of a parcel. There is none from before: hyper looks at no further request until an answer has left
    /// whole, as long as it is not told to gather answers.
    fn carry(&self, parcel: Option<Parcel>) {
        self.carries.store(parcel.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.parcel.lock(), parcel);
        drop(before);
    }

    /// The answer has left.
    fn hand_over(&self) {
        self.carries.store(false, Ordering::Relaxed);
        let parcel = self.parcel.lock().take();
        if let Some(Parcel(offer)) = parcel {
            offer.keep();
        }
    }

    /// Counts one tick and says whether the connection has used up its time.
    fn overdue(&self, limits: &Limits) -> bool {
        let over = |ticks: u32, limit: Duration| limit < TICK * ticks;
        if self.write_stalled.load(Ordering::Relaxed) != 0
            && over(self.write_ticks.fetch_add(1, Ordering::Relaxed) + 1, limits.write)
        {
            return true;
        }
        let ticks = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        match self.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Idle as u8 => over(ticks, limits.idle),
            phase if phase == Phase::Head as u8 => over(ticks, limits.head),
            // The handlers have deadlines of their own for the body and for the store.
            _ => false,
        }
    }
}

/// A stream that reports its progress to its watch.
struct Watched {
    stream: TcpStream,
    watch: Arc<Watch>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if before < buffer.filled().len() {
            self.watch.read_some();
        }
        polled
    }
}

impl Watched {
    /// Refuses to send a parcel to nobody.
    fn before_write(&self) -> io::Result<()> {
        let lost = self.watch.carries.load(Ordering::Relaxed) && (self.peer_left() || self.peer_said_end());
        if lost { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.watch.write_waits(polled.is_pending());
        if self.watch.carries.load(Ordering::Relaxed) && matches!(polled, Poll::Ready(Ok(1..))) {
            self.watch.hand_over();
        }
        polled
    }

    /// Whether the system knows that the peer is gone. Asked past the runtime, which learns it only when it looks again.
    fn peer_left(&self) -> bool {
        match SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Whether the peer has ended its side, also if something unread comes before the end.
    fn peer_said_end(&self) -> bool {
        let ready = pin!(self.stream.ready(Interest::READABLE));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper does not look for the end of a connection behind a further request that it has read already, but it
        // comes by here at every tick.
        if self.watch.waits.load(Ordering::Relaxed) && self.peer_said_end() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The problem for a body that came too slowly.
pub(crate) fn too_slow() -> Problem {
    Code::RequestTimeout.into()
}
