//! Locks over several servers, against servers of the tests' own that are killed, stopped, emptied, and whose keys end early.

mod clocks;
mod exclusion;
mod faults;
#[cfg(feature = "planted-bugs")]
mod planted;
mod rejoining;
mod waiting;

use super::server::{PATIENCE, Server, wait_for};
use super::{in_time, patient};
use firstcome_redis::{QuorumOptions, QuorumStore};
use firstcome_store::key::{KeyStore, Tried};
use redis::Value;
use std::time::Duration;

const KEY: &str = "coupon:SPRING";
/// The longest lease of these tests, unless they wait for a node that has forgotten.
const LEASE_MS: u32 = 60_000;

/// Servers that know nothing of each other.
pub(super) struct Set(pub(super) Vec<Server>);

impl Set {
    /// Starts so many. `None`, and a word about it, where there is no `redis-server`.
    async fn start(nodes: usize) -> Option<Self> {
        let mut servers = Vec::new();
        for _ in 0..nodes {
            servers.push(Server::start(&[]).await?);
        }
        Some(Self(servers))
    }

    fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    /// One client, as a process would be.
    async fn open(&self, options: QuorumOptions) -> QuorumStore {
        QuorumStore::open(&self.urls(), options).await.expect("the servers can be used")
    }

    /// A key of a lock on each server that answers.
    async fn holders(&self, nodes: impl IntoIterator<Item = usize>) -> usize {
        let mut holders = 0;
        for node in nodes {
            holders += usize::from(self.0[node].ask(&["EXISTS", &format!("fcq:l:{KEY}")]).await == Value::Int(1));
        }
        holders
    }

    /// Waits until no server has the lock, which is long before its lease ends.
    async fn until_free(&self) {
        wait_for("the lock to be gone", async || (self.holders(0..self.0.len()).await == 0).then_some(())).await;
    }

    /// What a server knows of itself; nothing before anybody has come.
    async fn knows(&self, node: usize) -> String {
        let known: Option<String> =
            redis::from_redis_value(self.0[node].ask(&["GET", "fcq:node"]).await).expect("a text or nothing");
        known.unwrap_or_default()
    }

    /// Waits until all servers have the lock: a grant needs only most of them.
    async fn until_held(&self) {
        let all = self.0.len();
        wait_for("all to have the lock", async || (self.holders(0..all).await == all).then_some(())).await;
    }

    async fn votes(&self, node: usize) -> bool {
        self.knows(node).await.starts_with("1 ")
    }

    /// Lets a key end at once on a server, as if its clock had jumped.
    async fn jump(&self, node: usize) {
        self.0[node].ask(&["PEXPIRE", &format!("fcq:l:{KEY}"), "1"]).await;
        let gone = async || (self.holders([node]).await == 0).then_some(());
        wait_for("the key to end", gone).await;
    }
}

/// Of a new set, with times that only a fault can reach.
fn unhurried() -> QuorumOptions {
    let mut options = QuorumOptions::default().new_set();
    (options.node_timeout, options.link) = (PATIENCE, patient());
    options
}

/// The same, that does not wait long for a node.
fn brisk() -> QuorumOptions {
    let mut options = unhurried();
    options.node_timeout = Duration::from_millis(250);
    options
}

/// Takes a lock that is free; its fence.
#[track_caller]
fn fence_of(tried: Result<Tried<firstcome_store::core::lock::Fence>, firstcome_store::StoreError>) -> u64 {
    match tried {
        Ok(Tried::Taken(fence)) => fence.get(),
        other => panic!("{other:?}"),
    }
}

fn is_held<G>(tried: &Result<Tried<G>, firstcome_store::StoreError>) -> bool {
    matches!(tried, Ok(Tried::Held { .. }))
}

async fn take(locks: &QuorumStore, word: &str) -> u64 {
    fence_of(locks.take(KEY, word, LEASE_MS).await)
}
