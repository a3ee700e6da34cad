//! Stores that wait, that are full, that fail: told plainly, safe to repeat, and without a word of what happened inside.

use crate::service::{ADMIN, Answer, Ask, Service, claim, config, redeem};
use crate::stores::{Script, Verdict, scripted, unreadable};
use firstcome::embedded::journal::Outcome;
use firstcome::{Fault, FaultKind};
use serde_json::json;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// A service over a scripted journal, with a coupon for three that ann holds one of.
async fn service(answer: Duration) -> (Service, Script, String) {
    let mut config = config();
    config.limits.answer = answer;
    let (store, clock, script) = scripted();
    let service = Service::new(store, clock, config);
    script.say(Verdict::Commit);
    script.say(Verdict::Commit);
    service.make("launch", json!({"limit": 3})).await;
    let code = service.claim_code("launch", "ann").await;
    script.begun();
    script.begun();
    (service, script, code)
}

const LONG: Duration = Duration::from_secs(60);

/// Sends a request until it waits for the store.
pub(crate) async fn waits(answer: impl Future<Output = Answer> + 'static) -> Pin<Box<dyn Future<Output = Answer>>> {
    let mut answer: Pin<Box<dyn Future<Output = Answer>>> = Box::pin(answer);
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Pending => Poll::Ready(()),
        Poll::Ready(answer) => panic!("answered at once: {}", answer.outcome()),
    })
    .await;
    answer
}

pub(crate) async fn a_store_that_does_not_answer_leaves_the_outcome_unknown() {
    let (service, script, _) = service(Duration::from_millis(200)).await;
    let bob = || claim("launch", "bob").once("k1");
    let told = service.send(bob()).await.refused(503, "outcome_unknown");
    assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("1"), &json!(1_000)));
    script.begun();
    service.claim("launch", "cid").await.refused(503, "outcome_unknown");
    service.send(Ask::delete("/v1/coupons/launch").by(ADMIN)).await.refused(503, "outcome_unknown");
    service.put("launch", json!({"limit": 9})).await.refused(503, "outcome_unknown");
    // Reads, and refusals that rest on what is durable, do not wait.
    assert_eq!(service.issued("launch").await, 1);
    service.claim("launch", "ann").await.refused(409, "already_issued");

    script.say(Verdict::CommitAll);
    // The claim was under way and is done; the same request learns it. What only waited was given up with its caller.
    let mut answer = service.send(bob()).await;
    while answer.status == 503 {
        answer = service.send(bob()).await;
    }
    assert_eq!(answer.is(201).json()["serial"], 2);
    assert_eq!(service.claim_of("launch", "cid").await.status, 404);
}

pub(crate) async fn who_finds_the_queue_full_is_told_at_once() {
    let (service, script, code) = service(LONG).await;
    let bob = waits(service.send(claim("launch", "bob"))).await;
    script.begun();
    // As if it had been measured. The writer measures again only once it is let go.
    service.store.stats().queue_limit.store(2, Ordering::Relaxed);
    let cid = waits(service.send(claim("launch", "cid"))).await;
    let dan = waits(service.send(claim("launch", "dan"))).await;

    let full = [
        claim("launch", "eve"),
        redeem("launch", &json!({"code": code})),
        Ask::put("/v1/coupons/launch").by(ADMIN).json(&json!({"limit": 9})),
        Ask::delete("/v1/coupons/launch").by(ADMIN),
    ];
    for ask in full {
        let told = service.send(ask).await.refused(503, "overloaded");
        assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("1"), &json!(250)));
    }
    assert_eq!(service.issued("launch").await, 1);
    service.send(Ask::get("/readyz")).await.is(200);
    assert!(service.metrics().await.contains("firstcome_store_overloaded_total 4\n"));

    script.say(Verdict::CommitAll);
    assert_eq!(bob.await.is(201).json()["serial"], 2);
    assert_eq!(cid.await.is(201).json()["serial"], 3);
    dan.await.refused(409, "sold_out");
    service.redeem("launch", &code).await.is(201);
}

pub(crate) async fn a_store_that_has_failed_takes_no_writes_and_goes_on_reading() {
    for outcome in [Outcome::Nothing, Outcome::Unknown] {
        let (service, script, code) = service(LONG).await;
        service.send(Ask::get("/readyz")).await.is(200);
        script.say(Verdict::Fail(outcome));
        let told = service.claim("launch", "bob").await;
        match outcome {
            Outcome::Nothing | Outcome::Passing => told.refused(503, "store_unavailable"),
            Outcome::Unknown => told.refused(503, "outcome_unknown"),
        };
        for ask in [
            claim("launch", "bob"),
            claim("launch", "cid").once("k1"),
            redeem("launch", &json!({"code": code})),
            Ask::put("/v1/coupons/launch").by(ADMIN).json(&json!({"limit": 9})),
            Ask::put("/v1/coupons/new").by(ADMIN).json(&json!({"limit": 9})),
            Ask::delete("/v1/coupons/launch").by(ADMIN),
        ] {
            let told = service.send(ask).await.refused(503, "store_unavailable");
            assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("5"), &json!(5_000)));
        }
        assert_eq!(service.issued("launch").await, 1);
        service.claim("launch", "ann").await.refused(409, "already_issued");
        service.claim_of("launch", "ann").await.is(200);
        service.claim_of("launch", "bob").await.refused(404, "unknown_claim");
        service.claim("none", "ann").await.refused(404, "unknown_coupon");

        let unready = service.send(Ask::get("/readyz")).await.is(503);
        let told = unready.json();
        assert_eq!((&told["ready"], &told["reason"]), (&json!(false), &json!("io")));
        assert_eq!((&told["faults"][0]["object"], &told["faults"][0]["code"]), (&json!("store"), &json!("io")));
        assert_eq!(unready.header("retry-after"), Some("1"));
        assert_eq!(service.send(Ask::get("/readyz?of=node")).await.is(503).json(), told);
        service.send(Ask::get("/healthz")).await.is(200);
        assert!(service.metrics().await.contains("firstcome_store_writable 0"));
        assert!(service.send(Ask::get("/")).await.is(200).body().contains(">io<"));
    }
}

pub(crate) async fn rows_that_cannot_be_read_are_unavailable() {
    let (store, clock) = unreadable();
    let service = Service::new(store, clock, config());
    service.make("launch", json!({"limit": 3})).await;
    service.claim("launch", "ann").await.is(201);
    service.claim_of("launch", "ann").await.refused(503, "store_unavailable");
    service.claims("launch", "").await.refused(503, "store_unavailable");
    service.claim("launch", "bob").await.is(201);
}

pub(crate) async fn a_service_that_drains_is_not_ready_and_still_answers() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 3})).await;
    assert_eq!(service.send(Ask::get("/readyz")).await.is(200).json(), json!({"ready": true}));
    service.app.begin_drain();
    let unready = service.send(Ask::get("/readyz")).await.is(503);
    assert_eq!(unready.json(), json!({"ready": false, "reason": "draining"}));
    assert_eq!(service.send(Ask::get("/readyz?of=node")).await.is(503).json(), unready.json());
    service.send(Ask::get("/healthz")).await.is(200);
    service.claim("launch", "ann").await.is(201);
}

#[tokio::test]
async fn a_coupon_that_stands_still_takes_no_node_out_of_the_balancer() {
    let service = Service::memory();
    let fault = |says: &str| Fault::new(FaultKind::WentBack, says);
    service.store.faults().raise_single("coupon launch", fault("it lacks what it acknowledged"));
    let ready = service.send(Ask::get("/readyz")).await.is(200).json();
    assert_eq!((&ready["ready"], ready.get("reason")), (&json!(true), None));
    let told = &ready["faults"][0];
    assert_eq!((&told["object"], &told["code"]), (&json!("coupon launch"), &json!("went_back")));
    service.send(Ask::get("/healthz")).await.is(200);
    assert!(service.metrics().await.contains("firstcome_faults_open{code=\"went_back\"} 1"));
    let page = service.send(Ask::get("/")).await.is(200).body();
    assert!(page.contains(">ready<") && page.contains("stand still"), "{page}");

    // A fault of what all objects need takes it out, also if a single one was first.
    service.store.faults().raise("redis", Fault::new(FaultKind::Unfit, "it evicts"));
    let unready = service.send(Ask::get("/readyz")).await.is(503).json();
    assert_eq!((&unready["ready"], &unready["reason"]), (&json!(false), &json!("unfit")));
    assert_eq!(unready["faults"].as_array().map(Vec::len), Some(2));
    // No other node has the store in this process.
    assert_eq!(service.send(Ask::get("/readyz?of=node")).await.is(503).json(), unready);
    service.send(Ask::get("/healthz")).await.is(200);
    service.store.faults().clear("redis");
    service.store.faults().clear("coupon launch");
    assert_eq!(service.send(Ask::get("/readyz")).await.is(200).json(), json!({"ready": true}));
    assert!(!service.send(Ask::get("/")).await.is(200).body().contains("stand still"));
}
