//! The layout of Redisson, with Redisson.

use super::peer::Peer;
use super::{Counter, ask, assert_waits, count_up, in_time, patient, start, wait_for};
use firstcome::lock::{Layout, layout};
use firstcome::{LockError, Locks};
use firstcome_test_servers::{Cluster, Durability, Options, SLOTS, Server};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// It does not end while a test runs: a caller that goes on before was woken.
const LEASE: Duration = Duration::from_secs(300);
const SHORT: Duration = Duration::from_millis(1_500);
/// Long before anybody asks without having been woken: we do so after 30 s, Redisson when the lease is over.
const WOKEN: Duration = Duration::from_secs(15);
const CHANNEL: &str = "redisson_lock__channel:{k}";
const TASKS: u32 = 4;
const ROUNDS: u32 = 25;

/// A server, Redisson on it, and our locks.
struct Both {
    theirs: Peer,
    ours: Locks,
    server: Server,
}

async fn open(library: &str, settings: &[&str]) -> Option<Both> {
    let server = start().await?;
    let theirs = Peer::start(library, server.url(), settings).await?;
    let ours = open_ours(&server).await;
    Some(Both { theirs, ours, server })
}

/// A client of ours.
async fn open_ours(server: &Server) -> Locks {
    let ours = Locks::redis(server.url()).options(patient()).layout(Layout::Redisson).await;
    let ours = ours.expect("the server can be used");
    // Scripts are known, so that what is sent can be counted.
    ours.lock("warm").acquire().await.unwrap().release().await.unwrap();
    ours
}

/// Waits until so many clients listen for the lock.
async fn until_waiting(server: &Server, clients: i64) {
    wait_for("a subscription", async || {
        let told = ask(server, &["PUBSUB", "NUMSUB", CHANNEL]).await;
        redis::from_redis_value::<(String, i64)>(told).expect("a channel and a number").1 == clients
    })
    .await;
}

/// Who has the lock, and how many times over.
async fn holds(server: &Server) -> Vec<(String, u32)> {
    redis::from_redis_value(ask(server, &["HGETALL", "k"]).await).expect("a hash")
}

async fn times(server: &Server) -> Option<u32> {
    let holds = holds(server).await;
    assert!(holds.len() <= 1, "{holds:?}");
    holds.first().map(|(_, times)| *times)
}

async fn assert_refused(ours: &Locks) {
    let refused = ours.lock("k").try_acquire().await.map(drop).unwrap_err();
    assert!(matches!(refused, LockError::Contended { ttl, .. } if ttl <= LEASE), "{refused}");
}

#[tokio::test]
async fn their_release_wakes_us_and_ours_wakes_them() {
    let Some(Both { mut theirs, ours, server }) = open("redisson", &[]).await else { return };
    theirs.says("try h k 300000", "held").await;
    assert_refused(&ours).await;
    for _ in 0..5 {
        let before = layout::counts(&ours).expect("that of Redisson").requests;
        let mut waiting = tokio::spawn(ours.lock("k").lease(LEASE).acquire());
        until_waiting(&server, 1).await;
        assert_waits(&mut waiting).await;
        theirs.says("unlock h", "released").await;
        let guard = timeout(WOKEN, waiting).await.expect("their message wakes us").unwrap().unwrap();
        assert_eq!(
            layout::counts(&ours).expect("that of Redisson").requests - before,
            3,
            "nobody asks without having been woken"
        );
        until_waiting(&server, 0).await;
        theirs.says("try h k 300000", "refused").await;
        theirs.report("lock h k 300000 200000").await;
        until_waiting(&server, 1).await;
        assert_waits(theirs.answer("h")).await;
        guard.release().await.unwrap();
        let woken = timeout(WOKEN, theirs.answer("h")).await.expect("our message wakes them");
        assert_eq!(woken, "held");
        assert_refused(&ours).await;
    }
    theirs.says("unlock h", "released").await;
    assert_eq!(times(&server).await, None);
}

#[tokio::test]
async fn re_entries_of_both_are_counted_and_the_last_one_ends_the_hold() {
    let Some(Both { mut theirs, ours, server }) = open("redisson", &[]).await else { return };
    theirs.says("try h k 300000", "held").await;
    theirs.says("again h 300000", "held 2").await;
    assert_eq!(times(&server).await, Some(2));
    theirs.says("unlock h", "released").await;
    assert_eq!(times(&server).await, Some(1));
    assert_refused(&ours).await;
    theirs.says("unlock h", "released").await;
    let outer = ours.lock("k").lease(LEASE).try_acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert_eq!(times(&server).await, Some(2));
    theirs.says("holds k", "yes").await;
    outer.release().await.unwrap();
    assert_eq!(times(&server).await, Some(1));
    theirs.says("try h k 300000", "refused").await;
    theirs.report("lock h k 300000 200000").await;
    until_waiting(&server, 1).await;
    inner.release().await.unwrap();
    let woken = timeout(WOKEN, theirs.answer("h")).await.expect("the last release wakes them");
    assert_eq!(woken, "held");
}

#[tokio::test]
async fn to_redisson_we_are_one_of_its_threads() {
    let Some(Both { mut theirs, ours, server }) = open("redisson", &[]).await else { return };
    theirs.says("try h k 300000", "held").await;
    let [(of_theirs, _)] = holds(&server).await.try_into().unwrap();
    theirs.says("unlock h", "released").await;
    let guard = ours.lock("k").try_acquire().await.unwrap();
    let [(of_ours, _)] = holds(&server).await.try_into().unwrap();
    for field in [&of_theirs, &of_ours] {
        let (uuid, thread) = field.split_once(':').expect("a colon");
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!((lengths, thread.parse::<i64>().is_ok()), (vec![8, 4, 4, 4, 12], true), "{field}");
    }
    // What is not theirs they do not release.
    theirs.says("holds k", "yes").await;
    theirs.says("unlock h", "error it holds nothing").await;
    guard.release().await.unwrap();
    theirs.says("holds k", "no").await;
}

/// A cluster, of whose nodes the one that has the lock of these tests comes second.
async fn start_cluster() -> Option<(Cluster, usize)> {
    drop(start().await?);
    let cluster = Cluster::start(&Options::new(Durability::Quick), 0).await.expect("it starts");
    let slot = ask(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", "k"]).await;
    let slot: u16 = redis::from_redis_value(slot).expect("a number");
    let home = usize::from(slot) * cluster.nodes().len() / usize::from(SLOTS);
    Some((cluster, home))
}

#[tokio::test]
async fn in_a_cluster_their_release_wakes_us_and_ours_wakes_them() {
    let Some((cluster, home)) = start_cluster().await else { return };
    let server = &cluster.nodes()[home];
    let Some(mut theirs) = Peer::start("redisson", server.url(), &["cluster=1"]).await else { return };
    let ours = Locks::redis(&cluster.url()).options(patient()).layout(Layout::Redisson).await;
    let ours = ours.expect("the cluster can be used");
    let until_waiting = async |clients: i64| {
        wait_for("a subscription", async || {
            let told = ask(server, &["PUBSUB", "SHARDNUMSUB", CHANNEL]).await;
            redis::from_redis_value::<(String, i64)>(told).expect("a channel and a number").1 == clients
        })
        .await;
    };
    theirs.says("try h k 300000", "held").await;
    assert_refused(&ours).await;
    for _ in 0..3 {
        let mut waiting = tokio::spawn(ours.lock("k").lease(LEASE).acquire());
        until_waiting(1).await;
        assert_waits(&mut waiting).await;
        theirs.says("unlock h", "released").await;
        let guard = timeout(WOKEN, waiting).await.expect("their message wakes us").unwrap().unwrap();
        until_waiting(0).await;
        theirs.says("try h k 300000", "refused").await;
        theirs.report("lock h k 300000 200000").await;
        until_waiting(1).await;
        assert_waits(theirs.answer("h")).await;
        guard.release().await.unwrap();
        let woken = timeout(WOKEN, theirs.answer("h")).await.expect("our message wakes them");
        assert_eq!(woken, "held");
        assert_refused(&ours).await;
    }
    theirs.says("unlock h", "released").await;
    assert_eq!(times(server).await, None);
}

/// Several clients of ours and one of theirs, each with several who want the lock.
async fn both_contend(library: &str, rounds: u32, their_lease_ms: u32) {
    let Some(Both { mut theirs, ours, server }) = open(library, &[]).await else { return };
    let (counter, clients) = (Counter::new(), [ours, open_ours(&server).await]);
    let path = counter.path();
    theirs.report(&format!("contend h k {} {TASKS} {rounds} {their_lease_ms}", path.display())).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (request, path) = (clients[task as usize % 2].lock("k").lease(LEASE), path.clone());
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
    assert_eq!(theirs.answer("h").await, format!("done {}", TASKS * rounds), "{library}");
    assert_eq!(counter.read(), 2 * TASKS * rounds, "{library}: updates were lost");
    assert_eq!(times(&server).await, None);
    until_waiting(&server, 0).await;
}

#[tokio::test]
async fn when_both_contend_no_update_is_lost() {
    both_contend("redisson", ROUNDS, 300_000).await;
}

#[tokio::test]
async fn when_we_contend_with_fenced_locks_no_update_is_lost() {
    both_contend("redisson-fenced", ROUNDS, 300_000).await;
}

#[tokio::test]
async fn fair_locks_exclude_us_and_are_excluded() {
    let Some(Both { mut theirs, ours, server }) = open("redisson-fair", &[]).await else { return };
    theirs.says("try h k 300000", "held").await;
    assert_refused(&ours).await;
    theirs.says("unlock h", "released").await;
    let guard = ours.lock("k").lease(SHORT).fixed().try_acquire().await.unwrap();
    theirs.says("try h k 300000", "refused").await;
    // It is not woken by us, and goes on when the lease is over that it has seen.
    theirs.report("lock h k 300000 200000").await;
    assert_waits(theirs.answer("h")).await;
    guard.release().await.unwrap();
    assert_eq!(theirs.answer("h").await, "held");
    assert_refused(&ours).await;
    theirs.says("unlock h", "released").await;
    assert_eq!(times(&server).await, None);
}

#[tokio::test]
async fn the_lease_of_a_holder_that_vanishes_ends_for_the_other() {
    let Some(Both { mut theirs, ours, server }) = open("redisson", &[]).await else { return };
    // Ours is gone without a word: no caller gives it back.
    let begun = Instant::now();
    std::mem::forget(ours.lock("k").lease(SHORT).fixed().acquire().await.unwrap());
    theirs.says("lock h k 300000 200000", "held").await;
    assert!(SHORT <= begun.elapsed(), "{:?}", begun.elapsed());
    theirs.says("unlock h", "released").await;
    let begun = Instant::now();
    theirs.says(&format!("try h k {}", SHORT.as_millis()), "held").await;
    let waiting = tokio::spawn(ours.lock("k").acquire());
    until_waiting(&server, 1).await;
    theirs.kill().await;
    let guard = timeout(WOKEN, waiting).await.expect("the lease ends").unwrap().unwrap();
    assert!(SHORT <= begun.elapsed(), "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn what_is_renewed_by_either_lasts_for_the_other_until_its_process_ends() {
    let Some(Both { mut theirs, ours, server }) = open("redisson", &["watchdog_ms=1500"]).await else { return };
    let guard = ours.lock("k").lease(SHORT).acquire().await.unwrap();
    theirs.says(&format!("lock h k 300000 {}", 2 * SHORT.as_millis()), "refused").await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    // A lease of 0 is Redisson's own, which it renews.
    theirs.says("try h k 0", "held").await;
    let refused = ours.lock("k").wait(2 * SHORT).acquire().await.map(drop).unwrap_err();
    assert!(matches!(refused, LockError::TimedOut { .. }), "{refused}");
    theirs.kill().await;
    timeout(WOKEN, ours.lock("k").acquire()).await.expect("the lease ends").unwrap().release().await.unwrap();
    assert_eq!(times(&server).await, None);
}
