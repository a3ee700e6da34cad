//! Zoe claims yesterday, and the operator copies the data directory over night. Today ann claims: serial 2, code X. The disk
//! breaks, and the operator restores the copy of yesterday, which knows nothing of ann. Bob claims: serial 2 again. He was once
//! given the very same code X, so that two people held one valid code.
//!
//! Now a code names one claim: X is no code of bob's, and no client can redeem it. What the copy held is as it was; what was told
//! after it, claims, redemptions and idempotency keys, is forgotten, as a restore means it.

use crate::archive::{admin, start};
use crate::killed::Told;
use crate::support::http::{Answer, Client};
use crate::support::program::firstcome;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Copies the files of a directory. Beside them lies `locks.d`, whose sockets are made anew by each process.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new directory");
    for file in fs::read_dir(from).expect("a directory") {
        let file = file.expect("it can be listed");
        if file.file_type().expect("it can be looked at").is_file() {
            fs::copy(file.path(), to.join(file.file_name())).expect("it can be copied");
        }
    }
}

/// What an operator does who restores the copy.
fn restore(here: &Path) {
    fs::remove_dir_all(here.join("data")).expect("it is ours");
    copy(&here.join("backup"), &here.join("data"));
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
    copy(&here.join("data"), &here.join("backup"));

    // Today.
    let server = start(here, "data");
    let mut client = admin(&server);
    let ann = claimed(&mut client, "ann", Some("ann-1"));
    assert_eq!(ann["serial"], 2);
    let again = claimed(&mut client, "ann", Some("ann-1"));
    assert_eq!(Told::new(&again), Told::new(&ann), "while nothing is lost, her key is known");
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
    assert_eq!(Told::new(&known), Told::new(&zoe));
    assert_eq!(redeem(&mut client, &zoe["code"], Some("zoe")).status, 201);
    refused(&mut client, &zoe["code"], None, (409, "already_redeemed"));
    // The key of a request that is forgotten makes a new claim, also for another user, and once.
    let fresh = claimed(&mut client, "ann", Some("ann-1"));
    assert_eq!(fresh["serial"], 3);
    assert_ne!(fresh["code"], ann["code"]);
    assert_eq!(Told::new(&claimed(&mut client, "ann", Some("ann-1"))), Told::new(&fresh));
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
    copy(&here.join("data"), &here.join("backup"));
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
