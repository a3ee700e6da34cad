//! The service that a drill plays against: a child process, which the drill may kill, or a running one by its address.

use super::messages::{Request, read_answer};
use anyhow::{Context, bail};
use firstcome::edge::Stopwatch;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The longest time of a start, recovery included.
const START: Duration = Duration::from_secs(60);
/// The longest time of one call outside the crowd.
const CALL: Duration = Duration::from_secs(15);

/// The keys of the shop's operator.
#[derive(Clone)]
pub(crate) struct KeyPair {
    pub(crate) admin: String,
    pub(crate) service: String,
}

/// A child process that ends with the drill.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    launch: Launch,
}

/// How each start launches the service.
struct Launch {
    data: PathBuf,
    keys: KeyPair,
    /// Whether people come through a proxy, which forwards their addresses.
    proxied: bool,
    stores: Stores,
}

/// The stores of the service.
#[derive(Clone)]
pub(crate) enum Stores {
    /// Its data directory.
    Directory,
    /// Members and listings in the database at this address.
    Auctions(String),
    /// Everything on servers that other nodes share, under a secret.
    Shared { redis: String, sql: String, secret: String },
}

impl Server {
    /// Starts this program on any free port, and waits for the line with its address.
    pub(crate) fn start(data: &Path, keys: &KeyPair, proxied: bool, stores: &Stores) -> anyhow::Result<Self> {
        let launch = Launch { data: data.to_owned(), keys: keys.clone(), proxied, stores: stores.clone() };
        let (child, address) = launch.run("127.0.0.1:0")?;
        Ok(Self { child, address, launch })
    }

    /// Kills the process without warning, as a power cut would.
    pub(crate) fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same port and directory.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        loop {
            // The port may be taken for a moment, by the other end of a connection that is not over yet.
            match self.launch.run(&self.address.to_string()) {
                Ok((child, _)) => {
                    self.child = child;
                    return Ok(());
                }
                Err(error) if START < watch.elapsed() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn rss(&self) -> Option<u64> {
        memory(&self.child.id().to_string(), "VmRSS:")
    }
}

/// Returns the highest resident memory of this process so far, in bytes.
pub(crate) fn highest_rss() -> Option<u64> {
    memory("self", "VmHWM:")
}

fn memory(process: &str, what: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Launch {
    fn run(&self, listen: &str) -> anyhow::Result<(Child, SocketAddr)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", listen, "--data"]).arg(&self.data);
        if self.proxied {
            command.args(["--trusted-proxy", "127.0.0.1/32"]);
        }
        // All people come from this machine, and share networks.
        command.args(["--calls-per-minute", "0", "--connections-per-address", "0", "--network-joins-per-minute", "0"]);
        command.args(["--failed-authentications-per-minute", "0"]);
        // The settings of this machine are those of another service, whose stores no drill may touch.
        command.env("FIRSTCOME_CONFIG", "/dev/null");
        for store in ["FIRSTCOME_REDIS", "FIRSTCOME_SQL", "FIRSTCOME_SECRET"] {
            command.env_remove(store).env_remove(format!("{store}_FILE"));
        }
        // The drill has judged the addresses, which name the files of TLS that they need.
        command.env("FIRSTCOME_ALLOW_PLAINTEXT", "true");
        for name in ["FIRSTCOME_TLS_CA", "FIRSTCOME_TLS_CLIENT_CERT", "FIRSTCOME_TLS_CLIENT_KEY"] {
            command.env_remove(name);
        }
        match &self.stores {
            Stores::Directory => {}
            // Not as arguments: addresses may hold passwords, which a list of processes would show.
            Stores::Auctions(sql) => {
                command.env("FIRSTCOME_SQL", sql);
            }
            Stores::Shared { redis, sql, secret } => {
                command.env("FIRSTCOME_REDIS", redis).env("FIRSTCOME_SQL", sql).env("FIRSTCOME_SECRET", secret);
            }
        }
        command.env("FIRSTCOME_ADMIN_KEY", &self.keys.admin).env("FIRSTCOME_SERVICE_KEYS", &self.keys.service);
        command.env("FIRSTCOME_LOG", "error,firstcome::audit=off").env_remove("FIRSTCOME_DEV");
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the service")?;
        let output = child.stdout.take().context("the service has no output")?;
        let mut lines = BufReader::new(output).lines();
        let address = lines.find_map(|line| line.ok()?.strip_prefix("listening on http://")?.parse().ok());
        let Some(address) = address else {
            // Fails only if it has ended already.
            let _ = child.kill();
            let status = child.wait()?;
            bail!("the service did not start ({status})");
        };
        Ok((child, address))
    }
}

/// Makes one call outside the crowd. Returns status and body.
pub(crate) async fn call(address: SocketAddr, request: &Request<'_>) -> anyhow::Result<(u16, Vec<u8>)> {
    call_within(address, request, CALL).await
}

/// The same with another patience.
pub(crate) async fn call_within(
    address: SocketAddr,
    request: &Request<'_>,
    patience: Duration,
) -> anyhow::Result<(u16, Vec<u8>)> {
    let work = async {
        let mut stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        call_on(&mut stream, request).await
    };
    tokio::time::timeout(patience, work).await.context("no answer in time")?
}

/// Makes one call over an open connection.
pub(crate) async fn call_on(stream: &mut TcpStream, request: &Request<'_>) -> anyhow::Result<(u16, Vec<u8>)> {
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    stream.write_all(&bytes).await?;
    let head = read_answer(stream, &mut bytes).await?;
    Ok((head.status, bytes[head.body].to_vec()))
}

/// Waits until `/readyz` answers 200.
pub(crate) async fn wait_ready(address: SocketAddr) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let ready = Request { method: "GET", path: &["/readyz"], ..Request::default() };
    loop {
        ticks.tick().await;
        match call(address, &ready).await {
            Ok((200, _)) => return Ok(()),
            answer if START < watch.elapsed() => bail!("the service is not ready: {answer:?}"),
            _ => {}
        }
    }
}
