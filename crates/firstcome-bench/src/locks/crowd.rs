//! Many waiters in one process, many locks held by one process, many names used once.

use super::traced::{Keep, LOOK, Steps, Watched};
use super::{Bench, Figure, Target};
use anyhow::{Context, bail};
use firstcome::core::id::LockName;
use firstcome::core::lock::bucket_of;
use firstcome::edge::Stopwatch;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The least number of hand-overs to measure. A short line is formed repeatedly to reach it.
const HAND_OVERS: u32 = 1_000;
/// The longest lease of held locks.
const LEASE_MAX: Duration = Duration::from_secs(6);
/// How often a hold is renewed during its lease.
const RENEWALS: u64 = 3;
/// The number of tasks that use names once.
const TASKS: u64 = 64;
/// The longest wait of any step.
const PATIENCE: Duration = Duration::from_secs(120);

/// The cost of hand-overs.
#[derive(Default, Clone, Copy)]
struct Cost {
    hand_overs: u64,
    requests: u64,
    pushes: u64,
    server_us: f64,
    time: Duration,
}

/// Lets so many waiters form a line, and then passes the lock from the first to the last.
async fn drain(bench: &Bench, watched: &Watched, waiters: u32, cost: &mut Cost) -> anyhow::Result<()> {
    let name = "line";
    let held = watched.locks.lock(name).acquire().await?;
    let tasks: Vec<_> = (0..waiters)
        .map(|_| {
            let request = watched.locks.lock(name);
            tokio::spawn(async move { request.acquire().await?.release().await })
        })
        .collect();
    watched.stand_in_line(name, waiters).await?;
    let cpu_us = bench.server.figures().await?.cpu_us;
    let (before, steps, watch) = (watched.counts(), watched.steps(), Stopwatch::start());
    held.release().await?;
    for task in tasks {
        task.await??;
    }
    cost.time += watch.elapsed();
    let (after, beats) = (watched.counts(), watched.steps().beats - steps.beats);
    cost.hand_overs += u64::from(waiters);
    // The first and the last holder make one release more than there are hand-overs.
    cost.requests += (after.requests - before.requests).saturating_sub(beats + 1);
    cost.pushes += after.pushes - before.pushes;
    cost.server_us += bench.server.figures().await?.cpu_us - cpu_us;
    Ok(())
}

async fn lines(bench: &mut Bench) -> anyhow::Result<()> {
    let before = bench.server.connections().await?;
    let watched = Watched::open(&bench.server.url, Keep::Counts).await?;
    let mut found: Vec<(u32, Cost)> = Vec::new();
    for &waiters in &bench.waiters {
        let mut cost = Cost::default();
        for _ in 0..(HAND_OVERS / waiters).max(1) {
            drain(bench, &watched, waiters, &mut cost).await?;
        }
        found.push((waiters, cost));
    }
    // Counts the new connections only, even if older ones have closed.
    let connections = bench.server.connections().await?.difference(&before).count();
    let each = |cost: &Cost, total: u64| total as f64 / cost.hand_overs as f64;
    for (waiters, cost) in &found {
        let hand_over_us = cost.time.as_secs_f64() * 1e6 / cost.hand_overs as f64;
        bench.figures.extend([
            Figure::new(format!("{waiters} waiting: requests per hand-over"), each(cost, cost.requests)),
            Figure::new(format!("{waiters} waiting: pushes per hand-over"), each(cost, cost.pushes)),
            Figure::new(format!("{waiters} waiting: a hand-over, µs"), hand_over_us),
            Figure::new(
                format!("{waiters} waiting: server CPU per hand-over, µs"),
                cost.server_us / cost.hand_overs as f64,
            ),
        ]);
    }
    let messages = |cost: &Cost| each(cost, cost.requests + cost.pushes);
    let all = || found.iter().map(|(_, cost)| messages(cost));
    let (least, most) = (all().min_by(f64::total_cmp), all().max_by(f64::total_cmp));
    let (least, most) = least.zip(most).context("no line")?;
    bench.targets.extend([
        Target::at_most("requests and pushes per hand-over, most of all lines", most, 2.2),
        Target::at_most("requests and pushes per hand-over: slope, %", 100.0 * (most / least - 1.0), 10.0),
        Target::at_most("connections of a process with the longest line", connections as f64, 2.0),
    ]);
    Ok(())
}

/// Waits until as many holds have been renewed as so many locks renew during a lease.
async fn renewed(watched: &Watched, locks: usize) -> anyhow::Result<Steps> {
    let (enough, watch) = (watched.steps().renewed + RENEWALS * locks as u64, Stopwatch::start());
    loop {
        let steps = watched.steps();
        if enough <= steps.renewed {
            return Ok(steps);
        }
        if PATIENCE < watch.elapsed() {
            bail!("held locks are not renewed");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Holds so many locks, and counts the requests that renew them.
async fn held(bench: &mut Bench) -> anyhow::Result<()> {
    let watched = Arc::new(Watched::open(&bench.server.url, Keep::Counts).await?);
    let lease = bench.time.clamp(Duration::from_secs(1), LEASE_MAX);
    let names: Vec<String> = (0..bench.locks).map(|number| format!("held-{number}")).collect();
    let buckets: BTreeSet<u8> =
        names.iter().filter_map(|name| LockName::parse(name).ok()).map(|name| bucket_of(&name)).collect();
    let mut guards = Vec::with_capacity(names.len());
    for some in names.chunks(256) {
        let asked = some.iter().map(|name| tokio::spawn(watched.locks.lock(name).lease(lease).acquire()));
        for guard in asked.collect::<Vec<_>>() {
            guards.push(guard.await??);
        }
    }
    // Waits for all renewals once before counting, so that holds of a bucket renew together.
    let before = renewed(&watched, guards.len()).await?;
    let after = renewed(&watched, guards.len()).await?;
    let renewed = (after.renewed - before.renewed).max(1) as f64;
    let renewals = (after.renewals - before.renewals) as f64 * guards.len() as f64 / renewed;
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    bench.figures.push(Figure::new("held locks: buckets in use", buckets.len() as f64));
    bench.targets.extend([
        Target::at_most("held locks: requests that renew all of them once", renewals, 20.0 + buckets.len() as f64),
        Target::at_most("held locks: lost", lost as f64, 0.0),
    ]);
    let released = guards.into_iter().map(|guard| tokio::spawn(guard.release()));
    for released in released.collect::<Vec<_>>() {
        released.await??;
    }
    Ok(())
}

/// Uses every name once, and counts the keys that stay.
async fn names(bench: &mut Bench) -> anyhow::Result<()> {
    let before = bench.server.figures().await?.keys;
    let watched = Watched::open(&bench.server.url, Keep::Counts).await?;
    let count = bench.names;
    let watch = Stopwatch::start();
    let tasks = (0..TASKS).map(|task| {
        let locks = watched.locks.clone();
        tokio::spawn(async move {
            for number in (task..count).step_by(TASKS as usize) {
                locks.lock(&format!("once-{number}")).acquire().await?.release().await?;
            }
            Ok::<_, firstcome::LockError>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    let rate = count as f64 / watch.elapsed().as_secs_f64();
    let keys = bench.server.figures().await?.keys.saturating_sub(before);
    bench.figures.push(Figure::new("names used once: acquire and release per second", rate));
    // One counter per bucket, for any number of names.
    bench.targets.push(Target::at_most("names used once: keys that stay", keys as f64, 256.0));
    Ok(())
}

/// Returns how many hand-overs a line of so many waiters makes per second, from the first to the last.
pub(super) async fn per_second(bench: &Bench, watched: &Watched, waiters: u32) -> anyhow::Result<f64> {
    let mut cost = Cost::default();
    for _ in 0..(HAND_OVERS / waiters).max(1) {
        drain(bench, watched, waiters, &mut cost).await?;
    }
    Ok(cost.hand_overs as f64 / cost.time.as_secs_f64())
}

pub(super) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    lines(bench).await?;
    names(bench).await?;
    held(bench).await
}
