//! A command under a lock, with a Redis of the test's own.

use crate::support::program::{PROGRAM, command, firstcome, is_installed, run, signal, wait};
use crate::support::{machine_has, wait_for};
use firstcome::edge::Stopwatch;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Between the end of a lease and the next grant, on a machine that is busy with other tests.
const HAND_OVER: Duration = Duration::from_secs(3);

/// A directory, and a Redis on a free port.
pub(crate) struct LockStores {
    directory: tempfile::TempDir,
    redis: Child,
    url: String,
}

impl LockStores {
    /// `None` where there is no Redis.
    pub(crate) fn new() -> Option<Self> {
        if !machine_has("Redis", is_installed("redis-server")) {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let mut redis = command("redis-server", directory.path());
        redis.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--unixsocket", "redis.sock"]);
        let redis = redis.stdout(Stdio::null()).spawn().expect("redis-server starts");
        let place = Self { directory, redis, url: format!("redis://127.0.0.1:{port}") };
        wait_for("Redis", || place.path("redis.sock").exists().then_some(()));
        Some(place)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `firstcome lock` with the rest of a line, which is split at spaces, and a script that a shell runs under the lock.
    pub(crate) fn lock(&self, line: &str, script: &str) -> Command {
        // A process that started the tests may ignore a signal (`nohup`), and what is ignored stays so.
        let mut lock = command("env", self.directory.path());
        lock.args(["--default-signal=HUP,INT,QUIT", PROGRAM, "lock"])
            .args(line.split_ascii_whitespace())
            .args(["--store", &self.url]);
        lock.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        lock
    }

    pub(crate) fn start(&self, line: &str, script: &str) -> Running {
        Running::start(&mut self.lock(line, script), self.directory.path())
    }

    /// The numbers that a script wrote into a file, once there are so many.
    pub(crate) fn numbers(&self, file: &str, count: usize) -> Vec<u32> {
        numbers(&self.path(file), count)
    }

    /// Makes the store stand still.
    pub(crate) fn stop_redis(&self) {
        signal(self.redis.id(), "STOP");
    }

    pub(crate) fn waiters(&self, name: &str) -> String {
        run(&mut self.lock(&format!("{name} --wait 0s"), "true")).with(75)
    }
}

impl Drop for LockStores {
    fn drop(&mut self) {
        signal(self.redis.id(), "CONT");
        // It may have ended by itself.
        let _ = self.redis.kill();
        let _ = self.redis.wait();
    }
}

pub(crate) fn numbers(file: &Path, count: usize) -> Vec<u32> {
    wait_for("numbers in a file", || {
        let text = fs::read_to_string(file).ok()?;
        let numbers: Vec<u32> = text.lines().map_while(|line| line.trim().parse().ok()).collect();
        (count <= numbers.len() && text.ends_with('\n')).then_some(numbers)
    })
}

/// A `firstcome lock` that runs. Every process that a script wrote into `pids` ends with it, and so do its keeper and its guardian.
pub(crate) struct Running {
    child: Child,
    place: PathBuf,
}

impl Running {
    pub(crate) fn start(command: &mut Command, place: &Path) -> Self {
        Self { child: command.spawn().expect("it starts"), place: place.to_owned() }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Whether a process that it started runs: the keeper ends when nothing is left of the command.
    pub(crate) fn has_keeper(&self) -> bool {
        children_of(self.child.id()).is_some_and(|children| children.into_iter().any(is_running))
    }

    /// The process that has the lock.
    pub(crate) fn holder(&self) -> u32 {
        self.child.id()
    }

    /// The process that this one started.
    pub(crate) fn keeper(&self) -> u32 {
        child_of(self.child.id())
    }

    /// The one that the keeper started.
    pub(crate) fn guardian(&self) -> u32 {
        child_of(self.keeper())
    }

    /// Waits for its end, and leaves what a script wrote into `pids` as it is.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        wait(&mut self.child).code()
    }

    /// Waits for its end: exit code and what it said.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child);
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        (status.code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal("CONT");
        let _ = self.child.kill();
        let _ = self.child.wait();
        for name in ["pids", "pid"] {
            let pids = fs::read_to_string(self.place.join(name)).unwrap_or_default();
            pids.lines()
                .filter_map(|line| line.parse().ok())
                .filter(|pid| is_running(*pid))
                .for_each(|pid| signal(pid, "KILL"));
        }
    }
}

/// The first process that a process started.
fn child_of(process: u32) -> u32 {
    wait_for("a child", || children_of(process)?.first().copied())
}

fn children_of(process: u32) -> Option<Vec<u32>> {
    // Started by any of its threads.
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let words = lists.flat_map(|list| list.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>());
    Some(words.filter_map(|child| child.parse().ok()).collect())
}

/// Whether a process runs: one that only waits for its parent to take note of its end does not.
pub(crate) fn is_running(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn until_gone(process: u32) {
    wait_for("the end of a process", || (!is_running(process)).then_some(()));
}

#[test]
fn the_exit_code_is_the_commands() {
    let Some(place) = LockStores::new() else { return };
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let ended = run(&mut place.lock("a", script));
        assert_eq!(ended.code, Some(code), "{script}: {}", ended.stderr);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
    }
    for (program, code) in [("no-such-command", 127), ("/etc/passwd", 126)] {
        let said = firstcome(place.directory.path(), &["lock", "a", "--store", &place.url, "--", program]).with(code);
        assert!(said.contains(program), "{said}");
    }
    // All of them gave the lock back.
    run(&mut place.lock("a --wait 0s", "true")).well();
}

#[test]
fn the_command_has_the_streams_the_name_and_a_fence_that_grows() {
    let Some(place) = LockStores::new() else { return };
    let fences: Vec<u64> = (0..3)
        .map(|_| {
            let ended = run(&mut place.lock("job:7", "echo $FIRSTCOME_LOCK $FIRSTCOME_FENCE; cat; echo said >&2"));
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "said\n"));
            let fence = ended.stdout.strip_prefix("job:7 ").expect("the name comes first");
            fence.trim().parse().expect("a fence")
        })
        .collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

#[test]
fn the_command_inherits_no_file_of_its_keepers() {
    let Some(place) = LockStores::new() else { return };
    // By one process alone: while a shell makes a pipeline it has files of its own.
    let script = "exec ls /proc/self/fd";
    let alone = run(command("sh", place.directory.path()).args(["-c", script])).well();
    assert_eq!(run(&mut place.lock("a", script)).well(), alone);
}

#[test]
fn calls_that_make_no_sense_are_told_so_before_anything_is_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let table: [(&[&str], &str); 20] = [
        (&["--", "true"], "<NAME>"),
        (&["a"], "CMD"),
        (&["a b", "--", "true"], "the lock"),
        (&["a", "--owner", "x y", "--", "true"], "the owner"),
        (&["a", "--lease", "99ms", "--", "true"], "100ms to 192h"),
        (&["a", "--lease", "193h", "--", "true"], "100ms to 192h"),
        (&["a", "--wait", "61m", "--", "true"], "at most 1h"),
        (&["a", "--wait", "soon", "--", "true"], "not a duration"),
        (&["a", "--store", "http://x", "--", "true"], "http"),
        (&["a", "--layout", "redisson", "--", "true"], "on Redis only"),
        (&["a", "--layout", "single-key", "--store", "etcd://x", "--", "true"], "on Redis only"),
        (
            &["a", "--layout", "redisson", "--store", "redis://a", "--store", "redis://b", "--", "true"],
            "leave --layout out",
        ),
        (&["a", "--store", "memory:", "--", "true"], "exclude no other process"),
        (&["a", "--store", "mysql://h/shop", "--", "true"], "have no lease"),
        (&["a", "--store", "postgres://h/shop?layout=session", "--", "true"], "have no lease"),
        (&["a", "--store", "redis://h?layout=redison", "--", "true"], "no such layout"),
        (&["a", "--layout", "redisson", "--store", "redis://h?layout=single-key", "--", "true"], "different layouts"),
        (&["a b", "--store", "redis://h?layout=native", "--", "true"], "the lock"),
        (&["a", "--store", "sqlite:misspelt", "--", "true"], "there is no store misspelt"),
        // Or it was built without etcd.
        (&["a", "--store", "etcd://x:port", "--lease", "1s", "--", "true"], "etcd"),
    ];
    for (arguments, words) in table {
        let said = firstcome(directory.path(), &[&["lock"], arguments].concat()).with(2);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let nobody = ["lock", "a", "--store", "redis://127.0.0.1:1", "--", "touch", "ran"];
    firstcome(directory.path(), &nobody).with(3);
    assert!(!directory.path().join("ran").exists());
}

#[test]
fn who_comes_too_late_is_told_who_has_the_lock() {
    let Some(place) = LockStores::new() else { return };
    let _held = place.start("a --owner ann", "echo $$ > pid; sleep 60");
    place.numbers("pid", 1);
    let said = run(&mut place.lock("a --wait 0s", "true")).with(75);
    assert!(said.contains("held by ann") && said.contains("0 waiting"), "{said}");
    let said = run(&mut place.lock("a --wait 100ms", "true")).with(75);
    assert!(said.contains("held by ann") && said.contains("0 still ahead"), "{said}");
}

#[test]
fn commands_never_overlap() {
    let Some(place) = LockStores::new() else { return };
    let script = "for n in 1 2 3; do echo 1 >> marks; done; mkdir inside || exit 9; rmdir inside; echo 2 >> marks";
    let runs: Vec<Running> = (0..6).map(|_| place.start("a --wait 30s", script)).collect();
    for run in runs {
        assert_eq!(run.end(), (Some(0), String::new()));
    }
    let marks = fs::read_to_string(place.path("marks")).expect("marks");
    assert_eq!(marks.replace('\n', ""), "1112".repeat(6));
}

#[test]
fn a_signal_reaches_the_command_and_its_answer_counts() {
    let Some(place) = LockStores::new() else { return };
    for name in ["TERM", "INT", "HUP", "USR1"] {
        let _ = fs::remove_file(place.path("pid"));
        let script = format!("trap 'exit 5' {name}; echo $$ > pid; while :; do sleep 0.05; done");
        let running = place.start("a", &script);
        place.numbers("pid", 1);
        running.signal(name);
        assert_eq!(running.end().0, Some(5), "{name}");
    }
}

/// As a service manager does it that stops a service.
#[test]
fn signals_to_all_processes_do_not_take_the_guardian_away() {
    let Some(place) = LockStores::new() else { return };
    let running = place.start("a", "trap 'exit 5' TERM; echo $$ > pid; while :; do sleep 0.05; done");
    place.numbers("pid", 1);
    for name in ["HUP", "INT", "QUIT", "TSTP", "USR1", "TERM"] {
        signal(running.guardian(), name);
        signal(running.keeper(), name);
    }
    running.signal("TERM");
    assert_eq!(running.end().0, Some(5));
}

#[test]
fn who_is_interrupted_in_line_leaves_it() {
    let Some(place) = LockStores::new() else { return };
    // Not into `pid`: what that names ends with each of those that wait.
    let _held = place.start("a", "echo $$ > held; exec sleep 60");
    place.numbers("held", 1);
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let waiting = place.start("a --wait 30s", "touch ran");
        wait_for("somebody in line", || place.waiters("a").contains("1 waiting").then_some(()));
        waiting.signal(name);
        assert_eq!(waiting.end().0, Some(code));
        assert!(place.waiters("a").contains("0 waiting"));
    }
    assert!(!place.path("ran").exists());
}

/// A command and a grandchild that hear no TERM.
const STUBBORN: &str = "trap '' TERM; sh -c 'echo $$ >> pids; while :; do sleep 0.05; done' & \
    echo $$ >> pids; while :; do sleep 0.05; done";

#[test]
fn when_the_holder_is_killed_or_stopped_all_of_the_command_ends_and_the_next_one_comes() {
    let Some(place) = LockStores::new() else { return };
    for (round, name) in ["KILL", "STOP"].into_iter().enumerate() {
        let lock = format!("lock-{round} --lease 1s");
        let running = place.start(&lock, STUBBORN);
        let pids = place.numbers("pids", 2);
        let watch = Stopwatch::start();
        running.signal(name);
        // The next one notes whether any of the command was still there when it had the lock.
        let alive: Vec<String> =
            pids.iter().map(|pid| format!("! grep -q '^State:.[RSD]' /proc/{pid}/status")).collect();
        let next = run(&mut place.lock(&format!("{lock} --wait 30s"), &format!("{} || exit 9", alive.join(" && "))));
        assert_eq!(next.code, Some(0), "{name}: {}", next.stderr);
        assert!(watch.elapsed() < Duration::from_secs(1) + HAND_OVER, "{name}: {:?}", watch.elapsed());
        pids.iter().for_each(|pid| until_gone(*pid));
        if name == "STOP" {
            running.signal("CONT");
            assert_eq!(running.end().0, Some(76));
        }
        fs::remove_file(place.path("pids")).expect("it is there");
    }
}

#[test]
fn when_the_store_hangs_the_command_ends_before_its_lease() {
    let Some(place) = LockStores::new() else { return };
    let running = place.start("a --lease 3s", STUBBORN);
    let pids = place.numbers("pids", 2);
    signal(place.redis.id(), "STOP");
    let watch = Stopwatch::start();
    pids.iter().for_each(|pid| until_gone(*pid));
    // Renewed last before the stop: a later end is not the lease's.
    assert!(watch.elapsed() < Duration::from_secs(3), "{:?}", watch.elapsed());
    let (code, said) = running.end();
    assert_eq!(code, Some(76), "{said}");
    assert!(said.contains("stopped"), "{said}");
}

#[test]
fn when_the_guardian_is_killed_the_holder_ends_the_command_and_gives_the_lock_back() {
    let Some(place) = LockStores::new() else { return };
    let running = place.start("a", "echo $$ > pids; sh -c 'echo $$ >> pids; exec sleep 60'");
    let pids = place.numbers("pids", 2);
    signal(running.guardian(), "KILL");
    let (code, said) = running.end();
    assert_eq!(code, Some(76), "{said}");
    assert!(said.contains("guardian") && pids.iter().all(|pid| !is_running(*pid)), "{said}");
    run(&mut place.lock("a --wait 0s", "true")).well();
}

#[test]
fn when_guardian_and_store_stand_still_the_holder_ends_the_command() {
    let Some(place) = LockStores::new() else { return };
    let running = place.start("a --lease 3s", STUBBORN);
    let pids = place.numbers("pids", 2);
    signal(running.guardian(), "STOP");
    signal(place.redis.id(), "STOP");
    let watch = Stopwatch::start();
    pids.iter().for_each(|pid| until_gone(*pid));
    assert!(watch.elapsed() < Duration::from_secs(3), "{:?}", watch.elapsed());
    assert_eq!(running.end().0, Some(76));
}

#[test]
fn when_holder_and_guardian_stand_still_the_keeper_ends_the_command() {
    let Some(place) = LockStores::new() else { return };
    let running = place.start("a --lease 3s", STUBBORN);
    let pids = place.numbers("pids", 2);
    let guardian = running.guardian();
    signal(running.holder(), "STOP");
    signal(guardian, "STOP");
    let watch = Stopwatch::start();
    pids.iter().for_each(|pid| until_gone(*pid));
    assert!(watch.elapsed() < Duration::from_secs(3), "{:?}", watch.elapsed());
    until_gone(guardian);
    running.signal("CONT");
    assert_eq!(running.end().0, Some(76));
}

#[test]
fn a_keeper_that_is_killed_stops_nothing() {
    let Some(place) = LockStores::new() else { return };
    let running = place.start("a --lease 1s", "echo $$ > pid; sleep 2.5; exit 5");
    place.numbers("pid", 1);
    signal(running.keeper(), "KILL");
    assert_eq!(running.end(), (Some(5), String::new()));
    run(&mut place.lock("a --wait 0s", "true")).well();
}

/// A command, and a process that it started in a session of its own.
const LEFT_BEHIND: &str = "setsid sh -c 'echo $$ >> pids; while :; do sleep 0.05; done' >/dev/null 2>&1 & \
    while ! [ -s pids ]; do sleep 0.01; done;";

#[test]
fn what_left_the_group_outlives_a_command_that_ended_and_is_killed_when_the_lock_is_lost() {
    let Some(place) = LockStores::new() else { return };
    run(&mut place.lock("a", &format!("{LEFT_BEHIND} exit 0"))).well();
    let daemon = place.numbers("pids", 1)[0];
    assert!(is_running(daemon), "a service that a command started");
    signal(daemon, "KILL");
    fs::remove_file(place.path("pids")).expect("it is there");
    for stubborn in ["sleep 60", "trap '' TERM; while :; do sleep 0.05; done"] {
        let running = place.start("a --lease 1s", &format!("{LEFT_BEHIND} {stubborn}"));
        let left = place.numbers("pids", 1)[0];
        signal(place.redis.id(), "STOP");
        assert_eq!(running.end().0, Some(76), "{stubborn}");
        assert!(!is_running(left), "{stubborn}");
        signal(place.redis.id(), "CONT");
        fs::remove_file(place.path("pids")).expect("it is there");
    }
}

#[test]
fn a_gate_whose_guardian_is_gone_becomes_no_command() {
    let directory = tempfile::tempdir().expect("a directory");
    // Its parent is this process, not the first of all.
    let said = firstcome(directory.path(), &["lock-gate", "--parent", "1", "--", "touch", "ran"]).with(1);
    assert!(said.contains("the guardian is gone"), "{said}");
    let parent = std::process::id().to_string();
    let said = firstcome(directory.path(), &["lock-gate", "--parent", &parent, "--", "touch", "ran"]).with(1);
    assert!(!said.contains("the guardian is gone"), "{said}");
    assert!(!directory.path().join("ran").exists());
}

#[test]
fn what_the_command_leaves_behind_ends_with_the_lock() {
    let Some(place) = LockStores::new() else { return };
    let ended =
        run(&mut place.lock("a", "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $! > pids; exit 3"));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(!is_running(place.numbers("pids", 1)[0]));
}

#[test]
fn a_command_may_take_longer_than_its_lease() {
    let Some(place) = LockStores::new() else { return };
    run(&mut place.lock("a --lease 2s", "sleep 4.5")).well();
}
