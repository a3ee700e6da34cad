//! Locks on etcd, against their least cost: the same two transactions, bare, over the same connection.

use super::super::conditions::Conditions;
use super::super::coupons::Scratch;
use super::super::report::{Target, figure, target_table};
use super::alone::median;
use super::{Figure, LocksArgs};
use crate::failure::Outcome;
use crate::output::{progress, table, wants_table, write_out};
use anyhow::{Context, ensure};
use firstcome::Locks;
use firstcome::edge::Stopwatch;
use firstcome::lock::etcd;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use serde::Serialize;
use std::time::Duration;

/// The number of rounds, each with every kind in turn.
const ROUNDS: usize = 5;
/// The numbers of concurrent tasks, each with a lock of its own.
const CROWDS: [usize; 2] = [1, 16];

/// The kind of a repeated pair.
#[derive(Clone, Copy)]
enum Pair {
    /// Acquires and releases a lock.
    Lock,
    /// Creates a key if it is absent, and deletes it if it is unchanged.
    Bare,
}

#[derive(Serialize)]
struct Report<'a> {
    conditions: &'a Conditions,
    figures: Vec<Figure>,
    targets: Vec<Target>,
}

pub(super) async fn measure_and_tell(args: &LocksArgs, conditions: &Conditions) -> Outcome {
    let scratch = Scratch::new(&args.data, "etcd")?;
    let options = Options::new(Durability::Durable).within(&scratch.0);
    let server = Server::start(Kind::Etcd, &options).await.context("install etcd-server, or leave --etcd out")?;
    let time = Duration::from_secs_f64(args.seconds / (2 * ROUNDS) as f64);
    let bar = progress(CROWDS.len() as u64 + 1, "");
    let mut report = Report { conditions, figures: Vec::new(), targets: Vec::new() };
    let locks = Locks::etcd(server.url()).await?;
    for tasks in CROWDS {
        bar.set_message(format!("{tasks} at once, each alone with its lock"));
        bar.inc(1);
        alone(&mut report, &locks, tasks, time).await?;
    }
    bar.set_message("one hot lock");
    bar.inc(1);
    hot(&mut report, server.url(), args).await?;
    bar.finish_and_clear();
    if args.table || wants_table(args.json) {
        write_out(report.text().as_bytes())?;
    } else {
        write_out(format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes())?;
    }
    Ok(())
}

/// What the client has done so far.
fn counts(locks: &Locks) -> etcd::Counts {
    etcd::counts(locks).unwrap_or_default()
}

/// Returns how many pairs so many tasks complete per second.
async fn pairs(locks: &Locks, pair: Pair, tasks: usize, time: Duration) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    let link = etcd::link(locks).context("the locks are on etcd")?.clone();
    let tasks = (0..tasks).map(|task| {
        let (locks, link) = (locks.clone(), link.clone());
        tokio::spawn(async move {
            // As long as the key and the value of a lock.
            let (name, key) = (format!("alone-{task}"), format!("firstcome/bare/alone-{task}/0123456789abcdef-12345"));
            let mut done = 0_u64;
            while watch.elapsed() < time {
                match pair {
                    Pair::Lock => locks.lock(&name).acquire().await?.release().await?,
                    Pair::Bare => {
                        let made = link.create(key.as_bytes(), b"10000 process-12345-0123456789abcdef").await?;
                        let made = made.context("the key was there")?;
                        ensure!(link.delete(key.as_bytes(), made).await?, "the key was gone");
                    }
                }
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

async fn alone(report: &mut Report<'_>, locks: &Locks, tasks: usize, time: Duration) -> anyhow::Result<()> {
    // A first round warms connections and files.
    for pair in [Pair::Lock, Pair::Bare] {
        pairs(locks, pair, tasks, time / 5).await?;
    }
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let (mut locked, mut asked) = (0.0, 0);
    for _ in 0..ROUNDS {
        let (requests, watch) = (counts(locks).requests, Stopwatch::start());
        let per_second = pairs(locks, Pair::Lock, tasks, time).await?;
        locked += per_second * watch.elapsed().as_secs_f64();
        asked += counts(locks).requests - requests;
        ours.push(per_second);
        bare.push(pairs(locks, Pair::Bare, tasks, time).await?);
    }
    let ratio = median(ours.iter().zip(&bare).map(|(ours, bare)| ours / bare).collect());
    let what = match tasks {
        1 => "one task: acquire and release ÷ the same two transactions, bare",
        _ => "16 tasks: acquire and release ÷ the same two transactions, bare",
    };
    report.targets.push(Target::at_least(what, ratio, 0.8));
    report.figures.extend([
        Figure::new(format!("{tasks} tasks: acquire and release, pairs per second"), median(ours)),
        Figure::new(format!("{tasks} tasks: bare transactions, pairs per second"), median(bare)),
        Figure::new(format!("{tasks} tasks: requests per acquire and release"), asked as f64 / locked),
    ]);
    Ok(())
}

/// Measures one hot lock that two clients contend for. They stand for two processes.
async fn hot(report: &mut Report<'_>, url: &str, args: &LocksArgs) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(args.seconds);
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(Locks::etcd(url).await?);
    }
    let watch = Stopwatch::start();
    let tasks = clients.iter().flat_map(|locks| std::iter::repeat_n(locks, args.tasks as usize)).map(|locks| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let mut fences = Vec::new();
            while watch.elapsed() < time {
                let guard = locks.lock("hot").acquire().await?;
                fences.push(guard.fence()?);
                guard.release().await?;
            }
            anyhow::Ok(fences)
        })
    });
    let mut fences = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        fences.extend(task.await??);
    }
    let grants = fences.len();
    let per_second = grants as f64 / watch.elapsed().as_secs_f64();
    fences.sort_unstable();
    fences.dedup();
    ensure!(fences.len() == grants, "two grants have one fence");
    let wakes: u64 = clients.iter().map(|locks| counts(locks).wakes).sum();
    let waiting = 2 * args.tasks;
    report.figures.extend([
        Figure::new(format!("one lock, {waiting} tasks of two clients: acquisitions per second"), per_second),
        Figure::new("one lock: waiters woken per acquisition", wakes as f64 / grants as f64),
    ]);
    Ok(())
}

impl Report<'_> {
    fn text(&self) -> String {
        let mut figures = table(&["Figure", ">Value"]);
        for row in &self.figures {
            figures.add_row([row.what.clone(), figure(row.value)]);
        }
        let head = "etcd of the benchmark's own, one member, same machine, every commit synced\n";
        format!("{}{head}{figures}\n{}", self.conditions.line(), target_table(&self.targets))
    }
}
