//! The rows that make, show and end a coupon.

use crate::service::{ADMIN, Ask, Service};
use crate::stores::on_each;
use serde_json::json;

pub(crate) async fn a_coupon_is_created_shown_and_replaced() {
    on_each(async |service| {
        let settings = json!({"limit": 3, "title": "Café <b>&", "opens_at": "2029-12-31T23:00:00-01:00",
            "expires_at": "2030-01-01T01:00:00Z", "redeem_until": "2031-01-01T00:00:00Z", "room": "lobby"});
        let created = service.put("launch", settings).await.is(201).shown();
        let wanted = json!({"coupon": "launch", "limit": 3, "issued": 0, "remaining": 3, "state": "open",
            "title": "Café <b>&", "room": "lobby", "opens_at": "2030-01-01T00:00:00Z",
            "expires_at": "2030-01-01T01:00:00Z", "redeem_until": "2031-01-01T00:00:00Z"});
        assert_eq!(created, wanted);
        assert_eq!(service.show("launch").await.is(200).json(), wanted);

        // What is left out is unset, and null is the same as left out.
        let replaced = service.put("launch", json!({"limit": 5, "title": null, "room": null})).await.is(200).shown();
        let wanted = json!({"coupon": "launch", "limit": 5, "issued": 0, "remaining": 5, "state": "open",
            "opens_at": null, "expires_at": null, "redeem_until": null});
        assert_eq!(replaced, wanted);
        assert_eq!(service.show("launch").await.is(200).json(), wanted);
    })
    .await;
}

pub(crate) async fn the_states_of_a_coupon_follow_its_window_and_its_claims() {
    on_each(async |service| {
        let window = json!({"limit": 1, "opens_at": "2030-01-01T00:00:10Z", "expires_at": "2030-01-01T00:00:20Z"});
        service.make("timed", window).await;
        assert_eq!(service.show("timed").await.text("state"), "scheduled");
        service.set_clock(10);
        assert_eq!(service.show("timed").await.text("state"), "open");
        service.claim("timed", "ann").await.is(201);
        assert_eq!(service.show("timed").await.text("state"), "sold_out");
        service.set_clock(20);
        assert_eq!(service.show("timed").await.text("state"), "expired");
        delete(service, "timed").await;
        assert_eq!(service.show("timed").await.text("state"), "deleted");
    })
    .await;
}

pub(crate) async fn a_limit_falls_no_lower_than_what_is_issued() {
    on_each(async |service| {
        service.make("few", json!({"limit": 3})).await;
        service.claim("few", "ann").await.is(201);
        service.claim("few", "bob").await.is(201);
        let refused = service.put("few", json!({"limit": 1})).await.refused(409, "limit_below_issued").json();
        assert_eq!(refused["issued"], 2);
        assert_eq!(service.show("few").await.json()["limit"], 3);
        service.put("few", json!({"limit": 2})).await.is(200);
        service.claim("few", "cid").await.refused(409, "sold_out");
    })
    .await;
}

pub(crate) async fn a_room_is_fixed_by_the_first_claim() {
    on_each(async |service| {
        service.make("roomy", json!({"limit": 3, "room": "lobby"})).await;
        service.put("roomy", json!({"limit": 3, "room": "hall"})).await.is(200);
        service.claim("roomy", "ann").await.is(201);
        for settings in [json!({"limit": 3}), json!({"limit": 3, "room": "lobby"})] {
            service.put("roomy", settings).await.refused(409, "room_fixed");
        }
        assert_eq!(service.show("roomy").await.text("room"), "hall");
        service.put("roomy", json!({"limit": 9, "room": "hall"})).await.is(200);
    })
    .await;
}

pub(crate) async fn a_deleted_coupon_is_gone_for_good_and_its_claims_stay() {
    on_each(async |service| {
        service.make("old", json!({"limit": 3})).await;
        let code = service.claim_code("old", "ann").await;
        assert!(delete(service, "old").await.is_empty(), "204 has no body");
        delete(service, "old").await;
        service.put("old", json!({"limit": 9})).await.refused(410, "deleted");
        service.claim("old", "bob").await.refused(410, "deleted");
        // The holder comes before the deletion: who retries must still see the coupon.
        assert_eq!(service.claim("old", "ann").await.refused(409, "already_issued").json()["claim"]["serial"], 1);
        service.claim_of("old", "ann").await.is(200);
        assert_eq!(service.claims("old", "").await.is(200).json()["items"][0]["user"], "ann");
        service.redeem("old", &code).await.is(201);
        assert_eq!(service.issued("old").await, 1);
    })
    .await;
}

async fn delete(service: &Service, coupon: &str) -> Vec<u8> {
    service.send(Ask::delete(&format!("/v1/coupons/{coupon}")).by(ADMIN)).await.is(204).bytes
}

pub(crate) async fn every_call_about_a_coupon_that_does_not_exist_says_so() {
    on_each(async |service| {
        service.show("none").await.refused(404, "unknown_coupon");
        service.send(Ask::delete("/v1/coupons/none").by(ADMIN)).await.refused(404, "unknown_coupon");
        service.claim("none", "ann").await.refused(404, "unknown_coupon");
        service.claim_of("none", "ann").await.refused(404, "unknown_coupon");
        service.claims("none", "").await.refused(404, "unknown_coupon");
        service.redeem("none", "22229-HXKQ3-9WBRT-5MZCA").await.refused(404, "unknown_coupon");
        service.show("none").await.refused(404, "unknown_coupon");
    })
    .await;
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_told_which_it_takes() {
    for (ask, allowed) in [
        (Ask::delete("/v1/coupons/a/claims"), "GET,HEAD,POST"),
        (Ask::post("/v1/coupons/a"), "DELETE,GET,HEAD,PATCH,PUT"),
        (Ask::get("/v1/coupons/a/redemptions"), "POST"),
        (Ask::post("/healthz"), "GET,HEAD"),
        (Ask::put("/docs"), "GET,HEAD"),
    ] {
        let answer = Service::memory().send(ask.by(ADMIN)).await.refused(405, "method_not_allowed");
        let mut methods: Vec<&str> = answer.header("allow").expect("Allow").split(',').collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allowed);
    }
}

pub(crate) async fn a_path_that_does_not_exist_is_a_problem_too() {
    let service = Service::memory();
    for path in ["/v1", "/v1/coupons", "/v1/coupons/", "/v1/coupons/a/b", "/v2/coupons/a", "/errors/nonsense", "/%00"] {
        service.send(Ask::get(path).by(ADMIN)).await.refused(404, "not_found");
    }
    service.send(Ask::post("/healthz")).await.refused(405, "method_not_allowed");
}
