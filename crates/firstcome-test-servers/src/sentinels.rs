//! A Redis primary, its replicas, and three sentinels.

use crate::install::Part;
use crate::redis_node::wait_until;
use crate::{Kind, Options, Server, ServerError, never};
use std::time::Duration;

/// How long a primary may be silent before its sentinels replace it, in tests that wait for a new primary.
pub const GONE_SOON: Duration = Duration::from_millis(500);
/// The name by which the sentinels know the primary.
pub const PRIMARY_NAME: &str = "primary";
/// The number of sentinels; two must agree.
const SENTINELS: usize = 3;

/// A Redis primary, its replicas, and three sentinels. If two of them agree that the primary is gone, a replica becomes the
/// primary a few seconds later.
///
/// The group has no address of its own: [`Self::url`] names the sentinels.
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts the servers. Returns when the replicas are in step and the sentinels know each other. If the primary does not
    /// answer for `down_after`, a replica replaces it. Call it within a Tokio runtime with time and IO.
    ///
    /// Cancel-safe: a dropped future ends the servers that it has started.
    pub async fn start(options: &Options, replicas: usize, down_after: Duration) -> Result<Self, ServerError> {
        let mut options = options.clone();
        options.settings.extend(["repl-diskless-sync-delay=0", "repl-ping-replica-period=1"].map(str::to_owned));
        let mut servers = Vec::new();
        for _ in 0..=replicas {
            servers.push(Server::start(Kind::Redis, &options).await?);
        }
        let (primary, others) = servers.split_first().ok_or_else(|| never("there is no primary"))?;
        for replica in others {
            replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.peer_port())).await?;
        }
        for replica in others {
            wait_until("a replica", || replica.says("INFO replication", &["master_link_status:up"])).await?;
        }
        let settings = [
            format!("sentinel monitor {PRIMARY_NAME} 127.0.0.1 {} 2", primary.peer_port()),
            format!("sentinel down-after-milliseconds {PRIMARY_NAME} {}", down_after.as_millis()),
            format!("sentinel failover-timeout {PRIMARY_NAME} 1500"),
        ];
        let mut sentinels = Vec::new();
        for _ in 0..SENTINELS {
            let sentinel = Server::start_as(Part::Sentinel(&settings), Kind::Redis, &options).await?;
            // By default they talk to each other every two seconds, and examine replicas every ten. A sentinel that was not
            // scheduled for two seconds does nothing for 30 more (TILT). Redis 6.2 does not know this command.
            let _ = sentinel
                .ask::<()>("SENTINEL DEBUG info-period 200 publish-period 100 ping-period 100 tilt-period 1000")
                .await;
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

    /// Returns the address by which a client finds the present primary: `redis+sentinel://HOST:PORT,…/NAME`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(Server::address).collect();
        format!("redis+sentinel://{}/{PRIMARY_NAME}", hosts.join(","))
    }

    /// Returns the address by which a client finds the present primary by TLS, of a group with [`Options::tls`].
    pub fn tls_url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.peer_port())).collect();
        format!("rediss+sentinel://{}/{PRIMARY_NAME}", hosts.join(","))
    }

    /// Returns the servers: first the primary of the start, then its replicas.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// Returns the sentinels, to kill and restart them.
    pub fn sentinels_mut(&mut self) -> &mut [Server] {
        &mut self.sentinels
    }

    /// Returns which server is the primary, by the first sentinel that answers.
    pub async fn primary(&self) -> Result<usize, ServerError> {
        let mut last = never("there is no sentinel");
        for sentinel in &self.sentinels {
            let asked = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {PRIMARY_NAME}");
            match sentinel.ask::<Option<(String, u16)>>(&asked).await {
                Ok(Some((_, port))) => {
                    let at = self.servers.iter().position(|server| server.peer_port() == port);
                    return at.ok_or_else(|| never(format!("the sentinels name an unknown server at port {port}")));
                }
                Ok(None) => last = never("a sentinel does not know the primary"),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Kills the primary, and returns which server it was.
    pub async fn kill_primary(&mut self) -> Result<usize, ServerError> {
        let primary = self.primary().await?;
        self.servers[primary].kill();
        Ok(primary)
    }

    /// Waits until all running sentinels name another primary than this one, and returns which server it is.
    pub async fn wait_for_another(&self, than: usize) -> Result<usize, ServerError> {
        for sentinel in &self.sentinels {
            let asked = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {PRIMARY_NAME}");
            wait_until("another primary", || async {
                match sentinel.ask::<Option<(String, u16)>>(&asked).await {
                    Ok(told) => told.is_some_and(|(_, port)| port != self.servers[than].peer_port()),
                    Err(_) => true,
                }
            })
            .await?;
        }
        self.primary().await
    }

    /// Starts a server again, on its files and its port. A former primary acts as one until the sentinels correct it, seconds
    /// later.
    pub async fn restart(&mut self, server: usize) -> Result<(), ServerError> {
        self.servers[server].restart().await
    }
}
