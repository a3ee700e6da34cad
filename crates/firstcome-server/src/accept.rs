//! Accepts connections, limits their number, and limits the time of each phase of a connection.
//!
//! hyper's own header timer costs an allocation and two timer operations per request. It covers neither a peer that
//! does not read nor a peer that idles for too long. Here every connection has a watch. One task per port counts the
//! ticks of all watches twice a second. Progress resets a watch. The server closes a connection that makes no progress
//! within the time of its phase.

mod connection;
mod ending;
mod entry;
mod guests;
mod leftover;
mod multiplexed;
mod slots;
mod stream;
mod threads;
mod unwind;
mod watch;

use crate::address;
use crate::error::{self, Code, Problem};
use crate::lock::Offer;
use crate::security_headers::OF_REFUSED_CONNECTION;
use crate::state::App;
use axum::Router;
pub(crate) use entry::{Entry, Speaks, secured};
use firstcome::edge::draw_hasher;
use firstcome_tls::Alpn;
pub(crate) use guests::{Guests, TooMany};
pub(crate) use leftover::{LentBody, Rest, Slot};
use serde_json::{Map, json};
pub(crate) use slots::ConnectionSlot;
use slots::{Limit, SlotRefusal};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;
use stream::InProcess;
pub(crate) use stream::PeerStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub use threads::ConnectionThreads;
pub(crate) use unwind::{Panic, caught};

/// Limits on the number of connections and on the time of each phase.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections at once. For a further connection the server closes the longest idle one. If none is idle,
    /// the server replies `overloaded` to the new one and closes it.
    pub connections_max: usize,
    /// The most connections of one address; `None` sets no limit. Over it the server replies `rate_limited`. A trusted
    /// proxy may open any number of connections. The same limit then applies to the requests under way of each client
    /// behind it.
    pub connections_per_address: Option<NonZeroUsize>,
    /// Time from the first byte of a request to the end of its head, and from the opening of a connection to its first
    /// byte.
    pub head: Duration,
    /// Time from the end of the head to the end of the body.
    pub body: Duration,
    /// Time between two requests on one connection.
    pub idle: Duration,
    /// Time for a peer to take the next bytes of an answer.
    pub write: Duration,
    /// Time for a peer to take all pending answers, including those to pipelined requests.
    pub send: Duration,
    /// Time for the rules and the store to answer.
    pub answer: Duration,
    /// Time, after the signal to stop, for requests under way to finish.
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

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Marks a request whose connection takes care of the [`Parcel`] in the response.
#[derive(Clone, Copy)]
pub(crate) struct Tracked;

/// Carries, in a response, an offer that is kept only if the answer leaves for a peer that is still connected.
#[derive(Clone)]
pub(crate) struct Parcel(pub(crate) Arc<Offer>);

/// Most bytes of a request's head. The server answers 431 to a longer head and closes the connection.
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The interval between two checks of the connections.
const TICK: Duration = Duration::from_millis(500);

/// The most connections to the port of operators. They do not count against the connections of clients.
pub const ADMIN_CONNECTIONS_MAX: usize = 32;

/// The audience of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    /// Clients. Calls and connections of one address are limited.
    Service,
    /// Operators.
    Admin,
}

/// State that all connections of a port share.
struct PortContext {
    app: Arc<App>,
    router: Router,
    port: Port,
    /// The threads that serve the connections; absent if the runtime of the caller serves them.
    threads: Option<Weak<ConnectionThreads>>,
    entry: Entry,
    guests: Guests,
}

/// Serves until `shutdown` resolves, then drains. Returns when all connections have ended, or after [`Limits::drain`].
/// Does not close the store.
///
/// The server answers each request that reached an established connection, even if its bytes arrive after the signal.
/// From the signal on, answers carry `connection: close`. The server closes a connection once it is idle and nothing
/// that its peer sent is unread. The server accepts connections whose handshake is under way before it closes the
/// listener.
pub async fn serve(listener: TcpListener, app: Arc<App>, router: Router, shutdown: impl Future<Output = ()>) {
    serve_on(listener, PortContext::new(Port::Service, app, router), shutdown).await;
}

/// Serves as [`serve`] does, each connection on one of these threads. For stores in this process: a store that other
/// machines keep is asked by tasks of the caller's runtime, and each of their answers would change the thread.
pub async fn serve_on_threads(
    threads: Arc<ConnectionThreads>,
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    // Weak, since connections share the context: threads that are waited for must not be held by their own tasks.
    let of_port = Some(Arc::downgrade(&threads));
    let context = PortContext { threads: of_port, ..PortContext::new(Port::Service, app, router) };
    serve_on(listener, context, shutdown).await;
    drop(threads);
}

/// Serves the port of operators as [`serve`] does, with its own [`ADMIN_CONNECTIONS_MAX`] and no limit per address.
pub async fn serve_admin(listener: TcpListener, app: Arc<App>, router: Router, shutdown: impl Future<Output = ()>) {
    serve_on(listener, PortContext::new(Port::Admin, app, router), shutdown).await;
}

/// Serves one in-process stream with the code that serves sockets, and returns when the peer has closed it. For
/// measurements within one process. Each such connection has limits of its own: they are not counted together.
pub async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    peer: IpAddr,
    app: Arc<App>,
    router: Router,
) {
    let context = PortContext::new(Port::Service, app, router);
    // A new `PortContext` has a free slot.
    let Ok(place) = context.entry.places.take(peer, Limit::None) else { return };
    // A plain type: the caller's compiler would otherwise look through all layers of hyper for `Send`.
    let served: Pin<Box<dyn Future<Output = ()> + Send + '_>> =
        Box::pin(connection::serve(InProcess(stream), peer, &place, &context));
    tokio::select! {
        biased;
        () = served => {}
        () = context.watch_over() => {}
    }
}

async fn serve_on(listener: TcpListener, context: PortContext, shutdown: impl Future<Output = ()>) {
    let limits = context.app.config.limits;
    let context = Arc::new(context);
    let mut shutdown = pin!(shutdown);
    let watching = Arc::clone(&context);
    // Ends with this call, also if the caller drops it.
    let _watch = AbortOnDrop(tokio::spawn(async move { watching.watch_over().await }));
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => context.admit(stream, peer.ip()),
            Err(error) => context.entry.make_room_after(&context.app, &error).await,
        }
    }
    // Before the listener closes, so that each remaining connection ends after its next answer.
    context.entry.places.begin_stop();
    context.app.begin_drain();
    ending::accept_the_last(listener, |stream, peer| context.admit(stream, peer)).await;
    if tokio::time::timeout(limits.drain, context.entry.places.emptied()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

/// Counts a connection as open until it is dropped, also by a panic in the body of an answer.
struct OpenConnection(Arc<App>);

impl OpenConnection {
    fn of(app: &Arc<App>) -> Self {
        app.metrics.connection_opened();
        Self(Arc::clone(app))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.metrics.connection_closed();
    }
}

/// Ends a task when it is dropped.
pub(crate) struct AbortOnDrop(pub(crate) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl PortContext {
    fn new(port: Port, app: Arc<App>, router: Router) -> Self {
        let limits = app.config.limits;
        let (max, per_address, tls) = match port {
            Port::Service => (limits.connections_max, limits.connections_per_address, app.config.tls.clone()),
            Port::Admin => (ADMIN_CONNECTIONS_MAX, None, None),
        };
        Self {
            app,
            router,
            port,
            threads: None,
            entry: Entry::new(max, per_address, tls),
            guests: Guests::new(per_address, draw_hasher()),
        }
    }

    /// Ends each connection that has used up its time. Never returns.
    async fn watch_over(&self) {
        let places = self.entry.watch_over(&self.app, &self.app.config.limits);
        tokio::join!(places, self.app.keep_history(), self.app.keep_publishing(), self.app.keep_purging());
    }

    /// Serves a connection in a new task, or refuses it if no slot is free. The task holds the slot until the
    /// connection has ended.
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: IpAddr) {
        let peer = peer.to_canonical();
        let Some((stream, place)) = self.entry.admit(&self.app, stream, peer) else { return };
        let context = Arc::clone(self);
        let served = move |stream| async move {
            let open = OpenConnection::of(&context.app);
            match &context.entry.tls {
                None => connection::serve(stream, peer, &place, &context).await,
                Some(tls) => {
                    let within = context.app.config.limits.head;
                    match secured(tls, Alpn::Http2AndHttp1, stream, within).await {
                        // In boxes, so that a connection in plain text is not larger.
                        Some((stream, Speaks::Http1)) => {
                            Box::pin(connection::serve(stream, peer, &place, &context)).await;
                        }
                        Some((stream, Speaks::Http2)) => {
                            let context = Arc::clone(&context);
                            Box::pin(multiplexed::serve(stream, peer, &place, context)).await;
                        }
                        None => {}
                    }
                }
            }
            drop((open, place, context));
        };
        match self.threads.as_ref().map(Weak::upgrade) {
            None => drop(tokio::spawn(served(stream))),
            Some(Some(threads)) => threads.serve(stream, served),
            // The port has ended.
            Some(None) => {}
        }
    }
}

/// Builds the answer to a connection over a limit.
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
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n{OF_REFUSED_CONNECTION}\
         retry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Returns the problem for a body that arrived too slowly.
pub(crate) fn too_slow() -> Problem {
    Code::RequestTimeout.into()
}
