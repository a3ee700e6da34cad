//! One at a time, with fences that grow.

use super::*;
use firstcome_store::StoreError;
use firstcome_store::key::Notifications;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::time::timeout;

#[tokio::test]
async fn one_word_has_the_lock_until_it_gives_it_back() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(unhurried()).await;
        let first = take(&locks, "mine").await;
        let left = locks.remaining("mine").unwrap();
        assert!(Duration::from_secs(30) < left && left < Duration::from_millis(59_399), "{left:?}");
        let other = locks.take(KEY, "other", LEASE_MS).await;
        assert!(
            matches!(other, Ok(Tried::Held { lasts: Some(lasts) }) if lasts <= Duration::from_secs(60)),
            "{other:?}"
        );
        assert!(!locks.renew(KEY, "other", LEASE_MS).await.unwrap() && !locks.release(KEY, "other").await.unwrap());
        assert!(locks.renew(KEY, "mine", LEASE_MS).await.unwrap());
        assert!(locks.release(KEY, "mine").await.unwrap());
        assert!(!locks.release(KEY, "mine").await.unwrap() && !locks.renew(KEY, "mine", LEASE_MS).await.unwrap());
        set.until_free().await;
        assert!(first < take(&locks, "other").await);
        assert!(locks.release(KEY, "other").await.unwrap());
        set.until_free().await;
        let counts = locks.counts();
        assert_eq!((counts.nodes, counts.nodes_up, counts.granted), (3, 3, 2));
    })
    .await;
}

#[tokio::test]
async fn a_lease_ends_by_itself_and_is_lost_before() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(unhurried()).await;
        let first = fence_of(locks.take(KEY, "mine", 300).await);
        let second = wait_for("the lease to end", async || {
            let tried = locks.take(KEY, "other", 300).await;
            if is_held(&tried) {
                return None;
            }
            assert_eq!(locks.remaining("mine"), None, "it was granted again while it was believed to be had");
            Some(fence_of(tried))
        })
        .await;
        assert!(first < second);
        assert!(!locks.renew(KEY, "mine", 300).await.unwrap() && !locks.release(KEY, "mine").await.unwrap());
        assert!(locks.release(KEY, "other").await.unwrap());
    })
    .await;
}

/// Takes the lock so many times, each time as another process; what is inside looks for others, and for fences that fall.
async fn go_in_and_out(locks: Arc<QuorumStore>, name: String, times: u32, inside: Arc<(AtomicBool, AtomicU64)>) {
    for time in 0..times {
        let word = format!("{name}-{time}");
        let mut notifications = None;
        let fence = loop {
            match locks.take(KEY, &word, LEASE_MS).await {
                Ok(Tried::Taken(fence)) => break fence.get(),
                Ok(Tried::Held { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            match &mut notifications {
                None => notifications = locks.listen(KEY, &word).await,
                // A hint may fail to come.
                Some(notifications) => drop(timeout(Duration::from_millis(50), notifications.freed()).await),
            }
        };
        assert!(!inside.0.swap(true, Ordering::SeqCst), "two are inside");
        assert!(inside.1.fetch_max(fence, Ordering::SeqCst) < fence, "a fence fell");
        tokio::task::yield_now().await;
        inside.0.store(false, Ordering::SeqCst);
        assert!(locks.release(KEY, &word).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_clients_one_at_a_time_is_inside_and_fences_grow() {
    for nodes in [3, 5] {
        let Some(set) = Set::start(nodes).await else { return };
        in_time(async {
            let inside = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
            let mut tasks = Vec::new();
            for client in 0..4 {
                let locks = Arc::new(set.open(unhurried()).await);
                for task in 0..4 {
                    let name = format!("{client}-{task}");
                    tasks.push(tokio::spawn(go_in_and_out(Arc::clone(&locks), name, 8, Arc::clone(&inside))));
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
            set.until_free().await;
            let waiters = format!("fcq:w:{KEY}");
            for server in &set.0 {
                wait_for("nobody to wait", async || {
                    (server.ask(&["EXISTS", &waiters]).await == Value::Int(0)).then_some(())
                })
                .await;
            }
        })
        .await;
    }
}

/// Two clients have two of four nodes each; whether the second one was given the lock.
pub(super) async fn halves_of_four(set: &Set) -> bool {
    let (one, other) = (set.open(unhurried()).await, set.open(unhurried()).await);
    take(&one, "one").await;
    set.until_held().await;
    for node in [2, 3] {
        set.jump(node).await;
    }
    let granted = matches!(other.take(KEY, "other", LEASE_MS).await, Ok(Tried::Taken(_)));
    assert!(!granted || one.remaining("one").is_some());
    granted
}

#[tokio::test]
async fn half_of_four_is_no_majority() {
    let Some(set) = Set::start(4).await else { return };
    in_time(async {
        assert!(!halves_of_four(&set).await);
        // What the half had given was given back.
        wait_for("the halves", async || (set.holders(0..4).await == 2).then_some(())).await;
    })
    .await;
}

#[tokio::test]
async fn nodes_that_have_counted_differently_agree_before_a_grant() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(unhurried()).await;
        let first = take(&locks, "mine").await;
        locks.release(KEY, "mine").await.unwrap();
        // One node is far ahead, and others do not know.
        let knows = set.knows(0).await;
        let (front, _) = knows.rsplit_once(' ').unwrap();
        let ahead = first + 1_000_000;
        set.0[0].ask(&["SET", "fcq:node", &format!("{front} {ahead}")]).await;
        let newcomer = set.open(unhurried()).await;
        let fence = take(&newcomer, "other").await;
        // Those two that answered first need not have asked the one that is ahead; everything that was granted, two know.
        let mut know = 0;
        for node in 0..3 {
            let counter: u64 = set.knows(node).await.rsplit_once(' ').unwrap().1.parse().unwrap();
            know += u32::from(fence <= counter);
        }
        assert!(first < fence && 2 <= know, "{know} know of {fence}");
        assert!(newcomer.release(KEY, "other").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_set_must_be_one() {
    let Some(mut set) = Set::start(3).await else { return };
    in_time(async {
        let open = async |urls: Vec<String>, options| QuorumStore::open(&urls, options).await.map(drop);
        let urls = set.urls();
        let twice = vec![urls[0].clone(), urls[1].clone(), urls[0].clone()];
        let cluster = vec![urls[0].clone(), urls[1].clone(), "redis+cluster://127.0.0.1:1".to_owned()];
        for wrong in [urls[..2].to_vec(), twice, cluster, vec![urls[0].clone(); 10]] {
            let told = open(wrong.clone(), unhurried()).await;
            assert!(matches!(told, Err(firstcome_redis::OpenError::Quorum { .. })), "{wrong:?}: {told:?}");
        }
        let locks = set.open(unhurried()).await;
        let error = locks.take(KEY, "long", LEASE_MS + 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Faulted(_)), "{error}");
        // Others use it with another time.
        let mut differs = unhurried();
        differs.rejoin_after = Duration::from_secs(10);
        let stranger = set.open(differs).await;
        let error = stranger.take(KEY, "stranger", 1_000).await.unwrap_err();
        assert!(error.to_string().contains("rejoin_after 60000 ms"), "{error}");
        set.until_free().await;
        // One may be away when a client begins, and is found later. Two may not.
        set.0[2].kill();
        let late = QuorumStore::open(&urls, brisk()).await;
        assert!(matches!(late, Err(firstcome_redis::OpenError::Quorum { .. })), "a new set needs all");
        let mut known = brisk();
        known.set = firstcome_redis::NodeSet::Known;
        let late = QuorumStore::open(&urls, known.clone()).await.unwrap();
        take(&late, "late").await;
        assert_eq!(late.counts().nodes_up, 2);
        set.0[2].restart().await;
        wait_for("the third", async || (late.counts().nodes_up == 3).then_some(())).await;
        assert!(late.release(KEY, "late").await.unwrap());
        set.0[1].kill();
        set.0[2].kill();
        assert!(QuorumStore::open(&urls, known).await.is_err());
    })
    .await;
}
