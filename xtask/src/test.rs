//! Everything that a change must pass, cheapest first.

use crate::shell::{self, Outcome};
use crate::stale::Marks;
use crate::{perf, sbom, setup, supply, tidy, versions};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The features under which everything is tested.
pub(crate) const FEATURES: &str = "firstcome-bench/etcd,firstcome-cli/etcd,firstcome-cli/planted-bugs,firstcome/axum,firstcome/http,firstcome/sql,firstcome/sqlx,firstcome/tower";
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
    // A drill must find planted bugs, so the binary under test contains them. Without a bug's name it behaves as usual.
    // The other features have to be named here: no program of ours uses locks or fences in databases, and locks on etcd
    // are optional.
    let all = ["--workspace", "--features", FEATURES];
    shell::run("cargo", &[&["clippy", "--all-targets"], &all[..], &["--", "-D", "warnings"]].concat())?;
    // A comment that links to a missing name is an error.
    shell::run("cargo", &[&["doc", "--no-deps", "--document-private-items", "--quiet"], &all[..]].concat())?;
    // Builds what users get: an import behind a feature that only tests enable would break this build and no test.
    // Optimised, because the compiler has limits that only an optimised build reaches.
    shell::run("cargo", &["build", "--release", "--quiet", "-p", "firstcome-cli"])?;
    let costs = perf::gate()?;
    setup::peers()?;
    let skipped = skipped_file()?;
    let tested = shell::run_with(
        (SKIPPED_FILE, &skipped),
        "cargo",
        &[&["test", "--no-fail-fast"], &all[..], &["--", TEST_THREADS]].concat(),
    );
    let summary = summary(&std::fs::read_to_string(&skipped).unwrap_or_default());
    // Printed also after a failure, and again at the end, where it does not scroll away.
    println!("\n{summary}");
    tested?;
    let versions = versions::gate().map_err(|report| format!("not over each version:\n{report}"))?;
    shell::run("cargo", &["run", "--quiet", "-p", "firstcome-sim", "--", "--seeds", SEEDS])?;
    planted_bugs()?;
    println!("\n{versions}\n{summary}\n{costs}");
    Ok(())
}

/// The variable with the file to which each skipped test appends a line; the same as in `firstcome_test_servers`.
const SKIPPED_FILE: &str = "FIRSTCOME_SKIPPED";

/// Creates the empty file for skipped tests.
fn skipped_file() -> Result<PathBuf, String> {
    let file = shell::root().join("target/skipped");
    std::fs::write(&file, "").map_err(|error| format!("cannot write {}: {error}", file.display()))?;
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

/// Checks that each planted bug fails the check that is named for it, and that without one no check fails.
fn planted_bugs() -> Outcome {
    let sim = ["-p", "firstcome-sim", "--features", "planted-bugs"];
    shell::run("cargo", &[&["clippy", "--all-targets"], &sim[..], &["--", "-D", "warnings"]].concat())?;
    shell::run("cargo", &[&["test", "--quiet", "-p", "firstcome-core"], &sim[..]].concat())?;
    shell::run("cargo", &[&["run", "--quiet"], &sim[..], &["--", "planted"]].concat())
}
