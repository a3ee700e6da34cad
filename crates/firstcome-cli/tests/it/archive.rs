//! Data out and in again: nothing is lost, and what moved works as before.

use crate::killed::ToldClaim;
use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, rows, run};
use crate::support::server::Server;
use firstcome::VoucherKey;
use firstcome::core::coupon::{Issued, Serial};
use firstcome::core::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Keys of a service: idempotency keys are scoped to them, so both services must know the same.
pub(crate) const ADMIN: &str = "admin-key-of-the-archive-tests";

pub(crate) fn start(directory: &Path, data: &str) -> Server {
    let mut serve = command(PROGRAM, directory);
    serve.env("FIRSTCOME_ADMIN_KEY", ADMIN).args(["serve", "--listen", "127.0.0.1:0", "--data", data]);
    Server::spawn(&mut serve)
}

pub(crate) fn admin(server: &Server) -> Client {
    Client::with_key(server.address(), ADMIN)
}

/// Coupons of every kind: open, with settings, sold out, deleted; claims with and without attributes, keys, redemptions.
pub(crate) fn fill(client: &mut Client) {
    let settings = json!({
        "limit": 3, "opens_at": "2020-01-01T00:00:00Z", "expires_at": "2099-01-01T00:00:00.5Z",
        "redeem_until": "2099-06-01T00:00:00Z", "title": "Früh, \"billig\" und gut", "room": "hall",
    });
    if client.get("/v1/rooms/hall").status == 404 {
        assert_eq!(client.put_status("/v1/rooms/hall", &json!({"max_active": 1})), 201);
    }
    assert_eq!(client.put_status("/v1/coupons/launch", &settings), 201);
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
    assert_eq!(rows(&read("first.jsonl")).len(), 3 + 4 + 2, "coupons, claims, a room and its secret");
    firstcome(here, &["verify", "--data", "new"]).well();

    let server = start(here, "new");
    let mut client = admin(&server);
    assert_eq!(all_claims(&mut client), before);
    judge_the_new_home(&mut client, &before);
    server.stop();
}

pub(crate) fn judge_the_new_home(client: &mut Client, before: &[Value]) {
    let again = client.claim("second", "ann", Some("k")).expect("it is answered");
    assert_eq!(
        (again.status, ToldClaim::new(&again.json())),
        (201, ToldClaim::new(&before[2])),
        "its key is still known"
    );
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

/// The code of a serial as versions told it before codes were bound to claims.
fn old_code(secret: &str, serial: u64) -> String {
    let byte = |at: usize| u8::from_str_radix(&secret[2 * at..2 * at + 2], 16).expect("two digits");
    let serial = u32::try_from(serial).ok().and_then(Serial::new).expect("a serial");
    let key = VoucherKey::new(std::array::from_fn(byte)).unbound();
    key.code(Issued { serial, issued_at: Timestamp::MIN }, "").as_str().to_owned()
}

/// Exported lines as the version before wrote them: in its form, and with its codes. And the codes, by coupon and serial.
pub(crate) fn as_before(lines: &str) -> (String, BTreeMap<(String, u64), String>) {
    let (mut secrets, mut codes) = (BTreeMap::new(), BTreeMap::new());
    let old = lines.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        match text(&line, "kind").as_str() {
            "export" => line["version"] = json!(2),
            "coupon" => {
                assert_eq!(line.as_object_mut().expect("an object").remove("codes_bound_from"), Some(json!(1)));
                secrets.insert(text(&line, "coupon"), text(&line, "voucher_key"));
            }
            "claim" => {
                let (coupon, serial) = (text(&line, "coupon"), line["serial"].as_u64().expect("a number"));
                let code = old_code(&secrets[&coupon], serial);
                assert_ne!(line["code"], code, "a new claim has a bound code");
                line["code"] = json!(code);
                codes.insert((coupon, serial), code);
            }
            _ => {}
        }
        format!("{line}\n")
    });
    (old.collect(), codes)
}

/// What the codes of claims of before are at a service into which they came, and what those of the next claims are.
pub(crate) fn judge_old_codes(client: &mut Client, codes: &BTreeMap<(String, u64), String>) {
    let path = "/v1/coupons/launch/redemptions";
    for claim in all_claims(client) {
        let place = (claim["coupon"].as_str().expect("a name").to_owned(), claim["serial"].as_u64().expect("a number"));
        assert_eq!(claim["code"], codes[&place], "{claim}");
    }
    let second = json!({"code": codes[&("launch".to_owned(), 2)], "user": "bob@example.org"});
    assert_eq!(client.call("POST", path, Some(&second)).status, 201, "codes of before are still good");
    let third = client.claim("launch", "cid", None).expect("it is answered");
    assert_eq!((third.status, third.json()["serial"].clone()), (201, json!(3)), "{}", third.text());
    let its_own = json!({"code": third.json()["code"]});
    assert_eq!(client.call("POST", path, Some(&its_own)).status, 201);
}

/// From which serial on the codes of a coupon are bound.
pub(crate) fn bound_from(lines: &str, coupon: &str) -> u64 {
    coupon_line(lines, coupon)["codes_bound_from"].as_u64().expect("a number")
}

/// The line of a coupon.
fn coupon_line(lines: &str, coupon: &str) -> Value {
    let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.find(|line| line["kind"] == "coupon" && line["coupon"] == coupon).expect("a line of the coupon")
}

#[test]
fn codes_in_a_file_of_before_stay_valid_and_the_next_ones_are_bound_to_their_claims() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "data");
    fill(&mut admin(&server));
    server.stop();
    let lines = firstcome(here, &["export", "--data", "data"]).well();
    let (old, codes) = as_before(&lines);
    std::fs::write(here.join("old.jsonl"), &old).expect("a file");
    // The same as CSV, whose coupons came before it.
    let kind = |line: &&str, kind: &str| line.contains(&format!("\"kind\":\"{kind}\""));
    let coupons: String = old.lines().filter(|line| kind(line, "coupon")).map(|line| format!("{line}\n")).collect();
    std::fs::write(here.join("coupons.jsonl"), coupons).expect("a file");
    firstcome(here, &["export", "--data", "data", "-o", "new.csv"]).well();
    let mut csv = std::fs::read_to_string(here.join("new.csv")).expect("a file");
    for line in lines.lines().filter(|line| kind(line, "claim")) {
        let claim: Value = serde_json::from_str(line).expect("JSON");
        let place = (claim["coupon"].as_str().expect("a name").to_owned(), claim["serial"].as_u64().expect("a number"));
        csv = csv.replace(claim["code"].as_str().expect("a code"), &codes[&place]);
    }
    std::fs::write(here.join("old.csv"), csv).expect("a file");
    for (data, files) in [("whole", &["old.jsonl"][..]), ("parts", &["coupons.jsonl", "old.csv"])] {
        files.iter().for_each(|file| drop(firstcome(here, &["import", "--data", data, file]).well()));
        firstcome(here, &["verify", "--data", data]).well();
        let moved = firstcome(here, &["export", "--data", data]).well();
        for (coupon, from) in [("launch", 3), ("second", 3), ("empty", 1)] {
            assert_eq!(bound_from(&moved, coupon), from, "{data}: {coupon}");
        }
        // And once more, in the form of today.
        std::fs::write(here.join("moved.jsonl"), &moved).expect("a file");
        let again = format!("{data}-again");
        firstcome(here, &["import", "--data", &again, "moved.jsonl"]).well();
        assert_eq!(firstcome(here, &["export", "--data", &again]).well(), moved);
        let server = start(here, &again);
        judge_old_codes(&mut admin(&server), &codes);
        server.stop();
        // The code that the version before would have told for the third is not its code.
        let third = firstcome(here, &["export", "--data", &again]).well();
        let third = third.lines().find(|line| line.contains("\"user\":\"cid\"") && line.contains("launch"));
        let secret = coupon_line(&old, "launch")["voucher_key"].as_str().expect("a secret").to_owned();
        assert!(!third.expect("cid's claim").contains(&old_code(&secret, 3)));
    }
}

#[test]
fn claims_that_stay_behind_leave_no_code_to_the_next_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "data");
    fill(&mut admin(&server));
    server.stop();
    let (old, codes) = as_before(&firstcome(here, &["export", "--data", "data"]).well());
    std::fs::write(here.join("old.jsonl"), &old).expect("a file");
    firstcome(here, &["import", "--data", "whole", "old.jsonl"]).well();
    // Only the coupons of what has two codes of before; the first user to claim gets none of them.
    let lines = firstcome(here, &["export", "--data", "whole"]).well();
    let coupons: String =
        lines.lines().filter(|line| line.contains("\"kind\":\"coupon\"")).map(|line| format!("{line}\n")).collect();
    assert_eq!(bound_from(&coupons, "launch"), 3);
    std::fs::write(here.join("coupons.jsonl"), coupons).expect("a file");
    firstcome(here, &["import", "--data", "bare", "coupons.jsonl"]).well();
    let server = start(here, "bare");
    let mut client = admin(&server);
    let eve = client.claim("launch", "eve", None).expect("it is answered").json();
    assert_eq!(eve["serial"], 1);
    let theirs = &codes[&("launch".to_owned(), 1)];
    assert_ne!(eve["code"], *theirs);
    let refused = client.call("POST", "/v1/coupons/launch/redemptions", Some(&json!({"code": theirs})));
    assert_eq!((refused.status, refused.code().as_str()), (404, "unknown_code"));
    server.stop();
    firstcome(here, &["verify", "--data", "bare"]).well();
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
