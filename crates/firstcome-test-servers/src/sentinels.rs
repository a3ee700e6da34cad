//! A primary, its replicas, and three sentinels that watch over them.

use crate::install::Part;
use crate::redis_node::wait_until;
use crate::{Kind, Options, Server, ServerError, never};
use std::time::Duration;

/// How long a primary says nothing before its sentinels take it for gone, where a test waits for another one.
pub const GONE_SOON: Duration = Duration::from_millis(500);
/// The name by which the sentinels know the primary.
pub const PRIMARY_NAME: &str = "primary";
/// How many sentinels there are; two must agree.
const SENTINELS: usize = 3;

/// A primary of Redis, its replicas, and three sentinels, two of which must agree that the primary is gone. A replica is
/// made the primary a few seconds later.
///
/// No process answers under the name of the primary alone: [`Self::url`] names the sentinels.
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts them, and returns when the replicas are in step and the sentinels know of each other. Within a Tokio runtime
    /// with time and IO. A primary that does not answer for `down_after` is taken for gone, so that another one takes over.
    ///
    /// Cancel-safe: a future that is dropped ends what it has started.
    pub async fn start(options: &Options, replicas: usize, down_after: Duration) -> Result<Self, ServerError> {
        let mut options = options.clone();
        options.settings.extend(["repl-diskless-sync-delay=0", "repl-ping-replica-period=1"].map(str::to_owned));
        let mut servers = Vec::new();
        for _ in 0..=replicas {
            servers.push(Server::start(Kind::Redis, &options).await?);
        }
        let (primary, others) = servers.split_first().ok_or_else(|| never("there is no primary"))?;
        for replica in others {
            replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port())).await?;
        }
        for replica in others {
            wait_until("a replica", || replica.says("INFO replication", &["master_link_status:up"])).await?;
        }
        let settings = [
            format!("sentinel monitor {PRIMARY_NAME} 127.0.0.1 {} 2", primary.port()),
            format!("sentinel down-after-milliseconds {PRIMARY_NAME} {}", down_after.as_millis()),
            format!("sentinel failover-timeout {PRIMARY_NAME} 1500"),
        ];
        let mut sentinels = Vec::new();
        for _ in 0..SENTINELS {
            let sentinel = Server::start_as(Part::Sentinel(&settings), Kind::Redis, &options).await?;
            // They talk to each other every two seconds, and look after replicas every ten, unless told otherwise, which
            // 6.2 does not understand.
            let _ = sentinel.ask::<()>("SENTINEL DEBUG info-period 200 publish-period 100 ping-period 100").await;
            sentinels.push(sentinel);
        }
        let started = Self { servers, sentinels };
        for sentinel in 0..SENTINELS {
            wait_until("the sentinels to meet", || started.is_ready(sentinel)).await?;
        }
        Ok(started)
    }

    async fn is_ready(&self, sentinel: usize) -> bool {
        let (replicas, others) = (self.servers.len() - 1, SENTINELS - 1);
        let told = self.sentinels[sentinel].ask::<Vec<String>>(&format!("SENTINEL MASTER {PRIMARY_NAME}")).await;
        let Ok(told) = told else { return false };
        let has = |name: &str, figure: usize| {
            told.chunks(2).any(|pair| pair.first().is_some_and(|first| first == name) && pair[1] == figure.to_string())
        };
        has("num-slaves", replicas) && has("num-other-sentinels", others)
    }

    /// The address by which a client finds whichever is the primary: `redis+sentinel://HOST:PORT,…/NAME`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(Server::address).collect();
        format!("redis+sentinel://{}/{PRIMARY_NAME}", hosts.join(","))
    }

    /// The servers: first the one that was the primary at the start, then its replicas.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// To kill sentinels, and start them again.
    pub fn sentinels_mut(&mut self) -> &mut [Server] {
        &mut self.sentinels
    }

    /// Which of the servers is the primary, as the first sentinel sees it that answers.
    pub async fn primary(&self) -> Result<usize, ServerError> {
        let mut last = never("there is no sentinel");
        for sentinel in &self.sentinels {
            let asked = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {PRIMARY_NAME}");
            match sentinel.ask::<Option<(String, u16)>>(&asked).await {
                Ok(Some((_, port))) => {
                    let at = self.servers.iter().position(|server| server.port() == port);
                    return at.ok_or_else(|| never(format!("the sentinels name a stranger at port {port}")));
                }
                Ok(None) => last = never("a sentinel does not know the primary"),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Kills the primary; returns which of the servers that was.
    pub async fn kill_primary(&mut self) -> Result<usize, ServerError> {
        let primary = self.primary().await?;
        self.servers[primary].kill();
        Ok(primary)
    }

    /// Waits until all sentinels that run name another primary than this; returns which.
    pub async fn wait_for_another(&self, than: usize) -> Result<usize, ServerError> {
        for sentinel in &self.sentinels {
            let asked = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {PRIMARY_NAME}");
            wait_until("another primary", || async {
                match sentinel.ask::<Option<(String, u16)>>(&asked).await {
                    Ok(told) => told.is_some_and(|(_, port)| port != self.servers[than].port()),
                    Err(_) => true,
                }
            })
            .await?;
        }
        self.primary().await
    }

    /// Starts a server again, on its files and its port. One that was the primary believes that it is, until the sentinels
    /// tell it otherwise, some seconds later.
    pub async fn restart(&mut self, server: usize) -> Result<(), ServerError> {
        self.servers[server].restart().await
    }
}
