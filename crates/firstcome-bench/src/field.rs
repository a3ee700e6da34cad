//! `firstcome-bench field`: firstcome and its peers in one table, in one run, on the same cores.
//!
//! Every round runs every way once, each round in another order, so that a drift of the machine meets all of them.
//! A way is compared with a physical limit that was measured in the same round: one bare round trip, one synced commit,
//! a bare insert loop, an empty route. A way that cannot be measured here stays in the report, with the reason.

pub(crate) mod about;
pub(crate) mod limits;
pub(crate) mod table;

use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::output::{progress, wants_table, write_out};
use crate::{auctions, coupons, locks, rooms};
use about::About;
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum, value_parser};
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::Table;

/// One kind of contest.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Part {
    Locks,
    Coupons,
    Rooms,
    Auctions,
}

#[derive(Args)]
pub(crate) struct FieldArgs {
    /// The contests to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Rounds over all ways
    // Joins of rooms have new users in five rounds.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=5))]
    pub(crate) rounds: u32,
    /// Time for each way, in each round
    #[arg(long, value_parser = duration, default_value = "1s")]
    pub(crate) time: Duration,
    /// Processes that want the hot lock
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// Tasks in each of them
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..=1_000))]
    pub(crate) tasks: u32,
    /// Callers at once, of coupons and auctions
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) callers: u32,
    /// People in line, of rooms
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u32).range(1_000..=10_000_000))]
    pub(crate) people: u32,
    /// The directory in which `bench/peers/install` has put the libraries of other languages
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    pub(crate) peers: PathBuf,
    /// The directory with the programs of bench/, which are libraries in Rust
    #[arg(long, value_name = "DIR", default_value = "target/bench/release")]
    pub(crate) rust_peers: PathBuf,
    /// Measure no libraries of others, only what this program can do by itself
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// Start neither databases nor etcd
    #[arg(long)]
    pub(crate) no_databases: bool,
    /// Directory on a disk, in which scratch directories are made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) data: PathBuf,
    /// Also write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

/// The report, which is committed as `docs/full/field.json`.
#[derive(Serialize)]
struct Report {
    about: About,
    rounds: u32,
    seconds: f64,
    processes: u32,
    tasks: u32,
    callers: u32,
    people: u32,
    tables: Vec<Table>,
}

/// Shows what is measured: a bar on a terminal, lines elsewhere.
pub(crate) struct Progress {
    bar: ProgressBar,
    command: &'static str,
}

impl Progress {
    pub(crate) fn named(command: &'static str) -> Self {
        Self { bar: progress(0, ""), command }
    }

    /// Announces so many more steps.
    pub(crate) fn expect(&self, steps: usize) {
        self.bar.inc_length(steps as u64);
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    pub(crate) fn step(&self, doing: &str) {
        self.bar.set_message(doing.to_owned());
        self.bar.inc(1);
        if self.bar.is_hidden() {
            eprintln!("{}: {}/{}: {doing}", self.command, self.bar.position(), self.bar.length().unwrap_or(0));
        }
    }
}

/// Returns the order of a round: each begins with another way.
pub(crate) fn turns(ways: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..ways).map(move |at| (at + round as usize * 7) % ways)
}

pub(crate) fn run(args: &FieldArgs) -> Outcome {
    let about = About::measure(&args.data).map_err(Failure::Usage)?;
    let mut report = Report {
        about,
        rounds: args.rounds,
        seconds: args.time.as_secs_f64(),
        processes: args.processes,
        tasks: args.tasks,
        callers: args.callers,
        people: args.people,
        tables: Vec::new(),
    };
    let progress = Progress::named("field");
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let versions = &mut report.about.versions;
    if wanted(Part::Locks) {
        report.tables.extend(locks::field(args, &progress, versions)?);
    }
    if wanted(Part::Coupons) {
        report.tables.push(coupons::field(args, &progress, versions)?);
    }
    if wanted(Part::Rooms) {
        report.tables.extend(rooms::field(args, &progress)?);
    }
    if wanted(Part::Auctions) {
        report.tables.push(auctions::field(args, &progress, versions)?);
    }
    progress.end();
    if let Some(path) = &args.out {
        write(path, &report)?;
    }
    if args.table || wants_table(args.json) {
        write_out(report.text().as_bytes())?;
    } else {
        write_out(format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes())?;
    }
    match report.tables.iter().find_map(Table::wrong) {
        Some(wrong) => Err(Failure::Refused(anyhow!("{wrong}"))),
        None => Ok(()),
    }
}

/// Writes a report as JSON.
pub(crate) fn write(path: &Path, report: &impl Serialize) -> anyhow::Result<()> {
    let text = format!("{}\n", serde_json::to_string_pretty(report)?);
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

impl Report {
    fn text(&self) -> String {
        let head = format!(
            "{}{} rounds of {} s for each way, in turns; locks: {} processes × {} tasks; coupons, auctions: {} callers; \
             rooms: {} people in line\n",
            self.about.machine.line(),
            self.rounds,
            self.seconds,
            self.processes,
            self.tasks,
            self.callers,
            self.people,
        );
        self.tables.iter().fold(head, |text, table| text + &table.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_runs_every_way_once_and_begins_with_another() {
        for ways in 1..30 {
            for round in 0..4 {
                let mut order: Vec<usize> = turns(ways, round).collect();
                order.sort_unstable();
                assert_eq!(order, (0..ways).collect::<Vec<_>>());
            }
        }
        assert_ne!(turns(9, 0).next(), turns(9, 1).next());
    }
}
