//! The layout of Redisson beside Redisson itself: uncontended locks, and one hot lock.

use super::alone::median;
use super::hot::{self, Crowd, Until, Wants};
use super::peer::{Entrant, Peer};
use super::strategy::Strategy;
use super::{Bench, Figure, Target, step};
use crate::output::progress;
use anyhow::{Context, ensure};
use clap::ValueEnum;
use indicatif::ProgressBar;

/// The library whose layout is measured.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Shared {
    /// That of Redisson's RLock
    Redisson,
}

/// The prefixes of the peers' names that targets refer to.
const PLAIN: &str = "RLock";
const FAIR: &str = "RFairLock";
/// The number of rounds, each with every entrant in turn.
const ROUNDS: usize = 3;
/// The strategies of firstcome on the hot lock.
const OURS: [Strategy; 4] = [Strategy::Control, Strategy::Fifo, Strategy::Cohort, Strategy::Redisson];

/// Checks that the peers for the comparison are given.
pub(super) fn check(peers: &[Peer]) -> anyhow::Result<()> {
    for kind in [PLAIN, FAIR] {
        let there = peers.iter().any(|peer| peer.name.starts_with(kind));
        ensure!(there, "say --peer \"{kind}=PROGRAM bench\"; bench/peers/README.md says how the program is installed");
    }
    Ok(())
}

/// A number of processes without contention.
struct Alone {
    says: &'static str,
    target: &'static str,
    processes: u32,
}

pub(super) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let alone = [
        Alone {
            says: "alone, one task", target: "alone, one task: Redisson's layout, ours ÷ RLock, ×", processes: 1
        },
        Alone {
            says: "alone, each process with a lock of its own",
            target: "alone, each process with a lock of its own: Redisson's layout, ours ÷ RLock, ×",
            processes: bench.processes,
        },
    ];
    let bar = progress((OURS.len() + bench.peers.len() + alone.len()) as u64, "");
    for kind in &alone {
        step(&bar, kind.says);
        uncontended(bench, kind).await?;
    }
    hot(bench, &bar).await?;
    bar.finish_and_clear();
    Ok(())
}

/// Measures uncontended pairs of acquire and release. The entrants take turns, so that other load on the machine
/// affects all.
async fn uncontended(bench: &mut Bench, kind: &Alone) -> anyhow::Result<()> {
    let plain: Vec<Peer> = bench.peers.iter().filter(|peer| peer.name.starts_with(PLAIN)).cloned().collect();
    let entrants: Vec<Entrant<'_>> =
        [Entrant::Ours(Strategy::Redisson)].into_iter().chain(plain.iter().map(Entrant::Peer)).collect();
    let crowd = Crowd { processes: kind.processes, tasks: 1, wants: Wants::OneEach };
    let until = Until::TimeMs(bench.time.as_millis() as u64 / 2);
    let mut rates = vec![Vec::new(); entrants.len()];
    for _ in 0..ROUNDS {
        for (entrant, rates) in entrants.iter().zip(&mut rates) {
            let row = hot::run_with(bench, *entrant, crowd, until).await?;
            ensure!(row.lost_updates == 0, "{}: {} updates were lost", row.strategy, row.lost_updates);
            rates.push(row.per_second);
        }
    }
    let rates: Vec<f64> = rates.into_iter().map(median).collect();
    for (entrant, rate) in entrants.iter().zip(&rates) {
        bench.figures.push(Figure::new(format!("{}: {}: pairs per second", kind.says, entrant.says()), *rate));
    }
    let (ours, theirs) = rates.split_first().context("no row was measured")?;
    let theirs = theirs.iter().copied().max_by(f64::total_cmp).context("no row to compare with")?;
    bench.targets.push(Target::at_least(kind.target, ours / theirs, 1.0));
    Ok(())
}

/// Measures one hot lock.
async fn hot(bench: &mut Bench, bar: &ProgressBar) -> anyhow::Result<()> {
    let peers = bench.peers.clone();
    let time_ms = bench.time.as_millis() as u64;
    for entrant in OURS.into_iter().map(Entrant::Ours).chain(peers.iter().map(Entrant::Peer)) {
        step(bar, entrant.says());
        let time_ms = if entrant.is(Strategy::Control) { time_ms.min(300) } else { time_ms };
        bench.rows.push(hot::run(bench, entrant, Until::TimeMs(time_ms)).await?);
    }
    let fastest = |kind: &str| {
        let settings = bench.rows.iter().filter(|row| row.strategy.starts_with(kind)).map(|row| row.per_second);
        settings.max_by(f64::total_cmp).with_context(|| format!("no {kind}"))
    };
    let ours = |strategy: Strategy| bench.row(strategy.says()).map(|row| row.per_second).context("no row of ours");
    let (plain, fair) = (fastest(PLAIN)?, fastest(FAIR)?);
    let (line, cohort, layout) = (ours(Strategy::Fifo)?, ours(Strategy::Cohort)?, ours(Strategy::Redisson)?);
    bench.targets.extend([
        Target::at_least("hot lock: native FIFO ÷ RLock, ×", line / plain, 1.0),
        Target::at_least("hot lock: native FIFO ÷ RFairLock, ×", line / fair, 1.0),
    ]);
    bench.figures.extend([
        Figure::new("hot lock: native cohort(32) ÷ RLock, ×", cohort / plain),
        Figure::new("hot lock: native cohort(32) ÷ RFairLock, ×", cohort / fair),
        Figure::new("hot lock: Redisson's layout, ours ÷ RLock, ×", layout / plain),
    ]);
    Ok(())
}
