//! Tests over servers of other versions than Debian's.

use crate::setup;
use crate::shell;
use crate::test::FEATURES;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Servers that run together, beside Debian's of the kinds that are not named.
struct Deployment {
    /// As in `xtask/versions.sh`.
    servers: &'static [&'static str],
    /// The tests with these servers: the name of a binary, and those of its tests that have this in their name.
    short: &'static [(&'static str, &'static str)],
    /// What is tested in a long run, and the tests that need what these servers do not have.
    long: &'static [(&'static str, &'static str)],
    skips: &'static [&'static str],
}

/// Redis 6.2 is the oldest that is promised. These builds of Redis, Valkey and PostgreSQL have no TLS; Debian's have.
const DEPLOYMENTS: [Deployment; 4] = [
    Deployment {
        servers: &["redis-6.2"],
        short: &[("on_cluster", "postgres_keep_every_promise"), ("on_redis", "lock::")],
        long: &[("on_redis", ""), ("on_cluster", "")],
        skips: &[
            "tls",
            // They start Redis with settings that came with Redis 7.
            "a_server_that_is_busy_is_unavailable",
            "a_server_that_loads_is_unavailable",
            // Channels of one node of a cluster came with Redis 7. Messages reach all nodes here.
            "in_a_cluster_messages_stay_with_the_node",
            "a_lock_that_moves_to_another_node_is_heard_there",
            // Its sentinels ask a server for its role every ten seconds, and cannot be told to ask more often.
            "a_primary_that_takes_no_more_writes_is_left",
            // Its users may use all channels, so no user lacks one.
            "a_redis_user_who_may_not_do_all_that_is_needed",
        ],
    },
    Deployment {
        servers: &["valkey-9.1", "postgres-18", "mariadb-11.4"],
        short: &[("on_cluster", "keep_every_promise"), ("on_redis", "lock::"), ("on_sql", "sessions::")],
        long: &[("on_redis", ""), ("on_cluster", ""), ("on_sql", "")],
        // A link leaves a demoted Valkey in time also with the bug that is planted there.
        skips: &["tls", "a_hold_that_is_released_on_a_demoted_primary_stays"],
    },
    Deployment {
        servers: &["redis-8.2"],
        short: &[("on_cluster", "postgres_keep_every_promise"), ("on_redis", "lock::")],
        long: &[("on_redis", ""), ("on_cluster", "")],
        skips: &["tls"],
    },
    Deployment { servers: &["etcd-3.6"], short: &[("on_etcd", "hand_over::")], long: &[("on_etcd", "")], skips: &[] },
];

/// The programs whose versions a report names.
const PROGRAMS: [&str; 4] = ["redis-server", "postgres", "mariadbd", "etcd"];

/// Whether all tests run, or those that every change must pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Short,
    Long,
}

/// The promises of the stores over the oldest and the newest servers, for every change.
pub(crate) fn gate() -> Result<String, String> {
    over_all(Depth::Short)
}

/// All tests of the stores over each version.
pub(crate) fn run() -> Result<String, String> {
    over_all(Depth::Long)
}

/// A directory that goes when its owner goes.
struct Scratch(PathBuf);

impl Scratch {
    /// Makes one that every user may read: PostgreSQL runs as another one than root.
    fn new() -> Result<Self, String> {
        let made = shell::output("mktemp", &["-d", "--tmpdir", "firstcome-versions.XXXXXX"])?;
        let made = Self(PathBuf::from(made.trim()));
        shell::run("chmod", &["755", &made.0.to_string_lossy()])?;
        Ok(made)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is the system's directory for temporary files, so what is left there goes in time.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn over_all(depth: Depth) -> Result<String, String> {
    setup::need(&[("pip3", "python3-pip"), ("mvn", "maven")])?;
    let scratch = Scratch::new()?;
    let (mut report, mut failed) = (String::new(), false);
    for deployment in &DEPLOYMENTS {
        let suites = if depth == Depth::Long { deployment.long } else { deployment.short };
        let directory = scratch.0.to_string_lossy().into_owned();
        shell::run("xtask/versions.sh", &[&[directory.as_str()], deployment.servers].concat())?;
        let path = path_with(&scratch.0, deployment.servers)?;
        let _ = writeln!(report, "{}", told_versions(&path).join(", "));
        for (binary, filter) in suites {
            let (passed, line) = tested(&path, binary, filter, deployment.skips)?;
            failed |= !passed;
            let _ = writeln!(report, "  {binary:<12} {line}");
        }
        if !deployment.skips.is_empty() {
            let _ = writeln!(report, "  left out, by a part of the name: {}", deployment.skips.join(", "));
        }
    }
    if failed { Err(report) } else { Ok(report) }
}

/// Returns a path on which these servers come first.
fn path_with(directory: &Path, servers: &[&str]) -> Result<OsString, String> {
    let own = servers.iter().map(|name| directory.join(name).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(own.chain(env::split_paths(&path))).map_err(|error| error.to_string())
}

/// Asks each program on the path for its version. Debian has that of PostgreSQL elsewhere.
fn told_versions(path: &OsString) -> Vec<String> {
    let ask = |program: &&str| {
        let look = "program=$(command -v \"$0\" || PATH=/usr/sbin:/sbin command -v \"$0\" || ls /usr/lib/postgresql/*/bin/\"$0\"); \
                    \"$program\" --version";
        let told = Command::new("sh").args(["-c", look, program]).env("PATH", path).output().ok()?;
        let told = String::from_utf8_lossy(&told.stdout).lines().next()?.to_owned();
        Some(told.split(" sha=").next().unwrap_or(&told).replace("  Ver ", " ").rsplit('/').next()?.to_owned())
    };
    PROGRAMS.iter().filter_map(ask).collect()
}

/// Runs the tests of a binary with these servers. Returns whether all passed, and how many did.
fn tested(path: &OsString, binary: &str, filter: &str, skips: &[&str]) -> Result<(bool, String), String> {
    let mut arguments = vec!["test", "--no-fail-fast", "--workspace", "--features", FEATURES, "--test", binary, "--"];
    arguments.extend(["--test-threads=4", filter]);
    arguments.extend(skips.iter().flat_map(|skip| ["--skip", skip]));
    println!("\n— cargo {} (with other servers on the path)", arguments.join(" "));
    let output = shell::command("cargo", &arguments)
        .env("PATH", path)
        .env("CI", "true")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let results: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("test result: ")).collect();
    let failures = printed.lines().filter(|line| line.ends_with("... FAILED")).map(|line| format!("\n    {line}"));
    let failures = failures.collect::<String>();
    if !output.status.success() {
        println!("{printed}");
    }
    Ok((output.status.success() && !results.is_empty(), format!("{}{failures}", results.join("; "))))
}
