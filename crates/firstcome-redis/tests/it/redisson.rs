//! The layout of Redisson: what it sees of us, what we make of its keys, and who is told when a lock is given back.

use super::server::Server;
use super::several::{ask, cluster, home, key_at};
use super::{in_time, patient, wait_for};
use firstcome_redis::{Listener, Redisson};
use firstcome_store::key::{KeyStore, Notifications, Tried};
use firstcome_test_servers::{Durability, Server as Node};
use redis::Value;
use std::num::NonZeroU32;
use std::time::Duration;
use tokio::time::timeout;

const KEY: &str = "coupon:lock:SPRING";
const CHANNEL: &str = "redisson_lock__channel:{coupon:lock:SPRING}";
/// As Redisson names a thread.
const THEIRS: &str = "0d3f6dcb-4c8b-4c0a-9c73-1f2a9a7b7a55:31";
const LEASE_MS: u32 = 60_000;
const LONG: Duration = Duration::from_secs(60);
/// Within it nothing happens that is not to happen.
const MOMENT: Duration = Duration::from_millis(150);

async fn open(server: &Server) -> Redisson {
    Redisson::open(&server.url(), patient()).await.expect("the server can be used")
}

async fn listen(locks: &Redisson) -> Listener {
    locks.listen(KEY, "mine").await.expect("it tells")
}

/// The only field of a lock, and its value.
async fn field(server: &Server) -> (String, u32) {
    let all: Vec<(String, u32)> = redis::from_redis_value(server.ask(&["HGETALL", KEY]).await).expect("a hash");
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("a field")
}

async fn subscribers(server: &Server) -> i64 {
    let told = server.ask(&["PUBSUB", "NUMSUB", CHANNEL]).await;
    redis::from_redis_value::<(String, i64)>(told).expect("a channel and a number").1
}

async fn until_subscribed(server: &Server, clients: i64) {
    wait_for("the subscription", async || (subscribers(server).await == clients).then_some(())).await;
}

#[tokio::test]
async fn one_field_has_the_lock_and_finds_it_again_without_counting() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = open(&server).await;
        assert_eq!(locks.take(KEY, "mine", LEASE_MS).await.unwrap(), Tried::Taken(()));
        let (mine, times) = field(&server).await;
        let (uuid, thread) = mine.split_once(':').unwrap();
        assert_eq!((uuid.len(), thread.parse::<i64>().is_ok(), times), (36, true, 1), "{mine}");
        server.ask(&["PEXPIRE", KEY, "1000"]).await;
        // As after a lost answer: the same word has it, once, for a whole lease.
        assert_eq!(locks.take(KEY, "mine", LEASE_MS).await.unwrap(), Tried::Taken(()));
        assert_eq!(field(&server).await, (mine.clone(), 1));
        let Value::Int(lasts_ms) = server.ask(&["PTTL", KEY]).await else { panic!() };
        assert!((30_000..=60_000).contains(&lasts_ms), "{lasts_ms}");
        // Another word is another thread, and so is the same word of another client.
        let others = open(&server).await;
        for (locks, word) in [(&locks, "other"), (&others, "mine")] {
            let Tried::Held { lasts: Some(lasts) } = locks.take(KEY, word, LEASE_MS).await.unwrap() else { panic!() };
            assert!(lasts <= LONG, "{lasts:?}");
            assert!(!locks.renew(KEY, word, 90_000).await.unwrap() && !locks.release(KEY, word).await.unwrap());
            assert!(!locks.count(KEY, word, NonZeroU32::MIN).await.unwrap());
        }
        assert!(locks.count(KEY, "mine", NonZeroU32::new(3).unwrap()).await.unwrap());
        assert_eq!(field(&server).await, (mine, 3));
        assert!(locks.renew(KEY, "mine", 90_000).await.unwrap());
        // All that was counted goes at once.
        assert!(locks.release(KEY, "mine").await.unwrap());
        assert!(!locks.release(KEY, "mine").await.unwrap() && !locks.renew(KEY, "mine", 90_000).await.unwrap());
        assert_eq!(server.ask(&["DBSIZE"]).await, Value::Int(0));
    })
    .await;
}

#[tokio::test]
async fn threads_of_redisson_and_keys_of_other_layouts_are_another_process() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = open(&server).await;
        server.ask(&["HINCRBY", "theirs", THEIRS, "1"]).await;
        assert_eq!(locks.take("theirs", "mine", LEASE_MS).await.unwrap(), Tried::Held { lasts: None });
        server.ask(&["PEXPIRE", "theirs", "30000"]).await;
        let held = locks.take("theirs", "mine", LEASE_MS).await.unwrap();
        assert!(matches!(held, Tried::Held { lasts: Some(lasts) } if lasts <= Duration::from_secs(30)), "{held:?}");
        server.ask(&["SET", "word", "mine"]).await;
        assert_eq!(locks.take("word", "mine", LEASE_MS).await.unwrap(), Tried::Held { lasts: None });
        for key in ["theirs", "word"] {
            assert!(!locks.renew(key, "mine", LEASE_MS).await.unwrap() && !locks.release(key, "mine").await.unwrap());
            assert!(!locks.count(key, "mine", NonZeroU32::MIN).await.unwrap());
        }
        assert_eq!(server.ask(&["DBSIZE"]).await, Value::Int(2));
    })
    .await;
}

#[tokio::test]
async fn a_release_tells_one_of_each_client_and_other_messages_tell_all() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (locks, others) = (open(&server).await, open(&server).await);
        let (mut first, mut second, mut theirs) = (listen(&locks).await, listen(&locks).await, listen(&others).await);
        assert_eq!(subscribers(&server).await, 2);
        assert_eq!(locks.take(KEY, "mine", LEASE_MS).await.unwrap(), Tried::Taken(()));
        assert!(timeout(MOMENT, theirs.freed()).await.is_err(), "nothing was given back yet");
        assert!(locks.release(KEY, "mine").await.unwrap());
        theirs.freed().await;
        first.freed().await;
        assert!(timeout(MOMENT, second.freed()).await.is_err(), "one message, and two of a client were told");
        // One that no process waits for at the moment is for a waiter next.
        assert_eq!(server.ask(&["PUBLISH", CHANNEL, "0"]).await, Value::Int(2));
        second.freed().await;
        assert_eq!(server.ask(&["PUBLISH", CHANNEL, "1"]).await, Value::Int(2));
        first.freed().await;
        second.freed().await;
    })
    .await;
}

#[tokio::test]
async fn who_is_told_and_goes_away_lets_the_next_one_be_told() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = open(&server).await;
        let (mut first, mut second) = (listen(&locks).await, listen(&locks).await);
        {
            let mut told = std::pin::pin!(first.freed());
            assert!(timeout(MOMENT, &mut told).await.is_err());
            // It waits in front of the other, and is not polled any more.
            let before = locks.counts().pushes;
            server.ask(&["PUBLISH", CHANNEL, "0"]).await;
            wait_for("the message", async || (before < locks.counts().pushes).then_some(())).await;
        }
        drop(first);
        second.freed().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_listens_over_one_connection_and_only_while_a_process_waits() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = open(&server).await;
        let connections = async || server.text(&["CLIENT", "LIST", "TYPE", "pubsub"]).await.lines().count();
        assert_eq!(connections().await, 0);
        let mut listeners = Vec::new();
        for lock in 0..50 {
            for _ in 0..2 {
                listeners.push(locks.listen(&format!("lock-{lock}"), "mine").await);
            }
        }
        assert_eq!(connections().await, 1);
        assert_eq!(server.calls("subscribe").await, 50, "one for all who wait for a lock");
        listeners.truncate(1);
        let left = async || {
            let channels: Vec<String> =
                redis::from_redis_value(server.ask(&["PUBSUB", "CHANNELS"]).await).expect("channels");
            (channels == ["redisson_lock__channel:{lock-0}"]).then_some(())
        };
        wait_for("the others to be left", left).await;
        // One that is wanted again is heard again.
        let mut again = locks.listen("lock-7", "mine").await.unwrap();
        server.ask(&["PUBLISH", "redisson_lock__channel:{lock-7}", "0"]).await;
        again.freed().await;
        drop(locks);
        wait_for("the connection to be closed", async || (connections().await == 0).then_some(())).await;
    })
    .await;
}

#[tokio::test]
async fn while_messages_are_missed_it_is_asked_as_without_an_ear_and_then_it_is_heard_again() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = open(&server).await;
        let mut notifications = listen(&locks).await;
        let usual = Duration::from_millis(100);
        assert_eq!(notifications.patience(usual, Duration::from_secs(2)), Duration::from_millis(2_001));
        assert_eq!(
            notifications.patience(usual, Duration::MAX),
            Duration::from_secs(30),
            "somebody may die with a message"
        );
        server.kill();
        notifications.freed().await;
        wait_for("the loss", async || (notifications.patience(usual, LONG) == usual).then_some(())).await;
        server.restart().await;
        until_subscribed(&server, 1).await;
        // That it is heard again is news too: it may have been given back meanwhile.
        wait_for("the ear", async || {
            let _ = timeout(MOMENT, notifications.freed()).await;
            (usual < notifications.patience(usual, LONG)).then_some(())
        })
        .await;
        // What has come before counts for nothing.
        while timeout(MOMENT, notifications.freed()).await.is_ok() {}
        assert_eq!(server.ask(&["PUBLISH", CHANNEL, "0"]).await, Value::Int(1));
        notifications.freed().await;
        assert_eq!(server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await, Value::Int(1));
        notifications.freed().await;
        until_subscribed(&server, 1).await;
    })
    .await;
}

async fn shard_subscribers(node: &Node, channel: &str) -> i64 {
    ask::<(String, i64)>(node, &["PUBSUB", "SHARDNUMSUB", channel]).await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_messages_stay_with_the_node_that_has_the_lock() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let open = async || Redisson::open(&cluster.url(), patient()).await.expect("the cluster can be used");
        let (locks, others) = (open().await, open().await);
        for master in 0..3 {
            let key = key_at(&cluster, master).await;
            let channel = format!("redisson_lock__channel:{{{key}}}");
            let (mut ours, mut theirs) =
                (locks.listen(&key, "mine").await.unwrap(), others.listen(&key, "theirs").await.unwrap());
            for (at, node) in cluster.nodes().iter().enumerate() {
                let listen = if at == master { 2 } else { 0 };
                assert_eq!(shard_subscribers(node, &channel).await, listen, "{at} for {key}");
                let to_all: (String, i64) = ask(node, &["PUBSUB", "NUMSUB", &channel]).await;
                assert_eq!(to_all.1, 0, "nobody listens to what goes to all nodes");
            }
            assert_eq!(locks.take(&key, "mine", LEASE_MS).await.unwrap(), Tried::Taken(()));
            assert!(timeout(MOMENT, theirs.freed()).await.is_err(), "nothing was given back yet");
            assert!(locks.release(&key, "mine").await.unwrap());
            theirs.freed().await;
            ours.freed().await;
            // As Redisson does it.
            let heard: i64 = ask(&cluster.nodes()[master], &["SPUBLISH", &channel, "0"]).await;
            assert_eq!(heard, 2);
            ours.freed().await;
            drop((ours, theirs));
            let left = async || (shard_subscribers(&cluster.nodes()[master], &channel).await == 0).then_some(());
            wait_for("it to be left", left).await;
        }
        // A name whose channel is in another slot is taken and given back all the same.
        assert_eq!(locks.take("a{b", "mine", LEASE_MS).await.unwrap(), Tried::Taken(()));
        assert!(locks.release("a{b", "mine").await.unwrap());
        assert_eq!(locks.take("a{b", "other", LEASE_MS).await.unwrap(), Tried::Taken(()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_moves_to_another_node_is_heard_there_by_a_waiter_next() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let mut options = patient();
        options.ping_interval = Duration::from_millis(50);
        let locks = Redisson::open(&cluster.url(), options).await.expect("the cluster can be used");
        let key = key_at(&cluster, 0).await;
        let channel = format!("redisson_lock__channel:{{{key}}}");
        let slot = home(&cluster, &key).await.0;
        let mut before = locks.listen(&key, "waiting").await.unwrap();
        assert_eq!(locks.take(&key, "mine", LEASE_MS).await.unwrap(), Tried::Taken(()));
        cluster.begin_move(slot, 0, 1).await.expect("it begins");
        cluster.move_key(&key, 0, 1).await.expect("it moves");
        cluster.end_move(slot, 0, 1).await.expect("it ends");
        cluster.wait_until_served(slot, 1).await.expect("they agree");
        // That it is heard no more is news, and then it is asked for as without an ear.
        before.freed().await;
        let usual = Duration::from_millis(100);
        wait_for("the loss", async || (before.patience(usual, LONG) == usual).then_some(())).await;
        assert!(locks.renew(&key, "mine", LEASE_MS).await.unwrap(), "it went with its slot");
        let heard = async || {
            let notifications = tokio::time::timeout(MOMENT, locks.listen(&key, "next")).await.ok()??;
            (usual < notifications.patience(usual, LONG)).then_some(notifications)
        };
        let mut next = wait_for("an ear at the other node", heard).await;
        assert_eq!(shard_subscribers(&cluster.nodes()[1], &channel).await, 1);
        assert!(locks.release(&key, "mine").await.unwrap());
        next.freed().await;
    })
    .await;
}
