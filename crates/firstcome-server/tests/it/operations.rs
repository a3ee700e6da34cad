//! Health and figures.

use crate::room;
use crate::service::{ADMIN, Ask, SERVICE, STRANGER, Service, claim, config, keys, redeem, send};
use firstcome_server::Config;
use firstcome_server::api::{FiguresFor, admin_router};
use firstcome_server::auth::KeyDigest;
use serde_json::json;
use std::collections::BTreeMap;

/// Samples by name and labels.
fn samples(metrics: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line} is no figure"));
        assert!(value.is_finite() && 0.0 <= value, "{line}");
        assert!(samples.insert(name.to_owned(), value).is_none(), "{name} stands twice");
    }
    samples
}

fn requests(samples: &BTreeMap<String, f64>, route: &str, status: u16) -> f64 {
    samples[&format!("firstcome_http_requests_total{{route=\"{route}\",status=\"{status}\"}}")]
}

#[tokio::test]
async fn figures_are_open_metrics_and_whole() {
    let service = Service::memory();
    let answer = service.send(Ask::get("/metrics").by(ADMIN)).await.is(200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(kind));
    let text = answer.body();
    assert!(text.ends_with("# EOF\n"), "whole");
    let mut described: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(!help.is_empty() && !described.contains(&name), "{line}");
            described.push(name);
        } else if !line.starts_with('#') {
            assert!(described.iter().any(|name| line.starts_with(name)), "{line} is not described");
        }
    }
    assert!(20 < samples(&text).len());
}

#[tokio::test]
async fn figures_count_what_happened() {
    let service = Service::memory();
    let before = samples(&service.metrics().await);
    service.make("launch", json!({"limit": 1})).await;
    let code = service.claim_code("launch", "ann").await;
    service.claim("launch", "bob").await.refused(409, "sold_out");
    service.send(claim("launch", "cid").without("authorization")).await.refused(401, "unauthorized");
    service.redeem("launch", &code).await.is(201);
    service.show("launch").await.is(200);
    service.claim_of("launch", "ann").await.is(200);
    service.claims("launch", "").await.is(200);
    service.send(Ask::delete("/v1/coupons/launch").by(ADMIN)).await.is(204);
    let after = samples(&service.metrics().await);
    for (route, status) in [
        ("put_coupon", 201),
        ("post_claim", 201),
        ("post_claim", 409),
        ("post_claim", 401),
        ("post_redemption", 201),
        ("get_coupon", 200),
        ("get_claim", 200),
        ("get_claims", 200),
        ("delete_coupon", 204),
    ] {
        let counted = requests(&after, route, status) - requests(&before, route, status);
        assert_eq!(counted, 1.0, "{route} {status}");
    }
    for code in ["sold_out", "unauthorized"] {
        let refusals = format!("firstcome_refusals_total{{code=\"{code}\"}}");
        assert_eq!(after[&refusals] - before[&refusals], 1.0, "{code}");
    }
    let claims = "firstcome_http_request_duration_seconds_count{route=\"post_claim\"}";
    assert_eq!(after[claims], 3.0);
    assert_eq!(after["firstcome_store_coupons"], 1.0);
    assert_eq!(after["firstcome_store_writable"], 1.0);
    assert_eq!(after["firstcome_store_batch_changes_sum"], 4.0, "made, claimed, redeemed, deleted");
    for (name, value) in &before {
        let gauge = name.starts_with("firstcome_store_queue") || name.starts_with("firstcome_connections");
        assert!(gauge || value <= &after[name], "{name} fell");
    }
}

#[tokio::test]
async fn figures_count_what_happened_in_rooms() {
    let service = Service::memory();
    let before = samples(&service.metrics().await);
    service.make_room("sale", json!({"max_active": 1, "claim_window_ms": 10_000, "active_ttl_ms": 60_000})).await;
    let [first, second, third] =
        [service.ticket("sale").await, service.ticket_of("sale", "ann").await, service.ticket("sale").await];
    service.send(room::join_as("sale", "ann")).await.is(200);
    service.tick().await;
    // The first one does not come, the second one does and gives it back, the third one leaves.
    service.pass_ms(10_000).await;
    let pass = service.admitted("sale", &second).await;
    let mid = samples(&service.metrics().await);
    assert_eq!((mid["firstcome_room_waiting"], mid["firstcome_room_active"]), (2.0, 1.0));
    service.leave("sale", &third).await.is(204);
    service.send(room::verify("sale", &pass)).await.is(200);
    service.send(room::release("sale", &pass)).await.is(204);
    service.send(room::release("sale", "x")).await.refused(403, "invalid_pass");
    service.poll("sale", "x").await.refused(404, "unknown_ticket");
    // The first one comes back, is admitted, and stays to the end.
    service.poll("sale", &first).await.is(200);
    service.admitted("sale", &first).await;
    service.pass_ms(60_000).await;
    service.send(Ask::get("/v1/pass-keys")).await.is(200);
    service.send(Ask::post("/v1/pass-keys").by(ADMIN)).await.is(201);
    service.send(Ask::delete("/v1/pass-keys/1").by(ADMIN)).await.is(200);
    service.close_room("sale").await.is(204);
    service.send(room::join("sale")).await.refused(410, "room_closed");
    let after = samples(&service.metrics().await);
    for (name, count) in [("joined", 3.0), ("admitted", 3.0), ("taken", 2.0), ("lapsed", 1.0), ("left", 2.0)] {
        let name = format!("firstcome_room_{name}_total");
        assert_eq!(after[&name] - before[&name], count, "{name}");
    }
    assert_eq!(after["firstcome_room_expired_total"], 1.0);
    assert_eq!(after["firstcome_rooms"], 1.0);
    assert_eq!((after["firstcome_room_waiting"], after["firstcome_room_active"]), (0.0, 0.0));
    for (route, status, count) in [
        ("put_room", 201, 1.0),
        ("delete_room", 204, 1.0),
        ("post_ticket", 201, 3.0),
        ("post_ticket", 200, 1.0),
        ("post_ticket", 410, 1.0),
        ("get_ticket", 200, 3.0),
        ("get_ticket", 404, 1.0),
        ("delete_ticket", 204, 1.0),
        ("post_verify", 200, 1.0),
        ("post_release", 204, 1.0),
        ("post_release", 403, 1.0),
        ("get_pass_keys", 200, 1.0),
        ("post_pass_key", 201, 1.0),
    ] {
        assert_eq!(requests(&after, route, status) - requests(&before, route, status), count, "{route} {status}");
    }
    for code in ["unknown_ticket", "room_closed", "invalid_pass"] {
        assert_eq!(after[&format!("firstcome_refusals_total{{code=\"{code}\"}}")], 1.0, "{code}");
    }
}

#[tokio::test]
async fn buckets_of_a_histogram_rise_to_its_count() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    for number in 0..20 {
        service.claim("launch", &format!("user{number}")).await;
    }
    let text = service.metrics().await;
    let samples = samples(&text);
    let mut histograms = 0;
    let mut before = 0.0;
    for line in text.lines().filter(|line| line.contains("_bucket{")) {
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        let value: f64 = value.parse().expect("a figure");
        assert!(before <= value, "{line} fell");
        before = value;
        let (series, rest) = name.split_once("_bucket{le=\"+Inf\"").unwrap_or((name, ""));
        if series != name {
            let labels = rest.trim_start_matches(',').trim_end_matches('}');
            let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            assert_eq!(samples[&format!("{series}_count{labels}")], value, "{line}");
            (before, histograms) = (0.0, histograms + 1);
        }
    }
    assert_eq!(histograms, 76, "one for each of 72 routes, 2 of the store, 2 of locks");
}

#[tokio::test]
async fn labels_come_from_fixed_lists_everything_that_is_asked() {
    let service = Service::memory();
    let names = |metrics: &str| samples(metrics).into_keys().collect::<Vec<_>>();
    let before = names(&service.metrics().await);
    for number in 0..50 {
        let (coupon, user) = (format!("labelcoupon{number}"), format!("labeluser{number}"));
        service.make(&coupon, json!({"limit": 1, "title": "labeltitle", "room": "labelroom"})).await;
        service.claim(&coupon, &user).await.is(201);
        service.send(redeem(&coupon, &json!({"code": "labelcode", "user": user}))).await.refused(404, "unknown_code");
        service.send(Ask::get(&format!("/labelpath{number}"))).await.refused(404, "not_found");
        service.claim(&coupon, "label wrong").await.refused(400, "invalid_name");
        service.make_room(&format!("labelroom{number}"), json!({"max_active": 1, "message": "labelmessage"})).await;
        service.send(room::join_as(&format!("labelroom{number}"), &user)).await.is(201);
        service.hold(&format!("labellock{number}"), &user).await;
    }
    let metrics = service.metrics().await;
    assert_eq!(names(&metrics), before, "as many series as before");
    assert!(!metrics.contains("label"), "no name of anybody");
}

#[tokio::test]
async fn a_port_for_operators_has_figures_and_health_and_nothing_else() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 1})).await;
    let router = admin_router(service.app.clone(), FiguresFor::AnyClient);
    let ask = async |ask: Ask| send(router.clone(), ask).await;
    assert!(ask(Ask::get("/metrics")).await.is(200).body().contains("firstcome_store_coupons 1"));
    assert_eq!(ask(Ask::get("/healthz")).await.is(200).body(), "ok\n");
    for path in ["/readyz", "/readyz?of=node"] {
        ask(Ask::get(path)).await.is(200);
    }
    for path in ["/", "/docs", "/v1/coupons/launch", "/openapi.json"] {
        ask(Ask::get(path).by(ADMIN)).await.refused(404, "not_found");
    }
    ask(Ask::put("/v1/coupons/new").by(ADMIN).json(&json!({"limit": 1}))).await.refused(404, "not_found");
    ask(Ask::post("/metrics")).await.refused(405, "method_not_allowed");
    assert_eq!(service.coupons().await, 1);
}

#[tokio::test]
async fn a_port_for_operators_that_others_reach_shows_figures_to_keys_alone() {
    const VIEW: &str = "canary-view-0123456789";
    let keys = keys().with_view_keys([KeyDigest::of(VIEW)]);
    let service = Service::memory_with(Config { keys, ..config() });
    let router = admin_router(service.app.clone(), FiguresFor::Keys);
    let ask = async |ask: Ask| send(router.clone(), ask).await;
    let told = ask(Ask::get("/metrics")).await.refused(401, "unauthorized");
    assert_eq!(told.header("www-authenticate"), Some("Bearer"));
    ask(Ask::get("/metrics").by(STRANGER)).await.refused(401, "unauthorized");
    for key in [VIEW, SERVICE, ADMIN] {
        assert!(ask(Ask::get("/metrics").by(key)).await.is(200).body().contains("firstcome_store_coupons 0"));
    }
    assert_eq!(ask(Ask::get("/healthz")).await.is(200).body(), "ok\n");
    ask(Ask::get("/readyz")).await.is(200);
}
