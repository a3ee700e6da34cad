//! A command under a lock over several servers of the test's own.

use crate::support::program::{PROGRAM, command, firstcome, is_installed, run, signal, wait};
use crate::support::{machine_has, wait_for};
use firstcome::edge::Stopwatch;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Three servers that know nothing of each other.
struct Set {
    // Before the directory.
    servers: Vec<Server>,
    directory: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Set {
    /// `None` where there is no Redis.
    fn new() -> Option<Self> {
        if !machine_has("Redis", is_installed("redis-server")) {
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let options = Options::new(Durability::Quick);
        let start = |_| runtime.block_on(Server::start(Kind::Redis, &options)).expect("it starts");
        let servers = (0..3).map(start).collect();
        Some(Self { servers, directory: tempfile::tempdir().expect("a directory"), _runtime: runtime })
    }

    fn stores(&self) -> Vec<&str> {
        self.servers.iter().flat_map(|server| ["--store", server.url()]).collect()
    }

    /// `firstcome lock` with the rest of a line, which is split at spaces, and a script that a shell runs under the lock.
    fn lock(&self, line: &str, script: &str) -> Command {
        let mut lock = command(PROGRAM, self.directory.path());
        lock.arg("lock").args(line.split_ascii_whitespace()).args(self.stores());
        lock.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        lock
    }

    fn numbers(&self, file: &str, count: usize) -> Vec<u32> {
        wait_for("numbers in a file", || {
            let text = fs::read_to_string(self.directory.path().join(file)).ok()?;
            let numbers: Vec<u32> = text.lines().map_while(|line| line.trim().parse().ok()).collect();
            (count <= numbers.len() && text.ends_with('\n')).then_some(numbers)
        })
    }
}

fn is_running(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn a_command_runs_under_a_quorum_with_a_fence_that_grows() {
    let Some(mut set) = Set::new() else { return };
    let script = "echo $FIRSTCOME_LOCK $FIRSTCOME_FENCE; exit 7";
    let fence = |ended: crate::support::program::Ended| -> u64 {
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(7), ""));
        ended.stdout.strip_prefix("job:7 ").and_then(|fence| fence.trim().parse().ok()).expect("name and fence")
    };
    // New ones could have forgotten locks.
    let said = run(&mut set.lock("job:7 --wait 300ms", "touch ran")).with(3);
    assert!(said.contains("do not vote yet"), "{said}");
    assert!(!set.directory.path().join("ran").exists());
    let first = fence(run(&mut set.lock("job:7 --new-set", script)));
    let second = fence(run(&mut set.lock("job:7", script)));
    // In the environment they stand one after the other.
    let urls = set.servers.iter().map(Server::url).collect::<Vec<_>>().join(" ");
    let mut by_environment = command(PROGRAM, set.directory.path());
    by_environment.env("FIRSTCOME_STORE", urls).args(["lock", "job:7", "--", "sh", "-c", script]);
    let third = fence(run(&mut by_environment));
    set.servers[0].kill();
    let fourth = fence(run(&mut set.lock("job:7", script)));
    assert!(first < second && second < third && third < fourth, "{first} {second} {third} {fourth}");
    set.servers[1].kill();
    run(&mut set.lock("job:7 --wait 300ms", "touch ran")).with(3);
    assert!(!set.directory.path().join("ran").exists());
}

#[test]
fn commands_under_a_quorum_never_overlap() {
    let Some(set) = Set::new() else { return };
    run(&mut set.lock("a --new-set", "true")).well();
    let script = "mkdir inside || exit 9; sleep 0.02; rmdir inside";
    let runs: Vec<_> = (0..5).map(|_| set.lock("a --wait 30s", script).spawn().expect("it starts")).collect();
    for mut child in runs {
        assert_eq!(wait(&mut child).code(), Some(0));
    }
    let mut held = set.lock("a", "echo $$ > pid; exec sleep 60").spawn().expect("it starts");
    set.numbers("pid", 1);
    run(&mut set.lock("a --wait 100ms", "true")).with(75);
    // A process that waits and is told to go leaves nothing.
    let mut waiting = set.lock("a --wait 30s", "touch ran").spawn().expect("it starts");
    wait_for("somebody to wait", || {
        let mut asked = command("redis-cli", set.directory.path());
        let port = set.servers[0].url().rsplit(':').next().expect("a port").trim_end_matches('/').to_owned();
        let told = run(asked.args(["-p", &port, "ZCARD", "fcq:w:a"])).well();
        (told.trim() == "1").then_some(())
    });
    signal(waiting.id(), "TERM");
    assert_eq!(wait(&mut waiting).code(), Some(143));
    signal(held.id(), "TERM");
    assert_eq!(wait(&mut held).code(), Some(143));
    run(&mut set.lock("a --wait 0s", "true")).well();
    assert!(!set.directory.path().join("ran").exists());
}

#[test]
fn when_a_majority_hangs_the_command_ends_before_its_lease() {
    let Some(set) = Set::new() else { return };
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    // One server more or less changes nothing.
    let mut running = set.lock("a --lease 3s --new-set", script).spawn().expect("it starts");
    let pid = set.numbers("pid", 1)[0];
    signal(set.servers[0].process(), "STOP");
    let watch = Stopwatch::start();
    wait_for("two leases", || (Duration::from_secs(6) < watch.elapsed()).then_some(()));
    assert!(is_running(pid));
    signal(set.servers[1].process(), "STOP");
    let watch = Stopwatch::start();
    wait_for("the end of the command", || (!is_running(pid)).then_some(()));
    assert!(watch.elapsed() < Duration::from_secs(3), "{:?}", watch.elapsed());
    assert_eq!(wait(&mut running).code(), Some(76));
}

#[test]
fn stores_that_make_no_quorum_are_told_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let table: [(&[&str], &str); 4] = [
        (&["--store", "redis://127.0.0.1:1", "--store", "redis://127.0.0.1:2"], "3 to 9 servers"),
        (&["--store", "redis://127.0.0.1:1", "--store", "here"], "each as redis://"),
        (
            &["--store", "redis://127.0.0.1:1", "--store", "redis+cluster://x", "--store", "redis://y"],
            "each as redis://",
        ),
        (&["--store", "redis://a", "--store", "redis://b", "--store", "redis://c", "--lease", "2m"], "at most 60 s"),
    ];
    for (stores, words) in table {
        let said = firstcome(directory.path(), &[&["lock", "a"], stores, &["--", "true"]].concat()).with(2);
        assert!(said.contains(words), "{stores:?}: {said}");
    }
}
