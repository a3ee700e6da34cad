//! Zoe claims yesterday, and the operator backs the data directory up over night. Today ann claims: serial 2, code X. The disk
//! breaks, and the operator restores the backup of yesterday, which knows nothing of ann. Bob claims: serial 2 again. He was once
//! given the very same code X, so that two people held one valid code.
//!
//! Now a code names one claim: X is no code of bob's, and no client can redeem it. What the backup held is as it was; what was told
//! after it is forgotten, as a restore means it: claims, redemptions, tickets, points, sales and idempotency keys.

use crate::archive::{admin, start};
use crate::killed::ToldClaim;
use crate::support::http::{Answer, Client};
use crate::support::program::firstcome;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// What an operator does over night.
fn back_up(here: &Path) {
    firstcome(here, &["backup", "--data", "data", "--to", "backup"]).well();
}

/// What an operator does who restores the backup.
fn restore(here: &Path) {
    fs::remove_dir_all(here.join("data")).expect("it is ours");
    firstcome(here, &["restore", "--from", "backup", "--data", "data"]).well();
}

#[track_caller]
fn claimed(client: &mut Client, user: &str, key: Option<&str>) -> Value {
    let answer = client.claim("launch", user, key).expect("it is answered");
    assert_eq!(answer.status, 201, "{user}: {}", answer.text());
    answer.json()
}

fn redeem(client: &mut Client, code: &Value, user: Option<&str>) -> Answer {
    let body = user.map_or_else(|| json!({"code": code}), |user| json!({"code": code, "user": user}));
    client.call("POST", "/v1/coupons/launch/redemptions", Some(&body))
}

#[track_caller]
fn refused(client: &mut Client, code: &Value, user: Option<&str>, with: (u16, &str)) {
    let answer = redeem(client, code, user);
    assert_eq!((answer.status, answer.code().as_str()), with, "{}", answer.text());
}

/// `verify` finds nothing, and says that it has looked at the codes.
#[track_caller]
fn is_sound(here: &Path) {
    let said = firstcome(here, &["verify", "--data", "data"]).well();
    assert!(said.contains("a code names one claim"), "{said}");
}

#[test]
fn a_code_told_after_the_backup_names_no_claim_after_the_restore() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    // Yesterday.
    let server = start(here, "data");
    let mut client = admin(&server);
    client.put_coupon("launch", 10);
    let zoe = claimed(&mut client, "zoe", Some("zoe-1"));
    assert_eq!(zoe["serial"], 1);
    server.stop();
    back_up(here);

    // Today.
    let server = start(here, "data");
    let mut client = admin(&server);
    let ann = claimed(&mut client, "ann", Some("ann-1"));
    assert_eq!(ann["serial"], 2);
    let again = claimed(&mut client, "ann", Some("ann-1"));
    assert_eq!(ToldClaim::new(&again), ToldClaim::new(&ann), "while nothing is lost, her key is known");
    server.stop();
    restore(here);
    is_sound(here);

    // The same place goes to another user, with another code.
    let server = start(here, "data");
    let mut client = admin(&server);
    let bob = claimed(&mut client, "bob", None);
    assert_eq!(bob["serial"], 2);
    assert_ne!(bob["code"], ann["code"], "one code for two people");
    for user in [None, Some("ann"), Some("bob")] {
        refused(&mut client, &ann["code"], user, (404, "unknown_code"));
    }
    assert_eq!(redeem(&mut client, &bob["code"], Some("bob")).status, 201);
    // What the copy held is as it was.
    let known = claimed(&mut client, "zoe", Some("zoe-1"));
    assert_eq!(ToldClaim::new(&known), ToldClaim::new(&zoe));
    assert_eq!(redeem(&mut client, &zoe["code"], Some("zoe")).status, 201);
    refused(&mut client, &zoe["code"], None, (409, "already_redeemed"));
    // The key of a request that is forgotten makes a new claim, also for another user, and once.
    let fresh = claimed(&mut client, "ann", Some("ann-1"));
    assert_eq!(fresh["serial"], 3);
    assert_ne!(fresh["code"], ann["code"]);
    assert_eq!(ToldClaim::new(&claimed(&mut client, "ann", Some("ann-1"))), ToldClaim::new(&fresh));
    refused(&mut client, &ann["code"], None, (404, "unknown_code"));
    server.stop();
    is_sound(here);
}

#[test]
fn the_same_user_in_the_same_place_gets_a_new_code_after_the_restore() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "data");
    admin(&server).put_coupon("launch", 10);
    server.stop();
    back_up(here);
    let mut codes = Vec::new();
    for _ in 0..3 {
        let server = start(here, "data");
        let mut client = admin(&server);
        for code in &codes {
            refused(&mut client, code, None, (404, "unknown_code"));
        }
        // The key of before, as a client sends it that was given no answer.
        let ann = claimed(&mut client, "ann", Some("ann-1"));
        assert_eq!(ann["serial"], 1);
        assert!(!codes.contains(&ann["code"]), "{ann} was told before");
        for code in &codes {
            refused(&mut client, code, Some("ann"), (404, "unknown_code"));
        }
        assert_eq!(redeem(&mut client, &ann["code"], Some("ann")).status, 201);
        codes.push(ann["code"].clone());
        server.stop();
        is_sound(here);
        restore(here);
    }
}

fn path_of(ticket: &Value) -> String {
    format!("/v1/rooms/hall/tickets/{}", ticket["ticket"].as_str().expect("a ticket"))
}

#[track_caller]
fn joined(client: &mut Client, user: &str) -> Value {
    let answer = client.call("POST", "/v1/rooms/hall/tickets", Some(&json!({"user": user})));
    assert_eq!(answer.status, 201, "{user}: {}", answer.text());
    answer.json()
}

#[test]
fn a_ticket_told_after_the_backup_is_unknown_until_its_number_is_drawn_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "data");
    let mut client = admin(&server);
    assert_eq!(client.put_status("/v1/rooms/hall", &json!({"max_active": 1})), 201);
    let ann = joined(&mut client, "ann");
    let pass = wait_for("a pass", || client.get(&path_of(&ann)).json().get("pass").cloned());
    server.stop();
    back_up(here);
    let server = start(here, "data");
    let bob = joined(&mut admin(&server), "bob");
    assert_eq!(bob["number"], 2);
    server.stop();
    restore(here);

    let server = start(here, "data");
    let mut client = admin(&server);
    // What the copy held goes on: ann is inside with the pass that she had.
    assert_eq!(client.get(&path_of(&ann)).json()["state"], "admitted");
    let verdict = client.call("POST", "/v1/rooms/hall/passes/verify", Some(&json!({"pass": pass}))).json();
    assert_eq!(verdict["valid"], true, "{verdict}");
    let answer = client.get(&path_of(&bob));
    assert_eq!((answer.status, answer.code().as_str()), (404, "unknown_ticket"));
    // The number is drawn again. Then both tickets stand for this one place.
    let cleo = joined(&mut client, "cleo");
    assert_eq!(cleo["number"], 2);
    assert_ne!(cleo["ticket"], bob["ticket"]);
    for ticket in [&cleo, &bob] {
        let seen = client.get(&path_of(ticket)).json();
        assert_eq!((&seen["number"], &seen["state"]), (&json!(2), &json!("waiting")), "{seen}");
    }
    server.stop();
    firstcome(here, &["verify", "--data", "data"]).well();
}

#[test]
fn points_and_sales_told_after_the_backup_are_forgotten_and_the_rest_is_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = start(here, "data");
    let mut client = admin(&server);
    let post = |client: &mut Client, path: &str, key: &str, body: &Value| {
        let answer = client.try_call("POST", path, Some(key), Some(body)).expect("it is answered");
        (answer.status, answer.json())
    };
    let charge = "/v1/members/ann/points/charge";
    let yesterday = post(&mut client, charge, "yesterday", &json!({"amount": 100}));
    assert_eq!((yesterday.0, &yesterday.1["available"]), (200, &json!(100)), "{yesterday:?}");
    let vase = json!({"owner": "eve", "kind": "fixed_price", "price": 30});
    assert_eq!(client.put_status("/v1/listings/vase", &vase), 201);
    server.stop();
    back_up(here);

    server = start(here, "data");
    client = admin(&server);
    let today = post(&mut client, charge, "today", &json!({"amount": 50}));
    assert_eq!(today.1["available"], 150);
    let sold = post(&mut client, "/v1/listings/vase/purchase", "ann", &json!({"buyer": "ann"}));
    assert_eq!(sold.0, 201, "{sold:?}");
    server.stop();
    restore(here);

    server = start(here, "data");
    client = admin(&server);
    assert_eq!(client.get("/v1/members/ann").json()["available"], 100);
    assert_eq!(
        post(&mut client, charge, "yesterday", &json!({"amount": 100})),
        yesterday,
        "a key of the copy is known"
    );
    // A key of today is a new one, once.
    for _ in 0..2 {
        assert_eq!(post(&mut client, charge, "today", &json!({"amount": 50})).1["available"], 150);
    }
    assert_eq!(client.get("/v1/listings/vase").json()["state"], "running");
    assert_eq!(post(&mut client, charge.replace("ann", "bob").as_str(), "bob", &json!({"amount": 50})).0, 200);
    assert_eq!(post(&mut client, "/v1/listings/vase/purchase", "bob", &json!({"buyer": "bob"})).0, 201);
    assert_eq!(post(&mut client, "/v1/listings/vase/purchase", "ann", &json!({"buyer": "ann"})).0, 409);
    server.stop();
    firstcome(here, &["verify", "--data", "data"]).well();
}
