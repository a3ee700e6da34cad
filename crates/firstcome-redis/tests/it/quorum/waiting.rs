//! Those who wait are told, one at a time.

use super::*;
use firstcome_redis::QuorumNotifications;
use firstcome_store::key::Notifications;
use std::pin::pin;
use std::task::{Context, Waker};

/// Comes to wait: asks, listens, and asks again.
async fn wait_in_line(locks: &QuorumStore, word: &str) -> QuorumNotifications {
    let notifications = locks.listen(KEY, word).await.expect("there is somebody to tell");
    assert!(is_held(&locks.take(KEY, word, LEASE_MS).await));
    notifications
}

impl Set {
    /// How many wait on all servers together.
    async fn waiting(&self) -> i64 {
        let mut sum = 0;
        for server in &self.0 {
            let Value::Int(waiting) = server.ask(&["ZCARD", &format!("fcq:w:{KEY}")]).await else { panic!() };
            sum += waiting;
        }
        sum
    }

    async fn until_waiting(&self, wanted: i64) {
        wait_for("waiters", async || (self.waiting().await == wanted).then_some(())).await;
    }
}

fn is_quiet(notifications: &mut QuorumNotifications) -> bool {
    pin!(notifications.freed()).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn a_release_wakes_the_first_and_no_process_comes_before_him() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        // So long a process that was told has the lock for himself.
        let mut options = brisk();
        options.node_timeout = Duration::from_secs(5);
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(set.open(options.clone()).await);
        }
        take(&clients[0], "holder").await;
        set.until_held().await;
        let mut first = wait_in_line(&clients[1], "first").await;
        set.until_waiting(3).await;
        let mut second = wait_in_line(&clients[2], "second").await;
        set.until_waiting(6).await;
        clients[0].release(KEY, "holder").await.unwrap();
        first.freed().await;
        let barging = clients[0].take(KEY, "barging", LEASE_MS).await;
        assert!(is_held(&barging), "{barging:?}");
        assert!(is_quiet(&mut second));
        take(&clients[1], "first").await;
        assert!(is_quiet(&mut second));
        drop(first);
        clients[1].release(KEY, "first").await.unwrap();
        second.freed().await;
        take(&clients[2], "second").await;
        drop(second);
        clients[2].release(KEY, "second").await.unwrap();
        set.until_free().await;
        set.until_waiting(0).await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_goes_makes_way_for_the_next() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let mut options = brisk();
        options.node_timeout = PATIENCE;
        let (one, other) = (set.open(options.clone()).await, set.open(options).await);
        take(&one, "holder").await;
        set.until_held().await;
        let gone = wait_in_line(&one, "gone").await;
        set.until_waiting(3).await;
        drop(gone);
        set.until_waiting(0).await;
        let mut told = wait_in_line(&one, "told").await;
        set.until_waiting(3).await;
        let mut next = wait_in_line(&other, "next").await;
        set.until_waiting(6).await;
        one.release(KEY, "holder").await.unwrap();
        told.freed().await;
        assert!(is_quiet(&mut next));
        // Told, and gone all the same.
        drop(told);
        next.freed().await;
        take(&other, "next").await;
    })
    .await;
}

#[tokio::test]
async fn a_waiter_whose_process_died_is_passed_over() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        let mut options = brisk();
        options.node_timeout = PATIENCE;
        let (one, dying) = (set.open(options.clone()).await, set.open(options).await);
        take(&one, "holder").await;
        set.until_held().await;
        let channel = {
            let notifications = wait_in_line(&dying, "dead").await;
            set.until_waiting(3).await;
            let member = set.0[0].ask(&["ZRANGE", &format!("fcq:w:{KEY}"), "0", "0"]).await;
            // It leaves without a word.
            std::mem::forget(notifications);
            let members: Vec<String> = redis::from_redis_value(member).unwrap();
            members[0].split(' ').next().unwrap().to_owned()
        };
        for server in &set.0 {
            let killed = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            assert!(matches!(killed, Value::Int(2)), "{killed:?}");
        }
        drop(dying);
        for server in &set.0 {
            wait_for("its end", async || {
                let told: (String, i64) =
                    redis::from_redis_value(server.ask(&["PUBSUB", "NUMSUB", &channel]).await).unwrap();
                (told.1 == 0).then_some(())
            })
            .await;
        }
        let mut living = wait_in_line(&one, "living").await;
        for server in &set.0 {
            wait_for("its inbox", async || {
                let Value::Array(channels) = server.ask(&["PUBSUB", "CHANNELS", "fcq:i:*"]).await else { panic!() };
                (channels.len() == 1).then_some(())
            })
            .await;
        }
        one.release(KEY, "holder").await.unwrap();
        living.freed().await;
        take(&one, "living").await;
    })
    .await;
}
