//! A node serves members and listings from a database. Ann is charged 10 points with an idempotency key, and is told so. The database
//! goes back to a copy of before: it was restored from a backup, or a replica took over that was behind. The node never stopped.
//!
//! Once the node went on without a word: the key was free again, the charge was gone, and `/readyz` stayed 200. Now it stands still, says
//! why, and goes on when an operator accepts the loss.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome};
use crate::support::server::Server;
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::{Durability, Kind, Options, Server as Database};
use serde_json::json;

const KEY: &str = "admin-0123456789-0123456789";

fn plays(kind: Kind) {
    if !machine_has(&kind.to_string(), Database::is_installed(kind)) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let started = runtime.block_on(Database::start(kind, &Options::new(Durability::Durable)));
    let mut sql = started.expect("it starts");
    let directory = tempfile::tempdir().expect("a directory");
    let mut serve = command(PROGRAM, directory.path());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--sql", sql.url()]).env("FIRSTCOME_ADMIN_KEY", KEY);
    let node = Server::spawn(&mut serve);
    let mut client = Client::with_key(node.address(), KEY);
    let mut charge = |key: &str| {
        let body = json!({"amount": 10});
        client.try_call("POST", "/v1/members/ann/points/charge", Some(key), Some(&body))
    };
    assert_eq!(charge("one").expect("an answer").status, 200);
    let copy = runtime.block_on(sql.keep_copy()).expect("a copy");
    runtime.block_on(sql.restart()).expect("it starts again");
    wait_for("the charge", || charge("two").ok().filter(|answer| answer.status == 200));
    runtime.block_on(sql.restore(&copy)).expect("it starts again");

    let ready = || Client::new(node.address()).get("/readyz");
    let unready = wait_for("the fault", || Some(ready()).filter(|ready| ready.text().contains("went_back")));
    assert_eq!(unready.status, 503, "{}", unready.text());
    assert!(unready.text().contains("members and listings"), "{}", unready.text());
    assert_eq!(charge("two").expect("an answer").status, 503, "the key was told");
    node.wait_for_log("member ann record 2");

    firstcome(directory.path(), &["reconcile", "--json", "--sql", sql.url(), "--accept-loss"]).well();
    wait_for("the node", || Some(ready()).filter(|ready| ready.status == 200));
    assert_eq!(charge("two").expect("an answer").status, 200, "it is charged anew");
}

#[test]
fn a_node_on_postgres_stands_still_when_its_database_goes_back() {
    plays(Kind::Postgres);
}

#[test]
fn a_node_on_mariadb_stands_still_when_its_database_goes_back() {
    plays(Kind::MariaDb);
}
