//! Everything that a change must pass, cheapest first.

use crate::shell::{self, Outcome};
use crate::stale::Marks;
use crate::{perf, sbom, setup, supply, tidy, versions};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::Child;
use std::{env, fs};

/// The features under which everything is tested.
pub(crate) const FEATURES: &str = "firstcome-bench/etcd,firstcome-cli/etcd,firstcome-cli/planted-bugs,firstcome-sim/planted-bugs,firstcome/axum,firstcome/http,firstcome/sql,firstcome/sqlx,firstcome/tower";
/// Runs those tests of the crates that have this in their name, in the binaries of the gate: with other features Cargo would build all
/// dependencies anew.
pub(crate) const TEST_NAMED: [&str; 7] = ["cargo", "test", "--workspace", "--features", FEATURES, "--test", "it"];
/// Tests at the same time in one test binary. More than a small machine has processors, because most tests wait for servers,
/// leases and disks: two at a time used a third of two processors, four take two thirds of the time.
const TEST_THREADS: &str = "--test-threads=4";
/// The seeds that the simulator runs for every change: about half a minute.
const SEEDS: &str = "0..20000";

pub(crate) fn run() -> Outcome {
    setup::run()?;
    tidy::run(Marks::Leave)?;
    shell::run("cargo", &["fmt", "--all", "--", "--check"])?;
    // Only formatted: the dependencies of other lock libraries are not part of the gate.
    shell::run("cargo", &["fmt", "--all", "--manifest-path", "bench/Cargo.toml", "--", "--check"])?;
    print!("{}", supply::deny()?);
    // Fails for a crate in the program without a licence or a checksum.
    sbom::run(sbom::FILE)?;
    setup::peers()?;
    // A drill and the simulator must find planted bugs, so the programs under test contain them. Without a bug's name they behave as usual.
    // The other features have to be named here: no program of ours uses locks or fences in databases, and locks on etcd
    // are optional.
    let all = ["--workspace", "--features", FEATURES];
    shell::run("cargo", &[&["clippy", "--all-targets"], &all[..], &["--", "-D", "warnings"]].concat())?;
    shell::run("cargo", &[&["test", "--no-run", "--quiet"], &all[..]].concat())?;
    let skipped = skipped_file()?;
    let beside = Beside::start()?;
    let tested = shell::run_with(
        (SKIPPED_FILE, &skipped),
        "cargo",
        &[&["test", "--no-fail-fast"], &all[..], &["--", TEST_THREADS]].concat(),
    );
    let summary = summary(&fs::read_to_string(&skipped).unwrap_or_default());
    // Printed also after a failure, and again at the end, where it does not scroll away.
    println!("\n{summary}");
    let versions = tested.and_then(|()| versions::gate().map_err(|report| format!("not over each version:\n{report}")));
    // Its result counts also after a failure of the tests.
    let beside = beside.finish();
    println!("\n{}\n{summary}", versions?);
    beside
}

/// What needs processors alone, and no server, no clock and no test: the second half of the gate, at a low priority while the tests
/// of the first mostly wait.
pub(crate) fn beside() -> Outcome {
    // Builds what users get: an import behind a feature that only tests enable would break this build and no test.
    // Optimised, because the compiler has limits that only an optimised build reaches.
    shell::run("cargo", &["build", "--release", "--quiet", "-p", "firstcome-cli"])?;
    let costs = perf::gate()?;
    // Without planted bugs, as users have the rules.
    shell::run("cargo", &["run", "--quiet", "-p", "firstcome-sim", "--", "--seeds", SEEDS])?;
    // A comment that links to a missing name is an error.
    let doc = ["doc", "--no-deps", "--document-private-items", "--quiet", "--workspace", "--features", FEATURES];
    shell::run("cargo", &doc)?;
    println!("\n{costs}");
    Ok(())
}

/// [`beside`] in a process of its own.
struct Beside {
    process: Child,
    log: PathBuf,
}

impl Beside {
    fn start() -> Result<Self, String> {
        let log = shell::root().join("target/beside.log");
        println!("\n— cargo xtask test beside (with the tests, at a low priority, to {})", log.display());
        let file = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, errors) = file.map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        let program = env::current_exe().map_err(|error| format!("cannot tell which program this is: {error}"))?;
        let mut command = shell::command("nice", &["-n", "19"]);
        command.arg(program).args(["test", "beside"]).stdout(out).stderr(errors);
        let process = command.spawn().map_err(|error| format!("cannot run nice: {error}"))?;
        Ok(Self { process, log })
    }

    /// Waits for its end, and prints what it printed.
    fn finish(mut self) -> Outcome {
        println!("\n— waiting for cargo xtask test beside");
        let status = self.process.wait().map_err(|error| format!("cannot wait for it: {error}"))?;
        print!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        if status.success() { Ok(()) } else { Err("failed: cargo xtask test beside".into()) }
    }
}

/// The variable with the file to which each skipped test appends a line; the same as in `firstcome_test_servers`.
const SKIPPED_FILE: &str = "FIRSTCOME_SKIPPED";

/// Creates the empty file for skipped tests.
fn skipped_file() -> Result<PathBuf, String> {
    let file = shell::root().join("target/skipped");
    fs::write(&file, "").map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

/// Summarises the lines of that file. Skipped tests pass, so only this tells readers about them.
fn summary(skipped: &str) -> String {
    // A test may write one line for each server that is missing.
    let lines: BTreeSet<&str> = skipped.lines().collect();
    let tests = lines.iter().map(|line| line.split(", because").next()).collect::<BTreeSet<_>>().len();
    let lines = lines.iter().map(|line| format!("\n  {line}")).collect::<String>();
    format!("{tests} tests were skipped{}{lines}", if tests == 0 { "" } else { ":" })
}

#[test]
fn skipped_tests_are_counted_by_their_names() {
    assert_eq!(summary(""), "0 tests were skipped");
    let line = |test: &str, what: &str| format!("skipped: {test}, because {what} is missing\n");
    let said =
        summary(&[line("a::b", "Redis"), line("a::b", "etcd"), line("a::b", "etcd"), line("a::c", "Redis")].concat());
    assert!(said.starts_with("2 tests were skipped:\n  skipped: a::b, because Redis is missing\n"), "{said}");
    assert_eq!(said.lines().count(), 4, "{said}");
}
