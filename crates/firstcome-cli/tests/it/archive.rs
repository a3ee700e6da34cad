//! Data out and in again: nothing is lost, and what moved works as before.

use crate::killed::Told;
use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, rows, run};
use crate::support::server::Server;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Keys of a service: idempotency keys are scoped to them, so both services must know the same.
const ADMIN: &str = "admin-key-of-the-archive-tests";

fn start(directory: &Path, data: &str) -> Server {
    let mut serve = command(PROGRAM, directory);
    serve.env("FIRSTCOME_ADMIN_KEY", ADMIN).args(["serve", "--listen", "127.0.0.1:0", "--data", data]);
    Server::spawn(&mut serve)
}

fn admin(server: &Server) -> Client {
    Client::with_key(server.address(), ADMIN)
}

/// Coupons of every kind: open, with settings, sold out, deleted; claims with and without attributes, keys, redemptions.
pub(crate) fn fill(client: &mut Client) {
    let settings = json!({
        "limit": 3, "opens_at": "2020-01-01T00:00:00Z", "expires_at": "2099-01-01T00:00:00.5Z",
        "redeem_until": "2099-06-01T00:00:00Z", "title": "Früh, \"billig\" und gut", "room": "hall",
    });
    assert_eq!(client.call("PUT", "/v1/coupons/launch", Some(&settings)).status, 201);
    client.put_coupon("second", 2);
    client.put_coupon("empty", 7);
    let attributes = json!({"seat": "A, 7", "quote": "\"\n", "deep": {"b": [1, 2.5, null], "a": "ü"}});
    let ann = json!({"user": "ann", "attributes": attributes});
    let path = "/v1/coupons/launch/claims";
    let first = client.try_call("POST", path, Some("ann-1"), Some(&ann)).expect("it is answered");
    assert_eq!(first.status, 201, "{}", first.text());
    for (coupon, user, key) in
        [("launch", "bob@example.org", None), ("second", "ann", Some("k")), ("second", "cid", None)]
    {
        assert_eq!(client.claim(coupon, user, key).expect("it is answered").status, 201);
    }
    let redeem = json!({"code": first.json()["code"], "user": "ann"});
    let redeemed = client.try_call("POST", "/v1/coupons/launch/redemptions", Some("r-1"), Some(&redeem));
    assert_eq!(redeemed.expect("it is answered").status, 201);
    assert_eq!(client.call("DELETE", "/v1/coupons/second", None).status, 204);
}

pub(crate) fn all_claims(client: &mut Client) -> Vec<Value> {
    ["launch", "second", "empty"].iter().flat_map(|coupon| client.claims(coupon)).collect()
}

#[test]
fn what_is_exported_and_imported_is_the_same_store_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "old");
    fill(&mut admin(&server));
    let before = all_claims(&mut admin(&server));
    server.stop();

    firstcome(here, &["export", "--data", "old", "--output", "first.jsonl"]).well();
    firstcome(here, &["import", "--data", "new", "first.jsonl"]).well();
    firstcome(here, &["export", "--data", "new", "-o", "second.jsonl"]).well();
    let read = |name: &str| std::fs::read_to_string(here.join(name)).expect("a file");
    assert_eq!(read("first.jsonl"), read("second.jsonl"));
    assert_eq!(read("first.jsonl"), firstcome(here, &["export", "--data", "new"]).well(), "standard output, the same");
    assert_eq!(rows(&read("first.jsonl")).len(), 3 + 4);
    firstcome(here, &["verify", "--data", "new"]).well();

    let server = start(here, "new");
    let mut client = admin(&server);
    assert_eq!(all_claims(&mut client), before);
    judge_the_new_home(&mut client, &before);
    server.stop();
}

pub(crate) fn judge_the_new_home(client: &mut Client, before: &[Value]) {
    let again = client.claim("second", "ann", Some("k")).expect("it is answered");
    assert_eq!((again.status, Told::new(&again.json())), (201, Told::new(&before[2])), "its key is still known");
    let other = client.claim("second", "dan", Some("k")).expect("it is answered");
    assert_eq!((other.status, other.code().as_str()), (422, "idempotency_key_reused"));
    let redeem = json!({"code": before[0]["code"], "user": "ann"});
    let path = "/v1/coupons/launch/redemptions";
    let repeat = client.try_call("POST", path, Some("r-1"), Some(&redeem)).expect("it is answered");
    assert_eq!(repeat.status, 201, "{}", repeat.text());
    let twice = client.call("POST", path, Some(&redeem));
    assert_eq!((twice.status, twice.code().as_str()), (409, "already_redeemed"));
    let fresh = client.call("POST", path, Some(&json!({"code": before[1]["code"]})));
    assert_eq!(fresh.status, 201, "codes are still good: {}", fresh.text());
    let deleted = client.claim("second", "dan", None).expect("it is answered");
    assert_eq!((deleted.status, deleted.code().as_str()), (410, "deleted"));
    let settings = client.get("/v1/coupons/launch").json();
    assert_eq!(settings["title"], "Früh, \"billig\" und gut");
    assert_eq!((&settings["limit"], &settings["issued"]), (&json!(3), &json!(2)));
    let third = client.claim("launch", "cid", None).expect("it is answered");
    assert_eq!((third.status, third.json()["serial"].clone()), (201, json!(3)), "and it goes on");
}

#[test]
fn one_coupon_can_be_exported_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "data");
    fill(&mut admin(&server));
    // Also beside the running service.
    let lines = firstcome(here, &["export", "--data", "data", "--coupon", "second"]).well();
    assert_eq!((rows(&lines).len(), lines.contains("secret")), (3, false), "{lines}");
    let said = firstcome(here, &["export", "--data", "data", "--coupon", "nothing", "-o", "out.jsonl"]).with(1);
    assert!(said.contains("there is no coupon nothing"), "{said}");
    assert!(!here.join("out.jsonl").exists(), "a refused export leaves no file behind");
    server.stop();
}

#[test]
fn claims_go_out_and_in_as_csv() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "data");
    fill(&mut admin(&server));
    server.stop();
    firstcome(here, &["export", "--data", "data", "-o", "all.csv"]).well();
    let csv = std::fs::read_to_string(here.join("all.csv")).expect("a file");
    assert!(csv.starts_with("coupon,serial,user,code,issued_at,attributes,redeemed_at\n"), "{csv}");
    // The same secret must be there for the codes: a directory with the coupons, and without their claims.
    let lines = firstcome(here, &["export", "--data", "data"]).well();
    let coupons: String =
        lines.lines().filter(|line| line.contains("\"kind\":\"coupon\"")).map(|line| format!("{line}\n")).collect();
    std::fs::write(here.join("coupons.jsonl"), coupons).expect("a file");
    firstcome(here, &["import", "--data", "new", "coupons.jsonl"]).well();
    firstcome(here, &["import", "--data", "new", "all.csv"]).well();
    firstcome(here, &["verify", "--data", "new"]).well();
    assert_eq!(firstcome(here, &["export", "--data", "new", "--format", "csv"]).well(), csv);
}

#[test]
fn winners_from_elsewhere_are_taken_over_in_their_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    std::fs::write(here.join("winners.csv"), "coupon,user\nlaunch,ann\nlaunch,bob\nlaunch,cid\n").expect("a file");
    firstcome(here, &["import", "--data", "data", "--coupon", "launch=5", "winners.csv"]).well();
    let server = Server::start(here);
    let mut client = server.client();
    let users: Vec<Value> = client.claims("launch").iter().map(|claim| claim["user"].clone()).collect();
    assert_eq!(users, ["ann", "bob", "cid"]);
    let code = client.get("/v1/coupons/launch/claims/bob").json()["code"].clone();
    assert_eq!(client.call("POST", "/v1/coupons/launch/redemptions", Some(&json!({"code": code}))).status, 201);
    assert_eq!(client.claim("launch", "dan", None).expect("it is answered").json()["serial"], 4);
    server.stop();
}

#[test]
fn standard_input_can_be_imported() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    std::fs::write(here.join("winners.csv"), "coupon,user\nlaunch,ann\n").expect("a file");
    let mut import = command(PROGRAM, here);
    import.args(["import", "--data", "data", "--coupon", "launch=5", "--format", "csv", "-"]);
    run(import.stdin(std::fs::File::open(here.join("winners.csv")).expect("a file"))).well();
    assert_eq!(rows(&firstcome(here, &["export", "--data", "data"]).well()).len(), 2);
}

#[test]
fn an_export_is_readable_by_its_owner_only_and_never_overwrites() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    Server::start_with(here, &["--coupon", "launch=5"]).stop();
    firstcome(here, &["export", "--data", "data", "-o", "out.jsonl"]).well();
    let mode = std::fs::metadata(here.join("out.jsonl")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(here.join("mine.jsonl"), "precious").expect("a file");
    let said = firstcome(here, &["export", "--data", "data", "-o", "mine.jsonl"]).with(1);
    assert!(said.contains("mine.jsonl"), "{said}");
    assert_eq!(std::fs::read_to_string(here.join("mine.jsonl")).expect("a file"), "precious");
}
