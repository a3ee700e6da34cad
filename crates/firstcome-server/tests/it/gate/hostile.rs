//! Visitors who try to get past the gate, or to keep others from it. The site behind it must receive nothing that the gate has
//! not judged.

use super::{Entrance, Gate, Site, limited, received};
use crate::running::{Peer, patient, soon, until};
use crate::service::{Service, config};
use firstcome::edge::Stopwatch;
use firstcome_server::rate::RateLimit;
use firstcome_server::{Config, FailureLimits, Limits};
use parking_lot::Mutex;
use serde_json::json;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A request as a site receives it: the head in small letters, and the body as it is framed.
#[derive(Clone)]
struct Received {
    head: String,
    body: String,
}

/// A site that keeps what it receives.
#[derive(Clone)]
struct Recorder {
    address: SocketAddr,
    kept: Arc<Mutex<Vec<Received>>>,
}

impl Recorder {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let recorder = Self { address: listener.local_addr().expect("an address"), kept: Arc::default() };
        let serving = recorder.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        recorder
    }

    async fn serve(self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await.ok()? == 0 {
                    return None;
                }
            }
            let head = head.to_ascii_lowercase();
            let at = self.kept.lock().len();
            self.kept.lock().push(Received { head: head.clone(), body: String::new() });
            let mut body = String::new();
            if head.contains("transfer-encoding") {
                while !body.ends_with("0\r\n\r\n") {
                    stream.read_line(&mut body).await.ok().filter(|&count| 0 < count)?;
                }
            } else if let Some((_, length)) = head.split_once("content-length: ") {
                let length = length.split("\r\n").next()?.parse().ok()?;
                let mut bytes = vec![0; length];
                stream.read_exact(&mut bytes).await.ok()?;
                body = String::from_utf8_lossy(&bytes).into_owned();
            }
            self.kept.lock()[at].body = body;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
        }
    }

    /// What it has received since the last look.
    fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.kept.lock())
    }
}

/// A service with a room, and a gate before these paths of a recorder.
async fn recorded(gated: &[&str], open: &[&str]) -> (Service, Gate, Recorder) {
    let (recorder, service) = (Recorder::start().await, Service::memory_with(Config { limits: patient(), ..config() }));
    service.make_room("sale", json!({"max_active": 9})).await;
    let gate = Gate::before(&service.app, recorder.address, gated, open).await;
    (service, gate, recorder)
}

const SMUGGLED: &str = "GET /cart HTTP/1.1\r\nhost: x\r\n\r\n";

/// Sends bytes, and reads answers until the gate refuses one or ends the connection.
async fn statuses(gate: &Gate, bytes: &str) -> Vec<u16> {
    let (mut peer, mut statuses) = (gate.connect().await, Vec::new());
    peer.send(bytes).await;
    while let Some(answer) = peer.try_answer().await {
        statuses.push(answer.status);
        if answer.status != 200 {
            break;
        }
    }
    statuses
}

#[tokio::test]
async fn no_framing_of_a_body_carries_a_second_request_to_the_site() {
    let (_service, gate, site) = recorded(&[], &["/about/*"]).await;
    let chunk = "5\r\nhello\r\n0\r\n\r\n";
    let empty = "0\r\n\r\n";
    for (headers, body) in [
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n", empty),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n", empty),
        ("transfer-encoding: chunked\r\ncontent-length: 4\r\nconnection: content-length\r\n", chunk),
        ("transfer-encoding: chunked\r\nconnection: transfer-encoding\r\n", chunk),
        ("content-length: 5\r\nconnection: content-length\r\n", "hello"),
        ("content-length: 5\r\ncontent-length: 5\r\n", "hello"),
        ("content-length: 5\r\ncontent-length: 50\r\n", "hello"),
        ("content-length: 5, 50\r\n", "hello"),
        ("content-length: +5\r\n", "hello"),
        ("content-length: 0x5\r\n", "hello"),
        ("content_length: 50\r\ncontent-length: 5\r\n", "hello"),
        ("transfer_encoding: chunked\r\ncontent-length: 5\r\n", "hello"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", chunk),
        ("transfer-encoding: identity, chunked\r\n", chunk),
        ("transfer-encoding: xchunked\r\n", chunk),
        ("transfer-encoding: \u{b}chunked\r\n", chunk),
        ("transfer-encoding : chunked\r\n", chunk),
        ("transfer-encoding:\r\n chunked\r\n", chunk),
        (" transfer-encoding: chunked\r\n", chunk),
        ("x: y\r\n\ttransfer-encoding: chunked\r\ncontent-length: 5\r\n", "hello"),
        ("transfer-encoding: chunked\r\n", "5;a=b\r\nhello\r\n0;c\r\nx-firstcome-user: admin\r\n\r\n"),
        ("transfer-encoding: chunked\r\n", "5;a=\"\r\nhello\"\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\n", "5\nhello\n0\n\n"),
        ("transfer-encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ntrailer: x-firstcome-user\r\n", "0\r\nx-firstcome-user: admin\r\n\r\n"),
    ] {
        let row = format!("{headers}\r\n{body}");
        let told = soon(statuses(&gate, &format!("POST /about/us HTTP/1.1\r\nhost: x\r\n{row}{SMUGGLED}"))).await;
        assert!(told.iter().filter(|&&status| status == 200).count() <= 1, "{told:?} {row}");
        let kept = site.take();
        assert!(kept.len() <= 1, "{row}");
        for Received { head, body } in kept {
            assert!(head.starts_with("post /about/us http/1.1\r\n"), "{row}: {head}");
            let lengths = head.lines().filter(|line| line.starts_with("content-length") || line.contains("encoding"));
            assert_eq!(lengths.count(), 1, "{row}: {head}");
            assert!(!body.contains("cart") && !body.contains("firstcome") && !body.contains('='), "{row}: {body}");
        }
    }
    // A body that looks like a request is a body.
    let length = SMUGGLED.len();
    let told = statuses(
        &gate,
        &format!("GET /about/us HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}{SMUGGLED}"),
    )
    .await;
    assert_eq!(told, [200, 503]);
    let kept = site.take();
    assert!(kept.len() == 1 && kept[0].body == SMUGGLED, "{}", kept[0].head);
}

#[tokio::test]
async fn no_spelling_of_a_path_leads_past_the_gate() {
    let (_service, gate, site) = recorded(&["/checkout/*"], &["/checkout/terms"]).await;
    let ask = async |target: &str| {
        let mut peer = gate.connect().await;
        peer.send([b"GET ", target.as_bytes(), b" HTTP/1.1\r\nhost: x\r\n\r\n"].concat()).await;
        peer.try_answer().await.map(|answer| answer.status)
    };
    for target in [
        "/checkout",
        "/checkout/..%2f",
        "/checkout/..%2fcheckout",
        "/checkout/terms/..%2fpay",
        "/checkout/terms/../pay",
        "/checkout/terms/%2e%2e/pay",
        "/checkout/terms%2f..%2fpay",
        "/checkout/terms;/../pay",
        "/checkout/terms%00/pay",
        "/checkout/terms%2f",
        "/a/..%2fcheckout",
        "/a/%2e%2e/checkout",
        "/a/.%2e/checkout",
        "/a/%252e%252e/checkout",
        "/a/%252e%252e%252fcheckout",
        "/a/..;/checkout",
        "/a/../checkout",
        "/./checkout",
        "/.;/checkout",
        "//checkout",
        "///checkout",
        "/%2fcheckout",
        "/%5ccheckout",
        "/\\checkout",
        "\\checkout",
        "/%63heckout",
        "/%2563heckout",
        "/%25252563heckout",
        "/CHECKOUT",
        "/cHeCkOuT/pay",
        "/chec%E2%84%AAout",
        "/checkout;a=b",
        "/checkout%3ba=b",
        "/checkout%3fa",
        "/checkout%23a",
        "/checkout.",
        "/checkout..",
        "/checkout./pay",
        "/checkout%2e",
        "/checkout%20",
        "/checkout%09",
        "/checkout%00",
        "/checkout%0a",
        "/%00/checkout",
        "/checkout.json",
        "/checkout::$DATA",
        "/checkout%",
        "/checkou%74%",
        "/%c0%afcheckout",
        "/%u0063heckout",
        "http://shop.example/checkout",
        "HTTP://shop.example/checkout",
        "http://a:b@shop.example:81/checkout",
        "http://shop.example//checkout",
        "http://shop.example/a/../checkout",
        "https://shop.example/checkout",
        "ftp://shop.example/checkout",
        "http:/checkout",
        "checkout",
        "*",
    ] {
        let status = ask(target).await;
        assert!(matches!(status, None | Some(400 | 404 | 503)), "{status:?} for {target}");
        assert!(site.take().is_empty(), "{target}");
    }
    for target in ["/", "/about", "/checkouts", "http://shop.example/about", "/checkout/terms", "/a%20b", "/%C3%A9"] {
        assert_eq!(ask(target).await, Some(200), "{target}");
        assert_eq!(site.take().len(), 1, "{target}");
    }
}

#[tokio::test]
async fn a_visitor_writes_no_header_of_the_gate_and_hides_none() {
    let (service, gate, site) = recorded(&[], &["/about/*"]).await;
    let pass = service.pass_of("sale", "ann").await;
    let forged = "x-firstcome-number: 7\r\nX_Firstcome_Number: 7\r\nx.firstcome.number: 7\r\nX-FIRSTCOME-ADMISSION: 7\r\n\
        x-firstcome-user: eve\r\nx~firstcome~user: eve\r\nx-forwarded-for: 203.0.113.9\r\nx_forwarded_for: 203.0.113.9\r\n\
        x-forwarded-host: evil.example\r\nx-forwarded-proto: https\r\nx-forwarded-uri: /y\r\nx-forwarded-prefix: /y\r\n\
        forwarded: for=203.0.113.9\r\nx-real-ip: 203.0.113.9\r\nx-original-url: /checkout\r\nx-rewrite-url: /checkout\r\n\
        connection: close, x-firstcome-number, x-firstcome-admission, x-firstcome-user, x-firstcome-pass, host, \
        x-forwarded-for, cookie, via\r\nhost: evil.example\r\n";
    gate.ask("GET /cart", forged).await.is(503);
    assert!(site.take().is_empty());
    gate.ask("GET /cart", &format!("x-firstcome-pass: {pass}\r\n{forged}")).await.is(200);
    gate.ask("GET http://shop.example/about/us", forged).await.is(200);
    let [inside, open] = site.take().try_into().unwrap_or_else(|_| panic!("two requests"));
    let values = |head: &str, name: &str| -> Vec<String> {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).collect()
    };
    for (head, slot) in [(&inside.head, &["1", "ann"][..]), (&open.head, &[])] {
        assert_eq!(values(head, "host"), ["shop.example"]);
        assert_eq!(values(head, "x-forwarded-host"), ["shop.example"]);
        assert_eq!(
            (values(head, "x-forwarded-for"), values(head, "x-forwarded-proto")),
            (vec!["127.0.0.1".to_owned()], vec!["http".to_owned()])
        );
        assert_eq!(values(head, "via"), ["1.1 firstcome"]);
        assert_eq!([values(head, "x-firstcome-number"), values(head, "x-firstcome-user")].concat(), slot);
        for word in ["evil", "eve", "203.0.113.9", ": 7", "_", "/y", "url", "prefix", "pass"] {
            assert!(!head.contains(word), "{word} in {head}");
        }
    }
    // A pass that comes twice, or in two ways, is no choice for the site.
    gate.ask("GET /cart", &format!("x-firstcome-pass: {pass}\r\nx-firstcome-pass: x\r\n")).await.is(503);
    gate.ask("GET /cart", &format!("x-firstcome-pass: x\r\ncookie: firstcome_pass={pass}\r\n")).await.is(503);
    gate.ask("GET /cart", &format!("cookie: firstcome_pass=x; firstcome_pass={pass}\r\n")).await.is(503);
    assert!(site.take().is_empty());
}

#[tokio::test]
async fn a_change_of_protocol_that_the_site_refuses_opens_no_way_past_the_gate() {
    let door = Entrance::open().await;
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 0\r\n";
    let told = statuses(&door.gate, &format!("GET /about/us HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n{SMUGGLED}")).await;
    assert_eq!(told, [200, 503]);
    // HTTP/2 without a word before, and HTTP/0.9.
    for bytes in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "GET /cart\r\n\r\n", "GET /about/us\r\n\r\n"]
    {
        let told = statuses(&door.gate, bytes).await;
        assert!(told.is_empty() || told == [400], "{told:?} {bytes}");
    }
    assert_eq!(door.site.requests(), 1);
}

#[tokio::test]
async fn a_head_is_forwarded_whole_or_not_at_all() {
    let door = Entrance::open().await;
    let cookie = format!("cookie: a={}\r\n", "x".repeat(30 * 1_024));
    assert!(received(&door.ask("GET /about/us", &cookie).await).contains(&"x".repeat(30 * 1_024)));
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    let cookies = "cookie: a=b; firstcome_pass=x\r\n".repeat(2_000);
    for headers in [cookie.repeat(2), many, cookies] {
        let told = statuses(&door.gate, &format!("GET /about/us HTTP/1.1\r\nhost: x\r\n{headers}\r\n")).await;
        assert!(told.is_empty() || told == [431], "{told:?}");
    }
    assert_eq!(door.site.requests(), 1);
}

#[tokio::test]
async fn a_text_in_place_of_a_pass_counts_before_the_store_is_asked() {
    let (site, calls) = (Site::start().await, Some(RateLimit::per_minute(NonZeroU32::MIN)));
    let address = site.address;
    let door = Entrance::with(site, address, Config { calls, limits: patient(), ..config() }).await;
    let pass = door.service.pass("sale").await;
    let headers = |pass: &str| format!("accept: application/json\r\ncookie: firstcome_pass={pass}\r\n");
    // The text counts, and so does the page that would be shown.
    door.ask("GET /cart", &headers(&pass[1..])).await.refused(429, "rate_limited");
    received(&door.ask("GET /cart", &headers(&pass)).await);
}

#[tokio::test]
async fn tickets_that_the_room_never_gave_out_are_failed_authentications_at_the_gate_too() {
    let site = Site::start().await;
    let limit = RateLimit { per_minute: NonZeroU32::MIN, burst: NonZeroU32::new(2).expect("not zero") };
    let failures = FailureLimits { address: Some(limit), network: None, total: None };
    let address = site.address;
    let door = Entrance::with(site, address, Config { calls: None, failures, limits: patient(), ..config() }).await;
    let receipt = async || door.ask("GET /.firstcome/rooms/sale/receipt", "accept: application/json\r\n").await;
    for _ in 0..2 {
        receipt().await.is(404);
    }
    receipt().await.refused(429, "rate_limited");
    let counted = "firstcome_authentication_failures_total{credential=\"ticket\"} 3\n";
    assert!(door.service.metrics().await.contains(counted), "{}", door.service.metrics().await);
}

const LIMIT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_head_that_comes_slowly_and_a_connection_that_says_nothing_are_ended() {
    let door = limited(Limits { head: LIMIT, ..patient() }).await;
    let (mut stuck, mut silent) = (door.connect().await, door.connect().await);
    stuck.send("GET /cart HTTP/1.1\r\nhost:").await;
    assert!(stuck.closed().await.is_empty() && silent.closed().await.is_empty());
    assert!(door.service.metrics().await.contains("firstcome_connections_overdue_total 2\n"));
    // A visitor without a pass sends the body of an upload in vain, however slowly.
    let mut slow = door.connect().await;
    slow.send("POST /cart HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n").await;
    assert_eq!(slow.answer().await.is(503).header("connection"), Some("close"));
    assert_eq!(door.site.requests(), 0);
}

#[tokio::test]
async fn a_visitor_who_takes_nothing_of_the_pages_of_the_gate_is_cut_off_sooner_than_one_of_the_site() {
    let write = Duration::from_secs(2);
    let door = limited(Limits { write, ..patient() }).await;
    let pass = door.service.pass("sale").await;
    let mut of_site = door.connect().await;
    of_site.send(format!("GET /endless HTTP/1.1\r\nhost: x\r\ncookie: firstcome_pass={pass}\r\n\r\n")).await;
    let (_read, mut sends) = door.connect().await.stream.into_split();
    let watch = Stopwatch::start();
    let asks = async { drop(sends.write_all("GET /cart HTTP/1.1\r\nhost: x\r\n\r\n".repeat(3_000).as_bytes()).await) };
    let overdue = async |count: usize| {
        let line = format!("firstcome_connections_overdue_total {count}\n");
        until(async || door.service.metrics().await.contains(&line)).await;
        watch.elapsed()
    };
    let (_, pages) = tokio::join!(asks, overdue(1));
    // Before one of the site could be cut off, also on a busy machine.
    assert!(pages < 6 * write, "{pages:?}");
    assert!(6 * write <= overdue(2).await);
    drop(of_site);
}

#[tokio::test]
async fn one_address_with_many_idle_connections_keeps_no_other_visitor_out() {
    let connections_per_address = NonZeroUsize::new(100);
    let door = limited(Limits { connections_max: 400, connections_per_address, ..patient() }).await;
    let mut idle = Vec::new();
    for _ in 0..1_000 {
        let mut one = door.connect().await;
        // The first ones have begun a request, so that none of them makes room for the others.
        if idle.len() < 100 {
            one.send("GET /").await;
        }
        idle.push(one);
    }
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new("127.0.0.2".parse().expect("an address"), 0)).expect("the address is this machine's");
    let mut other = Peer::over(soon(socket.connect(door.gate.address)).await.expect("it listens"));
    other.send("GET /robots.txt HTTP/1.1\r\nhost: x\r\n\r\n").await;
    received(&other.answer().await);
    let mut last = idle.pop().expect("the last one");
    last.answer().await.refused(429, "rate_limited");
    let metrics = door.service.metrics().await;
    let refused = metrics.lines().find_map(|line| line.strip_prefix("firstcome_connections_refused_address_total "));
    assert_eq!(refused, Some("900"));
    assert!(metrics.contains("firstcome_connections_refused_total 0\n"));
}
