//! Bodies of auctions: integers within their limits, fields that belong together, and nothing else.

use super::{AMOUNT_MAX, auction, auction_with, bid, charge, fixed_price, look, purchase, put, refund};
use crate::service::{Ask, SERVICE, Service};
use serde_json::{Value, json};

const AMOUNT: &str = "must be a whole number from 1 to 1000000000000";

/// What is no amount, as JSON.
const NO_AMOUNTS: [&str; 16] = [
    "0",
    "-0",
    "-1",
    "1.5",
    "1.0",
    "1e3",
    "1e-3",
    "1000000000001",
    "18446744073709551616",
    "-9223372036854775809",
    "\"7\"",
    "true",
    "null",
    "[]",
    "[7]",
    "{}",
];

pub(crate) async fn amounts_are_whole_numbers_within_their_limits() {
    let service = Service::memory();
    service.fund(["ann"], 1_000).await;
    service.list("lamp", &auction(10)).await;
    for value in NO_AMOUNTS {
        for (ask, field, body) in [
            (charge("ann", 1), "amount", format!("{{\"amount\":{value}}}")),
            (refund("ann", 1), "amount", format!("{{\"amount\":{value}}}")),
            (bid("lamp", "ann", 1), "price", format!("{{\"bidder\":\"ann\",\"price\":{value}}}")),
            (
                put("vase", &json!({})),
                "price",
                format!("{{\"owner\":\"eve\",\"kind\":\"fixed_price\",\"price\":{value}}}"),
            ),
        ] {
            let answer = service.send(ask.raw(body)).await.refused(400, "invalid_field");
            answer.about(field, &format!("{field} {AMOUNT}"));
        }
        if value != "null" {
            let body = auction(10).to_string().replace('}', &format!(",\"min_increment\":{value}}}"));
            let answer = service.send(put("vase", &json!({})).raw(body)).await.refused(400, "invalid_field");
            answer.about("min_increment", &format!("min_increment {AMOUNT}"));
        }
    }
    service.send(charge("ann", 1).raw("{\"amount\":1e400}")).await.refused(400, "invalid_json");
    assert_eq!(
        (service.balance("ann").await, service.listing("lamp").await["bids"].clone()),
        ((1_000, 1_000), json!(0))
    );
    service.send(look("vase")).await.refused(404, "unknown_listing");
    // At their limits.
    service.send(charge("bob", AMOUNT_MAX)).await.is(200);
    service.send(refund("bob", 1)).await.is(200);
    service.send(charge("bob", 1)).await.is(200);
    let edge = json!({"price": AMOUNT_MAX, "min_increment": AMOUNT_MAX});
    service.list("vase", &auction_with(10, edge)).await;
    service.bid("vase", "bob", AMOUNT_MAX).await.is(201);
    // No member can bid more: the least price is one that no bid can have.
    let least = service.bid("vase", "ann", AMOUNT_MAX).await.refused(409, "bid_too_low").json()["minimum"].as_u64();
    assert_eq!(least, Some(2 * AMOUNT_MAX));
}

pub(crate) async fn settings_of_a_listing_fit_its_kind() {
    let service = Service::memory();
    let refused = async |settings: &Value, field: &str, detail: &str| {
        let answer = service.send(put("lamp", settings)).await.refused(400, "invalid_field");
        answer.about(field, &format!("{field} {detail}"));
    };
    let with = |further: Value| auction_with(10, further);
    let mut without_end = auction(10);
    without_end.as_object_mut().expect("an object").remove("ends_at");
    refused(&without_end, "ends_at", "must be given for an auction").await;
    refused(&with(json!({"ends_at": null})), "ends_at", "must be given for an auction").await;
    let time = "must be an RFC 3339 time, such as 2030-01-01T00:00:00Z";
    for field in ["ends_at", "starts_at"] {
        for value in ["", "soon", "2030-01-01", "1893456000"] {
            let mut settings = auction(10);
            settings[field] = json!(value);
            refused(&settings, field, time).await;
        }
        let mut settings = auction(10);
        settings[field] = json!(7);
        refused(&settings, field, "must be a string").await;
    }
    for kind in ["", "Auction", "dutch", &"x".repeat(60_000)] {
        refused(&with(json!({"kind": kind})), "kind", "must be fixed_price or auction").await;
    }
    for (field, value) in [
        ("ends_at", json!(super::instant(10))),
        ("min_increment", json!(5)),
        ("extend", json!({"window_ms": 1, "by_ms": 1, "max_count": 1})),
        ("settle_within_ms", json!(1_000)),
        ("on_default", json!("release")),
    ] {
        let mut settings = fixed_price();
        settings[field] = value;
        refused(&settings, field, "must be left out for a fixed price").await;
        settings[field] = Value::Null;
        service.send(put(&format!("without-{field}"), &settings)).await.is(201);
    }
    refused(&with(json!({"on_default": "release"})), "on_default", "must come with settle_within_ms").await;
    let next = json!({"on_default": "next_bidder", "settle_within_ms": 1_000});
    refused(&with(next), "on_default", "must be release").await;
    service.send(look("lamp")).await.refused(404, "unknown_listing");
}

pub(crate) async fn times_of_a_listing_are_taken_at_their_limits_and_refused_beyond() {
    let service = Service::memory();
    let extend = |window_ms: Value, by_ms: Value, max_count: Value| {
        let extend = json!({"window_ms": window_ms, "by_ms": by_ms, "max_count": max_count});
        auction_with(10, json!({"extend": extend}))
    };
    let (day_ms, year_ms) = (86_400_000_u64, 31_622_400_000_u64);
    for (settings, field, most) in [
        (extend(json!(0), json!(1), json!(1)), "extend.window_ms", day_ms),
        (extend(json!(day_ms + 1), json!(1), json!(1)), "extend.window_ms", day_ms),
        (extend(json!(1), json!(0), json!(1)), "extend.by_ms", day_ms),
        (extend(json!(1), json!(day_ms + 1), json!(1)), "extend.by_ms", day_ms),
        (extend(json!(1), json!(1), json!(0)), "extend.max_count", 1_000),
        (extend(json!(1), json!(1), json!(1_001)), "extend.max_count", 1_000),
        (auction_with(10, json!({"settle_within_ms": 0})), "settle_within_ms", year_ms),
        (auction_with(10, json!({"settle_within_ms": year_ms + 1})), "settle_within_ms", year_ms),
    ] {
        let answer = service.send(put("lamp", &settings)).await.refused(400, "invalid_field");
        answer.about(field, &format!("{field} must be 1 to {most}"));
    }
    let whole = "must be a whole number within its limits";
    for (settings, field) in [
        (extend(json!(1.5), json!(1), json!(1)), "extend.window_ms"),
        (extend(json!(1), json!(-1), json!(1)), "extend.by_ms"),
        (extend(json!(1), json!(1), json!("1")), "extend.max_count"),
        (extend(json!(1), json!(1), json!(4_294_967_296_u64)), "extend.max_count"),
        (auction_with(10, json!({"settle_within_ms": 0.5})), "settle_within_ms"),
    ] {
        let answer = service.send(put("lamp", &settings)).await.refused(400, "invalid_field");
        answer.about(field, &format!("{field} {whole}"));
    }
    let object = "extend must be an object with window_ms, by_ms and max_count";
    for value in [json!([1, 1, 1]), json!(7), json!("x"), json!(true)] {
        let answer = service.send(put("lamp", &auction_with(10, json!({"extend": value})))).await;
        answer.refused(400, "invalid_field").about("extend", object);
    }
    for value in
        [json!({}), json!({"window_ms": 1, "by_ms": 1}), json!({"window_ms": 1, "by_ms": 1, "max_count": 1, "x": 1})]
    {
        service.send(put("lamp", &auction_with(10, json!({"extend": value})))).await.refused(400, "invalid_field");
    }
    for (name, settings) in [
        ("least", extend(json!(1), json!(1), json!(1))),
        ("most", extend(json!(day_ms), json!(day_ms), json!(1_000))),
        ("soon", auction_with(10, json!({"settle_within_ms": 1}))),
        ("late", auction_with(10, json!({"settle_within_ms": year_ms, "on_default": "release"}))),
    ] {
        service.list(name, &settings).await;
    }
    let ever = json!({"owner": "eve", "kind": "auction", "price": 1, "starts_at": "0001-01-01T00:00:00Z",
        "ends_at": "9999-12-31T23:59:59.999999Z", "settle_within_ms": year_ms});
    assert_eq!(service.list("ever", &ever).await["settles_until"], "9999-12-31T23:59:59.999999Z");
}

pub(crate) async fn fields_of_auctions_are_all_there_and_no_others() {
    let service = Service::memory();
    service.fund(["ann"], 1_000).await;
    service.list("lamp", &auction(10)).await;
    let missing = |field: &str| format!("missing field `{field}`");
    for (ask, field) in [
        (charge("ann", 1).json(&json!({})), "amount"),
        (refund("ann", 1).json(&json!({})), "amount"),
        (bid("lamp", "ann", 1).json(&json!({"bidder": "ann"})), "price"),
        (bid("lamp", "ann", 1).json(&json!({"price": 100})), "bidder"),
        (purchase("lamp", "ann").json(&json!({})), "buyer"),
        (put("vase", &json!({"kind": "fixed_price", "price": 1})), "owner"),
        (put("vase", &json!({"owner": "eve", "price": 1})), "kind"),
        (put("vase", &json!({"owner": "eve", "kind": "fixed_price"})), "price"),
    ] {
        service.send(ask).await.refused(400, "invalid_field").about(field, &missing(field));
    }
    for (path, body) in [
        ("/v1/members/ann/points/charge", json!({"amount": 1})),
        ("/v1/members/ann/points/refund", json!({"amount": 1})),
        ("/v1/listings/lamp/bids", json!({"bidder": "ann", "price": 100})),
        ("/v1/listings/lamp/purchase", json!({"buyer": "ann"})),
    ] {
        let further = body.to_string().replace('}', ",\"admin\":true}");
        let answer = service.send(Ask::post(path).by(SERVICE).raw(further)).await.refused(400, "invalid_field");
        assert_eq!(answer.json()["field"], "admin", "{path}");
        let twice = body.to_string().replace('}', &format!(",{}", &body.to_string()[1..]));
        let answer = service.send(Ask::post(path).by(SERVICE).raw(twice)).await.refused(400, "invalid_field");
        assert!(answer.text("detail").starts_with("duplicate field"), "{}", answer.body());
        for body in ["null", "[]", "7", "[\"ann\",1]"] {
            service.send(Ask::post(path).by(SERVICE).raw(body)).await.refused(400, "invalid_field");
        }
        service.send(Ask::post(path).by(SERVICE).raw("nonsense")).await.refused(400, "invalid_json");
        service.send(Ask::post(path).by(SERVICE).raw(vec![b' '; 65_537])).await.refused(413, "body_too_large");
        let plain = Ask::post(path).by(SERVICE).json(&body).header("content-type", "text/plain");
        service.send(plain).await.refused(415, "unsupported_media_type");
    }
    assert_eq!(
        (service.balance("ann").await, service.listing("lamp").await["bids"].clone()),
        ((1_000, 1_000), json!(0))
    );
}
