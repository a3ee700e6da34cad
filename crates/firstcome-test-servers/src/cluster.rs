//! A Redis Cluster: several Redis servers that share the keys.

use crate::install::Part;
use crate::redis_node::wait_until;
use crate::{Kind, Options, Server, ServerError, never};
use redis::Value;

/// The number of slots of a cluster.
pub const SLOTS: u16 = 16_384;
/// The number of masters: the fewest that can agree that one is gone.
const MASTERS: usize = 3;

/// A cluster of three masters, each with a third of the slots, in order.
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster with this many replicas of each master. Returns when each node reports that the cluster is well. Call it
    /// within a Tokio runtime with time and IO.
    ///
    /// Cancel-safe: a dropped future ends the servers that it has started.
    pub async fn start(options: &Options, replicas: usize) -> Result<Self, ServerError> {
        let mut options = options.clone();
        options.settings.extend(["cluster-node-timeout=1000", "repl-diskless-sync-delay=0"].map(str::to_owned));
        let mut nodes = Vec::new();
        for _ in 0..MASTERS * (1 + replicas) {
            nodes.push(Server::start_as(Part::Node, Kind::Redis, &options).await?);
        }
        let cluster = Self { nodes };
        cluster.assign().await?;
        for (at, node) in cluster.nodes.iter().enumerate() {
            if at != 0 {
                node.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", cluster.nodes[0].peer_port())).await?;
            }
        }
        let known = format!("cluster_known_nodes:{}", cluster.nodes.len());
        let known = [known.as_str()];
        for node in &cluster.nodes {
            wait_until("the nodes to meet", || node.says("CLUSTER INFO", &known)).await?;
        }
        cluster.follow().await?;
        cluster.wait_until_well().await?;
        Ok(cluster)
    }

    /// Gives each master its slots and a config epoch of its own, so that the masters need not agree on one.
    async fn assign(&self) -> Result<(), ServerError> {
        let thirds = (0..=MASTERS).map(|third| third * usize::from(SLOTS) / MASTERS).collect::<Vec<_>>();
        for (at, node) in self.nodes.iter().enumerate() {
            node.ask::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1)).await?;
            if let Some(&[from, to]) = thirds.windows(2).nth(at).and_then(|pair| pair.first_chunk()) {
                // ADDSLOTSRANGE needs Redis 7.0.
                let slots: Vec<String> = (from..to).map(|slot| slot.to_string()).collect();
                node.ask::<()>(&format!("CLUSTER ADDSLOTS {}", slots.join(" "))).await?;
            }
        }
        Ok(())
    }

    /// Makes the nodes after the masters their replicas.
    async fn follow(&self) -> Result<(), ServerError> {
        for (at, replica) in self.nodes.iter().enumerate().skip(MASTERS) {
            let id: String = self.nodes[at % MASTERS].ask("CLUSTER MYID").await?;
            // The node may not know this id yet.
            let command = format!("CLUSTER REPLICATE {id}");
            wait_until("a replica", || async { replica.ask::<()>(&command).await.is_ok() }).await?;
            wait_until("a replica", || replica.says("INFO replication", &["master_link_status:up"])).await?;
        }
        Ok(())
    }

    /// Waits until each running node reports that the cluster is well.
    pub async fn wait_until_well(&self) -> Result<(), ServerError> {
        for node in &self.nodes {
            wait_until("the cluster to be well", || async {
                node.ask::<String>("PING").await.is_err() || node.says("CLUSTER INFO", &["cluster_state:ok"]).await
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until all running nodes report that this node serves a slot.
    pub async fn wait_until_served(&self, slot: u16, by: usize) -> Result<(), ServerError> {
        for node in &self.nodes {
            wait_until("the news of a slot", || async {
                match slots(node).await {
                    Ok(told) => {
                        let range = told.into_iter().find(|(from, to, _)| (*from..=*to).contains(&slot));
                        range.is_some_and(|(.., port)| port == self.nodes[by].port())
                    }
                    Err(_) => node.ask::<String>("PING").await.is_err(),
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Returns the address by which a client finds all nodes: `redis+cluster://HOST:PORT,…`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(Server::address).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Returns the address by which a client finds all nodes by TLS, of a cluster with [`Options::tls`].
    pub fn tls_url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.peer_port())).collect();
        format!("rediss+cluster://{}", hosts.join(","))
    }

    /// Returns the nodes. First come the three masters as of the start, in the order of their slots. Then come the replicas of
    /// the first, the second and the third master.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Starts a node again, on its files and its port. Returns when it answers, which is before the cluster is well.
    pub async fn restart(&mut self, node: usize) -> Result<(), ServerError> {
        self.nodes[node].restart().await
    }

    /// Begins to move a slot to another master. From now on a request for a key that the old master lacks goes to the new one
    /// (`ASK`), and the old one creates no keys.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<(), ServerError> {
        let [source, target]: [String; 2] = [self.id(from).await?, self.id(to).await?];
        self.nodes[to].ask::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}")).await?;
        self.nodes[from].ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}")).await
    }

    /// Moves one key of a slot, after [`Self::begin_move`]. Repeatable.
    pub async fn move_key(&self, key: &str, from: usize, to: usize) -> Result<(), ServerError> {
        self.nodes[from].ask(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", self.nodes[to].port())).await
    }

    /// Ends the move of a slot: moves the remaining keys, and gives the slot to the new master. Other nodes learn of it later;
    /// the old master answers `MOVED`.
    pub async fn end_move(&self, slot: u16, from: usize, to: usize) -> Result<(), ServerError> {
        loop {
            let keys: Vec<String> = self.nodes[from].ask(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).await?;
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.move_key(&key, from, to).await?;
            }
        }
        let target = self.id(to).await?;
        // The new master first: a client that the old master redirects finds it ready.
        self.nodes[to].ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {target}")).await?;
        self.nodes[from].ask(&format!("CLUSTER SETSLOT {slot} NODE {target}")).await
    }

    async fn id(&self, node: usize) -> Result<String, ServerError> {
        let node = self.nodes.get(node).ok_or_else(|| never(format!("there is no node {node}")))?;
        node.ask("CLUSTER MYID").await
    }
}

/// Reads the ranges of slots that a node knows, and the port of the master of each.
async fn slots(node: &Server) -> Result<Vec<(u16, u16, u16)>, ServerError> {
    let read = |range: Value| {
        let [from, to, master] = first(range)?;
        let [_, port]: [Value; 2] = first(master)?;
        let number = |value| redis::from_redis_value::<u16>(value).ok();
        Some((number(from)?, number(to)?, number(port)?))
    };
    let told: Vec<Value> = node.ask("CLUSTER SLOTS").await?;
    told.into_iter().map(read).collect::<Option<_>>().ok_or_else(|| never("CLUSTER SLOTS cannot be read"))
}

/// Returns the first `COUNT` items of a list.
fn first<const COUNT: usize>(value: Value) -> Option<[Value; COUNT]> {
    let Value::Array(mut items) = value else { return None };
    items.truncate(COUNT);
    items.try_into().ok()
}
