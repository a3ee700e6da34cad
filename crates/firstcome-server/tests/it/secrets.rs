//! What nobody may ever be told: keys, and what a fault says to the operator.
//!
//! All keys of the tests and all faults hold the word "canary", which `promises` looks for in every answer of every
//! test. Here are the ways in which it would most likely come out.

use crate::promises;
use crate::service::{ADMIN, Answer, Ask, SERVICE, STRANGER, Service, claim, config, redeem};
use crate::stores::{FAULT_DETAIL, Verdict, scripted};
use axum::http::{HeaderMap, Method};
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
