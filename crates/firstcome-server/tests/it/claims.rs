//! The rows that claim and that show claims.

use crate::service::{ADMIN, Ask, SERVICE, claim};
use crate::stores::on_each;
use serde_json::json;
use std::collections::BTreeSet;

pub(crate) async fn claims_are_issued_in_order_with_codes_of_their_own() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 3})).await;
        let durability = service.durability();
        let mut codes = BTreeSet::new();
        for (user, serial) in [("ann", 1), ("bob", 2), ("c@id:x-1", 3)] {
            service.set_clock(serial);
            let answer = service.claim("launch", user).await.is(201);
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let code = answer.text("code");
            let wanted = json!({"coupon": "launch", "user": user, "serial": serial, "code": code,
                "issued_at": format!("2030-01-01T00:00:0{serial}Z"), "durability": durability});
            assert_eq!(answer.json(), wanted);
            assert_eq!(service.claim_of("launch", user).await.is(200).json(), wanted);
            assert!(codes.insert(code), "every code is new");
        }
        service.claim("launch", "dan").await.refused(409, "sold_out");
        let view = service.show("launch").await.json();
        assert_eq!((&view["issued"], &view["remaining"], &view["state"]), (&json!(3), &json!(0), &json!("sold_out")));
    })
    .await;
}

pub(crate) async fn a_second_claim_of_a_user_is_told_the_first() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 1})).await;
        let first = service.claim("launch", "ann").await.is(201).json();
        for ask in [claim("launch", "ann"), claim("launch", "ann").by(ADMIN), claim("launch", "ann").once("new")] {
            let again = service.send(ask).await.refused(409, "already_issued");
            assert_eq!(again.json()["claim"], first, "also when all are issued");
        }
        assert_eq!(service.issued("launch").await, 1);
    })
    .await;
}

pub(crate) async fn before_the_opening_a_claim_is_told_how_long_to_wait() {
    on_each(async |service| {
        service.make("soon", json!({"limit": 1, "opens_at": "2030-01-01T00:00:01.5Z"})).await;
        let early = service.claim("soon", "ann").await.refused(425, "not_open");
        assert_eq!(early.json()["retry_after_ms"], 1_500);
        assert_eq!(early.header("retry-after"), Some("2"), "seconds, rounded up");
        assert_eq!(early.text("opens_at"), "2030-01-01T00:00:01.5Z");
        service.set_clock(1);
        assert_eq!(service.claim("soon", "ann").await.refused(425, "not_open").json()["retry_after_ms"], 500);
        service.set_clock(2);
        service.claim("soon", "ann").await.is(201);
    })
    .await;
}

pub(crate) async fn from_the_end_on_a_claim_is_told_that_it_is_over() {
    on_each(async |service| {
        service.make("brief", json!({"limit": 9, "expires_at": "2030-01-01T00:00:10Z"})).await;
        service.set_clock(9);
        service.claim("brief", "ann").await.is(201);
        service.set_clock(10);
        let late = service.claim("brief", "bob").await.refused(410, "expired");
        assert_eq!(late.text("expired_at"), "2030-01-01T00:00:10Z");
        service.claim("brief", "ann").await.refused(409, "already_issued");
        // An operator may give more time.
        service.put("brief", json!({"limit": 9})).await.is(200);
        service.claim("brief", "bob").await.is(201);
        // A window in the past is accepted, and over.
        service.make("past", json!({"limit": 1, "expires_at": "1970-01-01T00:00:00Z"})).await;
        service.claim("past", "ann").await.refused(410, "expired");
    })
    .await;
}

pub(crate) async fn a_coupon_with_a_room_needs_a_pass_or_a_service_key() {
    on_each(async |service| {
        service.make("roomy", json!({"limit": 9, "room": "lobby"})).await;
        service.make("plain", json!({"limit": 9})).await;
        let public = |coupon| claim(coupon, "ann").without("authorization");
        service.send(public("roomy")).await.refused(403, "pass_required");
        service.send(public("plain")).await.refused(401, "unauthorized");
        service.send(public("none")).await.refused(401, "unauthorized");
        // A pass that is sent is always judged, a user that sends it.
        for coupon in ["roomy", "plain"] {
            for ask in [public(coupon), claim(coupon, "ann"), claim(coupon, "ann").by(ADMIN)] {
                service.send(ask.header("x-firstcome-pass", "anything")).await.refused(403, "invalid_pass");
            }
        }
        assert_eq!((service.issued("roomy").await, service.issued("plain").await), (0, 0));
        service.claim("roomy", "ann").await.is(201);
    })
    .await;
}

pub(crate) async fn attributes_stay_with_the_claim() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let attributes =
            json!({"nickname": "Ann \"é\" 🎫", "phone": "+49 30 1", "tags": [1, 2.5, null, true, {"a": {}}]});
        let body = json!({"user": "ann", "attributes": attributes});
        let claimed = service.send(claim("launch", "ann").json(&body)).await.is(201).json();
        assert!(claimed.get("attributes").is_none(), "who claims knows them");
        assert_eq!(service.claim_of("launch", "ann").await.is(200).json()["attributes"], attributes);
        assert_eq!(service.claims("launch", "").await.is(200).json()["items"][0]["attributes"], attributes);
        service.send(claim("launch", "bob").json(&json!({"user": "bob", "attributes": null}))).await.is(201);
        assert!(service.claim_of("launch", "bob").await.json().get("attributes").is_none());
        service.send(claim("launch", "cid").json(&json!({"user": "cid", "attributes": {}}))).await.is(201);
        assert_eq!(service.claim_of("launch", "cid").await.json()["attributes"], json!({}));
    })
    .await;
}

pub(crate) async fn attributes_come_back_digit_by_digit_and_in_one_spelling() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let sent = r#"{ "b" : [ 1.10 , {} , [] ], "a":12345678901234567890123456789, "c":1e308, "d":"\u0061\n\"" }"#;
        let kept = r#""attributes":{"a":12345678901234567890123456789,"b":[1.10,{},[]],"c":1e308,"d":"a\n\""}"#;
        let body = format!("{{\"user\":\"ann\",\"attributes\":{sent}}}");
        service.send(claim("launch", "").raw(body)).await.is(201);
        let shown = service.claim_of("launch", "ann").await.is(200).body();
        assert!(shown.contains(kept), "{shown}");
    })
    .await;
}

pub(crate) async fn who_has_no_claim_is_not_found() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        service.claim_of("launch", "ann").await.refused(404, "unknown_claim");
        // Users of passes may be looked up, though no user may claim under such a name.
        service.claim_of("launch", "pass:7").await.refused(404, "unknown_claim");
        service.claim("launch", "ann").await.is(201);
        let found = service.claim_of("launch", "%61nn").await.is(200);
        assert_eq!(found.text("user"), "ann", "a name may be percent-encoded");
        assert_eq!(found.header("cache-control"), Some("no-store"));
    })
    .await;
}

pub(crate) async fn pages_of_claims_are_whole_and_in_order() {
    on_each(async |service| {
        service.make("many", json!({"limit": 150})).await;
        for number in 1..=105 {
            service.claim("many", &format!("user{number}")).await.is(201);
        }
        let page = async |query: &str| {
            let answer = service.claims("many", query).await.is(200);
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            let json = answer.json();
            let items = json["items"].as_array().expect("items").clone();
            let serials: Vec<u64> = items.iter().filter_map(|item| item["serial"].as_u64()).collect();
            (serials, json.get("next").and_then(|next| next.as_u64()))
        };
        let upto = |first: u64, last: u64| (first..=last).collect::<Vec<_>>();
        assert_eq!(page("").await, (upto(1, 100), Some(100)));
        assert_eq!(page("?after=100").await, (upto(101, 105), None));
        assert_eq!(page("?limit=1000").await, (upto(1, 105), None));
        assert_eq!(page("?after=0&limit=2").await, (upto(1, 2), Some(2)));
        assert_eq!(page("?limit=1&after=104").await, (upto(105, 105), None));
        for after in ["105", "106", "99999999", "100000000"] {
            assert_eq!(page(&format!("?after={after}")).await, (vec![], None), "{after}");
        }
    })
    .await;
}

pub(crate) async fn a_page_that_does_not_exist_is_refused() {
    on_each(async |service| {
        service.make("many", json!({"limit": 1})).await;
        for query in ["after=x", "after=-1", "after=", "after", "after=100000001", "after=1.0", "after=%31", "limit=0"]
            .into_iter()
            .chain(["limit=1001", "limit=-1", "limit=4294967297", "limit=1e2", "offset=1", "After=1", "=1", "%FF=1"])
        {
            service.claims("many", &format!("?{query}")).await.refused(400, "invalid_query");
        }
    })
    .await;
}

pub(crate) async fn a_summary_is_public_and_claims_are_not() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        service.claim("launch", "ann").await.is(201);
        service.show("launch").await.is(200);
        service.send(Ask::get("/v1/coupons/launch/claims/ann")).await.refused(401, "unauthorized");
        service.send(Ask::get("/v1/coupons/launch/claims")).await.refused(401, "unauthorized");
        service.send(Ask::get("/v1/coupons/launch/claims").by(SERVICE)).await.refused(403, "forbidden");
    })
    .await;
}
