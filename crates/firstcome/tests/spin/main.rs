//! Locks on the shared layout, against a server of the test's own and against others who follow the recipe.

mod redisson;
#[path = "../../../firstcome-redis/tests/it/server.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod server;

use firstcome::lock::{Layout, LinkOptions, Pauses, layout};
use firstcome::redis::Counts;
use firstcome::{Demand, InputError, LockError, Locks};
use redis::Value;
use server::{Server, wait_for};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

const QUICK: Pauses = Pauses::FullJitter { base_ms: NonZeroU32::MIN, most_ms: NonZeroU32::new(8).unwrap() };

async fn open(server: &Server) -> Locks {
    let mut options = LinkOptions::default();
    options.answer_timeout = server::PATIENCE;
    Locks::redis(&server.url()).options(options).layout(Layout::SingleKey).await.unwrap()
}

/// What the client has sent.
fn counts(locks: &Locks) -> Counts {
    layout::counts(locks).expect("a layout of other libraries")
}

/// Waits until no caller has the lock.
async fn until_free(server: &Server, key: &str) {
    wait_for("the lock to be free", async || (server.ask(&["EXISTS", key]).await == Value::Int(0)).then_some(())).await;
}

#[tokio::test]
async fn others_who_follow_the_recipe_exclude_us_and_are_excluded() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    server.ask(&["SET", "a", "theirs", "NX", "PX", "300"]).await;
    let refused = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Contended { ttl, .. } if ttl <= Duration::from_millis(300)), "{refused}");
    // Theirs ends with its lease.
    let guard = locks.lock("a").policy(QUICK).lease(Duration::from_secs(5)).acquire().await.unwrap();
    assert_eq!(server.ask(&["SET", "a", "theirs", "NX", "PX", "300"]).await, Value::Nil);
    let left = guard.remaining();
    assert!(Duration::from_secs(1) < left && left < Duration::from_millis(4_950), "{left:?}");
    guard.release().await.unwrap();
    assert_eq!(server.ask(&["SET", "a", "theirs", "NX", "PX", "9000"]).await, Value::Okay);
}

#[tokio::test]
async fn tries_and_time_come_to_an_end() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    server.ask(&["SET", "a", "theirs"]).await;
    let before = counts(&locks).requests;
    let tries = locks.lock("a").policy(QUICK).tries(NonZeroU32::new(3).unwrap()).acquire().await;
    assert!(matches!(tries, Err(LockError::TimedOut { position: None })));
    // One more command makes the script known, and one repeats what it was made known for.
    assert_eq!(counts(&locks).requests - before, 3 + 2);
    let waited = locks.lock("a").policy(QUICK).wait(Duration::from_millis(50)).acquire().await;
    assert!(matches!(waited, Err(LockError::TimedOut { .. })));
    assert_eq!(server.text(&["GET", "a"]).await, "theirs");
    for (key, lease) in [("", 1_000), ("a", 50), (&"a".repeat(1_025), 1_000)] {
        let request = locks.lock(key).lease(Duration::from_millis(lease));
        assert!(matches!(request.try_acquire().await, Err(LockError::Input(InputError::Value { .. }))));
    }
}

#[tokio::test]
async fn a_demand_that_the_store_does_not_meet_is_refused_before_anything_is_sent() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    let before = counts(&locks).requests;
    for (request, wanted) in [(locks.lock("a").fenced(), Demand::Fenced), (locks.lock("a").ordered(), Demand::Ordered)]
    {
        let refused = request.acquire().await.map(drop).unwrap_err();
        assert!(matches!(refused, LockError::NotGuaranteed { demand } if demand == wanted), "{refused}");
    }
    assert_eq!(counts(&locks).requests, before);
    assert!(!locks.guarantees().meets(Demand::Fenced));
    let leader = locks.elect("a").try_campaign().await.unwrap_err();
    assert!(matches!(leader, LockError::NotGuaranteed { demand: Demand::Fenced }), "a leader has a term: {leader}");
}

#[tokio::test]
async fn a_lease_that_the_caller_renews_with_is_that_of_later_renewals_and_never_ends_a_hold_earlier() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    let lease = Duration::from_millis(600);
    let guard = locks.lock("a").lease(lease).acquire().await.unwrap();
    guard.renew(Duration::from_secs(60)).await.unwrap();
    let until = guard.deadline().unwrap();
    // Three renewals by the client itself would come within this time.
    assert!(tokio::time::timeout(lease, guard.lost()).await.is_err());
    assert!(until <= guard.deadline().unwrap());
    guard.renew(lease).await.unwrap();
    assert!(until <= guard.deadline().unwrap());
    let Value::Int(left) = server.ask(&["PTTL", "a"]).await else { panic!("it is held") };
    assert!(50_000 < left, "{left}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_lasts_as_long_as_it_is_renewed() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    let lease = Duration::from_millis(600);
    let renewed = locks.lock("renewed").lease(lease).acquire().await.unwrap();
    let fixed = locks.lock("fixed").lease(lease).fixed().acquire().await.unwrap();
    let longer = locks.lock("longer").lease(lease).fixed().acquire().await.unwrap();
    longer.renew(Duration::from_secs(60)).await.unwrap();
    fixed.lost().await;
    assert!(fixed.is_lost() && !longer.is_lost() && Duration::from_secs(30) < longer.remaining());
    until_free(&server, "fixed").await;
    assert!(matches!(fixed.renew(lease).await, Err(LockError::Lost)));
    assert!(matches!(fixed.release().await, Err(LockError::Lost)));
    let held = tokio::time::timeout(lease * 2, renewed.lost()).await;
    assert!(held.is_err() && !renewed.is_lost());
    // A caller takes it away: the next renewal notices.
    server.ask(&["SET", "renewed", "theirs"]).await;
    renewed.lost().await;
    drop(renewed);
    longer.release().await.unwrap();
    assert_eq!(server.text(&["GET", "renewed"]).await, "theirs");
}

#[tokio::test]
async fn a_dropped_future_and_a_dropped_guard_leave_nothing() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server).await;
    drop(locks.lock("a").acquire().await.unwrap());
    until_free(&server, "a").await;
    for polls in 1..6 {
        {
            let mut asked = pin!(locks.lock("a").acquire());
            for _ in 0..polls {
                if asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // What was sent may still be on its way, and what undoes it goes out after it.
        let next = locks.lock("a").policy(QUICK).acquire().await.unwrap();
        next.release().await.unwrap();
    }
    let held = locks.lock("a").acquire().await.unwrap();
    {
        let mut released = pin!(held.release());
        assert!(released.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    until_free(&server, "a").await;
}

#[tokio::test]
async fn a_lost_answer_is_repeated_and_undone() {
    let Some(server) = Server::start(&[]).await else { return };
    let mut hasty = LinkOptions::default();
    hasty.answer_timeout = Duration::from_millis(300);
    let locks = Locks::redis(&server.url()).options(hasty).layout(Layout::SingleKey).await.unwrap();
    locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
    server.freeze();
    let before = counts(&locks).requests;
    let waiting = tokio::spawn(locks.lock("b").policy(QUICK).acquire());
    wait_for("a first try", async || (before < counts(&locks).requests).then_some(())).await;
    // The answer to this one is missed after the answer to the other: that one is tried again by now.
    let unknown = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(unknown, LockError::Unknown), "{unknown}");
    server.thaw();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    until_free(&server, "a").await;
    until_free(&server, "b").await;
}

#[tokio::test]
async fn under_every_policy_one_at_a_time_is_inside() {
    let Some(server) = Server::start(&[]).await else { return };
    let two = NonZeroU32::new(2).unwrap();
    for pauses in [QUICK, Pauses::Constant { every_ms: two }, Pauses::ShrinkingJitter { base_ms: two }] {
        let inside = Arc::new(AtomicU32::new(0));
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let (locks, inside) = (open(&server).await, Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = locks.lock("a").policy(pauses).acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
    assert_eq!(server.ask(&["DBSIZE"]).await, Value::Int(0));
}
