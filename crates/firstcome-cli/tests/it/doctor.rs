//! `firstcome doctor`: what it says of good and bad servers and directories, and with which exit code.

use crate::support::http::read_answer;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use crate::support::world::{SECRET, World};
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::{Durability, Kind, Options, Server as Database};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use tokio::runtime::Runtime;

/// What it says of each thing: what it is, and the verdict.
fn said(ended: &Ended) -> impl Fn(&str, &str) -> (String, String) {
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    move |of, what| {
        let checks = report["checks"].as_array().expect("checks");
        let found = checks.iter().find(|check| check["of"] == of && check["what"] == what);
        let found = found.unwrap_or_else(|| panic!("nothing of {of} {what}: {report}"));
        let text = |member: &str| found[member].as_str().expect("a text").to_owned();
        (text("is"), text("verdict"))
    }
}

#[track_caller]
fn is(told: &(String, String), value: &str, verdict: &str) {
    assert_eq!((told.0.as_str(), told.1.as_str()), (value, verdict));
}

#[test]
fn good_servers_are_fine_and_bad_ones_are_not() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let (redis, sql) = (world.redis.url(), world.sql.url());
    let doctor = |redis: &str, secret: Option<&str>| {
        let mut doctor = command(PROGRAM, world.here());
        doctor.args(["doctor", "--redis", redis, "--sql", sql]);
        if let Some(secret) = secret {
            doctor.env("FIRSTCOME_SECRET", secret);
        }
        run(&mut doctor)
    };
    let ended = doctor(redis, None);
    is(&said(&ended)("database", "tables of coupons"), "0 of 10", "unsafe");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    world.migrate(sql);
    let ended = doctor(redis, Some(SECRET));
    is(&said(&ended)("both", "deployment"), "none yet", "fine");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    Server::spawn(&mut world.node()).stop();

    let ended = doctor(redis, Some(SECRET));
    let of = said(&ended);
    is(&of("both", "deployment"), "the same on both", "fine");
    is(&of("database", "secret"), "that of the deployment", "fine");
    is(&of("database", "tables of market"), "4 of 4", "fine");
    is(&of("database", "synchronous_commit"), "on", "fine");
    is(&of("redis", "appendfsync"), "always", "fine");
    is(&of("redis", "maxmemory-policy"), "noeviction", "fine");
    for server in ["redis", "database"] {
        assert_eq!(of(server, "clock").1, "fine");
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    is(&said(&doctor(redis, None))("database", "secret"), "not compared", "note");
    is(&said(&doctor(redis, Some(&SECRET.replace('a', "b"))))("database", "secret"), "another one", "unsafe");

    world.redis(&["DEL", "fc:deployment"]);
    let ended = doctor(redis, Some(SECRET));
    is(&said(&ended)("both", "deployment"), "not on Redis", "note");
    assert!(!ended.stdout.contains("\"nothing\"") && ended.stdout.contains("fill it from the database"), "{ended:?}");

    world.redis(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    world.redis(&["CONFIG", "SET", "appendfsync", "everysec"]);
    world.redis(&["SET", "fc:deployment", "7"]);
    let ended = doctor(redis, Some(SECRET));
    let of = said(&ended);
    is(&of("redis", "maxmemory-policy"), "allkeys-lru", "unsafe");
    is(&of("redis", "appendfsync"), "everysec", "note");
    is(&of("both", "deployment"), "Redis belongs to another deployment", "unsafe");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    world.redis(&["REPLICAOF", "127.0.0.1", "1"]);
    is(&said(&doctor(redis, None))("redis", "role"), "replica", "unsafe");

    let ended = doctor("redis://:s3cret@127.0.0.1:1", None);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    is(&said(&ended)("database", "synchronous_commit"), "on", "fine");
    let reached = said(&ended)("redis", "reached");
    assert!(reached.0.contains("refused") && reached.1 == "unsafe", "{reached:?}");
    // What the operator has to mend first is named, and the other server is looked at all the same.
    for closed in ["postgres://ann:s3cret@127.0.0.1:1/shop", "mysql://ann:s3cret@127.0.0.1:1/shop"] {
        let ended = run(command(PROGRAM, world.here()).args(["doctor", "--redis", redis, "--sql", closed]));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let reached = said(&ended)("database", "reached");
        assert!(reached.0.contains("refused") && reached.1 == "unsafe", "{reached:?}");
        is(&said(&ended)("redis", "role"), "replica", "unsafe");
        assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"), "{ended:?}");
    }
    let ended = doctor("http://s3cret", None);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    // Members and listings alone, as the settings say.
    fs::write(world.here().join("firstcome.toml"), format!("sql = {sql:?}")).expect("it is ours");
    let ended = firstcome(world.here(), &["doctor", "--config", "firstcome.toml"]);
    is(&said(&ended)("database", "tables of market"), "4 of 4", "fine");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_directory_that_others_may_read_is_not_fine() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    firstcome(here, &["doctor", "--data", "data"]).with(3);
    let mut serve = command(PROGRAM, here);
    Server::spawn(serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"])).stop();
    let ended = firstcome(here, &["doctor", "--data", "data"]);
    let of = said(&ended);
    is(&of("directory", "keys.toml"), "its owner's alone", "fine");
    is(&of("sqlite", "tables"), "version 16", "fine");
    let in_memory = of("directory", "file system").1 == "unsafe";
    assert_eq!(ended.code, Some(i32::from(in_memory)), "{ended:?}");
    fs::set_permissions(here.join("data/keys.toml"), Permissions::from_mode(0o644)).expect("it is ours");
    let ended = firstcome(here, &["doctor", "--data", "data"]);
    is(&said(&ended)("directory", "keys.toml"), "other users can read it", "unsafe");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    firstcome(here, &["doctor", "--redis", "redis://127.0.0.1:1"]).with(2);
}

/// Whether it says something of this thing.
fn says_of(ended: &Ended, of: &str) -> bool {
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    report["checks"].as_array().expect("checks").iter().any(|check| check["of"] == of)
}

#[test]
fn a_directory_of_locks_is_checked_alone_or_beside_that_of_a_service() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    fs::create_dir(here.join("locks")).expect("a directory");
    firstcome(here, &["lock", "a", "--store", "locks", "--", "true"]).well();
    let alone = || firstcome(here, &["doctor", "--store", "locks"]);
    let ended = alone();
    let of = said(&ended);
    is(&of("store", "path"), "locks", "fine");
    is(&of("store", "locks"), "0 held", "fine");
    let in_memory = of("store", "file system").1 == "unsafe";
    assert_eq!(ended.code, Some(i32::from(in_memory)), "{ended:?}");
    assert!(!says_of(&ended, "directory"), "{ended:?}");

    let ended = firstcome(here, &["doctor", "--store", "locks", "--data", "data"]);
    is(&said(&ended)("store", "locks"), "0 held", "fine");
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let by_variable = || run(command(PROGRAM, here).env("FIRSTCOME_STORE", "locks").arg("doctor"));
    let ended = by_variable();
    is(&said(&ended)("store", "locks"), "0 held", "fine");
    assert!(!says_of(&ended, "directory"), "{ended:?}");
    // A variable for `firstcome lock` does not hide the directory of a service. The command line does.
    fs::create_dir(here.join("firstcome-data")).expect("a directory");
    let ended = by_variable();
    is(&said(&ended)("directory", "path"), "./firstcome-data", "fine");
    assert!(says_of(&ended, "store"), "{ended:?}");
    assert!(!says_of(&alone(), "directory"));

    // Nor does a variable that `firstcome lock` refuses.
    let ended = run(command(PROGRAM, here).env("FIRSTCOME_STORE", "http://127.0.0.1:1").arg("doctor"));
    is(&said(&ended)("directory", "path"), "./firstcome-data", "fine");
    assert!(said(&ended)("store", "address").0.contains("does not lock over http://"), "{ended:?}");

    fs::write(here.join("locks/locks.db"), "no database ".repeat(1_000)).expect("it is ours");
    let ended = alone();
    assert_eq!(said(&ended)("store", "locks").1, "unsafe");
    assert_eq!(ended.code, Some(1), "{ended:?}");
}

#[test]
fn servers_of_locks_are_judged_by_what_locks_need() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let (redis, sql) = (world.redis.url(), world.sql.url());
    let doctor = |store: &str| run(command(PROGRAM, world.here()).args(["doctor", "--store", store]));
    let ended = doctor(redis);
    let of = said(&ended);
    is(&of("store", "address"), redis, "fine");
    is(&of("store", "role"), "primary", "fine");
    is(&of("store", "appendfsync"), "always", "fine");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!says_of(&ended, "redis") && !says_of(&ended, "directory"), "{ended:?}");

    let ended = doctor(sql);
    is(&said(&ended)("store", "synchronous_commit"), "on", "fine");
    is(&said(&ended)("store", "replication"), "none is seen", "fine");
    // The tables of a service are none of its business.
    assert!(!ended.stdout.contains("tables of"), "{ended:?}");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    world.migrate(sql);
    let beside = ["doctor", "--redis", redis, "--sql", sql, "--store", redis];
    let ended = firstcome(world.here(), &beside);
    assert!(["redis", "database", "store"].iter().all(|of| says_of(&ended, of)), "{ended:?}");
    assert_eq!(ended.code, Some(0), "{ended:?}");

    // A restart makes one server forget. A quorum counts each start as that.
    world.redis(&["CONFIG", "SET", "appendfsync", "everysec"]);
    is(&said(&doctor(redis))("store", "appendfsync"), "everysec", "note");
    let ended = doctor(&format!("{redis} redis://127.0.0.1:1 redis://127.0.0.1:2"));
    let first = format!("store {}", redis.trim_start_matches("redis://"));
    is(&said(&ended)(&first, "appendfsync"), "everysec", "fine");
    is(&said(&ended)(&first, "transport"), "plain text, on this machine", "fine");
    for closed in ["store 127.0.0.1:1", "store 127.0.0.1:2"] {
        assert_eq!(said(&ended)(closed, "reached").1, "unsafe");
    }
    assert_eq!(ended.code, Some(1), "{ended:?}");
    world.redis(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let ended = doctor(redis);
    is(&said(&ended)("store", "maxmemory-policy"), "allkeys-lru", "unsafe");
    assert_eq!(ended.code, Some(1), "{ended:?}");
}

#[test]
fn a_store_of_locks_that_is_away_is_unsafe_and_one_that_locks_refuse_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for closed in ["redis://:s3cret@127.0.0.1:1", "postgres://ann:s3cret@127.0.0.1:1/shop"] {
        let ended = firstcome(here, &["doctor", "--store", closed]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let reached = said(&ended)("store", "reached");
        assert!(reached.0.contains("refused") && reached.1 == "unsafe", "{reached:?}");
        is(&said(&ended)("firstcome", "plain text to other machines"), "refused", "fine");
        assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"), "{ended:?}");
    }
    let closed = "redis://127.0.0.1:1";
    let table: [(&[&str], &str); 7] = [
        (&["--store", "http://127.0.0.1:1"], "does not lock over http://"),
        (&["--store", "memory:"], "exclude no other process"),
        (&["--store", "mysql://127.0.0.1:1/shop"], "have no lease"),
        (&["--store", "missing"], "there is no store missing"),
        (&["--store", "ftp://a"], "no locks are reached by ftp://"),
        (&["--store", closed, "--store", "redis://127.0.0.1:2"], "3 to 9 servers"),
        (&["--store", closed, "--store-file", "file"], "not both"),
    ];
    for (stores, says) in table {
        let told = firstcome(here, &[&["doctor"], stores].concat()).with(2);
        assert!(told.contains(says) && told.trim_end().lines().count() == 1, "{stores:?}: {told}");
    }
}

#[test]
fn a_running_service_is_asked_for_the_proxy_that_its_operator_forgot() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut serve = command(PROGRAM, here);
    let service = Server::spawn(serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]));
    let url = format!("http://{}", service.address());
    let doctor = || firstcome(here, &["doctor", "--url", &url]);
    let ended = doctor();
    is(&said(&ended)("service", "ready"), "yes", "fine");
    assert!(!ended.stdout.contains("proxy_not_trusted"), "{ended:?}");
    let mut stream = TcpStream::connect(service.address()).expect("it listens");
    let forwarded = "GET /v1/coupons/launch HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 198.51.100.1\r\n\r\n";
    stream.write_all(forwarded.as_bytes()).expect("it reads");
    read_answer(&mut stream).expect("it answers");
    let ended = doctor();
    assert_eq!(said(&ended)("service", "proxy_not_trusted").1, "note");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    service.stop();
    let ended = doctor();
    assert_eq!(said(&ended)("service", "reached").1, "unsafe");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    firstcome(here, &["doctor", "--url", "localhost:8080"]).with(2);
}

/// What doctor says of the copies of a database.
fn replication_of(sql: &str) -> (String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    said(&firstcome(directory.path(), &["doctor", "--json", "--sql", sql]))("database", "replication")
}

fn started(runtime: &Runtime, kind: Kind, settings: &[&str]) -> Option<Database> {
    let mut options = Options::new(Durability::Durable);
    options.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    machine_has(&kind.to_string(), Database::is_installed(kind))
        .then(|| runtime.block_on(Database::start(kind, &options)).expect("it starts"))
}

/// A program that takes the stream of a server as its standby does.
struct Standby(Child);

impl Drop for Standby {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_standby_that_may_lack_commits_is_seen_on_postgres() {
    let runtime = Runtime::new().expect("a runtime");
    let Some(sql) = started(&runtime, Kind::Postgres, &[]) else { return };
    is(&replication_of(sql.url()), "none is seen", "fine");
    let directory = tempfile::tempdir().expect("a directory");
    let mut receive = Command::new(firstcome_test_servers::postgres_program("pg_receivewal").expect("it is there"));
    receive.arg("--directory").arg(directory.path()).args(["--synchronous", "--no-loop", "--dbname", sql.url()]);
    let _standby = Standby(receive.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    let seen = wait_for("the standby", || Some(replication_of(sql.url())).filter(|seen| seen.0 != "none is seen"));
    is(&seen, "1 copies, asynchronous", "note");
    let say = |text: &'static str| {
        let said = async { PgConnection::connect(sql.url()).await?.execute(sqlx::raw_sql(text)).await };
        runtime.block_on(said).expect("it is done");
    };
    say("ALTER SYSTEM SET synchronous_standby_names='*'");
    say("SELECT pg_reload_conf()");
    wait_for("commits to wait", || {
        (replication_of(sql.url()) == ("1 copies, synchronous".to_owned(), "fine".to_owned())).then_some(())
    });
}

#[test]
fn a_replica_that_may_lack_commits_is_seen_on_mariadb() {
    let runtime = Runtime::new().expect("a runtime");
    let primary = ["log-bin=binlog", "sync-binlog=1", "server-id=1", "rpl-semi-sync-master-timeout=600000"];
    let Some(primary) = started(&runtime, Kind::MariaDb, &primary) else { return };
    let Some(replica) = started(&runtime, Kind::MariaDb, &["server-id=2"]) else { return };
    is(&replication_of(primary.url()), "none is seen", "fine");
    let say = |server: &Database, text: String| {
        let said = async {
            let mut connection = MySqlConnection::connect(server.url()).await?;
            connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await
        };
        runtime.block_on(said).expect("it is done");
    };
    let port = primary.url().rsplit([':', '/']).nth(1).expect("a port");
    let from =
        format!("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='root', MASTER_USE_GTID=NO");
    say(&replica, format!("{from}; START SLAVE"));
    let seen = wait_for("the replica", || Some(replication_of(primary.url())).filter(|seen| seen.0 != "none is seen"));
    is(&seen, "1 copies, asynchronous", "note");
    say(&replica, "STOP SLAVE; SET GLOBAL rpl_semi_sync_slave_enabled=ON; START SLAVE".to_owned());
    say(&primary, "SET GLOBAL rpl_semi_sync_master_enabled=ON".to_owned());
    wait_for("commits to wait", || {
        (replication_of(primary.url()) == ("1 copies, synchronous".to_owned(), "fine".to_owned())).then_some(())
    });
}
