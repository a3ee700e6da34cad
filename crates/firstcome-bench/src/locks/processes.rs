//! The worker processes of the benchmark. Dropping a [`Worker`] kills its process.

use super::peer::Peer;
use super::worker::Job;
use anyhow::{Context, bail};
use firstcome_bench::bench_worker::Contend;
use serde::Serialize;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A worker process.
pub(super) struct Worker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program as a worker, with a job.
    pub(super) async fn start(job: &Job) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("lock-worker");
        Self::start_as(command, job).await
    }

    /// Starts the program of a peer instead.
    pub(super) async fn start_peer(peer: &Peer, job: &Contend) -> anyhow::Result<Self> {
        let mut command = Command::new(&peer.program);
        command.args(&peer.arguments);
        let started = Self::start_as(command, job).await;
        started.with_context(|| format!("the peer {}", peer.name))
    }

    async fn start_as(mut command: Command, job: &impl Serialize) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a worker")?;
        let mut input = child.stdin.take().context("a worker has no input")?;
        let output = BufReader::new(child.stdout.take().context("a worker has no output")?).lines();
        input.write_all(format!("{}\n", serde_json::to_string(job)?).as_bytes()).await?;
        Ok(Self { child, input, output })
    }

    /// Waits until the worker is ready. Returns a peer's description of itself.
    pub(super) async fn ready(&mut self) -> anyhow::Result<Option<String>> {
        let line = self.output.next_line().await?;
        match line.as_deref().and_then(|line| line.strip_prefix("ready")) {
            Some(what) => Ok(Some(what.trim().to_owned()).filter(|what| !what.is_empty())),
            None => bail!("a worker ended before it was ready"),
        }
    }

    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        Ok(self.input.write_all(b"begin\n").await?)
    }

    pub(super) async fn done<T: serde::de::DeserializeOwned>(mut self) -> anyhow::Result<T> {
        let line = self.output.next_line().await?.context("a worker ended without a word")?;
        self.child.wait().await?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Kills the process, as a power cut would.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}
