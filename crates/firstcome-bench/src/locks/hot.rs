//! One hot lock that all tasks contend for.

use super::order::{self, Disorder, Visit};
use super::peer::Entrant;
use super::processes::Worker;
use super::server::Figures;
use super::strategy::Strategy;
use super::worker::Job;
use super::{Bench, LockRow};
use anyhow::bail;
use firstcome_bench::bench_worker::{Contend, CriticalSection, Done, Pass};
use std::path::PathBuf;

/// The most acquisitions that one process records, so that a fast strategy does not fill the disk.
const PASSES_MAX: u64 = 500_000;
/// The most acquisitions of the control: a few lost updates are enough.
const CONTROL_PASSES: u64 = 20_000;

/// How long a strategy runs.
#[derive(Clone, Copy)]
pub(super) enum Until {
    TimeMs(u64),
    /// So many acquisitions of all processes together.
    Passes(u64),
}

/// The contenders, and the locks that they want.
#[derive(Clone, Copy)]
pub(super) struct Crowd {
    pub(super) processes: u32,
    /// The tasks of each process.
    pub(super) tasks: u32,
    pub(super) wants: Wants,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// All want the same lock.
    One,
    /// Each process has its own lock and counter.
    OneEach,
}

/// Runs one strategy with all processes on one lock.
pub(super) async fn run(bench: &Bench, entrant: Entrant<'_>, until: Until) -> anyhow::Result<LockRow> {
    let processes = if entrant.spans_processes() { bench.processes } else { 1 };
    let tasks = bench.tasks * bench.processes / processes;
    run_with(bench, entrant, Crowd { processes, tasks, wants: Wants::One }, until).await
}

/// Runs one strategy with this crowd.
pub(super) async fn run_with(
    bench: &Bench,
    entrant: Entrant<'_>,
    crowd: Crowd,
    until: Until,
) -> anyhow::Result<LockRow> {
    run_on(bench, &bench.url(), entrant, crowd, until).await
}

/// Runs one strategy with this crowd on a server of its kind. The figures of a server are those of the benchmark's
/// Redis.
pub(super) async fn run_on(
    bench: &Bench,
    url: &str,
    entrant: Entrant<'_>,
    crowd: Crowd,
    until: Until,
) -> anyhow::Result<LockRow> {
    let Crowd { processes, tasks, wants } = crowd;
    let most = if entrant.is(Strategy::Control) { CONTROL_PASSES } else { PASSES_MAX };
    let (time_ms, most) = match until {
        Until::TimeMs(time_ms) => (time_ms, most),
        Until::Passes(passes) => (3_600_000, passes.div_ceil(u64::from(processes))),
    };
    let own = |number| if wants == Wants::One { String::new() } else { format!("-{number}") };
    let counters = (0..processes).map(|number| bench.scratch.join(format!("counter{}", own(number))));
    let counters = counters.collect::<Vec<_>>();
    // Left over from an earlier strategy.
    counters.iter().for_each(|counter| drop(std::fs::remove_file(counter)));
    let mut bench_worker = Vec::new();
    for (number, counter) in (0..processes).zip(&counters) {
        let (url, counter) = (url.to_owned(), counter.clone());
        let name = format!("bench-{}{}", std::process::id(), own(number));
        let passes = bench.scratch.join(format!("passes-{number}"));
        let job = Contend { url, name, counter, passes, tasks, time_ms, most };
        bench_worker.push(match entrant {
            Entrant::Ours(strategy) => Worker::start(&Job::Contend(strategy, job)).await?,
            Entrant::Peer(peer) => Worker::start_peer(peer, &job).await?,
        });
    }
    let mut what = None;
    for worker in &mut bench_worker {
        what = worker.ready().await?;
    }
    let before = bench.server_figures().await?;
    for worker in &mut bench_worker {
        worker.begin().await?;
    }
    let mut done = Vec::new();
    for worker in bench_worker {
        done.push(worker.done::<Done>().await?);
    }
    let after = bench.server_figures().await?;
    let mut passes = Vec::new();
    for number in 0..processes {
        passes.extend(Pass::read_all(&bench.scratch.join(format!("passes-{number}")))?);
    }
    let counters = if wants == Wants::One { &counters[..1] } else { &counters[..] };
    let row = row(entrant, (processes, tasks), counters, &passes, &done, [before, after])?;
    Ok(LockRow { what, ..row })
}

fn quantile(sorted_ns: &[u64], share: f64) -> Option<f64> {
    let at = (sorted_ns.len() as f64 * share) as usize;
    sorted_ns.get(at.min(sorted_ns.len().checked_sub(1)?)).map(|ns| *ns as f64 / 1e3)
}

/// Judges the order by the places that the store gave, if it gave any: then delays of messages do not count.
fn disorder(passes: &[Pass]) -> Disorder {
    let placed = passes.iter().any(|pass| 0 < pass.place);
    let visits = passes.iter().filter_map(|pass| match placed {
        true => (0 < pass.place).then_some(Visit { arrived: pass.place, ended: pass.fence, served: true }),
        false => Some(Visit { arrived: pass.asked_ns, ended: pass.ended_ns, served: pass.served }),
    });
    order::judge(visits.collect())
}

fn row(
    entrant: Entrant<'_>,
    (processes, tasks): (u32, u32),
    counters: &[PathBuf],
    passes: &[Pass],
    done: &[Done],
    [before, after]: [Figures; 2],
) -> anyhow::Result<LockRow> {
    let served = passes.iter().filter(|pass| pass.served);
    let mut waits_ns: Vec<u64> = served.clone().map(|pass| pass.ended_ns - pass.asked_ns).collect();
    waits_ns.sort_unstable();
    let mut hand_overs_ns: Vec<u64> = served.map(|pass| pass.handed_over_ns).filter(|ns| *ns != u64::MAX).collect();
    hand_overs_ns.sort_unstable();
    let acquisitions = waits_ns.len() as u64;
    if acquisitions == 0 {
        bail!("{}: no process ever had the lock", entrant.says());
    }
    let counted = counters.iter().map(|counter| anyhow::Ok(CriticalSection::open(counter)?.read()?.0));
    let counted = counted.sum::<anyhow::Result<u64>>()?;
    let elapsed_us = done.iter().map(|done| done.elapsed_us).max().unwrap_or(1).max(1);
    let asked = match entrant {
        Entrant::Ours(_) => after.scripts - before.scripts,
        Entrant::Peer(_) => after.scripts + after.tries - before.scripts - before.tries,
    };
    let requests: Option<u64> = done.iter().map(|done| done.traffic.requests).sum();
    let pushes: u64 = done.iter().map(|done| done.traffic.pushes).sum();
    let each = |total: f64| entrant.is_on_redis().then_some(total / acquisitions as f64);
    let disorder = disorder(passes);
    // Includes waiters that were never served: they waited at least so long.
    let longest_ns = passes.iter().map(|pass| pass.ended_ns - pass.asked_ns).max().unwrap_or(0);
    if entrant.is(Strategy::Control) {
        // Without a lock there are no hand-overs.
        hand_overs_ns.clear();
    }
    Ok(LockRow {
        strategy: entrant.says().to_owned(),
        what: None,
        processes,
        tasks,
        acquisitions,
        lost_updates: acquisitions - counted.min(acquisitions),
        per_second: acquisitions as f64 / (elapsed_us as f64 / 1e6),
        wait_p50_us: quantile(&waits_ns, 0.5).unwrap_or(0.0),
        wait_p99_us: quantile(&waits_ns, 0.99).unwrap_or(0.0),
        wait_max_us: longest_ns as f64 / 1e3,
        hand_overs: hand_overs_ns.len() as u64,
        hand_over_p50_us: quantile(&hand_overs_ns, 0.5),
        hand_over_p99_us: quantile(&hand_overs_ns, 0.99),
        greatest_overtaking: disorder.overtaking,
        order_inversions: disorder.inversions,
        requests_each: each(requests.unwrap_or(asked) as f64),
        pushes_each: each(pushes as f64),
        server_calls_each: each(asked as f64),
        server_cpu_us_each: each(after.cpu_us - before.cpu_us),
    })
}
