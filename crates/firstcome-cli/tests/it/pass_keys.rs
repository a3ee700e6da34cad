//! `firstcome pass-keys`: a leaked key that signs passes is revoked while the service runs.

use crate::keys::serve;
use crate::support::http::Client;
use crate::support::program::{Ended, PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::path::Path;

const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";

/// Runs `firstcome pass-keys` against this service.
#[track_caller]
fn pass_keys(server: &Server, directory: &Path, arguments: &[&str]) -> Ended {
    let url = format!("http://{}", server.address());
    run(command(PROGRAM, directory)
        .arg("pass-keys")
        .args(arguments)
        .args(["--url", &url])
        .env("FIRSTCOME_ADMIN_KEY", ADMIN))
}

fn start(directory: &Path) -> Server {
    Server::spawn(serve(directory).env("FIRSTCOME_ADMIN_KEY", ADMIN))
}

/// The numbers of the keys that a command has printed.
#[track_caller]
fn printed(ended: Ended) -> Vec<String> {
    let told: Value = serde_json::from_str(&ended.well()).expect("JSON");
    let items = told["items"].as_array().expect("items");
    assert!(items.iter().enumerate().all(|(at, key)| key["state"] == if at == 0 { "signs" } else { "accepted" }));
    items.iter().map(|key| key["kid"].as_str().expect("a number").to_owned()).collect()
}

fn pass(server: &Server, ticket: &str) -> String {
    let mut client = Client::new(server.address());
    let path = format!("/v1/rooms/sale/tickets/{ticket}");
    wait_for("a pass", || client.get(&path).json()["pass"].as_str().map(str::to_owned))
}

/// Why a pass is refused; `None` if it is valid.
fn reason(server: &Server, pass: &str) -> Option<String> {
    let mut client = Client::with_key(server.address(), ADMIN);
    let told = client.call("POST", "/v1/rooms/sale/passes/verify", Some(&json!({"pass": pass}))).json();
    told["reason"].as_str().map(str::to_owned)
}

#[test]
fn a_revoked_pass_key_stays_revoked_when_the_service_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = start(here);
    let mut client = Client::with_key(server.address(), ADMIN);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 9})), 201);
    let joined = client.call("POST", "/v1/rooms/sale/tickets", Some(&json!({"user": "ann"}))).json();
    let ticket = joined["ticket"].as_str().expect("a ticket").to_owned();
    let leaked = pass(&server, &ticket);
    assert_eq!(printed(pass_keys(&server, here, &["list"])), ["1"]);
    assert_eq!(printed(pass_keys(&server, here, &["rotate"])), ["2", "1"]);
    assert_eq!(reason(&server, &leaked), None, "a rotation voids no pass");
    assert_eq!(printed(pass_keys(&server, here, &["revoke", "1"])), ["2"]);
    server.kill();
    let mut server = start(here);
    assert_eq!(reason(&server, &leaked).as_deref(), Some("unknown_key"), "a revocation is durable");
    let fresh = pass(&server, &ticket);
    assert_eq!(reason(&server, &fresh), None, "ann has her slot still");

    // The key that signs: another one takes its place in the same step.
    assert_eq!(printed(pass_keys(&server, here, &["revoke", "2"])), ["3"]);
    server.kill();
    let server = start(here);
    assert_eq!(reason(&server, &fresh).as_deref(), Some("unknown_key"));
    assert_eq!(reason(&server, &pass(&server, &ticket)), None);
    let again = pass_keys(&server, here, &["revoke", "2"]);
    assert!(again.stderr.contains("pass key 2 was revoked before"), "{}", again.stderr);
    assert_eq!(printed(again), ["3"]);
    server.stop();
}

#[test]
fn a_wrong_revocation_says_what_is_wrong_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here);
    let mut client = Client::with_key(server.address(), ADMIN);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 9})), 201);
    let said = pass_keys(&server, here, &["revoke", "7"]).with(1);
    assert!(said.contains("unknown_pass_key") && said.trim_end().lines().count() == 1, "{said}");
    for wrong in ["0", "-1", "x", "4294967296"] {
        pass_keys(&server, here, &["revoke", "--", wrong]).with(2);
    }
    assert_eq!(printed(pass_keys(&server, here, &["list"])), ["1"], "nothing has changed");
    server.stop();
}
