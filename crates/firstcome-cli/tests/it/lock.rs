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
struct Place {
    directory: tempfile::TempDir,
    redis: Child,
    url: String,
}

impl Place {
    /// `None` where there is no Redis.
    fn new() -> Option<Self> {
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

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `firstcome lock` with the rest of a line, which is split at spaces, and a script that a shell runs under the lock.
    fn lock(&self, line: &str, script: &str) -> Command {
        // Whoever started the tests may ignore a signal (`nohup`), and what is ignored stays so.
        let mut lock = command("env", self.directory.path());
        lock.args(["--default-signal=HUP,INT,QUIT", PROGRAM, "lock"])
            .args(line.split_ascii_whitespace())
            .args(["--store", &self.url]);
        lock.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        lock
    }

    fn start(&self, line: &str, script: &str) -> Running {
        Running { child: self.lock(line, script).spawn().expect("it starts"), place: self.directory.path().to_owned() }
    }

    /// The numbers that a script wrote into a file, once there are so many.
    fn numbers(&self, file: &str, count: usize) -> Vec<u32> {
        numbers(&self.path(file), count)
    }

    fn waiters(&self, name: &str) -> String {
        run(&mut self.lock(&format!("{name} --wait 0s"), "true")).with(75)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        signal(self.redis.id(), "CONT");
        // It may have ended by itself.
        let _ = self.redis.kill();
        let _ = self.redis.wait();
    }
}

fn numbers(file: &Path, count: usize) -> Vec<u32> {
    wait_for("numbers in a file", || {
        let text = fs::read_to_string(file).ok()?;
        let numbers: Vec<u32> = text.lines().map_while(|line| line.trim().parse().ok()).collect();
        (count <= numbers.len() && text.ends_with('\n')).then_some(numbers)
    })
}

/// A `firstcome lock` that runs. Whatever a script wrote into `pids` ends with it, and so does its guardian.
struct Running {
    child: Child,
    place: PathBuf,
}

impl Running {
    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The processes that this one started: its guardian.
    fn guardian(&self) -> u32 {
        let id = self.child.id();
        wait_for("the guardian", || {
            // Started by any of its threads.
            let tasks = fs::read_dir(format!("/proc/{id}/task")).ok()?;
            let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
            let first =
                lists.flat_map(|list| list.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()).next();
            first.and_then(|child| child.parse().ok())
        })
    }

    /// Waits for its end: exit code and what it said.
    fn end(mut self) -> (Option<i32>, String) {
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

/// Whether a process runs: one that only waits for its parent to take note of its end does not.
fn is_running(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn until_gone(process: u32) {
    wait_for("the end of a process", || (!is_running(process)).then_some(()));
}

#[test]
fn the_exit_code_is_the_commands() {
    let Some(place) = Place::new() else { return };
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
    let Some(place) = Place::new() else { return };
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
fn calls_that_make_no_sense_are_told_so_before_anything_is_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let table: [(&[&str], &str); 13] = [
        (&["--", "true"], "<NAME>"),
        (&["a"], "CMD"),
        (&["a b", "--", "true"], "the lock"),
        (&["a", "--owner", "x y", "--", "true"], "the owner"),
        (&["a", "--lease", "99ms", "--", "true"], "100ms to 24h"),
        (&["a", "--lease", "25h", "--", "true"], "100ms to 24h"),
        (&["a", "--wait", "61m", "--", "true"], "at most 1h"),
        (&["a", "--wait", "soon", "--", "true"], "not a duration"),
        (&["a", "--store", "http://x", "--", "true"], "http"),
        (&["a", "--layout", "redisson", "--", "true"], "on Redis only"),
        (&["a", "--layout", "single-key", "--store", "etcd://x", "--", "true"], "on Redis only"),
        (&["a", "--layout", "redisson", "--store", "redis://a", "--store", "redis://b", "--", "true"], "use native"),
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
    let Some(place) = Place::new() else { return };
    let _held = place.start("a --owner ann", "echo $$ > pid; sleep 60");
    place.numbers("pid", 1);
    let said = run(&mut place.lock("a --wait 0s", "true")).with(75);
    assert!(said.contains("held by ann") && said.contains("0 waiting"), "{said}");
    let said = run(&mut place.lock("a --wait 100ms", "true")).with(75);
    assert!(said.contains("held by ann") && said.contains("0 still ahead"), "{said}");
}

#[test]
fn commands_never_overlap() {
    let Some(place) = Place::new() else { return };
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
    let Some(place) = Place::new() else { return };
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
    let Some(place) = Place::new() else { return };
    let running = place.start("a", "trap 'exit 5' TERM; echo $$ > pid; while :; do sleep 0.05; done");
    place.numbers("pid", 1);
    for name in ["HUP", "INT", "QUIT", "TSTP", "USR1", "TERM"] {
        signal(running.guardian(), name);
    }
    running.signal("TERM");
    assert_eq!(running.end().0, Some(5));
}

#[test]
fn who_is_interrupted_in_line_leaves_it() {
    let Some(place) = Place::new() else { return };
    let _held = place.start("a", "echo $$ > pid; sleep 60");
    place.numbers("pid", 1);
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
    let Some(place) = Place::new() else { return };
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
    let Some(place) = Place::new() else { return };
    let running = place.start("a --lease 1s", STUBBORN);
    let pids = place.numbers("pids", 2);
    signal(place.redis.id(), "STOP");
    let watch = Stopwatch::start();
    pids.iter().for_each(|pid| until_gone(*pid));
    // Renewed last before the stop: whatever is later is not the lease.
    assert!(watch.elapsed() < Duration::from_secs(1), "{:?}", watch.elapsed());
    let (code, said) = running.end();
    assert_eq!(code, Some(76), "{said}");
    assert!(said.contains("stopped"), "{said}");
}

#[test]
fn when_the_guardian_is_killed_the_holder_ends_the_command_and_gives_the_lock_back() {
    let Some(place) = Place::new() else { return };
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
    let Some(place) = Place::new() else { return };
    let running = place.start("a --lease 1s", STUBBORN);
    let pids = place.numbers("pids", 2);
    signal(running.guardian(), "STOP");
    signal(place.redis.id(), "STOP");
    let watch = Stopwatch::start();
    pids.iter().for_each(|pid| until_gone(*pid));
    assert!(watch.elapsed() < Duration::from_secs(1), "{:?}", watch.elapsed());
    assert_eq!(running.end().0, Some(76));
}

#[test]
fn what_the_command_leaves_behind_ends_with_the_lock() {
    let Some(place) = Place::new() else { return };
    let ended =
        run(&mut place.lock("a", "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $! > pids; exit 3"));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(!is_running(place.numbers("pids", 1)[0]));
}

#[test]
fn a_command_may_take_longer_than_its_lease() {
    let Some(place) = Place::new() else { return };
    run(&mut place.lock("a --lease 2s", "sleep 4.5")).well();
}
