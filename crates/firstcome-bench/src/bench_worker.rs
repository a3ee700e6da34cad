//! One of the processes that want a lock in `firstcome-bench locks`. Our own workers and the peers of `bench/` run this same
//! code around their locks, so that nothing but the lock differs.
//!
//! It reads what to do from its standard input, a line of JSON, says `ready` (a peer: and what it is), waits for another
//! line, and answers with a line of JSON. It ends when its input does.

mod clock;
mod critical_section;
mod pass;

pub use clock::MachineClock;
pub use critical_section::CriticalSection;
pub use pass::Pass;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// A hold lasts so long if its holder dies.
pub const LEASE: Duration = Duration::from_secs(30);

/// How the critical section is contended for: all that a peer is told.
#[derive(Clone, Serialize, Deserialize)]
pub struct Contend {
    /// The Redis.
    pub url: String,
    /// The lock.
    pub name: String,
    /// What the lock guards.
    pub counter: PathBuf,
    /// Where each acquisition is written down.
    pub passes: PathBuf,
    /// Tasks that want the lock, and want it again at once.
    pub tasks: u32,
    /// It ends after this time...
    pub time_ms: u64,
    /// ... or after this process has had the lock so many times.
    pub most: u64,
}

/// Messages between a process and the store.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests that were sent. `None` from who cannot see its own: then those are counted that the server got.
    pub requests: Option<u64>,
    /// Messages that came unasked.
    pub pushes: u64,
}

/// What a process did.
#[derive(Serialize, Deserialize)]
pub struct Done {
    /// From the word to begin until the last task was through.
    pub elapsed_us: u64,
    /// Within this time.
    pub traffic: Traffic,
}

/// A kind of lock, ready to be used by all tasks of a process.
pub trait LockStrategy: Send + Sync + 'static {
    /// What is held.
    type Guard: Send;

    /// Gets the lock, or `None` if the time is over before.
    fn acquire(&self, name: &str, wait: Duration) -> impl Future<Output = anyhow::Result<Option<Self::Guard>>> + Send;

    /// Gives it back.
    fn release(&self, held: Self::Guard) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Messages since the start.
    fn traffic(&self) -> Traffic;

    /// The fence of a hold, 0 if there is none.
    fn fence(&self, _held: &Self::Guard) -> u64 {
        0
    }

    /// The place in line behind a fence, where the store knows one.
    fn place_of(&self, _fence: u64) -> Option<u64> {
        None
    }
}

/// Lines from standard input. When they end, so does the process: a caller that started it is gone.
pub struct WorkerOrders(UnboundedReceiver<String>);

impl WorkerOrders {
    /// Begins to read.
    pub fn listen() -> Self {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
            std::process::exit(1);
        });
        Self(receiver)
    }

    async fn next(&mut self) -> anyhow::Result<String> {
        self.0.recv().await.context("nothing to do")
    }

    /// What to do.
    pub async fn job<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        Ok(serde_json::from_str(&self.next().await?)?)
    }
}

/// Says a line to the caller that started this process.
pub fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// All of a peer's `main`: contends with what `open` makes of the address of the Redis, and says what it is.
pub fn run_peer<W: LockStrategy>(what: &str, open: impl FnOnce(&str) -> anyhow::Result<W>) -> anyhow::Result<()> {
    // One thread, as our own processes have.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut orders = WorkerOrders::listen();
        let job: Contend = orders.job().await?;
        let way = open(&job.url)?;
        contend(job, way, orders, &format!("ready {what}")).await
    })
}

/// Runs the critical section again and again, from the word to begin on.
pub async fn contend<W: LockStrategy>(
    job: Contend,
    way: W,
    mut orders: WorkerOrders,
    ready: &str,
) -> anyhow::Result<()> {
    let clock = MachineClock::start();
    let (way, critical_section) = (Arc::new(way), Arc::new(CriticalSection::open(&job.counter)?));
    // The scripts are made known before anything is measured.
    let elsewhere = format!("{}-{}", job.name, std::process::id());
    if let Some(held) = way.acquire(&elsewhere, Duration::from_secs(10)).await? {
        way.release(held).await?;
    }
    say(ready)?;
    orders.next().await?;
    let before = way.traffic();
    let start_ns = clock.now_ns();
    let job = Arc::new(job);
    let tasks: Vec<_> = (0..job.tasks)
        .map(|_| {
            tokio::spawn(contend_once_and_again(
                Arc::clone(&job),
                Arc::clone(&way),
                Arc::clone(&critical_section),
                clock,
            ))
        })
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
    Pass::write_all(&passes, &job.passes)?;
    let requests = after.requests.zip(before.requests).map(|(after, before)| after - before);
    let done = Done { elapsed_us, traffic: Traffic { requests, pushes: after.pushes - before.pushes } };
    say(&serde_json::to_string(&done)?)
}

async fn contend_once_and_again<W: LockStrategy>(
    job: Arc<Contend>,
    way: Arc<W>,
    critical_section: Arc<CriticalSection>,
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
        let released_ns = critical_section.pass(clock).await?;
        (pass.served, pass.fence) = (true, way.fence(&held));
        way.release(held).await.context("a release failed")?;
        if asked_ns <= released_ns {
            pass.handed_over_ns = ended_ns.saturating_sub(released_ns);
        }
        passes.push(pass);
    }
    Ok(passes)
}
