//! A process that contends for a lock in `firstcome-bench locks`. The workers of firstcome and the peers of `bench/`
//! run this same code around their locks, so that only the lock differs.
//!
//! It reads its job from standard input, a line of JSON, and prints `ready`; a peer adds its name and version. Then it
//! waits for another line, and answers with a line of JSON. It ends when its input ends.

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

/// The lease of a hold, in case its holder dies.
pub const LEASE: Duration = Duration::from_secs(30);

/// The job of a contender, which is all that a peer receives.
#[derive(Clone, Serialize, Deserialize)]
pub struct Contend {
    /// The address of Redis.
    pub url: String,
    /// The name of the lock.
    pub name: String,
    /// The file with the counter that the lock guards.
    pub counter: PathBuf,
    /// The file for the record of each acquisition.
    pub passes: PathBuf,
    /// The number of tasks that acquire the lock again and again.
    pub tasks: u32,
    /// The job ends after this time...
    pub time_ms: u64,
    /// ... or after this process has had the lock so many times.
    pub most: u64,
}

/// The messages between a process and the store.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// The requests that were sent. `None` if the process cannot count them: the server's count is used then.
    pub requests: Option<u64>,
    /// Messages that the server pushed.
    pub pushes: u64,
}

/// The result of a process.
#[derive(Serialize, Deserialize)]
pub struct Done {
    /// From the start signal until the last task has finished.
    pub elapsed_us: u64,
    /// The messages within this time.
    pub traffic: Traffic,
}

/// A kind of lock that all tasks of a process can share.
pub trait LockStrategy: Send + Sync + 'static {
    /// A held lock.
    type Guard: Send;

    /// Acquires the lock, or returns `None` when the time is over.
    fn acquire(&self, name: &str, wait: Duration) -> impl Future<Output = anyhow::Result<Option<Self::Guard>>> + Send;

    /// Releases the lock.
    fn release(&self, held: Self::Guard) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Returns the messages since the start.
    fn traffic(&self) -> Traffic;

    /// Returns the fence of a hold, or 0 if it has none.
    fn fence(&self, _held: &Self::Guard) -> u64 {
        0
    }

    /// Returns the place in line behind a fence, if the store knows one.
    fn place_of(&self, _fence: u64) -> Option<u64> {
        None
    }
}

/// Lines from standard input. When they end, the process ends: the benchmark that started it is gone.
pub struct WorkerOrders(UnboundedReceiver<String>);

impl WorkerOrders {
    /// Starts reading.
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

    /// Reads the job.
    pub async fn job<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        Ok(serde_json::from_str(&self.next().await?)?)
    }
}

/// Prints a line for the benchmark that started this process.
pub fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Runs a peer: contends for the lock that `open` makes from the address of Redis. `what` is the peer's name and
/// version.
pub fn run_peer<W: LockStrategy>(what: &str, open: impl FnOnce(&str) -> anyhow::Result<W>) -> anyhow::Result<()> {
    // One thread, like the workers of firstcome.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut orders = WorkerOrders::listen();
        let job: Contend = orders.job().await?;
        let way = open(&job.url)?;
        contend(job, way, orders, &format!("ready {what}")).await
    })
}

/// Runs the critical section again and again after the start signal.
pub async fn contend<W: LockStrategy>(
    job: Contend,
    way: W,
    mut orders: WorkerOrders,
    ready: &str,
) -> anyhow::Result<()> {
    let clock = MachineClock::start();
    let (way, critical_section) = (Arc::new(way), Arc::new(CriticalSection::open(&job.counter)?));
    // Loads the scripts before the measurement.
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
    // Looks up places only now: a grant by push may arrive before the reply with its place.
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
