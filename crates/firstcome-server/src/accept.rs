//! Connections: how many, and how long each may take for what.
//!
//! hyper's own header timer would cost an allocation and two timer operations per request, and covers neither a peer
//! that does not read nor one that idles longer than a header may take. Here every connection has one watch that ticks
//! twice a second: everything that makes progress sets it back; a connection without progress in its phase's time is closed.

mod connection;
mod ending;
mod guests;
mod leftover;
mod slots;
mod stream;
mod watch;

use crate::address;
use crate::error::{self, Code, Problem};
use crate::lock::Offer;
use crate::state::App;
use crate::throttle::Throttle;
use axum::Router;
use firstcome::edge::draw_hasher;
use guests::Guests;
use serde_json::{Map, json};
use slots::{ConnectionSlots, Limit, SlotRefusal};
use std::io::Write;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use stream::InProcess;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{Receiver, Sender};

/// How many connections, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. For a further one the longest idle connection is closed; if none is idle, the new one is told
    /// `overloaded` and closed.
    pub connections_max: usize,
    /// The same of one address, which is told `rate_limited`; without it as many as there are. A trusted proxy may have as
    /// many connections as it likes: of each client behind it so many requests are under way at once.
    pub connections_per_address: Option<NonZeroUsize>,
    /// From the first byte of a request to the end of its head, and from a connection's beginning to its first byte.
    pub head: Duration,
    /// From the end of the head to the end of the body.
    pub body: Duration,
    /// Between two requests on one connection.
    pub idle: Duration,
    /// For a peer to take the next bytes of an answer.
    pub write: Duration,
    /// For a peer to take a whole answer, and those to requests that it sent before it had read it.
    pub send: Duration,
    /// For the rules and the store to answer.
    pub answer: Duration,
    /// After the signal to stop, for everything that is under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address: NonZeroUsize::new(1_000),
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(10),
            send: Duration::from_secs(20),
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

/// Connections to the port of operators. They take none of the places of clients.
pub const ADMIN_CONNECTIONS_MAX: usize = 32;

/// Whom a port is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    /// Clients: calls and connections of one address are limited.
    Service,
    /// Operators.
    Admin,
}

/// What all connections of a port share.
struct PortContext {
    app: Arc<App>,
    router: Router,
    port: Port,
    places: Arc<ConnectionSlots>,
    guests: Guests,
    stopping: Sender<bool>,
    warnings: Warnings,
}

/// What a flood would log again and again.
#[derive(Default)]
struct Warnings {
    failed: Throttle,
    full: Throttle,
    address: Throttle,
    made_room: Throttle,
}

/// Serves until `shutdown` resolves, then drains, and returns when all connections have ended, or after
/// [`Limits::drain`]. The store is not closed.
///
/// A request that reached an established connection is answered, also one whose bytes arrive after the signal: answers
/// say `connection: close` from then on, and a connection is closed when it is idle and nothing that its peer sent is
/// unread. Connections that are under way are accepted before the listener closes.
pub async fn serve(listener: TcpListener, app: Arc<App>, router: Router, shutdown: impl Future<Output = ()>) {
    serve_on(Port::Service, listener, app, router, shutdown).await;
}

/// [`serve`] for the port of operators: it has [`ADMIN_CONNECTIONS_MAX`] places of its own, and limits no address.
pub async fn serve_admin(listener: TcpListener, app: Arc<App>, router: Router, shutdown: impl Future<Output = ()>) {
    serve_on(Port::Admin, listener, app, router, shutdown).await;
}

/// Serves one connection that is no socket, with the code that serves sockets, and returns when the peer has closed it. For
/// measurements within one process. Connections that are served so are not counted together: each has all places.
pub async fn serve_stream(stream: impl AsyncRead + AsyncWrite + Unpin, peer: IpAddr, app: Arc<App>, router: Router) {
    let context = PortContext::new(Port::Service, app, router);
    // A new door has a free place.
    let Ok(place) = context.places.take(peer, Limit::None) else { return };
    let stopping = context.stopping.subscribe();
    connection::serve(InProcess(stream), peer, &place, &context, stopping).await;
}

async fn serve_on(
    port: Port,
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let limits = app.config.limits;
    let context = Arc::new(PortContext::new(port, app, router));
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => context.admit(stream, peer.ip(), context.stopping.subscribe()),
            Err(error) => {
                if let Some(left_out) = context.warnings.failed.pass() {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                // Out of file descriptors, mostly: an idle connection gives its own.
                context.places.make_room();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    // Before the listener closes: what the last connections ask for is answered as their last request.
    context.stopping.send_replace(true);
    context.app.begin_drain();
    ending::accept_the_last(listener, |stream, peer| context.admit(stream, peer, context.stopping.subscribe())).await;
    if tokio::time::timeout(limits.drain, context.stopping.closed()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

impl PortContext {
    fn new(port: Port, app: Arc<App>, router: Router) -> Self {
        let limits = app.config.limits;
        let (max, per_address) = match port {
            Port::Service => (limits.connections_max, limits.connections_per_address),
            Port::Admin => (ADMIN_CONNECTIONS_MAX, None),
        };
        Self {
            app,
            router,
            port,
            places: Arc::new(ConnectionSlots::new(max, per_address)),
            guests: Guests::new(per_address, draw_hasher()),
            stopping: Sender::new(false),
            warnings: Warnings::default(),
        }
    }

    /// Serves a connection in a task of its own, or tells it that there is no place for it. Holds `stopping` until the
    /// connection has ended.
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: IpAddr, stopping: Receiver<bool>) {
        let peer = peer.to_canonical();
        // Answers are small and whole: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let limit = if self.app.config.proxies.trusts(peer) { Limit::None } else { Limit::PerAddress };
        let place = match self.places.take(peer, limit) {
            Ok(place) => place,
            Err(why) => return self.refuse(stream, peer, why),
        };
        if place.made_room {
            self.app.metrics.connection_made_room();
            if let Some(left_out) = self.warnings.made_room.pass() {
                tracing::warn!(left_out, %peer, "closing the longest idle connection: as many as may be are open");
            }
        }
        let context = Arc::clone(self);
        tokio::spawn(async move {
            context.app.metrics.connection_opened();
            connection::serve(stream, peer, &place, &context, stopping.clone()).await;
            context.app.metrics.connection_closed();
            drop((place, context, stopping));
        });
    }

    fn refuse(&self, stream: TcpStream, peer: IpAddr, why: SlotRefusal) {
        match why {
            SlotRefusal::Full => {
                self.app.metrics.connections_refused();
                if let Some(left_out) = self.warnings.full.pass() {
                    tracing::warn!(left_out, "refusing connections: as many as may be are open, and none is idle");
                }
            }
            SlotRefusal::Address => {
                self.app.metrics.address_refused();
                if let Some(left_out) = self.warnings.address.pass() {
                    tracing::warn!(left_out, %peer, "refusing connections of an address that has too many");
                }
            }
        }
        tell(stream, &refusal(peer, why));
    }
}

/// Tells a connection that there is no place for it, without waiting for anything.
fn tell(stream: TcpStream, answer: &[u8]) {
    // Best effort: who cannot be told sees the connection close. Written past the runtime, which may not know yet that
    // a connection so young can be written to.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(answer);
    }
}

/// The answer to a connection over a limit.
fn refusal(peer: IpAddr, why: SlotRefusal) -> Vec<u8> {
    let mut members = Map::from_iter([("retry_after_ms".into(), json!(1_000))]);
    let (code, status, detail) = match why {
        SlotRefusal::Full => (Code::Overloaded, "503 Service Unavailable", "Too many connections are open."),
        SlotRefusal::Address => {
            members.insert("address".into(), json!(address::shown(peer)));
            (Code::RateLimited, "429 Too Many Requests", "Too many connections of this address are open.")
        }
    };
    let body = error::body(code, detail, &members);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
         retry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// The problem for a body that came too slowly.
pub(crate) fn too_slow() -> Problem {
    Code::RequestTimeout.into()
}
