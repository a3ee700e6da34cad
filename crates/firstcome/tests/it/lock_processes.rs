//! Locks between processes: several of them on one directory, killed and stopped at the worst moments.
//!
//! Each process is this test binary once more, with [`worker`] as its only test. Its orders come on its standard input,
//! and it tells what it does on its standard output.

use firstcome::{Guard, LockError, Locks, sqlite};
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinSet;

/// Far above what anything here needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a worker says begins so: the test harness says other things.
const MARK: &str = "> ";

struct Worker {
    child: Child,
    orders: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(orders: &str, directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary has a path"))
            .args(["--exact", "lock_processes::worker", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs once more");
        let mut to_it = child.stdin.take().expect("it is piped");
        let told = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        writeln!(to_it, "{orders} {}", directory.display()).expect("it listens");
        Self { child, orders: to_it, told }
    }

    /// The next word of the worker.
    #[track_caller]
    fn next(&mut self) -> String {
        let said = self.told.by_ref().map(|line| line.expect("it can be read"));
        let mut marked = said.filter_map(|line| Some(line.split_once(MARK)?.1.to_owned()));
        marked.next().expect("the worker has ended")
    }

    #[track_caller]
    fn number(&mut self, word: &str) -> u64 {
        let said = self.next();
        let number = said.strip_prefix(word).and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("{said} is not {word}"))
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn ends(mut self) {
        drop(self.orders);
        assert!(self.child.wait().expect("it ends").success());
    }
}

fn say(word: &str) {
    // At the start of no line in particular: the harness has written there before.
    println!("{MARK}{word}");
}

/// Does something only as a process of its own, which the other tests start.
#[test]
fn worker() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let Some(order) = std::io::stdin().lines().next() else { return };
    let order = order.expect("it can be read");
    let [what, number, directory] = order.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{order}?") };
    let (number, directory) = (number.parse().expect("a number"), Path::new(directory));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let locks = Locks::open(directory).expect("the directory opens");
        say("ready 0");
        match what {
            "count" => count(&locks, directory, number).await,
            "hold" => {
                let guard = obtain(&locks, "door", number).await;
                say(&format!("holds {}", guard.fence().unwrap()));
                guard.lost().await;
                say("lost 0");
            }
            "churn" => churn(&locks, number).await,
            other => panic!("{other}?"),
        }
        // Stays until its parent lets go.
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await;
    });
}

/// Obtains a lock, no matter what passing trouble there is.
async fn obtain(locks: &Locks, name: &str, lease_ms: u64) -> Guard {
    loop {
        match locks.lock(name).lease(Duration::from_millis(lease_ms)).wait(PATIENCE).acquire().await {
            Ok(guard) => return guard,
            Err(LockError::Unavailable(_) | LockError::Unknown) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// Adds 1 to a number in a file, so often; reading and writing are two steps.
async fn count(locks: &Locks, directory: &Path, rounds: u64) {
    let path = directory.join("counter");
    for _ in 0..rounds {
        let guard = obtain(locks, "door", 20_000).await;
        let before: u64 = fs::read_to_string(&path).map_or(0, |text| text.parse().expect("a number"));
        tokio::task::yield_now().await;
        fs::write(&path, (before + 1).to_string()).expect("it can be written");
        say(&format!("fence {}", guard.fence().unwrap()));
        guard.release().await.expect("it was held all the time");
    }
    say("done 0");
}

/// Takes and gives locks, from many tasks, without an end.
async fn churn(locks: &Locks, tasks: u64) {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let locks = locks.clone();
        running.spawn(async move {
            for round in 0_u64.. {
                let guard = obtain(&locks, &format!("lock-{}", (task + round) % 3), 200 + task).await;
                if round % 5 == 4 {
                    drop(guard);
                } else {
                    let _ = guard.release().await;
                }
            }
        });
    }
    running.join_all().await;
}

#[track_caller]
fn all_sound(directory: &Path) {
    for check in sqlite::verify_locks(directory).expect("the file can be read") {
        assert_eq!(check.breaches, 0, "{}: {:?}", check.invariant, check.examples);
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

fn hammer(processes: usize, rounds: u64) {
    let directory = directory();
    let mut workers: Vec<Worker> =
        (0..processes).map(|_| Worker::start(&format!("count {rounds}"), directory.path())).collect();
    let mut fences: Vec<(u64, usize)> = Vec::new();
    for (process, worker) in workers.iter_mut().enumerate() {
        assert_eq!(worker.number("ready"), 0);
        fences.extend((0..rounds).map(|_| (worker.number("fence"), process)));
        assert_eq!(worker.number("done"), 0);
    }
    workers.into_iter().for_each(Worker::ends);
    let counted = fs::read_to_string(directory.path().join("counter")).expect("it was written");
    assert_eq!(counted, (processes as u64 * rounds).to_string(), "steps were lost");
    fences.sort_unstable();
    assert!(fences.is_sorted_by(|(before, _), (after, _)| before < after), "no fence is told twice");
    // While all of them want it, they take turns: a process that comes back stands behind those who wait.
    let first = |process| fences.iter().position(|fence| fence.1 == process).unwrap_or(0);
    let last = |process| fences.iter().rposition(|fence| fence.1 == process).unwrap_or(0);
    let all_here = (0..processes).map(first).max().unwrap_or(0)..(0..processes).map(last).min().unwrap_or(0);
    let together = fences.get(all_here).unwrap_or_default();
    let in_a_row = together.windows(2).filter(|pair| pair[0].1 == pair[1].1).count();
    println!("{in_a_row} of {} served twice in a row", together.len());
    assert!(in_a_row * 4 <= together.len().max(40), "{in_a_row} of {} were served twice in a row", together.len());
    all_sound(directory.path());
}

#[test]
fn two_processes_lose_no_step() {
    hammer(2, 150);
}

#[test]
fn four_processes_lose_no_step() {
    hammer(4, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_killed_holds_no_longer_than_its_lease() {
    let directory = directory();
    let locks = Locks::open(directory.path()).expect("it opens");
    let mut holder = Worker::start("hold 1500", directory.path());
    holder.number("ready");
    let fence = holder.number("holds");
    holder.kill();
    let ends_us = locks.view("door").await.expect("the store answers").view.held.map(|(_, _, ends_us)| ends_us);
    let guard = locks.lock("door").wait(PATIENCE).acquire().await.expect("the lease ends");
    // A fence is the instant of its grant, in microseconds.
    let (granted_us, ends_us) = (guard.fence().unwrap().get(), ends_us.expect("it was held"));
    assert!(fence < granted_us);
    assert!((ends_us..ends_us + 2_000_000).contains(&granted_us), "granted at {granted_us}, over at {ends_us}");
    guard.release().await.expect("it is held");
    all_sound(directory.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_killed_while_waiting_is_passed_over() {
    let directory = directory();
    let locks = Locks::open(directory.path()).expect("it opens");
    let guard = locks.lock("door").acquire().await.expect("it is free");
    let mut waiter = Worker::start("hold 20000", directory.path());
    waiter.number("ready");
    waits(&locks, 1).await;
    let behind = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("door").wait(PATIENCE).acquire().await }
    });
    waits(&locks, 2).await;
    waiter.kill();
    let released_us = locks.view("door").await.expect("the store answers").now_us;
    guard.release().await.expect("it is held");
    let next = behind.await.expect("the task ends").expect("it is its turn");
    let waited_us = next.fence().unwrap().get() - released_us;
    assert!(waited_us < 5_000_000, "a claim window is 2 s, and {waited_us} µs passed");
    next.release().await.expect("it is held");
    all_sound(directory.path());
}

/// Until so many wait.
async fn waits(locks: &Locks, waiters: u32) {
    let all_wait = async {
        while locks.view("door").await.expect("the store answers").view.waiters < waiters {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, all_wait).await.expect("they get in line");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_stopped_beyond_its_lease_learns_that_it_lost() {
    let directory = directory();
    let locks = Locks::open(directory.path()).expect("it opens");
    // One that is stopped in the middle of a transaction would stop everybody: it has nothing to do for a while.
    let mut holder = Worker::start("hold 3000", directory.path());
    holder.number("ready");
    let fence = holder.number("holds");
    holder.signal("-STOP");
    let guard = obtain(&locks, "door", 20_000).await;
    assert!(fence < guard.fence().unwrap().get());
    holder.signal("-CONT");
    assert_eq!(holder.number("lost"), 0);
    guard.release().await.expect("who had lost it could not give it up");
    holder.ends();
    all_sound(directory.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_in_the_middle_of_steps_leave_a_sound_file() {
    let directory = directory();
    let locks = Locks::open(directory.path()).expect("it opens");
    for round in 0..8 {
        let mut workers: Vec<Worker> = (0..2).map(|_| Worker::start("churn 6", directory.path())).collect();
        for worker in &mut workers {
            worker.number("ready");
        }
        // Until they are in the middle of it; each round a little longer.
        let before = locks.view("lock-0").await.expect("the store answers").now_us;
        while locks.view("lock-0").await.expect("the store answers").now_us < before + 20_000 * (round + 1) {
            tokio::task::yield_now().await;
        }
        workers.into_iter().for_each(Worker::kill);
        all_sound(directory.path());
    }
    // Nothing that they left stands in the way for longer than leases and claim windows.
    for name in ["lock-0", "lock-1", "lock-2"] {
        obtain(&locks, name, 1_000).await.release().await.expect("it is held");
        let seen = locks.view(name).await.expect("the store answers").view;
        assert_eq!((seen.held, seen.waiters), (None, 0), "{name}");
    }
    drop(locks);
    let locks = Locks::open(directory.path()).expect("it opens again");
    locks.lock("lock-0").try_acquire().await.expect("it is free").release().await.expect("it is held");
    all_sound(directory.path());
}
