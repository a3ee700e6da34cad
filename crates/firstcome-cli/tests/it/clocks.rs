//! A service that starts with an obviously wrong clock logs one warning with both instants, and serves.

use crate::support::http::Client;
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::World;
use firstcome::CouponStore;
use firstcome::core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome::core::id::{CouponName, UserId};
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, ManualClock, SystemClock};
use firstcome_server::rfc3339;
use firstcome_test_servers::Kind;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const ADMIN: &str = "fc_admin_of_the_tests_of_clocks_0123456789";
const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;
/// The begin of the warning of a directory.
const BEHIND: &str = "the clock is earlier than the last write to the data directory: ";
/// The begin of the warning of a node.
const DIFFERS: &str = "the clock of this machine differs from that of the database: ";

fn serve(here: &Path) -> Server {
    Server::start_with(here, &["--log-format", "json", "--coupon", "launch=10"])
}

/// The warnings that begin like this, after the start and all that followed it.
fn warnings(server: &Server, beginning: &str) -> Vec<Value> {
    server.wait_for_log("firstcome has started");
    let log = server.errors();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let begins = |event: &Value| event["message"].as_str().is_some_and(|message| message.starts_with(beginning));
    events.filter(begins).collect()
}

/// The only warning that begins like this.
#[track_caller]
fn warning(server: &Server, beginning: &str) -> Value {
    let mut told = warnings(server, beginning);
    assert_eq!(told.len(), 1, "{told:?}");
    let told = told.remove(0);
    assert_eq!((&told["level"], &told["target"]), (&json!("WARN"), &json!("firstcome_cli::clocks")), "{told}");
    told
}

#[track_caller]
fn instant_us(warning: &Value, field: &str) -> i64 {
    let at = warning[field].as_str().and_then(rfc3339::parse);
    at.unwrap_or_else(|| panic!("no instant {field}: {warning}")).as_us()
}

/// Makes a room whose first visitor is admitted, so that the store keeps its clocks. Returns the path of that visitor's ticket.
fn admit_one(client: &mut Client) -> String {
    let room = json!({"max_active": 1, "idle_ttl_ms": 600_000});
    assert_eq!(client.put_status("/v1/rooms/sale", &room), 201);
    let joined = client.call("POST", "/v1/rooms/sale/tickets", Some(&json!({}))).json();
    let path = format!("/v1/rooms/sale/tickets/{}", joined["ticket"].as_str().expect("a ticket"));
    wait_for("an admission", || is_admitted(client, &path).then_some(()));
    path
}

fn is_admitted(client: &mut Client, ticket: &str) -> bool {
    client.get(ticket).json()["state"] == "admitted"
}

/// Moves what the wall clock showed at the last write, and returns it.
fn move_last_write(here: &Path, by_us: i64) -> i64 {
    let connection = Connection::open(here.join("data").join("firstcome.db")).expect("a database");
    assert_eq!(connection.execute("UPDATE clock SET wall = wall + ?1", [by_us]).expect("it is changed"), 1);
    connection.query_row("SELECT wall FROM clock", [], |row| row.get(0)).expect("an instant")
}

#[track_caller]
fn claim(client: &mut Client, user: &str) {
    let claimed = client.claim("launch", user, None).expect("an answer");
    assert_eq!(claimed.status, 201, "{}", claimed.text());
}

#[test]
fn a_clock_that_is_earlier_than_the_last_write_is_one_warning_and_the_service_serves() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = serve(here);
    let mut client = server.client();
    claim(&mut client, "ann");
    let ticket = admit_one(&mut client);
    assert_eq!(warnings(&server, BEHIND), Vec::<Value>::new(), "a new directory");
    server.stop();
    let last_write_us = move_last_write(here, HOUR_US);

    let server = serve(here);
    let told = warning(&server, BEHIND);
    assert_eq!(instant_us(&told, "last_write_at"), last_write_us);
    let behind_us = last_write_us - instant_us(&told, "clock");
    assert!((HOUR_US / 2..HOUR_US).contains(&behind_us), "{told}");
    let mut client = server.client();
    claim(&mut client, "bob");
    assert!(is_admitted(&mut client, &ticket), "no slot ends by it");
    warning(&server, BEHIND);
    server.stop();
}

/// A directory without a room keeps no clocks: the newest claim shows when it was written.
#[test]
fn a_clock_that_is_earlier_than_the_newest_claim_is_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let ahead = Timestamp::clamped_us(SystemClock::default().now().as_us() + HOUR_US);
    let store = firstcome::sqlite::open(&directory.path().join("data"), Arc::new(ManualClock::new(ahead)) as _);
    let store = store.expect("it opens");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let launch = CouponName::parse("launch").expect("a name");
        let settings = CouponSettings::with_limit(CouponLimit::new(10).expect("a limit"));
        store.put_coupon(&launch, settings).await.expect("an answer").expect("it is put");
        let claim = Claim { user: UserId::parse("ann").expect("a user"), attributes: None, request: None };
        store.claim(&launch, claim).await.expect("an answer").expect("there is one left");
    });
    store.close();
    drop(store);

    let server = serve(directory.path());
    assert_eq!(instant_us(&warning(&server, BEHIND), "last_write_at"), ahead.as_us());
    claim(&mut server.client(), "bob");
    server.stop();
}

#[test]
fn a_clock_that_is_right_or_far_later_than_the_last_write_is_no_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = serve(here);
    admit_one(&mut server.client());
    server.stop();
    // The second service stood still for more than a year. No claim is newer than its last write.
    for by_us in [0, -400 * DAY_US] {
        move_last_write(here, by_us);
        let server = serve(here);
        assert_eq!(warnings(&server, BEHIND), Vec::<Value>::new(), "{by_us}");
        server.stop();
    }
}

/// PostgreSQL finds the function that tells the time in the schema of the test first.
#[test]
fn a_node_whose_clock_differs_from_that_of_the_database_warns_once_and_serves() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.say(world.sql.url(), "CREATE SCHEMA late");
    let sql = format!("{}?options[search_path]=late,pg_catalog", world.sql.url());
    world.migrate(&sql);
    let start = || {
        let mut node = world.node_at(world.redis.url(), &sql);
        node.args(["--log-format", "json", "--coupon", "launch=10"]).env("FIRSTCOME_ADMIN_KEY", ADMIN);
        Server::spawn(&mut node)
    };
    let server = start();
    assert_eq!(warnings(&server, DIFFERS), Vec::<Value>::new(), "one machine has one clock");
    server.stop();
    world.say(
        world.sql.url(),
        "CREATE FUNCTION late.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS \
         'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''",
    );

    let server = start();
    let told = warning(&server, DIFFERS);
    let difference_ms = told["difference_ms"].as_u64().expect("a number");
    assert!((3_500_000..=3_600_000).contains(&difference_ms), "{told}");
    assert!(instant_us(&told, "clock") + HOUR_US / 2 < instant_us(&told, "database_clock"), "{told}");
    claim(&mut Client::with_key(server.address(), ADMIN), "ann");
    warning(&server, DIFFERS);
    server.stop();
}
