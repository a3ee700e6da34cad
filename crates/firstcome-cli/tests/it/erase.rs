//! `firstcome erase`: a person leaves nothing but a pseudonym, also when the service is killed right after its answer.

use crate::keys::{files_with, serve};
use crate::support::http::Client;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use serde_json::{Value, json};
use std::path::Path;

const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";
/// A name that no other bytes of a file are.
const NAME: &str = "canary-of-an-erased-person";

fn start(directory: &Path) -> Server {
    Server::spawn(serve(directory).env("FIRSTCOME_ADMIN_KEY", ADMIN))
}

/// Runs `firstcome erase` against this service.
#[track_caller]
fn erase(server: &Server, directory: &Path, user: &str) -> Ended {
    let url = format!("http://{}", server.address());
    let mut erase = command(PROGRAM, directory);
    run(erase.args(["erase", "--json", "--user", user, "--url", &url]).env("FIRSTCOME_ADMIN_KEY", ADMIN))
}

fn rows(printed: &str) -> Value {
    serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

#[track_caller]
fn post(client: &mut Client, path: &str, body: &Value) -> Value {
    let answer = client.call("POST", path, Some(body));
    assert!([200, 201].contains(&answer.status), "{path}: {}", answer.text());
    answer.json()
}

/// Gives a user a claim, a ticket and points. Returns the code of the claim.
fn fill(client: &mut Client, user: &str) -> Value {
    let claim = json!({"user": user, "attributes": {"phone": format!("of {user}")}});
    let code = post(client, "/v1/coupons/launch/claims", &claim)["code"].clone();
    post(client, "/v1/rooms/sale/tickets", &json!({"user": user}));
    post(client, &format!("/v1/members/{user}/points/charge"), &json!({"amount": 5}));
    code
}

#[test]
fn an_erased_person_is_gone_when_the_service_is_killed_right_after_its_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = start(here);
    let mut client = Client::with_key(server.address(), ADMIN);
    client.put_coupon("launch", 9);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1})), 201);
    fill(&mut client, "bob");
    let code = fill(&mut client, NAME);
    let printed = erase(&server, here, NAME).well();
    server.kill();
    let told = server.output() + &server.errors();
    let wanted = json!({"claims": 1, "tickets": 1, "members": 1, "records": 1, "listings": 0});
    assert_eq!(rows(&printed), wanted);
    assert!(!told.contains(NAME), "the log names the person: {told}");
    assert_eq!(files_with(here, NAME), Vec::<String>::new(), "a file names the person");
    firstcome(here, &["verify", "--data", "data"]).well();

    let mut server = start(here);
    let mut client = Client::with_key(server.address(), ADMIN);
    let claims = client.claims("launch");
    assert_eq!((claims.len(), &claims[0]["user"]), (2, &json!("bob")));
    assert!(claims[1]["user"].as_str().is_some_and(|user| user.starts_with("_erased:")), "{claims:?}");
    let redeem = client.call("POST", "/v1/coupons/launch/redemptions", Some(&json!({"code": code})));
    assert_eq!((redeem.status, redeem.code().as_str()), (404, "unknown_code"));
    let zeros = json!({"claims": 0, "tickets": 0, "members": 0, "records": 0, "listings": 0});
    assert_eq!(rows(&erase(&server, here, NAME).well()), zeros, "a second erasure finds nothing");
    assert_eq!(rows(&erase(&server, here, "bob").well()), wanted);
    let exported = firstcome(here, &["export", "--data", "data"]).well();
    assert!(!exported.contains("bob") && exported.contains("_erased:"), "{exported}");
    server.terminate();
    server.wait();
    std::fs::write(here.join("export.jsonl"), exported).expect("the directory can be written");
    firstcome(here, &["import", "--data", "copy", "export.jsonl"]).well();
    firstcome(here, &["verify", "--data", "copy"]).well();
}

#[test]
fn a_person_is_erased_from_a_directory_that_no_service_has_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here);
    let mut client = Client::with_key(server.address(), ADMIN);
    client.put_coupon("launch", 9);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1})), 201);
    fill(&mut client, NAME);
    let of_directory = |user: &str| firstcome(here, &["erase", "--json", "--user", user, "--data", "data"]);
    let said = of_directory(NAME).with(3);
    assert!(said.contains("another process"), "{said}");
    server.stop();
    assert_eq!(rows(&of_directory(NAME).well())["claims"], json!(1));
    assert_eq!(files_with(here, NAME), Vec::<String>::new(), "a file names the person");
    assert!(of_directory("two words").with(2).contains("invalid user"));
    let said = firstcome(here, &["erase", "--user", "ann", "--data", "other"]).with(2);
    assert!(said.contains("holds no store"), "{said}");
    assert!(!here.join("other").exists(), "no store is made");
}

#[test]
fn a_refused_erasure_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here);
    let mut client = Client::with_key(server.address(), ADMIN);
    post(&mut client, "/v1/members/ann/points/charge", &json!({"amount": 50}));
    let auction = json!({"owner": "eve", "kind": "auction", "price": 5, "ends_at": "2099-01-01T00:00:00Z"});
    assert_eq!(client.put_status("/v1/listings/lamp", &auction), 201);
    post(&mut client, "/v1/listings/lamp/bids", &json!({"bidder": "ann", "price": 6}));
    let said = erase(&server, here, "ann").with(1);
    assert!(said.contains("points_held: 6 points are held for bids: settle these auctions"), "{said}");
    let said = erase(&server, here, "eve").with(1);
    assert!(said.contains("owns_auction: the auction lamp"), "{said}");
    server.stop();
}
