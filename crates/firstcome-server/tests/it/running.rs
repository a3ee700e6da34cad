//! A service behind a real port, and a peer that speaks to it in raw bytes.

use crate::promises;
use crate::service::{Answer, PATIENCE, Service, config};
use crate::stores::clock;
use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use firstcome::Embedded;
use firstcome_server::{Config, Keys, Limits, api, serve};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What a test waits for must come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens")
}

/// Looks again and again until it is so; what a test waits for must come.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    soon(async {
        while !is_so().await {
            ticks.tick().await;
        }
    })
    .await;
}

/// Limits that a test can wait for none of: each test shortens the one that it is about.
pub(crate) fn patient() -> Limits {
    let long = Duration::from_secs(600);
    let (head, body, idle, write, send, answer, drain) = (long, long, long, long, long, long, long);
    let connections_per_address = None;
    Limits { connections_max: 100, connections_per_address, head, body, idle, write, send, answer, drain }
}

/// A service that listens.
pub(crate) struct Running {
    pub(crate) service: Service,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(limits: Limits) -> Self {
        Self::with(Config { limits, ..config() }).await
    }

    pub(crate) async fn dev() -> Self {
        Self::with(Config { keys: Keys::Dev, limits: patient(), ..config() }).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let clock = clock();
        Self::over(Service::new(Embedded::memory_with(clock.clone()), clock, config)).await
    }

    pub(crate) async fn over(service: Service) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.expect("a free port"), service)
    }

    pub(crate) fn on(listener: TcpListener, service: Service) -> Self {
        let router = api::router(service.app.clone());
        Self::routed(listener, service, router)
    }

    pub(crate) fn routed(listener: TcpListener, service: Service, router: Router) -> Self {
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let app = service.app.clone();
        let served = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            serve(listener, app, router, stopped).await;
        });
        Self { service, address, stop: Some(stop), served }
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) async fn connect(&self) -> Peer {
        Peer::over(soon(TcpStream::connect(self.address)).await.expect("it listens"))
    }

    /// A connection from another address of this machine.
    pub(crate) async fn connect_from(&self, address: &str) -> Peer {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(address.parse().expect("an address"), 0)).expect("the address is this machine's");
        Peer::over(soon(socket.connect(self.address)).await.expect("it listens"))
    }

    /// Whether no client listens any more.
    pub(crate) async fn is_deaf(&self) -> bool {
        soon(TcpStream::connect(self.address)).await.is_err()
    }

    /// One request on a connection of its own.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut peer = self.connect().await;
        peer.send(bytes).await;
        peer.answer().await
    }

    /// Says stop and does not wait.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Whether `serve` has returned.
    pub(crate) fn has_stopped(&self) -> bool {
        self.served.is_finished()
    }

    /// Waits until `serve` has returned.
    pub(crate) async fn stopped(&mut self) {
        soon(&mut self.served).await.expect("the service does not panic");
    }

    /// Still answers others, and counts nothing that did not happen.
    pub(crate) async fn is_unharmed(&self) {
        let answer = self.exchange("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await;
        assert_eq!((answer.status, answer.body().as_str()), (200, "ok\n"));
    }

    /// A figure of the service.
    pub(crate) async fn figure(&self, name: &str) -> u64 {
        let metrics = self.service.metrics().await;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().expect("a whole number")
    }
}

/// One connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Peer {
    pub(crate) const fn over(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that has heard enough may close before all is written; what it answered says more than the error.
        let _ = soon(self.stream.write_all(bytes.as_ref())).await;
    }

    /// Reads some more; `false` at the end.
    async fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        // A connection that was reset has ended too.
        let count = soon(self.stream.read(&mut buffer)).await.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        count != 0
    }

    /// The next answer, held to what all answers promise.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer().await.expect("an answer before the end")
    }

    /// The next answer, or `None` if the connection ends before it.
    pub(crate) async fn try_answer(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.read_more().await {
                assert!(self.read.is_empty(), "half an answer: {}", String::from_utf8_lossy(&self.read));
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).expect("heads are ASCII");
        let (status, headers) = parse_head(&head);
        let length = headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
        while self.read.len() < length {
            assert!(self.read_more().await, "the body ends before its length: {head}");
        }
        let answer = Answer { status, headers, bytes: self.read.drain(..length).collect() };
        // hyper answers what it cannot parse itself, with a status and nothing else.
        if !answer.bytes.is_empty() {
            promises::hold(&Method::GET, "/", &answer);
        }
        Some(answer)
    }

    /// Waits until the server closes the connection, and gives what it had still to say.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        while self.read_more().await {}
        std::mem::take(&mut self.read)
    }
}

fn parse_head(head: &str) -> (u16, HeaderMap) {
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status line");
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let name: HeaderName = name.parse().expect("a header name");
        headers.append(name, HeaderValue::from_str(value).expect("a header value"));
    }
    (status, headers)
}

/// A request with a body, as bytes.
pub(crate) fn request(line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

/// A claim by a service key, as bytes.
pub(crate) fn claim(user: &str) -> String {
    let headers = format!("authorization: Bearer {}\r\ncontent-type: application/json\r\n", crate::service::SERVICE);
    request("POST /v1/coupons/launch/claims", &headers, &format!("{{\"user\":\"{user}\"}}"))
}
