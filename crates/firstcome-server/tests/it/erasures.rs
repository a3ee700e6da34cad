//! Persons that an admin erases while the service runs.

use crate::auction;
use crate::service::{ADMIN, Answer, Ask, SERVICE, Service, config};
use crate::stores::clock;
use firstcome::Embedded;
use firstcome_server::App;
use serde_json::{Value, json};
use std::sync::Arc;

async fn erase(service: &Service, user: &str) -> Answer {
    service.send(Ask::post("/v1/erasures").by(ADMIN).json(&json!({"user": user}))).await
}

pub(crate) async fn an_erased_person_leaves_a_pseudonym_and_may_come_again() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    let code = service.claim_code("launch", "ann").await;
    service.send(Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
    service.send(Ask::post("/v1/rooms/sale/tickets").by(SERVICE).json(&json!({"user": "ann"}))).await.is(201);
    service.fund(["ann"], 10).await;
    let rows = erase(&service, "ann").await.is(200).json();
    assert_eq!(rows, json!({"claims": 1, "tickets": 1, "members": 1, "records": 1, "listings": 0}));
    let claims = service.claims("launch", "").await.is(200).json();
    assert!(claims["items"][0]["user"].as_str().is_some_and(|user| user.starts_with("_erased:")), "{claims}");
    service.claim_of("launch", "ann").await.refused(404, "unknown_claim");
    service.redeem("launch", &code).await.refused(404, "unknown_code");
    let rows = erase(&service, "ann").await.is(200).json();
    assert!(rows.as_object().is_some_and(|rows| rows.values().all(|count| *count == json!(0))), "{rows}");
    assert_eq!(service.claim("launch", "ann").await.is(201).json()["serial"], json!(2));
}

pub(crate) async fn a_member_with_something_to_settle_is_not_erased() {
    let service = Service::memory();
    service.fund(["ann"], 1_000).await;
    service.list("lamp", &auction::auction(10)).await;
    let owner = service.send(Ask::get("/v1/listings/lamp").by(SERVICE)).await.json()["owner"].clone();
    let bid = Ask::post("/v1/listings/lamp/bids").by(SERVICE).json(&json!({"bidder": "ann", "price": 100}));
    service.send(bid).await.is(201);
    let told = erase(&service, "ann").await;
    assert_eq!(told.json()["points"], json!(100));
    told.refused(409, "points_held");
    let told = erase(&service, owner.as_str().expect("a listing has an owner")).await;
    assert_eq!(told.json()["listing"], json!("lamp"));
    told.refused(409, "owns_auction");
    assert_eq!(service.balance("ann").await, (1_000, 900));
}

pub(crate) async fn erasures_are_checked() {
    let service = Service::memory();
    for user in ["", "-x", "pass:1", "_erased:00000000000000000000000000000000"] {
        erase(&service, user).await.refused(400, "invalid_name");
    }
    let bodies: [Value; 3] = [json!({}), json!({"user": 1}), json!({"user": "ann", "why": "law"})];
    for body in bodies {
        service.send(Ask::post("/v1/erasures").by(ADMIN).json(&body)).await.refused(400, "invalid_field");
    }
    let body = json!({"user": "ann"});
    service.send(Ask::post("/v1/erasures").by(SERVICE).json(&body)).await.refused(403, "forbidden");
}

pub(crate) async fn a_service_of_listings_alone_erases_members() {
    let clock = clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    let service = Service::of(App::of_auctions(store.clone(), config()), store, clock);
    service.fund(["ann"], 10).await;
    assert_eq!(erase(&service, "ann").await.is(200).json()["members"], json!(1));
    assert_eq!(service.send(Ask::get("/v1/members/ann").by(SERVICE)).await.is(200).json()["total"], json!(0));
}
