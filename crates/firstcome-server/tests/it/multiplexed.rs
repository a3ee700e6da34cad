//! HTTP/2: many requests on one connection, and peers that abuse that.

use crate::in_time;
use crate::running::{Running, patient, soon, until};
use crate::service::{ADMIN, Ask, SERVICE, config};
use bytes::Bytes;
use firstcome_server::{Config, Limits};
use firstcome_test_servers::{Authority, Flaw};
use firstcome_tls::{ServerFiles, ServerTls, TlsFiles};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// A service under TLS, and the authority that its clients trust.
struct Secure {
    running: Running,
    authority: Authority,
}

impl Secure {
    async fn start(limits: Limits) -> Self {
        let mut authority = Authority::new().expect("an authority");
        let files = authority.sign(Flaw::None).expect("signed");
        let tls = ServerTls::read(ServerFiles { cert: files.cert, key: files.key }).expect("the files are right");
        let running = Running::with(Config { limits, tls: Some(tls), ..config() }).await;
        Self { running, authority }
    }

    /// A connection of a client that offers these protocols.
    async fn connect(&self, offer: &[&[u8]]) -> TlsStream<TcpStream> {
        let trust =
            TlsFiles { ca: Some(self.authority.ca()), ..TlsFiles::default() }.read().expect("the file is right");
        let mut config = trust.client_config().expect("a configuration");
        config.alpn_protocols = offer.iter().map(|name| name.to_vec()).collect();
        let stream = soon(TcpStream::connect(self.running.address)).await.expect("it listens");
        let name = ServerName::from(self.running.address.ip());
        soon(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.expect("a handshake")
    }

    async fn session(&self) -> Session {
        self.session_of(&mut Builder::new()).await
    }

    async fn session_of(&self, builder: &mut Builder) -> Session {
        let stream = self.connect(&[b"h2", b"http/1.1"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (send, connection) = soon(builder.handshake(stream)).await.expect("a session");
        Session { send, ended: tokio::spawn(connection) }
    }
}

/// A connection of HTTP/2.
struct Session {
    send: SendRequest<Bytes>,
    ended: JoinHandle<Result<(), h2::Error>>,
}

fn request(method: Method, path: &str, key: Option<&str>) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("https://shop.example{path}"));
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    request.header("content-type", "application/json").body(()).expect("a request")
}

fn claim(user: &str) -> (Request<()>, Bytes) {
    let body = json!({"user": user}).to_string();
    (request(Method::POST, "/v1/coupons/launch/claims", Some(SERVICE)), body.into())
}

fn acquire(lock: &str) -> (Request<()>, Bytes) {
    let body = json!({"owner": "ann", "wait_ms": 60_000, "lease_ms": 60_000}).to_string();
    (request(Method::POST, &format!("/v1/locks/{lock}/acquire"), Some(SERVICE)), body.into())
}

/// Status, headers and body.
struct Answered(StatusCode, HeaderMap, Bytes);

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.2).unwrap_or_else(|_| panic!("{:?}", self.2))
    }
}

async fn whole(answer: ResponseFuture) -> Result<Answered, h2::Error> {
    let (head, mut body) = soon(answer).await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = soon(body.data()).await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(Answered(head.status, head.headers, bytes.into()))
}

impl Session {
    /// Sends a head, and a body unless it is to come.
    async fn begin(
        &mut self,
        request: Request<()>,
        body: Option<Bytes>,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut send = soon(self.send.clone().ready()).await?;
        let (answer, mut stream) = send.send_request(request, false)?;
        if let Some(body) = body {
            stream.send_data(body, true)?;
        }
        Ok((answer, stream))
    }

    async fn ask(&mut self, (request, body): (Request<()>, Bytes)) -> Result<Answered, h2::Error> {
        let (answer, _stream) = self.begin(request, Some(body)).await?;
        whole(answer).await
    }

    async fn get(&mut self, path: &str) -> Answered {
        self.ask((request(Method::GET, path, None), Bytes::new())).await.expect("an answer")
    }

    /// Waits for the end of the connection: whether the service said GOAWAY, and why.
    async fn went_away(self) -> Option<Reason> {
        drop(self.send);
        match soon(self.ended).await.expect("no panic") {
            Ok(()) => Some(Reason::NO_ERROR),
            Err(error) if error.is_go_away() => error.reason(),
            Err(_) => None,
        }
    }
}

#[tokio::test]
async fn a_client_that_offers_it_claims_over_http2_and_others_get_http1() {
    let secure = Secure::start(patient()).await;
    secure.running.service.make("launch", json!({"limit": 9})).await;
    let mut session = secure.session().await;
    let told = session.ask(claim("ann")).await.expect("an answer");
    assert_eq!((told.0, &told.json()["serial"]), (StatusCode::CREATED, &json!(1)));
    assert!(told.1.contains_key("strict-transport-security") && !told.1.contains_key("connection"), "{:?}", told.1);
    let (unknown, body) = claim("bob");
    let (mut head, ()) = unknown.into_parts();
    head.headers.insert("authorization", "Bearer nobody-0123456789-0123456789".parse().expect("a value"));
    let told = session.ask((Request::from_parts(head, ()), body)).await.expect("an answer");
    assert_eq!((told.0, &told.json()["code"]), (StatusCode::UNAUTHORIZED, &json!("unauthorized")));
    for (offer, chosen) in [(&[&b"http/1.1"[..]][..], Some(&b"http/1.1"[..])), (&[], None)] {
        let mut stream = secure.connect(offer).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("sent");
        let mut answer = vec![0; 12];
        soon(stream.read_exact(&mut answer)).await.expect("an answer");
        assert_eq!(answer, b"HTTP/1.1 200");
    }
}

#[tokio::test]
async fn a_hundred_requests_at_once_on_one_connection_are_each_answered() {
    let secure = Secure::start(patient()).await;
    secure.running.service.make("launch", json!({"limit": 60})).await;
    let mut session = secure.session().await;
    let mut begun = Vec::new();
    for number in 0..100 {
        let (request, body) = claim(&format!("user{number}"));
        begun.push(session.begin(request, Some(body)).await.expect("it is begun"));
    }
    let (mut serials, mut refused) = (Vec::new(), 0);
    for (answer, _stream) in begun {
        let told = whole(answer).await.expect("an answer");
        match told.0 {
            StatusCode::CREATED => serials.push(told.json()["serial"].as_u64().expect("a number")),
            status => {
                assert_eq!((status, &told.json()["code"]), (StatusCode::CONFLICT, &json!("sold_out")));
                refused += 1;
            }
        }
    }
    serials.sort_unstable();
    assert_eq!((serials, refused), ((1..=60).collect::<Vec<_>>(), 40));
}

#[tokio::test]
async fn a_stream_of_events_goes_on_beside_other_requests() {
    let secure = Secure::start(patient()).await;
    let service = &secure.running.service;
    service.make_room("sale", json!({"max_active": 1})).await;
    let first = service.ticket("sale").await;
    service.admitted("sale", &first).await;
    let ticket = service.ticket("sale").await;
    let mut session = secure.session().await;
    let events = request(Method::GET, &format!("/v1/rooms/sale/tickets/{ticket}/events"), None);
    let (answer, _stream) = session.begin(events, Some(Bytes::new())).await.expect("it is begun");
    let (head, mut body) = soon(answer).await.expect("an answer").into_parts();
    assert_eq!((head.status, head.headers["content-type"].as_bytes()), (StatusCode::OK, &b"text/event-stream"[..]));
    let event = soon(body.data()).await.expect("an event").expect("no reset");
    assert!(event.starts_with(b"event: place"), "{event:?}");
    for _ in 0..20 {
        assert_eq!(session.get(&format!("/v1/rooms/sale/tickets/{ticket}")).await.json()["state"], "waiting");
    }
    drop(body);
    assert_eq!(session.get("/healthz").await.0, StatusCode::OK, "the connection goes on without the stream");
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection_and_harms_no_other() {
    in_time(async {
        let secure = Secure::start(patient()).await;
        secure.running.service.make("launch", json!({"limit": 9})).await;
        let mut other = secure.session().await;
        let mut session = secure.session().await;
        let mut sent = 0;
        for number in 0..10_000 {
            let (request, _) = claim(&format!("user{number}"));
            let Ok((_answer, mut stream)) = session.begin(request, None).await else { break };
            // The head leaves before the reset.
            tokio::task::yield_now().await;
            stream.send_reset(Reason::CANCEL);
            sent += 1;
        }
        assert!(sent < 10_000, "the service took all resets");
        assert!(session.went_away().await.is_some(), "the end is told");
        assert_eq!(other.ask(claim("ann")).await.expect("an answer").json()["serial"], 1);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_gives_up_most_requests_while_they_wait_is_cut_off() {
    in_time(async {
        let secure = Secure::start(patient()).await;
        let mut other = secure.session().await;
        assert_eq!(other.ask(acquire("door")).await.expect("an answer").0, StatusCode::OK);
        let mut session = secure.session().await;
        let waiting = async |other: &mut Session| {
            let told = other.ask((request(Method::GET, "/v1/locks/door", Some(SERVICE)), Bytes::new())).await;
            told.expect("an answer").json()["waiters"].as_u64().expect("a number")
        };
        for round in 0..3 {
            let mut begun = Vec::new();
            for _ in 0..90 {
                let (request, body) = acquire("door");
                let one = session.begin(request, Some(body)).await;
                begun.push(one.unwrap_or_else(|error| panic!("round {round}: {error}")));
            }
            let mut seen = 0;
            while seen != 90 {
                seen = waiting(&mut other).await;
            }
            for (_, stream) in &mut begun {
                stream.send_reset(Reason::CANCEL);
            }
            while waiting(&mut other).await != 0 {}
        }
        assert!(session.went_away().await.is_some(), "270 requests were given up");
    })
    .await;
}

#[tokio::test]
async fn a_body_that_does_not_come_ends_its_request_alone() {
    let secure = Secure::start(Limits { body: Duration::from_millis(300), ..patient() }).await;
    secure.running.service.make("launch", json!({"limit": 9})).await;
    let mut session = secure.session().await;
    let (slow, _) = claim("slow");
    let (answer, mut stream) = session.begin(slow, None).await.expect("it is begun");
    stream.send_data(Bytes::from_static(b"{\"us"), false).expect("sent");
    assert_eq!(session.ask(claim("ann")).await.expect("an answer").json()["serial"], 1);
    let told = whole(answer).await.expect("an answer");
    assert_eq!((told.0, &told.json()["code"]), (StatusCode::REQUEST_TIMEOUT, &json!("request_timeout")));
    assert_eq!(session.ask(claim("bob")).await.expect("an answer").json()["serial"], 2);
}

#[tokio::test]
async fn an_answer_that_its_peer_makes_no_room_for_is_reset_and_the_connection_goes_on() {
    let secure = Secure::start(Limits { write: Duration::from_secs(1), ..patient() }).await;
    let mut session = secure.session_of(Builder::new().initial_window_size(10)).await;
    let document = request(Method::GET, "/openapi.json", None);
    let (answer, _stream) = session.begin(document, Some(Bytes::new())).await.expect("it is begun");
    let mut body = soon(answer).await.expect("a head").into_body();
    let error = loop {
        match soon(body.data()).await.expect("no whole body") {
            // It gives no room back.
            Ok(piece) => assert!(piece.len() <= 10),
            Err(error) => break error,
        }
    };
    assert!(error.is_reset() && error.is_remote(), "{error}");
    assert_eq!(session.get("/healthz").await.2, "ok\n");
}

#[tokio::test]
async fn a_stop_lets_requests_under_way_end_and_resets_nothing() {
    let mut secure = Secure::start(patient()).await;
    secure.running.service.make("launch", json!({"limit": 9})).await;
    let mut session = secure.session().await;
    let (request, body) = claim("ann");
    let (answer, mut stream) = session.begin(request, None).await.expect("it is begun");
    stream.send_data(body.slice(..3), false).expect("sent");
    assert_eq!(session.get("/healthz").await.0, StatusCode::OK, "the service has the first request");
    secure.running.service.app.begin_drain();
    secure.running.begin_stop();
    until(async || secure.running.is_deaf().await).await;
    stream.send_data(body.slice(3..), true).expect("sent");
    assert_eq!(whole(answer).await.expect("an answer").json()["serial"], 1);
    assert_eq!(session.went_away().await, Some(Reason::NO_ERROR));
    secure.running.stopped().await;
}

#[tokio::test]
async fn an_idle_connection_is_told_to_go_and_pings_do_not_prolong_it() {
    let secure = Secure::start(Limits { idle: Duration::from_secs(1), ..patient() }).await;
    let stream = secure.connect(&[b"h2"]).await;
    let (send, mut connection) = soon(Builder::new().handshake::<_, Bytes>(stream)).await.expect("a session");
    let mut pings = connection.ping_pong().expect("pings");
    let mut session = Session { send, ended: tokio::spawn(connection) };
    assert_eq!(session.get("/healthz").await.0, StatusCode::OK);
    let pinging = tokio::spawn(async move { while pings.ping(h2::Ping::opaque()).await.is_ok() {} });
    assert_eq!(session.went_away().await, Some(Reason::NO_ERROR));
    soon(pinging).await.expect("no panic");
}

/// The reason of the GOAWAY among these frames.
fn goaway(mut frames: &[u8]) -> Option<u32> {
    while let Some((head, rest)) = frames.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        if head[3] == 7 {
            return Some(u32::from_be_bytes(payload.get(4..8)?.try_into().ok()?));
        }
        frames = rest;
    }
    None
}

#[tokio::test]
async fn a_head_that_never_ends_or_is_too_long_is_refused() {
    let secure = Secure::start(patient()).await;
    let mut session = secure.session().await;
    let (mut head, ()) = request(Method::GET, "/healthz", None).into_parts();
    for number in 0..40 {
        let name = format!("x-{number}").parse::<hyper::header::HeaderName>().expect("a name");
        head.headers.insert(name, "a".repeat(1_000).parse().expect("a value"));
    }
    let told = session.ask((Request::from_parts(head, ()), Bytes::new())).await;
    assert!(told.as_ref().map_or(true, |told| told.0 == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));

    let frame = |length: usize, kind: u8, flags: u8, stream: u32| {
        let length = (length as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat()
    };
    let mut raw = secure.connect(&[b"h2"]).await;
    raw.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    raw.write_all(&frame(0, 4, 0, 0)).await.expect("sent");
    raw.write_all(&frame(1, 1, 0, 1)).await.expect("sent");
    // `:method GET`, and then one small header in each continuation.
    raw.write_all(&[0x82]).await.expect("sent");
    let literal = b"\x00\x01a\x01b";
    let continuation = [frame(literal.len(), 9, 0, 1), literal.to_vec()].concat();
    for _ in 0..10_000 {
        // The service may have closed.
        if raw.write_all(&continuation).await.is_err() {
            break;
        }
    }
    let mut told = Vec::new();
    // A close without a word of TLS is an end too.
    let _ = soon(raw.read_to_end(&mut told)).await;
    assert_eq!(goaway(&told), Some(u32::from(Reason::ENHANCE_YOUR_CALM)), "{told:?}");
    assert_eq!(secure.session().await.get("/healthz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_client_has_no_more_requests_under_way_than_it_may_have_connections() {
    let few = Limits { connections_per_address: std::num::NonZeroUsize::new(3), ..patient() };
    let secure = Secure::start(few).await;
    let mut session = secure.session().await;
    assert_eq!(session.ask(acquire("door")).await.expect("an answer").0, StatusCode::OK);
    let mut begun = Vec::new();
    for _ in 0..3 {
        let (request, body) = acquire("door");
        begun.push(session.begin(request, Some(body)).await.expect("it is begun"));
    }
    let told = session.ask(acquire("door")).await.expect("an answer");
    assert_eq!((told.0, &told.json()["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limited")));
    let told = secure.running.service.send(Ask::get("/v1/locks/door").by(ADMIN)).await.is(200).json();
    assert_eq!(told["waiters"], 3);
}
