//! Measures how long others wait when processes die.

use super::processes::Worker;
use super::traced::{Keep, Watched};
use super::worker::Job;
use super::{Bench, Target};
use firstcome::core::limits::CLAIM_WINDOW_MS;
use firstcome::edge::Stopwatch;

const LEASE_MS: u64 = 1_000;
/// The number of holders that are killed.
const HOLDERS: u32 = 3;
/// The time that scheduling and the network may add.
const GRACE_MS: f64 = 50.0;

async fn holder(bench: &Bench, watched: &Watched, number: u32) -> anyhow::Result<f64> {
    let name = format!("killed-{number}");
    let mut holder =
        Worker::start(&Job::Hold { url: bench.server.url.clone(), name: name.clone(), lease_ms: LEASE_MS }).await?;
    holder.ready().await?;
    let next = tokio::spawn(watched.locks.lock(&name).acquire());
    watched.stand_in_line(&name, 1).await?;
    let watch = Stopwatch::start();
    holder.kill().await?;
    let guard = next.await??;
    let waited = watch.elapsed();
    guard.release().await?;
    Ok(waited.as_secs_f64() * 1e3)
}

async fn waiters(bench: &Bench, watched: &Watched) -> anyhow::Result<f64> {
    let name = "corpses";
    let guard = watched.locks.lock(name).acquire().await?;
    let job = Job::Wait { url: bench.server.url.clone(), name: name.to_owned(), waiters: bench.dead };
    let mut line = Worker::start(&job).await?;
    line.ready().await?;
    let next = tokio::spawn(watched.locks.lock(name).acquire());
    watched.stand_in_line(name, bench.dead + 1).await?;
    line.kill().await?;
    let watch = Stopwatch::start();
    guard.release().await?;
    let next = next.await??;
    let waited = watch.elapsed();
    next.release().await?;
    Ok(waited.as_secs_f64() * 1e3)
}

pub(super) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let watched = Watched::open(&bench.server.url, Keep::Counts).await?;
    let mut slowest_ms = 0.0_f64;
    for number in 0..HOLDERS {
        slowest_ms = slowest_ms.max(holder(bench, &watched, number).await?);
    }
    let line_ms = waiters(bench, &watched).await?;
    bench.targets.extend([
        Target::at_most("holder killed, lease 1 s: next grant, slowest, ms", slowest_ms, LEASE_MS as f64 + GRACE_MS),
        Target::at_most("dead waiters ahead: next grant, ms", line_ms, 2.0 * f64::from(CLAIM_WINDOW_MS) + GRACE_MS),
    ]);
    Ok(())
}
