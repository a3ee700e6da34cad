//! The restore of a cluster by the commands of `docs/operations.md`.
//!
//! zoe claims, and an operator backs the database up with its own tool beside the node. ann claims. The database is lost: the operator
//! stops the node, restores with the tool, compares with Redis, accepts the loss, and starts the node again.

use crate::support::http::{Answer, Client};
use crate::support::machine_has;
use crate::support::program::{PROGRAM, command, is_installed, run};
use crate::support::server::Server;
use crate::support::world::{SECRET, World};
use firstcome_test_servers::{Kind, postgres_program};
use serde_json::{Value, json};
use std::process::Command;

fn claim(node: &Server, key: &str, user: &str) -> Answer {
    Client::with_key(node.address(), key).claim("launch", user, None).expect("an answer")
}

/// Runs a command about the servers of the deployment: the code, and what it prints.
fn told(world: &World, words: &[&str]) -> (Option<i32>, Value) {
    let mut told = command(PROGRAM, world.here());
    told.args(words).args(["--json", "--redis", world.redis.url(), "--sql", world.sql.url()]);
    let ended = run(told.env("FIRSTCOME_SECRET", SECRET));
    let said = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.code, said)
}

/// Backs a cluster up, loses the claims that follow, and restores it.
fn plays(world: &World, back_up: &mut Command, restore: &mut Command) {
    world.migrate(world.sql.url());
    let mut node = Server::spawn(world.node().args(["--coupon", "launch=5"]));
    let service = node.first_key("service");
    let zoe = claim(&node, &service, "zoe").json();
    run(back_up).well();
    let ann = claim(&node, &service, "ann").json();
    assert_eq!((&zoe["serial"], &ann["serial"]), (&json!(1), &json!(2)));
    node.stop();

    run(restore).well();
    for words in [&["verify"][..], &["reconcile"]] {
        let (code, said) = told(world, words);
        assert!(code == Some(1) && said.to_string().contains("launch"), "{words:?} finds no loss: {code:?} {said}");
    }
    let (code, said) = told(world, &["reconcile", "--accept-loss"]);
    assert!(code == Some(0) && said.to_string().contains("ann (ticket 2)"), "{code:?} {said}");

    let node = Server::spawn(&mut world.node());
    let bob = claim(&node, &service, "bob").json();
    assert_eq!(bob["serial"], 2, "{bob}");
    assert_ne!(bob["code"], ann["code"], "two people with one code");
    let zoe_again = claim(&node, &service, "zoe");
    assert_eq!((zoe_again.status, zoe_again.code().as_str()), (409, "already_issued"));
    let (code, said) = told(world, &["verify"]);
    assert_eq!(code, Some(0), "{said}");
    node.stop();
}

#[test]
fn a_cluster_on_postgres_is_restored_by_the_commands_of_the_documentation() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let tool = |name: &str| {
        let program = postgres_program(name).expect("it comes with PostgreSQL");
        command(program.to_str().expect("a path"), world.here())
    };
    let sql = world.sql.url();
    plays(
        &world,
        tool("pg_dump").args(["--format=custom", "--file=shop.dump", sql]),
        tool("pg_restore").args(["--clean", &format!("--dbname={sql}"), "shop.dump"]),
    );
}

#[test]
fn a_cluster_on_mariadb_is_restored_by_the_commands_of_the_documentation() {
    if !machine_has("mariadb-dump and mariadb", ["mariadb-dump", "mariadb"].into_iter().all(is_installed)) {
        return;
    }
    let Some(world) = World::start(Kind::MariaDb) else { return };
    let address = world.sql.url().strip_prefix("mysql://root@").expect("it is root's");
    let (place, database) = address.split_once('/').expect("a database");
    let (host, port) = place.split_once(':').expect("a port");
    let settings = format!("[client]\nhost={host}\nport={port}\nuser=root\n");
    std::fs::write(world.here().join(".my.cnf"), settings).expect("it can be written");
    let shell = |line: &str| {
        let mut shell = command("/bin/sh", world.here());
        shell.env("HOME", world.here()).args(["-c", line]);
        shell
    };
    plays(
        &world,
        &mut shell(&format!("mariadb-dump --single-transaction --result-file=shop.sql --databases {database}")),
        &mut shell("mariadb < shop.sql"),
    );
}
