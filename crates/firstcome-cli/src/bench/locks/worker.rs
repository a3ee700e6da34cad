//! One of the processes that want the lock. It reads what to do from its standard input, a line of JSON, says `ready`,
//! waits for another line, and answers with a line of JSON. It ends when its input does.

use super::clock::MachineClock;
use super::section::Section;
use super::strategy::{Strategy, Way};
use super::traced::{Keep, Watched};
use crate::output::write_out;
use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a process is to do.
#[derive(Serialize, Deserialize)]
pub(super) enum Job {
    /// Run the critical section again and again.
    Contend(Contend),
    /// Hold a lock until killed.
    Hold { url: String, name: String, lease_ms: u64 },
    /// Wait for a lock with so many tasks until killed.
    Wait { url: String, name: String, waiters: u32 },
}

/// How the critical section is contended for.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Contend {
    pub(super) strategy: Strategy,
    pub(super) url: String,
    pub(super) name: String,
    pub(super) counter: PathBuf,
    /// Where each acquisition is written down.
    pub(super) passes: PathBuf,
    pub(super) tasks: u32,
    /// It ends after this time...
    pub(super) time_ms: u64,
    /// ... or after this process has had the lock so many times.
    pub(super) most: u64,
}

/// What a process did.
#[derive(Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) elapsed_us: u64,
    pub(super) requests: u64,
    pub(super) pushes: u64,
}

/// One acquisition, or a wait that ended without one.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    pub(super) asked_ns: u64,
    /// When it was granted, or given up.
    pub(super) ended_ns: u64,
    pub(super) served: bool,
    /// Since the holder before began to give the lock back; `u64::MAX` if nobody waited then.
    pub(super) handed_over_ns: u64,
    /// The place in line that the store gave, 0 if it knows none.
    pub(super) place: u64,
    pub(super) fence: u64,
}

impl Pass {
    const BYTES: usize = 48;

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Self { asked_ns, ended_ns, served, handed_over_ns, place, fence } = *self;
        for word in [asked_ns, ended_ns, u64::from(served), handed_over_ns, place, fence] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(())
    }

    /// All that a process wrote down.
    pub(super) fn read_all(path: &Path) -> anyhow::Result<Vec<Self>> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let pass = |bytes: &[u8]| Self {
            asked_ns: word(&bytes[..8]),
            ended_ns: word(&bytes[8..16]),
            served: word(&bytes[16..24]) == 1,
            handed_over_ns: word(&bytes[24..32]),
            place: word(&bytes[32..40]),
            fence: word(&bytes[40..]),
        };
        Ok(bytes.chunks_exact(Self::BYTES).map(pass).collect())
    }
}

/// Lines from standard input. When they end, so does the process: whoever started it is gone.
fn lines() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        std::process::exit(1);
    });
    receiver
}

pub(super) fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut lines = lines();
        let job = lines.recv().await.context("nothing to do")?;
        match serde_json::from_str(&job)? {
            Job::Contend(job) => contend(job, lines).await,
            Job::Hold { url, name, lease_ms } => {
                let watched = Watched::open(&url, Keep::Counts).await?;
                let guard = watched.locks.lock(&name).lease(Duration::from_millis(lease_ms)).acquire().await?;
                write_out(b"ready\n")?;
                std::future::pending::<()>().await;
                guard.release().await?;
                Ok(())
            }
            Job::Wait { url, name, waiters } => wait(&url, &name, waiters).await,
        }
    })
}

async fn wait(url: &str, name: &str, waiters: u32) -> anyhow::Result<()> {
    let watched = Watched::open(url, Keep::Counts).await?;
    for _ in 0..waiters {
        let request = watched.locks.lock(name);
        tokio::spawn(async move {
            // It never comes: the process is killed.
            let _ = request.acquire().await;
            std::future::pending::<()>().await;
        });
    }
    while watched.locks.view(name).await?.view.waiters < waiters {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    write_out(b"ready\n")?;
    std::future::pending().await
}

async fn contend(job: Contend, mut lines: tokio::sync::mpsc::UnboundedReceiver<String>) -> anyhow::Result<()> {
    let clock = MachineClock::start();
    let way = Arc::new(Way::open(job.strategy, &job.url, &job.counter.with_file_name("locks")).await?);
    let section = Arc::new(Section::open(&job.counter)?);
    // The scripts are made known before anything is measured.
    let elsewhere = format!("{}-{}", job.name, std::process::id());
    if let Some(held) = way.acquire(&elsewhere, Duration::from_secs(10)).await? {
        held.release().await?;
    }
    write_out(b"ready\n")?;
    lines.recv().await.context("no word to begin")?;
    let before = way.traffic();
    let start_ns = clock.now_ns();
    let job = Arc::new(job);
    let tasks: Vec<_> = (0..job.tasks)
        .map(|_| tokio::spawn(contend_once_and_again(Arc::clone(&job), Arc::clone(&way), Arc::clone(&section), clock)))
        .collect();
    let mut passes = Vec::new();
    for task in tasks {
        passes.extend(task.await??);
    }
    let elapsed_us = (clock.now_ns() - start_ns) / 1_000;
    let after = way.traffic();
    // What was granted by a push is told apart only now: its place may be answered after it.
    for pass in &mut passes {
        pass.place = way.place_of(pass.fence).unwrap_or(0);
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(&job.passes)?);
    passes.iter().try_for_each(|pass| pass.write(&mut file))?;
    file.flush()?;
    let done = Done { elapsed_us, requests: after.0 - before.0, pushes: after.1 - before.1 };
    write_out(format!("{}\n", serde_json::to_string(&done)?).as_bytes())?;
    Ok(())
}

async fn contend_once_and_again(
    job: Arc<Contend>,
    way: Arc<Way>,
    section: Arc<Section>,
    clock: MachineClock,
) -> anyhow::Result<Vec<Pass>> {
    let end_ns = clock.now_ns() + job.time_ms * 1_000_000;
    let most = job.most.div_ceil(u64::from(job.tasks));
    let mut passes = Vec::new();
    while (passes.len() as u64) < most {
        let asked_ns = clock.now_ns();
        let left = Duration::from_nanos(end_ns.saturating_sub(asked_ns));
        if left < Duration::from_millis(1) {
            break;
        }
        let held = way.acquire(&job.name, left.min(Duration::from_secs(3_600))).await?;
        let ended_ns = clock.now_ns();
        let mut pass = Pass { asked_ns, ended_ns, served: false, handed_over_ns: u64::MAX, place: 0, fence: 0 };
        let Some(held) = held else {
            passes.push(pass);
            continue;
        };
        let released_ns = section.pass(clock).await?;
        (pass.served, pass.fence) = (true, held.fence());
        held.release().await.map_err(|error| anyhow!("a release failed: {error}"))?;
        if asked_ns <= released_ns {
            pass.handed_over_ns = ended_ns.saturating_sub(released_ns);
        }
        passes.push(pass);
    }
    Ok(passes)
}
