//! Benchmarks: their figures are for people, but that they run, and that every strategy of ours is exact, is a fact.

use crate::support::{PROGRAM, bench, command, is_installed, run, run_for, wait_for};
use firstcome_test_servers::{Durability, Kind, Options, Server, machine_has};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

fn file_system(directory: &Path) -> String {
    run(command("stat", directory).args(["-f", "-c", "%T", "."])).well().trim().to_owned()
}

#[test]
fn help_is_there_on_every_level() {
    let directory = tempfile::tempdir().expect("a directory");
    for level in
        [&[][..], &["coupons"], &["rooms"], &["gate"], &["upkeep"], &["locks"], &["auctions"], &["field"], &["curves"]]
    {
        let help = bench(directory.path(), &[level, &["--help"]].concat()).well();
        assert!(help.contains("Usage: firstcome-bench"), "{level:?}: {help}");
    }
}

#[test]
fn the_gate_under_measurement_lets_visitors_through_to_the_site_of_nginx() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let on_disk = file_system(directory.path()) != "tmpfs";
    let nginx = Path::new("/usr/sbin/nginx").exists();
    if !machine_has("a build directory on a disk", on_disk) || !machine_has("nginx", nginx) {
        return;
    }
    let arguments = ["gate", "--json", "--time", "100ms", "--connections", "4"];
    let report: Value = serde_json::from_str(&bench(directory.path(), &arguments).well()).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.len() == 6 && rows.iter().all(|row| 0.0 < row["per_second"].as_f64().expect("a rate")), "{report}");
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(2), "{report}");
    // Each nginx has ended, with its processes.
    let here = directory.path().to_str().expect("a name");
    run(command("pgrep", directory.path()).args(["-f", here])).with(1);
}

#[test]
fn claims_are_measured_beside_upkeep_that_does_all_of_its_work() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !machine_has("a build directory on a disk", file_system(directory.path()) != "tmpfs") {
        return;
    }
    let report = bench(directory.path(), &["upkeep", "--json", "--records", "2500"]).well();
    let report: Value = serde_json::from_str(&report).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.len() == 4 && rows.iter().all(|row| row["correct"] == true), "{report}");
    let strategies: Vec<_> = rows.iter().filter_map(|row| row["strategy"].as_str()).collect();
    for what in ["beside an erasure: 2500 records, ", "beside a purge: 4998 records, ", "beside a backup: "] {
        assert!(strategies.iter().any(|strategy| strategy.starts_with(what)), "{what}: {strategies:?}");
    }
}

/// A Redis of the test's own, on a socket in its directory.
struct Redis(Child);

impl Redis {
    fn start(directory: &Path) -> Self {
        let mut server = command("redis-server", directory);
        server.args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--daemonize", "no"]);
        let child = server.stdout(std::process::Stdio::null()).spawn().expect("redis-server starts");
        wait_for("the socket of Redis", || directory.join("redis.sock").exists().then_some(()));
        Self(child)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_benchmark_in_memory_is_refused() {
    let memory = Path::new("/dev/shm");
    if machine_has("a file system in memory", memory.exists() && file_system(memory) == "tmpfs") {
        let told = bench(memory, &["coupons"]).with(2);
        assert!(told.contains("lies in memory (tmpfs)"), "{told}");
    }
}

#[test]
fn every_strategy_of_ours_is_exact_and_the_redis_set_is_not() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let on_disk = file_system(directory.path()) != "tmpfs";
    if !machine_has("a build directory on a disk", on_disk) || !machine_has("Redis", is_installed("redis-server")) {
        return;
    }
    let _redis = Redis::start(directory.path());
    let store = format!("redis+unix://{}", directory.path().join("redis.sock").display());
    let short = ["--time", "100ms", "--half-load", "100ms", "--tasks", "32", "--connections", "4", "--claims", "2000"];
    let arguments = [&["coupons", "--json", "--store", &store], short.as_slice()].concat();
    let report: Value = serde_json::from_str(&bench(directory.path(), &arguments).well()).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    let correct = |strategy: &str| {
        let row = rows.iter().find(|row| row["strategy"] == strategy);
        row.unwrap_or_else(|| panic!("no row {strategy}: {report}"))["correct"].clone()
    };
    assert_eq!(correct("group commit"), true);
    assert_eq!(correct("memory"), true);
    assert_eq!(correct("Redis set with a script, no SQL"), false, "it counts its dummy");
    assert!(rows.iter().all(|row| 0.0 < row["per_second"].as_f64().expect("a rate")), "{report}");
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(16), "{report}");
    assert!(0 < report["conditions"]["fsync_p50_us"].as_u64().expect("the time of a sync"));
}

#[test]
fn a_room_under_measurement_is_exact() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !machine_has("a build directory on a disk", file_system(directory.path()) != "tmpfs") {
        return;
    }
    let short = ["--time", "100ms", "--watched", "2s", "--people", "20000", "--connections", "4"];
    let said = bench(directory.path(), &[&["rooms", "--json"], short.as_slice()].concat()).well();
    let report: Value = serde_json::from_str(&said).expect("a report");
    let targets = report["targets"].as_array().expect("targets");
    assert_eq!(targets.len(), 16, "{report}");
    // These are no timings: they hold on the slowest machine.
    for exact in ["absent people admitted", "positions that rose, 90 % absent", "positions that rose, steady flow"] {
        let target = targets.iter().find(|target| target["what"] == exact);
        assert_eq!(target.map(|target| &target["met"]), Some(&Value::Bool(true)), "{exact}: {report}");
    }
    assert!(report["rows"].as_array().is_some_and(|rows| rows.iter().all(|row| row["correct"] != false)), "{report}");
}

/// A directory on a disk where a Redis and a PostgreSQL may run, if this machine has all that.
fn room_for_nodes() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // Root runs PostgreSQL as another caller, who must be able to get there.
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let on_disk = machine_has("a build directory on a disk", file_system(directory.path()) != "tmpfs");
    let servers = [Kind::Redis, Kind::Postgres];
    let all = on_disk && servers.iter().all(|kind| machine_has(&kind.to_string(), Server::is_installed(*kind)));
    all.then_some(directory)
}

#[test]
fn coupons_of_many_nodes_under_measurement_are_exact() {
    let Some(directory) = room_for_nodes() else { return };
    let short = ["--time", "200ms", "--half-load", "200ms", "--tasks", "32", "--connections", "4", "--claims", "2000"];
    let arguments = [&["coupons", "--json", "--sql", "postgres"], short.as_slice()].concat();
    // It starts servers of its own, ten of them in turn.
    let patience = std::time::Duration::from_secs(300);
    let said = run_for(command(PROGRAM, directory.path()).args(&arguments), patience).well();
    let report: Value = serde_json::from_str(&said).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| 0.0 < row["per_second"].as_f64().expect("a rate")), "{report}");
    for exact in ["durability redis", "durability database"] {
        let is_it = |row: &&Value| {
            row["strategy"].as_str().is_some_and(|strategy| strategy.ends_with(exact) && !strategy.contains("HTTP"))
        };
        assert_eq!(rows.iter().find(is_it).map(|row| &row["correct"]), Some(&Value::Bool(true)), "{exact}: {report}");
    }
    let over_http = |row: &&Value| row["strategy"].as_str().is_some_and(|strategy| strategy.contains("HTTP"));
    assert_eq!(rows.iter().filter(over_http).count(), 3, "{report}");
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(5), "{report}");
}

#[test]
fn a_room_of_many_nodes_under_measurement_is_exact_and_lets_people_in() {
    let Some(directory) = room_for_nodes() else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = Options::new(Durability::Quick).within(directory.path());
    let redis = runtime.block_on(Server::start(Kind::Redis, &options)).expect("it starts");
    let client = redis::Client::open(redis.url()).expect("an address");
    let mut keeper = client.get_connection().expect("it answers");
    redis::cmd("SET").arg("mine").arg(7).exec(&mut keeper).expect("it is set");
    let short = ["--people", "1000", "--watched", "3s", "--warm-up", "3s", "--nodes", "2", "--redis", redis.url()];
    let arguments = [&["rooms", "--json", "--sql", "postgres"], short.as_slice()].concat();
    let report: Value = serde_json::from_str(&bench(directory.path(), &arguments).well()).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    let judged: Vec<&Value> = rows.iter().map(|row| &row["correct"]).filter(|correct| correct.is_boolean()).collect();
    assert_eq!(judged, [&Value::Bool(true); 2], "{report}");
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(4), "{report}");
    let let_in = rows.iter().find(|row| row["strategy"] == "let in of 1000").expect("it is counted");
    assert!(0.0 < let_in["per_second"].as_f64().expect("a rate"), "{report}");
    let keys: String = redis::cmd("INFO").arg("keyspace").query(&mut keeper).expect("it says");
    assert!(keys.contains("db0:keys=1,") && keys.matches("db").count() == 1, "it leaves or takes something: {keys}");
}

#[cfg(feature = "etcd")]
#[test]
fn locks_on_etcd_under_measurement_have_a_fence_each_and_take_two_requests() {
    if !machine_has("etcd", Server::is_installed(Kind::Etcd)) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !machine_has("a build directory on a disk", file_system(directory.path()) != "tmpfs") {
        return;
    }
    let arguments = ["locks", "--etcd", "--json", "--seconds", "1", "--tasks", "4"];
    let report: Value = serde_json::from_str(&bench(directory.path(), &arguments).well()).expect("a report");
    let figures = report["figures"].as_array().expect("figures");
    for tasks in [1, 16] {
        let name = format!("{tasks} tasks: requests per acquire and release");
        let found = figures.iter().find(|figure| figure["what"] == name.as_str()).expect("it is counted");
        let requests = found["value"].as_f64().expect("a number");
        assert!((1.9..2.1).contains(&requests), "{report}");
    }
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(2), "{report}");
}

/// Another caller's lock, as far as the benchmark can tell: each of two processes has it once, after a second of waiting.
fn peer(directory: &Path) -> PathBuf {
    let (zero, one, two) = (r"\0\0\0\0\0\0\0\0", r"\1\0\0\0\0\0\0\0", r"\2\0\0\0\0\0\0\0");
    let second = r"\0\312\232\73\0\0\0\0";
    let script = r#"#!/bin/sh
read -r job
file() { echo "$job" | sed "s/.*\"$1\":\"\([^\"]*\).*/\1/"; }
echo ready a script
read -r begin
printf 'PASS' >"$(file passes)"
printf 'COUNT' >"$(file counter)"
echo '{"elapsed_us":1000000,"traffic":{"requests":null,"pushes":0}}'
"#;
    let script = script.replace("PASS", &[zero, second, one, second, zero, zero].concat());
    let script = script.replace("COUNT", &[two, zero].concat());
    let path = directory.join("peer");
    std::fs::write(&path, script).expect("a script");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a program");
    path
}

#[test]
fn locks_lose_nothing_and_no_lock_does() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let on_disk = file_system(directory.path()) != "tmpfs";
    if !machine_has("a build directory on a disk", on_disk) || !machine_has("Redis", is_installed("redis-server")) {
        return;
    }
    let sizes = ["--processes", "2", "--tasks", "4", "--seconds", "0.5", "--waiters", "10,100", "--hand-overs", "2000"];
    let few = ["--names", "2000", "--locks", "500", "--dead", "50", "--plot", "locks.svg"];
    let peer = format!("rslock={}", peer(directory.path()).display());
    let arguments = [&["locks", "--json", "--peer", &peer], sizes.as_slice(), few.as_slice()].concat();
    let report: Value = serde_json::from_str(&bench(directory.path(), &arguments).well()).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    let strategies: Vec<&str> = rows.iter().filter_map(|row| row["strategy"].as_str()).collect();
    assert_eq!(
        strategies,
        [
            "no lock (control)",
            "SET NX spin, 100 ms",
            "shrinking jitter, 100 ms",
            "full jitter, 1 to 128 ms",
            "native FIFO",
            "native cohort(32)",
            "locks.db",
            "memory, one process",
            "rslock",
        ]
    );
    for row in rows {
        assert!(0.0 < row["per_second"].as_f64().expect("a rate"), "{row}");
        let is_lock = row["strategy"] != "no lock (control)";
        assert_eq!(row["lost_updates"] == 0, is_lock, "{row}");
    }
    let theirs = &rows[8];
    assert_eq!((&theirs["what"], &theirs["acquisitions"]), (&Value::from("a script"), &Value::from(2)), "{theirs}");
    // The order is the line's, everything else that the machine has to do.
    let line = &rows[4];
    assert_eq!((&line["greatest_overtaking"], &line["order_inversions"]), (&Value::from(0), &Value::from(0)), "{line}");
    let targets = report["targets"].as_array().expect("targets");
    assert_eq!(targets.len(), 18, "{report}");
    for exact in [
        "native FIFO: order inversions",
        "alone, 64 tasks: requests per acquire and release",
        "connections of a process with the longest line",
        "names used once: keys that stay",
        "native cohort(32) ÷ rslock, ×",
    ] {
        let target = targets.iter().find(|target| target["what"] == exact);
        assert_eq!(target.map(|target| &target["met"]), Some(&Value::Bool(true)), "{exact}: {report}");
    }
    let plot = std::fs::read_to_string(directory.path().join("locks.svg")).expect("a plot");
    assert!(plot.starts_with("<svg") && plot.contains("native FIFO"), "{plot}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("a directory").flatten().collect();
    assert_eq!(left.len(), 2, "only the plot and the peer stay: {left:?}");
}

#[test]
fn the_layout_of_redisson_stands_beside_those_who_share_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let on_disk = file_system(directory.path()) != "tmpfs";
    if !machine_has("a build directory on a disk", on_disk) || !machine_has("Redis", is_installed("redis-server")) {
        return;
    }
    let program = peer(directory.path());
    let [plain, fair] = ["RLock, a script", "RFairLock"].map(|kind| format!("{kind}={}", program.display()));
    let sizes = ["locks", "--json", "--layout", "redisson", "--processes", "2", "--tasks", "4"];
    let arguments = [&sizes[..], &["--seconds", "0.4", "--peer", &plain, "--peer", &fair]].concat();
    let report: Value = serde_json::from_str(&bench(directory.path(), &arguments).well()).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    let strategies: Vec<&str> = rows.iter().filter_map(|row| row["strategy"].as_str()).collect();
    let ours = ["no lock (control)", "native FIFO", "native cohort(32)", "Redisson's layout, ours"];
    assert_eq!(strategies, [&ours[..], &["RLock, a script", "RFairLock"]].concat());
    for row in &rows[1..] {
        assert_eq!(row["lost_updates"], 0, "{row}");
    }
    // Theirs takes a second for each; ours is faster than that anywhere.
    let targets = report["targets"].as_array().expect("targets");
    assert!(targets.len() == 4 && targets.iter().all(|target| target["met"] == true), "{report}");
    let alone = "alone, one task: Redisson's layout, ours: pairs per second";
    assert!(report["figures"].as_array().is_some_and(|rows| rows.iter().any(|row| row["what"] == alone)), "{report}");
    for missing in [&fair, &plain] {
        let told = bench(directory.path(), &[&sizes[..4], &["--peer", missing]].concat()).with(2);
        assert!(told.contains("say --peer \"R"), "{told}");
    }
}

#[test]
fn a_benchmark_of_locks_needs_a_redis_on_this_machine() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !machine_has("a build directory on a disk", file_system(directory.path()) != "tmpfs") {
        return;
    }
    let told = bench(directory.path(), &["locks", "--store", "redis://192.0.2.1"]).with(1);
    assert!(told.contains("only a Redis on this machine"), "{told}");
    bench(directory.path(), &["locks", "--store", "redis://127.0.0.1:1"]).with(3);
    let told = bench(directory.path(), &["locks", "--plot", "locks.png"]).with(2);
    assert!(told.contains(".svg or .html"), "{told}");
}

#[test]
fn a_peer_is_a_name_and_a_program_that_is_there() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for (peer, says) in [
        ("rslock", "a name, =, and a program"),
        ("=/bin/sh", "a name, =, and a program"),
        ("rslock=", "there is no program"),
        ("rslock=absent", "there is no program \"absent\"; bench/README.md"),
        ("rslock=.", "there is no program"),
        ("native FIFO=/bin/sh", "the name of a strategy"),
    ] {
        let told = bench(directory.path(), &["locks", "--peer", peer]).with(2);
        assert!(told.contains(says), "{peer}: {told}");
    }
}

/// What a strategy of the auction came to.
fn auction_row<'a>(rows: &'a [Value], store: &str, strategy: &str) -> &'a Value {
    let is_it = |row: &&Value| {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        text("store").starts_with(store) && text("strategy") == strategy
    };
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no row of {store}, {strategy}: {rows:?}"))
}

#[test]
fn an_auction_is_exact_under_every_strategy() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // Root runs PostgreSQL as another caller, who must be able to get there.
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let on_disk = file_system(directory.path()) != "tmpfs";
    if !machine_has("a build directory on a disk", on_disk) {
        return;
    }
    let postgres = is_installed("postgres") || Path::new("/usr/lib/postgresql").exists();
    let databases = [
        ("PostgreSQL", machine_has("PostgreSQL", postgres), "advisory lock + transaction"),
        ("MariaDB", machine_has("MariaDB", is_installed("mariadbd")), "GET_LOCK + transaction"),
    ];
    let redis = machine_has("Redis", is_installed("redis-server"));
    let short =
        ["--time", "200ms", "--tasks", "24", "--bidders", "24", "--connections", "6", "--plot", "auctions.html"];
    let arguments = [&["auctions", "--json"], short.as_slice()].concat();
    let patience = std::time::Duration::from_secs(180);
    let said = run_for(command(PROGRAM, directory.path()).args(&arguments), patience).well();
    let report: Value = serde_json::from_str(&said).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    let mut targets = 3;
    let mut wanted = vec![("embedded", "combining (ours)"), ("embedded", "combining, half load")];
    wanted.push(("HTTP", "combining (ours)"));
    for (database, there, named) in databases {
        if there {
            targets += 2;
            wanted.extend([(database, "SELECT … FOR UPDATE"), (database, named)]);
            wanted.extend([(database, "combining (ours)"), (database, "combining, half load")]);
            if redis {
                wanted.push((database, "our lock + transaction, 3 retries"));
                wanted.push((database, "spin lock, 100 ms, + the same"));
            }
        }
    }
    for (store, strategy) in &wanted {
        let row = auction_row(rows, store, strategy);
        assert_eq!(row["correct"], true, "{row}");
        assert!(0 < row["accepted"].as_u64().expect("a count"), "{row}");
        // Only a lock that is tried now and then is not to be had in time.
        assert!(strategy.starts_with("spin") || row["failed"] == 0, "{row}");
    }
    assert_eq!(rows.len(), wanted.len() + 1, "and /healthz: {report}");
    assert_eq!(report["targets"].as_array().map(Vec::len), Some(targets), "{report}");
    let plot = std::fs::read_to_string(directory.path().join("auctions.html")).expect("a plot");
    assert!(plot.contains("<title>Auctions") && plot.contains("embedded: combining (ours)"), "{plot}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("a directory").flatten().collect();
    assert_eq!(left.len(), 1, "only the plot stays: {left:?}");
}

#[test]
fn a_benchmark_of_auctions_loads_only_this_machine() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for store in ["postgres://ann:s3cret@db.example/shop", "mysql://ann:s3cret@192.0.2.1/shop", "redis://192.0.2.1"] {
        let told = bench(directory.path(), &["auctions", "--store", store]).with(2);
        assert!(told.contains("on this machine") && !told.contains("s3cret"), "{told}");
    }
    let told = bench(directory.path(), &["auctions", "--store", "sqlite://file"]).with(2);
    assert!(told.contains("a store is postgres://"), "{told}");
}

/// A newcomer runs `firstcome-bench coupons` while another process writes to the same disk. It broke off: "2302601 of 2327407
/// claims were answered", no table. What is turned away is a figure.
#[test]
fn what_is_refused_under_overload_is_a_figure_and_no_failure() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !machine_has("a build directory on a disk", file_system(directory.path()) != "tmpfs") {
        return;
    }
    let short = ["--time", "3s", "--half-load", "5s", "--tasks", "32", "--connections", "0", "--claims", "0"];
    let parent = directory.path().to_owned();
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let file = || {
            let entries = std::fs::read_dir(&parent).ok()?;
            let group = entries.flatten().find(|entry| entry.file_name().to_string_lossy().ends_with("-group"))?;
            let file = group.path().join("firstcome.db");
            file.exists().then_some(file)
        };
        let mut times = 0;
        // Longer than a batch waits for the file, and as long again not.
        while end.recv_timeout(std::time::Duration::from_millis(1_500))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            let Some(connection) = file().and_then(|file| rusqlite::Connection::open(file).ok()) else { continue };
            if connection.execute_batch("BEGIN IMMEDIATE").is_ok() {
                times += 1;
                let _ = end.recv_timeout(std::time::Duration::from_millis(1_500));
            }
        }
        times
    });
    let mut bench = command(PROGRAM, directory.path());
    let said = run_for(bench.args(["coupons", "--json"]).args(short), std::time::Duration::from_secs(180)).well();
    drop(ended);
    assert!(0 < other.join().expect("it ends"), "the file was never held");
    let report: Value = serde_json::from_str(&said).expect("a report");
    let rows = report["rows"].as_array().expect("rows");
    let refused = |strategy: &str| {
        let row = rows.iter().find(|row| row["strategy"] == strategy);
        row.unwrap_or_else(|| panic!("no row {strategy}: {report}"))["refused"].as_u64().expect("a count")
    };
    assert!(0 < refused("group commit") + refused("group commit, half load"), "{report}");
    assert_eq!(refused("memory"), 0, "{report}");
}
