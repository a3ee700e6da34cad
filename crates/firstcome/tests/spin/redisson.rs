//! Locks in the layout of Redisson: re-entry, and waiting without asking.

use super::server::{PATIENCE, Server};
use super::{LinkOptions, LockError, Value, counts, wait_for};
use firstcome::lock::Layout;
use firstcome::{Guarantees, Guard, Locks};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::timeout;

const CHANNEL: &str = "redisson_lock__channel:{a}";
const THEIRS: &str = "0d3f6dcb-4c8b-4c0a-9c73-1f2a9a7b7a55:31";
/// Many times the pause of a caller that asks again and again.
const WHILE: Duration = Duration::from_millis(700);

async fn open(server: &Server) -> Locks {
    let mut options = LinkOptions::default();
    options.answer_timeout = PATIENCE;
    Locks::redis(&server.url()).options(options).layout(Layout::Redisson).await.unwrap()
}

/// Scripts are known, so that what is sent can be counted.
async fn warm(locks: &Locks) {
    locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
}

/// How many times over a caller has the lock `a`.
async fn times(server: &Server) -> Option<u32> {
    let all: Vec<(String, u32)> = redis::from_redis_value(server.ask(&["HGETALL", "a"]).await).unwrap();
    assert!(all.len() <= 1, "{all:?}");
    all.first().map(|(_, times)| *times)
}

async fn until_waiting(server: &Server) {
    let waits = async || {
        let told = server.ask(&["PUBSUB", "NUMSUB", CHANNEL]).await;
        let (_, clients): (String, i64) = redis::from_redis_value(told).unwrap();
        (clients == 1).then_some(())
    };
    wait_for("somebody who listens", waits).await;
}

#[tokio::test]
async fn every_layout_is_opened_by_its_name() {
    let Some(server) = Server::start(&[]).await else { return };
    let native: Locks = Locks::redis(&server.url()).await.unwrap();
    native.lock("a").acquire().await.unwrap().release().await.unwrap();
    let native: Locks = Locks::redis(&server.url()).layout(Layout::SingleKey).layout(Layout::Native).await.unwrap();
    native.lock("a").acquire().await.unwrap().release().await.unwrap();
    let single: Locks = Locks::redis(&server.url()).layout(Layout::SingleKey).await.unwrap();
    let guard = single.lock("a").acquire().await.unwrap();
    assert_eq!(server.text(&["TYPE", "a"]).await, "string");
    guard.release().await.unwrap();
    let redisson = open(&server).await;
    assert_eq!(native.guarantees(), Guarantees::REDIS);
    assert_eq!([single.guarantees(), redisson.guarantees()], [Guarantees::SHARED_LAYOUT; 2]);
    let guard = redisson.lock("a").acquire().await.unwrap();
    assert_eq!(server.text(&["TYPE", "a"]).await, "hash");
    assert!(matches!(single.lock("a").try_acquire().await, Err(LockError::Contended { .. })));
    guard.release().await.unwrap();
    let debug = format!("{:?}", Locks::redis("redis://:secret@localhost").layout(Layout::Redisson));
    assert!(debug.contains("Redisson") && !debug.contains("secret"), "{debug}");
}

#[tokio::test]
async fn a_hold_is_counted_up_and_ends_with_its_last_guard() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    let outer = locks.lock("a").acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let third = inner.reenter().await.unwrap();
    assert_eq!(times(&server).await, Some(3));
    // Another acquisition is another thread.
    assert!(matches!(locks.lock("a").try_acquire().await, Err(LockError::Contended { .. })));
    outer.release().await.unwrap();
    assert_eq!(times(&server).await, Some(2));
    drop(third);
    wait_for("the count", async || (times(&server).await == Some(1)).then_some(())).await;
    // A future that is dropped on its way leaves as many as before.
    for polls in 0..4 {
        {
            let mut again = pin!(inner.reenter());
            for _ in 0..polls {
                if again.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        inner.reenter().await.unwrap().release().await.unwrap();
        assert_eq!(times(&server).await, Some(1));
    }
    inner.release().await.unwrap();
    assert_eq!(times(&server).await, None);
}

#[tokio::test]
async fn a_hold_is_renewed_until_its_last_guard_ends_and_re_entry_shows_that_it_is_lost() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    let lease = Duration::from_millis(600);
    let outer: Guard = locks.lock("a").lease(lease).acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    drop(outer);
    assert!(timeout(lease * 2, inner.lost()).await.is_err() && !inner.is_lost());
    // A caller takes it away: Redisson's forceUnlock does.
    server.ask(&["DEL", "a"]).await;
    let again = inner.reenter().await.map(drop).unwrap_err();
    assert!(matches!(again, LockError::Lost) && inner.is_lost(), "{again}");
    assert!(matches!(inner.release().await, Err(LockError::Lost)));
    let fixed = locks.lock("a").lease(lease).fixed().acquire().await.unwrap();
    let inner = fixed.reenter().await.unwrap();
    inner.lost().await;
    assert!(matches!(fixed.reenter().await, Err(LockError::Lost)));
    // It is over here a little before it is over there.
    wait_for("the end of the lease", async || times(&server).await.is_none().then_some(())).await;
    assert!(matches!(fixed.release().await, Err(LockError::Lost)));
    assert!(matches!(inner.release().await, Err(LockError::Lost)));
}

#[tokio::test]
async fn re_entry_sends_nothing_where_no_caller_counts() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = Locks::redis(&server.url()).layout(Layout::SingleKey).await.unwrap();
    let outer = locks.lock("a").acquire().await.unwrap();
    let before = counts(&locks).requests;
    let inner = outer.reenter().await.unwrap();
    outer.release().await.unwrap();
    assert_eq!((counts(&locks).requests, inner.is_lost()), (before, false));
    assert_eq!(server.ask(&["EXISTS", "a"]).await, Value::Int(1));
    inner.release().await.unwrap();
    assert_eq!(server.ask(&["EXISTS", "a"]).await, Value::Int(0));
}

#[tokio::test]
async fn who_waits_does_not_ask_until_told() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    warm(&locks).await;
    server.ask(&["HSET", "a", THEIRS, "1"]).await;
    server.ask(&["PEXPIRE", "a", "60000"]).await;
    let before = counts(&locks).requests;
    let mut waiting = tokio::spawn(locks.lock("a").acquire());
    until_waiting(&server).await;
    assert!(timeout(WHILE, &mut waiting).await.is_err(), "it is held");
    assert_eq!(counts(&locks).requests - before, 2, "before and after it listens");
    // As Redisson gives it back.
    server.ask(&["DEL", "a"]).await;
    server.ask(&["PUBLISH", CHANNEL, "0"]).await;
    let guard = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(counts(&locks).requests - before, 3);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn who_waits_asks_when_the_lease_is_over_or_messages_were_missed() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    warm(&locks).await;
    server.ask(&["HSET", "a", THEIRS, "1"]).await;
    server.ask(&["PEXPIRE", "a", "700"]).await;
    let before = counts(&locks).requests;
    let guard = timeout(PATIENCE, locks.lock("a").acquire()).await.unwrap().unwrap();
    let asked = counts(&locks).requests - before;
    assert!((3..=4).contains(&asked), "{asked}");
    guard.release().await.unwrap();
    server.ask(&["HSET", "a", THEIRS, "1"]).await;
    let mut waiting = tokio::spawn(locks.lock("a").acquire());
    until_waiting(&server).await;
    assert!(timeout(WHILE, &mut waiting).await.is_err(), "it is held");
    // It is given back while the connection is gone: no caller is told.
    server.ask(&["DEL", "a"]).await;
    assert_eq!(server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await, Value::Int(1));
    drop(timeout(Duration::from_secs(20), waiting).await.expect("long before the patience is over").unwrap().unwrap());
}

#[tokio::test]
async fn in_a_crowd_of_two_clients_one_at_a_time_is_inside() {
    let Some(server) = Server::start(&[]).await else { return };
    let (inside, mut tasks) = (Arc::new(AtomicU32::new(0)), Vec::new());
    let clients = [open(&server).await, open(&server).await];
    for task in 0..16 {
        let (locks, inside) = (clients[task % 2].clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let guard = locks.lock("a").acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        timeout(PATIENCE, task).await.expect("nobody is forgotten").unwrap();
    }
    assert_eq!(server.ask(&["DBSIZE"]).await, Value::Int(0));
}
