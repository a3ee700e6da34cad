//! Where connections of a port come in: each gets a slot, or is told why not.

use super::slots::{ConnectionSlot, ConnectionSlots, Limit, SlotRefusal};
use super::{Limits, refusal};
use crate::cookie::Transport;
use crate::state::App;
use firstcome::throttle::Throttle;
use firstcome_tls::{Alpn, HTTP2_NAME, ServerTls};
use std::io::Write;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The slots of a port, and limits for the log lines that a flood of connections would repeat.
pub(crate) struct Entry {
    pub(super) places: Arc<ConnectionSlots>,
    /// The certificate of the port; `None` in plain text.
    pub(crate) tls: Option<ServerTls>,
    full: Throttle,
    address: Throttle,
    made_room: Throttle,
    failed: Throttle,
}

/// The pause after a connection that could not be accepted: the next one may fail as well.
const FAILED_PAUSE: Duration = Duration::from_millis(20);

impl Entry {
    /// How peers reach the port.
    pub(crate) const fn transport(&self) -> Transport {
        if self.tls.is_some() { Transport::Tls } else { Transport::Plain }
    }

    pub(crate) fn new(max: usize, per_address: Option<NonZeroUsize>, tls: Option<ServerTls>) -> Self {
        Self {
            tls,
            places: Arc::new(ConnectionSlots::new(max, per_address)),
            full: Throttle::default(),
            address: Throttle::default(),
            made_room: Throttle::default(),
            failed: Throttle::default(),
        }
    }

    /// Gives a connection a slot, or refuses it. A trusted proxy may open any number of connections.
    pub(crate) fn admit(&self, app: &App, stream: TcpStream, peer: IpAddr) -> Option<(TcpStream, ConnectionSlot)> {
        // An answer is small and written whole: Nagle's algorithm would only delay it.
        let _ = stream.set_nodelay(true);
        let limit = if app.config.proxies.trusts(peer) { Limit::None } else { Limit::PerAddress };
        match self.places.take(peer, limit) {
            Ok(place) => {
                if place.made_room {
                    self.note_room(app, peer);
                }
                Some((stream, place))
            }
            Err(why) => {
                self.note_refusal(app, peer, why);
                // In plain text, a client that speaks TLS could not read it.
                if self.tls.is_none() {
                    tell(stream, &refusal(peer, why));
                }
                None
            }
        }
    }

    /// Closes the longest idle connection after one that could not be accepted, warns, and waits a moment. The usual cause
    /// is a lack of file descriptors, and the closed connection frees one.
    pub(crate) async fn make_room_after(&self, app: &App, error: &std::io::Error) {
        if self.places.make_room() {
            app.metrics.connection_made_room();
        }
        if let Some(left_out) = self.failed.pass() {
            tracing::warn!(%error, left_out, "cannot accept a connection");
        }
        tokio::time::sleep(FAILED_PAUSE).await;
    }

    fn note_room(&self, app: &App, peer: IpAddr) {
        app.metrics.connection_made_room();
        if let Some(left_out) = self.made_room.pass() {
            tracing::warn!(left_out, %peer, "closing the longest idle connection: the limit of connections is reached");
        }
    }

    fn note_refusal(&self, app: &App, peer: IpAddr, why: SlotRefusal) {
        match why {
            SlotRefusal::Full => {
                app.metrics.connections_refused();
                if let Some(left_out) = self.full.pass() {
                    tracing::warn!(
                        left_out,
                        "refusing connections: the limit of connections is reached, and none is idle"
                    );
                }
            }
            SlotRefusal::Address => {
                app.metrics.address_refused();
                if let Some(left_out) = self.address.pass() {
                    tracing::warn!(left_out, %peer, "refusing connections of an address that has too many");
                }
            }
        }
    }

    /// Ends each connection that has used up its time by these limits. Never returns.
    pub(crate) async fn watch_over(&self, app: &App, limits: &Limits) {
        self.places.watch_over(limits, || app.metrics.connection_overdue()).await;
    }
}

/// What the two sides of a connection have agreed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Also if the client offered nothing.
    Http1,
    Http2,
}

/// Does the handshake of a connection, and says what the peer speaks. `None` if the peer fails it, or takes longer than this.
pub(crate) async fn secured(
    tls: &ServerTls,
    offer: Alpn,
    stream: TcpStream,
    within: Duration,
) -> Option<(Box<TlsStream<TcpStream>>, Speaks)> {
    let handshake = TlsAcceptor::from(tls.config(offer)).accept(stream);
    match tokio::time::timeout(within, handshake).await {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2_NAME);
            Some((Box::new(stream), if is_http2 { Speaks::Http2 } else { Speaks::Http1 }))
        }
        Ok(Err(error)) => {
            // Scanners and clients of another authority cause it at will.
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Sends the refusal without waiting, as far as the socket takes it.
fn tell(stream: TcpStream, answer: &[u8]) {
    // Best effort: a peer that cannot be told sees the connection close. Writes to the socket directly, since the
    // runtime may not know yet that so new a socket is writable.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(answer);
    }
}
