//! The service is killed while it purges, and goes on after the next start.

use crate::keys::serve;
use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, run, wait};
use crate::support::server::Server;
use crate::support::wait_for;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;

const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";
const ROWS: i64 = 40_000;
/// 2020, in microseconds of Unix time.
const LONG_AGO: i64 = 1_577_836_800_000_000;

fn start(directory: &Path) -> Server {
    Server::spawn(serve(directory).args(["--retain-claims", "1d"]).env("FIRSTCOME_ADMIN_KEY", ADMIN))
}

fn database(directory: &Path) -> Connection {
    Connection::open(directory.join("data").join("firstcome.db")).expect("the file opens")
}

fn rows(directory: &Path, table: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table}");
    database(directory).query_row(&query, [], |row| row.get(0)).expect("a count")
}

/// Adds rows as the service writes them: claims of the first coupon, half of them redeemed, and tickets of the first room that left.
fn fill(directory: &Path) {
    let mut file = database(directory);
    let rows = file.transaction().expect("it begins");
    for number in 2..=ROWS {
        let id = 1_i64 << 32 | number;
        let user = format!("user-{number}");
        let claim = "INSERT INTO claim (id, user, issued_at) VALUES (?1, ?2, (SELECT max(issued_at) FROM claim))";
        rows.prepare_cached(claim).expect("a statement").execute(params![id, user]).expect("a claim");
        if number % 2 == 0 {
            let redemption = "INSERT INTO redemption (id, redeemed_at) SELECT id, issued_at FROM claim WHERE id = ?1";
            rows.prepare_cached(redemption).expect("a statement").execute([id]).expect("a redemption");
        }
        let ticket = "INSERT INTO ticket (id, user, joined_at, gone) VALUES (?1, ?2, ?3, 1)";
        rows.prepare_cached(ticket).expect("a statement").execute(params![id, user, LONG_AGO]).expect("a ticket");
    }
    rows.execute("UPDATE claim SET issued_at = ?1", [LONG_AGO]).expect("claims of long ago");
    rows.execute("UPDATE redemption SET redeemed_at = ?1", [LONG_AGO]).expect("redemptions of long ago");
    rows.execute("UPDATE ticket SET gone_at = ?1", [LONG_AGO]).expect("tickets of long ago");
    rows.execute("UPDATE coupon SET deleted_at = ?1", [LONG_AGO]).expect("a coupon of long ago");
    rows.commit().expect("it is stored");
}

/// Starts the service and a purge, and kills the service once the table has fewer rows than all.
fn killed_while_purging(directory: &Path, table: &str, all: i64) -> i64 {
    let mut server = start(directory);
    let url = format!("http://{}", server.address());
    let mut purge = command(PROGRAM, directory);
    purge.args(["purge", "--url", &url]).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    let mut purge = purge.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("a page of the purge", || (rows(directory, table) < all).then_some(()));
    server.kill();
    assert!(!wait(&mut purge).success(), "the purge has ended");
    firstcome(directory, &["verify", "--data", "data"]).well();
    rows(directory, table)
}

#[test]
fn a_purge_that_is_killed_leaves_whole_pages_and_the_next_one_ends_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here);
    let mut client = Client::with_key(server.address(), ADMIN);
    client.put_coupon("sale", ROWS.cast_unsigned());
    assert_eq!(client.put_status("/v1/rooms/queue", &json!({"max_active": 1, "paused": true})), 201);
    let claim = client.call("POST", "/v1/coupons/sale/claims", Some(&json!({"user": "ann"}))).json();
    let ticket = client.call("POST", "/v1/rooms/queue/tickets", Some(&json!({"user": "ann"}))).json();
    let ticket = format!("/v1/rooms/queue/tickets/{}", ticket["ticket"].as_str().expect("a ticket"));
    assert_eq!(client.call("DELETE", &ticket, None).status, 204);
    assert_eq!(client.call("DELETE", "/v1/coupons/sale", None).status, 204);
    server.stop();
    fill(here);
    firstcome(here, &["verify", "--data", "data"]).well();

    let claims = killed_while_purging(here, "claim", ROWS);
    assert!((1..ROWS).contains(&claims) && claims % 500 == 0, "{claims} claims are left");
    assert_eq!(rows(here, "redemption"), claims / 2, "with their redemptions");
    assert_eq!(rows(here, "ticket"), ROWS, "claims go first");
    let tickets = killed_while_purging(here, "ticket", ROWS);
    assert!((1..ROWS).contains(&tickets) && tickets % 1_000 == 0, "{tickets} tickets are left");
    assert_eq!(rows(here, "claim"), 0, "the second purge has ended what the first one began");

    let server = start(here);
    let url = format!("http://{}", server.address());
    let mut purge = command(PROGRAM, here);
    let printed = run(purge.args(["purge", "--json", "--url", &url]).env("FIRSTCOME_ADMIN_KEY", ADMIN)).well();
    let printed: Value = serde_json::from_str(&printed).expect("it is JSON");
    assert_eq!((&printed["tickets"], &printed["claims"]), (&json!(tickets), &json!(0)), "{printed}");
    assert_eq!((rows(here, "ticket"), rows(here, "claim"), rows(here, "redemption")), (0, 0, 0));
    let mut client = Client::with_key(server.address(), ADMIN);
    assert_eq!(client.get(&ticket).json()["state"], "expired");
    let next = client.call("POST", "/v1/rooms/queue/tickets", Some(&json!({"user": "ann"}))).json();
    assert_eq!(next["number"], json!(ROWS + 1), "no number is drawn twice");
    let again = client.call("POST", "/v1/coupons/sale/claims", Some(&json!({"user": "ann"})));
    assert_eq!((again.status, again.code().as_str()), (410, "deleted"));
    let redeem = client.call("POST", "/v1/coupons/sale/redemptions", Some(&json!({"code": claim["code"]})));
    assert_eq!((redeem.status, redeem.code().as_str()), (410, "deleted"));
    let coupon = client.get("/v1/coupons/sale").json();
    assert_eq!((&coupon["issued"], &coupon["state"]), (&json!(ROWS), &json!("deleted")), "{coupon}");
    assert!(coupon["purged_at"].is_string(), "{coupon}");
    server.stop();
    firstcome(here, &["verify", "--data", "data"]).well();
}
