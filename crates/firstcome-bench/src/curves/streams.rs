//! What an open stream of a visitor takes of a service's memory.
//!
//! The service is a process of its own, and each stream a connection of its own that has had its first event. Next to them
//! stand as many connections that have had one short answer and are idle, so that a reader sees what the stream adds.

use super::{Curve, CurvesArgs};
use crate::coupons::Scratch;
use crate::failure::Failure;
use crate::field::Progress;
use crate::http::{KEY, Service, get};
use crate::load::{Aim, Shot, once};
use anyhow::{Context, bail};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// As many as a service has unless its operator allows more.
const STREAMS: [u32; 3] = [256, 1_024, 4_096];
/// Visitors of one room who are near its front while it tells no wait.
const NEAR: u32 = 64;

const STREAM: &str = "stream";
const IDLE: &str = "idle connection";

pub(super) fn measure(args: &CurvesArgs, progress: &Progress) -> Result<Vec<Curve>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let levels: Vec<u32> = STREAMS.into_iter().filter(|streams| *streams <= args.largest).collect();
    progress.expect(levels.len() * 2);
    let title = "Memory of streams that are open";
    let mut memory = Curve::new("streams", title, "bytes per stream", "streams", &[STREAM, IDLE]);
    // Nothing is closed in between, so one round tells.
    runtime.block_on(async {
        for line in [STREAM, IDLE] {
            let scratch = Scratch::new(&args.data, "curves-streams")?;
            let directory = scratch.0.to_str().context("the directory's name is not text")?;
            let service = Service::start(&["serve", "--listen", "127.0.0.1:0", "--data", directory])?;
            let paths = paths(service.address, levels.last().copied().unwrap_or_default()).await?;
            let (empty, mut open) = (service.rss()?, Vec::new());
            for &level in &levels {
                progress.step(&format!("{level} of: {line}"));
                for path in &paths[open.len()..level as usize] {
                    open.push(if line == STREAM {
                        opened(service.address, &format!("{path}/events"), b"event: place").await?
                    } else {
                        opened(service.address, path, br#""position":"#).await?
                    });
                }
                memory.add(line, level, service.rss()?.saturating_sub(empty) as f64 / f64::from(level));
            }
        }
        anyhow::Ok(())
    })?;
    Ok(vec![memory])
}

/// Makes rooms, and lets so many visitors join that each is near the front. Returns the paths of their tickets.
async fn paths(address: SocketAddr, count: u32) -> anyhow::Result<Vec<String>> {
    let send =
        |method, path: String, body| Shot { method, aim: Aim::One(path), key: Some(KEY.into()), pass: None, body };
    let mut paths = Vec::new();
    for number in 0..count {
        let room = format!("/v1/rooms/line-{}", number / NEAR);
        if number % NEAR == 0 {
            let put = send("PUT", room.clone(), |_, _| r#"{"max_active":1,"paused":true}"#.into());
            let (status, body) = once(address, &put).await?;
            if status != 201 {
                bail!("a room was answered {status}: {body}");
            }
        }
        // Without a user, so that each join draws a ticket of its own.
        let (status, body) = once(address, &send("POST", format!("{room}/tickets"), |_, _| "{}".into())).await?;
        let answer: Value = serde_json::from_str(&body).context("a join was answered without JSON")?;
        let ticket = answer["ticket"].as_str().with_context(|| format!("a join was answered {status}: {body}"))?;
        paths.push(format!("{room}/tickets/{ticket}"));
    }
    Ok(paths)
}

/// Opens a connection, and waits until the answer contains the text.
async fn opened(address: SocketAddr, path: &str, text: &[u8]) -> anyhow::Result<TcpStream> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(get(path).bytes(0, 0).as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.windows(text.len()).any(|window| window == text) {
        if connection.read_buf(&mut answer).await? == 0 {
            bail!("{path} was answered: {}", String::from_utf8_lossy(&answer));
        }
    }
    Ok(connection)
}
