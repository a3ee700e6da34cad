//! `firstcome serve --redis --sql`: nodes over servers of the tests' own, and everything for which one is refused.

use crate::support::http::Client;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::{SECRET, World};
use firstcome_test_servers::Kind;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

/// A key that a node has shown.
fn shown(server: &mut Server, name: &str) -> String {
    server.first_key(name)
}

/// The start fails with this code and says all these words, and no password.
#[track_caller]
fn refused(ended: Ended, code: i32, words: &[&str]) {
    let output = ended.stdout.clone();
    let said = ended.with(code);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    assert!(!said.contains("s3cret") && !output.contains("s3cret"), "a password in {said}{output}");
}

fn nodes_share_everything(kind: Kind) {
    let Some(world) = World::start(kind) else { return };
    refused(run(&mut world.node()), 3, &["version 0", "firstcome migrate --sql URL"]);
    let versions = |market: u8, coupons: u8| {
        let part = |name: &str, from: u8, to: u8| json!({"part": name, "from": from, "to": to});
        json!({"parts": [part("market", market, 4), part("coupons", coupons, 10)]})
    };
    assert_eq!(world.migrate(world.sql.url()), versions(0, 0));
    assert_eq!(world.migrate(world.sql.url()), versions(4, 10));

    let mut one = Server::spawn(world.node().args(["--coupon", "launch=5"]));
    let (admin, service) = (shown(&mut one, "admin"), shown(&mut one, "service"));
    let place = one.line("rooms, coupons, members, listings and locks on ");
    assert!(place.contains("redis://127.0.0.1:") && place.contains("://127.0.0.1:"), "{place}");
    let page = one.client().get("/").text();
    assert!(
        page.contains("Redis and a database") && !page.contains("in memory") && !page.contains("gone with"),
        "{page}"
    );
    let mut two = Server::spawn(&mut world.node());
    let call = |server: &Server, key: &str| Client::with_key(server.address(), key);
    let issued = call(&two, &admin).get("/v1/coupons/launch").json();
    assert_eq!((&issued["limit"], &issued["durability"]), (&json!(5), &json!("database")));
    for (server, user, serial) in [(&one, "ann", 1), (&two, "bob", 2)] {
        let claim = call(server, &service).claim("launch", user, Some(user)).expect("an answer");
        assert_eq!((claim.status, claim.json()["serial"].as_u64()), (201, Some(serial)), "{}", claim.text());
    }
    assert_eq!(call(&two, &service).put_status("/v1/coupons/other", &json!({"limit": 1})), 403);
    let acquire = json!({"owner": "ann", "wait_ms": 0, "lease_ms": 60_000});
    let lock = call(&one, &service).call("POST", "/v1/locks/door/acquire", Some(&acquire)).json();

    one.kill();
    let claim = call(&two, &service).claim("launch", "ann", Some("ann")).expect("an answer");
    assert_eq!((claim.status, claim.json()["serial"].as_u64()), (201, Some(1)), "{}", claim.text());
    let claim = call(&two, &service).claim("launch", "cid", None).expect("an answer");
    assert_eq!((claim.status, claim.json()["serial"].as_u64()), (201, Some(3)), "{}", claim.text());
    let released =
        call(&two, &service).call("POST", "/v1/locks/door/release", Some(&json!({"handle": lock["handle"]})));
    assert_eq!(released.status, 200, "{}", released.text());
    assert_eq!(call(&two, &service).get("/v1/rooms/sale").code(), "unknown_room");

    let three = Server::spawn(world.node().env("FIRSTCOME_ADMIN_KEY", "given-0123456789-0123456789"));
    assert_eq!(call(&three, &admin).get("/metrics").status, 401, "keys that are given win");
    let claims = call(&three, "given-0123456789-0123456789").claims("launch");
    assert_eq!(claims.iter().map(|claim| claim["user"].as_str()).collect::<Vec<_>>(), ["ann", "bob", "cid"].map(Some));
    three.stop();
    let ready = format!("http://{}/readyz", two.address());
    firstcome(world.here(), &["health", "--url", &ready]).well();
    two.terminate();
    assert_eq!(two.wait().code(), Some(0), "{}", two.errors());
    let output = two.output();
    assert!(!output.contains("fc_"), "shown twice: {output}");
    assert!(output.contains("keys of the first start, kept only as digests: read and delete "), "{output}");
    firstcome(world.here(), &["health", "--url", &ready]).with(3);
    let kept = std::fs::read_dir(world.here().join("firstcome-data")).expect("a directory");
    let names: Vec<_> = kept.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["first-keys.txt"], "nothing else is kept on this machine");
}

#[test]
fn a_node_that_cannot_leave_the_first_keys_makes_none() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    symlink("absent/place", world.here().join("nowhere")).expect("a link");
    let said = run(world.node().args(["--data", "nowhere"])).with(2);
    assert!(
        said.contains("cannot write the keys of this first start into nowhere") && said.contains("FIRSTCOME_ADMIN_KEY"),
        "{said}"
    );
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    let mut one = Server::spawn(&mut world.node());
    let admin = one.first_key("admin");
    assert_eq!(Client::with_key(one.address(), &admin).put_status("/v1/coupons/launch", &json!({"limit": 1})), 201);
    // A node that finds keys needs no place for them.
    let two = Server::spawn(world.node().args(["--data", "nowhere"]));
    assert_eq!(Client::with_key(two.address(), &admin).put_status("/v1/coupons/launch", &json!({"limit": 1})), 200);
}

#[test]
fn nodes_over_postgres_share_everything_and_one_goes_on_alone() {
    nodes_share_everything(Kind::Postgres);
}

#[test]
fn nodes_over_mariadb_share_everything_and_one_goes_on_alone() {
    nodes_share_everything(Kind::MariaDb);
}

#[test]
fn a_call_that_makes_no_sense_is_refused_before_anything_is_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let (redis, sql) = ("redis://:s3cret@127.0.0.1:1", "postgres://ann:s3cret@127.0.0.1:1/shop");
    let serve = |arguments: &[&str]| {
        let mut serve = command(PROGRAM, here);
        serve.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        serve
    };
    let how = ["head -c 32 /dev/urandom | base64", "FIRSTCOME_SECRET", "--secret-file"];
    refused(run(&mut serve(&["--redis", redis])), 2, &["--redis needs --sql"]);
    refused(run(serve(&["--sql", sql]).env("FIRSTCOME_REDIS", redis)), 2, &how);
    refused(run(&mut serve(&["--redis", redis, "--sql", sql])), 2, &how);
    let both = ["--redis", redis, "--sql", sql];
    refused(run(serve(&both).env("FIRSTCOME_SECRET", "s3cret")), 2, &[how[0], "at least 32 bytes"]);
    refused(run(&mut serve(&[&both[..], &["--secret-file", "none"]].concat())), 2, &["cannot read the secret in none"]);
    std::fs::write(here.join("secret"), "s3cret\n").expect("a file");
    refused(run(&mut serve(&[&both[..], &["--secret-file", "secret"]].concat())), 2, &["at least 32 bytes"]);
    std::fs::write(here.join("secret"), SECRET).expect("a file");
    // The secret will do, and no caller answers.
    let with_secret = [&both[..], &["--secret-file", "secret"]].concat();
    refused(run(&mut serve(&with_secret)), 3, &["no server answers at 127.0.0.1:1"]);
    refused(run(serve(&both).env("FIRSTCOME_SECRET_FILE", "secret")), 3, &["no server answers at 127.0.0.1:1"]);
    let settings = format!("redis = {redis:?}\nsql = {sql:?}\nsecret-file = \"secret\"\n");
    std::fs::write(here.join("firstcome.toml"), settings).expect("a file");
    refused(run(&mut serve(&["--config", "firstcome.toml"])), 3, &["no server answers at 127.0.0.1:1"]);
    std::fs::remove_file(here.join("firstcome.toml")).expect("it is there");
    for redis in ["http://s3cret@host", "redis://s3cret@", "redis+sentinel://:s3cret@host", "s3cret"] {
        let ended = run(serve(&["--redis", redis, "--sql", sql]).env("FIRSTCOME_SECRET", SECRET));
        refused(ended, 2, &["the address of the server cannot be read"]);
    }
    let ended = run(serve(&["--redis", redis, "--sql", "sqlite://s3cret"]).env("FIRSTCOME_SECRET", SECRET));
    refused(ended, 2, &["the address must be postgres://"]);
    refused(firstcome(here, &["migrate", "--sql", "sqlite://s3cret"]), 2, &["the address must be postgres://"]);
    refused(firstcome(here, &["migrate", "--sql", sql]), 3, &["cannot be used now"]);
}

#[test]
fn servers_that_may_lose_or_mix_up_what_was_told_are_refused() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let (redis, sql) = (world.redis.url(), world.sql.url());
    world.migrate(sql);
    let node = Server::spawn(world.node().args(["--dev"]));
    let put = json!({"limit": 5, "durability": "redis"});
    assert_eq!(node.client().put_status("/v1/coupons/early", &put), 201);
    node.stop();

    let wrong = redis.replace("redis://", "redis://nobody:s3cret@");
    // What is set at Redis, what it is set back to, and what is said meanwhile.
    let rows: [(&[&str], &[&str], &[&str]); 5] = [
        (
            &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
            &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
            &["allkeys-lru", "set maxmemory-policy noeviction"],
        ),
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], &["replica", "name its primary"]),
        (
            &["CONFIG", "SET", "appendfsync", "everysec"],
            &["CONFIG", "SET", "appendfsync", "always"],
            &["coupon early", "appendfsync everysec", "set appendonly yes and appendfsync always"],
        ),
        (
            &["CONFIG", "SET", "appendonly", "no"],
            &["CONFIG", "SET", "appendonly", "yes"],
            &["coupon early", "appendonly no", "set appendonly yes and appendfsync always"],
        ),
        (&["SET", "fc:deployment", "7"], &["DEL", "fc:deployment"], &["another deployment"]),
    ];
    for (set, back, words) in rows {
        world.redis(set);
        refused(run(&mut world.node()), 3, words);
        world.redis(back);
    }
    // The mark is made anew by the caller that comes first.
    Server::spawn(world.node().args(["--dev"])).stop();
    refused(run(&mut world.node_at(&wrong, sql)), 3, &["refused the login", "check user and password"]);
    refused(run(world.node().env("FIRSTCOME_SECRET", SECRET.replace('a', "b"))), 3, &["FIRSTCOME_SECRET"]);

    // Another database on the same Redis, and the user who may not do enough.
    let (head, _) = sql.rsplit_once('/').expect("a database");
    let other = format!("{head}/other");
    world.say(sql, "CREATE DATABASE other");
    world.migrate(&other);
    refused(run(&mut world.node_at(redis, &other)), 3, &["another deployment", "database number of its own"]);
    world.say(sql, "CREATE ROLE poor LOGIN");
    let (_, at) = sql.rsplit_once('@').expect("a user");
    let poor = format!("postgres://poor:s3cret@{at}");
    refused(run(&mut world.node_at(redis, &poor)), 3, &["permission denied", "SELECT, INSERT, UPDATE and DELETE"]);
    let name = sql.rsplit('/').next().expect("a database");
    world.say(sql, &format!("ALTER DATABASE {name} SET synchronous_commit=off"));
    refused(run(&mut world.node()), 3, &["synchronous_commit is off and must be on"]);
    world.say(sql, &format!("ALTER DATABASE {name} RESET synchronous_commit"));
    // All is as it was.
    let mut node = Server::spawn(&mut world.node());
    let admin = shown(&mut node, "admin");
    wait_for("readiness", || (node.client().get("/readyz").status == 200).then_some(()));
    assert_eq!(Client::with_key(node.address(), &admin).get("/v1/coupons/early").json()["durability"], "redis");
    node.stop();
}

/// Runs a command on both servers.
fn say(world: &World, words: &[&str], with_secret: bool) -> Ended {
    let mut said = command(PROGRAM, world.here());
    said.args(words).args(["--redis", world.redis.url(), "--sql", world.sql.url()]);
    if with_secret {
        said.env("FIRSTCOME_SECRET", SECRET);
    }
    run(&mut said)
}

/// Verify lists every invariant, with what was checked of a coupon with two claims.
fn lists_every_invariant(world: &World) {
    let report: Value = serde_json::from_str(&say(world, &["verify"], true).well()).expect("JSON");
    assert_eq!((&report["breaches"], &report["not_checked"]), (&json!(0), &json!([])));
    let checks = report["checks"].as_array().expect("checks");
    let counts: Vec<(&str, u64)> = checks
        .iter()
        .map(|check| (check["invariant"].as_str().expect("a text"), check["checked"].as_u64().expect("a count")))
        .collect();
    let wanted = [
        ("no oversell", 1),
        ("one each", 2),
        ("gapless", 2),
        ("in order", 2),
        ("every claim belongs", 2),
        ("users and attributes", 2),
        ("an idempotency key has one effect", 2),
        ("a redemption", 0),
        ("a coupon stands", 1),
        ("names and settings of coupons", 1),
        ("a dead letter", 0),
        ("a code names one claim", 1),
        ("every ticket and slot", 0),
        ("users of tickets", 0),
        ("one living place", 0),
        ("in line, in a slot or gone", 0),
        ("an admission stands once", 0),
        ("the line has reached", 0),
        ("no number is above", 0),
        ("names and settings of rooms", 0),
        ("a renewal is of a ticket that is not gone", 0),
        ("heads of a room or coupon are one chain", 0),
        ("the store has all that a head", 0),
        ("every head has a signature", 0),
        ("every secret opens", 5),
        ("an open sequencer", 1),
        ("a sequencer goes on", 1),
        ("what a sequencer counts", 1),
        ("a sequencer judges", 1),
        ("a sequencer knows", 4),
        ("an open log", 0),
        ("the image of a log", 0),
        ("a log leads to", 0),
        ("no visitor was admitted", 0),
        ("records are a chain", 0),
    ];
    for ((invariant, count), (beginning, checked)) in counts.iter().zip(wanted) {
        // The time that passed says how many heads were published.
        let is_checked = *count == checked || invariant.contains("head");
        assert!(invariant.starts_with(beginning) && is_checked, "{invariant}: {count}, not {beginning}: {checked}");
    }
    assert_eq!(counts.len(), wanted.len() + 11, "and the rest of auctions");
    let ended = firstcome(world.here(), &["verify", "--sql", world.sql.url()]);
    let report: Value = serde_json::from_str(&ended.well()).expect("JSON");
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(23 + 12));
    assert!(report["not_checked"][0].as_str().is_some_and(|it| it.contains("FIRSTCOME_SECRET")), "{report}");
}

#[test]
fn verify_and_reconcile_see_what_redis_and_the_database_have() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let (redis, sql) = (world.redis.url(), world.sql.url());
    let say = |words: &[&str], with_secret: bool| say(&world, words, with_secret);
    refused(say(&["verify"], false), 3, &["no tables of a deployment"]);
    refused(say(&["reconcile"], false), 3, &["no tables of a deployment"]);
    world.migrate(sql);
    let mut node = Server::spawn(world.node().args(["--coupon", "launch=5"]));
    let service = shown(&mut node, "service");
    for user in ["ann", "bob"] {
        let claim = Client::with_key(node.address(), &service).claim("launch", user, Some(user)).expect("an answer");
        assert_eq!(claim.status, 201, "{}", claim.text());
    }
    // Beside the node.
    lists_every_invariant(&world);
    let found = |ended: Ended, code: i32| {
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let finding = report["findings"][0].clone();
        assert_eq!((&finding["kind"], &finding["name"]), (&json!("coupon"), &json!("launch")), "{report}");
        (
            finding["state"].as_str().unwrap_or_default().to_owned(),
            finding["repair"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let is = |state: &str, repair: &str| (state.to_owned(), repair.to_owned());
    assert_eq!(found(say(&["reconcile"], false), 0), is("fine", "none"));
    world.redis(&["HSET", "fc:{c1}:gate", "void", "2"]);
    assert_eq!(found(say(&["reconcile"], false), 1), is("miscounted", "none"));
    refused(say(&["verify"], true), 1, &["1 breaches found"]);
    refused(say(&["reconcile", "--fix"], false), 2, &["FIRSTCOME_SECRET"]);
    assert_eq!(found(say(&["reconcile", "--fix"], true), 0), is("miscounted", "done"));
    assert_eq!(found(say(&["reconcile"], false), 0), is("fine", "none"));
    say(&["verify"], true).well();
    // The node goes on.
    let claim = Client::with_key(node.address(), &service).claim("launch", "cid", None).expect("an answer");
    assert_eq!((claim.status, claim.json()["serial"].as_u64()), (201, Some(3)), "{}", claim.text());
    node.stop();
    let nobody = ["--redis", "redis://:s3cret@127.0.0.1:1", "--sql", sql];
    refused(firstcome(world.here(), &[&["verify"], &nobody[..]].concat()), 3, &["no server answers at 127.0.0.1:1"]);
    refused(firstcome(world.here(), &[&["reconcile"], &nobody[..]].concat()), 3, &["no server answers at 127.0.0.1:1"]);
    refused(
        firstcome(world.here(), &["reconcile", "--redis", redis, "--sql", "sqlite://s3cret"]),
        2,
        &["the address must be"],
    );
    refused(firstcome(world.here(), &["verify", "--redis", redis]), 2, &["--sql"]);
}
