//! A handler that panics is a bug of the service: its request is answered 500, and everything else goes on. Each request
//! has an id, by which an operator finds it in the log.

use crate::running::{Peer, Running, claim, patient};
use crate::service::{Answer, Ask, Service, config};
use crate::stores::clock;
use axum::http::HeaderMap;
use axum::routing::get;
use firstcome::Embedded;
use firstcome::core::time::{Steady, Timestamp};
use firstcome::edge::{Clock, ManualClock};
use firstcome_server::{Config, api};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

fn show(headers: &str) -> String {
    format!("GET /v1/coupons/launch HTTP/1.1\r\nhost: a\r\n{headers}\r\n")
}

/// What a client is told of a panic. Returns the id of its request.
fn is_internal(answer: Answer) -> String {
    let told = answer.refused(500, "internal_error");
    assert_eq!(told.header("connection"), Some("close"));
    let id = told.text("request_id");
    assert_eq!(told.header("x-request-id"), Some(id.as_str()));
    assert!(!told.body().contains("a bug that was planted"), "no internal text");
    id
}

/// A service with an endpoint that panics if it is told to.
async fn with_planted_panic() -> Running {
    async fn planted(headers: HeaderMap) -> &'static str {
        assert!(!headers.contains_key("x-planted"), "a bug that was planted");
        "fine"
    }
    let service = Service::memory_with(Config { limits: patient(), ..config() });
    let router = api::router(service.app.clone()).route("/v1/planted", get(planted));
    Running::routed(TcpListener::bind("127.0.0.1:0").await.expect("a free port"), service, router)
}

fn planted(headers: &str) -> String {
    format!("GET /v1/planted HTTP/1.1\r\nhost: a\r\nx-planted: 1\r\n{headers}\r\n")
}

pub(crate) async fn a_panic_of_a_handler_is_a_500_with_the_id_of_the_request_and_the_process_goes_on() {
    let running = with_planted_panic().await;
    running.service.make("launch", json!({"limit": 9})).await;
    let mut beside = running.connect().await;
    beside.send(show("")).await;
    beside.answer().await.is(200);
    assert_eq!(is_internal(running.exchange(planted("x-request-id: shop-7\r\n")).await), "shop-7");
    let [first, second] = [running.exchange(planted("")).await, running.exchange(planted("")).await].map(is_internal);
    assert!(first.len() == 16 && first != second, "{first} {second}");
    // The connection that was open before, and the process, go on.
    beside.send(show("")).await;
    beside.answer().await.is(200);
    running.exchange(claim("ann")).await.is(201);
    assert_eq!(running.figure("firstcome_panics_total").await, 3);
    assert_eq!(running.figure("firstcome_refusals_total{code=\"internal_error\"}").await, 3);
}

/// A clock that panics once it is told to.
struct PlantedClock {
    inner: Arc<ManualClock>,
    panics: AtomicBool,
}

impl PlantedClock {
    fn look(&self) {
        assert!(!self.panics.load(Ordering::SeqCst), "a bug that was planted");
    }
}

impl Clock for PlantedClock {
    fn now(&self) -> Timestamp {
        self.look();
        self.inner.now()
    }

    fn steady(&self) -> Steady {
        self.look();
        self.inner.steady()
    }
}

async fn over_planted_clock() -> (Running, Arc<PlantedClock>) {
    let inner = clock();
    let planted = Arc::new(PlantedClock { inner: inner.clone(), panics: AtomicBool::new(false) });
    let store = Embedded::memory_with(planted.clone());
    let running = Running::over(Service::new(store, inner, Config { limits: patient(), ..config() })).await;
    running.service.make("launch", json!({"limit": 9})).await;
    (running, planted)
}

#[tokio::test]
async fn a_panic_of_a_call_that_needs_no_router_is_a_500_too() {
    let (running, clock) = over_planted_clock().await;
    running.service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    let ticket = running.service.ticket("sale").await;
    let poll = format!("GET /v1/rooms/sale/tickets/{ticket} HTTP/1.1\r\nhost: a\r\n\r\n");
    running.exchange(&poll).await.is(200);
    clock.panics.store(true, Ordering::SeqCst);
    is_internal(running.exchange(&poll).await);
    clock.panics.store(false, Ordering::SeqCst);
    running.exchange(&poll).await.is(200);
}

#[tokio::test]
async fn a_panic_while_the_store_is_changed_ends_all_writing_and_no_reading() {
    let (running, clock) = over_planted_clock().await;
    running.exchange(claim("ann")).await.is(201);
    clock.panics.store(true, Ordering::SeqCst);
    is_internal(running.exchange(claim("bob")).await);
    clock.panics.store(false, Ordering::SeqCst);
    // No write starts from a state that may be half changed.
    for _ in 0..2 {
        assert_eq!(running.exchange(claim("bob")).await.status, 503);
    }
    assert_eq!(running.exchange(show("")).await.is(200).json()["issued"], 1);
    // Only a restart helps, so liveness says no, also where the router answers.
    let told = running.exchange("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.refused(503, "store_unavailable");
    assert_eq!((told.text("reason").as_str(), told.header("retry-after")), ("stopped", Some("5")));
    assert!(told.text("detail").contains("start again"), "{}", told.body());
    let routed = running.service.send(Ask::get("/healthz")).await.refused(503, "store_unavailable");
    assert_eq!(routed.text("reason"), "stopped");
    for path in ["/readyz", "/readyz?of=node"] {
        assert_eq!(running.service.send(Ask::get(path)).await.is(503).json()["reason"], "stopped");
    }
}

#[tokio::test]
async fn an_answer_carries_the_id_of_its_request_and_an_error_has_one_in_any_case() {
    let running = Running::with(Config { limits: patient(), ..config() }).await;
    running.service.make("launch", json!({"limit": 1})).await;
    let id = |answer: &Answer| answer.header("x-request-id").map(str::to_owned);
    let keyed = |id: &str| claim("ann").replacen("\r\n", &format!("\r\nx-request-id: {id}\r\n"), 1);
    assert_eq!(id(&running.exchange(keyed("a.1")).await.is(201)).as_deref(), Some("a.1"));
    assert_eq!(id(&running.exchange(show("x-request-id: b/2\r\n")).await.is(200)).as_deref(), Some("b/2"));
    assert_eq!(id(&running.exchange(show("")).await.is(200)), None);
    assert_eq!(id(&running.exchange(show("x-request-id: a b\r\n")).await.is(200)), None, "no plain id");
    let missing = "GET /v1/coupons/none HTTP/1.1\r\nhost: a\r\n";
    let drawn = id(&running.exchange(format!("{missing}\r\n")).await.is(404)).expect("an id");
    assert!(drawn.len() == 16 && drawn.bytes().all(|byte| byte.is_ascii_hexdigit()), "{drawn}");
    let told = running.exchange(format!("{missing}x-request-id: c\r\n\r\n")).await.is(404);
    assert_eq!(id(&told).as_deref(), Some("c"));
}

#[tokio::test]
async fn a_browser_that_came_over_tls_of_a_trusted_proxy_is_told_to_keep_to_it() {
    let proxies = firstcome_server::address::Proxies::new(vec!["127.0.0.1".parse().expect("a block")]);
    let running = Running::with(Config { limits: patient(), proxies, ..config() }).await;
    running.service.make_room("sale", json!({"max_active": 1})).await;
    let kept = async |from: &str, line: &str, host: &str, headers: &str| {
        let mut peer: Peer = running.connect_from(from).await;
        peer.send(format!("GET {line} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n")).await;
        peer.answer().await.header("strict-transport-security").map(str::to_owned)
    };
    let https = "x-forwarded-proto: https\r\nx-forwarded-for: 192.0.2.1\r\n";
    for line in ["/rooms/sale", "/v1/rooms/sale", "/healthz", "/none"] {
        let told = kept("127.0.0.1", line, "shop.example", https).await;
        assert_eq!(told.as_deref(), Some("max-age=31536000"), "{line}");
        assert_eq!(kept("127.0.0.1", line, "shop.example", "").await, None, "{line}");
        assert_eq!(kept("127.0.0.2", line, "shop.example", https).await, None, "{line}: it is no proxy");
        assert_eq!(kept("127.0.0.1", line, "localhost:8080", https).await, None, "{line}: other services listen there");
    }
}
