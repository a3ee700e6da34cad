//! One connection: how it is opened, and how its end is detected.
//!
//! The `redis` crate's `MultiplexedConnection` never sends anything twice and never reconnects, as needed here. Its
//! `ConnectionManager` does not resend either. But with it a caller cannot tell a command that waited for a connection
//! from one that was sent, and it connects to any server without a check.

use super::address::{Credentials, Host};
use super::error::OpenError;
use firstcome_store::edge;
use firstcome_tls::Trust;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, RedisError, RedisResult, TlsCertificates, Value,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The pause before the first attempt to connect again; it doubles with each that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After this long a silence the system probes the other end. So a firewall does not forget the connection, and a
/// vanished peer is detected before a caller needs the connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The queue between callers and the connection: longer than there can be callers, and without preallocated memory.
/// With a shorter queue callers would wait for places, and a caller that has a place but is not polled would block all
/// others behind it.
const QUEUE: usize = 1 << 24;

/// How long connecting and an answer may take.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) connect: Duration,
    pub(crate) answer: Duration,
}

/// Opens connections to one server.
pub(crate) struct Connector {
    client: Client,
    address: String,
    times: Times,
}

impl Connector {
    /// Makes a connector from the URL of a server, and the authorities that it trusts if the URL demands TLS.
    pub(crate) fn new(url: &str, tls: Option<&Trust>, times: Times) -> Result<Self, OpenError> {
        Self::of(url.into_connection_info(), tls, times)
    }

    /// Makes a connector from a host and credentials.
    pub(crate) fn to(host: &Host, credentials: &Credentials, times: Times) -> Result<Self, OpenError> {
        let (name, port) = (host.name.to_string(), host.port);
        let address = match credentials.tls {
            Some(_) => ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(name, port),
        };
        let info = address.into_connection_info().map(|info| {
            let mut settings = info.redis_settings().clone().set_db(credentials.database);
            if let Some(user) = &credentials.user {
                settings = settings.set_username(user);
            }
            if let Some(password) = &credentials.password {
                settings = settings.set_password(password);
            }
            info.set_redis_settings(settings)
        });
        Ok(Self { address: host.to_string(), ..Self::of(info, credentials.tls.as_ref(), times)? })
    }

    fn of(info: RedisResult<ConnectionInfo>, tls: Option<&Trust>, times: Times) -> Result<Self, OpenError> {
        let open = || {
            let info = info?;
            let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
            // RESP3 separates messages from answers, and reports the end of a connection at once.
            let session = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            let info = info.set_tcp_settings(tcp).set_redis_settings(session);
            match tls {
                Some(trust) => {
                    firstcome_tls::install_provider();
                    Client::build_with_tls(info, certificates(trust))
                }
                None => Client::open(info),
            }
        };
        let client = open().map_err(|error: RedisError| OpenError::Address { says: error.to_string() })?;
        let address = client.get_connection_info().addr().to_string();
        Ok(Self { client, address, times })
    }

    /// Host and port, without user and password.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Opens a connection. `on_reply` receives the server's pushes; it must not wait.
    pub(crate) async fn connect(
        &self,
        on_reply: impl Fn(PushInfo, &Lost) + Send + Sync + 'static,
    ) -> Result<Socket, OpenError> {
        let lost = Arc::new(Lost::default());
        let end = SocketEnd(Arc::clone(&lost));
        let on_reply = move |push: PushInfo| -> Result<(), ()> {
            on_reply(push, &end.0);
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.times.connect))
            // Callers measure time-outs themselves, so that a time-out is never taken for a broken connection.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(on_reply);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|error| self.explained(&error))?;
        Ok(Socket { connection, lost })
    }

    /// Says what an error means. Redis without TLS takes a handshake for a command that has not ended, and says nothing.
    fn explained(&self, error: &RedisError) -> OpenError {
        let is_tls = matches!(self.client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. });
        match OpenError::while_opening(error, &self.address) {
            OpenError::Unreachable { address, says } if is_tls => {
                OpenError::Unreachable { address, says: format!("{says}; the server may offer no TLS at this port") }
            }
            other => other,
        }
    }

    /// Sends a command while the connection is being set up.
    pub(crate) async fn ask(&self, socket: &Socket, command: &Cmd) -> Result<Value, OpenError> {
        let mut connection = socket.connection();
        let Ok(answer) = timeout(self.times.answer, connection.send_packed_command(command)).await else {
            let says = "connected, but no answer in time".to_owned();
            return Err(OpenError::Unreachable { address: self.address.clone(), says });
        };
        let answer = answer.and_then(Value::extract_error);
        answer.map_err(|error| OpenError::while_opening(&error, &self.address))
    }
}

fn certificates(trust: &Trust) -> TlsCertificates {
    let client_tls = trust
        .identity()
        .map(|own| ClientTlsConfig { client_cert: own.certificate_pem().to_vec(), client_key: own.key_pem().to_vec() });
    TlsCertificates { client_tls, root_cert: trust.ca_pem().map(<[u8]>::to_vec) }
}

/// A connection that any number of callers share. It is closed when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Socket {
    connection: MultiplexedConnection,
    lost: Arc<Lost>,
}

impl Socket {
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    pub(crate) fn lost(&self) -> &Arc<Lost> {
        &self.lost
    }
}

/// Whether a connection is given up.
#[derive(Default)]
pub(crate) struct Lost {
    lost: AtomicBool,
    left: AtomicBool,
    news: Notify,
}

impl Lost {
    /// Gives the connection up: no new command will use it.
    pub(crate) fn declare(&self) {
        self.lost.store(true, Ordering::Release);
        self.news.notify_one();
    }

    /// Gives the connection up because another server has the keys by now. Answers that arrive from now on do not
    /// count.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
        self.declare();
    }

    /// Whether the connection was given up because another server has the keys.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    pub(crate) fn is_declared(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Waits until the connection is given up. Only one task may wait at a time.
    pub(crate) async fn wait(&self) {
        while !self.is_declared() {
            self.news.notified().await;
        }
    }
}

/// Held by the task that serves a connection, so that its end is always detected: the `redis` crate does not report
/// every write error as a disconnection.
struct SocketEnd(Arc<Lost>);

impl Drop for SocketEnd {
    fn drop(&mut self) {
        self.0.declare();
    }
}

/// The pauses between attempts to connect.
pub(crate) struct Backoff {
    pause: Duration,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self { pause: FIRST_PAUSE }
    }

    /// Sleeps, and doubles the next pause.
    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(edge::draw_pause(self.pause)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Records how long a connection lasted. A connection that ended at once does not shorten the next pause: the
    /// server may be rejecting this client.
    pub(crate) fn lasted(&mut self, time: Duration) {
        if time >= LONGEST_PAUSE {
            self.pause = FIRST_PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_second_and_no_further() {
        let mut backoff = Backoff::new();
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let before = tokio::time::Instant::now();
            backoff.pause().await;
            longest = longest.max(before.elapsed());
            assert!(before.elapsed() <= LONGEST_PAUSE + Duration::from_millis(1));
        }
        assert!(longest >= LONGEST_PAUSE / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_connection_that_lasted_makes_the_next_attempt_soon() {
        let mut backoff = Backoff::new();
        for _ in 0..20 {
            backoff.pause().await;
        }
        backoff.lasted(LONGEST_PAUSE / 2);
        assert_eq!(backoff.pause, LONGEST_PAUSE);
        backoff.lasted(LONGEST_PAUSE);
        assert_eq!(backoff.pause, FIRST_PAUSE);
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let times = Times { connect: LONGEST_PAUSE, answer: LONGEST_PAUSE };
        let connector = Connector::new("redis://user:secret@127.0.0.1:6379/3", None, times);
        assert_eq!(connector.map(|connector| connector.address().to_owned()), Ok("127.0.0.1:6379".to_owned()));
    }
}
