//! Locks on a primary that is replaced: what the new one has not got, and what the old one says.

use super::replicas::{acquire, granted, name, one_within, open_locks, release, request};
use super::several::*;
use super::*;
use firstcome_redis::RedisLocks;
use firstcome_store::core::lock::{Acquired, Copies, LockAnswer, Released, Step, Wait, bucket_of};
use firstcome_store::{LockStore, StoreError};
use firstcome_test_servers::{Durability, GONE_SOON, Kind, Options, PRIMARY_NAME, Sentinels, Server as Node};

fn hold(lock: &str) -> String {
    format!("fc:{{l{:02x}}}:h:{lock}", bucket_of(&name(lock)))
}

async fn is_held(node: &Node, lock: &str) -> bool {
    ask::<i64>(node, &["EXISTS", &hold(lock)]).await == 1
}

/// Keeps replicas from following, without a word to them: to the sentinels they follow.
async fn cut_replicas(primary: &Node) {
    ask::<()>(primary, &["ACL", "SETUSER", "default", "-psync", "-sync"]).await;
    ask::<i64>(primary, &["CLIENT", "KILL", "TYPE", "replica"]).await;
}

/// Not with the `SYNC` of old, to which they turn when `PSYNC` is refused, and by which they never know how far they are.
async fn let_replicas_follow(primary: &Node) {
    ask::<()>(primary, &["ACL", "SETUSER", "default", "+psync"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_across_a_fail_over_that_loses_the_last_grants() {
    let Some(mut trio) = trio(1, GONE_SOON).await else { return };
    in_time(async {
        let locks = open_locks(&trio.url(), 1, hasty()).await;
        let kept = granted(&locks, "kept", 1, 1).await;
        wait_for("the copy", async || is_held(&trio.servers()[1], "kept").await.then_some(())).await;
        cut_replicas(&trio.servers()[0]).await;
        let mut highest = kept;
        for number in 0..200 {
            let fence = granted(&locks, "lost", 1, 10 + number).await;
            assert!(highest < fence);
            highest = fence;
            locks.take(release("lost", 1, 10 + number)).await.unwrap();
        }
        let last = granted(&locks, "lost", 1, 900).await;
        assert!(!is_held(&trio.servers()[1], "lost").await, "the replica follows");
        trio.kill_primary().await.expect("they know it");
        // It is held, by the process that was told so, and granted again: exactly what a fence is for.
        let after = granted(&locks, "lost", 1, 1_000).await;
        assert!(highest < last && last < after, "{highest:?} {last:?} {after:?}");
        // What was copied is still held.
        let kept = locks.take(acquire("kept", 1, 1_001, Wait::No)).await.map(|answer| answer.said);
        assert!(matches!(kept, Ok(LockAnswer::Acquired(Acquired::Contended { .. }))), "{kept:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_acknowledgement_a_grant_that_would_be_lost_is_never_told_and_clocks_do_not_matter() {
    let Some(mut trio) = trio(1, GONE_SOON).await else { return };
    in_time(async {
        let mut options = one_within(Duration::from_millis(100));
        options.ping_interval = Duration::from_millis(50);
        let locks = open_locks(&trio.url(), 1, options).await;
        // As on a server whose clock is an hour ahead of that of its replica.
        let ahead = locks.view(&name("a")).await.unwrap().now_us + 3_600_000_000;
        let counter = format!("fc:{{l{:02x}}}:n", bucket_of(&name("a")));
        ask::<()>(&trio.servers()[0], &["SET", &counter, &ahead.to_string()]).await;
        let told = granted(&locks, "a", 1, 1).await;
        assert!(ahead < told.get(), "{told:?}");
        cut_replicas(&trio.servers()[0]).await;
        assert_eq!(
            locks.take(release("a", 1, 1)).await.unwrap().said,
            LockAnswer::Released(Released::Released),
            "the replica has not got it, and nobody waits for that"
        );
        let untold = locks.take(acquire("a", 1, 2, Wait::No)).await;
        assert!(matches!(untold, Err(StoreError::Unknown)), "{untold:?}");
        let_replicas_follow(&trio.servers()[0]).await;
        let again = granted(&locks, "a", 1, 2).await;
        assert!(told < again);
        trio.kill_primary().await.expect("they know it");
        let held =
            wait_for("the next primary", async || Some(locks.take(acquire("a", 1, 3, Wait::No)).await.ok()?.said));
        let held = held.await;
        assert!(matches!(held, LockAnswer::Acquired(Acquired::Contended { .. })), "{held:?}");
        let released = locks.take(release("a", 1, 2)).await.unwrap().said;
        assert_eq!(released, LockAnswer::Released(Released::Released));
        // No process follows by now: what is granted is not told, and its fence is known all the same.
        let untold = locks.take(acquire("a", 1, 4, Wait::No)).await;
        assert!(matches!(untold, Err(StoreError::Unknown)), "{untold:?}");
        let (_, after, _) = locks.view(&name("a")).await.unwrap().view.held.expect("it stands");
        assert!(again < after, "{again:?} {after:?}");
    })
    .await;
}

/// Sentinels that name another server than before, which has a copy of the one before; that goes on.
struct Replaced {
    trio: Sentinels,
    copy: Node,
}

impl Replaced {
    async fn start() -> Option<Self> {
        let trio = trio(0, GONE_SOON).await?;
        let copy = Node::start(Kind::Redis, &Options::new(Durability::Quick)).await.expect("it starts");
        Some(Self { trio, copy })
    }

    /// Locks, one of which is held, at the first and in the copy, which then goes its own way.
    async fn with_a_hold(&self, options: LinkOptions) -> RedisLocks {
        let locks = open_locks(&self.trio.url(), 1, options).await;
        granted(&locks, "a", 1, 1).await;
        ask::<()>(&self.copy, &["REPLICAOF", "127.0.0.1", port(self.old())]).await;
        wait_for("the copy", async || is_held(&self.copy, "a").await.then_some(())).await;
        ask::<()>(&self.copy, &["REPLICAOF", "NO", "ONE"]).await;
        locks
    }

    fn old(&self) -> &Node {
        &self.trio.servers()[0]
    }

    async fn replace(&self) {
        for sentinel in &self.trio.sentinels()[..2] {
            ask::<()>(sentinel, &["SENTINEL", "REMOVE", PRIMARY_NAME]).await;
            ask::<()>(sentinel, &["SENTINEL", "MONITOR", PRIMARY_NAME, "127.0.0.1", port(&self.copy), "2"]).await;
        }
    }
}

fn port(node: &Node) -> &str {
    node.url().rsplit(':').next().expect("a port")
}

fn options() -> LinkOptions {
    let mut options = patient();
    options.ping_interval = Duration::from_millis(50);
    options
}

/// Releases a hold after the sentinels have named another primary; whether that one has it released.
async fn released_where_it_counts(replaced: &Replaced) -> bool {
    let locks = replaced.with_a_hold(options()).await;
    let before = locks.link().run_of(b"any").expect("there is a connection");
    replaced.replace().await;
    // For as long as it takes to notice at most: with the bug no node does.
    let another = async || locks.link().run_of(b"any").filter(|run| *run != before);
    let _ = tokio::time::timeout(Duration::from_secs(2), wait_for("another primary", another)).await;
    let step = Step::Release { name: name("a"), request: request(1, 1), copies: Copies::One };
    let released = wait_for("an answer", async || Some(locks.take(step.clone()).await.ok()?.said)).await;
    assert_eq!(released, LockAnswer::Released(Released::Released), "it was told");
    !is_held(&replaced.copy, "a").await
}

#[tokio::test]
async fn a_hold_is_released_where_it_counts() {
    let Some(replaced) = Replaced::start().await else { return };
    assert!(in_time(released_where_it_counts(&replaced)).await);
}

#[tokio::test]
async fn what_a_primary_answers_after_it_was_replaced_is_unknown() {
    let Some(replaced) = Replaced::start().await else { return };
    in_time(async {
        let locks = std::sync::Arc::new(replaced.with_a_hold(options()).await);
        // Its script is known: else it would be asked for anew, wherever that is by then.
        locks.take(release("warm", 1, 9)).await.unwrap();
        let before = (locks.link().run_of(b"any"), locks.link().counts().requests);
        let process = replaced.old().process().to_string();
        signal("-STOP", &process);
        let released = {
            let locks = std::sync::Arc::clone(&locks);
            tokio::spawn(async move { locks.take(release("a", 1, 1)).await })
        };
        wait_for("it to be sent", async || (before.1 < locks.link().counts().requests).then_some(())).await;
        replaced.replace().await;
        wait_for("it to be left", async || (locks.link().run_of(b"any") != before.0).then_some(())).await;
        signal("-CONT", &process);
        // It was done there, which is nothing to the process that has the locks now.
        let released = released.await.unwrap();
        assert!(matches!(released, Err(StoreError::Unknown)), "{released:?}");
        assert!(!is_held(replaced.old(), "a").await && is_held(&replaced.copy, "a").await);
        let again = Step::Release { name: name("a"), request: request(1, 1), copies: Copies::Several };
        let released = wait_for("an answer", async || Some(locks.take(again.clone()).await.ok()?.said)).await;
        assert_eq!(released, LockAnswer::Released(Released::Released));
        assert!(!is_held(&replaced.copy, "a").await);
    })
    .await;
}

fn signal(signal: &str, process: &str) {
    let sent = std::process::Command::new("kill").args([signal, process]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {signal} fails");
}

/// The damage of a bug that is planted on purpose. It is planted in one thread, so this test has no other.
#[cfg(feature = "planted-bugs")]
#[tokio::test]
async fn a_hold_that_is_released_on_a_demoted_primary_stays() {
    use firstcome_store::core::planted::{Bug, plant};

    /// Forgets the bug at the end, however the test ends: threads are used again.
    struct Planted;

    impl Drop for Planted {
        fn drop(&mut self) {
            plant(None);
        }
    }

    let Some(replaced) = Replaced::start().await else { return };
    plant(Some(Bug::ReleasedOnDemoted));
    let _planted = Planted;
    assert!(!in_time(released_where_it_counts(&replaced)).await, "it was released, and the one that counts has it");
}
