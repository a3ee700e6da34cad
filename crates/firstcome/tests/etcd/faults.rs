//! Servers that die and stand still, and holders that do.

use super::server::{Etcd, PATIENCE, SHORT, in_time, key, open_hasty, until_free, until_waiting, wait_for};
use firstcome::LockError;
use std::time::{Duration, Instant};

/// Long enough for a server to come back on a slow machine.
const THROUGH: Duration = Duration::from_secs(60);

#[tokio::test]
async fn holds_and_places_go_on_when_etcd_is_killed_and_comes_back() {
    let Some(mut server) = Etcd::start().await else { return };
    in_time(async {
        let (one, other) = (open_hasty(server.url(), THROUGH).await, open_hasty(server.url(), THROUGH).await);
        let held = one.lock("a").owner("ann").acquire().await.expect("it is free");
        let waiting = tokio::spawn(other.lock("a").acquire());
        until_waiting(&one, "a", 1).await;
        server.kill();
        assert!(!held.is_lost() && !waiting.is_finished());
        let asked = other.lock("b").wait(Duration::from_millis(300)).acquire().await;
        assert!(matches!(asked, Err(LockError::Unavailable(_) | LockError::Unknown)), "{asked:?}");
        server.restart().await;
        wait_for("a renewal", async || held.renew(THROUGH).await.ok()).await;
        let contended = one.lock("a").try_acquire().await;
        assert!(matches!(contended, Err(LockError::Contended { ref holder, .. }) if holder == "ann"), "{contended:?}");
        assert!(!waiting.is_finished() && !held.is_lost());
        let fence = held.fence().unwrap();
        held.release().await.expect("held to the end");
        let next = waiting.await.expect("it ends").expect("its place was kept");
        assert!(fence < next.fence().unwrap());
        next.release().await.expect("held to the end");
        until_free(&one, "b").await;
    })
    .await;
}

#[tokio::test]
async fn a_release_while_etcd_is_away_is_done_when_it_comes_back() {
    let Some(mut server) = Etcd::start().await else { return };
    in_time(async {
        let locks = open_hasty(server.url(), THROUGH).await;
        let (held, dropped) = (locks.lock("a").acquire().await, locks.lock("b").acquire().await);
        let (held, dropped) = (held.expect("it is free"), dropped.expect("it is free"));
        server.kill();
        let released = tokio::spawn(held.release());
        drop(dropped);
        server.restart().await;
        released.await.expect("it ends").expect("held to the end");
        wait_for("both to be given back", async || {
            let seen = locks.view("b").await.ok()?;
            seen.view.held.is_none().then_some(())
        })
        .await;
        assert!(server.places("a").is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_hold_is_told_to_be_lost_before_anybody_else_has_the_lock() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (one, other) = (open_hasty(server.url(), SHORT).await, server.open().await);
        for _ in 0..3 {
            let held = one.lock("a").acquire().await.expect("it is free");
            let (fence, lost) = (held.fence().unwrap(), held.lost());
            let waiting = tokio::spawn({
                let request = other.lock("a").wait(PATIENCE * 2);
                async move {
                    let guard = request.acquire().await.expect("it is its turn");
                    (now(), guard)
                }
            });
            until_waiting(&other, "a", 1).await;
            server.freeze();
            lost.await;
            let lost_at = now();
            assert!(held.is_lost() && held.remaining().is_zero());
            server.thaw();
            let (granted_at, next) = waiting.await.expect("it ends");
            assert!(lost_at < granted_at && fence < next.fence().unwrap());
            // Lost is lost, though etcd may have had a renewal waiting.
            assert!(held.is_lost() && matches!(held.renew(SHORT).await, Err(LockError::Lost)));
            assert!(matches!(held.release().await, Err(LockError::Lost)));
            next.release().await.expect("held to the end");
        }
    })
    .await;
}

#[tokio::test]
async fn a_section_is_dropped_when_its_lock_is_lost() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let locks = open_hasty(server.url(), SHORT).await;
        let told = locks
            .lock("a")
            .with(async |_| {
                server.freeze();
                std::future::pending::<()>().await;
            })
            .await;
        assert!(matches!(told, Err(LockError::Lost)));
        server.thaw();
        locks.lock("a").acquire().await.expect("by another lease").release().await.expect("held to the end");
    })
    .await;
}

#[expect(clippy::disallowed_methods, reason = "a test compares when two things happened")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn what_a_client_has_that_dies_ends_with_its_lease() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let (dies, lives) = (runtime(), runtime());
    let Some(server) = lives.block_on(Etcd::start()) else { return };
    let other = lives.block_on(server.open());
    let (held, waiting) = dies.block_on(in_time(async {
        let locks = server.open_for(SHORT * 2).await;
        let held = locks.lock("a").acquire().await.expect("it is free");
        let waiting = tokio::spawn(locks.lock("a").acquire());
        until_waiting(&locks, "a", 1).await;
        (held, waiting)
    }));
    let next = lives.spawn(other.lock("a").acquire());
    lives.block_on(until_waiting(&other, "a", 2));
    // No caller renews any more, and no caller gives anything back.
    dies.shutdown_background();
    let next = lives.block_on(in_time(next)).expect("it ends").expect("the dead are passed over");
    assert!(held.fence().unwrap() < next.fence().unwrap() && held.is_lost());
    drop((held, waiting));
    assert_eq!(server.places("a"), [key(&next)]);
    lives.block_on(next.release()).expect("held to the end");
}
