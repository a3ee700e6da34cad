//! Checks that take too long for every change. Each part also runs alone: `cargo xtask full mutants bench`.

use crate::shell::{self, Outcome};
use crate::{dashboard, mysql_login, package, perf, setup, supply, upgrade, versions};
use std::fmt::Write as _;
use std::fs;

/// The rules in which every removed guard must fail a test.
const RULE_FILES: [&str; 13] = [
    "crates/firstcome-core/src/auction.rs",
    "crates/firstcome-core/src/auction/settings.rs",
    "crates/firstcome-core/src/coupon.rs",
    "crates/firstcome-core/src/coupon/book.rs",
    "crates/firstcome-core/src/lock.rs",
    "crates/firstcome-core/src/points.rs",
    "crates/firstcome-core/src/room.rs",
    "crates/firstcome-core/src/room/line.rs",
    "crates/firstcome-core/src/room/pace.rs",
    "crates/firstcome-core/src/room/settings.rs",
    "crates/firstcome-core/src/room/slots.rs",
    "crates/firstcome-core/src/id.rs",
    "crates/firstcome-core/src/time.rs",
];
/// The percentage of the built mutants that tests must catch.
const CAUGHT_PERCENT_MIN: u32 = 95;
const SEEDS: &str = "0..200000";
const KILL_ROUNDS: &str = "300";
const STOP_ROUNDS: &str = "1000";
const HAND_OVERS: &str = "100000";
const PARTITIONS: &str = "seconds=60 seed=7";
/// The stores, how often the drill kills the service on each, and the seconds in which the bids arrive. A database handles
/// fewer bids per second.
const AUCTIONS: [(&str, &str, &str); 3] =
    [("embedded", "10", "200"), ("postgres", "5", "400"), ("mariadb", "5", "400")];
const AUCTION_BIDS: &str = "1000000";
const MUTANTS: &str = "27.1.0";

/// The product's program, which plays drills.
const FIRSTCOME: &str = "target/release/firstcome";
/// The program of the benchmarks.
const BENCH: &str = "target/release/firstcome-bench";

const TREND: &str = "The trend over commits";

type Part = (&'static str, &'static str, fn() -> Result<String, String>);

const PARTS: [Part; 31] = [
    ("deny", "Dependencies: bans, licences, sources", supply::deny),
    ("package", "The Debian package in a fresh Debian, and the chart", package::run),
    ("versions", "The oldest and the newest servers", versions::run),
    ("mysql", "Users of MySQL 8: caching_sha2_password over TLS", mysql_login::run),
    ("upgrade", "The version before beside this one", upgrade::run),
    ("dashboard", "The dashboard of Grafana beside a drill", dashboard::run),
    ("mutants", "Mutants of the rules", mutants),
    ("openapi", "The OpenAPI document against the service", openapi),
    ("sim", "Simulator, two hundred thousand seeds", sim),
    ("kills", "kill -9 under load", kills),
    ("stops", "Holders that are stopped, and write too late", stops),
    ("faults", "Locks on a Redis that forgets, dies, is full, and throws clients out", faults),
    ("partitions", "Locks over five servers through partitions, stops, kills and jumps of clocks", partitions),
    ("bench", "Coupons on this machine", bench),
    ("rooms", "Rooms on this machine", rooms),
    ("gate", "The gate of a site beside nginx on this machine", gate),
    ("passes", "Passes that a program verifies by itself on this machine", passes),
    ("upkeep", "Claims beside erasures, purges and backups on this machine", upkeep),
    ("locks", "Locks on this machine", locks),
    ("quorum", "Locks over five servers beside Redlocks on this machine", quorum),
    ("etcd", "Locks on etcd on this machine", etcd),
    ("layouts", "Locks beside Redisson on this machine", layouts),
    ("auctions", "Auctions on this machine", auctions),
    ("field", "Peers in one table on this machine", field),
    ("curves", "How the rates change with load and size on this machine", curves),
    ("perf", TREND, || perf::trend::run(&[])),
    ("market", "A million random bids on each store, through kills", auction_drill),
    ("many", "Coupons on a cluster on this machine; Redis killed and back empty with a million claims in SQL", many),
    ("waiting", "What waiting costs Redis, with ten thousand and with a million in line", waiting),
    ("nodes", "A concert on three nodes, with kills of nodes, Redis and SQL", nodes),
    ("concert", "A concert at full size, killed twenty times", concert),
];

pub(crate) fn run(names: &[&str]) -> Outcome {
    if let Some(unknown) = names.iter().find(|name| PARTS.iter().all(|(known, _, _)| known != *name)) {
        return Err(format!("no part {unknown}; there are: {}", PARTS.map(|(name, _, _)| name).join(" ")));
    }
    setup::run()?;
    let mut failed = Vec::new();
    for (name, title, part) in PARTS.iter().filter(|(name, _, _)| names.is_empty() || names.contains(name)) {
        if !report(name, title, part)? {
            failed.push(*name);
        }
    }
    // Documents show figures of reports.
    crate::figures()?;
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(" "))) }
}

/// Measures the named commits for the trend, and writes its report.
pub(crate) fn trend(commits: &[&str]) -> Outcome {
    report("perf", TREND, &|| perf::trend::run(commits))?;
    crate::figures()
}

/// Runs a part and writes its dated report. Returns whether it passed.
fn report(name: &str, title: &str, part: &dyn Fn() -> Result<String, String>) -> Result<bool, String> {
    let date = shell::output("date", &["-u", "+%Y-%m-%d"])?.trim().to_owned();
    let directory = shell::root().join("docs/full");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let commit = commit()?;
    let (verdict, text) = match part() {
        Ok(text) => ("passed", text),
        Err(text) => ("FAILED", text),
    };
    let report = format!("# {title}: {verdict}\n\n{date}, commit {commit}\n\n```text\n{}\n```\n", text.trim_end());
    fs::write(directory.join(format!("{name}.md")), report).map_err(|error| error.to_string())?;
    println!("{name}: {verdict}");
    Ok(verdict == "passed")
}

/// Returns the names of all parts, which are also the names of their reports.
#[cfg(test)]
pub(crate) fn names() -> Vec<&'static str> {
    PARTS.iter().map(|(name, _, _)| *name).collect()
}

/// Returns the measured commit, and whether the tree has changes that are not committed.
fn commit() -> Result<String, String> {
    let commit = shell::output("git", &["rev-parse", "--short", "HEAD"])?;
    let changed = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/full"];
    let more = if shell::output("git", &changed)?.is_empty() { "" } else { ", with changes that are not committed" };
    Ok(format!("{}{more}", commit.trim()))
}

fn mutants() -> Result<String, String> {
    setup::cargo_tool("cargo-mutants", MUTANTS)?;
    let mut arguments = vec!["mutants", "--no-shuffle", "--package", "firstcome-core", "--output", "target"];
    arguments.extend(["--features", "planted-bugs"]);
    arguments.extend(RULE_FILES.iter().flat_map(|file| ["--file", file]));
    // cargo-mutants fails when a mutant was missed. The percentage decides here, not the exit code.
    let printed = shell::output("cargo", &arguments).unwrap_or_else(|printed| printed);
    let read = |name: &str| fs::read_to_string(shell::root().join("target/mutants.out").join(name)).unwrap_or_default();
    let (caught, missed, timeout) = (read("caught.txt"), read("missed.txt"), read("timeout.txt"));
    let count = |text: &str| u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
    let found = count(&caught) + count(&timeout);
    let all = found + count(&missed);
    if all == 0 {
        return Err(format!("no mutant was built\n{printed}"));
    }
    let percent = 100 * found / all;
    let mut text = format!("{found} of {all} mutants caught ({percent} %), at least {CAUGHT_PERCENT_MIN} % wanted\n");
    let _ = write!(text, "\nmissed:\n{missed}");
    if CAUGHT_PERCENT_MIN <= percent { Ok(text) } else { Err(text) }
}

/// Needs Python 3 with venv, and npm.
fn openapi() -> Result<String, String> {
    release()?;
    shell::output("xtask/openapi.sh", &["target/release/firstcome"])
}

fn sim() -> Result<String, String> {
    shell::output("cargo", &["run", "--quiet", "--release", "-p", "firstcome-sim", "--", "--seeds", SEEDS])
}

fn kills() -> Result<String, String> {
    let rounds = format!("FIRSTCOME_KILL_ROUNDS={KILL_ROUNDS}");
    let test = ["cargo", "test", "--release", "-p", "firstcome-cli", "--test", "it", "kill", "--", "--nocapture"];
    shell::output("env", &[&[rounds.as_str()], &test[..]].concat())
}

fn stops() -> Result<String, String> {
    let rounds = format!("FIRSTCOME_STOP_ROUNDS={STOP_ROUNDS}");
    // With CI set, a missing server fails the test.
    let mut test = vec!["CI=true", &rounds, "cargo", "test", "--release", "-p", "firstcome", "--test", "fence"];
    test.extend(["--features", "axum,redis,sqlx", "stops", "--", "--nocapture"]);
    shell::output("env", &test)
}

fn faults() -> Result<String, String> {
    let hand_overs = format!("FIRSTCOME_HANDOVERS={HAND_OVERS}");
    let test = ["cargo", "test", "--release", "-p", "firstcome", "--features", "redis", "--test", "faults"];
    shell::output("env", &[&["CI=true", hand_overs.as_str()], &test[..], &["--", "--nocapture"]].concat())
}

/// Needs root: each process runs in its own network. Uses the build of the gate, since it measures no speed.
fn partitions() -> Result<String, String> {
    let plan = format!("FIRSTCOME_PARTITIONS={PARTITIONS}");
    let test = ["cargo", "test", "-p", "firstcome", "--features", "redis", "--test", "quorum"];
    shell::output("env", &[&["CI=true", plan.as_str()], &test[..], &["partitions::", "--", "--nocapture"]].concat())
}

/// Needs a quiet machine: the figures of a busy one only show how busy it is.
fn bench() -> Result<String, String> {
    release_bench()?;
    let script = "\
        set -e; dir=$(mktemp -d -p target); port=$((20000 + $$ % 20000)); \
        redis-server --port $port --bind 127.0.0.1 --save '' --dir $dir >/dev/null & redis=$!; \
        trap 'kill $redis; rm -rf $dir' EXIT; \
        until redis-cli -p $port ping >/dev/null 2>&1; do kill -0 $redis; done; \
        target/release/firstcome-bench coupons --data $dir --store redis://127.0.0.1:$port --half-load 1m --table";
    shell::output("bash", &["-c", script])
}

fn release() -> Outcome {
    shell::run("cargo", &["build", "--quiet", "--release", "-p", "firstcome-cli"])
}

fn release_bench() -> Outcome {
    shell::run("cargo", &["build", "--quiet", "--release", "-p", "firstcome-bench"])
}

/// Needs a quiet machine.
fn rooms() -> Result<String, String> {
    release_bench()?;
    shell::output(BENCH, &["rooms", "--data", "target", "--table"])
}

/// Needs a quiet machine: it starts two nginx.
fn gate() -> Result<String, String> {
    release_bench()?;
    shell::output(BENCH, &["gate", "--data", "target", "--table"])
}

/// Needs a quiet machine.
fn passes() -> Result<String, String> {
    release_bench()?;
    on_target(shell::output(BENCH, &["passes", "--data", "target", "--table"])?)
}

/// Needs a quiet machine.
fn upkeep() -> Result<String, String> {
    release_bench()?;
    on_target(shell::output(BENCH, &["upkeep", "--data", "target", "--table"])?)
}

/// Needs a quiet machine: it starts four processes and its own Redis. Measures our locks and those of other libraries.
fn locks() -> Result<String, String> {
    release_bench()?;
    rust_peers()?;
    let long = ["--hand-overs", "1000000", "--names", "1000000", "--peer", "rslock=target/bench/release/rslock"];
    let defaults = ["--peer", "rslock, its defaults=target/bench/release/rslock 3 200"];
    let arguments = [&["locks", "--data", "target", "--table"], &long[..], &defaults[..]].concat();
    shell::output(BENCH, &arguments)
}

fn rust_peers() -> Outcome {
    let peers =
        ["build", "--quiet", "--release", "--manifest-path", "bench/Cargo.toml", "--target-dir", "target/bench"];
    shell::run("cargo", &peers)
}

/// Measures quorum locks over five servers, beside other implementations of Redlock.
fn quorum() -> Result<String, String> {
    release_bench()?;
    rust_peers()?;
    setup::peers()?;
    // rslock runs twice: with the settings of `locks`, and with its defaults (3 tries, at most 200 ms apart).
    let peers = [
        "rslock=target/bench/release/rslock",
        "rslock, its defaults=target/bench/release/rslock 3 200",
        "redlock=target/peers/bin/redlock bench",
        "redsync=target/peers/bin/redsync bench",
    ];
    let mut arguments = vec!["locks", "--quorum", "--data", "target", "--table"];
    arguments.extend(peers.iter().flat_map(|peer| ["--peer", peer]));
    on_target(shell::output(BENCH, &arguments)?)
}

/// Builds the benchmarks with etcd, and measures locks on it.
fn etcd() -> Result<String, String> {
    shell::run("cargo", &["build", "--quiet", "--release", "-p", "firstcome-bench", "--features", "etcd"])?;
    on_target(shell::output(BENCH, &["locks", "--etcd", "--data", "target", "--table"])?)
}

/// Measures locks in the layout of Redisson. Calls Redisson in both ways, since neither is always the faster one.
fn layouts() -> Result<String, String> {
    release_bench()?;
    setup::peers()?;
    let peers = [
        "RLock=target/peers/bin/redisson bench",
        "RLock, threads=target/peers/bin/redisson bench threads=1",
        "RFairLock=target/peers/bin/redisson-fair bench",
        "RFairLock, threads=target/peers/bin/redisson-fair bench threads=1",
    ];
    let mut arguments = vec!["locks", "--layout", "redisson", "--data", "target", "--table"];
    arguments.extend(peers.iter().flat_map(|peer| ["--peer", peer]));
    on_target(shell::output(BENCH, &arguments)?)
}

/// Needs a quiet machine: it starts a PostgreSQL, a MariaDB and a Redis.
fn auctions() -> Result<String, String> {
    release_bench()?;
    shell::output(BENCH, &["auctions", "--data", "target", "--table"])
}

/// Needs a quiet machine. Writes the figures of docs/benchmarks.md, too: `cargo xtask figures` shows them there.
fn field() -> Result<String, String> {
    release_bench()?;
    rust_peers()?;
    setup::peers()?;
    setup::field_peers()?;
    shell::output(BENCH, &["field", "--data", "target", "--out", "docs/full/field.json", "--table"])
}

/// See [`field`].
fn curves() -> Result<String, String> {
    release_bench()?;
    shell::output(BENCH, &["curves", "--data", "target", "--out", "docs/full/curves.json", "--table"])
}

/// Needs a quiet machine: its disk, and the two other processes beside a database, limit the bids per second.
fn auction_drill() -> Result<String, String> {
    release()?;
    let mut text = shell::output("uname", &["-srm"])?;
    text.push_str(&shell::output("sh", &["-c", "grep -m 1 'model name' /proc/cpuinfo; grep MemTotal /proc/meminfo"])?);
    let mut failed = Vec::new();
    for (store, kills, seconds) in AUCTIONS {
        let on = if store == "embedded" { vec![] } else { vec!["--sql", store] };
        let size = ["--people", "100", "--stock", "1000", "--bids", AUCTION_BIDS];
        let run = ["--kill", kills, "--seconds", seconds, "--data", "target", "--table"];
        let arguments = [&["drill", "auction"], &size[..], &run[..], &on[..]].concat();
        let _ = write!(text, "\n$ firstcome {}\n\n", arguments.join(" "));
        match shell::output(FIRSTCOME, &arguments) {
            Ok(printed) => {
                let wanted: u64 = AUCTION_BIDS.parse().unwrap_or(u64::MAX);
                // Bids after the end of their auction are refused, and show little.
                for (name, least) in [("bids sent", wanted), ("orders: bid: accepted", wanted / 10)] {
                    if figure(&printed, name).is_none_or(|count| count < least) {
                        failed.push(format!("{store}: {name}: fewer than {least}; {seconds} s are too few for it"));
                    }
                }
                text.push_str(&printed);
            }
            Err(printed) => {
                failed.push(format!("{store}: see above"));
                text.push_str(&printed);
            }
        }
    }
    if failed.is_empty() { Ok(text) } else { Err(format!("{text}\n{}", failed.join("\n"))) }
}

/// Returns a number from a printed table, by the name of its row.
fn figure(printed: &str, name: &str) -> Option<u64> {
    let cells = |line: &str| line.split(['│', '┆']).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let row = printed.lines().map(cells).find(|row| row.get(1).is_some_and(|cell| cell == name))?;
    row.get(2)?.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// Needs a quiet machine: it starts a Redis and each of the databases.
fn many() -> Result<String, String> {
    release_bench()?;
    let kinds = ["--sql", "postgres", "--sql", "mariadb", "--time", "10s", "--data", "target", "--table"];
    on_target(shell::output(BENCH, &[&["coupons"], &kinds[..]].concat())?)
}

/// Returns the printed text, or fails with it if a target was missed.
fn on_target(printed: String) -> Result<String, String> {
    let missed = |line: &str| line.rsplit('┆').next().is_some_and(|cell| cell.trim_matches(['│', ' ']) == "NO");
    if printed.lines().any(missed) { Err(printed) } else { Ok(printed) }
}

/// Needs a quiet machine.
fn waiting() -> Result<String, String> {
    release_bench()?;
    let kind = ["--sql", "postgres", "--nodes", "3", "--data", "target", "--table"];
    on_target(shell::output(BENCH, &[&["rooms"], &kind[..]].concat())?)
}

fn nodes() -> Result<String, String> {
    const KILLS: usize = 10;
    release()?;
    let size = ["--nodes", "3", "--people", "100000", "--stock", "20000", "--kill", "10"];
    let out = ["--data", "target", "--report", "target/nodes", "--table"];
    let printed = shell::output(FIRSTCOME, &[&["drill", "concert"], &size[..], &out[..]].concat())?;
    let kills = ["server", "redis", "sql"].map(|what| kills_of(&printed, what));
    let sold = figure(&printed, "people: got one");
    if kills.contains(&0) || kills.iter().sum::<usize>() != KILLS || sold != Some(20_000) {
        return Err(format!("{printed}\nnot sold, or not killed as often as it should be: {sold:?}, {kills:?}"));
    }
    Ok(printed)
}

/// Counts the rows about this process in a printed table of kills, which has four columns.
fn kills_of(printed: &str, what: &str) -> usize {
    let is_of = |line: &&str| {
        let first = line.trim_start_matches(['│', ' ']).strip_prefix(what);
        first.is_some_and(|rest| rest.starts_with([' ', ','])) && line.matches('┆').count() == 3
    };
    printed.lines().filter(is_of).count()
}

fn concert() -> Result<String, String> {
    release()?;
    let size = ["--people", "430000", "--stock", "90000", "--seconds", "240", "--kill", "20"];
    let out = ["--data", "target", "--report", "target/concert", "--table"];
    shell::output(FIRSTCOME, &[&["drill", "concert"], &size[..], &out[..]].concat())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_figure_is_read_from_its_row() {
        let printed = "│ bids sent per second ┆ 3 030 │\n│ bids sent            ┆ 121 258 │\n";
        assert_eq!(super::figure(printed, "bids sent"), Some(121_258));
        assert_eq!(super::figure(printed, "bids"), None);
    }

    #[test]
    fn kills_are_counted_by_what_was_killed() {
        let printed = "│ server memory ┆ 7 MB │\n│ server ┆ 1 s ┆ 1 ┆ 9 │\n│ redis, with its data ┆ 2 s ┆ 2 ┆ 9 │\n";
        assert_eq!(["server", "redis", "sql"].map(|what| super::kills_of(printed, what)), [1, 1, 0]);
    }

    #[test]
    fn a_missed_target_is_seen() {
        let printed = |met: &str| format!("│ Target ┆ Met │\n│ at half load, no worse ┆ {met} │\n");
        assert!(super::on_target(printed("yes")).is_ok());
        assert!(super::on_target(printed("NO ")).is_err());
    }
}
