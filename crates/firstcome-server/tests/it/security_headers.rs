//! The headers that tell a browser what it may do with an answer. `promises` holds every answer of every test to them;
//! this file walks all routes, so that no route is without a test.

use crate::promises::document;
use crate::running::{Running, patient};
use crate::service::{ADMIN, Answer, Ask, Service, config};
use axum::http::{HeaderMap, Method};
use firstcome_server::Limits;
use firstcome_server::api::{FiguresFor, admin_router};
use serde_json::json;
use std::sync::Arc;

/// What pages and the dashboard have beside the document.
const PAGES: [&str; 27] = [
    "/",
    "/docs",
    "/openapi.json",
    "/errors/sold_out",
    "/errors/none",
    "/rooms/sale",
    "/rooms/none",
    "/rooms/sale/place.svg",
    "/rooms/sale/style.css",
    "/rooms/sale/logo",
    "/rooms/sale/draw",
    "/rooms/sale/events",
    "/rooms/sale/receipt",
    "/receipts",
    "/coupons/launch",
    "/dashboard",
    "/dashboard/login",
    "/dashboard/feed",
    "/dashboard/stream",
    "/assets/firstcome.css",
    "/assets/room.css",
    "/assets/room.js",
    "/assets/room.work.js",
    "/assets/draw.js",
    "/assets/receipt.js",
    "/assets/dashboard.css",
    "/assets/dashboard.js",
];

async fn furnished() -> Service {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    service.make_room("sale", json!({"max_active": 1})).await;
    service
}

#[tokio::test]
async fn every_route_says_what_a_browser_may_do_with_its_answer() {
    let service = furnished().await;
    // So that streams have an end: the service refuses new ones.
    service.app.begin_drain();
    let mut asked = 0;
    for (template, methods) in document()["paths"].as_object().expect("paths") {
        let path = template.replace("{coupon}", "launch").replace("{room}", "sale").replace(['{', '}'], "");
        for method in methods.as_object().expect("methods").keys() {
            let method: Method = method.to_uppercase().parse().expect("a method");
            // `send` holds each answer to the promises.
            service.send(Ask::new(method.clone(), &path)).await;
            service.send(Ask::new(method, &path).by(ADMIN)).await;
            asked += 1;
        }
    }
    assert!(40 < asked, "{asked} operations");
    for path in PAGES {
        for method in [Method::GET, Method::POST] {
            service.send(Ask::new(method.clone(), path).header("accept", "text/html")).await;
            service.send(Ask::new(method, path).by(ADMIN)).await;
        }
    }
    service.send(Ask::get("/nowhere")).await.refused(404, "not_found");
}

#[tokio::test]
async fn the_port_of_operators_says_so_too() {
    let service = furnished().await;
    let router = admin_router(Arc::clone(&service.app), FiguresFor::AnyClient);
    for path in ["/metrics", "/healthz", "/readyz", "/nowhere"] {
        crate::service::send(router.clone(), Ask::get(path)).await;
    }
}

#[tokio::test]
async fn calls_that_go_past_the_router_and_refused_connections_say_so_too() {
    let running = Running::start(Limits { connections_max: 1, ..patient() }).await;
    let mut first = running.connect().await;
    for line in ["GET /healthz", "GET /v1/rooms/none/tickets/x", "POST /v1/rooms/none/tickets"] {
        let head = "host: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 2\r\n";
        first.send(format!("{line} HTTP/1.1\r\n{head}\r\n{{}}")).await;
        first.answer().await;
    }
    // A connection with a request under way makes no room.
    first.send("GET /").await;
    let refused = running.connect().await.answer().await.refused(503, "overloaded");
    assert_eq!(refused.header("referrer-policy"), Some("no-referrer"));
}

#[tokio::test]
async fn a_page_of_another_site_gets_no_handle_on_a_page_of_the_service() {
    let service = Service::memory_with(config());
    service.make_room("sale", json!({"max_active": 1})).await;
    let opener = async |ask: Ask| {
        let page = service.send(ask.header("accept", "text/html")).await;
        page.header("cross-origin-opener-policy").map(str::to_owned)
    };
    for path in ["/", "/docs", "/errors/sold_out", "/receipts", "/dashboard/login", "/rooms/sale", "/rooms/none"] {
        assert_eq!(opener(Ask::get(path)).await.as_deref(), Some("same-origin"), "{path}");
    }
    // In place of a page of a site, whose window may have been opened by another page of it.
    let instead = Ask::get("/rooms/sale").header("x-forwarded-uri", "/pay");
    for ask in [instead, Ask::get("/rooms/sale?back=/pay")] {
        assert_eq!(opener(ask).await.as_deref(), Some("unsafe-none"));
    }
}

#[test]
#[should_panic(expected = "x-content-type-options")]
fn an_answer_without_them_would_be_found() {
    let answer = Answer { status: 200, headers: HeaderMap::new(), bytes: Vec::new() };
    crate::promises::hold(&Method::GET, "/healthz", &answer);
}
