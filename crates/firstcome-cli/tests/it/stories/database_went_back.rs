//! A database that goes back.
//!
//! One node on PostgreSQL and Redis. zoe claims: serial 1. An operator stops PostgreSQL, copies its directory and starts it again.
//! ann claims: serial 2, code X. PostgreSQL stops at once, the copy is put back, PostgreSQL starts. The node never stopped. bob
//! claims: he got serial 2 and the same code X, `/readyz` stayed 200, and nothing was logged. This is what an asynchronous fail-over
//! or a point-in-time restore does.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::{SECRET, World};
use firstcome_test_servers::Kind;
use serde_json::{Value, json};

/// Runs `firstcome reconcile`: the code, and what it prints.
fn reconcile(world: &World, more: &[&str]) -> (Option<i32>, Value) {
    let mut reconcile = command(PROGRAM, world.here());
    reconcile.args(["reconcile", "--json", "--redis", world.redis.url(), "--sql", world.sql.url()]).args(more);
    let ended = run(reconcile.env("FIRSTCOME_SECRET", SECRET));
    let said = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.code, said)
}

fn finding(reconciled: &Value, name: &str) -> Value {
    let findings = reconciled["findings"].as_array().expect("a list");
    findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("{reconciled}")).clone()
}

#[test]
fn a_restored_database_stops_its_coupons_until_an_operator_accepts_the_loss() {
    let Some(mut world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let mut node = Server::spawn(world.node().args(["--coupon", "launch=5"]));
    let key = |name: &str, node: &mut Server| node.first_key(name);
    let (admin, service) = (key("admin", &mut node), key("service", &mut node));
    let claim = |user: &str| Client::with_key(node.address(), &service).claim("launch", user, None).expect("an answer");
    let zoe = claim("zoe");
    assert_eq!((zoe.status, &zoe.json()["serial"]), (201, &json!(1)), "{}", zoe.text());
    let kept = world.keep_sql();
    let ann = wait_for("the database to be back", || Some(claim("ann")).filter(|ann| ann.status < 500)).json();
    assert_eq!(ann["serial"], 2);
    world.restore_sql(&kept);

    // No user gets anything, and no client is told that ann has nothing.
    wait_for("bob to be refused because what was acknowledged is missing", || {
        let bob = claim("bob");
        assert_eq!(bob.status, 503, "{}", bob.text());
        (bob.code() == "store_unavailable").then_some(())
    });
    let of_ann = Client::with_key(node.address(), &service).get("/v1/coupons/launch/claims/ann");
    assert_eq!(of_ann.status, 503, "{}", of_ann.text());
    let ready = Client::new(node.address()).get("/readyz");
    assert_eq!(ready.status, 200, "all others are served: {}", ready.text());
    assert!(ready.text().contains("coupon launch") && ready.text().contains("went_back"), "{}", ready.text());
    let metrics = Client::with_key(node.address(), &admin).get("/metrics").text();
    assert!(metrics.contains("firstcome_faults_open{code=\"went_back\"} 1"), "{metrics}");
    node.wait_for_log("the database lacks claims that it acknowledged");

    // The list names ann, and a repair touches nothing.
    for more in [&[][..], &["--fix"]] {
        let (code, said) = reconcile(&world, more);
        let launch = finding(&said, "launch");
        assert_eq!((code, &launch["state"], &launch["needs_repair"]), (Some(1), &json!("went_back"), &json!(true)));
        assert!(launch["says"].as_str().is_some_and(|says| says.contains("ann (ticket 2)")), "{launch}");
        assert_eq!(claim("bob").status, 503);
    }

    let (code, said) = reconcile(&world, &["--accept-loss"]);
    let launch = finding(&said, "launch");
    assert_eq!((code, &launch["repair"]), (Some(0), &json!("done")), "{said}");
    assert!(launch["says"].as_str().is_some_and(|says| says.contains("ann (ticket 2)")), "{launch}");
    let bob = wait_for("the node to go on", || Some(claim("bob")).filter(|bob| bob.status < 500));
    assert_eq!((bob.status, &bob.json()["serial"]), (201, &json!(2)), "{}", bob.text());
    assert_ne!(bob.json()["code"], ann["code"], "two people with one code");
    let no_fault = || !Client::new(node.address()).get("/readyz").text().contains("went_back");
    wait_for("the end of the fault", || no_fault().then_some(()));
    node.stop();
}
