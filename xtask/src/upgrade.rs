//! The version before beside this one: builds it from its commit, and rolls a cluster from it to this one and back under load.

use crate::shell;
use crate::test::TEST_NAMED;
use std::fmt::Write as _;

/// The version before, as long as no release has a tag: the first commit whose tables say which programs may use them.
const FIRST: &str = "7bc8bcc3";
/// Where it is checked out and built.
const CHECKOUT: &str = "target/upgrade";

/// The tests that begin with the program of the version before. The gate runs them with one program.
const TESTS: &str = "upgrade::two_nodes_";

/// Builds the last release and runs the tests of an upgrade with it.
pub(crate) fn run() -> Result<String, String> {
    let revision = revision()?;
    let subject = shell::output("git", &["log", "-1", "--format=%h of %cs: %s", &revision])?;
    // What an earlier run left there is of no use.
    let _ = shell::output("git", &["worktree", "remove", "--force", CHECKOUT]);
    shell::run("git", &["worktree", "add", "--detach", CHECKOUT, &revision])?;
    let manifest = format!("{CHECKOUT}/Cargo.toml");
    let target = shell::root().join("target/upgrade-build");
    let target = target.to_string_lossy();
    let build = ["build", "--quiet", "-p", "firstcome-cli", "--manifest-path", &manifest, "--target-dir", &target];
    let built = shell::run("cargo", &build);
    shell::run("git", &["worktree", "remove", "--force", CHECKOUT])?;
    built?;
    let previous = format!("FIRSTCOME_PREVIOUS={target}/debug/firstcome");
    let printed = shell::output("env", &[&["CI=true", &previous], &TEST_NAMED[..], &[TESTS]].concat())?;
    let mut text = format!("the version before: {subject}");
    let is_of_upgrade = |line: &&str| line.starts_with("test ") && !line.contains(" 0 passed");
    for line in printed.lines().filter(is_of_upgrade) {
        let _ = writeln!(text, "{line}");
    }
    if text.contains("2 passed; 0 failed") { Ok(text) } else { Err(format!("{text}{printed}")) }
}

/// The commit of the version before.
fn revision() -> Result<String, String> {
    let tags = shell::output("git", &["tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"])?;
    Ok(tags.lines().next().unwrap_or(FIRST).to_owned())
}
