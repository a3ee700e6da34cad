//! Questions whose answers are lost, and questions that come late.

use super::proxy::{Fate, Proxy};
use super::server::{Etcd, PATIENCE, in_time, key, open_hasty, until_free, until_waiting, wait_for};
use firstcome::Locks;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(300);

struct World {
    server: Etcd,
    proxy: Proxy,
    /// Through the proxy.
    locks: Locks,
    /// Past it.
    other: Locks,
}

impl World {
    async fn start() -> Option<Self> {
        let server = Etcd::start().await?;
        let proxy = Proxy::before(server.address()).await;
        let (locks, other) = (open_hasty(&proxy.url(), LONG).await, server.open().await);
        // So that nothing but what is meant stands in the questions.
        locks.lock("warm").acquire().await.expect("it is free").release().await.expect("held to the end");
        Some(Self { server, proxy, locks, other })
    }
}

#[tokio::test]
async fn a_place_whose_answer_was_lost_is_found_again() {
    let Some(World { server, proxy, locks, other }) = World::start().await else { return };
    in_time(async {
        for hit in 1..=5 {
            proxy.arm("lock/a/", Fate::Unanswered);
            let request = locks.lock("a").wait(PATIENCE);
            let guard = if hit % 2 == 0 { request.acquire().await } else { request.try_acquire().await };
            let guard = guard.expect("it is ours, whatever was lost");
            proxy.until_hit(hit).await;
            assert_eq!(server.places("a"), [key(&guard)]);
            let seen = other.view("a").await.expect("it answers");
            assert_eq!(seen.view.held.map(|(_, fence, _)| fence), Some(guard.fence().unwrap()));
            guard.release().await.expect("held to the end");
            assert!(server.places("a").is_empty());
        }
    })
    .await;
}

#[tokio::test]
async fn a_place_in_line_whose_answer_was_lost_is_found_again() {
    let Some(World { server, proxy, locks, other }) = World::start().await else { return };
    in_time(async {
        let held = other.lock("a").acquire().await.expect("it is free");
        proxy.arm("lock/a/", Fate::Unanswered);
        let waiting = tokio::spawn(locks.lock("a").wait(PATIENCE).acquire());
        proxy.until_hit(1).await;
        until_waiting(&other, "a", 1).await;
        let behind = tokio::spawn(other.lock("a").acquire());
        until_waiting(&other, "a", 2).await;
        held.release().await.expect("held to the end");
        let guard = waiting.await.expect("it ends").expect("it is its turn");
        assert!(!behind.is_finished());
        guard.release().await.expect("held to the end");
        behind.await.expect("it ends").expect("it is its turn").release().await.expect("held to the end");
        assert!(server.places("a").is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_is_one() {
    let Some(World { server: _server, proxy, locks, other }) = World::start().await else { return };
    in_time(async {
        let guard = locks.lock("a").acquire().await.expect("it is free");
        proxy.arm("lock/a/", Fate::Unanswered);
        guard.release().await.expect("it was held until it was given back");
        proxy.until_hit(1).await;
        until_free(&other, "a").await;
    })
    .await;
}

/// The first try of it was under way for long, and arrives when all is over.
#[tokio::test]
async fn a_place_that_comes_late_is_not_made_for_no_caller() {
    let Some(World { server, proxy, locks, other }) = World::start().await else { return };
    in_time(async {
        for (hit, waits) in [(1, false), (2, true)] {
            proxy.arm("lock/a/", Fate::Kept);
            let request = locks.lock("a").wait(PATIENCE);
            let guard = if waits { request.acquire().await } else { request.try_acquire().await };
            let guard = guard.expect("the second try arrives");
            proxy.until_hit(hit).await;
            guard.release().await.expect("held to the end");
            proxy.deliver().await;
            assert!(server.places("a").is_empty(), "nobody will ever give it back");
            other.lock("a").try_acquire().await.expect("it is free").release().await.expect("held to the end");
        }
    })
    .await;
}

#[tokio::test]
async fn a_place_that_comes_late_after_its_wish_was_given_up_is_not_made() {
    let Some(World { server, proxy, locks, other }) = World::start().await else { return };
    in_time(async {
        for hit in 1..=3 {
            proxy.arm("lock/a/", Fate::Kept);
            let waiting = tokio::spawn(locks.lock("a").wait(PATIENCE).acquire());
            proxy.until_hit(hit).await;
            waiting.abort();
            assert!(waiting.await.is_err(), "it was to be given up");
            // Each of the two processes opened with a gate.
            wait_for("the gate to be closed", async || (gates(&server) == 2 + hit).then_some(())).await;
            proxy.deliver().await;
            until_free(&other, "a").await;
            assert!(server.places("a").is_empty(), "nobody will ever give it back");
        }
    })
    .await;
}

/// How often gates were written.
fn gates(server: &Etcd) -> u32 {
    let fields = server.ask(&["get", "--prefix", "firstcome/session/", "--write-out=fields"]);
    let versions = fields.lines().filter_map(|line| line.strip_prefix("\"Version\" : "));
    versions.map(|version| version.parse::<u32>().expect("a number")).sum()
}

#[tokio::test]
async fn places_of_others_get_through_when_a_gate_is_closed() {
    let Some(World { proxy, locks, server, other: _ }) = World::start().await else { return };
    in_time(async {
        let mut tasks = Vec::new();
        for number in 0..8 {
            if number % 4 == 0 {
                proxy.arm(&format!("lock/n{number}/"), Fate::Unanswered);
            }
            let locks = locks.clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = locks.lock(&format!("n{number}")).wait(PATIENCE).acquire().await.expect("it is free");
                    guard.release().await.expect("held to the end");
                }
            }));
        }
        for task in tasks {
            task.await.expect("no task fails");
        }
        let left = server.ask(&["get", "--prefix", "--keys-only", "firstcome/lock/"]);
        assert_eq!(left, "");
    })
    .await;
}
