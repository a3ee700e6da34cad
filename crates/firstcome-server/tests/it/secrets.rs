//! What no client may ever be told: keys, and what a fault says to the operator.
//!
//! All keys of the tests and all faults hold the word "canary", which `promises` looks for in every answer of every
//! test. Here are the ways in which it would most likely come out.

use crate::promises;
use crate::room;
use crate::service::{ADMIN, Answer, Ask, SERVICE, STRANGER, Service, claim, config, redeem};
use crate::stores::{FAULT_DETAIL, Verdict, scripted};
use axum::http::{HeaderMap, Method};
use firstcome::RoomStore;
use firstcome::embedded::journal::Outcome;
use serde_json::json;

#[test]
#[should_panic(expected = "canary")]
fn an_answer_with_a_secret_would_be_found() {
    let answer = Answer { status: 200, headers: HeaderMap::new(), bytes: FAULT_DETAIL.as_bytes().to_vec() };
    promises::hold(&Method::GET, "/", &answer);
}

#[tokio::test]
async fn keys_come_back_in_no_answer() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    for key in [ADMIN, SERVICE, STRANGER] {
        for ask in [
            claim("launch", "ann").by(key),
            claim("launch", "bob").by(key).raw("nonsense"),
            claim("launch", "b o b").by(key),
            claim("none", "cid").by(key).once("k1"),
            claim("launch", "dan").by(key).header("content-type", "text/plain"),
            redeem("launch", &json!({"code": "x"})).by(key),
            Ask::get("/v1/coupons/launch").by(key),
            Ask::put("/v1/rooms/sale").by(key).json(&json!({"max_active": 1})),
            room::join_as("sale", "ann").by(key),
            room::join("sale").by(key).once(key),
            room::join("none").by(key),
            Ask::get(&room::place("sale", "x")).by(key),
            room::verify("sale", key).by(key),
            room::release("sale", key).by(key),
            room::claim_by("launch", key).by(key),
            Ask::get("/v1/pass-keys").by(key),
            Ask::post("/v1/pass-keys").by(key),
            Ask::delete("/v1/pass-keys/9").by(key),
            Ask::get("/v1/keys").by(key),
            Ask::delete("/v1/keys/none").by(key),
            Ask::get("/v1/nothing").by(key),
            Ask::get("/").by(key),
            Ask::get("/docs").by(key),
            Ask::get("/openapi.json").by(key),
            Ask::get("/readyz").by(key),
            Ask::get("/metrics").by(key),
            Ask::new(Method::TRACE, "/").by(key),
            Ask::new(Method::OPTIONS, "/v1/coupons/launch").by(key),
        ] {
            service.send(ask).await;
        }
    }
}

#[tokio::test]
async fn the_words_of_a_fault_come_out_nowhere() {
    for outcome in [Outcome::Nothing, Outcome::Unknown] {
        let (store, clock, script) = scripted();
        script.say(Verdict::Commit);
        let service = Service::new(store, clock, config());
        service.make("launch", json!({"limit": 9})).await;
        script.say(Verdict::Fail(outcome));
        assert_eq!(service.claim("launch", "ann").await.status, 503);
        assert_eq!(service.store.fault().map(|fault| fault.detail.clone()).as_deref(), Some(FAULT_DETAIL));
        for ask in [
            claim("launch", "bob"),
            redeem("launch", &json!({"code": "x"})),
            Ask::put("/v1/coupons/launch").by(ADMIN).json(&json!({"limit": 9})),
            Ask::delete("/v1/coupons/launch").by(ADMIN),
            Ask::get("/v1/coupons/launch"),
            Ask::get("/v1/coupons/launch/claims").by(ADMIN),
            Ask::get("/v1/coupons/launch/claims/ann").by(ADMIN),
            Ask::get("/readyz"),
            Ask::get("/healthz"),
            Ask::get("/metrics").by(ADMIN),
            Ask::get("/"),
            Ask::get("/docs"),
        ] {
            service.send(ask).await;
        }
    }
}

#[tokio::test]
async fn no_secret_of_a_room_comes_out_of_any_answer() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 9})).await;
    let pass = service.pass_of("sale", "ann").await;
    let secret = service.store.pass_secrets().remove(0).bytes;
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let numbers: Vec<String> = secret.iter().map(u8::to_string).collect();
    for ask in [
        Ask::get("/v1/pass-keys"),
        Ask::get("/v1/rooms/sale"),
        Ask::get("/metrics").by(ADMIN),
        Ask::get("/"),
        room::verify("sale", &pass),
        room::join_as("sale", "ann"),
    ] {
        let answer = service.send(ask).await.is(200);
        assert!(!answer.bytes.windows(32).any(|window| window == secret));
        let text = answer.body().to_lowercase();
        assert!(!text.contains(&hex) && !text.contains(&numbers.join(",")));
    }
    // What anybody may see is the public half.
    let keys = service.send(Ask::get("/v1/pass-keys")).await.json();
    assert!(keys["items"][0]["public_key"].as_str().is_some_and(|key| key.starts_with("k4.public.")));
    // Neither tickets nor passes stand where everybody can read them.
    let everybody = [Ask::get("/v1/rooms/sale"), Ask::get("/"), Ask::get("/metrics").by(ADMIN)];
    let ticket = service.ticket("sale").await;
    for ask in everybody {
        let body = service.send(ask).await.is(200).body();
        assert!(!body.contains(&pass) && !body.contains(&ticket) && !body.contains("ann"));
    }
}
