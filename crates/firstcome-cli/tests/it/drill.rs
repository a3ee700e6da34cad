//! `firstcome drill`: events against a real service, killed under load; and bugs that the audit must see.

use crate::archive_rooms::shown;
use crate::support::program::{Ended, PROGRAM, command, firstcome, is_installed, run_for, signal, wait};
use crate::support::server::Server;
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::{Durability, Kind, Options};
use serde_json::Value;
use sqlx::Connection;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// The longest drill here takes a quarter of this on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn drill(directory: &Path, arguments: &[&str], planted: Option<&str>) -> Ended {
    let mut command = command(PROGRAM, directory);
    if let Some(bug) = planted {
        command.env("FIRSTCOME_PLANTED", bug);
    }
    run_for(command.arg("drill").args(arguments), PATIENCE)
}

fn report(directory: &Path) -> Value {
    let text = std::fs::read_to_string(directory.join("report/report.json")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// What the report of a sale in which all was well says, with so many kills.
fn all_held(directory: &Path, people: u64, stock: u64, kills: usize) {
    let report = promises_held(directory, kills);
    assert_eq!((report["people"].as_u64(), report["issued"].as_u64()), (Some(people), Some(stock)));
}

/// The report of a drill in which all was well, with so many kills.
fn promises_held(directory: &Path, kills: usize) -> Value {
    let report = report(directory);
    assert_eq!(report["violations"].as_array().map(Vec::len), Some(0), "{:#}", report["violations"]);
    let killed = report["kills"].as_array().expect("kills");
    assert_eq!(killed.len(), kills);
    assert!(killed.iter().all(|kill| kill["in_flight"].as_u64() > Some(0)), "{killed:?}");
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.iter().all(|check| check["checked"].as_u64() > Some(0)), "every promise was looked at: {checks:#?}");
    let page = std::fs::read_to_string(directory.join("report/report.html")).expect("a page");
    assert!(page.contains("Every promise held") && !page.contains("http://") && !page.contains("https://"));
    let left: Vec<_> =
        std::fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["report"], "nothing else stays behind");
    report
}

#[test]
fn a_concert_holds_every_promise_through_kills() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments =
        ["concert", "--people", "3000", "--stock", "450", "--seconds", "45", "--kill", "2", "--report", "report"];
    let said = drill(directory.path(), &arguments, None).well();
    assert!(said.contains("\"violations\": []"), "{said}");
    all_held(directory.path(), 3_000, 450, 2);
}

#[test]
fn real_browsers_among_the_people_of_a_concert_show_what_is_true() {
    if !machine_has("chromedriver", Path::new("/usr/bin/chromedriver").exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let size = ["concert", "--people", "300", "--stock", "120", "--seconds", "20", "--kill", "1"];
    let said = drill(directory.path(), &[&size[..], &["--browser", "3", "--report", "report"]].concat(), None).well();
    assert!(said.contains("\"violations\": []"), "{said}");
    let report = promises_held(directory.path(), 1);
    let outcomes = report["outcomes"].as_array().expect("outcomes");
    let ends: u64 = outcomes
        .iter()
        .filter(|outcome| outcome["outcome"].as_str().is_some_and(|what| what.starts_with("a browser")))
        .filter_map(|outcome| outcome["people"].as_u64())
        .sum();
    assert_eq!(ends, 3, "each got one or shows that all is gone: {outcomes:?}");
}

#[test]
fn a_rush_for_coupons_holds_every_promise_through_kills() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments =
        ["coupon", "--people", "5000", "--stock", "800", "--seconds", "20", "--kill", "2", "--report", "report"];
    let said = drill(directory.path(), &[&arguments[..], &["--table"]].concat(), None).well();
    assert!(said.contains("every promise held"), "{said}");
    let report = report(directory.path());
    assert_eq!((report["issued"].as_u64(), report["kills"].as_array().map(Vec::len)), (Some(800), Some(2)));
}

#[test]
fn auctions_hold_every_promise_through_kills() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments =
        ["auction", "--people", "1200", "--stock", "40", "--seconds", "16", "--kill", "2", "--report", "report"];
    let said = drill(directory.path(), &arguments, None).well();
    assert!(said.contains("\"violations\": []") && said.contains("\"sales\": "), "{said}");
    let report = promises_held(directory.path(), 2);
    let count = |name: &str| report[name].as_u64().unwrap_or(0);
    assert_eq!((count("people"), count("stock"), count("issued")), (1_200, 40, count("sales")));
    assert!(0 < count("sales") && 0 < count("bids"), "{} sales, {} bids", count("sales"), count("bids"));
    // What makes it hard was there.
    let outcomes = report["outcomes"].to_string();
    let hard = [
        "bid: too low",
        "bid: already the highest bidder",
        "bid: key of another request",
        "purchase: auction not ended",
        "purchase: settled too late",
        ": own listing",
        ": already sold",
        ": not enough points",
        ": not in progress",
        ": not the winner",
    ];
    assert!(hard.iter().all(|outcome| outcomes.contains(outcome)), "{outcomes}");
}

#[test]
fn random_bids_on_postgres_hold_every_promise_through_a_kill() {
    random_bids_on("postgres", "PostgreSQL", Kind::Postgres);
}

#[test]
fn random_bids_on_mariadb_hold_every_promise_through_a_kill() {
    random_bids_on("mariadb", "MariaDB", Kind::MariaDb);
}

/// Many auctions that take turns, few wallets, on a database that is started for it.
fn random_bids_on(sql: &str, name: &str, kind: Kind) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // Root runs PostgreSQL as another caller, who must be able to get there.
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is ours");
    if !machine_has(name, firstcome_test_servers::Server::is_installed(kind)) {
        return;
    }
    let size = ["--people", "40", "--stock", "60", "--bids", "2000", "--seconds", "10", "--kill", "1"];
    let arguments = [&["auction", "--sql", sql, "--report", "report"], &size[..]].concat();
    let said = drill(directory.path(), &arguments, None).well();
    assert!(said.contains("\"violations\": []"), "{said}");
    let report = promises_held(directory.path(), 1);
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.iter().any(|check| check["invariant"] == "verify"), "the database was played again: {checks:#?}");
    assert!(report["conditions"].to_string().contains(name), "{}", report["conditions"]);
    // How many there are in the time of an auction depends on the machine.
    assert!(["bids", "sales"].iter().all(|what| 0 < report[what].as_u64().unwrap_or(0)), "{said}");
}

/// A directory where a server may run, if this machine has those that a cluster need.
fn room_for_nodes(sql: Kind) -> Option<tempfile::TempDir> {
    for kind in [Kind::Redis, sql] {
        if !machine_has(&kind.to_string(), firstcome_test_servers::Server::is_installed(kind)) {
            return None;
        }
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // Root runs PostgreSQL as another caller, who must be able to get there.
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is ours");
    Some(directory)
}

/// What was killed, and whether its data went too, in their order.
fn killed(report: &Value) -> Vec<(&str, bool)> {
    let kills = report["kills"].as_array().expect("kills");
    kills.iter().filter_map(|kill| Some((kill["target"].as_str()?, kill["data_lost"].as_bool()?))).collect()
}

#[test]
fn a_concert_on_many_nodes_holds_every_promise_though_redis_loses_its_data() {
    let Some(directory) = room_for_nodes(Kind::Postgres) else { return };
    let size = ["--people", "1200", "--stock", "150", "--seconds", "26", "--kill", "3", "--nodes", "3"];
    let said = drill(directory.path(), &[&["concert", "--report", "report"], &size[..]].concat(), None).well();
    assert!(said.contains("\"violations\": []"), "{said}");
    all_held(directory.path(), 1_200, 150, 3);
    let report = report(directory.path());
    assert_eq!(killed(&report), [("server", false), ("sql", false), ("redis", true)]);
    let checks = report["checks"].as_array().expect("checks");
    for of_sql in ["claims_in_sql", "serials_in_sql", "room_in_sql"] {
        assert!(checks.iter().any(|check| check["invariant"] == of_sql), "{checks:#?}");
    }
}

#[test]
fn a_rush_for_coupons_on_many_nodes_over_mariadb_holds_every_promise() {
    let Some(directory) = room_for_nodes(Kind::MariaDb) else { return };
    let size = ["--people", "4000", "--stock", "800", "--seconds", "12", "--kill", "3", "--nodes", "3", "--seed", "2"];
    let arguments = [&["coupon", "--sql", "mariadb", "--report", "report"], &size[..]].concat();
    let said = drill(directory.path(), &arguments, None).well();
    assert!(said.contains("\"violations\": []"), "{said}");
    all_held(directory.path(), 4_000, 800, 3);
    let report = report(directory.path());
    assert_eq!(killed(&report), [("server", false), ("sql", false), ("redis", false)]);
    assert!(report["conditions"].to_string().contains("MariaDB"), "{}", report["conditions"]);
}

#[test]
fn auctions_on_many_nodes_hold_every_promise_on_a_redis_that_runs() {
    let Some(directory) = room_for_nodes(Kind::Postgres) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = Options::new(Durability::Quick).within(directory.path());
    let redis = runtime.block_on(firstcome_test_servers::Server::start(Kind::Redis, &options)).expect("it starts");
    let client = redis::Client::open(redis.url()).expect("an address");
    let mut keeper = client.get_connection().expect("it answers");
    redis::cmd("SET").arg("mine").arg(7).exec(&mut keeper).expect("it is set");
    let size = ["--people", "400", "--stock", "24", "--seconds", "12", "--kill", "2", "--nodes", "2"];
    let arguments = [&["auction", "--redis", redis.url(), "--report", "report"], &size[..]].concat();
    let said = drill(directory.path(), &arguments, None).well();
    let mine: i64 = redis::cmd("GET").arg("mine").query(&mut keeper).expect("it is there");
    let keys: String = redis::cmd("INFO").arg("keyspace").query(&mut keeper).expect("it says");
    assert!(mine == 7 && keys.matches("db").count() == 1, "the drill leaves something: {keys}");
    drop(redis);
    assert!(said.contains("\"violations\": []"), "{said}");
    let report = promises_held(directory.path(), 2);
    // A Redis that is not the drill's own is not killed.
    assert_eq!(killed(&report), [("server", false), ("sql", false)]);
    assert!(100 < report["bids"].as_u64().unwrap_or(0) && 0 < report["sales"].as_u64().unwrap_or(0), "{said}");
}

#[test]
fn a_drill_that_is_stopped_leaves_nothing_on_servers_that_run() {
    let Some(directory) = room_for_nodes(Kind::Postgres) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Nodes refuse a database that may forget.
    let mut options = Options::new(Durability::Durable).within(directory.path());
    let redis = runtime.block_on(firstcome_test_servers::Server::start(Kind::Redis, &options)).expect("it starts");
    options.settings.push("max_connections=300".into());
    let sql = runtime.block_on(firstcome_test_servers::Server::start(Kind::Postgres, &options)).expect("it starts");
    let client = redis::Client::open(redis.url()).expect("an address");
    let mut keeper = client.get_connection().expect("it answers");
    let mut keys = || -> String { redis::cmd("INFO").arg("keyspace").query(&mut keeper).expect("it says") };
    let databases = || {
        let asked = async {
            let mut connection = sqlx::PgConnection::connect(sql.url()).await?;
            let count = sqlx::query_scalar("SELECT count(*) FROM pg_database WHERE datname LIKE 'firstcome_drill%'");
            count.fetch_one(&mut connection).await
        };
        runtime.block_on(asked).unwrap_or_else(|error: sqlx::Error| panic!("{error}"))
    };
    let arguments =
        ["drill", "concert", "--people", "2000", "--nodes", "2", "--redis", redis.url(), "--sql", sql.url()];
    let mut child = command(PROGRAM, directory.path()).args(arguments).spawn().expect("it starts");
    // Besides the marks of the drill and of the deployment there is a room: people are about to come.
    wait_for("the drill to be at work", || {
        let said = keys();
        let count = said.split("keys=").nth(1)?.split(',').next()?.parse::<u32>().ok()?;
        (2 < count).then_some(())
    });
    let made: i64 = databases();
    signal(child.id(), "INT");
    assert_eq!((made, wait(&mut child).code()), (1, Some(1)));
    assert_eq!((keys().contains("keys="), databases()), (false, 0), "the drill leaves something");
    let left = std::fs::read_dir(directory.path()).expect("a directory").flatten();
    let left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("drill")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The processes whose parent is this one, or whose command line has this text.
fn processes(parent: u32, text: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |process: &u32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
        read("status").contains(&format!("\nPPid:\t{parent}\n")) || read("cmdline").contains(text)
    };
    all.filter(|process| *process != parent).filter(is_one).collect()
}

/// The names of those that are alive.
fn alive(processes: &[u32]) -> String {
    let status = |process: &u32| std::fs::read_to_string(format!("/proc/{process}/status")).ok();
    let living = processes.iter().filter_map(status).filter(|status| !status.contains("\nState:\tZ"));
    living.filter_map(|status| Some(status.lines().next()?.to_owned())).collect::<Vec<_>>().join(" ")
}

/// Processes that must end. Those that did not are killed when this is dropped.
struct Doomed(Vec<u32>);

impl Drop for Doomed {
    fn drop(&mut self) {
        if !alive(&self.0).is_empty() {
            self.0.iter().for_each(|&process| signal(process, "KILL"));
        }
    }
}

#[test]
fn a_drill_that_is_killed_leaves_no_browser() {
    if !machine_has("chromedriver", is_installed("chromedriver")) || !machine_has("setpriv", is_installed("setpriv")) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", "data"];
    let mut server = Server::spawn(command(PROGRAM, directory.path()).args(serve));
    let (admin, service) = (shown(&mut server, "admin"), shown(&mut server, "service"));
    let url = format!("http://{}", server.address());
    let of_service = ["--url", url.as_str(), "--admin-key", &admin, "--service-key", &service];
    let mut drill = command(PROGRAM, directory.path());
    drill.args(["drill", "concert", "--people", "50", "--seconds", "60", "--browser", "1"]).args(of_service);
    let mut child = drill.spawn().expect("it starts");
    let profile = format!("firstcome-browsers-{}", child.id());
    let doomed = wait_for("the driver and a browser", || {
        let found = processes(child.id(), &profile);
        let names = alive(&found);
        (names.contains("chromedriver") && names.contains("chromium")).then(|| Doomed(found))
    });
    signal(child.id(), "KILL");
    wait(&mut child);
    wait_for("the end of driver and browser", || alive(&doomed.0).is_empty().then_some(()));
    server.stop();
}

#[test]
fn browsers_without_a_driver_are_refused_with_the_package_to_install() {
    let directory = tempfile::tempdir().expect("a directory");
    let tools = directory.path().join("tools");
    std::fs::create_dir(&tools).expect("a directory");
    let refused = || {
        let mut drill = command(PROGRAM, directory.path());
        drill.env("PATH", &tools).args(["drill", "concert", "--people", "50", "--browser", "1"]);
        run_for(&mut drill, PATIENCE).with(2)
    };
    assert!(refused().contains("chromium-driver"));
    std::os::unix::fs::symlink("/usr/bin/setpriv", tools.join("setpriv")).expect("it is ours");
    assert!(refused().contains("chromium-driver"));
}

#[test]
fn a_drill_that_cannot_be_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [
        &["concert", "--connections", "4001"][..],
        &["concert", "--people", "0"],
        &["concert", "--url", "http://127.0.0.1:1"],
        &["concert", "--seconds", "1"],
        &["auction", "--stock", "0"],
        &["coupon", "--sql", "postgres://localhost/none"],
        &["concert", "--bids", "10"],
        &["auction", "--sql", "redis"],
        &["auction", "--bids", "0"],
        &["concert", "--nodes", "0"],
        &["concert", "--nodes", "17"],
        &["coupon", "--nodes", "2", "--url", "http://127.0.0.1:1"],
        &["coupon", "--redis", "redis://127.0.0.1:1"],
        &["coupon", "--nodes", "2", "--redis", "redis+cluster://127.0.0.1:1"],
        &["coupon", "--nodes", "2", "--redis", "redis://127.0.0.1:1/3"],
        &["coupon", "--nodes", "2", "--redis", "rediss://127.0.0.1:1"],
        &["coupon", "--nodes", "2", "--sql", "sqlite"],
        &["auction", "--url", "http://127.0.0.1:1", "--sql", "postgres://localhost/none"],
    ] {
        firstcome(directory.path(), &[&["drill"], arguments].concat()).with(2);
    }
}

/// Each bug, what must be found of it, and under which event it shows within about a minute.
#[cfg(feature = "planted-bugs")]
#[test]
fn every_planted_bug_is_found_and_named() {
    const SHORT: &[&str] = &["concert", "--people", "2000", "--stock", "300", "--seconds", "45", "--kill", "1"];
    // A caller has to be silent for more than half a minute before their turn.
    const SLOW: &[&str] = &["concert", "--people", "4000", "--stock", "2000", "--seconds", "80", "--rate", "30"];
    let bugs = [
        ("rate too high", "admission_rate", SHORT),
        ("number drawn twice", "number_once", SHORT),
        ("absent person admitted", "absent_not_admitted", SLOW),
        ("person in both sets", "one_state", SHORT),
        ("pass outlives its slot", "pass_dies_with_slot", SHORT),
        ("departed people counted", "position_true", SHORT),
        ("slot lost", "slot_returns", SHORT),
    ];
    all_named(&bugs);
}

/// The same of auctions, with so few members that holds of one are many.
#[cfg(feature = "planted-bugs")]
#[test]
fn every_planted_bug_of_auctions_is_found_and_named() {
    const AUCTION: &[&str] = &["auction", "--people", "400", "--stock", "24", "--seconds", "12"];
    let bugs = [
        ("hold not released", "hold_ends_once", AUCTION),
        ("hold released twice", "hold_ends_once", AUCTION),
        ("closed twice", "closed_once", AUCTION),
        ("extended by a refused bid", "end_follows_bids", AUCTION),
    ];
    all_named(&bugs);
}

/// Plays each bug's event, all at once: the bug, what must be found of it, and the event.
#[cfg(feature = "planted-bugs")]
fn all_named(bugs: &[(&'static str, &'static str, &'static [&'static str])]) {
    let drills: Vec<_> = bugs
        .iter()
        .copied()
        .map(|(bug, named, arguments)| {
            std::thread::spawn(move || {
                let directory = tempfile::tempdir().expect("a directory");
                let said = drill(directory.path(), arguments, Some(bug)).with(1);
                assert!(said.contains("broken: ") && said.contains(named), "{bug}: {said}");
            })
        })
        .collect();
    let red = drills.into_iter().filter_map(|drill| drill.join().err()).count();
    assert_eq!(red, 0, "bugs that were not named");
}
