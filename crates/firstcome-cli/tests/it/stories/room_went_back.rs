//! A database that goes back under a room.
//!
//! One node on PostgreSQL and Redis, a room of two places. zoe joins and is let in: number 1, admission 1. An operator copies the
//! database. ann joins and is let in: number 2, admission 2, and her pass is told. The copy is put back; the node never stopped.
//!
//! Once the node made the room anew from the copy without a word: ann's place was gone, the next user was let in with admission 2,
//! so two passes had one admission, and `/readyz` stayed 200. Now the room stands still, says why, and goes on above all that was
//! told when an operator accepts the loss.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::{SECRET, World};
use firstcome_test_servers::Kind;
use serde_json::{Value, json};

/// Runs `firstcome reconcile`: the code, and what it found of the room.
fn reconcile(world: &World, more: &[&str]) -> (Option<i32>, Value) {
    let mut reconcile = command(PROGRAM, world.here());
    reconcile.args(["reconcile", "--json", "--redis", world.redis.url(), "--sql", world.sql.url()]).args(more);
    let ended = run(reconcile.env("FIRSTCOME_SECRET", SECRET));
    let said: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let findings = said["findings"].as_array().expect("a list");
    let hall = findings.iter().find(|finding| finding["name"] == "hall").unwrap_or_else(|| panic!("{said}"));
    (ended.code, hall.clone())
}

/// Waits until a user has joined, and been let in: the number and the admission.
fn let_in(world: &World, client: &mut Client, user: &str) -> (i64, i64) {
    let body = json!({"user": user});
    let joined = wait_for("a place", || {
        let joined = client.try_call("POST", "/v1/rooms/hall/tickets", None, Some(&body)).ok()?;
        (joined.status == 201 || joined.status == 200).then(|| joined.json())
    });
    let path = format!("/v1/rooms/hall/tickets/{}", joined["ticket"].as_str().expect("a ticket"));
    wait_for("a pass", || client.get(&path).json()["pass"].is_string().then_some(()));
    let number = joined["number"].as_i64().unwrap_or_else(|| panic!("{joined}"));
    (number, world.sql_number(&format!("SELECT admission FROM firstcome_slot WHERE number={number}")))
}

#[test]
fn a_restored_database_stops_its_rooms_until_an_operator_accepts_the_loss() {
    let Some(mut world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let node = Server::spawn(world.node().args(["--dev"]));
    let mut client = node.client();
    assert_eq!(client.put_status("/v1/rooms/hall", &json!({"max_active": 2})), 201);
    assert_eq!(let_in(&world, &mut client, "zoe"), (1, 1));
    let kept = world.keep_sql();
    assert_eq!(let_in(&world, &mut client, "ann"), (2, 2));
    world.restore_sql(&kept);

    // No user gets a place, and the node says why.
    wait_for("bob to be refused because what was acknowledged is missing", || {
        let bob = client.try_call("POST", "/v1/rooms/hall/tickets", None, Some(&json!({"user": "bob"}))).ok()?;
        assert_eq!(bob.status, 503, "{}", bob.text());
        (bob.code() == "store_unavailable").then_some(())
    });
    let ready = client.get("/readyz");
    assert_eq!(ready.status, 200, "all others are served: {}", ready.text());
    assert!(ready.text().contains("room hall") && ready.text().contains("went_back"), "{}", ready.text());
    node.wait_for_log("the database was at position");

    // The list names ann, and a repair touches nothing.
    for more in [&[][..], &["--fix"]] {
        let (code, hall) = reconcile(&world, more);
        assert_eq!((code, &hall["state"], &hall["needs_repair"]), (Some(1), &json!("went_back"), &json!(true)));
        assert!(hall["says"].as_str().is_some_and(|says| says.contains("2 of ann")), "{hall}");
    }

    let (code, hall) = reconcile(&world, &["--accept-loss"]);
    assert_eq!((code, &hall["repair"]), (Some(0), &json!("done")), "{hall}");
    let (number, admission) = let_in(&world, &mut client, "bob");
    assert!(2 < number, "two users with number {number}");
    assert!(2 < admission, "two passes with admission {admission}");
    wait_for("the end of the fault", || (!client.get("/readyz").text().contains("went_back")).then_some(()));
    node.stop();
}
