//! A command under a lock that others know too: in their layouts on Redis, and in etcd.

use crate::support::program::{PROGRAM, command, is_installed, run, signal, wait};
use crate::support::{machine_has, wait_for};
use firstcome::edge::Stopwatch;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server, and how others ask it.
struct Shared {
    // Before the directory.
    server: Server,
    directory: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Shared {
    /// `None` where there is none.
    fn new(kind: Kind, what: &str, programs: &[&str]) -> Option<Self> {
        if !machine_has(what, programs.iter().all(|program| is_installed(program))) {
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::start(kind, &Options::new(Durability::Quick))).expect("it starts");
        Some(Self { server, directory: tempfile::tempdir().expect("a directory"), _runtime: runtime })
    }

    fn redis() -> Option<Self> {
        Self::new(Kind::Redis, "Redis", &["redis-server", "redis-cli"])
    }

    /// `firstcome lock` with the rest of a line, which is split at spaces, and a script that a shell runs under the lock.
    fn lock(&self, line: &str, script: &str) -> Command {
        let mut lock = command(PROGRAM, self.directory.path());
        lock.arg("lock").args(line.split_ascii_whitespace()).args(["--store", self.server.url()]);
        lock.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        lock
    }

    /// What another client of the server is answered.
    fn ask(&self, line: &str) -> String {
        let (address, mut words) = (self.server.url(), line.split_ascii_whitespace());
        let (_, place) = address.split_once("://").expect("a scheme");
        let port = place.trim_end_matches('/').rsplit(':').next().expect("a port");
        let program = words.next().expect("a program");
        let mut asked = command(program, self.directory.path());
        match program {
            "redis-cli" => asked.args(["-p", port]),
            _ => asked.env("ETCDCTL_API", "3").arg(format!("--endpoints=127.0.0.1:{port}")),
        };
        run(asked.args(words)).well().trim().to_owned()
    }

    fn file_is_there(&self, name: &str) -> bool {
        self.directory.path().join(name).exists()
    }

    /// Starts a command that stays, and waits until it runs.
    fn stay(&self, line: &str) -> Child {
        let _ = fs::remove_file(self.directory.path().join("runs"));
        let child = self.lock(line, "touch runs; exec sleep 60").spawn().expect("it starts");
        wait_for("the command to run", || self.file_is_there("runs").then_some(()));
        child
    }
}

/// Ends a command by a signal, and with it the program.
fn end(mut child: Child) {
    signal(child.id(), "TERM");
    assert_eq!(wait(&mut child).code(), Some(143));
}

#[test]
fn one_key_is_the_lock_of_a_command_and_of_others() {
    let Some(shared) = Shared::redis() else { return };
    let script = "echo \"$FIRSTCOME_LOCK $FIRSTCOME_FENCE\"";
    // A key as others have them is no name of ours.
    let mut ours = command(PROGRAM, shared.directory.path());
    ours.args([
        "lock",
        "lock:{k} é",
        "--layout",
        "single-key",
        "--store",
        shared.server.url(),
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(run(&mut ours).well(), "lock:{k} é \n", "no fence");
    assert_eq!(shared.ask("redis-cli SET k theirs NX PX 60000"), "OK");
    let said = run(&mut shared.lock("k --layout single-key --wait 100ms", "touch ran")).with(75);
    assert!(said.contains("not obtained in time"), "{said}");
    assert_eq!(shared.ask("redis-cli DEL k"), "1");
    let said = run(&mut shared.lock("k --layout single-key --require fence", "touch ran")).with(2);
    assert!(said.contains("does not promise a fence with every grant"), "{said}");
    run(&mut shared.lock("k --require fence --require order", "true")).well();
    let held = shared.stay("k --layout single-key --lease 30s");
    assert_eq!(shared.ask("redis-cli SET k theirs NX PX 60000"), "");
    end(held);
    assert_eq!(shared.ask("redis-cli EXISTS k"), "0");
    assert!(!shared.file_is_there("ran"));
}

#[test]
fn the_hash_of_redisson_is_the_lock_of_a_command_and_is_renewed() {
    let Some(shared) = Shared::redis() else { return };
    let held = shared.stay("k --layout redisson --lease 900ms");
    assert_eq!(shared.ask("redis-cli TYPE k"), "hash");
    // Longer than its lease.
    let watch = Stopwatch::start();
    wait_for("a lease to pass", || (Duration::from_millis(900) < watch.elapsed()).then_some(()));
    assert_eq!(shared.ask("redis-cli HLEN k"), "1");
    run(&mut shared.lock("k --layout redisson --wait 0s", "touch ran")).with(75);
    // A process that gives up while he waits leaves nothing.
    let mut waiting = shared.lock("k --layout redisson --wait 30s", "touch ran").spawn().expect("it starts");
    let listens = || (shared.ask("redis-cli PUBSUB NUMSUB redisson_lock__channel:{k}").ends_with('1')).then_some(());
    wait_for("somebody to wait", listens);
    signal(waiting.id(), "TERM");
    assert_eq!(wait(&mut waiting).code(), Some(143));
    end(held);
    assert_eq!(shared.ask("redis-cli EXISTS k"), "0");
    run(&mut shared.lock("k --layout redisson --wait 0s", "true")).well();
    assert!(!shared.file_is_there("ran"));
}

#[test]
fn a_command_runs_under_a_lock_in_rows_of_postgres() {
    let Some(shared) = Shared::new(Kind::Postgres, "PostgreSQL", &["psql"]) else { return };
    let fence = |line: &str| -> u64 {
        run(&mut shared.lock(line, "echo $FIRSTCOME_FENCE")).well().trim().parse().expect("a fence")
    };
    let first = fence("a --require order --require fence");
    let held = shared.stay("a --owner ann --lease 900ms");
    // Longer than its lease, which is renewed.
    let watch = Stopwatch::start();
    wait_for("a lease to pass", || (Duration::from_millis(900) < watch.elapsed()).then_some(()));
    let said = run(&mut shared.lock("a --wait 100ms", "touch ran")).with(75);
    assert!(said.contains("held by ann"), "{said}");
    end(held);
    assert!(first < fence("a --wait 30s") && !shared.file_is_there("ran"));
}

#[cfg(feature = "etcd")]
mod on_etcd {
    use super::*;

    fn etcd() -> Option<Shared> {
        Shared::new(Kind::Etcd, "etcd", &["etcd", "etcdctl"])
    }

    #[test]
    fn a_command_runs_under_a_lock_on_etcd_with_a_fence_that_grows() {
        let Some(shared) = etcd() else { return };
        let fence = || -> u64 {
            let said = run(&mut shared.lock("job:7", "echo $FIRSTCOME_FENCE; exit 7"));
            assert_eq!((said.code, said.stderr.as_str()), (Some(7), ""));
            said.stdout.trim().parse().expect("a fence")
        };
        let first = fence();
        assert!(first < fence());
        let held = shared.stay("job:7 --lease 2s --owner ann");
        let said = run(&mut shared.lock("job:7 --wait 100ms", "touch ran")).with(75);
        assert!(said.contains("held by ann"), "{said}");
        // A waiter and is told to go leaves nothing.
        let mut waiting = shared.lock("job:7 --wait 30s", "touch ran").spawn().expect("it starts");
        let places = || shared.ask("etcdctl get --prefix --keys-only firstcome/lock/job:7/").split_whitespace().count();
        wait_for("somebody to wait", || (places() == 2).then_some(()));
        signal(waiting.id(), "TERM");
        assert_eq!(wait(&mut waiting).code(), Some(143));
        assert_eq!(places(), 1);
        end(held);
        assert_eq!(shared.ask("etcdctl get --prefix --keys-only firstcome/"), "");
        assert_eq!(shared.ask("etcdctl lease list"), "found 0 leases");
        assert!(!shared.file_is_there("ran"));
    }

    #[test]
    fn doctor_asks_etcd_for_a_lease_and_leaves_nothing_there() {
        let Some(shared) = etcd() else { return };
        let mut doctor = command(PROGRAM, shared.directory.path());
        let report = run(doctor.args(["doctor", "--store", shared.server.url()])).well();
        assert!(report.contains("grants a lease"), "{report}");
        assert_eq!(shared.ask("etcdctl get --prefix --keys-only firstcome/"), "");
        assert_eq!(shared.ask("etcdctl lease list"), "found 0 leases");
    }

    #[test]
    fn commands_under_etcd_never_overlap_and_a_killed_one_is_followed() {
        let Some(shared) = etcd() else { return };
        let script = "mkdir inside || exit 9; sleep 0.02; rmdir inside";
        let runs: Vec<_> = (0..5).map(|_| shared.lock("a --wait 30s", script).spawn().expect("it starts")).collect();
        for mut child in runs {
            assert_eq!(wait(&mut child).code(), Some(0));
        }
        let mut held = shared.stay("a --lease 2s");
        signal(held.id(), "KILL");
        let _ = wait(&mut held);
        run(&mut shared.lock("a --wait 30s", "true")).well();
    }

    #[test]
    fn when_etcd_hangs_the_command_ends_before_its_lease() {
        let Some(shared) = etcd() else { return };
        let mut held = shared.stay("a --lease 2s");
        signal(shared.server.process(), "STOP");
        assert_eq!(wait(&mut held).code(), Some(76));
        signal(shared.server.process(), "CONT");
    }
}
