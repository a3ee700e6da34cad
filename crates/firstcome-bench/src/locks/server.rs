//! The Redis that is measured: one of the benchmark's own, or one on this machine that a process named.

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

/// How long a start may take.
const START: Duration = Duration::from_secs(30);
/// Round trips that are timed at a time.
const TRIPS: usize = 2_000;

/// A server, and a connection to ask it about itself.
pub(super) struct Server {
    pub(super) url: String,
    connection: MultiplexedConnection,
    /// Ended with this value.
    _child: Option<Child>,
}

/// What the server counts.
#[derive(Clone, Copy, Default)]
pub(super) struct Figures {
    /// Scripts that clients ran, and that they loaded. What scripts call in turn is not among them.
    pub(super) scripts: u64,
    /// SETs, also those of scripts: a peer's way to try.
    pub(super) tries: u64,
    /// Processor time in µs.
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
    /// Starts one that keeps nothing, on a free port.
    pub(super) async fn start(directory: &Path) -> anyhow::Result<Self> {
        // Another process may take the port between the look and the start: then another is tried.
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

    /// One that runs already.
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

    /// Which connections there are, each by its number.
    pub(super) async fn connections(&self) -> anyhow::Result<BTreeSet<u64>> {
        let mut connection = self.connection.clone();
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await?;
        Ok(list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok()).collect())
    }

    /// Forgets keys of other layouts that a benchmark has made.
    pub(super) async fn forget(&self, key: &str) -> anyhow::Result<()> {
        let mut connection = self.connection.clone();
        redis::cmd("DEL").arg(key).query_async::<()>(&mut connection).await?;
        Ok(())
    }

    /// How long the shortest question and its answer take, one after the other over a connection of one's own, in µs.
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
