//! `firstcome-bench auctions`: one hot auction under every strategy, on the embedded store and on databases.

mod audit;
mod by_hand;
mod database;
mod embedded;
mod engine;
mod field;
mod hot;
mod http;
mod plot;

pub(crate) use field::field;

use super::conditions::Conditions;
use super::coupons::Scratch;
use super::plot::check;
use super::report::{Target, target_table};
use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::output::{grouped, progress, table, wants_table, write_out};
use crate::stop::unless_stopped;
use anyhow::{Context, anyhow};
use clap::{Args, value_parser};
use comfy_table::{Cell, Color};
use hot::Run;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The highest tolerable 99th percentile at half load, at which the latency is reported.
const HALF_LOAD_P99_MS: f64 = 25.0;

#[derive(Args)]
pub(crate) struct AuctionsArgs {
    /// A database on this machine, and a Redis for locks, instead of those that are started; as often as wanted
    ///
    /// A database of its own is made there and dropped afterwards. Without this a PostgreSQL, a MariaDB and a Redis are
    /// started, as far as they are installed.
    #[arg(long = "store", value_name = "URL")]
    stores: Vec<String>,
    /// Directory on a disk, in which scratch directories are made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Time for each strategy
    #[arg(long, value_parser = duration, default_value = "5s")]
    time: Duration,
    /// Callers at once, of every strategy
    #[arg(long, default_value_t = 512, value_parser = value_parser!(u32).range(1..=100_000))]
    tasks: u32,
    /// Bidders
    #[arg(long, default_value_t = 512, value_parser = value_parser!(u32).range(2..=10_000))]
    bidders: u32,
    /// Connections to a database; 0 leaves HTTP out, which has 256
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(0..=1_000))]
    connections: u32,
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

/// One strategy under load.
#[derive(Serialize)]
struct AuctionRow {
    store: String,
    strategy: &'static str,
    /// Whether it is a strategy of firstcome: then it must be exact.
    ours: bool,
    /// The verdict of the audit on the rows and on the answers. `None` if there is nothing to audit.
    correct: Option<bool>,
    /// The first finding of the audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    finding: Option<String>,
    accepted: u64,
    accepted_per_second: f64,
    /// Refused by a rule, mostly because other bidders had bid more meanwhile.
    refused: u64,
    /// Failed otherwise: the lock was not obtained, or an error occurred.
    failed: u64,
    /// The message of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Latencies of all bids that were answered.
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    bids_per_commit: Option<f64>,
}

impl AuctionRow {
    fn new(store: &str, strategy: &'static str, ours: bool, run: &Run) -> Self {
        Self {
            store: store.to_owned(),
            strategy,
            ours,
            correct: None,
            finding: None,
            accepted: run.accepted,
            accepted_per_second: run.per_second(),
            refused: run.refused,
            failed: run.failed,
            failure: run.says.clone(),
            p50_us: run.times.value_at_quantile(0.5),
            p99_us: run.times.value_at_quantile(0.99),
            max_us: run.times.max(),
            bids_per_commit: None,
        }
    }

    fn judged(mut self, facts: &audit::Facts) -> Self {
        self.finding = audit::finding(facts);
        self.correct = Some(self.finding.is_none());
        self
    }

    fn commits(mut self, commits: u64) -> Self {
        self.bids_per_commit = (0 < commits).then(|| self.accepted as f64 / commits as f64);
        self
    }
}

/// The settings of the benchmark, and its results so far.
struct Bench<'a> {
    args: &'a AuctionsArgs,
    scratch: PathBuf,
    bar: ProgressBar,
    rows: Vec<AuctionRow>,
    targets: Vec<Target>,
    /// What could not be measured, and why.
    notes: Vec<String>,
}

impl Bench<'_> {
    fn step(&self, store: &str, doing: &str) {
        self.bar.set_message(format!("{store}: {doing}"));
        self.bar.inc(1);
    }
}

#[derive(Serialize)]
struct Report<'a> {
    conditions: &'a Conditions,
    tasks: u32,
    bidders: u32,
    connections: u32,
    rows: &'a [AuctionRow],
    targets: &'a [Target],
    notes: &'a [String],
}

pub(crate) fn run(args: &AuctionsArgs) -> Outcome {
    if let Some(plot) = &args.plot {
        check(plot).map_err(Failure::Usage)?;
    }
    database::check(&args.stores).map_err(Failure::Usage)?;
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(unless_stopped(measure_and_tell(args, &conditions)))
}

async fn measure_and_tell(args: &AuctionsArgs, conditions: &Conditions) -> Outcome {
    let scratch = Scratch::new(&args.data, "auctions")?;
    let mut bench = Bench {
        args,
        scratch: scratch.0.clone(),
        bar: progress(16, ""),
        rows: Vec::new(),
        targets: Vec::new(),
        notes: Vec::new(),
    };
    embedded::measure(&mut bench).await?;
    if 0 < args.connections {
        http::measure(&mut bench).await?;
    }
    database::measure(&mut bench).await?;
    bench.bar.finish_and_clear();
    let Bench { rows, targets, notes, .. } = &bench;
    let AuctionsArgs { tasks, bidders, connections, .. } = *args;
    let report = Report { conditions, tasks, bidders, connections, rows, targets, notes };
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::draw(path, &report)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.table || wants_table(args.json) {
        write_out(report.text().as_bytes())?;
    } else {
        write_out(format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes())?;
    }
    let wrong = rows.iter().find(|row| row.ours && row.correct == Some(false));
    match wrong {
        Some(row) => Err(Failure::Refused(anyhow!(
            "{}, {}, was not exact: {}",
            row.store,
            row.strategy,
            row.finding.as_deref().unwrap_or_default()
        ))),
        None => Ok(()),
    }
}

/// Formats milliseconds with the significant digits only.
fn ms(us: u64) -> String {
    let ms = us as f64 / 1e3;
    if ms < 10.0 { format!("{ms:.2}") } else { grouped(ms.round() as u64) }
}

impl Report<'_> {
    fn head(&self) -> String {
        let Self { tasks, bidders, connections, .. } = self;
        format!(
            "{}One auction · {tasks} callers who bid again at once, {bidders} bidders, {connections} connections at most; \
             over HTTP 256 callers on as many, 2 048 bidders\n",
            self.conditions.line()
        )
    }

    /// Renders the report as tables.
    fn text(&self) -> String {
        let mut text = self.head();
        let mut rows = table(&[
            "Store",
            "Strategy",
            ">Accepted/s",
            "Correct",
            ">Refused",
            ">Failed",
            ">p50 ms",
            ">p99 ms",
            ">max ms",
            ">Bids/commit",
        ]);
        for row in self.rows {
            let correct = match row.correct {
                None => Cell::new("–"),
                Some(true) => Cell::new("yes").fg(Color::Green),
                Some(false) => Cell::new("NO").fg(Color::Red),
            };
            rows.add_row([
                Cell::new(&row.store),
                Cell::new(row.strategy),
                Cell::new(grouped(row.accepted_per_second.round() as u64)),
                correct,
                Cell::new(grouped(row.refused)),
                Cell::new(grouped(row.failed)),
                Cell::new(ms(row.p50_us)),
                Cell::new(ms(row.p99_us)),
                Cell::new(ms(row.max_us)),
                Cell::new(row.bids_per_commit.map_or_else(|| "–".into(), |bids| format!("{bids:.1}"))),
            ]);
        }
        text.push_str(&format!("{rows}\n"));
        text.push_str("Refused: by a rule, mostly since others had bid more meanwhile. Failed: no answer by a rule.\n");
        for row in self.rows {
            let says =
                |what: &Option<String>| what.as_ref().map(|says| format!("{}, {}: {says}\n", row.store, row.strategy));
            text.extend(says(&row.finding));
            text.extend(says(&row.failure));
        }
        text.extend(self.notes.iter().map(|note| format!("{note}\n")));
        text.push_str(&target_table(self.targets));
        text
    }
}
