//! Servers that belong together, for tests of links to them.

use super::*;
use firstcome_test_servers::{Cluster, Durability, Options, SLOTS, Sentinels, Server as Node};
use redis::FromRedisValue;

/// Sends one command over a connection of its own.
pub(crate) async fn try_ask<T: FromRedisValue>(url: &str, command: &[&str]) -> redis::RedisResult<T> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut packed = redis::cmd(command[0]);
    packed.arg(&command[1..]);
    packed.query_async(&mut connection).await
}

/// [`try_ask`] where nothing may go wrong.
pub(crate) async fn ask<T: FromRedisValue>(node: &Node, command: &[&str]) -> T {
    let told = try_ask(node.url(), command).await;
    told.unwrap_or_else(|error| panic!("{} {command:?}: {error}", node.url()))
}

/// A primary, its replicas and their sentinels. `None`, and a word about it, where there is no `redis-server`.
pub(crate) async fn trio(replicas: usize, down_after: Duration) -> Option<Sentinels> {
    if !server::is_installed() {
        return None;
    }
    Some(Sentinels::start(&Options::new(Durability::Quick), replicas, down_after).await.expect("they start"))
}

/// A cluster. `None`, and a word about it, where there is no `redis-server`.
pub(crate) async fn cluster(durability: Durability, replicas: usize) -> Option<Cluster> {
    if !server::is_installed() {
        return None;
    }
    Some(Cluster::start(&Options::new(durability), replicas).await.expect("it starts"))
}

/// A link to several, and its inbox after its first word.
pub(crate) async fn open_at(url: &str, options: LinkOptions) -> (Link, Inbox) {
    let (link, mut inbox) = Link::open(url, INBOX, options).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    assert_eq!(inbox.next().await, InboxEvent::Connected);
    (link, inbox)
}

/// The slot of a key, and which master of a fresh cluster has it.
pub(crate) async fn home(cluster: &Cluster, key: &str) -> (u16, usize) {
    let slot: u16 = ask(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", key]).await;
    let third = (0..3).find(|third| usize::from(slot) < (third + 1) * usize::from(SLOTS) / 3);
    (slot, third.expect("a slot"))
}

/// A key that a fresh cluster has at this master.
pub(crate) async fn key_at(cluster: &Cluster, master: usize) -> String {
    for number in 0.. {
        let key = format!("key:{number}");
        if home(cluster, &key).await.1 == master {
            return key;
        }
    }
    unreachable!("keys do not end");
}

/// Counts under a key.
pub(crate) async fn count(link: &Link, key: &str) -> Result<Value, LinkError> {
    link.run(&COUNT, &[key.as_bytes()], &[]).await
}

/// Waits until a replica has what there is: one key.
pub(crate) async fn wait_for_copy(replica: &Node) {
    wait_for("the copy", async || (ask::<i64>(replica, &["DBSIZE"]).await == 1).then_some(())).await;
}

/// Counts until that is done; how often that may have been.
pub(crate) async fn count_until_done(link: &Link, key: &str) -> (i64, i64) {
    let mut perhaps = 0;
    wait_for("a count", async || match count(link, key).await {
        Ok(Value::Int(count)) => Some((count, perhaps + 1)),
        Err(LinkError::Unavailable { .. }) => None,
        Err(LinkError::Unknown { .. }) => {
            perhaps += 1;
            None
        }
        other => panic!("{other:?}"),
    })
    .await
}

/// Waits until a message from this node comes into the inbox.
pub(crate) async fn expect_from(inbox: &mut Inbox, node: &Node, text: &str) {
    let mut said = tokio::time::interval(Duration::from_millis(50));
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        tokio::select! {
            event = inbox.next() => if event == InboxEvent::Message(text.as_bytes().to_vec()) { return },
            _ = said.tick() => drop(try_ask::<Value>(node.url(), &["PUBLISH", INBOX, text]).await),
        }
        assert!(tokio::time::Instant::now() < until, "nothing is heard from {}", node.url());
    }
}
