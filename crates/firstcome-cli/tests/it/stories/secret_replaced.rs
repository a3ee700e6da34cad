//! The secret of a cluster is replaced while two nodes serve.
//!
//! The nodes restart one after another, three times: with the next secret as the fallback, with it in the first place, and with it
//! alone. Between any two restarts each node serves what the other has made: coupons, rooms, passes, pass keys and locks. A
//! visitor keeps place and pass from the beginning to the end, and an operator the session on the dashboard.

use crate::support::http::{Answer, Client, read_answer};
use crate::support::program::{Ended, PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::{SECRET, World};
use firstcome_test_servers::Kind;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

const NEXT: &str = "s3cret that comes after it and is long enough as well";
const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";

/// A node with a secret, and perhaps a fallback.
fn node(world: &World, secret: &str, fallback: Option<&str>) -> Command {
    let mut node = world.node();
    node.env("FIRSTCOME_SECRET", secret).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    if let Some(fallback) = fallback {
        node.env("FIRSTCOME_SECRET_FALLBACK", fallback);
    }
    node
}

/// A command of an operator that needs the database alone, with these secrets.
fn told(world: &World, words: &[&str], secret: &str, fallback: Option<&str>) -> Ended {
    let mut told = command(PROGRAM, world.here());
    told.args(words).args(["--sql", world.sql.url()]).env("FIRSTCOME_SECRET", secret);
    if let Some(fallback) = fallback {
        told.env("FIRSTCOME_SECRET_FALLBACK", fallback);
    }
    run(&mut told)
}

fn of(server: &Server) -> Client {
    Client::with_key(server.address(), ADMIN)
}

/// Joins, and waits for a pass: the ticket's path, and the pass.
fn let_in(client: &mut Client, room: &str, user: &str) -> (String, String) {
    let joined = client.call("POST", &format!("/v1/rooms/{room}/tickets"), Some(&json!({"user": user}))).json();
    let path = format!("/v1/rooms/{room}/tickets/{}", joined["ticket"].as_str().unwrap_or_else(|| panic!("{joined}")));
    let pass = wait_for("a pass", || client.get(&path).json()["pass"].as_str().map(str::to_owned));
    (path, pass)
}

fn is_valid(client: &mut Client, room: &str, pass: &str) -> bool {
    let told = client.call("POST", &format!("/v1/rooms/{room}/passes/verify"), Some(&json!({"pass": pass})));
    assert_eq!(told.status, 200, "{}", told.text());
    told.json()["valid"] == true
}

/// Each node makes what is wrapped, and the other one serves it.
fn serve_each_other(round: &str, nodes: [&Server; 2], zoe: &(String, String)) {
    for (at, [one, two]) in [nodes, [nodes[1], nodes[0]]].into_iter().enumerate() {
        let (mut one, mut two) = (of(one), of(two));
        let name = format!("{round}-{at}");
        assert_eq!(one.put_status(&format!("/v1/coupons/{name}"), &json!({"limit": 5})), 201, "{name}");
        let claim = two.claim(&name, "ann", None).expect("an answer");
        assert_eq!(claim.status, 201, "{name}: {}", claim.text());
        let code = claim.json()["code"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("{}", claim.text()));
        let redeem = one.call("POST", &format!("/v1/coupons/{name}/redemptions"), Some(&json!({"code": code})));
        assert_eq!(redeem.status, 201, "{name}: {}", redeem.text());
        assert_eq!(one.put_status(&format!("/v1/rooms/{name}"), &json!({"max_active": 5})), 201, "{name}");
        let rotated = one.call("POST", "/v1/pass-keys", None);
        assert_eq!(rotated.status, 201, "{name}: {}", rotated.text());
        let (ticket, pass) = let_in(&mut one, &name, "ann");
        assert!(is_valid(&mut two, &name, &pass), "{name}: a pass of the other node");
        assert_eq!(two.get(&ticket).json()["state"], "admitted", "{name}: a ticket of the other node");
        let lock = format!("/v1/locks/{name}");
        let acquire = json!({"owner": "ann", "wait_ms": 0, "lease_ms": 60_000});
        let held: Value = one.call("POST", &format!("{lock}/acquire"), Some(&acquire)).json();
        let freed = two.call("POST", &format!("{lock}/release"), Some(&json!({"handle": held["handle"]})));
        assert_eq!(freed.status, 200, "{name}: {held} {}", freed.text());
        // What was there before all restarts.
        assert!(is_valid(&mut one, "hall", &zoe.1), "{name}: zoe's pass");
        assert_eq!(one.get(&zoe.0).json()["number"], 1, "{name}: zoe's place");
    }
}

/// What an operator's browser is answered.
fn browse(server: &Server, line: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(server.address()).expect("the service listens");
    let (host, length) = (server.address(), body.len());
    let head = format!("{line} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it is sent");
    read_answer(&mut stream).expect("it is answered").0
}

/// Logs an operator in, and returns the cookie.
fn log_in(server: &Server) -> String {
    let kind = "content-type: application/x-www-form-urlencoded\r\nsec-fetch-site: same-origin";
    let answer = browse(server, "POST /dashboard/login", kind, &format!("key={ADMIN}"));
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.headers("set-cookie").next().expect("a cookie");
    cookie.split(';').next().unwrap_or_default().to_owned()
}

fn dashboard(server: &Server, cookie: &str) -> u16 {
    browse(server, "GET /dashboard", &format!("cookie: {cookie}"), "").status
}

#[test]
fn a_secret_is_replaced_node_by_node_and_no_request_is_refused() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let mut one = Server::spawn(&mut node(&world, SECRET, None));
    let mut two = Server::spawn(&mut node(&world, SECRET, None));
    assert_eq!(of(&one).put_status("/v1/rooms/hall", &json!({"max_active": 5})), 201);
    let zoe = let_in(&mut of(&one), "hall", "zoe");
    let cookie = log_in(&one);
    assert_eq!((dashboard(&one, &cookie), dashboard(&two, &cookie), dashboard(&two, "firstcome=x")), (200, 200, 303));
    serve_each_other("old", [&one, &two], &zoe);

    // A node that skips the order cannot start: it would fail at each row of the others.
    let refused = run(&mut node(&world, NEXT, None)).with(3);
    assert!(refused.contains("another secret than FIRSTCOME_SECRET"), "{refused}");
    let steps = [("accepted", SECRET, Some(NEXT)), ("swapped", NEXT, Some(SECRET))];
    for (step, secret, fallback) in steps {
        one.stop();
        one = Server::spawn(&mut node(&world, secret, fallback));
        serve_each_other(&format!("{step}-one"), [&one, &two], &zoe);
        two.stop();
        two = Server::spawn(&mut node(&world, secret, fallback));
        serve_each_other(&format!("{step}-both"), [&one, &two], &zoe);
    }
    let left = told(&world, &["verify"], NEXT, None).with(1);
    assert!(left.contains("breaches"), "the former secret is still needed: {left}");
    let doctor = || told(&world, &["doctor", "--redis", world.redis.url()], NEXT, Some(SECRET)).stdout;
    assert!(doctor().contains("firstcome rewrap"), "{}", doctor());
    let before = world.sql_number("SELECT COUNT(*) FROM firstcome_pass_secret");
    let wrapped: Value = serde_json::from_str(&told(&world, &["rewrap"], NEXT, Some(SECRET)).well()).expect("JSON");
    assert!(wrapped["rewrapped"].as_u64() > Some(10) && wrapped["late"] == 0, "{wrapped}");
    assert_eq!(world.sql_number("SELECT COUNT(*) FROM firstcome_pass_secret"), before);
    let again: Value = serde_json::from_str(&told(&world, &["rewrap"], NEXT, Some(SECRET)).well()).expect("JSON");
    assert_eq!((&again["rewrapped"], &again["secrets"]), (&json!(0), &wrapped["secrets"]), "nothing is left to do");
    assert!(!doctor().contains("firstcome rewrap"), "{}", doctor());
    serve_each_other("rewrapped", [&one, &two], &zoe);

    one.stop();
    one = Server::spawn(&mut node(&world, NEXT, None));
    serve_each_other("alone-one", [&one, &two], &zoe);
    two.stop();
    two = Server::spawn(&mut node(&world, NEXT, None));
    serve_each_other("alone-both", [&one, &two], &zoe);
    assert_eq!((dashboard(&one, &cookie), dashboard(&two, &cookie)), (200, 200), "the operator is still logged in");
    told(&world, &["verify"], NEXT, None).well();
    let refused = run(&mut node(&world, SECRET, None)).with(3);
    assert!(refused.contains("another secret than FIRSTCOME_SECRET"), "the former one opens nothing: {refused}");
    one.stop();
    two.stop();
}

#[test]
fn wrong_secrets_are_named_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let rewrap = |secret: Option<&str>, fallback: Option<&str>| {
        let mut rewrap = command(PROGRAM, directory.path());
        rewrap.args(["rewrap", "--sql", "postgres://127.0.0.1:1/x"]);
        for (name, value) in [("FIRSTCOME_SECRET", secret), ("FIRSTCOME_SECRET_FALLBACK", fallback)] {
            if let Some(value) = value {
                rewrap.env(name, value);
            }
        }
        run(&mut rewrap)
    };
    for (secret, fallback, code, words) in [
        (None, Some(SECRET), 2, "FIRSTCOME_SECRET_FALLBACK without FIRSTCOME_SECRET"),
        (Some(NEXT), None, 2, "the former secret is missing"),
        (Some(NEXT), Some(NEXT), 2, "FIRSTCOME_SECRET_FALLBACK is the same secret as FIRSTCOME_SECRET"),
        (Some(NEXT), Some("s3cret"), 2, "FIRSTCOME_SECRET_FALLBACK has fewer than 32 bytes"),
        (Some("s3cret"), Some(SECRET), 2, "at least 32 bytes"),
        (Some(NEXT), Some(SECRET), 3, "the database cannot be used now"),
    ] {
        let said = rewrap(secret, fallback).with(code);
        assert!(said.contains(words) && said.trim_end().lines().count() == 1 && !said.contains("s3cret"), "{said}");
    }
}
