//! What is special about locks in a file: who may open it, what is left behind, and who is told across processes.

use crate::in_time;
use firstcome_sqlite::{LOCKS_FILE, LockDurability, SqliteLocks, verify_locks};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{
    Acquired, ClientId, Copies, LockAnswer, Mode, Push, Released, Renewal, Request, Step, Wait, Waiter, bucket_of,
};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::{Fault, FaultKind, LockEvent, LockStore, StoreError};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, UNIX_EPOCH};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

fn open(directory: &Path) -> SqliteLocks {
    SqliteLocks::open(directory, LockDurability::Memory).expect("it opens")
}

fn refused(directory: &Path) -> Fault {
    SqliteLocks::open(directory, LockDurability::Durable).expect_err("it is refused")
}

/// A connection beside the store, which may do as it likes.
fn beside(directory: &Path) -> Connection {
    Connection::open(directory.join(LOCKS_FILE)).expect("the file opens")
}

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("a valid name")
}

const fn request(client: u64, number: u64) -> Request {
    Request { client: ClientId(client), number }
}

fn ask(lock: &str, client: u64, number: u64) -> Step {
    let owner = OwnerName::parse("tester").expect("a valid name");
    let waiter = Waiter { request: request(client, number), owner, lease_ms: 60_000, mode: Mode::ALONE };
    Step::Acquire { name: name(lock), waiter, wait: Wait::Yes }
}

fn give_back(lock: &str, client: u64, number: u64) -> Step {
    Step::Release { name: name(lock), request: request(client, number), copies: Copies::One }
}

async fn take(store: &SqliteLocks, step: Step) -> LockAnswer {
    store.take(step).await.expect("the store answers").said
}

async fn fence(store: &SqliteLocks, lock: &str, client: u64, number: u64) -> u64 {
    match take(store, ask(lock, client, number)).await {
        LockAnswer::Acquired(Acquired::Granted(grant)) => grant.fence.get(),
        said => panic!("{lock} is granted: {said:?}"),
    }
}

fn unavailable(told: Result<firstcome_store::core::lock::Answer, StoreError>) -> FaultKind {
    match told {
        Err(StoreError::Faulted(fault)) => fault.kind,
        told => panic!("the store cannot answer: {told:?}"),
    }
}

/// Hears the pushes of one client.
fn attach(store: &SqliteLocks, client: u64) -> Receiver<Push> {
    let (heard, pushes) = channel();
    store.attach(
        ClientId(client),
        Arc::new(move |event| {
            if let LockEvent::Push(push) = event {
                let _ = heard.send(push);
            }
        }),
    );
    pushes
}

#[track_caller]
fn heard(pushes: &Receiver<Push>) -> Push {
    pushes.recv_timeout(Duration::from_secs(10)).expect("the push arrives")
}

#[track_caller]
fn breaches(directory: &Path) -> Vec<&'static str> {
    let checks = verify_locks(directory).expect("the file can be read");
    checks.into_iter().filter(|check| 0 < check.breaches).map(|check| check.invariant).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_many_names() {
    in_time(async {
        let directory = directory();
        let store = Arc::new(open(directory.path()));
        let tasks = (0..10).map(|part| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for number in (part * 1_000)..((part + 1) * 1_000) {
                    let lock = format!("name-{number}");
                    fence(&store, &lock, 1, number).await;
                    let waits = take(&store, ask(&lock, 2, number)).await;
                    assert!(matches!(waits, LockAnswer::Acquired(Acquired::Queued { .. })), "{waits:?}");
                    for client in [1, 2] {
                        let told = take(&store, give_back(&lock, client, number)).await;
                        assert_eq!(told, LockAnswer::Released(Released::Released));
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no task fails");
        }
        let file = beside(directory.path());
        let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("it can be counted");
        assert_eq!(count("SELECT (SELECT count(*) FROM hold) + (SELECT count(*) FROM waiter)"), 0);
        assert_eq!(count("SELECT count(*) FROM void"), 0);
        assert_eq!(count("SELECT count(*) FROM bucket"), 256);
        assert_eq!(count("SELECT count(*) FROM life"), 256, "one process waited, in each bucket");
        assert_eq!(breaches(directory.path()), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn what_is_old_is_forgotten() {
    in_time(async {
        let directory = directory();
        let store = open(directory.path());
        fence(&store, "door", 1, 1).await;
        take(&store, ask("door", 2, 1)).await;
        take(&store, give_back("door", 3, 1)).await;
        let file = beside(directory.path());
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            file.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("it can be counted")
        };
        assert_eq!((count("life"), count("void")), (1, 1));
        file.execute("UPDATE life SET seen_us = seen_us - 61000000", []).expect("it can be changed");
        file.execute("UPDATE void SET until_us = until_us - 61000000", []).expect("it can be changed");
        take(&store, ask("door", 4, 1)).await;
        take(&store, give_back("door", 5, 1)).await;
        assert_eq!((count("life"), count("void")), (1, 1), "each of the new ones");
    })
    .await;
}

/// What the process that is killed says begins so: the test harness says other things.
const MARK: &str = "> ";

/// Takes grants without an end and tells them, and gives every third one back, as a process of its own that the next test starts.
#[test]
fn process_that_takes_grants() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let order = std::io::stdin().lines().next().expect("an order").expect("it can be read");
    let (first, directory) = order.split_once(' ').expect("a number and a directory");
    let first: u64 = first.parse().expect("a number");
    let store = SqliteLocks::open(Path::new(directory), LockDurability::Durable).expect("it opens");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = Arc::new(store);
        let tasks = (1..=4_u64).map(|client| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for number in first.. {
                    let lock = format!("door-{client}-{number}");
                    println!("{MARK}granted {lock} {client} {number} {}", fence(&store, &lock, client, number).await);
                    if number % 3 == 0 {
                        let told = take(&store, give_back(&lock, client, number)).await;
                        assert_eq!(told, LockAnswer::Released(Released::Released));
                        println!("{MARK}released {lock} {client} {number} 0");
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no task fails");
        }
    });
}

/// What a process was told before it was killed: the fence of each hold, none once it was given back.
type FencesByRequest = BTreeMap<(String, u64, u64), Option<u64>>;

/// Runs it until it was told of so many grants, and kills it in the middle of its work.
fn take_and_be_killed(directory: &Path, first: u64, grants: usize, told: &mut FencesByRequest) {
    let mut child = Command::new(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", "lock_files::process_that_takes_grants", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary runs once more");
    let mut orders = child.stdin.take().expect("it is piped");
    writeln!(orders, "{first} {}", directory.display()).expect("it listens");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut granted = 0;
    // To the end: what it has said before it was killed counts too.
    for line in lines.by_ref().map_while(Result::ok) {
        let Some((_, said)) = line.split_once(MARK) else { continue };
        let [what, lock, client, number, fence] = said.split(' ').collect::<Vec<_>>()[..] else { continue };
        let number_of = |text: &str| text.parse::<u64>().expect("a number");
        let key = (lock.to_owned(), number_of(client), number_of(number));
        told.insert(key, (what == "granted").then(|| number_of(fence)));
        granted += usize::from(what == "granted");
        if granted == grants {
            child.kill().expect("it runs");
        }
    }
    assert!(!child.wait().expect("it ends").success() && grants <= granted, "it was killed after {granted} grants");
}

/// A process takes grants and is killed with SIGKILL in the middle of its work, again and again. What it was told is there each time.
#[tokio::test]
async fn grants_and_fences_outlive_the_process_that_is_killed() {
    in_time(async {
        let directory = directory();
        let mut told = FencesByRequest::new();
        for round in 0..6_u64 {
            let kept = |told: &FencesByRequest| told.values().flatten().max().copied().unwrap_or_default();
            let highest = kept(&told);
            take_and_be_killed(directory.path(), round * 1_000_000, 30 + 11 * round as usize, &mut told);
            assert_eq!(breaches(directory.path()), [""; 0], "round {round}");
            let store = open(directory.path());
            for ((lock, client, number), fence_told) in &mut told {
                let seen = store.view(&name(lock)).await.expect("the store answers").view.held;
                let seen = seen.map(|(_, fence, _)| fence.get());
                if number.is_multiple_of(3) && seen.is_none() {
                    // It was being given back when the process was killed: that is done, and stays so.
                    *fence_told = None;
                }
                assert_eq!(seen, *fence_told, "round {round}: {lock}");
                // A client that had it has it when it asks again.
                if let Some(granted) = fence_told {
                    assert_eq!(fence(&store, lock, *client, *number).await, *granted, "round {round}: {lock}");
                }
            }
            assert!(highest < kept(&told), "fences of a bucket grow, and so does the highest");
        }
        assert!(300 < told.len(), "{}", told.len());
    })
    .await;
}

#[tokio::test]
async fn grants_and_fences_outlive_the_store() {
    in_time(async {
        let directory = directory();
        let store = open(directory.path());
        let first = fence(&store, "door", 1, 1).await;
        take(&store, ask("door", 2, 1)).await;
        drop(store);
        // As after a clock that is set back by an hour.
        let file = beside(directory.path());
        file.execute("UPDATE bucket SET last = last + 3600000000", []).expect("it can be changed");
        let store = open(directory.path());
        assert_eq!(fence(&store, "door", 1, 1).await, first);
        assert_eq!(take(&store, give_back("door", 1, 1)).await, LockAnswer::Released(Released::Released));
        assert!(first + 3_600_000_000 < fence(&store, "door", 2, 1).await);
    })
    .await;
}

#[test]
fn many_may_open_a_new_directory_at_once() {
    let directory = directory();
    for round in 0..20 {
        let fresh = directory.path().join(round.to_string());
        let together = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    drop(open(&fresh));
                });
            }
        });
        assert_eq!(breaches(&fresh), [""; 0]);
    }
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_as_they_are() {
    let newer = directory();
    drop(open(newer.path()));
    beside(newer.path()).pragma_update(None, "user_version", 99).expect("it can be set");
    assert_eq!(refused(newer.path()).kind, FaultKind::Newer);
    assert_eq!(verify_locks(newer.path()).err().map(|fault| fault.kind), Some(FaultKind::Newer));

    let other = directory();
    beside(other.path()).execute_batch("CREATE TABLE theirs (id INTEGER)").expect("a table is made");
    let before = fs::read(other.path().join(LOCKS_FILE)).expect("it can be read");
    assert_eq!(refused(other.path()).kind, FaultKind::Foreign);
    assert_eq!(fs::read(other.path().join(LOCKS_FILE)).expect("it can be read"), before);

    let text = directory();
    fs::write(text.path().join(LOCKS_FILE), "no database at all, and long enough to be taken for one ".repeat(99))
        .expect("it can be written");
    assert_eq!(refused(text.path()).kind, FaultKind::Foreign);

    let torn = directory();
    drop(open(torn.path()));
    let path = torn.path().join(LOCKS_FILE);
    while path.with_extension("db-wal").exists() {
        std::thread::yield_now();
    }
    let mut bytes = fs::read(&path).expect("it can be read");
    bytes[100..4_096].fill(0x5a);
    fs::write(&path, bytes).expect("it can be written");
    assert_eq!(refused(torn.path()).kind, FaultKind::Damaged);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let file = directory();
    fs::write(file.path().join("file"), "").expect("it can be written");
    assert_eq!(refused(&file.path().join("file/locks")).kind, FaultKind::Io);

    let closed = directory();
    let mut permissions = fs::metadata(closed.path()).expect("it is there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o500);
    fs::set_permissions(closed.path(), permissions).expect("it can be closed");
    // Nothing is closed to the superuser.
    if fs::write(closed.path().join("probe"), "").is_err() {
        assert_eq!(refused(closed.path()).kind, FaultKind::ReadOnly);
    }
}

#[tokio::test]
async fn a_file_that_is_kept_locked_is_unavailable_for_a_while() {
    in_time(async {
        let directory = directory();
        let store = open(directory.path());
        let file = beside(directory.path());
        file.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        // One batch waits for the file, and behind it a queue that ends somewhere. The writer gives a batch up after a second and
        // takes the next, so a slow machine lets some more in.
        let mut steps: Vec<_> = (0..6_000).map(|number| Box::pin(store.take(ask("door", 1, number)))).collect();
        let mut context = Context::from_waker(Waker::noop());
        let told = steps.iter_mut().map(|step| step.as_mut().poll(&mut context));
        let refused = told.filter(|told| matches!(told, Poll::Ready(Err(StoreError::Busy { .. })))).count();
        assert!((1..3_000).contains(&refused), "{refused} of 6000 were refused at once");
        let looked = std::iter::repeat_with(|| Box::pin(store.view(&name("door"))).as_mut().poll(&mut context));
        let looked = { looked }.find(Poll::is_ready).expect("looks fill what room is left");
        assert!(matches!(looked, Poll::Ready(Err(StoreError::Busy { .. }))), "{looked:?}");
        // Who holds a lock still gets in.
        let renewals = vec![Renewal { name: name("door"), request: request(1, 0), lease_ms: 60_000 }];
        let renew = Step::Renew { bucket: bucket_of(&name("door")), renewals };
        for step in [renew, give_back("door", 1, 0)] {
            let told = Box::pin(store.take(step)).as_mut().poll(&mut context);
            assert!(told.is_pending(), "{told:?}");
        }
        // But not without an end.
        let told = std::iter::repeat_with(|| Box::pin(store.take(give_back("door", 1, 0))).as_mut().poll(&mut context));
        let told = { told }.find(Poll::is_ready).expect("releases fill what room is left");
        assert!(matches!(told, Poll::Ready(Err(StoreError::Busy { .. }))), "{told:?}");
        assert_eq!(unavailable(steps.swap_remove(0).await), FaultKind::Busy);
        drop(steps);
        file.execute_batch("ROLLBACK").expect("it ends");
        // No process waits for the answers any more, but the steps still stand in the queue.
        while matches!(store.take(ask("other", 2, 1)).await, Err(StoreError::Busy { .. })) {
            tokio::task::yield_now().await;
        }
        fence(&store, "other", 2, 1).await;
        assert_eq!(breaches(directory.path()), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_moved_away_is_used_no_more() {
    in_time(async {
        let directory = directory();
        let store = open(directory.path());
        let first = fence(&store, "door", 1, 1).await;
        for end in ["", "-wal", "-shm"] {
            fs::remove_file(directory.path().join(format!("{LOCKS_FILE}{end}"))).expect("it is there");
        }
        assert_eq!(unavailable(store.take(ask("door", 1, 1)).await), FaultKind::Io);
        let other = open(directory.path());
        assert!(first < fence(&other, "door", 2, 1).await);
        assert_eq!(unavailable(store.take(ask("door", 1, 1)).await), FaultKind::Io, "nor ever again");
        assert_eq!(breaches(directory.path()), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_step_that_meets_a_damaged_row_changes_nothing() {
    in_time(async {
        let directory = directory();
        let store = open(directory.path());
        fence(&store, "door", 1, 1).await;
        take(&store, ask("door", 2, 1)).await;
        beside(directory.path()).execute("UPDATE bucket SET last = -1", []).expect("it can be changed");
        // The hold is ended and a process is taken out of the line before the number is read.
        assert_eq!(unavailable(store.take(give_back("door", 1, 1)).await), FaultKind::Damaged);
        assert_eq!(unavailable(store.take(ask("other", 1, 2)).await), FaultKind::Damaged, "nor anything else");
        let rows = "SELECT (SELECT count(*) FROM hold WHERE request = 1 AND client = 1), count(*) FROM waiter";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let rows: (i64, i64) = beside(directory.path()).query_row(rows, [], read).expect("it can be counted");
        assert_eq!(rows, (1, 1));
        // It keeps no other process from the file.
        beside(directory.path()).execute("UPDATE bucket SET last = 1", []).expect("nobody writes");
    })
    .await;
}

#[test]
fn every_check_of_stored_locks_can_fail() {
    let breaks = |sql: &str| {
        let directory = directory();
        let store = open(directory.path());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            fence(&store, "door", 1, 1).await;
            take(&store, ask("door", 2, 1)).await;
            take(&store, ask("door", 3, 1)).await;
        });
        assert_eq!(breaches(directory.path()), [""; 0]);
        assert!(0 < beside(directory.path()).execute(sql, []).expect("it can be changed"), "{sql}");
        match verify_locks(directory.path()) {
            Ok(_) => breaches(directory.path()).iter().map(|words| words[..5].to_owned()).collect::<Vec<_>>().join(" "),
            Err(fault) => fault.kind.code().to_owned(),
        }
    };
    assert_eq!(breaks("UPDATE bucket SET last = last - 1000000"), "numbe");
    assert_eq!(breaks("INSERT INTO bucket VALUES (256, 1)"), "numbe");
    assert_eq!(breaks("UPDATE bucket SET last = 1 << 53"), "damaged");
    assert_eq!(breaks("UPDATE hold SET fence = fence + 1000000000"), "numbe");
    assert_eq!(breaks("UPDATE hold SET passes = 1000000000"), "numbe");
    assert_eq!(breaks("UPDATE waiter SET number = number + 1000000000"), "numbe");
    assert_eq!(breaks("UPDATE life SET number = number + 1000000000"), "numbe");
    assert_eq!(breaks("UPDATE hold SET lease_ms = 5"), "locks");
    assert_eq!(breaks("UPDATE waiter SET passes = 0"), "locks");
    assert_eq!(breaks("UPDATE hold SET expires_us = 0"), "locks");
    assert_eq!(breaks("UPDATE hold SET owner = ''"), "damaged");
    assert_eq!(breaks("DELETE FROM hold"), "no wa");
    assert_eq!(breaks("UPDATE hold SET waiters = 1"), "no wa");
    assert_eq!(breaks("UPDATE waiter SET client = 1 WHERE client = 2"), "one r");
    assert_eq!(breaks("UPDATE waiter SET number = number - 9007199254740992"), "locks");
    assert_eq!(breaks("UPDATE hold SET sharers = 'x'"), "locks");
    assert_eq!(breaks("UPDATE hold SET sharers = '0000000000000009 1 20000 -2 bob 9 1'"), "an ex");
    assert_eq!(breaks("UPDATE hold SET passes = -1, sharers = '0000000000000009 1 20000 -1 bob 9 1'"), "an ex");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_two_stores_wait_for_each_other_and_none_fails() {
    in_time(async {
        let directory = directory();
        let stores = [Arc::new(open(directory.path())), Arc::new(open(directory.path()))];
        let tasks = (1..=8).map(|client| {
            let store = Arc::clone(&stores[client as usize % 2]);
            tokio::spawn(async move {
                let lock = format!("lock-{client}");
                for number in 1..200 {
                    fence(&store, &lock, client, number).await;
                    let told = take(&store, give_back(&lock, client, number)).await;
                    assert_eq!(told, LockAnswer::Released(Released::Released));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no step fails");
        }
    })
    .await;
}

/// A directory whose path is longer than the name of a socket may be.
fn deep(directory: &Path) -> PathBuf {
    (0..5).fold(directory.to_owned(), |path, _| path.join("a-name-of-forty-characters-in-a-long-path"))
}

#[tokio::test]
async fn a_push_reaches_a_client_of_another_store_on_the_same_directory() {
    in_time(async {
        let directory = directory();
        for path in [directory.path().join("short"), deep(directory.path())] {
            let (here, there) = (open(&path), open(&path));
            let pushes = attach(&there, 2);
            fence(&here, "door", 1, 1).await;
            take(&there, ask("door", 2, 1)).await;
            take(&here, give_back("door", 1, 1)).await;
            let push = heard(&pushes);
            assert_eq!((push.name, push.grant.request), (name("door"), request(2, 1)));
            assert_eq!(push.grant.fence.get(), fence(&there, "door", 2, 1).await);
            // A thousand at once, to one that is slow to hear: what is lost is lost, and no process waits.
            for number in 2..200 {
                take(&here, ask(&format!("many-{number}"), 1, number)).await;
                take(&there, ask(&format!("many-{number}"), 2, number)).await;
            }
            let given = (2..200).map(|number| here.take(give_back(&format!("many-{number}"), 1, number)));
            for told in given {
                assert_eq!(told.await.expect("the store answers").said, LockAnswer::Released(Released::Released));
            }
            heard(&pushes);
            drop(there);
            let left = fs::read_dir(path.join("locks.d")).expect("it is there").count();
            assert_eq!(left, 0, "a store that is dropped takes its sockets along");
        }
    })
    .await;
}

#[tokio::test]
async fn a_socket_hears_only_what_it_understands_and_what_is_its_own() {
    in_time(async {
        let directory = directory();
        let (here, there) = (open(directory.path()), open(directory.path()));
        let (two, three) = (attach(&there, 2), attach(&there, 3));
        let path = |client: u64| directory.path().join(format!("locks.d/{client:016x}"));
        let sender = UnixDatagram::unbound().expect("a socket");
        for bytes in [&[2][..], &[1, 200, 65], &[1, 1, 65, 0, 0], &[1, 0], &[0xff; 900]] {
            sender.send_to(bytes, path(2)).expect("somebody listens");
        }
        // One of a later version, no matter what that says.
        let later = [&[2, 4][..], b"door", &2_u64.to_le_bytes(), &[1; 25]].concat();
        sender.send_to(&later, path(2)).expect("somebody listens");
        // A real push, to the wrong one.
        fence(&here, "door", 1, 1).await;
        take(&here, ask("door", 3, 1)).await;
        fs::rename(path(3), path(9)).expect("it is there");
        fs::rename(path(2), path(3)).expect("it is there");
        take(&here, give_back("door", 1, 1)).await;
        // Pushes follow their answer, and precede the next one.
        take(&here, give_back("door", 1, 1)).await;
        fs::rename(path(3), path(2)).expect("it is there");
        fs::rename(path(9), path(3)).expect("it is there");
        // And one to each, which arrives.
        for (number, client) in [(2, 2), (3, 3)] {
            let lock = format!("door-{client}");
            fence(&here, &lock, 1, number).await;
            take(&here, ask(&lock, client, number)).await;
            take(&here, give_back(&lock, 1, number)).await;
        }
        assert_eq!(heard(&two).name, name("door-2"), "the first that was its own");
        assert_eq!(heard(&three).name, name("door-3"));
    })
    .await;
}

#[tokio::test]
async fn a_directory_of_sockets_that_was_there_is_closed_to_others() {
    in_time(async {
        let directory = directory();
        let sockets = directory.path().join("locks.d");
        fs::create_dir(&sockets).expect("it is made");
        fs::set_permissions(&sockets, Permissions::from_mode(0o777)).expect("it can be opened");
        let (here, there) = (open(directory.path()), open(directory.path()));
        assert_eq!(fs::metadata(&sockets).expect("it is there").mode() & 0o777, 0o700);
        let pushes = attach(&there, 2);
        fence(&here, "door", 1, 1).await;
        take(&there, ask("door", 2, 1)).await;
        take(&here, give_back("door", 1, 1)).await;
        assert_eq!(heard(&pushes).name, name("door"));
    })
    .await;
}

#[test]
fn a_directory_of_sockets_that_is_not_ours_is_refused_and_left_as_it_is() {
    let is_refused = |directory: &Path, why: &str| {
        let fault = refused(directory);
        assert_eq!(fault.kind, FaultKind::Foreign);
        assert!(fault.detail.contains(why) && fault.detail.contains("remove it"), "{fault}");
    };
    let (linked, elsewhere) = (directory(), directory());
    fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o755)).expect("it can be opened");
    for target in [elsewhere.path(), &elsewhere.path().join("nothing")] {
        symlink(target, linked.path().join("locks.d")).expect("it can be linked");
        is_refused(linked.path(), "is no directory");
        fs::remove_file(linked.path().join("locks.d")).expect("it is there");
    }
    assert_eq!(fs::metadata(elsewhere.path()).expect("it is there").mode() & 0o777, 0o755);
    assert_eq!(fs::read_dir(elsewhere.path()).expect("it is there").count(), 0);
    drop(open(linked.path()));

    let theirs = directory();
    let sockets = theirs.path().join("locks.d");
    fs::create_dir(&sockets).expect("it is made");
    // Only the superuser can give something away.
    if chown(&sockets, Some(12_345), None).is_ok() {
        is_refused(theirs.path(), "another user");
    }
}

#[test]
fn sockets_of_the_dead_are_removed_after_a_while() {
    let directory = directory();
    // The store's clock is compared with that of the file system.
    let made = fs::metadata(directory.path()).and_then(|metadata| metadata.modified()).expect("it has an age");
    let made = made.duration_since(UNIX_EPOCH).expect("it is of this age").as_micros();
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(made.try_into().expect("it is of this age"))));
    let shown = Arc::<ManualClock>::clone(&clock);
    let store = SqliteLocks::with_clock(directory.path(), LockDurability::Memory, shown).expect("it opens");
    let path = |name: &str| directory.path().join("locks.d").join(name);
    // A socket that is dropped leaves its name, as one of a killed process does.
    drop(UnixDatagram::bind(path("00000000000000aa")).expect("it can be bound"));
    let _lives = UnixDatagram::bind(path("00000000000000bb")).expect("it can be bound");
    let _first = attach(&store, 1);
    assert!(path("00000000000000aa").exists(), "perhaps it is just being bound");
    clock.pass_ms(120_000);
    let _second = attach(&store, 2);
    assert!(!path("00000000000000aa").exists(), "old, and nobody listens");
    assert!(path("00000000000000bb").exists(), "old, and somebody listens");
}
