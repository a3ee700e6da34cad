//! Locks over several servers of the test's own, as those see them who use the library.

#[cfg(target_os = "linux")]
mod partitions;
#[path = "../../../firstcome-redis/tests/it/server.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod server;

use firstcome::lock::{QuorumOptions, quorum};
use firstcome::{Demand, Guarantees, InputError, LockError, Locks};
use redis::Value;
use server::{PATIENCE, Server, wait_for};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::{Instant, timeout};

async fn start(nodes: usize) -> Option<Vec<Server>> {
    let mut servers = Vec::new();
    for _ in 0..nodes {
        servers.push(Server::start(&[]).await?);
    }
    Some(servers)
}

async fn open(servers: &[Server]) -> Locks {
    let mut options = QuorumOptions::default().new_set();
    options.node_timeout = Duration::from_millis(500);
    options.link.answer_timeout = PATIENCE;
    Locks::quorum_with(servers.iter().map(Server::url), options).await.unwrap()
}

/// Waits until no server has the lock.
async fn until_free(servers: &[Server], name: &str) {
    let key = format!("fcq:l:{name}");
    for server in servers {
        let free = async || (server.ask(&["EXISTS", &key]).await == Value::Int(0)).then_some(());
        wait_for("the lock to be free", free).await;
    }
}

#[tokio::test]
async fn a_guard_has_a_fence_and_an_end() {
    let Some(servers) = start(3).await else { return };
    let locks = open(&servers).await;
    let lease = Duration::from_millis(600);
    let guard = locks.lock("a").lease(lease).fixed().acquire().await.unwrap();
    let first = guard.fence().unwrap();
    let token = guard.token().unwrap();
    assert_eq!((token.lock(), token.fence()), (guard.name(), first));
    assert!(!guard.is_lost() && guard.remaining() < lease);
    assert_eq!(locks.guarantees(), Guarantees::QUORUM);
    let unordered = locks.lock("b").fenced().ordered().try_acquire().await.unwrap_err();
    assert!(matches!(unordered, LockError::NotGuaranteed { demand: Demand::Ordered }), "{unordered}");
    let refused = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Contended { ttl, .. } if ttl <= lease), "{refused}");
    let late = locks.lock("a").wait(Duration::from_millis(50)).acquire().await.unwrap_err();
    assert!(matches!(late, LockError::TimedOut { .. }), "{late}");
    guard.lost().await;
    assert!(guard.is_lost());
    assert!(matches!(guard.renew(lease).await, Err(LockError::Lost)));
    let next = locks.lock("a").wait(PATIENCE).acquire().await.unwrap();
    assert!(first < next.fence().unwrap());
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    next.renew(Duration::from_secs(20)).await.unwrap();
    assert!(Duration::from_secs(10) < next.remaining());
    next.release().await.unwrap();
    until_free(&servers, "a").await;
    let long = locks.lock("a").lease(Duration::from_secs(61)).try_acquire().await.unwrap_err();
    assert!(matches!(long, LockError::Input(InputError::Value { field: "lease", .. })), "{long}");
}

#[tokio::test]
async fn a_hold_outlives_its_lease_and_the_loss_of_a_server() {
    let Some(mut servers) = start(3).await else { return };
    let locks = open(&servers).await;
    let lease = Duration::from_millis(900);
    let guard = locks.lock("a").lease(lease).acquire().await.unwrap();
    servers[1].kill();
    assert!(timeout(lease * 2, guard.lost()).await.is_err() && !guard.is_lost());
    servers[2].kill();
    guard.lost().await;
    assert!(guard.is_lost());
    let refused = locks.lock("b").try_acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Unavailable(_)), "{refused}");
}

#[tokio::test]
async fn what_is_dropped_is_given_back_everywhere() {
    let Some(servers) = start(5).await else { return };
    let locks = open(&servers).await;
    drop(locks.lock("a").acquire().await.unwrap());
    until_free(&servers, "a").await;
    for polls in 1..30 {
        {
            let mut asked = pin!(locks.lock("a").acquire());
            for _ in 0..polls {
                if asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        until_free(&servers, "a").await;
    }
    let held = locks.lock("a").acquire().await.unwrap();
    {
        let mut released = pin!(held.release());
        assert!(released.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    until_free(&servers, "a").await;
    locks.quiet().await;
}

#[tokio::test]
async fn many_who_wait_are_served_one_at_a_time_without_long_pauses() {
    let Some(servers) = start(3).await else { return };
    let last = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = open(&servers).await;
        for _ in 0..4 {
            let (locks, last) = (locks.clone(), Arc::clone(&last));
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = locks.lock("hot").wait(PATIENCE).acquire().await.unwrap();
                    let fence = guard.fence().unwrap().get();
                    assert!(last.swap(fence, Ordering::SeqCst) < fence);
                    tokio::task::yield_now().await;
                    assert_eq!(last.load(Ordering::SeqCst), fence, "two are inside");
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    until_free(&servers, "hot").await;
}

#[tokio::test]
async fn a_cohort_is_served_by_few_grants_with_a_fence_for_each_and_no_process_is_left_in_its_line() {
    const ROUNDS: u64 = 25;
    let Some(servers) = start(3).await else { return };
    let passes = 8;
    let last = Arc::new(AtomicU64::new(0));
    let (mut tasks, mut processes) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let locks = open(&servers).await;
        for _ in 0..4 {
            let (locks, last) = (locks.clone(), Arc::clone(&last));
            tasks.push(tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let request = locks.lock("hot").wait(PATIENCE).cohort(passes);
                    if round % 5 == 0 {
                        // A process that gives up, in the line or at its head.
                        let _ = timeout(Duration::from_millis(round / 5), request.clone().acquire()).await;
                    }
                    let guard = request.acquire().await.unwrap();
                    let fence = guard.fence().unwrap().get();
                    assert!(last.swap(fence, Ordering::SeqCst) < fence);
                    tokio::task::yield_now().await;
                    assert_eq!(last.load(Ordering::SeqCst), fence, "two are inside");
                    if round % 3 == 0 { drop(guard) } else { guard.release().await.unwrap() }
                }
            }));
        }
        processes.push(locks);
    }
    for task in tasks {
        task.await.unwrap();
    }
    until_free(&servers, "hot").await;
    let grants: u64 = processes.iter().map(|locks| quorum::counts(locks).unwrap().granted).sum();
    assert!(grants < 8 * ROUNDS / 2, "{grants} grants");
    // Of a cohort that has passes left, another process gets the lock when its lease is over.
    let lease = Duration::from_millis(400);
    let own = processes[0].lock("long").lease(lease).cohort(passes);
    let first = own.clone().acquire().await.unwrap();
    let (waiting, other) = (tokio::spawn(own.acquire()), processes[1].clone());
    let other =
        tokio::spawn(async move { other.lock("long").wait(PATIENCE).acquire().await.unwrap().fence().unwrap() });
    let waits = async || (servers[0].ask(&["ZCARD", "fcq:w:long"]).await == Value::Int(1)).then_some(());
    wait_for("the other one to wait", waits).await;
    let begun = Instant::now();
    wait_for("a lease to pass", async || (lease < begun.elapsed()).then_some(())).await;
    let fence = first.fence().unwrap();
    first.release().await.unwrap();
    let (next, other) = (waiting.await.unwrap().unwrap().fence().unwrap(), other.await.unwrap());
    assert!(fence.get() + 7 < next.get(), "it was asked for anew: {fence} {next}");
    assert!(fence < other && next != other);
}
