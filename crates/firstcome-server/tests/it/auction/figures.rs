//! The figures of bids, purchases and points.

use super::{auction, auction_with, bid, charge, fixed_price, purchase, refund};
use crate::running::until;
use crate::service::Service;
use serde_json::json;
use std::collections::BTreeMap;

async fn figures(service: &Service) -> BTreeMap<String, f64> {
    let metrics = service.metrics().await;
    let lines = metrics.lines().filter(|line| line.starts_with("firstcome_"));
    let sample = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    lines.filter_map(sample).collect()
}

pub(crate) async fn figures_count_what_happened_in_auctions() {
    let service = Service::memory();
    service.fund(["figureann", "figurebob"], 1_000).await;
    for _ in 0..2 {
        service.send(charge("figureann", 5).once("k1")).await.is(200);
        service.send(refund("figureann", 3).once("k1")).await.is(200);
    }
    service.send(refund("figureann", 9_999)).await.refused(409, "insufficient_points");
    service.list("figurelamp", &auction_with(10, json!({"settle_within_ms": 1_000}))).await;
    service.list("figurering", &auction(10)).await;
    service.list("figurevase", &fixed_price()).await;
    for _ in 0..2 {
        service.send(bid("figurelamp", "figureann", 100).once("k1")).await.is(201);
    }
    service.send(bid("figurelamp", "figurebob", 100).once("k1")).await.refused(422, "idempotency_key_reused");
    service.bid("figurelamp", "eve", 300).await.refused(409, "own_listing");
    service.bid("figurelamp", "figureann", 300).await.refused(409, "already_highest_bidder");
    service.bid("figurelamp", "figurebob", 100).await.refused(409, "bid_too_low");
    service.bid("figurelamp", "figurebob", 1_001).await.refused(409, "insufficient_points");
    service.bid("figurevase", "figurebob", 100).await.refused(409, "not_in_progress");
    service.bid("none", "figurebob", 100).await.refused(404, "unknown_listing");
    service.bid("figurelamp", "figure bob", 100).await.refused(400, "invalid_name");
    service.bid("figurering", "figurebob", 250).await.is(201);
    for _ in 0..2 {
        service.send(purchase("figurevase", "figurebob").once("k1")).await.is(201);
    }
    service.set_clock(12);
    until(async || figures(&service).await["firstcome_auctions_defaulted_total"] == 1.0).await;
    service.buy("figurering", "figurebob").await.is(201);
    let figures = figures(&service).await;
    for (name, wanted) in [
        ("bids_total{outcome=\"accepted\"}", 2.0),
        ("bids_total{outcome=\"idempotency_key_reused\"}", 1.0),
        ("bids_total{outcome=\"own_listing\"}", 1.0),
        ("bids_total{outcome=\"already_highest_bidder\"}", 1.0),
        ("bids_total{outcome=\"bid_too_low\"}", 1.0),
        ("bids_total{outcome=\"insufficient_points\"}", 1.0),
        ("bids_total{outcome=\"not_in_progress\"}", 1.0),
        ("bids_total{outcome=\"unknown_listing\"}", 1.0),
        ("purchases_total", 2.0),
        ("points_moved_total{kind=\"charge\"}", 2_005.0),
        ("points_moved_total{kind=\"refund\"}", 3.0),
        ("points_moved_total{kind=\"sale\"}", 350.0),
        ("auctions_closed_total", 2.0),
        ("auctions_defaulted_total", 1.0),
        ("listings", 3.0),
        ("members", 3.0),
        ("http_requests_total{route=\"post_bid\",status=\"201\"}", 3.0),
        ("http_requests_total{route=\"post_charge\",status=\"200\"}", 4.0),
        ("http_requests_total{route=\"post_refund\",status=\"409\"}", 1.0),
        ("http_requests_total{route=\"put_listing\",status=\"201\"}", 3.0),
        ("http_requests_total{route=\"post_purchase\",status=\"201\"}", 3.0),
        ("http_request_duration_seconds_count{route=\"post_bid\"}", 11.0),
    ] {
        assert_eq!(figures[&format!("firstcome_{name}")], wanted, "{name}");
    }
    assert!(!service.metrics().await.contains("figure"), "no name of anybody");
}
