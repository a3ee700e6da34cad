//! Everything that a change must pass, cheapest first.

use crate::shell::{self, Outcome};
use crate::stale::Marks;
use crate::{perf, setup, tidy};
use std::collections::BTreeSet;
use std::path::PathBuf;

const FEATURES: &str =
    "firstcome-bench/etcd,firstcome-cli/etcd,firstcome-cli/planted-bugs,firstcome/axum,firstcome/sql,firstcome/sqlx";
/// Seeds of the simulator in every run: about half a minute.
const SEEDS: &str = "0..20000";

pub(crate) fn run() -> Outcome {
    setup::run()?;
    tidy::run(Marks::Leave)?;
    shell::run("cargo", &["fmt", "--all", "--", "--check"])?;
    // Formatted only: what the locks of others bring along is no caller's gate.
    shell::run("cargo", &["fmt", "--all", "--manifest-path", "bench/Cargo.toml", "--", "--check"])?;
    // The drill must find planted bugs, so the binary under test has them; without their names it behaves as ever.
    // No program of ours has locks or checks fences in databases, or locks on etcd unless it is asked to, so nothing else would
    // switch these on.
    let all = ["--workspace", "--features", FEATURES];
    shell::run("cargo", &[&["clippy", "--all-targets"], &all[..], &["--", "-D", "warnings"]].concat())?;
    // A name in a comment that is not there any more is an error.
    shell::run("cargo", &[&["doc", "--no-deps", "--document-private-items", "--quiet"], &all[..]].concat())?;
    // As users get it: an import behind a feature that only the tests switch on would break it, and no test would see that.
    // Optimised too: the compiler has limits that only an optimised build reaches.
    shell::run("cargo", &["build", "--release", "--quiet", "-p", "firstcome-cli"])?;
    let costs = perf::gate()?;
    setup::peers()?;
    let skipped = skipped_file()?;
    let tested = shell::run_with((SKIPPED_FILE, &skipped), "cargo", &[&["test", "--no-fail-fast"], &all[..]].concat());
    let summary = summary(&std::fs::read_to_string(&skipped).unwrap_or_default());
    // Also after a failure; and once more where it is not scrolled away.
    println!("\n{summary}");
    tested?;
    shell::run("cargo", &["run", "--quiet", "-p", "firstcome-sim", "--", "--seeds", SEEDS])?;
    planted_bugs()?;
    println!("\n{summary}\n{costs}");
    Ok(())
}

/// As in `firstcome_test_servers`: the variable that names the file to which each skipped test appends a line.
const SKIPPED_FILE: &str = "FIRSTCOME_SKIPPED";

/// An empty file for tests that are skipped.
fn skipped_file() -> Result<PathBuf, String> {
    let file = shell::root().join("target/skipped");
    std::fs::write(&file, "").map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

/// What the lines of that file come to. A skipped test passes: without this a reader would not know.
fn summary(skipped: &str) -> String {
    // A test may say it of each of its servers.
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

/// Each planted bug must be caught by the check that is named for it; with none planted nothing may be found.
fn planted_bugs() -> Outcome {
    let sim = ["-p", "firstcome-sim", "--features", "planted-bugs"];
    shell::run("cargo", &[&["clippy", "--all-targets"], &sim[..], &["--", "-D", "warnings"]].concat())?;
    shell::run("cargo", &[&["test", "--quiet", "-p", "firstcome-core"], &sim[..]].concat())?;
    shell::run("cargo", &[&["run", "--quiet"], &sim[..], &["--", "planted"]].concat())
}
