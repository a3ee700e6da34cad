//! One key for each lock, with those who keep it so.

use super::peer::Peer;
use super::{Counter, PATIENCE, assert_waits, count_up, in_time, patient, start};
use firstcome::lock::{Layout, Pauses};
use firstcome::{LockError, Locks};
use firstcome_test_servers::Server;
use std::num::NonZeroU32;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const QUICK: Pauses = Pauses::FullJitter { base_ms: NonZeroU32::MIN, most_ms: NonZeroU32::new(8).unwrap() };
/// It is no use to any of them here that it lasts for long, nor does it end while a test runs.
const LEASE: Duration = Duration::from_secs(300);
/// A whole second, since one of them knows nothing shorter.
const SHORT: Duration = Duration::from_secs(1);
/// Who is woken by no caller tries again when this is over.
const THEIR_WAIT_MS: u32 = 4_000;
const TASKS: u32 = 3;

/// A library.
struct Library {
    name: &'static str,
    /// What it puts before a name.
    prefix: &'static str,
    /// How often each task counts: little where a waiter sleeps through our releases.
    rounds: u32,
    /// How long it holds a lock, and sleeps at most, while it contends.
    contend_ms: u32,
}

const REDIS_PY: Library = Library { name: "redis-py", prefix: "", rounds: 25, contend_ms: 60_000 };
const PYTHON_REDIS_LOCK: Library = Library { name: "python-redis-lock", prefix: "lock:", rounds: 3, contend_ms: 4_000 };
const REDLOCK: Library = Library { name: "redlock", prefix: "", rounds: 25, contend_ms: 60_000 };
const REDIS_SEMAPHORE: Library = Library { name: "redis-semaphore", prefix: "mutex:", rounds: 25, contend_ms: 60_000 };
const REDSYNC: Library = Library { name: "redsync", prefix: "", rounds: 25, contend_ms: 60_000 };

/// A server, the other library on it, and our locks.
struct Both {
    theirs: Peer,
    ours: Locks,
    /// The name that the library is given becomes this key.
    key: String,
    _server: Server,
}

impl Library {
    async fn open(&self) -> Option<Both> {
        let server = start().await?;
        let theirs = Peer::start(self.name, server.url(), &[]).await?;
        let ours = Locks::redis(server.url()).options(patient()).layout(Layout::SingleKey).await;
        let key = format!("{}k", self.prefix);
        Some(Both { theirs, ours: ours.expect("the server can be used"), key, _server: server })
    }
}

async fn they_hold(library: Library) {
    let Some(Both { mut theirs, ours, key, _server }) = library.open().await else { return };
    theirs.says("try h k 300000", "held").await;
    let refused = ours.lock(&key).try_acquire().await.map(drop).unwrap_err();
    assert!(matches!(refused, LockError::Contended { ttl, .. } if ttl <= LEASE), "{refused}");
    let mut waiting = tokio::spawn(ours.lock(&key).policy(QUICK).lease(LEASE).acquire());
    assert_waits(&mut waiting).await;
    theirs.says("unlock h", "released").await;
    let guard = in_time(waiting).await.unwrap().unwrap();
    theirs.says("try h k 300000", "refused").await;
    guard.release().await.unwrap();
    theirs.says("try h k 300000", "held").await;
}

async fn we_hold(library: Library) {
    let Some(Both { mut theirs, ours, key, _server }) = library.open().await else { return };
    let guard = ours.lock(&key).lease(LEASE).acquire().await.unwrap();
    theirs.says("try h k 300000", "refused").await;
    theirs.report(&format!("lock h k 300000 {THEIR_WAIT_MS}")).await;
    assert_waits(theirs.answer("h")).await;
    guard.release().await.unwrap();
    assert_eq!(theirs.answer("h").await, "held", "{}", library.name);
    let refused = ours.lock(&key).try_acquire().await.map(drop).unwrap_err();
    assert!(matches!(refused, LockError::Contended { .. }), "{refused}");
    theirs.says("unlock h", "released").await;
    ours.lock(&key).try_acquire().await.unwrap().release().await.unwrap();
}

async fn both_contend(library: Library) {
    let Some(Both { mut theirs, ours, key, _server }) = library.open().await else { return };
    let Library { name, rounds, contend_ms, .. } = library;
    let counter = Counter::new();
    let path = counter.path();
    theirs.report(&format!("contend h k {} {TASKS} {rounds} {contend_ms}", path.display())).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (request, path) = (ours.lock(&key).policy(QUICK).lease(LEASE), path.clone());
            tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = request.clone().acquire().await.unwrap();
                    count_up(&path, task).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time(task).await.unwrap();
    }
    assert_eq!(theirs.answer("h").await, format!("done {}", TASKS * rounds), "{name}");
    assert_eq!(counter.read(), 2 * TASKS * rounds, "{name}: updates were lost");
}

async fn holders_vanish(library: Library) {
    let Some(Both { mut theirs, ours, key, _server: server }) = library.open().await else { return };
    // Ours is gone without a word: no caller gives it back.
    let begun = Instant::now();
    std::mem::forget(ours.lock(&key).lease(SHORT).fixed().acquire().await.unwrap());
    theirs.says("try h k 300000", "refused").await;
    theirs.says(&format!("lock h k 300000 {THEIR_WAIT_MS}"), "held").await;
    assert!(SHORT <= begun.elapsed(), "{:?}", begun.elapsed());
    theirs.says("unlock h", "released").await;
    let begun = Instant::now();
    theirs.says(&format!("try h k {}", SHORT.as_millis()), "held").await;
    theirs.kill().await;
    let guard = timeout(PATIENCE, ours.lock(&key).policy(QUICK).acquire()).await.expect("the lease ends").unwrap();
    assert!(SHORT <= begun.elapsed(), "{:?}", begun.elapsed());
    guard.release().await.unwrap();
    drop(server);
}

macro_rules! shared_with {
    ($($name:ident: $library:expr;)*) => {$(
        mod $name {
            #[tokio::test]
            async fn while_they_hold_we_are_refused_and_wait_until_they_release() {
                super::they_hold($library).await;
            }

            #[tokio::test]
            async fn while_we_hold_they_are_refused_and_wait_until_we_release() {
                super::we_hold($library).await;
            }

            #[tokio::test]
            async fn when_both_contend_no_update_is_lost() {
                super::both_contend($library).await;
            }

            #[tokio::test]
            async fn the_lease_of_a_holder_that_vanishes_ends_for_the_other() {
                super::holders_vanish($library).await;
            }
        }
    )*};
}

shared_with! {
    redis_py: super::REDIS_PY;
    python_redis_lock: super::PYTHON_REDIS_LOCK;
    redlock: super::REDLOCK;
    redis_semaphore: super::REDIS_SEMAPHORE;
    redsync: super::REDSYNC;
}
