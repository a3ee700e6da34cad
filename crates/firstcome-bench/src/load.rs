//! HTTP load: some connections, each with one request under way.

use super::conditions::micros;
use super::report::{Latencies, latencies};
use anyhow::{Context, bail};
use firstcome::edge::Stopwatch;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The results of a load.
pub(crate) struct Load {
    pub(crate) elapsed: Duration,
    /// The latencies of all requests that were not refused.
    pub(crate) times: Latencies,
    pub(crate) statuses: BTreeMap<u16, u64>,
}

impl Load {
    pub(crate) fn per_second(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns how many requests were refused: the service was overloaded, or its store could not write.
    pub(crate) fn refused(&self) -> u64 {
        self.statuses.get(&REFUSED).copied().unwrap_or_default()
    }

    /// Fails if any answer had another status than these or a refusal.
    pub(crate) fn expect(&self, what: &str, wanted: &[u16]) -> anyhow::Result<()> {
        let is_known = |status: &u16| *status == REFUSED || wanted.contains(status);
        if !self.statuses.keys().all(is_known) || self.times.is_empty() {
            bail!("{what}: {:?}", self.statuses);
        }
        Ok(())
    }
}

/// The status of a refused request.
const REFUSED: u16 = 503;

/// How many requests each connection prepares if their paths differ.
const MADE: usize = 256;

/// The target of a kind of request.
#[derive(Clone)]
pub(crate) enum Aim {
    /// The same path each time.
    One(String),
    /// A different one of these paths each time.
    Many(Arc<[String]>),
}

impl Aim {
    fn path(&self, connection: usize, number: usize) -> &str {
        match self {
            Self::One(path) => path,
            // A large prime, so that consecutive requests are far apart in the list.
            Self::Many(paths) => &paths[(connection * 104_729 + number * 15_485_863) % paths.len()],
        }
    }
}

/// A kind of request. Its path and body may differ from request to request.
#[derive(Clone)]
pub(crate) struct Shot {
    pub(crate) method: &'static str,
    pub(crate) aim: Aim,
    pub(crate) key: Option<String>,
    /// The pass of a visitor, as a cookie.
    pub(crate) pass: Option<String>,
    pub(crate) body: fn(connection: usize, number: usize) -> String,
}

impl Shot {
    /// Returns the request in the form that the connection sends.
    pub(crate) fn bytes(&self, connection: usize, number: usize) -> String {
        let Self { method, aim, key, pass, body } = self;
        let (path, body) = (aim.path(connection, number), body(connection, number));
        let key = key.as_ref().map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
        let pass = pass.as_ref().map_or(String::new(), |pass| format!("cookie: firstcome_pass={pass}\r\n"));
        let content = if body.is_empty() {
            String::new()
        } else {
            format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
        };
        format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{key}{pass}{content}\r\n{body}")
    }
}

impl Shot {
    /// Prepares the requests of a connection, to send in turn; none if each request has a body of its own.
    fn made(&self, connection: usize) -> Vec<String> {
        let count = if let Aim::Many(_) = self.aim { MADE } else { 1 };
        let fresh = (self.body)(connection, 0) != (self.body)(connection, 1);
        if fresh { Vec::new() } else { (0..count).map(|number| self.bytes(connection, number)).collect() }
    }
}

/// Sends requests for `time` over `connections` connections, from a single thread.
pub(crate) fn fire(address: SocketAddr, shot: &Shot, connections: usize, time: Duration) -> anyhow::Result<Load> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let watch = Stopwatch::start();
        let guns = (0..connections).map(|at| tokio::spawn(gun(address, shot.clone(), at, time)));
        let guns: Vec<_> = guns.collect();
        let mut load = Load { elapsed: time, times: latencies(), statuses: BTreeMap::new() };
        for gun in guns {
            let (times, statuses) = gun.await??;
            load.times.add(times)?;
            for (status, count) in statuses {
                *load.statuses.entry(status).or_default() += count;
            }
        }
        load.elapsed = watch.elapsed();
        Ok(load)
    })
}

async fn gun(
    address: SocketAddr,
    shot: Shot,
    connection: usize,
    time: Duration,
) -> anyhow::Result<(Latencies, BTreeMap<u16, u64>)> {
    let mut stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let (mut times, mut statuses) = (latencies(), BTreeMap::new());
    let mut buffer = Vec::with_capacity(4096);
    // Requests are prepared where possible, so that the generator costs little, and equally much for all kinds.
    let made = shot.made(connection);
    let watch = Stopwatch::start();
    for number in 0.. {
        if time <= watch.elapsed() {
            break;
        }
        let one = Stopwatch::start();
        if made.is_empty() {
            stream.write_all(shot.bytes(connection, number).as_bytes()).await?;
        } else {
            stream.write_all(made[number % made.len()].as_bytes()).await?;
        }
        let status = answer(&mut stream, &mut buffer).await?;
        if status != REFUSED {
            times.saturating_record(micros(one.elapsed()));
        }
        *statuses.entry(status).or_default() += 1;
    }
    Ok((times, statuses))
}

/// Reads one whole answer with a `content-length`, and returns its status.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<u16> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            bail!("the connection closed in the middle of an answer");
        }
        let Some(end) = find(buffer, b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&buffer[..end]).context("the head is not text")?;
        let status = head.get(9..12).and_then(|status| status.parse().ok()).context("the head has no status")?;
        let length = head.lines().find_map(|line| length_of(line));
        let length: usize = length.map_or(Ok(0), str::parse).context("the length is not a number")?;
        while buffer.len() < end + 4 + length {
            if stream.read_buf(buffer).await? == 0 {
                bail!("the connection closed in the middle of an answer");
            }
        }
        return Ok(status);
    }
}

/// Reads a line of a head with the length of the body. Others than firstcome may write it in capital letters.
fn length_of(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(": ")?;
    name.eq_ignore_ascii_case("content-length").then_some(value)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Sends one request outside any measurement. Returns status and body.
pub(crate) async fn once(address: SocketAddr, shot: &Shot) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(shot.bytes(0, 0).as_bytes()).await?;
    let mut buffer = Vec::new();
    let status = answer(&mut stream, &mut buffer).await?;
    let body = find(&buffer, b"\r\n\r\n").map_or(0, |end| end + 4);
    Ok((status, String::from_utf8_lossy(&buffer[body..]).into_owned()))
}
