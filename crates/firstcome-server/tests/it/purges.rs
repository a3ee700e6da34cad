//! Purges that an operator asks for.

use crate::auction::{charge, fixed_price, purchase as buy, put};
use crate::service::{ADMIN, Ask, Service, claim, config};
use crate::stores::clock;
use firstcome::Embedded;
use firstcome_server::App;
use serde_json::{Value, json};
use std::sync::Arc;

const DAY_MS: u64 = 86_400_000;

fn purge(body: &Value) -> Ask {
    Ask::post("/v1/purge").by(ADMIN).json(body)
}

fn service() -> Service {
    let clock = clock();
    Service::new(Embedded::memory_with(Arc::clone(&clock) as _), clock, config())
}

/// A claim with an idempotency key, by a service.
fn keyed(user: &str) -> Ask {
    claim("launch", user).header("idempotency-key", "0123456789012345678901")
}

pub(crate) async fn keys_of_old_requests_are_purged_and_counted() {
    let service = service();
    service.send(Ask::put("/v1/coupons/launch").by(ADMIN).json(&json!({"limit": 9}))).await.is(201);
    service.send(keyed("ann")).await.is(201);
    let counts = |requests: u64| json!({"requests": requests, "tickets": 0, "admissions": 0, "claims": 0, "coupons": 0, "dead_letters": 0});
    assert_eq!(service.send(purge(&json!({}))).await.is(200).json(), counts(0));
    service.clock.pass_ms(31 * DAY_MS);
    assert_eq!(service.send(purge(&json!({"dry_run": true}))).await.is(200).json(), counts(1));
    service.send(keyed("ann")).await.is(201);
    assert_eq!(service.send(purge(&json!({}))).await.is(200).json(), counts(1));
    service.send(keyed("ann")).await.refused(409, "already_issued");
    let figures = service.send(Ask::get("/metrics").by(ADMIN)).await.is(200);
    let text = figures.body();
    assert!(text.contains("firstcome_purged_rows_total{kind=\"requests\"} 1\n"), "{text}");
}

pub(crate) async fn a_purge_with_a_wrong_clock_is_refused_unless_an_operator_trusts_it() {
    let service = service();
    service.send(purge(&json!({}))).await.is(200);
    service.clock.pass_ms(400 * DAY_MS);
    let refused = service.send(purge(&json!({}))).await.refused(409, "purge_refused");
    assert_eq!(refused.json()["reason"], "clock_ahead");
    service.send(purge(&json!({"trust_clock": true}))).await.is(200);
    service.send(purge(&json!({}))).await.is(200);
}

pub(crate) async fn a_service_of_listings_alone_purges_keys_of_bids() {
    let clock = clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    let service = Service::of(App::of_auctions(store.clone(), config()), store, clock);
    service.send(charge("ann", 100)).await.is(200);
    service.send(put("lamp", &fixed_price())).await.is(201);
    service.send(buy("lamp", "ann").once("one")).await.is(201);
    service.clock.pass_ms(31 * DAY_MS);
    let purged = service.send(purge(&json!({}))).await.is(200).json();
    assert_eq!(purged["requests"], 1);
}
