//! The Redis server that is measured: started by the benchmark, or a named one on this machine.

use super::traced::unreachable;
use anyhow::{Context, bail};
use firstcome::edge::Stopwatch;
use redis::aio::MultiplexedConnection;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The longest time of a start.
const START: Duration = Duration::from_secs(30);
/// How many round trips are timed at a time.
const TRIPS: usize = 2_000;

/// A server, with a connection for its statistics.
pub(super) struct Server {
    pub(super) url: String,
    connection: MultiplexedConnection,
    /// The started server, which ends with this value.
    _child: Option<Child>,
}

/// The server's statistics.
#[derive(Clone, Copy, Default)]
pub(super) struct Figures {
    /// Scripts that clients ran or loaded. Commands that scripts call are not counted.
    pub(super) scripts: u64,
    /// SET commands, including those of scripts: a try of a spin lock.
    pub(super) tries: u64,
    /// The processor time in µs.
    pub(super) cpu_us: f64,
    pub(super) keys: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.scripts += other.scripts;
        self.tries += other.tries;
        self.cpu_us += other.cpu_us;
        self.keys += other.keys;
    }
}

impl Server {
    /// Starts a server without persistence, on a free port.
    pub(super) async fn start(directory: &Path) -> anyhow::Result<Self> {
        // Another process may take the port in between: then this tries another port.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.arg("--dir").arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child =
                command.kill_on_drop(true).spawn().context("cannot start redis-server; name one with --store")?;
            let url = format!("redis://127.0.0.1:{port}");
            let watch = Stopwatch::start();
            while child.try_wait()?.is_none() && watch.elapsed() < START {
                if let Ok(connection) = connect(&url).await {
                    return Ok(Self { url, connection, _child: Some(child) });
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        bail!("redis-server does not start");
    }

    /// Connects to a running server.
    pub(super) async fn at(url: &str) -> anyhow::Result<Self> {
        Ok(Self { url: url.to_owned(), connection: connect(url).await?, _child: None })
    }

    async fn info(&self) -> anyhow::Result<String> {
        let mut connection = self.connection.clone();
        Ok(redis::cmd("INFO").arg("everything").query_async(&mut connection).await?)
    }

    pub(super) async fn version(&self) -> anyhow::Result<String> {
        let info = self.info().await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").trim().to_owned())
    }

    pub(super) async fn figures(&self) -> anyhow::Result<Figures> {
        let info = self.info().await?;
        let text = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name: &str| text(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        let calls = |name: &str| {
            let stats = text(&format!("cmdstat_{name}")).and_then(|text| text.strip_prefix("calls="));
            stats.and_then(|text| text.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let keys = info.lines().filter_map(|line| line.split_once(":keys=")?.1.split(',').next()?.parse::<u64>().ok());
        Ok(Figures {
            scripts: calls("eval") + calls("evalsha") + calls("script|load"),
            tries: calls("set"),
            cpu_us: (number("used_cpu_user") + number("used_cpu_sys")) * 1e6,
            keys: keys.sum(),
        })
    }

    /// Returns the ids of the server's connections.
    pub(super) async fn connections(&self) -> anyhow::Result<BTreeSet<u64>> {
        let mut connection = self.connection.clone();
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await?;
        Ok(list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok()).collect())
    }

    /// Deletes a key that the benchmark has made in another layout.
    pub(super) async fn forget(&self, key: &str) -> anyhow::Result<()> {
        let mut connection = self.connection.clone();
        redis::cmd("DEL").arg(key).query_async::<()>(&mut connection).await?;
        Ok(())
    }

    /// Deletes all keys: a library may leave the key of a wait behind that it gave up, which would block the next one.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let mut connection = self.connection.clone();
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
        Ok(())
    }

    /// Times PING, one after the other on a new connection, in µs.
    pub(super) fn round_trips_us(&self) -> anyhow::Result<Vec<f64>> {
        let mut connection = redis::Client::open(self.url.as_str())?.get_connection()?;
        let ping = redis::cmd("PING");
        let mut times_us = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let watch = Stopwatch::start();
            ping.query::<()>(&mut connection)?;
            times_us.push(watch.elapsed().as_nanos() as f64 / 1e3);
        }
        Ok(times_us)
    }
}

async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(url).context("cannot read the Redis address")?;
    let address = client.get_connection_info().addr().to_string();
    if !["127.", "localhost", "[::1]", "/"].iter().any(|local| address.starts_with(local)) {
        bail!("a benchmark loads only a Redis on this machine, not {address}");
    }
    let connection = client.get_multiplexed_async_connection().await;
    connection.map_err(|error| unreachable(&format!("cannot reach Redis at {address}: {error}")))
}
