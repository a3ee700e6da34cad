//! Uncontended locks: the cost of the ordinary case, against the least that it could cost.

use super::traced::{Keep, Watched};
use super::{Bench, Figure, Target};
use anyhow::Context;
use firstcome::Locks;
use firstcome::edge::Stopwatch;
use firstcome::redis::{Link, Script};
use std::time::Duration;

/// The number of tasks, each with a lock of its own.
const TASKS: usize = 64;
/// The number of rounds, each with every kind in turn.
const ROUNDS: usize = 5;

/// The same writes as a native lock: the holder, and the counter.
static HOLD: Script =
    Script::new("redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) redis.call('SET', KEYS[2], ARGV[3]) return 1");
static DROP: Script = Script::new("return redis.call('DEL', KEYS[1])");
/// The usual recipe of the single-key layout.
static TAKE: Script = Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])");
static GIVE: Script =
    Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end");

/// The kind of a repeated pair of acquire and release.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    SameWrites,
    Recipe,
}

impl Kind {
    const fn says(self) -> &'static str {
        match self {
            Self::Ours => "alone, acquire and release",
            Self::SameWrites => "alone, two bare scripts with the same writes",
            Self::Recipe => "alone, bare SET NX PX and compare-and-delete",
        }
    }
}

const KINDS: [Kind; 3] = [Kind::Ours, Kind::SameWrites, Kind::Recipe];

async fn pairs(kind: Kind, locks: Locks, link: Link, task: usize, time: Duration) -> anyhow::Result<u64> {
    let (name, hold, counter) = (format!("alone-{task}"), format!("fc:bench:h:{task}"), format!("fc:bench:n:{task}"));
    // As long as the values of a native lock.
    let value = "0123456789abcdef:12345 30000 1763740800000000 1 1763740830000000 1 process-12345-0123456789abcdef";
    let (hold, counter, value) = (hold.as_bytes(), counter.as_bytes(), value.as_bytes());
    let watch = Stopwatch::start();
    let mut done = 0;
    while watch.elapsed() < time {
        match kind {
            Kind::Ours => locks.lock(&name).acquire().await?.release().await?,
            Kind::SameWrites => {
                link.run(&HOLD, &[hold, counter], &[value, b"7290000", b"1763740800000000"]).await?;
                link.run(&DROP, &[hold], &[]).await?;
            }
            Kind::Recipe => {
                link.run(&TAKE, &[hold], &[b"0123456789abcdef0123456789abcdef01234567", b"30000"]).await?;
                link.run(&GIVE, &[hold], &[b"0123456789abcdef0123456789abcdef01234567"]).await?;
            }
        }
        done += 1;
    }
    Ok(done)
}

/// The results of one round.
#[derive(Clone, Copy, Default)]
struct Round {
    per_second: f64,
    /// The following are per pair.
    requests: f64,
    server_us: f64,
    own_us: f64,
}

/// Returns the processor time of this thread, which runs all tasks, in µs.
fn own_cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}

async fn round(bench: &Bench, kind: Kind, watched: &Watched, time: Duration) -> anyhow::Result<Round> {
    let (requests, server_us, own_us) = (watched.counts().requests, bench.server.figures().await?.cpu_us, own_cpu_us());
    let watch = Stopwatch::start();
    let tasks = (0..TASKS).map(|task| {
        let (locks, link) = (watched.locks.clone(), watched.link.clone());
        tokio::spawn(pairs(kind, locks, link, task, time))
    });
    let mut done = 0;
    for task in tasks.collect::<Vec<_>>() {
        done += task.await??;
    }
    let (per_second, pairs) = (done as f64 / watch.elapsed().as_secs_f64(), done as f64);
    let own_us = (own_cpu_us() - own_us) / pairs;
    let requests = (watched.counts().requests - requests) as f64 / pairs;
    let server_us = (bench.server.figures().await?.cpu_us - server_us) / pairs;
    Ok(Round { per_second, requests, server_us, own_us })
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

async fn in_memory(time: Duration) -> anyhow::Result<f64> {
    let locks = Locks::memory();
    let (watch, mut done) = (Stopwatch::start(), 0_u64);
    while watch.elapsed() < time {
        for _ in 0..256 {
            locks.lock("hot").acquire().await?.release().await?;
        }
        done += 256;
    }
    Ok(done as f64 / watch.elapsed().as_secs_f64())
}

pub(super) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let watched = Watched::open(&bench.server.url, Keep::Counts).await?;
    let time = bench.time / 4;
    // A first round loads scripts and opens connections.
    for kind in KINDS {
        round(bench, kind, &watched, time / 10).await?;
    }
    let mut found: [Vec<Round>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (kind, found) in KINDS.iter().zip(&mut found) {
            found.push(round(bench, *kind, &watched, time).await?);
        }
    }
    for task in 0..TASKS {
        bench.server.forget(&format!("fc:bench:n:{task}")).await?;
    }
    let [ours, same, recipe] = &found;
    let ratio = |others: &[Round]| {
        median(ours.iter().zip(others).map(|(ours, other)| ours.per_second / other.per_second).collect())
    };
    let requests = ours.iter().map(|round| round.requests).max_by(f64::total_cmp).context("no round")?;
    bench.targets.extend([
        Target::exactly("alone, 64 tasks: requests per acquire and release", requests, 2.0),
        Target::at_least("alone: ÷ two bare scripts with the same writes", ratio(same), 0.9),
        Target::at_least("alone: ÷ bare SET NX PX and compare-and-delete", ratio(recipe), 0.5),
    ]);
    for (kind, rounds) in KINDS.iter().zip(&found) {
        let middle = |of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
        let says = kind.says();
        bench.figures.extend([
            Figure::new(format!("{says}: pairs per second"), middle(|round| round.per_second)),
            Figure::new(format!("{says}: server CPU per pair, µs"), middle(|round| round.server_us)),
            Figure::new(format!("{says}: own CPU per pair, µs"), middle(|round| round.own_us)),
        ]);
    }
    let memory = in_memory(time).await?;
    bench.targets.push(Target::at_least("memory: acquire and release per second, one key", memory, 2_000_000.0));
    Ok(())
}
