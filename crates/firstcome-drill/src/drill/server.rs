//! The service that a drill plays against: a child of its own, which it may kill, or another person's by its address.

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

/// How long a start may take, recovery included.
const START: Duration = Duration::from_secs(60);
/// How long one call outside the crowd may take.
const CALL: Duration = Duration::from_secs(15);

/// Keys of the one who runs the shop.
#[derive(Clone)]
pub(crate) struct KeyPair {
    pub(crate) admin: String,
    pub(crate) service: String,
}

/// A child that is ended with the drill.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    launch: Launch,
}

/// How it is started, every time.
struct Launch {
    data: PathBuf,
    keys: KeyPair,
    /// Whether people come through a proxy, which says who they are.
    proxied: bool,
    stores: Stores,
}

/// What the service keeps its data in.
#[derive(Clone)]
pub(crate) enum Stores {
    /// Its directory.
    Directory,
    /// Members and listings in a database, by its address.
    Auctions(String),
    /// Everything in servers that other nodes share, under a secret.
    Shared { redis: String, sql: String, secret: String },
}

impl Server {
    /// Starts this program on any free port and waits for the line that names its address.
    pub(crate) fn start(data: &Path, keys: &KeyPair, proxied: bool, stores: &Stores) -> anyhow::Result<Self> {
        let launch = Launch { data: data.to_owned(), keys: keys.clone(), proxied, stores: stores.clone() };
        let (child, address) = launch.run("127.0.0.1:0")?;
        Ok(Self { child, address, launch })
    }

    /// Ends it as a power cut would: it gets no chance to tidy up.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself; then there is nothing to end.
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

    /// Memory of the process that is in use, in bytes.
    pub(crate) fn rss(&self) -> Option<u64> {
        memory(&self.child.id().to_string(), "VmRSS:")
    }
}

/// The most memory of this process that was in use so far, in bytes.
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
        // Everybody comes from this machine.
        command.args(["--calls-per-minute", "0", "--connections-per-address", "0"]);
        command.env_remove("FIRSTCOME_REDIS").env_remove("FIRSTCOME_SQL");
        match &self.stores {
            Stores::Directory => {}
            Stores::Auctions(sql) => {
                command.args(["--sql", sql]);
            }
            // Addresses may hold passwords, which a list of processes would show.
            Stores::Shared { redis, sql, secret } => {
                command.env("FIRSTCOME_REDIS", redis).env("FIRSTCOME_SQL", sql).env("FIRSTCOME_SECRET", secret);
            }
        }
        command.env("FIRSTCOME_ADMIN_KEY", &self.keys.admin).env("FIRSTCOME_SERVICE_KEYS", &self.keys.service);
        command.env("FIRSTCOME_LOG", "error").env_remove("FIRSTCOME_DEV");
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the service")?;
        let output = child.stdout.take().context("the service has no output")?;
        let mut lines = BufReader::new(output).lines();
        let address = lines.find_map(|line| line.ok()?.strip_prefix("listening on http://")?.parse().ok());
        let Some(address) = address else {
            // It may have ended by itself.
            let _ = child.kill();
            let status = child.wait()?;
            bail!("the service did not start ({status})");
        };
        Ok((child, address))
    }
}

/// One call outside the crowd: status and body.
pub(crate) async fn call(address: SocketAddr, request: &Request<'_>) -> anyhow::Result<(u16, Vec<u8>)> {
    let work = async {
        let mut stream = TcpStream::connect(address).await.context("cannot connect")?;
        call_on(&mut stream, request).await
    };
    tokio::time::timeout(CALL, work).await.context("no answer in time")?
}

/// The same over a connection that is there.
pub(crate) async fn call_on(stream: &mut TcpStream, request: &Request<'_>) -> anyhow::Result<(u16, Vec<u8>)> {
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    stream.write_all(&bytes).await?;
    let head = read_answer(stream, &mut bytes).await?;
    Ok((head.status, bytes[head.body].to_vec()))
}

/// Waits until `/readyz` says so.
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
