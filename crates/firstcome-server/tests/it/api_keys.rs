//! Keys of callers that an admin creates, rotates and revokes while the service runs.

use crate::service::{ADMIN, Answer, Ask, SERVICE, Service, claim, config, keys};
use crate::stores::{clock, open};
use firstcome::core::api_key::KeyCommand;
use firstcome::core::id::KeyName;
use firstcome::core::limits::API_KEYS_MAX;
use firstcome::{ApiKeyStore, Embedded};
use firstcome_server::auth::{KeyDigest, KeyScope};
use firstcome_server::{App, Config, FirstKeys, Keys, Scope};
use serde_json::{Value, json};
use std::sync::Arc;

const VIEW: &str = "canary-view-0123456789012";

fn creation(body: &Value) -> Ask {
    Ask::post("/v1/keys").by(ADMIN).json(body)
}

async fn created(service: &Service, body: Value) -> String {
    service.send(creation(&body)).await.is(201).text("key")
}

fn rotation(name: &str, old_valid_for_ms: u64) -> Ask {
    Ask::post(&format!("/v1/keys/{name}/rotate")).by(ADMIN).json(&json!({"old_valid_for_ms": old_valid_for_ms}))
}

async fn rotated(service: &Service, name: &str, old_valid_for_ms: u64) -> String {
    service.send(rotation(name, old_valid_for_ms)).await.is(201).text("key")
}

async fn revoke(service: &Service, name: &str) -> Answer {
    service.send(Ask::delete(&format!("/v1/keys/{name}")).by(ADMIN)).await
}

async fn listed(service: &Service) -> Value {
    service.send(Ask::get("/v1/keys").by(ADMIN)).await.is(200).json()["items"].clone()
}

/// What the key may do.
async fn scope(service: &Service, key: &str) -> &'static str {
    let looks = service.send(Ask::get("/metrics").by(key)).await.status;
    let moves = service.send(Ask::delete("/v1/coupons/none").by(key)).await.status;
    let serves = service.send(Ask::get("/v1/members/ann").by(key)).await.status;
    match (looks, moves, serves) {
        (200, 404, 200) => "admin",
        (200, 403, 200) => "view",
        (403, 403, 200) => "service",
        (401, 401, 401) => "none",
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_key_is_created_used_and_shown_once() {
    let service = Service::memory_with(Config { keys: keys().with_view_keys([KeyDigest::of(VIEW)]), ..config() });
    let mut made = Vec::new();
    for (name, wanted) in [("shop", "service"), ("board", "view"), ("ops", "admin")] {
        let key = created(&service, json!({"name": name, "scope": wanted})).await;
        assert!(key.starts_with(&format!("fc_{wanted}_")), "{wanted}");
        assert_eq!(scope(&service, &key).await, wanted);
        made.push(key);
    }
    service.send(creation(&json!({"name": "more", "scope": "view"})).by(VIEW)).await.refused(403, "view_only");
    service.send(creation(&json!({"name": "more", "scope": "view"})).by(SERVICE)).await.refused(403, "forbidden");
    let list = service.send(Ask::get("/v1/keys").by(VIEW)).await.is(200);
    let shown = list.json()["items"].clone();
    let names: Vec<&str> = shown.as_array().into_iter().flatten().filter_map(|key| key["name"].as_str()).collect();
    assert_eq!(names, ["shop", "board", "ops"]);
    assert_eq!(shown[0]["expires_at"], Value::Null);
    assert_eq!((&shown[0]["state"], &shown[0]["scope"]), (&json!("active"), &json!("service")));
    let told = list.body() + &service.metrics().await;
    assert!(made.iter().all(|key| !told.contains(key.as_str())), "a key is told twice");
}

pub(crate) async fn a_key_ends_at_its_instant() {
    let service = Service::memory();
    let key = created(&service, json!({"name": "shop", "scope": "service", "valid_for_ms": 10_000})).await;
    service.set_clock(9);
    assert_eq!(scope(&service, &key).await, "service");
    service.set_clock(10);
    assert_eq!(scope(&service, &key).await, "none");
    assert_eq!(listed(&service).await[0]["state"], "expired");
    created(&service, json!({"name": "shop", "scope": "view"})).await;
}

pub(crate) async fn a_rotated_key_counts_until_the_overlap_ends() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    let old = created(&service, json!({"name": "shop", "scope": "service"})).await;
    let first = service.send(claim("launch", "ann").by(&old).once("same")).await.is(201);
    let new = rotated(&service, "shop", 5_000).await;
    assert_ne!(old, new);
    let again = service.send(claim("launch", "ann").by(&new).once("same")).await.is(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "both keys are one caller");
    assert_eq!(again.json(), first.json());
    service.set_clock(4);
    assert_eq!((scope(&service, &old).await, scope(&service, &new).await), ("service", "service"));
    assert_eq!(listed(&service).await[0]["old_key_until"], "2030-01-01T00:00:05Z");
    service.set_clock(5);
    assert_eq!((scope(&service, &old).await, scope(&service, &new).await), ("none", "service"));
    let last = rotated(&service, "shop", 0).await;
    assert_eq!((scope(&service, &new).await, scope(&service, &last).await), ("none", "service"));
    assert_eq!(listed(&service).await.as_array().map(Vec::len), Some(1));
}

pub(crate) async fn a_revoked_key_is_refused_at_once() {
    let service = Service::memory();
    let old = created(&service, json!({"name": "ops", "scope": "admin"})).await;
    let new = rotated(&service, "ops", 60_000).await;
    let login = |key: &str| {
        let form = format!("key={key}&operator=ann");
        let ask = Ask::post("/dashboard/login").raw(form).header("content-type", "application/x-www-form-urlencoded");
        ask.header("host", "ops.example")
    };
    let answer = service.send(login(&new)).await.is(303);
    let cookie = answer.header("set-cookie").and_then(|line| line.split(';').next()).expect("a cookie").to_owned();
    let page = || Ask::get("/dashboard/audit").header("cookie", &cookie).header("host", "ops.example");
    let audit = service.send(page()).await.is(200).body();
    for words in ["API key", ">create<", ">rotate<", "name: none → ops", "operate key "] {
        assert!(audit.contains(words), "{words} in {audit}");
    }
    assert!(!audit.contains(&old) && !audit.contains(&new), "a key stands in the record");
    revoke(&service, "ops").await.is(204);
    assert_eq!((scope(&service, &old).await, scope(&service, &new).await), ("none", "none"));
    service.send(page()).await.is(303);
    service.send(login(&new)).await.is(401);
    assert_eq!(listed(&service).await[0]["state"], "revoked");
    revoke(&service, "ops").await.is(204);
    service.send(rotation("ops", 0)).await.refused(409, "api_key_revoked");
}

pub(crate) async fn the_last_admin_key_is_not_revoked() {
    let (clock, service_alone) = (clock(), Keys::Known(vec![(Scope::Service, KeyDigest::of(SERVICE))]));
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    let before = Service::new(store.clone(), Arc::clone(&clock), config());
    let key = created(&before, json!({"name": "ops", "scope": "admin"})).await;
    let service = Service::new(store, clock, Config { keys: service_alone, ..config() });
    let revocation = || Ask::delete("/v1/keys/ops").by(&key);
    service.send(revocation()).await.refused(409, "last_admin_key");
    let other = service.send(creation(&json!({"name": "late", "scope": "admin"})).by(&key)).await.is(201).text("key");
    service.send(revocation()).await.is(204);
    service.send(revocation()).await.refused(401, "unauthorized");
    service.send(Ask::delete("/v1/keys/late").by(&other)).await.refused(409, "last_admin_key");
}

pub(crate) async fn keys_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let service = Service::new(open(directory.path(), &clock), Arc::clone(&clock), config());
    let kept = created(&service, json!({"name": "shop", "scope": "service", "valid_for_ms": 60_000})).await;
    let old = created(&service, json!({"name": "board", "scope": "view"})).await;
    let new = rotated(&service, "board", 10_000).await;
    let gone = created(&service, json!({"name": "gone", "scope": "admin"})).await;
    revoke(&service, "gone").await.is(204);
    let list = listed(&service).await;
    service.store.close();
    drop(service);
    let service = Service::new(open(directory.path(), &clock), clock, config());
    assert_eq!(listed(&service).await, list);
    let scopes = [scope(&service, &kept).await, scope(&service, &old).await, scope(&service, &new).await];
    assert_eq!(scopes, ["service", "view", "view"]);
    assert_eq!(scope(&service, &gone).await, "none");
    service.set_clock(10);
    assert_eq!(scope(&service, &old).await, "none");
}

pub(crate) async fn calls_about_keys_are_checked() {
    let service = Service::memory();
    created(&service, json!({"name": "shop", "scope": "service"})).await;
    for (body, field) in [
        (json!({"name": "more", "scope": "public"}), "scope"),
        (json!({"name": "more"}), "scope"),
        (json!({"name": "more", "scope": "view", "valid_for_ms": 999}), "valid_for_ms"),
        (json!({"name": "more", "scope": "view", "valid_for_ms": 315_619_200_001_u64}), "valid_for_ms"),
        (json!({"name": "more", "scope": "view", "key": "mine"}), "key"),
    ] {
        let refused = service.send(creation(&body)).await.refused(400, "invalid_field");
        assert_eq!(refused.text("field"), field, "{body}");
    }
    service.send(creation(&json!({"name": "a b", "scope": "view"}))).await.refused(400, "invalid_name");
    service.send(creation(&json!({"name": "shop", "scope": "view"}))).await.refused(409, "api_key_exists");
    service.send(rotation("shop", 315_619_200_001)).await.refused(400, "invalid_field");
    service.send(rotation("none", 0)).await.refused(404, "unknown_api_key");
    revoke(&service, "none").await.refused(404, "unknown_api_key");
    revoke(&service, "-").await.refused(400, "invalid_name");
    assert_eq!(listed(&service).await.as_array().map(Vec::len), Some(1), "no refused call had an effect");
}

pub(crate) async fn a_repeated_creation_is_answered_without_the_key() {
    let service = Service::memory();
    let body = json!({"name": "shop", "scope": "service"});
    let first = service.send(creation(&body).once("one")).await.is(201);
    let again = service.send(creation(&body).once("one")).await.is(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!((&again.json()["key"], &again.json()["name"]), (&Value::Null, &json!("shop")));
    assert_eq!(scope(&service, &first.text("key")).await, "service", "the first one counts");
    let other = json!({"name": "other", "scope": "service"});
    service.send(creation(&other).once("one")).await.refused(422, "idempotency_key_reused");
    let new = service.send(rotation("shop", 0).once("two")).await.is(201).text("key");
    let again = service.send(rotation("shop", 0).once("two")).await.is(201);
    assert_eq!(again.json()["key"], Value::Null);
    assert_eq!(scope(&service, &new).await, "service", "it was rotated once");
}

pub(crate) async fn there_are_only_so_many_names() {
    let service = Service::memory();
    for number in 0..API_KEYS_MAX {
        created(&service, json!({"name": format!("key{number}"), "scope": "view"})).await;
    }
    let more = creation(&json!({"name": "more", "scope": "view"}));
    service.send(more).await.refused(409, "too_many_api_keys");
}

pub(crate) async fn keys_of_the_first_start_count_unless_others_are_given() {
    const FIRST: &str = "canary-first-0123456789";
    let clock = clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    let adopt = || KeyCommand::Adopt {
        name: KeyName::parse("admin").expect("a name"),
        scope: KeyScope::Admin,
        digest: KeyDigest::of(FIRST),
    };
    let adopted = store.change_api_keys(adopt()).await.expect("the store writes");
    adopted.expect("no rule refuses it");
    let given = Config { first_keys: FirstKeys::Replaced, ..config() };
    let given = Service::new(store.clone(), Arc::clone(&clock), given);
    assert_eq!(scope(&given, FIRST).await, "none");
    let service = Service::new(store.clone(), clock, config());
    assert_eq!(scope(&service, FIRST).await, "admin");
    let new = rotated(&service, "admin", 0).await;
    assert_eq!((scope(&service, FIRST).await, scope(&service, &new).await), ("none", "admin"));
    let adopted = store.change_api_keys(adopt()).await.expect("the store writes");
    adopted.expect("no rule refuses it");
    assert_eq!(scope(&service, FIRST).await, "none", "the next start does not bring it back");
    assert_eq!(scope(&given, &new).await, "admin", "an admin has made this one");
}

pub(crate) async fn a_service_without_a_store_of_keys_says_so() {
    let clock = clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    let service = Service::of(App::of_auctions(store.clone(), config()), store, clock);
    service.send(Ask::get("/v1/keys").by(ADMIN)).await.refused(404, "not_served");
    service.send(creation(&json!({"name": "shop", "scope": "view"}))).await.refused(404, "not_served");
    service.send(rotation("shop", 0)).await.refused(404, "not_served");
    revoke(&service, "shop").await.refused(404, "not_served");
}
