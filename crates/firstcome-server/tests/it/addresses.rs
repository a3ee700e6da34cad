//! One address takes no more than its part: of connections, of requests under way, and of calls without a key.

use crate::running::{Peer, Running, claim, patient, request, until};
use crate::service::{ADMIN, SERVICE, config};
use axum::http::HeaderValue;
use firstcome_server::address::Proxies;
use firstcome_server::rate::RateLimit;
use firstcome_server::{Config, Limits};
use serde_json::json;
use std::num::{NonZeroU32, NonZeroUsize};

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
const SHOW: &str = "GET /v1/coupons/launch HTTP/1.1\r\nhost: a\r\n";

async fn is_served(peer: &mut Peer) {
    peer.send(HEALTH).await;
    assert_eq!(peer.answer().await.status, 200);
}

#[tokio::test]
async fn when_all_places_are_taken_the_longest_idle_connection_makes_room_and_no_busy_one() {
    let running = Running::start(Limits { connections_max: 3, ..patient() }).await;
    let mut busy = running.connect().await;
    busy.send("GET /healthz HTTP/1.1\r\n").await;
    let mut idle = [running.connect().await, running.connect().await];
    for peer in &mut idle {
        is_served(peer).await;
    }
    let [first, second] = &mut idle;
    let _newcomers = [newcomer(&running).await, newcomer(&running).await];
    assert!(first.closed().await.is_empty() && second.closed().await.is_empty(), "closed without a word");
    busy.send("host: a\r\n\r\n").await;
    assert_eq!(busy.answer().await.status, 200);
    assert_eq!(running.figure("firstcome_connections_made_room_total").await, 2);
}

/// Connects until there is a place, and is busy then.
async fn newcomer(running: &Running) -> Peer {
    let mut placed = None;
    until(async || {
        let mut peer = running.connect().await;
        peer.send(HEALTH).await;
        let is_served = peer.answer().await.status == 200;
        if is_served {
            peer.send("GET /healthz HTTP/1.1\r\n").await;
            placed = Some(peer);
        }
        is_served
    })
    .await;
    placed.expect("a place")
}

#[tokio::test]
async fn an_address_with_as_many_connections_as_it_may_have_is_told_so_and_others_are_served() {
    let limits = Limits { connections_per_address: NonZeroUsize::new(2), ..patient() };
    let running = Running::start(limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut peer = running.connect_from("127.0.0.2").await;
        peer.send("GET /heal").await;
        held.push(peer);
    }
    let mut third = running.connect_from("127.0.0.2").await;
    let told = third.answer().await.refused(429, "rate_limited");
    assert_eq!((told.header("connection"), told.header("retry-after")), (Some("close"), Some("1")));
    assert_eq!(told.text("address"), "127.0.0.2");
    assert_eq!(running.figure("firstcome_connections_refused_address_total").await, 1);
    is_served(&mut running.connect().await).await;
    held[0].send("thz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(held[0].answer().await.status, 200);
    // Idle now, it makes room for the next one of its own address.
    until(async || {
        let mut newcomer = running.connect_from("127.0.0.2").await;
        newcomer.send(HEALTH).await;
        newcomer.answer().await.status == 200
    })
    .await;
    assert!(held[0].closed().await.is_empty());
}

fn behind_proxy(calls: Option<RateLimit>, per_address: usize) -> Config {
    let connections_per_address = NonZeroUsize::new(per_address);
    let proxies = Proxies::new(vec!["127.0.0.1".parse().expect("a block")]);
    Config { limits: Limits { connections_per_address, ..patient() }, calls, proxies, ..config() }
}

fn calls(per_minute: u32) -> Option<RateLimit> {
    Some(RateLimit { per_minute: NonZeroU32::MIN, burst: NonZeroU32::new(per_minute).expect("not zero") })
}

#[tokio::test]
async fn a_trusted_proxy_has_as_many_connections_as_it_likes_and_each_client_behind_it_its_requests() {
    let running = Running::with(behind_proxy(None, 2)).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let begun = |client: &str| {
        let headers = format!("x-forwarded-for: {client}\r\nauthorization: Bearer {SERVICE}\r\n");
        let whole = request(
            "POST /v1/coupons/launch/claims",
            &format!("{headers}content-type: application/json\r\n"),
            r#"{"user":"ann"}"#,
        );
        whole[..whole.len() - 1].to_owned()
    };
    let mut under_way = Vec::new();
    for client in ["198.51.100.1", "198.51.100.2", "198.51.100.1"] {
        let mut peer = running.connect().await;
        peer.send(begun(client)).await;
        under_way.push(peer);
    }
    // Requests that have begun are counted when their heads have been read.
    until(async || {
        let mut peer = running.connect().await;
        peer.send(format!("{SHOW}x-forwarded-for: 198.51.100.1\r\n\r\n")).await;
        let answer = peer.answer().await;
        answer.status == 429 && answer.refused(429, "rate_limited").text("address") == "198.51.100.1"
    })
    .await;
    running.exchange(format!("{SHOW}x-forwarded-for: 198.51.100.2\r\n\r\n")).await.is(200);
    under_way[0].send("}").await;
    under_way[0].answer().await.is(201);
    running.exchange(format!("{SHOW}x-forwarded-for: 198.51.100.1\r\n\r\n")).await.is(200);
}

#[tokio::test]
async fn an_address_that_calls_too_often_without_a_key_is_told_so_on_every_public_row() {
    let rows = [
        "GET /v1/coupons/launch",
        "GET /v1/coupons/none",
        "GET /v1/rooms/lobby",
        "GET /v1/rooms/lobby/tickets/TICKET",
        "GET /v1/rooms/lobby/tickets/none",
        "DELETE /v1/rooms/lobby/tickets/TICKET",
        "POST /v1/rooms/lobby/tickets/TICKET/renew",
        "POST /v1/rooms/lobby/tickets/TICKET/handoff",
        "GET /v1/listings/lamp",
        "GET /v1/pass-keys",
        "POST /v1/coupons/launch/claims",
        "POST /v1/rooms/lobby/tickets",
        "GET /v1/rooms/lobby/gate",
        "POST /v1/rooms/lobby/passes/verify",
        "POST /v1/rooms/lobby/passes/release",
        "GET /v1/members/ann",
    ];
    for row in rows {
        let running = Running::with(behind_proxy(calls(3), 0)).await;
        running.service.make("launch", json!({"limit": 9})).await;
        running.service.make_room("lobby", json!({"max_active": 1, "paused": true})).await;
        let join = |from: &str| {
            let headers = format!("x-forwarded-for: {from}\r\ncontent-type: application/json\r\n");
            request("POST /v1/rooms/lobby/tickets", &headers, "{}")
        };
        let ticket = running.exchange(join("192.0.2.1")).await.is(201).text("ticket");
        let row = row.replace("TICKET", &ticket);
        let ask = |from: &str, headers: &str| {
            format!("{row} HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {from}\r\n{headers}\r\n")
        };
        for _ in 0..3 {
            assert_ne!(running.exchange(ask("198.51.100.1", "")).await.status, 429, "{row}");
        }
        let told = running.exchange(ask("198.51.100.1", "")).await.refused(429, "rate_limited");
        assert_eq!((told.text("address").as_str(), told.header("retry-after")), ("198.51.100.1", Some("60")), "{row}");
        // The nearest proxy's word counts; another client is another one, and a key frees its caller.
        running.exchange(ask("203.0.113.9, 198.51.100.1", "")).await.refused(429, "rate_limited");
        assert_ne!(running.exchange(ask("198.51.100.2", "")).await.status, 429, "{row}");
        let key = format!("authorization: Bearer {ADMIN}\r\n");
        assert_ne!(running.exchange(ask("198.51.100.1", &key)).await.status, 429, "{row}");
        assert_eq!(running.figure("firstcome_refusals_total{code=\"rate_limited\"}").await, 2);
    }
}

#[tokio::test]
async fn health_is_not_limited_and_keys_that_are_none_are() {
    let running = Running::with(Config { limits: patient(), calls: calls(4), ..config() }).await;
    running.service.make("launch", json!({"limit": 9})).await;
    for path in ["/healthz", "/readyz"].repeat(3) {
        running.exchange(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await.is(200);
    }
    running.exchange(claim("ann")).await.is(201);
    for tried in ["a", "b", "c", "d"] {
        running.exchange(format!("{SHOW}authorization: Bearer {tried}\r\n\r\n")).await.refused(401, "unauthorized");
    }
    running.exchange(format!("{SHOW}authorization: Bearer e\r\n\r\n")).await.refused(429, "rate_limited");
    running.exchange(format!("{SHOW}\r\n")).await.refused(429, "rate_limited");
    running.exchange(claim("bob")).await.is(201);
    // Without a limit there is none.
    let running = Running::with(Config { limits: patient(), calls: None, ..config() }).await;
    for _ in 0..2_000 {
        running.exchange(format!("{SHOW}\r\n")).await.refused(404, "unknown_coupon");
    }
}

#[tokio::test]
async fn a_key_frees_no_page_from_the_limit_since_pages_know_none() {
    let running = Running::with(Config { limits: patient(), calls: calls(4), ..config() }).await;
    running.service.make_room("lobby", json!({"max_active": 1})).await;
    let page = |key: &str| format!("GET /rooms/lobby HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n\r\n");
    for key in ["a", "b", ADMIN, "c"] {
        assert_ne!(running.exchange(page(key)).await.status, 429, "{key}");
    }
    running.exchange(page(ADMIN)).await.refused(429, "rate_limited");
}

#[tokio::test]
async fn a_password_of_the_shop_frees_no_visitor_from_the_limit_of_the_gate() {
    let running = Running::with(Config { limits: patient(), calls: calls(4), ..config() }).await;
    running.service.make_room("lobby", json!({"max_active": 1})).await;
    let ask = |headers: &str| format!("GET /v1/rooms/lobby/gate HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
    for tried in ["Basic YW5uOnNlY3JldA==", "Bearer a", "Bearer b", "c"] {
        running.exchange(ask(&format!("authorization: {tried}\r\n"))).await.refused(401, "no_pass");
    }
    running.exchange(ask("authorization: Bearer e\r\n")).await.refused(429, "rate_limited");
    running.exchange(ask("")).await.refused(429, "rate_limited");
    running.exchange(ask(&format!("authorization: Bearer {ADMIN}\r\n"))).await.refused(401, "no_pass");
}

#[tokio::test]
async fn a_page_of_a_named_origin_may_read_that_it_calls_too_often() {
    let allow_origins = vec![HeaderValue::from_static("https://shop.example")];
    let running = Running::with(Config { limits: patient(), calls: calls(1), allow_origins, ..config() }).await;
    running.exchange(format!("{SHOW}\r\n")).await.refused(404, "unknown_coupon");
    for (origin, allowed) in [("https://shop.example", Some("https://shop.example")), ("https://other.example", None)] {
        let told = running.exchange(format!("{SHOW}origin: {origin}\r\n\r\n")).await.refused(429, "rate_limited");
        assert_eq!(told.header("access-control-allow-origin"), allowed);
    }
    // The browser's question before a call is no call.
    let question = "OPTIONS /v1/coupons/launch HTTP/1.1\r\nhost: a\r\norigin: https://shop.example\r\n\
                    access-control-request-method: GET\r\n\r\n";
    running.exchange(question).await.is(200);
}

#[tokio::test]
async fn a_header_of_a_proxy_that_the_operator_forgot_to_name_is_counted_and_shown() {
    let page = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let forwarded = format!("{SHOW}x-forwarded-for: 198.51.100.1\r\n\r\n");
    let counted = "firstcome_requests_forwarded_untrusted_total";
    let trusting = Running::with(behind_proxy(calls(9), 0)).await;
    trusting.exchange(&forwarded).await;
    assert_eq!(trusting.figure(counted).await, 0);
    assert!(!trusting.exchange(page).await.body().contains("--trusted-proxy"));

    let running = Running::with(Config { calls: calls(9), ..config() }).await;
    assert!(!running.exchange(page).await.body().contains("--trusted-proxy"), "none came yet");
    for _ in 0..2 {
        running.exchange(&forwarded).await;
    }
    assert_eq!(running.figure(counted).await, 2);
    let ready = running.exchange("GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n").await.is(200).json();
    assert_eq!(
        (&ready["ready"], &ready["warnings"][0]["code"]),
        (&true.into(), &"proxy_not_trusted".into()),
        "{ready}"
    );
    let shown = running.exchange(page).await.body();
    assert!(shown.contains("<code>--trusted-proxy</code>") && !shown.contains("127.0.0.1"), "{shown}");
}
