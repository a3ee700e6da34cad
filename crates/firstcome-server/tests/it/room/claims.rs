//! Coupons behind a room: claimed by a pass, for its user or once for itself.

use super::claim_by;
use crate::service::{ADMIN, SERVICE, Service, claim};
use crate::stores::on_each;
use serde_json::json;

/// A coupon behind a room with slots for all.
async fn shop(service: &Service, limit: u32) {
    service.make_room("sale", json!({"max_active": 99, "active_ttl_ms": 60_000})).await;
    service.make("launch", json!({"limit": limit, "room": "sale"})).await;
}

pub(crate) async fn a_pass_of_a_user_claims_for_that_user_alone() {
    on_each(async |service| {
        shop(service, 9).await;
        let ann = service.pass_of("sale", "ann").await;
        for other in ["bob", "Ann", "ann2"] {
            let answer = service.send(claim_by("launch", &ann).json(&json!({"user": other}))).await;
            answer.refused(403, "invalid_pass");
        }
        let claimed = service.send(claim_by("launch", &ann).json(&json!({"user": "ann"}))).await.is(201).json();
        let whole = json!({
            "coupon": "launch", "user": "ann", "serial": 1, "code": claimed["code"],
            "issued_at": "2030-01-01T00:00:00Z", "durability": service.durability()
        });
        assert_eq!(claimed, whole);
        for body in [json!({"user": "ann"}), json!({}), json!({"user": null})] {
            let again = service.send(claim_by("launch", &ann).json(&body)).await.refused(409, "already_issued");
            assert_eq!(again.json()["claim"], claimed);
        }
        // Without a user in the body it is the pass's.
        let bob = service.pass_of("sale", "bob").await;
        let claimed = service.send(claim_by("launch", &bob).json(&json!({"attributes": {"a": 1}}))).await.is(201);
        assert_eq!(claimed.text("user"), "bob");
        assert_eq!(service.claim_of("launch", "bob").await.is(200).json()["attributes"], json!({"a": 1}));
        // What a back end has claimed for a user, the user has.
        let cid = service.pass_of("sale", "cid").await;
        service.claim("launch", "cid").await.is(201);
        service.send(claim_by("launch", &cid)).await.refused(409, "already_issued");
    })
    .await;
}

pub(crate) async fn a_pass_without_a_user_claims_once_as_its_number() {
    on_each(async |service| {
        shop(service, 2).await;
        let [first, second, third] =
            [service.pass("sale").await, service.pass("sale").await, service.pass("sale").await];
        for user in ["ann", "pass:1"] {
            let named = service.send(claim_by("launch", &first).json(&json!({"user": user}))).await;
            assert!([400, 403].contains(&named.status), "{}", named.body());
        }
        let claimed = service.send(claim_by("launch", &first)).await.is(201);
        assert_eq!((claimed.text("user").as_str(), &claimed.json()["serial"]), ("pass:1", &json!(1)));
        let again = service.send(claim_by("launch", &first).json(&json!({"user": null}))).await;
        assert_eq!(again.refused(409, "already_issued").json()["claim"], claimed.json());
        assert_eq!(service.send(claim_by("launch", &second)).await.is(201).text("user"), "pass:2");
        service.send(claim_by("launch", &third)).await.refused(409, "sold_out");
        assert_eq!(service.claim_of("launch", "pass:1").await.is(200).text("code"), claimed.text("code"));
        // No other visitor gets at that name.
        service.claim("launch", "pass:3").await.refused(400, "invalid_name");
    })
    .await;
}

pub(crate) async fn a_pass_that_is_sent_is_judged_a_visitor_that_sends_it() {
    on_each(async |service| {
        shop(service, 9).await;
        service.make("plain", json!({"limit": 9})).await;
        service.make("other", json!({"limit": 9, "room": "lobby"})).await;
        let (ann, bob) = (service.pass_of("sale", "ann").await, service.pass_of("sale", "bob").await);
        for key in [None, Some(SERVICE), Some(ADMIN)] {
            let with = |coupon: &str, pass: &str| {
                let ask = claim_by(coupon, pass).json(&json!({"user": "ann"}));
                match key {
                    Some(key) => ask.by(key),
                    None => ask,
                }
            };
            for pass in ["", "nonsense", "v4.public.x", &bob, &"x".repeat(9_000)] {
                service.send(with("launch", pass)).await.refused(403, "invalid_pass");
            }
            service.send(with("launch", "x").header("x-firstcome-pass", b"\xFF")).await.refused(403, "invalid_pass");
            // A coupon without a room takes no passes, one with another room none of this.
            service.send(with("plain", &ann)).await.refused(403, "invalid_pass");
            service.send(with("other", &ann)).await.refused(403, "invalid_pass");
            service.send(with("none", &ann)).await.refused(403, "invalid_pass");
            // Of two passes no visitor knows which one counts.
            for other in [&ann, &bob] {
                let two = with("launch", &ann).also("x-firstcome-pass", other);
                service.send(two).await.refused(403, "invalid_pass");
            }
        }
        service.send(claim_by("launch", &ann).without("x-firstcome-pass")).await.refused(403, "pass_required");
        assert_eq!(service.issued("launch").await + service.issued("plain").await + service.issued("other").await, 0);
        // A key and a pass: the pass counts.
        service.send(claim_by("launch", &bob).by(SERVICE)).await.is(201);
        service.claim_of("launch", "bob").await.is(200);
        service.send(claim("launch", "ann")).await.is(201);
    })
    .await;
}

pub(crate) async fn a_repeated_claim_by_a_pass_is_answered_again() {
    on_each(async |service| {
        shop(service, 9).await;
        let [ann, bob] = [service.pass_of("sale", "ann").await, service.pass("sale").await];
        let key = "k".repeat(22);
        service.send(claim_by("launch", &ann).once("k1")).await.refused(400, "invalid_idempotency_key");
        let first = service.send(claim_by("launch", &ann).once(&key)).await.is(201);
        service.clock.pass_ms(5_000);
        assert_eq!(service.send(claim_by("launch", &ann).once(&key)).await.is(201).bytes, first.bytes);
        let other = claim_by("launch", &ann).once(&key).json(&json!({"attributes": {}}));
        service.send(other).await.refused(422, "idempotency_key_reused");
        // The key is of this pass's holder: another one may have the same, and so may a back end.
        assert_eq!(service.send(claim_by("launch", &bob).once(&key)).await.is(201).text("user"), "pass:2");
        service.send(claim("launch", "cid").once(&key)).await.is(201);
        // Once the pass is over its repeats are no claims any more.
        service.clock.pass_ms(60_000);
        service.send(claim_by("launch", &ann).once(&key)).await.refused(403, "invalid_pass");
        assert_eq!(service.issued("launch").await, 3);
    })
    .await;
}

pub(crate) async fn a_coupon_takes_no_pass_of_another_room() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9, "room": "sale"})).await;
    service.make_room("other", json!({"max_active": 9})).await;
    let pass = service.pass("other").await;
    service.send(claim_by("launch", &pass)).await.refused(403, "invalid_pass");
    service.send(claim_by("launch", &pass).without("x-firstcome-pass")).await.refused(403, "pass_required");
    service.claim("launch", "ann").await.is(201);
    let pass = service.pass("sale").await;
    service.send(claim_by("launch", &pass)).await.is(201);
}
