//! How hand-overs change with waiters and with processes.

use super::hot::{self, Crowd, Until, Wants};
use super::peer::Entrant;
use super::strategy::Strategy;
use super::traced::{Keep, Watched};
use super::{Bench, Server, crowd, field};
use crate::coupons::Scratch;
use crate::curves::{Curve, CurvesArgs, order};
use crate::failure::Failure;
use crate::field::Progress;
use crate::stop::unless_stopped;
use anyhow::ensure;
use firstcome::Locks;
use firstcome::edge::Stopwatch;
use std::time::Duration;

const WAITERS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
const PROCESSES: [u32; 4] = [1, 2, 4, 8];
/// The contenders of all processes together.
const CONTENDERS: u32 = 64;

const MEMORY: &str = "memory";
const REDIS: &str = "Redis";
const IN_ORDER: &str = "in order";
const IN_COHORTS: &str = "in cohorts";

/// Measures both curves.
pub(crate) fn curves(args: &CurvesArgs, progress: &Progress) -> Result<Vec<Curve>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(unless_stopped(async { Ok(measure(args, progress).await?) }))
}

async fn measure(args: &CurvesArgs, progress: &Progress) -> anyhow::Result<Vec<Curve>> {
    let scratch = Scratch::new(&args.data, "curves-locks")?;
    let server = Server::start(&scratch.0).await?;
    let bench = field::bench(CONTENDERS, args.time, server, &scratch.0);
    let points: Vec<u32> = WAITERS.into_iter().filter(|waiters| *waiters <= args.largest).collect();
    progress.expect((points.len() + PROCESSES.len()) * args.rounds as usize);
    let mut waiters =
        Curve::new("waiters", "One lock, one process", "hand-overs per second", "waiters", &[MEMORY, REDIS]);
    let title = "One lock, 64 tasks in several processes";
    let mut processes = Curve::new("processes", title, "acquisitions per second", "processes", &[IN_ORDER, IN_COHORTS]);
    for round in 0..args.rounds {
        for count in order(&points, round) {
            progress.step(&format!("{count} waiters, round {}", round + 1));
            waiters.add(MEMORY, count, in_memory(count, args.time / 2).await?);
            let watched = Watched::open(&bench.server.url, Keep::Counts).await?;
            waiters.add(REDIS, count, crowd::per_second(&bench, &watched, count).await?);
        }
        for count in order(&PROCESSES, round) {
            progress.step(&format!("{count} processes, round {}", round + 1));
            for (line, strategy) in [(IN_ORDER, Strategy::Fifo), (IN_COHORTS, Strategy::Cohort)] {
                processes.add(line, count, contended(&bench, strategy, count).await?);
            }
        }
    }
    Ok(vec![waiters, processes])
}

/// Lets so many tasks acquire and release one lock in memory again and again.
async fn in_memory(waiters: u32, time: Duration) -> anyhow::Result<f64> {
    let locks = Locks::memory();
    let watch = Stopwatch::start();
    // One more than those that wait: one holds the lock.
    let tasks = (0..=waiters).map(|_| {
        let request = locks.lock("line");
        tokio::spawn(async move {
            let mut done = 0_u64;
            while watch.elapsed() < time {
                request.clone().acquire().await?.release().await?;
                done += 1;
            }
            anyhow::Ok(done)
        })
    });
    let mut done = 0;
    for task in tasks.collect::<Vec<_>>() {
        done += task.await??;
    }
    Ok(done as f64 / watch.elapsed().as_secs_f64())
}

async fn contended(bench: &Bench, strategy: Strategy, processes: u32) -> anyhow::Result<f64> {
    let crowd = Crowd { processes, tasks: CONTENDERS / processes, wants: Wants::One };
    let until = Until::TimeMs(bench.time.as_millis() as u64);
    let row = hot::run_with(bench, Entrant::Ours(strategy), crowd, until).await?;
    ensure!(row.lost_updates == 0, "{}: {} updates were lost", row.strategy, row.lost_updates);
    Ok(row.per_second)
}
