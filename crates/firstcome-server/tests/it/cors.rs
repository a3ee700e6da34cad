//! Pages of other origins: closed, unless an origin is named, and then the public rows only.

use crate::auction;
use crate::room;
use crate::service::{ADMIN, Answer, Ask, Service, claim, config};
use axum::http::{HeaderValue, Method};
use serde_json::json;

const NAMED: &str = "https://shop.example";

/// What pages of a named origin may call.
const PUBLIC: [(&str, &str); 11] = [
    ("/v1/coupons/launch", "GET"),
    ("/v1/coupons/launch/claims", "POST"),
    ("/v1/rooms/lobby", "GET"),
    ("/v1/rooms/lobby/draw", "GET"),
    ("/v1/rooms/lobby/tickets", "POST"),
    ("/v1/rooms/lobby/tickets/AAAA-_", "GET"),
    ("/v1/rooms/lobby/tickets/AAAA-_", "DELETE"),
    ("/v1/rooms/lobby/tickets/AAAA-_/renew", "POST"),
    ("/v1/rooms/lobby/tickets/AAAA-_/handoff", "POST"),
    ("/v1/pass-keys", "GET"),
    ("/v1/listings/lamp", "GET"),
];

fn preflight(path: &str, method: &str, origin: &str) -> Ask {
    let ask = Ask::new(Method::OPTIONS, path).header("origin", origin);
    ask.header("access-control-request-method", method)
        .header("access-control-request-headers", "content-type,x-firstcome-pass,idempotency-key,x-firstcome-work")
}

async fn service(origins: &[&'static str]) -> Service {
    let mut config = config();
    config.allow_origins = origins.iter().map(|origin| HeaderValue::from_static(origin)).collect();
    let service = Service::memory_with(config);
    service.make("launch", json!({"limit": 9, "room": "lobby"})).await;
    service.make_room("lobby", json!({"max_active": 1})).await;
    service
}

/// What the answer allows pages of other origins.
fn allowed(answer: &Answer) -> Vec<&str> {
    let names = answer.headers.keys().filter(|name| name.as_str().starts_with("access-control-"));
    names.map(|name| name.as_str()).collect()
}

/// One call of every row.
fn every_row(origin: &str) -> Vec<Ask> {
    let coupon = "/v1/coupons/launch";
    vec![
        Ask::put(coupon).by(ADMIN).json(&json!({"limit": 9, "room": "lobby"})),
        Ask::get(&format!("{coupon}/claims")).by(ADMIN),
        Ask::get(&format!("{coupon}/claims/ann")).by(ADMIN),
        Ask::post(&format!("{coupon}/redemptions")).by(ADMIN).json(&json!({"code": "x"})),
        Ask::put("/v1/rooms/lobby").by(ADMIN).json(&json!({"max_active": 1})),
        room::verify("lobby", "x"),
        room::release("lobby", "x"),
        Ask::post("/v1/pass-keys").by(ADMIN),
        Ask::get("/v1/keys").by(ADMIN),
        Ask::post("/v1/keys").by(ADMIN),
        Ask::post("/v1/erasures").by(ADMIN),
        Ask::post("/v1/purge").by(ADMIN),
        Ask::delete("/v1/rooms/lobby").by(ADMIN),
        auction::put("lamp", &auction::fixed_price()),
        auction::bids("lamp", ""),
        auction::bid("lamp", "ann", 100),
        auction::purchase("lamp", "ann"),
        auction::member("ann"),
        auction::records("ann", ""),
        auction::charge("ann", 1),
        auction::refund("ann", 1),
        Ask::get("/metrics").by(ADMIN),
        Ask::get("/v1/nothing"),
        Ask::delete(coupon).by(ADMIN),
    ]
    .into_iter()
    .map(|ask| ask.header("origin", origin))
    .collect()
}

fn public_rows(origin: &str) -> [Ask; 8] {
    let public = claim("launch", "ann").without("authorization");
    let ticket = room::place("lobby", "x");
    [
        Ask::get("/v1/coupons/launch"),
        public,
        Ask::get("/v1/rooms/lobby"),
        room::join("lobby"),
        Ask::get(&ticket),
        Ask::delete(&ticket),
        Ask::get("/v1/pass-keys"),
        auction::look("lamp"),
    ]
    .map(|ask| ask.header("origin", origin))
}

#[tokio::test]
async fn without_a_named_origin_no_page_of_another_origin_may_read_anything() {
    let service = service(&[]).await;
    for ask in every_row(NAMED).into_iter().chain(public_rows(NAMED)) {
        assert_eq!(allowed(&service.send(ask).await), Vec::<&str>::new());
    }
    for path in ["/v1/coupons/launch", "/v1/coupons/launch/claims"] {
        let answer = service.send(preflight(path, "POST", NAMED)).await.refused(405, "method_not_allowed");
        assert_eq!(allowed(&answer), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn pages_of_a_named_origin_may_make_public_calls() {
    let service = service(&[NAMED, "https://too.example"]).await;
    for origin in [NAMED, "https://too.example"] {
        for ask in public_rows(origin) {
            let answer = service.send(ask).await;
            assert_eq!(
                answer.header("access-control-allow-origin"),
                Some(origin),
                "refusals too: {}",
                answer.outcome()
            );
            assert!(answer.header("vary").is_some_and(|vary| vary.contains("origin")), "caches keep origins apart");
            assert_eq!(answer.header("access-control-allow-credentials"), None);
        }
        for (path, method) in PUBLIC {
            let answer = service.send(preflight(path, method, origin)).await.is(200);
            assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
            let methods = answer.header("access-control-allow-methods").expect("methods");
            assert!(methods.contains(method), "{methods}");
            let headers = answer.header("access-control-allow-headers").expect("headers");
            assert_eq!(headers, "content-type,x-firstcome-pass,idempotency-key,x-firstcome-work", "and no key");
        }
    }
}

#[tokio::test]
async fn pages_of_a_named_origin_may_make_no_other_call() {
    let service = service(&[NAMED]).await;
    for (path, method) in [
        ("/v1/coupons/launch", "PUT"),
        ("/v1/coupons/launch", "DELETE"),
        ("/v1/coupons/launch/claims", "GET"),
        ("/v1/coupons/launch/claims/ann", "GET"),
        ("/v1/coupons/launch/redemptions", "POST"),
        ("/v1/rooms/lobby", "PUT"),
        ("/v1/rooms/lobby", "DELETE"),
        ("/v1/rooms/lobby/tickets", "GET"),
        ("/v1/rooms/lobby/tickets/x", "POST"),
        ("/v1/rooms/lobby/passes/verify", "POST"),
        ("/v1/rooms/lobby/passes/release", "POST"),
        ("/v1/pass-keys", "POST"),
        ("/v1/pass-keys/1", "DELETE"),
        ("/v1/listings/lamp", "PUT"),
        ("/v1/listings/lamp/bids", "GET"),
        ("/v1/listings/lamp/bids", "POST"),
        ("/v1/members/ann", "GET"),
        ("/metrics", "GET"),
    ] {
        let answer = service.send(preflight(path, method, NAMED)).await;
        assert_eq!(answer.header("access-control-allow-origin"), None, "{method} {path}");
    }
    for ask in every_row(NAMED) {
        let shown = format!("{ask:?}");
        assert_eq!(service.send(ask).await.header("access-control-allow-origin"), None, "{shown}");
    }
}

#[tokio::test]
async fn pages_of_any_other_origin_may_make_no_call_at_all() {
    let service = service(&[NAMED]).await;
    for origin in ["https://evil.example", "http://shop.example", "https://shop.example.evil.example", "null", ""]
        .into_iter()
        .chain(["https://shop.example:444", "https://SHOP.example", "https://x.shop.example", "*"])
    {
        for ask in public_rows(origin) {
            assert_eq!(service.send(ask).await.header("access-control-allow-origin"), None, "{origin}");
        }
        for (path, method) in PUBLIC {
            let answer = service.send(preflight(path, method, origin)).await;
            assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}");
        }
    }
}
