//! The `Idempotency-Key`: the same request has one effect and one answer, another one under the same key is refused.

use crate::service::{ADMIN, Ask, SERVICE, SERVICE_TOO, Service, claim, config, redeem};
use crate::stores::{clock, on_each, open};
use serde_json::json;

pub(crate) async fn a_repeated_claim_is_answered_again_as_it_was() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 2})).await;
        let first = service.send(claim("launch", "ann").once("k1")).await.is(201);
        service.set_clock(5);
        let again = service.send(claim("launch", "ann").once("k1")).await.is(201);
        assert_eq!(again.bytes, first.bytes);
        // What counts is what was asked, not how it was spelt.
        let spelt = claim("launch", "").once("k1").raw("\n{ \"attributes\" : null, \"user\" : \"\\u0061nn\" }");
        assert_eq!(service.send(spelt).await.is(201).bytes, first.bytes);
        let path = Ask::post("/v1/coupons/l%61unch/claims").by(SERVICE).json(&json!({"user": "ann"}));
        assert_eq!(service.send(path.once("k1")).await.is(201).bytes, first.bytes);
        assert_eq!(service.issued("launch").await, 1);
        // Also when all are issued, and when it is over.
        service.claim("launch", "bob").await.is(201);
        service.put("launch", json!({"limit": 2, "expires_at": "2030-01-01T00:00:05Z"})).await.is(200);
        assert_eq!(service.send(claim("launch", "ann").once("k1")).await.is(201).bytes, first.bytes);
    })
    .await;
}

pub(crate) async fn a_key_with_another_body_is_refused() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        service.send(claim("launch", "ann").once("k1")).await.is(201);
        for body in [json!({"user": "bob"}), json!({"user": "ann", "attributes": {}}), json!({"user": "Ann"})] {
            let other = claim("launch", "").json(&body).once("k1");
            service.send(other).await.refused(422, "idempotency_key_reused");
        }
        assert_eq!(service.issued("launch").await, 1);
        service.claim_of("launch", "bob").await.refused(404, "unknown_claim");

        let body = json!({"user": "cid", "attributes": {"b": 1, "a": [2]}});
        service.send(claim("launch", "").json(&body).once("k2")).await.is(201);
        let spelt = "{\"attributes\": { \"a\": [ 2 ], \"b\": 1 }, \"user\": \"cid\"}";
        service.send(claim("launch", "").raw(spelt).once("k2")).await.is(201);
        let other = json!({"user": "cid", "attributes": {"b": 1, "a": [3]}});
        let answer = service.send(claim("launch", "").json(&other).once("k2")).await;
        answer.refused(422, "idempotency_key_reused");
    })
    .await;
}

pub(crate) async fn a_back_end_may_name_what_a_request_means() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let ask = |user: &str, body: &str| claim("launch", user).once("k1").header("idempotency-body", body);
        let first = service.send(ask("ann", "00000000000000a1")).await.is(201);
        assert_eq!(first.header("idempotency-replayed"), None);
        // The same meaning, though the body is another one.
        for user in ["ann", "bob"] {
            let again = service.send(ask(user, "00000000000000a1")).await.is(201);
            assert_eq!(again.header("idempotency-replayed"), Some("true"));
            assert_eq!(again.json()["serial"], first.json()["serial"]);
        }
        let other = service.send(ask("ann", "00000000000000a2")).await.refused(422, "idempotency_key_reused");
        assert_eq!(other.json()["serial"], 1);
        for wrong in ["", "a1", "00000000000000A1", "+0000000000000a1", "00000000000000a1f"] {
            service.send(ask("ann", wrong)).await.refused(400, "invalid_idempotency_key");
        }
        // Without a key there is nothing to compare.
        let ask = claim("launch", "cid").header("idempotency-body", "x");
        service.send(ask).await.is(201);
        assert_eq!(service.issued("launch").await, 2);
    })
    .await;
}

pub(crate) async fn a_key_belongs_to_its_credential_and_its_path() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        service.make("other", json!({"limit": 9})).await;
        service.send(claim("launch", "ann").once("k1")).await.is(201);
        // Another key of the same scope, the admin's, another path: each is a request of its own.
        service.send(claim("launch", "bob").by(SERVICE_TOO).once("k1")).await.is(201);
        service.send(claim("launch", "cid").by(ADMIN).once("k1")).await.is(201);
        service.send(claim("other", "dan").once("k1")).await.is(201);
        service.send(claim("launch", "ann").by(SERVICE_TOO).once("k2")).await.refused(409, "already_issued");
        let code = service.claim_code("launch", "eve").await;
        service.send(redeem("launch", &json!({"code": code})).once("k1")).await.is(201);
        assert_eq!(service.issued("launch").await, 4);
    })
    .await;
}

pub(crate) async fn a_refusal_is_judged_afresh() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 1})).await;
        service.claim("launch", "ann").await.is(201);
        let bob = || claim("launch", "bob").once("k1");
        service.send(bob()).await.refused(409, "sold_out");
        // A refused key is not kept: another body may come under it.
        service.send(claim("launch", "cid").once("k1")).await.refused(409, "sold_out");
        service.put("launch", json!({"limit": 2})).await.is(200);
        assert_eq!(service.send(bob()).await.is(201).json()["serial"], 2);
        service.send(claim("launch", "cid").once("k1")).await.refused(422, "idempotency_key_reused");

        service.make("soon", json!({"limit": 1, "opens_at": "2030-01-01T00:00:10Z"})).await;
        let ann = || claim("soon", "ann").once("k1");
        service.send(ann()).await.refused(425, "not_open");
        service.set_clock(10);
        service.send(ann()).await.is(201);
        service.send(ann()).await.is(201);
    })
    .await;
}

pub(crate) async fn a_repeated_redemption_is_answered_again_as_it_was() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let (ann, bob) = (service.claim_code("launch", "ann").await, service.claim_code("launch", "bob").await);
        let of_ann = || redeem("launch", &json!({"code": ann})).once("k1");
        let first = service.send(of_ann()).await.is(201);
        service.set_clock(5);
        assert_eq!(service.send(of_ann()).await.is(201).bytes, first.bytes);
        service.redeem("launch", &ann).await.refused(409, "already_redeemed");
        for body in [json!({"code": bob}), json!({"code": ann, "user": "ann"}), json!({"code": "nonsense"})] {
            let other = redeem("launch", &body).once("k1");
            service.send(other).await.refused(422, "idempotency_key_reused");
        }
        service.send(redeem("launch", &json!({"code": bob})).once("k1").by(SERVICE_TOO)).await.is(201);
    })
    .await;
}

pub(crate) async fn a_code_spelt_otherwise_is_the_same_redemption() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let code = service.claim_code("launch", "ann").await;
        let first = service.send(redeem("launch", &json!({"code": code})).once("k1")).await.is(201);
        let spelt = redeem("launch", &json!({"code": code.to_lowercase().replace('-', " "), "user": null}));
        assert_eq!(service.send(spelt.once("k1")).await.is(201).bytes, first.bytes);
    })
    .await;
}

pub(crate) async fn a_key_that_is_none_is_refused_and_has_no_effect() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let code = service.claim_code("launch", "ann").await;
        let wrong = ["", " ", "a b", "a\tb", "k\u{e9}", &"k".repeat(129), &"k".repeat(20_000)];
        for key in wrong {
            service.send(claim("launch", "bob").once(key)).await.refused(400, "invalid_idempotency_key");
            let redemption = redeem("launch", &json!({"code": code})).once(key);
            service.send(redemption).await.refused(400, "invalid_idempotency_key");
        }
        let twice = claim("launch", "bob").once("k1").also("idempotency-key", "k1");
        service.send(twice).await.refused(400, "invalid_idempotency_key");
        assert_eq!(service.issued("launch").await, 1);
        for (user, key) in [("bob", "!"), ("cid", "\"quoted\""), ("dan", "a,b"), ("eve", &"k".repeat(128))] {
            service.send(claim("launch", user).once(key)).await.is(201);
        }
        service.redeem("launch", &code).await.is(201);
    })
    .await;
}

#[tokio::test]
async fn keys_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let start = || Service::new(open(directory.path(), &clock), clock.clone(), config());
    let before = start();
    before.make("launch", json!({"limit": 2})).await;
    let ann = || claim("launch", "ann").once("k1");
    let claimed = before.send(ann()).await.is(201);
    let redemption = || redeem("launch", &json!({"code": claimed.text("code")})).once("k1");
    let redeemed = before.send(redemption()).await.is(201);
    before.set_clock(60);
    drop(before);

    let after = start();
    assert_eq!(after.send(ann()).await.is(201).bytes, claimed.bytes);
    assert_eq!(after.send(redemption()).await.is(201).bytes, redeemed.bytes);
    after.send(claim("launch", "bob").once("k1")).await.refused(422, "idempotency_key_reused");
    after.send(claim("launch", "bob").by(SERVICE_TOO).once("k1")).await.is(201);
    let other = redeem("launch", &json!({"code": claimed.text("code"), "user": "ann"})).by(SERVICE).once("k1");
    after.send(other).await.refused(422, "idempotency_key_reused");
    assert_eq!(after.issued("launch").await, 2);
}
