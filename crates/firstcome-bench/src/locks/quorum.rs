//! Locks over five servers: an uncontended one, and one that eight tasks contend for, next to those of other
//! libraries.

use super::hot::{self, Until};
use super::peer::{Entrant, RSLOCK};
use super::server::Server;
use super::strategy::Strategy;
use super::{Bench, Figure, LockRow, step};
use crate::output::progress;
use crate::report::Target;
use std::time::Duration;

const SERVERS: usize = 5;
/// Each entrant runs so many times, in turn; the median counts.
const ROUNDS: usize = 3;
/// The contenders, and the targets.
struct Load {
    processes: u32,
    tasks: u32,
    says: &'static str,
    ours: &'static [Strategy],
    targets: &'static [Versus],
}

/// A comparison with the fastest peer whose name has this prefix.
struct Versus {
    ours: Strategy,
    peer: &'static str,
    target: &'static str,
    /// The least ratio. Without one the ratio is only reported.
    least: Option<f64>,
}

/// The others have no fence and no line. With eight contenders one has the lock to itself while the others pause, so
/// their rates are close to the uncontended ones. Firstcome hands over to a waiter, and a cohort does so less often.
const LOADS: [Load; 2] = [
    Load {
        processes: 1,
        tasks: 1,
        says: "alone",
        ours: &[Strategy::Quorum],
        targets: &[Versus {
            ours: Strategy::Quorum,
            peer: RSLOCK,
            target: "alone: quorum ÷ rslock, ×",
            least: Some(0.5),
        }],
    },
    Load {
        processes: 4,
        tasks: 2,
        says: "8 contenders",
        ours: &[Strategy::Quorum, Strategy::QuorumCohort],
        targets: &[
            Versus {
                ours: Strategy::QuorumCohort,
                peer: RSLOCK,
                target: "8 contenders: quorum, cohort(32) ÷ rslock, ×",
                least: Some(3.0),
            },
            Versus {
                ours: Strategy::QuorumCohort,
                peer: "redlock",
                target: "8 contenders: quorum, cohort(32) ÷ node-redlock, ×",
                least: Some(1.0),
            },
            Versus {
                ours: Strategy::QuorumCohort,
                peer: "redsync",
                target: "8 contenders: quorum, cohort(32) ÷ redsync, ×",
                least: Some(1.0),
            },
            Versus { ours: Strategy::Quorum, peer: RSLOCK, target: "8 contenders: quorum ÷ rslock, ×", least: None },
            Versus {
                ours: Strategy::Quorum,
                peer: "redlock",
                target: "8 contenders: quorum ÷ node-redlock, ×",
                least: None,
            },
            Versus {
                ours: Strategy::Quorum,
                peer: "redsync",
                target: "8 contenders: quorum ÷ redsync, ×",
                least: None,
            },
        ],
    },
];

pub(super) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    while bench.others.len() + 1 < SERVERS {
        let server = Server::start(&bench.scratch).await?;
        bench.others.push(server);
    }
    let bar = progress((LOADS.len() * (bench.peers.len() + 1)) as u64 + 2, "");
    step(&bar, Strategy::Control.says());
    let time = bench.time.min(Duration::from_millis(300));
    bench.rows.push(hot::run(bench, Entrant::Ours(Strategy::Control), Until::TimeMs(time.as_millis() as u64)).await?);
    let peers = bench.peers.clone();
    for load in LOADS {
        let ours = load.ours.iter().copied().map(Entrant::Ours);
        let entrants: Vec<Entrant<'_>> = ours.chain(peers.iter().map(Entrant::Peer)).collect();
        (bench.processes, bench.tasks) = (load.processes, load.tasks);
        let mut rounds: Vec<Vec<LockRow>> = entrants.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (entrant, rows) in entrants.iter().zip(&mut rounds) {
                let until = Until::TimeMs(bench.time.as_millis() as u64 / ROUNDS as u64);
                rows.push(hot::run(bench, *entrant, until).await?);
            }
        }
        let mut rates = Vec::new();
        for (entrant, rows) in entrants.iter().zip(rounds) {
            step(&bar, entrant.says());
            let Some(row) = middle(rows) else { continue };
            rates.push((entrant.says(), row.per_second));
            bench.rows.push(LockRow { strategy: format!("{}, {}", row.strategy, load.says), ..row });
        }
        let fastest = |kind: &str| {
            let named = rates.iter().filter(|(name, _)| name.starts_with(kind));
            named.map(|(_, rate)| *rate).max_by(f64::total_cmp)
        };
        for versus in load.targets {
            let ours = rates.iter().find(|(name, _)| *name == versus.ours.says()).map(|(_, rate)| *rate);
            if let Some((ours, theirs)) = ours.zip(fastest(versus.peer)) {
                match versus.least {
                    Some(least) => bench.targets.push(Target::at_least(versus.target, ours / theirs, least)),
                    None => bench.figures.push(Figure::new(versus.target, ours / theirs)),
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Returns the row with the median rate.
fn middle(mut rows: Vec<LockRow>) -> Option<LockRow> {
    rows.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let at = rows.len() / 2;
    (!rows.is_empty()).then(|| rows.swap_remove(at))
}
