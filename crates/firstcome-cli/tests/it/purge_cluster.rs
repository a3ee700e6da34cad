//! Purges of a cluster over Redis and PostgreSQL: by its nodes and by `firstcome purge` beside them, also when either is killed between
//! two pages.

use crate::support::http::{Answer, Client};
use crate::support::program::{Ended, PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::{SECRET, World};
use firstcome_test_servers::Kind;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use tokio::runtime::Runtime;

/// More than one page.
const CLAIMS: i64 = 1_500;
const PAGE: i64 = 1_000;

/// A command at these servers.
fn at(world: &World, words: &[&str]) -> Command {
    let mut said = command(PROGRAM, world.here());
    said.args(words).args(["--redis", world.redis.url(), "--sql", world.sql.url()]);
    said.env("FIRSTCOME_SECRET", SECRET);
    said
}

fn purge(world: &World, more: &[&str]) -> Ended {
    run(&mut at(world, &[&["purge", "--json", "--retain-claims", "2d"][..], more].concat()))
}

fn rows(printed: &str) -> Value {
    serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

fn counts(requests: u64, claims: i64, coupons: u64, dead_letters: u64) -> Value {
    json!({"requests": requests, "tickets": 0, "admissions": 0, "claims": claims, "coupons": coupons,
        "dead_letters": dead_letters, "records": 0, "heads": 0})
}

fn post(client: &mut Client, body: &Value) -> Answer {
    client.call("POST", "/v1/purge", Some(body))
}

/// A node of this deployment that keeps claims for two days.
fn node(world: &World) -> Server {
    Server::spawn(world.node().args(["--dev", "--retain-claims", "2d"]))
}

/// Imports claims of a coupon, which is deleted three days ago then.
fn filled(world: &World) -> Server {
    world.migrate(world.sql.url());
    let mut text = String::from("coupon,user\n");
    for number in 1..=CLAIMS {
        let _ = writeln!(text, "launch,user-{number}");
    }
    std::fs::write(world.here().join("claims.csv"), text).expect("a file");
    run(&mut at(world, &["import", "--coupon", "launch=2000", "claims.csv"])).well();
    let node = node(world);
    assert_eq!(node.client().call("DELETE", "/v1/coupons/launch", None).status, 204);
    make_older(world);
    node
}

fn make_older(world: &World) {
    world.say(world.sql.url(), "UPDATE firstcome_coupon SET deleted_at=deleted_at-259200000000");
}

fn is_sound(world: &World) {
    run(&mut at(world, &["verify"])).well();
}

/// How far the claims are removed.
fn purged_to(world: &World) -> i64 {
    world.sql_number("SELECT purged_to FROM firstcome_coupon WHERE name='launch'")
}

/// Another program's transaction, which has locked a claim of the second page.
struct Lock {
    runtime: Runtime,
    connection: PgConnection,
}

impl Lock {
    fn of_second_page(world: &World) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let connection = runtime.block_on(PgConnection::connect(world.sql.url())).expect("it answers");
        let mut lock = Self { runtime, connection };
        let serial = PAGE + 200;
        lock.say(&format!("BEGIN; SELECT 1 FROM firstcome_claim WHERE serial={serial} FOR UPDATE"));
        lock
    }

    fn say(&mut self, text: &str) {
        let said = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut self.connection);
        self.runtime.block_on(said).expect("it is done");
    }
}

/// What a coupon says whose claims are purged, or are about to be.
#[track_caller]
fn says_purged(client: &mut Client) {
    let shown = client.get("/v1/coupons/launch").json();
    assert_eq!((&shown["state"], &shown["issued"]), (&json!("deleted"), &json!(CLAIMS)));
    let purged_at = shown["purged_at"].as_str().expect("an instant").to_owned();
    for path in ["claims", "claims/user-7", "claims/user-1400", "claims/user-1400/receipt"] {
        let told = client.get(&format!("/v1/coupons/launch/{path}"));
        assert_eq!((told.status, told.code().as_str()), (410, "purged"), "{path}");
        assert_eq!(told.json()["purged_at"], json!(purged_at));
    }
    for user in ["user-7", "user-1400", "another"] {
        let told = client.claim("launch", user, None).expect("an answer");
        assert_eq!((told.status, told.code().as_str()), (410, "deleted"), "{user}");
    }
    let told = client.call("POST", "/v1/coupons/launch/redemptions", Some(&json!({"code": "2222-2222-2222-2222"})));
    assert_eq!((told.status, told.code().as_str()), (410, "deleted"));
}

/// A purge that has removed one page and waits in the second one.
enum Cut {
    Command(Child),
    Node(Server),
}

fn cut_short(begin: impl FnOnce(&World, Server) -> (Cut, Option<Server>)) {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let one = filled(&world);
    let two = node(&world);
    let mut client = two.client();
    let mut lock = Lock::of_second_page(&world);
    let (cut, _one) = begin(&world, one);
    wait_for("one page", || (purged_to(&world) == PAGE).then_some(()));
    // Meanwhile no other purge begins, and no warning says so; the coupon shows none of its claims.
    let told = post(&mut client, &json!({}));
    assert_eq!((told.status, told.code().as_str()), (409, "purge_refused"), "{}", told.text());
    assert_eq!(told.json()["reason"], "purge_running");
    assert!(purge(&world, &[]).with(1).contains("purge_running"));
    assert!(!two.errors().contains("nothing was purged"), "{}", two.errors());
    says_purged(&mut client);
    is_sound(&world);
    match cut {
        Cut::Command(mut child) => {
            child.kill().expect("it runs");
            child.wait().expect("it has ended");
        }
        Cut::Node(mut server) => server.kill(),
    }
    lock.say("ROLLBACK");
    assert_eq!(purged_to(&world), PAGE, "whole pages are removed");
    is_sound(&world);
    // The turn of a process that died ends by its silence. So long no test waits.
    world.say(world.sql.url(), "UPDATE firstcome_purge SET until_at=1");
    let told = post(&mut client, &json!({}));
    assert_eq!(told.status, 200, "{}", told.text());
    assert_eq!(told.json(), counts(0, CLAIMS - PAGE, 1, 0));
    assert_eq!(world.sql_number("SELECT COUNT(*) FROM firstcome_claim"), 0);
    assert_eq!(rows(&purge(&world, &[]).well()), counts(0, 0, 0, 0));
    says_purged(&mut client);
    assert_eq!(client.put_status("/v1/coupons/launch", &json!({"limit": 3_000})), 410);
    is_sound(&world);
    two.stop();
}

#[test]
fn a_purge_by_the_command_that_is_killed_between_two_pages_is_ended_by_the_next() {
    cut_short(|world, one| {
        let mut child = at(world, &["purge", "--retain-claims", "2d"]);
        let child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        (Cut::Command(child), Some(one))
    });
}

#[test]
fn a_purge_of_a_node_that_is_killed_between_two_pages_is_ended_by_another_node() {
    cut_short(|_, one| {
        let mut client = one.client();
        // Its answer is lost with the node.
        thread::spawn(move || drop(client.try_call("POST", "/v1/purge", None, Some(&json!({})))));
        (Cut::Node(one), None)
    });
}

#[test]
fn two_nodes_purge_one_cluster_once() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let [one, two] = [filled(&world), node(&world)];
    let asked = [&one, &two].map(|node| {
        let mut client = node.client();
        thread::spawn(move || post(&mut client, &json!({})))
    });
    let mut removed = 0;
    for answer in asked {
        let answer = answer.join().expect("an answer");
        match answer.status {
            200 => removed += answer.json()["claims"].as_i64().expect("a count"),
            409 => assert_eq!(answer.json()["reason"], "purge_running"),
            _ => panic!("{}", answer.text()),
        }
    }
    assert_eq!(removed, CLAIMS);
    let mut rows_of_metrics = 0;
    for node in [&one, &two] {
        says_purged(&mut node.client());
        let figures = node.client().get("/metrics").text();
        let line = figures.lines().find_map(|line| line.strip_prefix("firstcome_purged_rows_total{kind=\"claims\"} "));
        rows_of_metrics += line.and_then(|count| count.parse::<i64>().ok()).expect("a count");
        let log = node.errors();
        assert!(!log.contains("nothing was purged") && !log.contains("did not end"), "{log}");
    }
    assert_eq!(rows_of_metrics, CLAIMS);
    is_sound(&world);
}

#[test]
fn a_command_purges_a_cluster_beside_a_node_and_counts_all_kinds() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let node = filled(&world);
    let mut client = node.client();
    client.put_coupon("other", 9);
    let keyed = client.claim("other", "ann", Some("a-key")).expect("an answer");
    assert_eq!(keyed.status, 201, "{}", keyed.text());
    let charge = json!({"amount": 5});
    let told = client.try_call("POST", "/v1/members/ann/points/charge", Some("one"), Some(&charge));
    assert_eq!(told.expect("an answer").status, 200);
    world.say(world.sql.url(), "UPDATE firstcome_request SET at=at-3456000000000");
    world.say(world.sql.url(), "INSERT INTO firstcome_dead_letter VALUES (1,1,1,1,'none','')");
    // By the defaults claims stay.
    let wanted = counts(1, 0, 0, 1);
    assert_eq!(rows(&run(&mut at(&world, &["purge", "--json", "--dry-run"])).well()), wanted);
    let wanted = counts(1, CLAIMS, 1, 1);
    assert_eq!(rows(&purge(&world, &["--dry-run"]).well()), wanted);
    let kept = ["--retain-dead-letters", "forever", "--retain-requests", "forever"];
    assert_eq!(rows(&purge(&world, &[&["--dry-run"][..], &kept].concat()).well()), counts(0, CLAIMS, 1, 0));
    assert_eq!(world.sql_number("SELECT COUNT(*) FROM firstcome_claim"), CLAIMS + 1, "nothing was removed");
    // Members and listings alone.
    let mut alone = command(PROGRAM, world.here());
    alone.args(["purge", "--json", "--dry-run", "--sql", world.sql.url()]);
    assert_eq!(rows(&run(&mut alone).well()), counts(1, 0, 0, 0));
    assert_eq!(rows(&purge(&world, &[]).well()), wanted);
    says_purged(&mut client);
    let again = client.claim("other", "ann", Some("a-key")).expect("an answer");
    assert_eq!((again.status, again.json()), (201, keyed.json()), "what is not over stays");
    is_sound(&world);
    // A clock that stood still for a year, unless an operator says that it is right.
    let long_ago = "UPDATE firstcome_purge SET finished_at=finished_at-400*86400000000";
    world.say(world.sql.url(), long_ago);
    assert!(purge(&world, &[]).with(1).contains("clock_ahead"));
    purge(&world, &["--trust-clock"]).well();
    purge(&world, &[]).well();
    exports_and_imports(&world);
    node.stop();
}

/// An export says which coupons are purged, and an import into another cluster makes them so.
fn exports_and_imports(world: &World) {
    let said = run(&mut at(world, &["export", "--format", "csv", "--coupon", "launch"])).with(1);
    assert!(said.contains("purged: the claims of coupon launch"), "{said}");
    let csv = run(&mut at(world, &["export", "--format", "csv"])).well();
    assert!(csv.contains("other,1,ann") && !csv.contains("user-7"), "{csv}");
    let exported = run(&mut at(world, &["export"])).well();
    std::fs::write(world.here().join("export.jsonl"), &exported).expect("a file");
    let (head, _) = world.sql.url().rsplit_once('/').expect("a database");
    let (redis, sql) = (format!("{}/1", world.redis.url().trim_end_matches('/')), format!("{head}/copy"));
    world.say(world.sql.url(), "CREATE DATABASE copy");
    world.migrate(&sql);
    let copy = |words: &[&str]| {
        let mut said = command(PROGRAM, world.here());
        said.args(words).args(["--redis", &redis, "--sql", &sql]).env("FIRSTCOME_SECRET", SECRET);
        run(&mut said)
    };
    copy(&["import", "export.jsonl"]).well();
    copy(&["verify"]).well();
    let lines = |text: &str| -> Vec<Value> {
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| line["kind"] == "coupon").collect()
    };
    let before = lines(&exported);
    assert!(before[0]["purged_at"].is_string() && before[0]["issued"] == json!(CLAIMS), "{before:?}");
    let after = lines(&copy(&["export"]).well());
    let shown = |lines: &[Value]| -> Vec<[Value; 4]> {
        let of = |line: &Value| ["coupon", "purged_at", "issued", "deleted_at"].map(|name| line[name].clone());
        lines.iter().map(of).collect()
    };
    assert_eq!(shown(&after), shown(&before));
    let mut node = world.node_at(&redis, &sql);
    says_purged(&mut Server::spawn(node.args(["--dev"])).client());
}

/// Members and listings have no clock of their own: a cluster judges its clock by them too.
#[test]
fn a_clock_a_year_ahead_of_the_members_purges_nothing() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let node = node(&world);
    let mut client = node.client();
    let charge = json!({"amount": 5});
    let told = client.try_call("POST", "/v1/members/ann/points/charge", Some("one"), Some(&charge));
    assert_eq!(told.expect("an answer").status, 200);
    for table in ["firstcome_request SET at=at", "firstcome_member SET last_at=last_at"] {
        world.say(world.sql.url(), &format!("UPDATE {table}-400*86400000000"));
    }
    let told = post(&mut client, &json!({}));
    assert_eq!((told.status, &told.json()["reason"]), (409, &json!("clock_ahead")), "{}", told.text());
    node.wait_for_log("nothing was purged");
    assert_eq!(world.sql_number("SELECT COUNT(*) FROM firstcome_request"), 1);
    assert_eq!(post(&mut client, &json!({"trust_clock": true})).json(), counts(1, 0, 0, 0));
}

#[test]
fn a_command_names_one_store_and_sends_nothing_in_plain_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = |words: &[&str], environment: &[(&str, &str)]| {
        let mut purge = command(PROGRAM, directory.path());
        purge.arg("purge").args(words).envs(environment.iter().copied());
        run(&mut purge)
    };
    let (redis, sql) = ("redis://127.0.0.1:1", "postgres://ann@127.0.0.1:1/shop");
    assert!(said(&["--redis", redis], &[]).with(2).contains("--redis needs --sql"));
    assert!(said(&["--data", "d", "--sql", sql], &[]).with(2).contains("cannot be used with"));
    assert!(said(&["--redis", redis, "--sql", sql], &[]).with(2).contains("FIRSTCOME_SECRET"));
    let secret = [("FIRSTCOME_SECRET", SECRET)];
    said(&["--redis", redis, "--sql", sql], &secret).with(3);
    let elsewhere = said(&["--redis", "redis://10.0.0.5", "--sql", sql], &secret).with(2);
    assert!(elsewhere.contains("--allow-plaintext"), "{elsewhere}");
    // Servers of the environment are those of a node: the command asks the service.
    let service = said(&["--url", "http://127.0.0.1:1"], &[("FIRSTCOME_REDIS", redis), ("FIRSTCOME_SQL", sql)]).with(2);
    assert!(service.contains("there is no key"), "{service}");
    for (flag, value) in [
        ("--retain-tickets", "7"),
        ("--retain-claims", "never"),
        ("--retain-dead-letters", "1.5d"),
        ("--retain-heads", "23h"),
    ] {
        assert!(said(&["--data", "d", flag, value], &[]).with(2).contains(flag), "{flag}");
    }
}

#[test]
fn a_purge_by_a_service_refuses_times_on_the_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = |more: &[&str]| {
        let mut purge = command(PROGRAM, directory.path());
        purge.args(["purge", "--url", "http://127.0.0.1:1"]).args(more).env("FIRSTCOME_RETAIN_TICKETS", "9d");
        run(&mut purge).with(2)
    };
    let refused = said(&["--retain-requests", "7d", "--retain-claims=forever", "--retain-heads", "90d"]);
    for flag in ["--retain-requests", "--retain-claims", "--retain-heads"] {
        let says = format!("{flag} is the service's own setting: ");
        assert_eq!(refused.lines().filter(|line| line.contains(&says)).count(), 1, "{refused}");
    }
    assert_eq!(refused.lines().count(), 3, "{refused}");
    // A variable is the setting of a service that runs in the same environment.
    let service = said(&[]);
    assert!(service.contains("there is no key"), "{service}");
}
