//! A cluster of three etcd members.

use crate::install::Part;
use crate::launch::ask_http;
use crate::redis_node::wait_until;
use crate::{Kind, Options, PAUSE, QUESTION, START, Server, ServerError, free_port};

/// The number of members: the fewest of which one may be gone.
const MEMBERS: usize = 3;

/// A cluster of three members, two of which must agree.
pub struct EtcdCluster {
    members: Vec<Server>,
}

impl EtcdCluster {
    /// Starts a cluster, and returns when each member takes commands. Call it within a Tokio runtime with time and IO.
    ///
    /// Cancel-safe: a dropped future ends the servers that it has started.
    pub async fn start(options: &Options) -> Result<Self, ServerError> {
        let mut members: Vec<Server> = Vec::new();
        let mut known: Vec<String> = Vec::new();
        for _ in 0..MEMBERS {
            let peer = free_port()?;
            if let Some(first) = members.first() {
                let body = format!("{{\"peerURLs\":[\"http://127.0.0.1:{peer}\"]}}");
                // The first members may still be electing a leader.
                wait_until("a member to be let in", || async {
                    let told = ask_http(first.url(), "POST /v3/cluster/member/add", &body).await;
                    told.is_ok_and(|told| told.contains(" 200 "))
                })
                .await?;
            }
            let member = Server::start_as(Part::Member { peer, others: &known }, Kind::Etcd, options).await?;
            known.push(format!("{}=http://127.0.0.1:{peer}", member.name()));
            members.push(member);
        }
        Ok(Self { members })
    }

    /// Returns the address of all members: `etcd://HOST:PORT,…`.
    pub fn url(&self) -> String {
        let hosts: Vec<&str> = self.members.iter().map(|member| member.url().trim_start_matches("etcd://")).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// Returns the members.
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// Waits until a running member reports that it leads, and returns its index.
    pub async fn leader(&self) -> Result<usize, ServerError> {
        let until = tokio::time::Instant::now() + START;
        while tokio::time::Instant::now() < until {
            for (at, member) in self.members.iter().enumerate() {
                let told = ask_http(member.url(), "POST /v3/maintenance/status", "{}");
                if tokio::time::timeout(QUESTION, told).await.is_ok_and(|told| told.is_ok_and(|told| leads(&told))) {
                    return Ok(at);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(ServerError::Start { kind: Kind::Etcd, says: "no member leads".to_owned() })
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member again, on its files and its port. Returns when it takes commands.
    pub async fn restart(&mut self, member: usize) -> Result<(), ServerError> {
        self.members[member].restart().await
    }
}

/// Returns whether the status of a member names that member as the leader.
fn leads(status: &str) -> bool {
    let word = |name: &str| status.split_once(&format!("\"{name}\":\""))?.1.split('"').next();
    word("leader").is_some_and(|leader| word("member_id") == Some(leader))
}
