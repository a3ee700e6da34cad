//! Finds reports whose measured code has changed since.
//!
//! A report of `cargo xtask full` names the commit that it measured. When a later commit touches the measured code, the report
//! is stale: its figures were true, and may no longer be. `tidy` prints that without failing, since a change cannot wait for
//! hours of measurements. `tidy --mark` writes it into the report, where readers see it.

use crate::shell::{self, Outcome};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const DIRECTORY: &str = "docs/full";
const MARK: &str = "> Stale: ";

/// The rules, and the ports and adapters that every store shares.
const CORE: &str = "crates/firstcome-core/src";
const STORE: &str = "crates/firstcome-store/src";
const EMBEDDED: &str = "crates/firstcome-store/src/embedded";
const SQLITE: &str = "crates/firstcome-sqlite/src";
const SQL: &str = "crates/firstcome-sql/src";
const REDIS: &str = "crates/firstcome-redis/src";
const CLUSTER: &str = "crates/firstcome-cluster/src";
const SERVER: &str = "crates/firstcome-server/src";
const LOCK_RULES: &str = "crates/firstcome-core/src/lock";
const LOCKS: &str = "crates/firstcome/src/lock";
const FENCE: &str = "crates/firstcome/src/fence";
const ETCD: &str = "crates/firstcome-etcd/src";

/// The code that each report measures, without the code that only drives the measurement.
pub(crate) const MEASURED: [(&str, &[&str]); 31] = [
    ("deny", &["Cargo.lock", "deny.toml"]),
    ("package", &["crates/firstcome-cli/Cargo.toml", "ops", "xtask/chart", "xtask/package.sh"]),
    ("versions", &[REDIS, SQL, CLUSTER, ETCD]),
    ("mysql", &[SQL]),
    ("upgrade", &[CORE, REDIS, SQL, CLUSTER, SERVER]),
    ("dashboard", &["ops/grafana", "crates/firstcome-server/src/metrics", "crates/firstcome-server/src/metrics.rs"]),
    ("mutants", &[CORE]),
    ("openapi", &[SERVER, "docs/openapi.json"]),
    ("sim", &[CORE, EMBEDDED, CLUSTER, "crates/firstcome-sim/src"]),
    ("kills", &[CORE, EMBEDDED, SQLITE, SERVER]),
    ("stops", &[LOCK_RULES, LOCKS, FENCE, REDIS]),
    ("faults", &[LOCK_RULES, LOCKS, REDIS]),
    ("partitions", &[LOCK_RULES, LOCKS, REDIS]),
    ("bench", &[CORE, EMBEDDED, SQLITE, SERVER]),
    ("rooms", &[CORE, EMBEDDED, SQLITE, SERVER]),
    ("gate", &[CORE, EMBEDDED, SERVER]),
    ("passes", &["crates/firstcome/src/pass", "crates/firstcome/src/pass.rs"]),
    ("upkeep", &[CORE, EMBEDDED, SQLITE]),
    ("locks", &[LOCK_RULES, LOCKS, REDIS, SQLITE]),
    ("quorum", &[LOCK_RULES, LOCKS, REDIS]),
    ("etcd", &[LOCK_RULES, LOCKS, ETCD]),
    ("layouts", &[LOCK_RULES, LOCKS, REDIS]),
    ("auctions", &[CORE, EMBEDDED, SQLITE, SQL, SERVER]),
    ("field", &[CORE, STORE, CLUSTER, REDIS, SQL, SQLITE, SERVER, LOCKS]),
    ("curves", &[CORE, EMBEDDED, SQLITE, REDIS, SERVER, LOCKS]),
    ("perf", &[CORE, EMBEDDED, SQLITE, SERVER]),
    ("market", &[CORE, EMBEDDED, SQLITE, SQL, SERVER]),
    ("many", &[CORE, CLUSTER, REDIS, SQL, SERVER]),
    ("waiting", &[CORE, CLUSTER, REDIS, SERVER]),
    ("nodes", &[CORE, STORE, CLUSTER, REDIS, SQL, SERVER]),
    ("concert", &[CORE, EMBEDDED, SQLITE, SERVER]),
];

/// Excludes tests, which do not change what a report measures. Only the report on mutants depends on them.
const NO_TESTS: [&str; 3] =
    [":(exclude,glob)**/tests/**", ":(exclude,glob)**/tests.rs", ":(exclude,glob)**/conformance/**"];

/// What to do with the marks in the reports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Compares them with the history, and changes nothing.
    Leave,
    /// Writes missing marks, and removes wrong ones.
    Write,
}

/// Prints which reports are stale.
pub(crate) fn look(marks: Marks) -> Outcome {
    let mut unmarked = 0;
    for (name, paths) in MEASURED {
        let path = report(name);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let Some(commit) = commit_of(&text) else {
            println!("  {DIRECTORY}/{name}.md names no commit");
            continue;
        };
        let Some(changes) = changes_since(commit, name, paths) else {
            // A shallow clone, or a directory without history.
            println!("  {DIRECTORY}/{name}.md: commit {commit} is not here, so nothing is known of its age");
            continue;
        };
        if changes != 0 {
            println!("  stale: {DIRECTORY}/{name}.md, {changes} commits after {commit}: `cargo xtask full {name}`");
        }
        let right = marked(&text, (changes != 0).then_some(commit));
        if right == text {
            continue;
        }
        match marks {
            Marks::Leave => unmarked += 1,
            Marks::Write => fs::write(&path, right).map_err(|error| format!("{}: {error}", path.display()))?,
        }
    }
    if unmarked != 0 {
        println!("  {unmarked} reports do not say whether they are stale: `cargo xtask tidy --mark`");
    }
    Ok(())
}

fn report(name: &str) -> PathBuf {
    shell::root().join(DIRECTORY).join(format!("{name}.md"))
}

/// Reads the commit from the line `2026-11-21, commit 7c7b594`, which may go on after it.
fn commit_of(text: &str) -> Option<&str> {
    let after = text.lines().find_map(|line| line.split_once(", commit "))?.1;
    after.split([',', ' ']).next().filter(|commit| !commit.is_empty())
}

/// Counts the commits after this one that touch what a report measures; `None` if the commit is unknown.
fn changes_since(commit: &str, name: &str, paths: &[&str]) -> Option<usize> {
    // A module may consist of a directory and a file beside it.
    let files = paths.iter().map(|path| format!("{path}.rs")).filter(|file| shell::root().join(file).exists());
    let files: Vec<String> = files.collect();
    let mut command = Command::new("git");
    command.args(["log", "--format=%h", &format!("{commit}..HEAD"), "--"]).args(paths).args(files);
    if name != "mutants" {
        command.args(NO_TESTS);
    }
    let output = command.current_dir(shell::root()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).lines().count())
}

/// Returns the report with a mark that it is stale since this commit, or without a mark.
fn marked(text: &str, stale_since: Option<&str>) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut plain = text.lines().peekable();
    while let Some(line) = plain.next() {
        if line.starts_with(MARK) {
            // Removes the empty line after the mark too.
            plain.next_if(|next| next.is_empty());
            continue;
        }
        lines.push(line.to_owned());
    }
    if let (Some(commit), Some(at)) = (stale_since, lines.iter().position(|line| line.contains(", commit "))) {
        let mark = format!("{MARK}the code that it measures has changed since commit {commit}.");
        lines.splice(at + 1..at + 1, [String::new(), mark]);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "# Coupons: passed\n\n2026-11-21, commit 7c7b594\n\n```text\nfast\n```\n";

    #[test]
    fn a_report_names_its_commit() {
        assert_eq!(commit_of(REPORT), Some("7c7b594"));
        assert_eq!(commit_of("x\n2026-11-21, commit 7c7b594, with changes\n"), Some("7c7b594"));
        assert_eq!(commit_of("# Coupons\n"), None);
    }

    #[test]
    fn a_mark_comes_once_and_goes_without_a_trace() {
        let stale = marked(REPORT, Some("7c7b594"));
        let mark = "\n\n> Stale: the code that it measures has changed since commit 7c7b594.\n\n```text";
        assert!(stale.contains(mark), "{stale}");
        assert_eq!(marked(&stale, Some("7c7b594")), stale);
        assert_eq!(marked(&stale, None), REPORT);
        assert_eq!(marked(REPORT, None), REPORT);
    }

    #[test]
    fn every_report_says_what_it_measures_and_that_is_there() {
        let names = MEASURED.map(|(name, _)| name);
        assert_eq!(names.to_vec(), crate::full::names());
        for (name, paths) in MEASURED {
            assert!(!paths.is_empty(), "{name}");
            for path in paths {
                assert!(shell::root().join(path).exists(), "{name}: {path}");
            }
        }
    }

    #[test]
    fn a_commit_that_is_not_here_makes_nothing_stale() {
        assert_eq!(changes_since("0000000", "bench", &[CORE]), None);
    }
}
