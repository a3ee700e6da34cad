//! Purges that an operator asks for.

use crate::auction::{self, charge, fixed_price, purchase as buy, put};
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
    let counts = |requests: u64| json!({"requests": requests, "tickets": 0, "admissions": 0, "claims": 0, "coupons": 0, "dead_letters": 0, "records": 0, "heads": 0});
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

pub(crate) async fn removed_records_are_told_from_records_that_never_were() {
    let clock = clock();
    let mut config = config();
    config.retention.records = Some(std::time::Duration::from_secs(31 * 86_400));
    let service = Service::new(Embedded::memory_with(Arc::clone(&clock) as _), clock, config);
    for amount in [1, 2, 3] {
        service.send(auction::charge("ann", amount)).await.is(200);
    }
    service.clock.pass_ms(32 * DAY_MS);
    service.send(auction::charge("ann", 4)).await.is(200);
    let before = service.send(auction::records("ann", "")).await.is(200).json();
    assert_eq!((before["items"].as_array().map(Vec::len), before.get("removed_to")), (Some(4), None));
    assert_eq!(service.send(purge(&json!({}))).await.is(200).json()["records"], 3);
    for query in ["", "?after=0", "?after=3"] {
        let page = service.send(auction::records("ann", query)).await.is(200).json();
        assert_eq!((page["items"].as_array().map(Vec::len), &page["removed_to"]), (Some(1), &json!(3)), "{query}");
        assert_eq!(page["items"][0], before["items"][3], "{query}: what stays is as it was");
    }
    for query in ["?after=1", "?after=2"] {
        let refused = service.send(auction::records("ann", query)).await.refused(410, "records_removed");
        assert_eq!(refused.json()["removed_to"], 3, "{query}");
    }
    let beyond = service.send(auction::records("ann", "?after=9")).await.is(200).json();
    assert_eq!((&beyond["items"], &beyond["removed_to"]), (&json!([]), &json!(3)));
    let text = service.send(Ask::get("/metrics").by(ADMIN)).await.is(200);
    assert!(text.body().contains("firstcome_purged_rows_total{kind=\"records\"} 3\n"), "{}", text.body());
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
