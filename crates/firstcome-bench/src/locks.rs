//! `firstcome-bench locks`: runs the same critical section under every strategy, in real processes, and measures
//! waiting.

mod alone;
mod bare;
mod crowd;
mod curves;
mod database;
mod dead;
#[cfg(feature = "etcd")]
mod etcd;
mod field;
mod hot;
mod layout;
mod order;
mod peer;
mod picture;
mod processes;
mod quorum;
mod server;
mod strategy;
mod traced;
mod worker;

pub(crate) use curves::curves;
pub(crate) use field::field;
pub(super) use traced::{patient, unreachable};

use super::conditions::Conditions;
use super::coupons::Scratch;
use super::plot::check;
use super::report::{Target, figure, target_table};
use crate::failure::{Failure, Outcome};
use crate::output::{grouped, progress, table, wants_table, write_out};
use crate::stop::unless_stopped;
use anyhow::{Context, anyhow, bail};
use clap::{Args, value_parser};
use comfy_table::{Cell, Color};
use hot::Until;
use indicatif::ProgressBar;
use layout::Shared;
use peer::{Entrant, Peer, RSLOCK};
use serde::Serialize;
use server::{Figures, Server};
use std::path::PathBuf;
use std::time::Duration;
use strategy::{ALL, Strategy};

#[derive(Args)]
pub(crate) struct LocksArgs {
    /// A Redis on this machine, instead of one that is started for the benchmark
    #[arg(long, value_name = "redis://…")]
    store: Option<String>,
    /// Measure locks on etcd instead, on one that is started for the benchmark
    #[cfg(feature = "etcd")]
    #[arg(long, conflicts_with_all = ["store", "peers", "plot"])]
    etcd: bool,
    /// Processes that want the hot lock
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Tasks in each of them
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..=1_000))]
    tasks: u32,
    /// How long each strategy runs
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// How many wait in one process while hand-overs are counted
    #[arg(long, default_value = "10,1000,10000", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=100_000))]
    waiters: Vec<u32>,
    /// Acquisitions whose order is judged
    #[arg(long, default_value_t = 100_000)]
    hand_overs: u64,
    /// Names that are used once
    #[arg(long, default_value_t = 100_000)]
    names: u64,
    /// Locks that one process holds
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=100_000))]
    locks: u32,
    /// Waiters who die in front of a living one
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=100_000))]
    dead: u32,
    /// Also measure the lock of another library; as often as wanted
    ///
    /// The program, which may be followed by its arguments, contends for it as a worker process of the benchmark does. Some
    /// are in bench/, whose README.md says how to write one. The fastest named rslock… has a target.
    #[arg(long = "peer", value_name = "NAME=PROGRAM", value_parser = Peer::parse)]
    peers: Vec<Peer>,
    /// Measure locks over five servers instead, which are started for the benchmark
    ///
    /// A peer receives all addresses, separated by commas. The fastest named rslock… has targets, and those named
    /// redlock… and redsync….
    #[arg(long, conflicts_with = "store")]
    quorum: bool,
    /// Only measure the layout of another library, beside that library itself
    ///
    /// For redisson name its locks with --peer. Ours are compared with the fastest peer whose name begins with RLock,
    /// and with the fastest whose name begins with RFairLock. bench/peers/README.md says how they are installed.
    #[arg(long, value_enum)]
    layout: Option<Shared>,
    /// Only measure the line on one hot lock, in turns with the least that a hand-over in order can cost
    #[arg(long, conflicts_with_all = ["quorum", "layout", "peers", "plot"])]
    line: bool,
    /// Directory on a disk, in which a scratch directory is made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Also draw the strategies, as FILE.svg or FILE.html
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

fn seconds(text: &str) -> anyhow::Result<f64> {
    let seconds: f64 = text.parse()?;
    if (0.1..=3_600.0).contains(&seconds) { Ok(seconds) } else { bail!("0.1 to 3600") }
}

/// One strategy under load.
#[derive(Serialize)]
struct LockRow {
    strategy: String,
    /// The peer's description of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    processes: u32,
    tasks: u32,
    acquisitions: u64,
    /// Lost updates of a counter in a file, which is read, and written after a tiny pause.
    lost_updates: u64,
    per_second: f64,
    wait_p50_us: f64,
    wait_p99_us: f64,
    /// Includes waiters that were never served.
    wait_max_us: f64,
    /// Acquisitions of a lock by a waiter that already waited when the last holder released it. The others took a free
    /// lock.
    hand_overs: u64,
    /// From the moment in which a holder began to release the lock until the next waiter had it.
    hand_over_p50_us: Option<f64>,
    hand_over_p99_us: Option<f64>,
    /// The most later arrivals that were served before one waiter.
    greatest_overtaking: u64,
    /// Waiters that were overtaken at all.
    order_inversions: u64,
    requests_each: Option<f64>,
    pushes_each: Option<f64>,
    /// The calls that the server counted.
    server_calls_each: Option<f64>,
    server_cpu_us_each: Option<f64>,
}

/// A figure without a target.
#[derive(Serialize)]
struct Figure {
    what: String,
    value: f64,
}

impl Figure {
    fn new(what: impl Into<String>, value: f64) -> Self {
        Self { what: what.into(), value }
    }
}

/// The settings of the benchmark, and its results so far.
struct Bench {
    // Declared before the directory in which it runs, so that it ends first.
    server: Server,
    /// The further servers, for locks over several.
    others: Vec<Server>,
    scratch: PathBuf,
    processes: u32,
    tasks: u32,
    time: Duration,
    waiters: Vec<u32>,
    hand_overs: u64,
    names: u64,
    locks: u32,
    dead: u32,
    peers: Vec<Peer>,
    rows: Vec<LockRow>,
    figures: Vec<Figure>,
    targets: Vec<Target>,
}

impl Bench {
    /// Returns the addresses of all servers, separated by commas.
    fn url(&self) -> String {
        let all = std::iter::once(&self.server).chain(&self.others);
        all.map(|server| server.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Returns the summed counters of all servers.
    async fn server_figures(&self) -> anyhow::Result<Figures> {
        let mut sum = self.server.figures().await?;
        for server in &self.others {
            sum += server.figures().await?;
        }
        Ok(sum)
    }

    fn row(&self, strategy: &str) -> Option<&LockRow> {
        self.rows.iter().find(|row| row.strategy == strategy)
    }
}

#[derive(Serialize)]
struct Report<'a> {
    conditions: &'a Conditions,
    redis: &'a str,
    rows: &'a [LockRow],
    figures: &'a [Figure],
    targets: &'a [Target],
}

pub(crate) fn run_worker() -> Outcome {
    Ok(worker::run()?)
}

pub(crate) fn run(args: &LocksArgs) -> Outcome {
    if let Some(plot) = &args.plot {
        check(plot).map_err(Failure::Usage)?;
    }
    if let Some(Shared::Redisson) = args.layout {
        layout::check(&args.peers).map_err(Failure::Usage)?;
    }
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    // One thread: the workers and the server need the processors.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    #[cfg(feature = "etcd")]
    if args.etcd {
        return runtime.block_on(unless_stopped(etcd::measure_and_tell(args, &conditions)));
    }
    runtime.block_on(unless_stopped(measure_and_tell(args, &conditions)))
}

async fn measure_and_tell(args: &LocksArgs, conditions: &Conditions) -> Outcome {
    let scratch = Scratch::new(&args.data, "locks")?;
    let server = match &args.store {
        Some(url) => Server::at(url).await?,
        None => Server::start(&scratch.0).await?,
    };
    let mut bench = Bench {
        server,
        others: Vec::new(),
        scratch: scratch.0.clone(),
        processes: args.processes,
        tasks: args.tasks,
        time: Duration::from_secs_f64(args.seconds),
        waiters: args.waiters.clone(),
        hand_overs: args.hand_overs,
        names: args.names,
        locks: args.locks,
        dead: args.dead,
        peers: args.peers.clone(),
        rows: Vec::new(),
        figures: Vec::new(),
        targets: Vec::new(),
    };
    let redis = bench.server.version().await?;
    match (args.layout, args.quorum) {
        (Some(Shared::Redisson), _) => layout::measure(&mut bench).await?,
        (None, true) => quorum::measure(&mut bench).await?,
        (None, false) if args.line => {
            let control = hot::run(&bench, Entrant::Ours(Strategy::Control), CONTROL).await?;
            bench.rows.push(control);
            line(&mut bench).await?;
        }
        (None, false) => one_server(&mut bench).await?,
    }
    let Bench { rows, figures, targets, .. } = &bench;
    let report = Report { conditions, redis: &redis, rows, figures, targets };
    if let Some(path) = &args.plot {
        std::fs::write(path, picture::draw(path, &report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.table || wants_table(args.json) {
        write_out(report.text().as_bytes())?;
    } else {
        write_out(format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes())?;
    }
    judge(rows)
}

/// Measures everything that needs one server.
async fn one_server(bench: &mut Bench) -> anyhow::Result<()> {
    let bar = progress((ALL.len() + bench.peers.len()) as u64 + 4, "");
    hot(bench, &bar).await?;
    step(&bar, "alone");
    alone::measure(bench).await?;
    step(&bar, "long lines, many locks");
    crowd::measure(bench).await?;
    step(&bar, "the dead");
    dead::measure(bench).await?;
    bar.finish_and_clear();
    Ok(())
}

fn step(bar: &ProgressBar, doing: &str) {
    bar.set_message(doing.to_owned());
    bar.inc(1);
}

/// Fails if a lock lost updates, or if the control lost none, since the run then proves nothing.
fn judge(rows: &[LockRow]) -> Outcome {
    let (control, locks): (Vec<&LockRow>, Vec<&LockRow>) =
        rows.iter().partition(|row| row.strategy == Strategy::Control.says());
    if control.iter().all(|row| row.lost_updates == 0) {
        return Err(Failure::Refused(anyhow!("the run is void: the counter loses nothing even without a lock")));
    }
    match locks.iter().find(|row| 0 < row.lost_updates) {
        Some(row) => Err(Failure::Refused(anyhow!("{} lost {} updates", row.strategy, row.lost_updates))),
        None => Ok(()),
    }
}

/// Measures every strategy on one hot lock, and compares the line with the round trips that it needs at least.
async fn hot(bench: &mut Bench, bar: &ProgressBar) -> anyhow::Result<()> {
    let mut trips_us = Vec::new();
    for strategy in ALL {
        step(bar, strategy.says());
        if strategy == Strategy::Fifo {
            trips_us.extend(bench.server.round_trips_us()?);
        }
        let time = if strategy == Strategy::Control { bench.time.min(Duration::from_millis(300)) } else { bench.time };
        let row = hot::run(bench, Entrant::Ours(strategy), Until::TimeMs(time.as_millis() as u64)).await?;
        if strategy == Strategy::Fifo {
            trips_us.extend(bench.server.round_trips_us()?);
        }
        bench.rows.push(row);
    }
    peers(bench, bar).await?;
    step(bar, Strategy::Bare.says());
    if bare::host_of(&bench.server.url).is_some() {
        line(bench).await?;
    }
    step(bar, "the order of the line");
    let ordered = hot::run(bench, Entrant::Ours(Strategy::Fifo), Until::Passes(bench.hand_overs)).await?;
    trips_us.sort_by(f64::total_cmp);
    let trip_us = trips_us.get(trips_us.len() / 2).copied().context("no round trip")?;
    let line = bench.row(Strategy::Fifo.says()).context("no line")?;
    let (per_second, hand_over_us) = (line.per_second, line.hand_over_p50_us.unwrap_or(f64::INFINITY));
    bench.figures.extend([
        Figure::new("one round trip, bare, p50, µs", trip_us),
        Figure::new("acquisitions whose order was judged", ordered.acquisitions as f64),
    ]);
    bench.targets.extend([
        Target::at_least("native FIFO × one bare round trip", per_second * trip_us / 1e6, 0.75),
        Target::at_most("native FIFO: hand-over p50 ÷ one bare round trip", hand_over_us / trip_us, 1.5),
        Target::at_most("native FIFO: order inversions", ordered.order_inversions as f64, 0.0),
        Target::at_most("native FIFO: lost updates in the same", ordered.lost_updates as f64, 0.0),
    ]);
    Ok(())
}

/// How long the control runs.
const CONTROL: Until = Until::TimeMs(300);
/// The rounds in which the line is compared with the bare hand-over.
const LINE_ROUNDS: u32 = 5;
/// The shortest round: on a machine with other work a process may not run for a while.
const LINE_ROUND_MIN: Duration = Duration::from_millis(300);

/// Compares the line with the bare hand-over, in turns, since both depend on what else the machine does.
async fn line(bench: &mut Bench) -> anyhow::Result<()> {
    let time = (bench.time / LINE_ROUNDS).max(LINE_ROUND_MIN);
    let until = Until::TimeMs(time.as_millis() as u64);
    let (mut ratios, mut rows) = (Vec::new(), Vec::new());
    for _ in 0..LINE_ROUNDS {
        let ours = hot::run(bench, Entrant::Ours(Strategy::Fifo), until).await?;
        let bare = hot::run(bench, Entrant::Ours(Strategy::Bare), until).await?;
        if let Some(row) = [&ours, &bare].into_iter().find(|row| 0 < row.lost_updates) {
            bail!("{} lost {} updates", row.strategy, row.lost_updates);
        }
        ratios.push(ours.per_second / bare.per_second);
        rows.extend([ours, bare]);
    }
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.get(ratios.len() / 2).copied().context("no round")?;
    bench.targets.push(Target::at_least("native FIFO ÷ bare hand-over, in turns", middle, 0.9));
    for strategy in [Strategy::Fifo, Strategy::Bare] {
        let mut of: Vec<LockRow> = rows.extract_if(.., |row| row.strategy == strategy.says()).collect();
        of.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        let says = strategy.says();
        if let Some(row) = of.get(of.len() / 2) {
            let server_us = row.server_cpu_us_each.unwrap_or(0.0);
            bench.figures.extend([
                Figure::new(format!("{says}, in turns: per second"), row.per_second),
                Figure::new(format!("{says}, in turns: server CPU per acquisition, µs"), server_us),
            ]);
        }
    }
    Ok(())
}

/// Measures the locks of other libraries.
async fn peers(bench: &mut Bench, bar: &ProgressBar) -> anyhow::Result<()> {
    for peer in bench.peers.clone() {
        step(bar, &peer.name);
        let until = Until::TimeMs(bench.time.as_millis() as u64);
        bench.rows.push(hot::run(bench, Entrant::Peer(&peer), until).await?);
    }
    // Of all settings of a library the fastest counts.
    let settings = bench.rows.iter().filter(|row| row.strategy.starts_with(RSLOCK)).map(|row| row.per_second);
    let rslock = settings.max_by(f64::total_cmp);
    if let Some((cohort, rslock)) = bench.row(Strategy::Cohort.says()).zip(rslock) {
        let times = cohort.per_second / rslock;
        bench.targets.push(Target::at_least("native cohort(32) ÷ rslock, ×", times, 20.0));
    }
    Ok(())
}

/// Formats a time for people.
fn time(us: f64) -> String {
    match us {
        ..1_000.0 => format!("{us:.0} µs"),
        ..10_000.0 => format!("{:.1} ms", us / 1e3),
        ..1_000_000.0 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

impl Report<'_> {
    fn head(&self) -> String {
        let (processes, tasks) = self.rows.first().map_or((0, 0), |row| (row.processes, row.tasks));
        let load = format!("{processes} processes × {tasks} tasks that want it again at once");
        format!("{}Redis {}, same machine, nothing kept · {load}\n", self.conditions.line(), self.redis)
    }

    /// Renders the report as tables.
    fn text(&self) -> String {
        let mut text = self.head();
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".into());
        let mut served = table(&[
            "Strategy",
            ">Processes × tasks",
            ">Lost updates",
            ">Per second",
            ">Wait p50",
            ">p99",
            ">max",
            ">Overtaken by",
            ">Overtaken",
        ]);
        let mut cost = table(&[
            "Strategy",
            ">Hand-overs",
            ">Hand-over p50",
            ">p99",
            ">Requests each",
            ">Pushes each",
            ">Server calls each",
            ">Server CPU each",
        ]);
        for row in self.rows {
            let lost = Cell::new(grouped(row.lost_updates));
            served.add_row([
                Cell::new(&row.strategy),
                Cell::new(format!("{} × {}", row.processes, row.tasks)),
                if row.lost_updates == 0 { lost.fg(Color::Green) } else { lost.fg(Color::Red) },
                Cell::new(grouped(row.per_second.round() as u64)),
                Cell::new(time(row.wait_p50_us)),
                Cell::new(time(row.wait_p99_us)),
                Cell::new(time(row.wait_max_us)),
                Cell::new(grouped(row.greatest_overtaking)),
                Cell::new(grouped(row.order_inversions)),
            ]);
            let each = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.2}")));
            cost.add_row([
                Cell::new(&row.strategy),
                Cell::new(grouped(row.hand_overs)),
                Cell::new(or_dash(row.hand_over_p50_us.map(time))),
                Cell::new(or_dash(row.hand_over_p99_us.map(time))),
                Cell::new(each(row.requests_each)),
                Cell::new(each(row.pushes_each)),
                Cell::new(each(row.server_calls_each)),
                Cell::new(or_dash(row.server_cpu_us_each.map(time))),
            ]);
        }
        let mut figures = table(&["Figure", ">Value"]);
        for row in self.figures {
            figures.add_row([Cell::new(&row.what), Cell::new(figure(row.value))]);
        }
        text.push_str(&format!("{served}\n"));
        for row in self.rows {
            text.extend(row.what.iter().map(|what| format!("{}: {what}\n", row.strategy)));
        }
        text.push_str(&format!("{cost}\n{figures}\n"));
        text.push_str(&target_table(self.targets));
        text
    }
}
