//! Members, listings and bids out and in again: nothing is lost, and what was altered on the way does not come in.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, rows};
use crate::support::server::Server;
use crate::support::wait_for;
use firstcome::edge::{Clock, SystemClock};
use firstcome_server::rfc3339;
use serde_json::{Value, json};
use std::path::Path;

/// Keys of a service: idempotency keys are scoped to them, so both services must know the same.
const ADMIN: &str = "admin-key-of-the-market-archive";

fn start(directory: &Path, data: &str) -> Server {
    let mut serve = command(PROGRAM, directory);
    serve.env("FIRSTCOME_ADMIN_KEY", ADMIN).args(["serve", "--listen", "127.0.0.1:0", "--data", data]);
    Server::spawn(&mut serve)
}

pub(crate) fn post(client: &mut Client, path: &str, body: &Value) -> Value {
    let answer = client.try_call("POST", path, Some("k1"), Some(body)).expect("it is answered");
    assert!([200, 201].contains(&answer.status), "{path} {body}: {}", answer.text());
    answer.json()
}

/// Every call with a key, in an order in which all are accepted.
pub(crate) fn calls() -> [(&'static str, Value); 5] {
    [
        ("/v1/members/ann/points/charge", json!({"amount": 1_000})),
        ("/v1/members/bob/points/charge", json!({"amount": 900})),
        ("/v1/listings/lamp/bids", json!({"bidder": "ann", "price": 100})),
        ("/v1/listings/vase/purchase", json!({"buyer": "bob"})),
        ("/v1/members/ann/points/refund", json!({"amount": 30})),
    ]
}

/// Listings of every kind: on sale later, sold, bid for, without a bid; gives back what every call was answered.
pub(crate) fn fill(client: &mut Client) -> Vec<Value> {
    let in_ms = |ms| rfc3339::format(SystemClock::default().now().plus_ms(ms));
    let extend = json!({"window_ms": 86_400_000, "by_ms": 1_000, "max_count": 2});
    for (listing, settings) in [
        (
            "lamp",
            json!({"owner": "eve", "kind": "auction", "price": 50, "ends_at": in_ms(3_600_000), "extend": extend,
                "min_increment": 7, "settle_within_ms": 60_000}),
        ),
        ("vase", json!({"owner": "eve", "kind": "fixed_price", "price": 200})),
        (
            "past",
            json!({"owner": "eve", "kind": "auction", "price": 1, "starts_at": "2020-01-01T00:00:00Z", "ends_at": "2020-01-01T00:00:00.5Z"}),
        ),
        ("later", json!({"owner": "ann", "kind": "fixed_price", "price": 9, "starts_at": "2099-01-01T00:00:00Z"})),
    ] {
        let answer = client.call("PUT", &format!("/v1/listings/{listing}"), Some(&settings));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let answers = calls().iter().map(|(path, body)| post(client, path, body)).collect();
    let higher = json!({"bidder": "bob", "price": 300});
    assert_eq!(client.call("POST", "/v1/listings/lamp/bids", Some(&higher)).status, 201);
    // What is over is closed by itself, which is one more version of it.
    wait_for("the end of an auction", || (client.get("/v1/listings/past").json()["version"] == 2).then_some(()));
    answers
}

pub(crate) fn everything(client: &mut Client) -> Vec<Value> {
    let members = ["ann", "bob", "eve", "nobody"];
    let of_members =
        members.iter().flat_map(|name| [format!("/v1/members/{name}"), format!("/v1/members/{name}/points/records")]);
    let listings = ["lamp", "vase", "past", "later"];
    let of_listings =
        listings.iter().flat_map(|name| [format!("/v1/listings/{name}"), format!("/v1/listings/{name}/bids")]);
    let paths: Vec<String> = of_members.chain(of_listings).collect();
    let look = |path: &String| {
        let mut shown = client.get(path).json();
        shown.as_object_mut().expect("an object").remove("as_of");
        shown
    };
    paths.iter().map(look).collect()
}

#[test]
fn an_auction_store_that_is_exported_and_imported_is_the_same_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "old");
    let mut client = Client::with_key(server.address(), ADMIN);
    let answers = fill(&mut client);
    let before = everything(&mut client);
    server.stop();
    firstcome(here, &["export", "--data", "old", "--output", "first.jsonl"]).well();
    firstcome(here, &["import", "--data", "new", "first.jsonl"]).well();
    firstcome(here, &["verify", "--data", "new"]).well();
    let first = std::fs::read_to_string(here.join("first.jsonl")).expect("a file");
    assert_eq!(first, firstcome(here, &["export", "--data", "new"]).well());
    assert_eq!(rows(&first).len(), 4 + 8 + 2, "listings, records, bids");

    let server = start(here, "new");
    let mut client = Client::with_key(server.address(), ADMIN);
    assert_eq!(everything(&mut client), before);
    for ((path, body), answer) in calls().iter().zip(answers) {
        assert_eq!(post(&mut client, path, body), answer, "{path}: its key is still known");
    }
    server.stop();
}

#[test]
fn an_auction_store_that_was_altered_or_meets_another_one_does_not_come_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here, "old");
    fill(&mut Client::with_key(server.address(), ADMIN));
    server.stop();
    let lines = rows(&firstcome(here, &["export", "--data", "old"]).well()).join("\n");
    let without = |part: &str| {
        lines.lines().filter(|line| !line.contains(part)).fold(String::new(), |all, line| all + line + "\n")
    };
    for (name, altered, says) in [
        ("richer", lines.replacen("\"amount\":1000", "\"amount\":1001", 1), "a balance is not the sum of its records"),
        (
            "other-time",
            lines.replacen(
                "\"movement\":\"CHARGE\",\"amount\":900,\"at\":\"20",
                "\"movement\":\"CHARGE\",\"amount\":900,\"at\":\"19",
                1,
            ),
            "a record was changed",
        ),
        ("gap", without("\"movement\":\"REFUND\""), "records are not exactly 1..count"),
        ("no-bid", without("\"bid\":2,\"bidder\""), "bids and the highest bid disagree"),
        ("no-first-bid", without("\"bid\":1,\"bidder\""), "the bids of a listing are exactly 1..count"),
        ("no-listing", without("{\"kind\":\"listing\",\"listing\":\"vase\""), "there is no listing vase"),
        (
            "unsold",
            lines.replacen("\"buyer\":\"bob\",\"price\":200", "\"buyer\":\"bob\",\"price\":199", 1),
            "the outcome is not that of the highest bid",
        ),
    ] {
        assert_ne!(altered, lines, "{name}");
        std::fs::write(here.join("altered.jsonl"), altered).expect("a file");
        let refused = firstcome(here, &["import", "--data", name, "altered.jsonl"]).with(1);
        assert!(refused.contains(says), "{name}: {refused}");
        let left = rows(&firstcome(here, &["export", "--data", name]).well());
        assert!(left.is_empty(), "{name}: nothing came in");
    }
    std::fs::write(here.join("whole.jsonl"), &lines).expect("a file");
    let refused = firstcome(here, &["import", "--data", "old", "whole.jsonl"]).with(1);
    assert!(refused.contains("there are members or listings already"), "{refused}");
    assert_eq!(rows(&firstcome(here, &["export", "--data", "old"]).well()).join("\n"), lines);
}
