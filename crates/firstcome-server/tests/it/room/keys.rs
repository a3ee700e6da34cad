//! The keys that sign passes: shown to everybody, and changed without taking anybody's pass away.

use super::passes::stolen;
use super::verify;
use crate::service::{ADMIN, Answer, Ask, SERVICE, Service};
use crate::stores::on_each;
use firstcome_server::rfc3339;
use pasetors::Public;
use pasetors::keys::AsymmetricPublicKey;
use pasetors::token::UntrustedToken;
use pasetors::version4::{PublicToken, V4};
use serde_json::{Value, json};

async fn shown(service: &Service) -> Value {
    service.send(Ask::get("/v1/pass-keys")).await.is(200).json()
}

async fn rotate(service: &Service) -> Answer {
    service.send(Ask::post("/v1/pass-keys").by(ADMIN)).await.is(201)
}

/// The numbers of the keys: the one that signs, then the others in order.
fn kids(keys: &Value) -> Vec<&str> {
    let items = keys["items"].as_array().expect("items").iter();
    let mut kids: Vec<&str> = items.map(|key| key["kid"].as_str().expect("a text")).collect();
    kids[1..].sort_unstable();
    kids
}

/// What a pass's footer says about its key.
fn footer(pass: &str) -> Value {
    let token = UntrustedToken::<Public, V4>::try_from(pass).expect("a token");
    serde_json::from_slice(token.untrusted_footer()).expect("the footer is JSON")
}

/// What a visitor makes of a pass who has only the answer of `/v1/pass-keys`.
fn verified(keys: &Value, pass: &str) -> Option<Value> {
    let token = UntrustedToken::<Public, V4>::try_from(pass).ok()?;
    let footer: Value = serde_json::from_slice(token.untrusted_footer()).ok()?;
    let key = keys["items"].as_array()?.iter().find(|key| key["kid"] == footer["kid"])?;
    let key = AsymmetricPublicKey::<V4>::try_from(key["public_key"].as_str()?).ok()?;
    let assertion = keys["implicit_assertion"].as_str()?;
    let trusted = PublicToken::verify(&key, &token, Some(token.untrusted_footer()), Some(assertion.as_bytes())).ok()?;
    serde_json::from_str(trusted.payload()).ok()
}

pub(crate) async fn anybody_verifies_a_pass_with_the_keys_that_are_shown() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 9, "active_ttl_ms": 60_000})).await;
        let (ann, anonymous) = (service.pass_of("sale", "ann").await, service.pass("sale").await);
        let keys = shown(service).await;
        let claims = verified(&keys, &ann).expect("a pass");
        let whole = json!({
            "room": "sale", "number": 1, "slot": 1, "user": "ann",
            "iat": "2030-01-01T00:00:00Z", "exp": "2030-01-01T00:01:00Z"
        });
        assert_eq!(claims, whole);
        let claims = verified(&keys, &anonymous).expect("a pass");
        assert_eq!((&claims["number"], claims.get("user")), (&json!(2), None));
        assert!(rfc3339::parse(claims["exp"].as_str().expect("a time")).is_some());
        // Without the assertion, or with another service's keys, it is none.
        let mut other = keys.clone();
        other["implicit_assertion"] = json!("");
        assert_eq!(verified(&other, &ann), None);
        let elsewhere = Service::memory();
        elsewhere.make_room("sale", json!({"max_active": 9})).await;
        assert_eq!(verified(&shown(&elsewhere).await, &ann), None);
        for wrong in super::flipped(&ann) {
            assert_eq!(verified(&keys, &wrong), None);
        }
    })
    .await;
}

pub(crate) async fn passes_stay_valid_when_the_key_changes_and_new_ones_name_the_new_key() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9, "room": "sale"})).await;
        service.make_room("sale", json!({"max_active": 9})).await;
        let ticket = service.ticket_of("sale", "ann").await;
        let before = service.admitted("sale", &ticket).await;
        assert_eq!(kids(&shown(service).await), ["1"]);
        for key in [None, Some(SERVICE)] {
            let ask = Ask::post("/v1/pass-keys");
            let refused = service.send(if let Some(key) = key { ask.by(key) } else { ask }).await;
            assert_eq!(refused.status, if key.is_some() { 403 } else { 401 });
        }
        let rotated = rotate(service).await.json();
        assert_eq!(kids(&rotated), ["2", "1"], "the signing one first");
        assert_eq!(shown(service).await, rotated);
        // The old pass is good, also verified elsewhere; what is minted now names the new key.
        let again = service.standing("sale", &ticket).await["pass"].as_str().expect("a pass").to_owned();
        let after = service.pass("sale").await;
        assert_eq!([&before, &again, &after].map(|pass| footer(pass)["kid"].clone()), ["1", "2", "2"]);
        for pass in [&before, &again, &after] {
            assert_eq!(service.wrong_with("sale", pass).await, None);
            assert!(verified(&rotated, pass).is_some());
        }
        service.send(super::claim_by("launch", &before)).await.is(201);
        // It ends with its slot all the same, whichever key signed it.
        service.send(super::release("sale", &again)).await.is(204);
        assert_eq!(service.wrong_with("sale", &before).await.as_deref(), Some("over"));
    })
    .await;
}

pub(crate) async fn a_pass_of_a_forgotten_key_is_refused() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 9, "active_ttl_ms": 86_400_000})).await;
        let pass = service.pass("sale").await;
        rotate(service).await;
        // The longest slot that the old key can have signed for ends in a day: until then it is kept.
        service.pass_ms(86_400_000).await;
        assert_eq!(kids(&rotate(service).await.json()), ["3", "1", "2"]);
        assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some("expired"));
        service.pass_ms(1_000).await;
        assert_eq!(kids(&rotate(service).await.json()), ["4", "2", "3"]);
        assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some("unknown_key"));
        let told = service.send(super::release("sale", &pass)).await.refused(403, "invalid_pass");
        assert_eq!(told.text("reason"), "unknown_key");
    })
    .await;
}

pub(crate) async fn passes_of_a_revoked_key_are_void_and_visitors_get_new_ones() {
    on_each(async |service| {
        let revoke = |kid: &str| Ask::delete(&format!("/v1/pass-keys/{kid}"));
        service.send(revoke("1").by(ADMIN)).await.refused(404, "unknown_pass_key");
        service.make("launch", json!({"limit": 9, "room": "sale"})).await;
        service.make_room("sale", json!({"max_active": 2})).await;
        let ticket = service.ticket_of("sale", "ann").await;
        let before = service.admitted("sale", &ticket).await;
        rotate(service).await;
        let again = service.standing("sale", &ticket).await["pass"].as_str().expect("a pass").to_owned();
        service.send(revoke("1")).await.is(401);
        service.send(revoke("1").by(SERVICE)).await.is(403);
        for wrong in ["0", "3", "01", "+1", "x", "4294967296", "1%20"] {
            service.send(revoke(wrong).by(ADMIN)).await.refused(404, "unknown_pass_key");
        }
        assert_eq!(service.wrong_with("sale", &before).await, None, "nothing has changed");
        // An older key.
        let told = service.send(revoke("1").by(ADMIN)).await.is(200).json();
        assert_eq!((kids(&told), &told["was_gone"], &told["kid"]), (vec!["2"], &json!(false), &json!("1")));
        assert_eq!(service.wrong_with("sale", &before).await.as_deref(), Some("unknown_key"));
        service.send(super::claim_by("launch", &before)).await.refused(403, "invalid_pass");
        assert_eq!(service.wrong_with("sale", &again).await, None, "the other key counts");
        // The key that signs: a poll brings a pass of the next one, and the place is the same.
        let place = service.standing("sale", &ticket).await;
        let told = service.send(revoke("2").by(ADMIN)).await.is(200).json();
        assert_eq!((kids(&told), &told["was_gone"]), (vec!["3"], &json!(false)));
        assert_eq!(kids(&shown(service).await), ["3"]);
        assert_eq!(service.wrong_with("sale", &again).await.as_deref(), Some("unknown_key"));
        let after = service.standing("sale", &ticket).await;
        let fields = |place: &Value| ["number", "state", "slot_ends_at"].map(|field| place[field].clone());
        assert_eq!(fields(&after), fields(&place), "no place is lost");
        let fresh = after["pass"].as_str().expect("a pass");
        assert_eq!(footer(fresh)["kid"], "3");
        service.send(super::claim_by("launch", fresh)).await.is(201);
        // A second time has no effect.
        let told = service.send(revoke("2").by(ADMIN)).await.is(200).json();
        assert_eq!((kids(&told), &told["was_gone"]), (vec!["3"], &json!(true)));
        assert_eq!(service.wrong_with("sale", fresh).await, None);
    })
    .await;
}

pub(crate) async fn a_pass_is_bound_to_the_key_that_it_names() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 9})).await;
    let before = service.pass("sale").await;
    let grant = stolen(&service).read(&before).expect("a pass");
    rotate(&service).await;
    let after = stolen(&service).mint(&grant);
    // The payload of one with the footer of the other.
    let parts = |pass: &str| pass.rsplit_once('.').map(|(body, footer)| (body.to_owned(), footer.to_owned()));
    let ((old_body, old_footer), (new_body, new_footer)) = (parts(&before).expect("."), parts(&after).expect("."));
    for (wrong, reason) in [
        (format!("{old_body}.{new_footer}"), "forged"),
        (format!("{new_body}.{old_footer}"), "forged"),
        (old_body, "malformed"),
    ] {
        assert_eq!(service.wrong_with("sale", &wrong).await.as_deref(), Some(reason));
    }
    for pass in [&before, &after] {
        assert_eq!(service.send(verify("sale", pass)).await.is(200).json()["valid"], true);
    }
}
