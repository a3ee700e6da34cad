//! `--otlp-endpoint`: what reaches a collector, and that no request waits for it.

use crate::support::http::{Answer, Client, read_answer};
use crate::support::program::{PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::World;
use firstcome_test_servers::{Authority, CertificateFiles, Flaw, Kind};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ADMIN: &str = "fc_admin_of_the_tests_of_traces_0123456789";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// How a collector answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Answers,
    Hangs,
    /// It is busy: it takes no spans.
    Refuses,
}

/// Head and body of each request.
type Requests = Vec<(String, Vec<u8>)>;

/// A server that keeps what it is sent.
struct Collector {
    address: SocketAddr,
    is_tls: bool,
    requests: Arc<Mutex<Requests>>,
    manner: Arc<Mutex<Manner>>,
}

impl Collector {
    fn start(manner: Manner) -> Self {
        Self::start_with(manner, None)
    }

    /// One that answers by TLS.
    fn secured(files: &CertificateFiles) -> Self {
        let chain =
            CertificateDer::pem_file_iter(&files.cert).expect("a file").map(|cert| cert.expect("a certificate"));
        let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config =
            config.with_safe_default_protocol_versions().expect("it knows its protocols").with_no_client_auth();
        Self::start_with(Manner::Answers, Some(config.with_single_cert(chain.collect(), key).expect("they fit").into()))
    }

    fn start_with(manner: Manner, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (address, is_tls) = (listener.local_addr().expect("it has an address"), tls.is_some());
        let (requests, manner) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(manner)));
        let (kept, now) = (Arc::clone(&requests), Arc::clone(&manner));
        std::thread::spawn(move || {
            let mut hung = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if *now.lock().expect("no thread panics with it") == Manner::Hangs {
                    hung.push(stream);
                    continue;
                }
                let (kept, now, tls) = (Arc::clone(&kept), Arc::clone(&now), tls.clone());
                std::thread::spawn(move || match tls {
                    None => answer_each(stream, &kept, &now),
                    Some(config) => {
                        let session = ServerConnection::new(config).expect("a session");
                        answer_each(StreamOwned::new(session, stream), &kept, &now);
                    }
                });
            }
        });
        Self { address, is_tls, requests, manner }
    }

    /// Takes spans from now on.
    fn answer(&self) {
        *self.manner.lock().expect("no thread panics with it") = Manner::Answers;
    }

    fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    fn requests(&self) -> Requests {
        self.requests.lock().expect("no thread panics with it").clone()
    }

    /// The spans so far, by the field names of opentelemetry-proto.
    fn spans(&self) -> Vec<Value> {
        let bodies = self.requests().into_iter().map(|(_, body)| serde_json::from_slice::<Value>(&body).expect("JSON"));
        let list = |value: &Value| value.as_array().cloned().expect("a list");
        let resources = bodies.flat_map(|body| list(&body["resourceSpans"]));
        let scopes = resources.flat_map(|resource| list(&resource["scopeSpans"]));
        scopes.flat_map(|scope| list(&scope["spans"])).collect()
    }

    /// Waits for the span of this name in this trace.
    fn span(&self, trace: &str, name: &str) -> Value {
        let is_it = |span: &Value| span["traceId"] == trace && span["name"] == name;
        wait_for(name, || self.spans().into_iter().find(is_it))
    }
}

/// Answers the requests of a connection until it ends.
fn answer_each(mut stream: impl Read + Write, kept: &Mutex<Requests>, manner: &Mutex<Manner>) {
    while let Some(request) = read_request(&mut stream) {
        let is_busy = *manner.lock().expect("no thread panics with it") == Manner::Refuses;
        let status = if is_busy { "503 Service Unavailable" } else { "200 OK" };
        if !is_busy {
            kept.lock().expect("no thread panics with it").push(request);
        }
        if write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").is_err() || stream.flush().is_err() {
            return;
        }
    }
}

/// Reads a request with a `content-length`.
fn read_request(stream: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                return Some((head, body.to_vec()));
            }
        }
        match stream.read(&mut chunk) {
            Ok(count @ 1..) => bytes.extend_from_slice(&chunk[..count]),
            _ => return None,
        }
    }
}

fn serve(here: &Path, collector: &Collector, more: &[&str]) -> Server {
    let url = collector.url();
    let mut arguments = vec!["--coupon", "launch=1000", "--log-format", "json", "--otlp-endpoint", &url];
    arguments.extend(more);
    Server::start_with(here, &arguments)
}

/// Sends a request with these headers.
fn send(address: SocketAddr, line: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let request =
        format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}{kind}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("sent");
    read_answer(&mut stream).expect("an answer").0
}

fn claim(server: &Server, user: &str, headers: &str) -> Answer {
    send(server.address(), "POST /v1/coupons/launch/claims", headers, &json!({"user": user}).to_string())
}

fn parent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{CALLER}-{flags}\r\n")
}

/// The attributes of a span, as texts.
fn attributes(span: &Value) -> BTreeMap<String, String> {
    let pair = |attribute: &Value| {
        let value = &attribute["value"];
        let text = value["stringValue"].as_str().or_else(|| value["intValue"].as_str()).expect("a value");
        (attribute["key"].as_str().expect("a key").to_owned(), text.to_owned())
    };
    span["attributes"].as_array().expect("a list").iter().map(pair).collect()
}

fn times(span: &Value) -> (u64, u64) {
    let time = |name: &str| span[name].as_str().expect("a text").parse::<u64>().expect("a number");
    (time("startTimeUnixNano"), time("endTimeUnixNano"))
}

#[test]
fn a_trace_goes_on_from_the_caller_and_says_where_a_claim_waited() {
    let here = tempfile::tempdir().expect("a directory");
    let collector = Collector::start(Manner::Answers);
    let server = serve(here.path(), &collector, &["--trace-sample", "0", "--otlp-service-name", "shop"]);
    let headers = format!("{}tracestate: shop=7\r\nx-request-id: shop:9\r\n", parent("01"));
    assert_eq!(claim(&server, "canary-of-a-user", &headers).status, 201);

    let request = collector.span(TRACE, "POST /v1/coupons/{coupon}/claims");
    assert_eq!((&request["parentSpanId"], &request["kind"]), (&json!(CALLER), &json!(2)), "{request}");
    assert_eq!(request["traceState"], "shop=7");
    let said = attributes(&request);
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/coupons/{coupon}/claims"),
        ("http.response.status_code", "201"),
        ("firstcome.request_id", "shop:9"),
    ] {
        assert_eq!(said.get(key).map(String::as_str), Some(value), "{request}");
    }
    let wait = collector.span(TRACE, "store wait");
    assert_eq!(wait["parentSpanId"], request["spanId"], "{wait}");
    let (queue, commit) = (collector.span(TRACE, "queue"), collector.span(TRACE, "store commit"));
    assert_eq!((&queue["parentSpanId"], &commit["parentSpanId"]), (&wait["spanId"], &wait["spanId"]));
    let [whole, waited, queued, committed] = [&request, &wait, &queue, &commit].map(times);
    assert!(whole.0 <= waited.0 && waited.1 <= whole.1, "{whole:?} {waited:?}");
    assert!(queued.0 == waited.0 && queued.1 == committed.0 && committed.1 <= waited.1, "{queued:?} {committed:?}");
    // The batch has a trace of its own, and the commit of this request has a link to it.
    let link = &commit["links"][0];
    let batch = collector.span(link["traceId"].as_str().expect("a trace"), "store commit");
    assert_eq!((&batch["spanId"], batch["parentSpanId"].as_str()), (&link["spanId"], None), "{batch}");
    assert!(link["traceId"] != TRACE && times(&batch).1 == committed.1);

    let (head, body) = collector.requests().remove(0);
    assert!(head.starts_with("post /v1/traces http/1.1") && head.contains("content-type: application/json"), "{head}");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let resource = &body["resourceSpans"][0]["resource"]["attributes"];
    assert!(
        resource
            .as_array()
            .is_some_and(|all| all.contains(&json!({"key": "service.name", "value": {"stringValue": "shop"}})))
    );
    assert!(!body.to_string().contains("canary"), "{body}");
    server.stop();
}

#[test]
fn unsampled_requests_send_nothing_and_bad_traceparents_begin_no_trace() {
    let here = tempfile::tempdir().expect("a directory");
    let collector = Collector::start(Manner::Answers);
    let server = serve(here.path(), &collector, &["--trace-sample", "0"]);
    let bad = [
        format!("00-{TRACE}-{CALLER}"),
        format!("00-{TRACE}0-{CALLER}-01"),
        format!("00-{}-{CALLER}-01", "0".repeat(32)),
        format!("00-{TRACE}-0000000000000000-01"),
        format!("00-{}-{CALLER}-01", TRACE.to_uppercase()),
        format!("ff-{TRACE}-{CALLER}-01"),
    ];
    for (number, value) in bad.iter().enumerate() {
        assert_eq!(claim(&server, &format!("u{number}"), &format!("traceparent: {value}\r\n")).status, 201, "{value}");
    }
    let two = format!("{}{}", parent("01"), parent("01"));
    for (user, headers) in [("ann", parent("00")), ("bob", two), ("cid", String::new())] {
        assert_eq!(claim(&server, user, &headers).status, 201);
    }
    // What came before would have been sent before this one, or with it.
    assert_eq!(claim(&server, "dan", &format!("{}x-request-id: last\r\n", parent("01"))).status, 201);
    collector.span(TRACE, "POST /v1/coupons/{coupon}/claims");
    let spans = collector.spans();
    let requests: Vec<&Value> = spans.iter().filter(|span| span["kind"] == 2).collect();
    assert_eq!(requests.len(), 1, "{spans:?}");
    assert_eq!(attributes(requests[0])["firstcome.request_id"], "last");
    server.stop();

    let server = serve(here.path(), &collector, &["--trace-sample", "1"]);
    assert_eq!(claim(&server, "eve", &format!("traceparent: {}\r\n", bad[5])).status, 201);
    let is_fresh = |span: &Value| span["kind"] == 2 && span["traceId"] != TRACE;
    let fresh = wait_for("a trace of its own", || collector.spans().into_iter().find(is_fresh));
    assert!(fresh["parentSpanId"].is_null(), "{fresh}");
    server.stop();
}

#[test]
fn a_collector_that_hangs_delays_no_request_and_is_one_line() {
    let here = tempfile::tempdir().expect("a directory");
    let collector = Collector::start(Manner::Hangs);
    let mut server = serve(here.path(), &collector, &["--trace-sample", "1"]);
    let watch = firstcome::edge::Stopwatch::start();
    for number in 0..100 {
        assert_eq!(claim(&server, &format!("u{number}"), "").status, 201);
    }
    // The collector has five seconds for one answer.
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    let lost = "the collector of traces is lost";
    server.wait_for_log(lost);
    for number in 100..110 {
        assert_eq!(claim(&server, &format!("u{number}"), "").status, 201);
    }
    let dropped = || {
        let metrics = Client::new(server.address()).get("/metrics").text();
        let line = metrics.lines().find_map(|line| line.strip_prefix("firstcome_trace_spans_dropped_total "));
        line.and_then(|count| count.parse::<f64>().ok()).expect("a metric")
    };
    wait_for("spans that are given up", || (0.0 < dropped()).then_some(()));
    assert_eq!(server.errors().matches(lost).count(), 1, "{}", server.errors());
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
}

#[test]
fn the_loss_and_the_return_of_a_collector_are_one_line_each() {
    let here = tempfile::tempdir().expect("a directory");
    let collector = Collector::start(Manner::Refuses);
    let server = serve(here.path(), &collector, &["--trace-sample", "1"]);
    assert_eq!(claim(&server, "ann", "").status, 201);
    let lines = |message: &str| -> Vec<Value> {
        let log = server.errors();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["message"] == message).collect()
    };
    let line = |message: &str| wait_for(message, || lines(message).pop());
    let [lost, back] = ["the collector of traces is lost", "the collector of traces answers again"];
    let loss = line(lost);
    assert!(loss["error"].as_str().is_some_and(|error| error.contains("503")) && loss["level"] == "WARN", "{loss}");
    collector.answer();
    // The second try of the spans before succeeds, or the first one of these.
    assert_eq!(claim(&server, "bob", "").status, 201);
    let end = line(back);
    assert!(end["lasted_ms"].is_u64() && end["level"] == "INFO", "{end}");
    for event in [loss, end] {
        assert_eq!(event["target"], "firstcome_server::trace");
        assert!(event["server"].as_str().is_some_and(|server| server.contains("127.0.0.1:")), "{event}");
    }
    assert_eq!((lines(lost).len(), lines(back).len()), (1, 1), "{}", server.errors());
    server.stop();
}

#[test]
fn a_collector_is_reached_by_tls_and_only_under_a_trusted_certificate() {
    let here = tempfile::tempdir().expect("a directory");
    let [mut ours, other] = [Authority::new(), Authority::new()].map(|made| made.expect("an authority"));
    let collector = Collector::secured(&ours.sign(Flaw::None).expect("signed"));
    let trusting = |authority: &Authority| {
        let ca = authority.ca();
        serve(here.path(), &collector, &["--trace-sample", "1", "--tls-ca", ca.to_str().expect("a path in UTF-8")])
    };
    let server = trusting(&other);
    assert_eq!(claim(&server, "ann", "").status, 201);
    server.wait_for_log("the collector of traces is lost");
    let log = server.errors();
    assert!(log.contains("not from a trusted authority"), "{log}");
    server.stop();
    assert_eq!(collector.requests(), [], "it was sent what a stranger could read");
    let server = trusting(&ours);
    assert_eq!(claim(&server, "bob", &parent("01")).status, 201);
    collector.span(TRACE, "POST /v1/coupons/{coupon}/claims");
    server.stop();
}

#[test]
fn a_trace_on_a_cluster_says_how_long_the_script_and_the_write_took() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let collector = Collector::start(Manner::Answers);
    let mut node = world.node();
    node.args(["--coupon", "launch=100", "--otlp-endpoint", &collector.url(), "--trace-sample", "0"]);
    let server = Server::spawn(node.env("FIRSTCOME_ADMIN_KEY", ADMIN));
    let headers = format!("authorization: Bearer {ADMIN}\r\n{}", parent("01"));
    assert_eq!(claim(&server, "ann", &headers).status, 201);
    let wait = collector.span(TRACE, "store wait");
    for name in ["redis script", "database write"] {
        let stage = collector.span(TRACE, name);
        assert_eq!(stage["parentSpanId"], wait["spanId"], "{stage}");
        let link = &stage["links"][0];
        let batch = collector.span(link["traceId"].as_str().expect("a trace"), name);
        assert_eq!((&batch["spanId"], &attributes(&batch)["firstcome.batch.size"]), (&link["spanId"], &"1".to_owned()));
        let ([began, ended], [wait_began, wait_ended]) = (<[u64; 2]>::from(times(&stage)), times(&wait).into());
        assert!(wait_began <= began && began < ended && ended <= wait_ended, "{stage} {wait}");
    }
    server.stop();
}

#[test]
fn a_gate_hands_the_trace_on_to_its_site() {
    let here = tempfile::tempdir().expect("a directory");
    let (collector, site) = (Collector::start(Manner::Answers), Collector::start(Manner::Answers));
    let mut gate = command(PROGRAM, here.path());
    gate.args(["gate", "--dev", "--listen", "127.0.0.1:0", "--service-listen", "127.0.0.1:0", "--data", "data"]);
    gate.args(["--upstream", &site.url(), "--room", "sale", "--max-active", "1", "--open-path", "/open/*"]);
    gate.args(["--otlp-endpoint", &collector.url(), "--trace-sample", "0"]);
    let mut server = Server::spawn(&mut gate);
    let line = server.line("gate on http://");
    let address = line.trim_start_matches("gate on http://").split(',').next().and_then(|text| text.parse().ok());
    let headers = format!("{}tracestate: shop=7\r\n", parent("01"));
    assert_eq!(send(address.expect("an address"), "GET /open/x", &headers, "").status, 200);
    let (head, _) = site.requests().remove(0);
    let named = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).expect("a traceparent");
    let parts: Vec<&str> = named.split('-').collect();
    assert_eq!((parts[0], parts[1], parts[3]), ("00", TRACE, "01"), "{named}");
    assert!(parts[2] != CALLER && head.contains("tracestate: shop=7"), "{head}");
    let (request, call) = (collector.span(TRACE, "GET gate"), collector.span(TRACE, "site"));
    assert_eq!((&call["spanId"], &call["kind"]), (&json!(parts[2]), &json!(3)), "{call}");
    assert_eq!((&call["parentSpanId"], &request["parentSpanId"]), (&request["spanId"], &json!(CALLER)));
    assert_eq!(attributes(&call)["http.response.status_code"], "200");
    // Without a sample the headers pass as they came.
    assert_eq!(send(address.expect("an address"), "GET /open/y", &parent("00"), "").status, 200);
    let (head, _) = site.requests().remove(1);
    assert!(head.contains(&format!("traceparent: 00-{TRACE}-{CALLER}-00")), "{head}");
    server.stop();
}

#[test]
fn a_wrong_setting_of_traces_is_one_line_and_exit_code_2() {
    let here = tempfile::tempdir().expect("a directory");
    for (arguments, says) in [
        (["--otlp-endpoint", "127.0.0.1:4318"], "http://127.0.0.1:4318"),
        (["--otlp-endpoint", "grpc://127.0.0.1:4317"], "http://127.0.0.1:4318"),
        (["--otlp-endpoint", "http://collector.example:4318"], "--allow-plaintext"),
        (["--trace-sample", "2"], "must be 0 to 1"),
    ] {
        let mut serve = command(PROGRAM, here.path());
        let said = run(serve.args(["serve", "--dev", "--data", "data"]).args(arguments)).with(2);
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
    }
    let mut serve = command(PROGRAM, here.path());
    let said = run(serve.args(["serve", "--dev"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")).with(2);
    assert!(said.contains("https://host:4318"), "{said}");
}
