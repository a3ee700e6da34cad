//! Servers that are killed and stopped, and callers that go away.

use super::*;
use firstcome_store::StoreError;
use std::pin::pin;
use std::task::{Context, Waker};

#[tokio::test]
async fn without_a_minority_it_goes_on_and_without_a_majority_no_process_gets_a_lock() {
    let Some(mut set) = Set::start(5).await else { return };
    in_time(async {
        let locks = set.open(brisk()).await;
        let mut fence = take(&locks, "before").await;
        fence_of(locks.take("everywhere", "everywhere", LEASE_MS).await);
        wait_for("all to have it", async || {
            let asked = set.0[4].ask(&["EXISTS", "fcq:l:everywhere"]).await;
            (set.holders([0, 3]).await == 2 && asked == Value::Int(1)).then_some(())
        })
        .await;
        set.0[0].kill();
        set.0[3].kill();
        assert!(locks.renew(KEY, "before", LEASE_MS).await.unwrap());
        assert!(locks.release(KEY, "before").await.unwrap());
        for round in 0..20 {
            let word = format!("round-{round}");
            let next = take(&locks, &word).await;
            assert!(fence < next);
            fence = next;
            assert!(locks.release(KEY, &word).await.unwrap());
        }
        take(&locks, "held").await;
        set.0[4].kill();
        let other = set.open_known().await;
        for locks in other.iter().chain([&locks]) {
            for try_number in 0..5 {
                let tried = locks.take("another", &format!("in-vain-{try_number}"), LEASE_MS).await;
                assert!(matches!(tried, Err(StoreError::Faulted(_) | StoreError::Unknown)), "{tried:?}");
            }
        }
        let renewed = locks.renew(KEY, "held", LEASE_MS).await;
        assert!(matches!(renewed, Err(StoreError::Unknown | StoreError::Faulted(_))), "{renewed:?}");
        // It is held as long as it was before, and not told to be given back.
        assert!(locks.remaining("held").is_some());
        // Those who never had it have nothing to give back, and the others that are there have given it back.
        assert!(locks.release(KEY, "held").await.unwrap());
        let unsure = locks.release("everywhere", "everywhere").await;
        assert!(matches!(unsure, Err(StoreError::Unknown)), "{unsure:?}");
    })
    .await;
}

impl Set {
    /// A further client that may find no majority.
    async fn open_known(&self) -> Option<QuorumStore> {
        QuorumStore::open(&self.urls(), QuorumOptions::default()).await.ok()
    }
}

/// Two of three stand still while a lock is asked for, and go on when it was lost. How many of them had to be told.
pub(super) async fn frozen_majority(set: &Set) -> u64 {
    let locks = set.open(brisk()).await;
    take(&locks, "warm").await;
    locks.release(KEY, "warm").await.unwrap();
    set.until_free().await;
    set.0[0].freeze();
    set.0[1].freeze();
    let tried = locks.take(KEY, "mine", LEASE_MS).await;
    set.0[0].thaw();
    set.0[1].thaw();
    assert!(matches!(tried, Err(StoreError::Faulted(_))), "{tried:?}");
    // Both answer in the end: what was asked for before is answered before.
    for server in &set.0 {
        wait_for("an answer", async || server.try_ask(&["PING"]).await.ok()).await;
    }
    let late = async || (locks.counts().undone_late == 2).then_some(());
    let undone = tokio::time::timeout(Duration::from_secs(5), wait_for("late grants", late)).await;
    if undone.is_ok() {
        set.until_free().await;
    }
    locks.counts().undone_late
}

#[tokio::test]
async fn grants_that_come_too_late_are_given_back() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        assert_eq!(frozen_majority(&set).await, 2);
        assert_eq!(set.holders(0..3).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_node_that_stood_still_is_told_of_a_release() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(brisk()).await;
        set.0[2].freeze();
        let first = take(&locks, "mine").await;
        assert!(locks.release(KEY, "mine").await.unwrap());
        let second = take(&locks, "next").await;
        assert!(first < second);
        assert!(locks.release(KEY, "next").await.unwrap());
        set.0[2].thaw();
        set.until_free().await;
        // It is as good as before.
        set.0[0].freeze();
        let third = take(&locks, "after").await;
        assert!(second < third);
        set.0[0].thaw();
    })
    .await;
}

#[tokio::test]
async fn an_attempt_without_an_answer_is_undone_when_the_node_comes_back() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let mut options = brisk();
        // So soon an answer is given up, and the connection with it.
        options.link.answer_timeout = Duration::from_millis(400);
        let locks = set.open(options).await;
        // A script that a server does not know is not run when it comes late.
        take(&locks, "warm").await;
        locks.release(KEY, "warm").await.unwrap();
        set.until_free().await;
        set.0[0].freeze();
        set.0[1].freeze();
        let before = locks.counts();
        let tried = locks.take(KEY, "mine", LEASE_MS).await;
        assert!(matches!(tried, Err(StoreError::Faulted(_))), "{tried:?}");
        wait_for("the connections to be given up", async || (locks.counts().nodes_up <= 1).then_some(())).await;
        set.0[0].thaw();
        set.0[1].thaw();
        wait_for("them to come back", async || (locks.counts().nodes_up == before.nodes_up).then_some(())).await;
        set.until_free().await;
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let locks = set.open(unhurried()).await;
        for polls in 1..40 {
            let word = format!("gone-{polls}");
            {
                let mut asked = pin!(locks.take(KEY, &word, LEASE_MS));
                for _ in 0..polls {
                    if asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        // Then it is the caller's, who gives it back.
                        locks.release(KEY, &word).await.unwrap();
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            set.until_free().await;
        }
        take(&locks, "held").await;
        {
            let mut released = pin!(locks.release(KEY, "held"));
            assert!(released.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        set.until_free().await;
    })
    .await;
}
