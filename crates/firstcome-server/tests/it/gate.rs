//! A site behind the gate: over real connections, with a site that shows what it received.

mod grace;
mod hostile;

use crate::room::release;
use crate::running::{Peer, patient, soon, until};
use crate::service::{ADMIN, Answer, Ask, Service, config};
use firstcome::core::id::RoomName;
use firstcome_server::gate::{GateConfig, PathRules, serve_gate};
use firstcome_server::rate::RateLimit;
use firstcome_server::{App, Config, Limits, api};
use serde_json::json;
use socket2::SockRef;
use std::net::{Shutdown, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// A site. It answers each request with the head that it received.
struct Site {
    address: SocketAddr,
    /// How many requests it has received.
    requests: AtomicUsize,
    /// How many bodies of requests to `/early` it has received whole, each after its answer.
    uploads: AtomicUsize,
    /// Lets an answer to `/held` go.
    let_go: Semaphore,
}

impl Site {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let site = Arc::new(Self {
            address,
            requests: AtomicUsize::new(0),
            uploads: AtomicUsize::new(0),
            let_go: Semaphore::new(0),
        });
        let serving = Arc::clone(&site);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&serving).serve(stream));
            }
        });
        site
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await.ok()? == 0 {
                    return None;
                }
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            match head.split(' ').nth(1)? {
                "/silent" => return None,
                "/endless" => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await.ok()?;
                    while stream.write_all(&[0; 65_536]).await.is_ok() {}
                    return None;
                }
                "/held" => self.let_go.acquire().await.ok()?.forget(),
                "/socket" => {
                    stream
                        .write_all(
                            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
                        )
                        .await
                        .ok()?;
                    let mut bytes = [0; 64];
                    loop {
                        let count = stream.read(&mut bytes).await.ok().filter(|&count| 0 < count)?;
                        stream.write_all(&bytes[..count]).await.ok()?;
                    }
                }
                "/stream" => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.ok()?;
                    // Sends each chunk back as it comes, up to the last one, which is empty.
                    let mut line = String::new();
                    while !line.ends_with("0\r\n\r\n") {
                        let from = line.len();
                        stream.read_line(&mut line).await.ok().filter(|&count| 0 < count)?;
                        let echoed = line[from..].to_owned();
                        stream.write_all(echoed.as_bytes()).await.ok()?;
                    }
                    return Some(());
                }
                "/early" => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nx-site: 1\r\ncontent-length: 5\r\n\r\nearly").await.ok()?;
                    let length =
                        head.to_ascii_lowercase().split_once("content-length: ")?.1.lines().next()?.parse().ok()?;
                    stream.read_exact(&mut vec![0; length]).await.ok()?;
                    self.uploads.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                _ => {}
            }
            let shown = head.to_ascii_lowercase();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-site: 1\r\nconnection: keep-alive\r\ncontent-length: {}\r\n\r\n{shown}",
                shown.len()
            );
            stream.write_all(answer.as_bytes()).await.ok()?;
        }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// A gate that listens.
struct Gate {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Gate {
    /// Opens a gate of this service before all paths but two. `upstream` is where it looks for the site.
    async fn open(app: &Arc<App>, upstream: SocketAddr) -> Self {
        Self::before(app, upstream, &[], &["/robots.txt", "/about/*"]).await
    }

    /// Opens a gate before these paths, with these exceptions.
    async fn before(app: &Arc<App>, upstream: SocketAddr, gated: &[&str], open: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::on(listener, app, upstream, [gated, open])
    }

    /// Opens a gate on this listener.
    fn on(listener: TcpListener, app: &Arc<App>, upstream: SocketAddr, [gated, open]: [&[&str]; 2]) -> Self {
        let address = listener.local_addr().expect("an address");
        let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a rule")).collect();
        let gate = GateConfig {
            room: RoomName::parse("sale").expect("a name"),
            upstream: format!("http://{upstream}").parse().expect("an address"),
            paths: PathRules { gated: rules(gated), open: rules(open) },
            slow_after: Some(Duration::from_secs(60)),
        };
        let (stop, stopped) = oneshot::channel();
        let (app, router) = (Arc::clone(app), api::router(Arc::clone(app)));
        let served = tokio::spawn(serve_gate(None, listener, app, router, gate, async { drop(stopped.await) }));
        Self { address, stop: Some(stop), served }
    }

    async fn connect(&self) -> Peer {
        Peer::over(soon(TcpStream::connect(self.address)).await.expect("it listens"))
    }

    /// One request, with these headers.
    async fn ask(&self, line: &str, headers: &str) -> Answer {
        let mut peer = self.connect().await;
        peer.send(format!("{line} HTTP/1.1\r\nhost: shop.example\r\n{headers}\r\n")).await;
        peer.answer().await
    }
}

/// A gate before a site.
struct Entrance {
    service: Service,
    site: Arc<Site>,
    gate: Gate,
}

impl Entrance {
    async fn open() -> Self {
        let site = Site::start().await;
        let address = site.address;
        Self::with(site, address, Config { limits: patient(), ..config() }).await
    }

    /// `upstream` is where the gate looks for the site.
    async fn with(site: Arc<Site>, upstream: SocketAddr, config: Config) -> Self {
        Self::over(site, upstream, Service::memory_with(config)).await
    }

    async fn over(site: Arc<Site>, upstream: SocketAddr, service: Service) -> Self {
        service.make_room("sale", json!({"max_active": 9})).await;
        let gate = Gate::open(&service.app, upstream).await;
        Self { service, site, gate }
    }

    async fn connect(&self) -> Peer {
        self.gate.connect().await
    }

    /// One request, with these headers.
    async fn ask(&self, line: &str, headers: &str) -> Answer {
        self.gate.ask(line, headers).await
    }
}

/// The head that the site received.
#[track_caller]
fn received(answer: &Answer) -> String {
    assert_eq!((answer.status, answer.header("x-site")), (200, Some("1")), "{}", answer.body());
    answer.body()
}

pub(crate) async fn only_a_visitor_with_a_pass_reaches_the_site() {
    let door = Entrance::open().await;
    let pass = door.service.pass("sale").await;
    let last = if pass.ends_with('A') { "B" } else { "A" };
    let forged = format!("cookie: firstcome_pass={}{last}\r\n", &pass[..pass.len() - 1]);
    let words = "x-firstcome-number: 1\r\nx-forwarded-uri: /y\r\n";
    for headers in ["", "cookie: firstcome_pass=x\r\n", &forged, words] {
        for line in ["GET /cart?x=1", "POST /cart?x=1", "GET /./cart?x=1", "GET http://shop.example/cart?x=1"] {
            let page = door.ask(line, headers).await.is(503);
            let wanted = if line.starts_with("POST") { "back=%2F\"" } else { "cart%3Fx%3D1\"" };
            assert!(page.body().contains(wanted), "{line} {headers}: {}", page.body());
        }
    }
    // Back to no other site, however the page is asked for.
    // No program takes the page for the answer of the site.
    let accept = "accept: application/json, text/plain, */*\r\n";
    door.ask("POST /cart", accept).await.refused(401, "no_pass");
    assert!(!door.ask("GET //evil.example/cart", "").await.is(503).body().contains("evil"));
    assert_eq!(door.site.requests(), 0);
    let headers =
        format!("cookie: a=b; firstcome_pass={pass}\r\nx-firstcome-number: 7\r\nconnection: x-hop\r\nx-hop: 1\r\n");
    let head = received(&door.ask("POST /cart?x=1", &headers).await);
    assert!(head.starts_with("post /cart?x=1 http/1.1\r\n"), "{head}");
    for line in [
        "host: shop.example",
        "cookie: a=b",
        "x-firstcome-number: 1",
        "x-forwarded-for: 127.0.0.1",
        "via: 1.1 firstcome",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    assert!(head.contains("x-firstcome-admission: ") && !head.contains(&pass.to_ascii_lowercase()), "{head}");
    assert!(!head.contains("x-hop"), "{head}");
    let named = format!("cookie: firstcome_pass={}\r\n", door.service.pass_of("sale", "ann").await);
    let head = received(&door.ask("GET /", &named).await);
    assert!(head.contains("\r\nx-firstcome-user: ann\r\n"), "{head}");
    // The slot is over, and with it the way in.
    door.service.send(release("sale", &pass)).await.is(204);
    door.ask("GET /cart", &headers).await.is(503);
    assert_eq!(door.site.requests(), 2);
    let metrics = door.service.metrics().await;
    for line in ["{outcome=\"passed\"} 2", "{outcome=\"shown\"} 19", "{outcome=\"failed\"} 0"] {
        assert!(metrics.contains(&format!("firstcome_gate_requests_total{line}\n")), "{line}");
    }
}

pub(crate) async fn a_visitor_joins_at_the_gate_and_comes_back_to_the_wanted_page() {
    let door = Entrance::open().await;
    let page = door.ask("GET /cart?x=1", "").await.is(503);
    let action = "/.firstcome/rooms/sale/join?back=%2Fcart%3Fx%3D1";
    assert!(page.body().contains(&format!("action=\"{action}\"")), "{}", page.body());
    let cookies = |answer: &Answer| {
        let lines =
            answer.headers.get_all("set-cookie").iter().filter_map(|line| line.to_str().ok()?.split(';').next());
        lines.map(|pair| format!("cookie: {pair}\r\n")).collect::<String>()
    };
    let joined = door.ask(&format!("POST {action}"), "").await.is(303);
    let (next, place) = (joined.header("location").expect("a page").to_owned(), cookies(&joined));
    door.service.tick().await;
    let page = door.ask(&format!("GET {next}"), &place).await.is(200);
    assert!(page.body().contains("href=\"/cart?x=1\""), "{}", page.body());
    received(&door.ask("GET /cart?x=1", &cookies(&page)).await);
    // A visitor cannot make the page take itself for the place of another one.
    let claimed = format!("{place}x-forwarded-uri: /cart\r\n");
    door.ask("GET /.firstcome/rooms/sale", &claimed).await.is(200);
    for path in [
        "/assets/room.css?0.1.0",
        "/assets/room.js?0.1.0",
        "/assets/room.work.js",
        "/rooms/sale/place.svg",
        "/healthz",
        "/readyz",
    ] {
        door.ask(&format!("GET /.firstcome{path}"), &place).await.is(200);
    }
    // The gate shows visitors the room, and nothing else of the service.
    for path in [
        "/",
        "/v1/rooms/sale",
        "/metrics",
        "/docs",
        "/rooms/sales",
        "/rooms/other",
        "//rooms/sale",
        "/rooms/sale/../../metrics",
    ] {
        door.ask(&format!("GET /.firstcome{path}"), "accept: application/json\r\n").await.refused(404, "not_found");
    }
    assert_eq!(door.site.requests(), 1);
}

pub(crate) async fn paths_that_need_no_pass_reach_the_site() {
    let door = Entrance::open().await;
    let head = received(
        &door.ask("GET /about/us?x", "cookie: firstcome_ticket_sale=2.A~3\r\nx-firstcome-number: 1\r\n").await,
    );
    assert!(!head.contains("firstcome_") && !head.contains("x-firstcome"), "{head}");
    received(&door.ask("PUT /robots.txt", "").await);
    for line in ["GET /about/../cart", "GET /about/%2e%2e/cart", "GET /robots.txt/x", "GET /.firstcome", "OPTIONS *"] {
        door.ask(line, "").await.is(503);
    }
    assert_eq!(door.site.requests(), 2);
}

pub(crate) async fn bodies_stream_both_ways() {
    let door = Entrance::open().await;
    let pass = door.service.pass("sale").await;
    for method in ["POST", "GET"] {
        stream_both_ways(&door, method, &pass).await;
    }
}

async fn stream_both_ways(door: &Entrance, method: &str, pass: &str) {
    let mut stream = soon(TcpStream::connect(door.gate.address)).await.expect("it listens");
    let head = format!(
        "{method} /stream HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncookie: firstcome_pass={pass}\r\n\r\n"
    );
    soon(stream.write_all(head.as_bytes())).await.expect("it is sent");
    let mut read = String::new();
    // Each part comes back before the next one leaves.
    for part in ["one", "two", "three"] {
        soon(stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes())).await.expect("it is sent");
        let mut bytes = [0; 1_024];
        while !read.contains(part) {
            let count = soon(stream.read(&mut bytes)).await.expect("it is answered");
            assert!(0 < count, "{read}");
            read.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
    soon(stream.write_all(b"0\r\n\r\n")).await.expect("it is sent");
    let mut rest = Vec::new();
    soon(async {
        while !rest.ends_with(b"0\r\n\r\n") {
            let count = stream.read_buf(&mut rest).await.expect("it ends well");
            assert!(0 < count, "the answer broke off");
        }
    })
    .await;
}

pub(crate) async fn a_connection_changes_its_protocol() {
    let door = Entrance::open().await;
    let upgrade = "connection: Upgrade\r\nupgrade: WebSocket\r\n";
    door.ask("GET /socket", upgrade).await.is(503);
    let pass = door.service.pass("sale").await;
    let mut peer = door.connect().await;
    peer.send(format!("GET /socket HTTP/1.1\r\nhost: x\r\n{upgrade}cookie: firstcome_pass={pass}\r\n\r\n")).await;
    let answer = peer.answer().await.is(101);
    assert_eq!((answer.header("connection"), answer.header("upgrade")), (Some("upgrade"), Some("websocket")));
    for word in [&b"\x81\x02hi"[..], b"\r\n\r\n", b"bye"] {
        peer.send(word).await;
        let mut echoed = vec![0; word.len()];
        soon(peer.stream.read_exact(&mut echoed)).await.expect("it is echoed");
        assert_eq!(echoed, word);
    }
    // In HTTP/2 the gate would see no further request.
    let other = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n";
    let head = received(&door.ask("GET /", &format!("{other}cookie: firstcome_pass={pass}\r\n")).await);
    assert!(!head.contains("upgrade") && !head.contains("http2"), "{head}");
}

pub(crate) async fn a_site_that_is_away_is_told_apart_from_one_that_is_silent() {
    let door = Entrance::open().await;
    let pass = door.service.pass("sale").await;
    let headers = format!("cookie: firstcome_pass={pass}\r\naccept: application/json\r\n");
    door.ask("POST /silent", &headers).await.refused(504, "upstream_silent");
    assert_eq!(door.site.requests(), 1, "it is not asked again");
    let page = door.ask("POST /silent", &headers.replace("application/json", "text/html")).await.is(504);
    assert!(page.body().contains("upstream_silent"), "{}", page.body());
    // A port that no site listens to.
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("an address");
    let away = Entrance::with(Site::start().await, closed, Config { limits: patient(), ..config() }).await;
    let pass = away.service.pass("sale").await;
    let headers = format!("cookie: firstcome_pass={pass}\r\naccept: application/json\r\n");
    away.ask("GET /", &headers).await.refused(502, "upstream_unreachable");
}

pub(crate) async fn a_site_that_fails_at_the_gate_gets_fewer_visitors() {
    // A port that no site listens to.
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("an address");
    let away = Entrance::with(Site::start().await, closed, Config { limits: patient(), ..config() }).await;
    // A report is made of the answers of five seconds.
    until(async || {
        away.ask("GET /about/us", "").await;
        let room = away.service.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await.is(200).json();
        room["pace"]["origin_share"].as_f64().is_some_and(|share| share < 1.0)
    })
    .await;
}

pub(crate) async fn what_is_under_way_ends_before_the_gate_stops() {
    let mut door = Entrance::open().await;
    let pass = door.service.pass("sale").await;
    let mut peer = door.connect().await;
    peer.send(format!("GET /held HTTP/1.1\r\nhost: x\r\ncookie: firstcome_pass={pass}\r\n\r\n")).await;
    until(async || door.site.requests() == 1).await;
    let mut idle = door.connect().await;
    drop(door.gate.stop.take());
    assert!(idle.closed().await.is_empty());
    assert!(!door.gate.served.is_finished());
    door.site.let_go.add_permits(1);
    received(&peer.answer().await);
    soon(&mut door.gate.served).await.expect("the gate does not panic");
}

pub(crate) async fn the_gate_limits_those_whom_it_does_not_let_in() {
    let site = Site::start().await;
    let address = site.address;
    let calls = Some(RateLimit::per_minute(NonZeroU32::MIN));
    let limits = Limits { connections_max: 2, ..patient() };
    let door = Entrance::with(site, address, Config { calls, limits, ..config() }).await;
    let pass = door.service.pass("sale").await;
    door.ask("GET /cart", "").await.is(503);
    door.ask("GET /cart", "accept: application/json\r\n").await.refused(429, "rate_limited");
    // Who has a pass is not slowed down.
    for _ in 0..3 {
        received(&door.ask("GET /cart", &format!("cookie: firstcome_pass={pass}\r\n")).await);
    }
    // Both places are taken, as soon as the connections before have ended.
    let mut held = Vec::new();
    until(async || {
        let mut peer = door.connect().await;
        peer.send("GET /robots.txt HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let answer = peer.answer().await;
        let is_full = answer.status == 503;
        // The begin of a head: an idle connection would make room after a second.
        peer.send("GET /").await;
        held.push(peer);
        is_full
    })
    .await;
    assert!((3..=4).contains(&held.len()), "{}", held.len());
}

/// A gate whose limits are these.
async fn limited(limits: Limits) -> Entrance {
    let site = Site::start().await;
    let address = site.address;
    Entrance::with(site, address, Config { limits, ..config() }).await
}

pub(crate) async fn an_address_holds_no_more_connections_than_it_may() {
    let door = limited(Limits { connections_per_address: NonZeroUsize::new(2), ..patient() }).await;
    let pass = door.service.pass("sale").await;
    let mut asks = door.connect().await;
    asks.send("GET /robots.txt HTTP/1.1\r\nhost: x\r\n").await;
    let mut streams = door.connect().await;
    let headers = format!("host: x\r\ncookie: firstcome_pass={pass}\r\ntransfer-encoding: chunked");
    streams.send(format!("POST /stream HTTP/1.1\r\n{headers}\r\n\r\n2\r\nab\r\n")).await;
    until(async || door.site.requests() == 1).await;
    // Neither is idle, however long the server looks: a head has begun, and an answer is not whole.
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..16 {
        ticks.tick().await;
        door.ask("GET /robots.txt", "accept: application/json\r\n").await.refused(429, "rate_limited");
    }
    asks.send("\r\n").await;
    received(&asks.answer().await);
    streams.send("0\r\n\r\n").await;
    streams.answer().await.is(200);
    drop((asks, streams));
    until(async || door.ask("GET /robots.txt", "").await.status == 200).await;
}

pub(crate) async fn a_visitor_who_takes_nothing_of_an_answer_loses_the_connection() {
    let write = Duration::from_millis(200);
    let door = limited(Limits { write, ..patient() }).await;
    let pass = door.service.pass("sale").await;
    let headers = format!("host: x\r\ncookie: firstcome_pass={pass}\r\n\r\n");
    let mut peer = door.connect().await;
    peer.send(format!("GET /endless HTTP/1.1\r\n{headers}")).await;
    // A site that says nothing for long is no visitor who takes nothing.
    let mut other = door.connect().await;
    other.send(format!("GET /held HTTP/1.1\r\n{headers}")).await;
    let overdue = "firstcome_connections_overdue_total 1\n";
    until(async || door.service.metrics().await.contains(overdue)).await;
    door.site.let_go.add_permits(1);
    received(&other.answer().await);
    drop(peer);
}

pub(crate) async fn an_upload_that_the_gate_refuses_is_told_whether_the_connection_goes_on() {
    let door = Entrance::open().await;
    let head = |length: u64| format!("POST /cart HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    // The body does not come, or it is too long to be read in vain.
    for length in [1_000, 1_000_000_000] {
        let mut peer = door.connect().await;
        peer.send(head(length)).await;
        let answer = peer.answer().await.is(503);
        assert_eq!(answer.header("connection"), Some("close"), "{length}");
        // What is still sent is taken: no reset throws the answer away.
        peer.send(&[0; 500]).await;
        assert!(peer.closed().await.is_empty());
    }
    let mut peer = door.connect().await;
    peer.send([head(1_000).as_bytes(), &[0; 1_000]].concat()).await;
    peer.answer().await.is(503);
    peer.send("GET /robots.txt HTTP/1.1\r\nhost: x\r\n\r\n").await;
    received(&peer.answer().await);
    assert_eq!(door.site.requests(), 1);
}

#[tokio::test]
async fn a_gate_that_cannot_accept_ends_an_idle_connection() {
    let site = Site::start().await;
    let service = Service::memory_with(Config { limits: patient(), ..config() });
    service.make_room("sale", json!({"max_active": 9})).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("it is ours");
    let same = listener.try_clone().expect("a free descriptor");
    let listener = TcpListener::from_std(listener).expect("a runtime");
    let gate = Gate::on(listener, &service.app, site.address, [&[], &["/about/*"]]);
    let mut peer = gate.connect().await;
    peer.send("GET /about/us HTTP/1.1\r\nhost: shop.example\r\n\r\n").await;
    peer.answer().await.is(200);
    // From now on each `accept` fails, as it does without a free descriptor.
    SockRef::from(&same).shutdown(Shutdown::Both).expect("it listens");
    assert_eq!(soon(peer.stream.read(&mut [0; 16])).await.unwrap_or(0), 0, "the connection ends");
    let metrics = service.metrics().await;
    assert!(metrics.contains("firstcome_connections_made_room_total 1\n"), "it was ended to make room");
}

#[tokio::test]
async fn an_upload_that_the_site_answers_early_goes_on_to_its_end() {
    // Shorter than the upload takes: what still arrives is no head of a request. The other visitors find no place.
    let limits = Limits { head: Duration::from_secs(2), connections_max: 1, ..patient() };
    let door = limited(limits).await;
    let pass = door.service.pass("sale").await;
    let mut peer = door.connect().await;
    let pieces = 40;
    let headers = format!("host: x\r\ncookie: firstcome_pass={pass}\r\ncontent-length: {pieces}");
    peer.send(format!("POST /early HTTP/1.1\r\n{headers}\r\n\r\n")).await;
    assert_eq!(peer.answer().await.is(200).body(), "early");
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..pieces {
        ticks.tick().await;
        peer.send("x").await;
        door.ask("GET /robots.txt", "accept: application/json\r\n").await.refused(503, "overloaded");
    }
    until(async || door.site.uploads.load(Ordering::Relaxed) == 1).await;
    peer.send("GET /robots.txt HTTP/1.1\r\nhost: x\r\n\r\n").await;
    received(&peer.answer().await);
}
