//! Everything that a change must pass, cheapest first.

use crate::shell::{self, Outcome};
use crate::{setup, tidy};

const FEATURES: &str = "firstcome-cli/etcd,firstcome-cli/planted-bugs,firstcome/axum,firstcome/sql,firstcome/sqlx";
/// Seeds of the simulator in every run: about half a minute.
const SEEDS: &str = "0..20000";

pub(crate) fn run() -> Outcome {
    setup::run()?;
    tidy::run()?;
    shell::run("cargo", &["fmt", "--all", "--", "--check"])?;
    // Formatted only: what the locks of others bring along is nobody's gate.
    shell::run("cargo", &["fmt", "--all", "--manifest-path", "bench/Cargo.toml", "--", "--check"])?;
    // The drill must find planted bugs, so the binary under test has them; without their names it behaves as ever.
    // No program of ours has locks or checks fences in databases, or locks on etcd unless it is asked to, so nothing else would
    // switch these on.
    let all = ["--workspace", "--features", FEATURES];
    shell::run("cargo", &[&["clippy", "--all-targets"], &all[..], &["--", "-D", "warnings"]].concat())?;
    // As users get it: an import behind a feature that only the tests switch on would break it, and no test would see that.
    shell::run("cargo", &["check", "--quiet", "-p", "firstcome-cli"])?;
    setup::peers()?;
    shell::run("cargo", &[&["test", "--no-fail-fast"], &all[..]].concat())?;
    shell::run("cargo", &["run", "--quiet", "-p", "firstcome-sim", "--", "--seeds", SEEDS])?;
    planted_bugs()
}

/// Each planted bug must be caught by the check that is named for it; with none planted nothing may be found.
fn planted_bugs() -> Outcome {
    let sim = ["-p", "firstcome-sim", "--features", "planted-bugs"];
    shell::run("cargo", &[&["clippy", "--all-targets"], &sim[..], &["--", "-D", "warnings"]].concat())?;
    shell::run("cargo", &[&["test", "--quiet", "-p", "firstcome-core"], &sim[..]].concat())?;
    shell::run("cargo", &[&["run", "--quiet"], &sim[..], &["--", "planted"]].concat())
}
