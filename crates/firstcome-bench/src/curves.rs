//! `firstcome-bench curves`: how rates and memory change with waiters, processes, connections, users, stock, payloads, streams and nodes.
//!
//! Every round measures every point once, odd rounds from the largest to the smallest, so that a drift of the machine
//! meets both ends. What a curve means is said in `docs/benchmarks.md`; the numbers come from here.

mod http;
mod nodes;
mod process;
mod streams;

use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::field::about::About;
use crate::field::{Progress, write};
use crate::locks;
use crate::output::{grouped, table, wants_table, write_out};
use crate::spread::Spread;
use clap::{Args, value_parser};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct CurvesArgs {
    /// Rounds over all points
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Time for each point, in each round
    #[arg(long, value_parser = duration, default_value = "700ms")]
    pub(crate) time: Duration,
    /// The most waiters, users and stock: points above it are left out
    #[arg(long, default_value_t = 10_000_000, value_parser = value_parser!(u32).range(100..=100_000_000))]
    pub(crate) largest: u32,
    /// The most connections
    #[arg(long, default_value_t = 4_096, value_parser = value_parser!(u32).range(16..=16_384))]
    pub(crate) connections: u32,
    /// Only these curves, by their names, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
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

/// One curve with all its lines.
#[derive(Serialize)]
pub(crate) struct Curve {
    /// The name by which a document refers to it.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What a value is: `claims per second`.
    pub(crate) reading: &'static str,
    /// What is varied: `waiters`.
    pub(crate) across_is: &'static str,
    pub(crate) series: Vec<Line>,
}

#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<Point>,
}

#[derive(Serialize)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) value: Spread,
    #[serde(skip)]
    values: Vec<f64>,
}

impl Curve {
    pub(crate) fn new(
        name: &'static str,
        title: &'static str,
        reading: &'static str,
        across_is: &'static str,
        lines: &[&'static str],
    ) -> Self {
        let series = lines.iter().map(|name| Line { name, points: Vec::new() }).collect();
        Self { name, title, reading, across_is, series }
    }

    /// Adds the value of a round to a point of a line.
    pub(crate) fn add(&mut self, line: &str, x: u32, value: f64) {
        let Some(line) = self.series.iter_mut().find(|known| known.name == line) else { return };
        let x = f64::from(x);
        let at = line.points.partition_point(|point| point.x < x);
        if line.points.get(at).is_none_or(|point| x < point.x) {
            let value = Spread { min: value, median: value, max: value };
            line.points.insert(at, Point { x, value, values: Vec::new() });
        }
        let point = &mut line.points[at];
        point.values.push(value);
        if let Some(spread) = Spread::of(point.values.iter().copied()) {
            point.value = spread;
        }
    }
}

/// Returns the points in the order of a round: upwards, then downwards.
pub(crate) fn order(points: &[u32], round: u32) -> Vec<u32> {
    let mut points = points.to_vec();
    if !round.is_multiple_of(2) {
        points.reverse();
    }
    points
}

#[derive(Serialize)]
struct Report {
    about: About,
    rounds: u32,
    curves: Vec<Curve>,
}

pub(crate) fn run(args: &CurvesArgs) -> Outcome {
    let about = About::measure(&args.data).map_err(Failure::Usage)?;
    let progress = Progress::named("curves");
    let mut report = Report { about, rounds: args.rounds, curves: Vec::new() };
    type Measure = fn(&CurvesArgs, &Progress) -> Result<Vec<Curve>, Failure>;
    let all: [(&[&str], Measure); 7] = [
        // First: it counts memory that nothing has used before.
        (&["held"], process::held),
        (&["waiters", "processes"], locks::curves),
        (&["connections", "payload"], http::measure),
        (&["users", "memory"], process::users),
        (&["stock"], process::stock),
        (&["streams"], streams::measure),
        (&["nodes"], nodes::measure),
    ];
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    for (names, measure) in all {
        if names.iter().any(|name| wanted(name)) {
            report.curves.extend(measure(args, &progress)?.into_iter().filter(|curve| wanted(curve.name)));
        }
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
    Ok(())
}

impl Report {
    fn text(&self) -> String {
        let mut text = self.about.machine.line();
        for curve in &self.curves {
            let mut rows =
                table(&["Line", &format!(">{}", curve.across_is), &format!(">{}", curve.reading), ">min–max"]);
            for line in &curve.series {
                for Point { x, value, .. } in &line.points {
                    let [min, median, max] = [value.min, value.median, value.max].map(number);
                    rows.add_row([line.name, &number(*x), &median, &format!("{min}–{max}")]);
                }
            }
            text.push_str(&format!("\n{}\n{rows}\n", curve.title));
        }
        text
    }
}

fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { grouped(value.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_point_are_gathered_in_any_order() {
        let mut curve = Curve::new("a", "A", "per second", "users", &["memory"]);
        for (x, value) in [(10, 4.0), (1, 1.0), (100, 9.0), (1, 3.0)] {
            curve.add("memory", x, value);
        }
        let points: Vec<(f64, f64)> =
            curve.series[0].points.iter().map(|point| (point.x, point.value.median)).collect();
        assert_eq!(points, [(1.0, 2.0), (10.0, 4.0), (100.0, 9.0)]);
        assert_eq!(curve.series[0].points[0].value, Spread { min: 1.0, median: 2.0, max: 3.0 });
    }

    #[test]
    fn odd_rounds_go_down() {
        assert_eq!(order(&[1, 2, 3], 0), [1, 2, 3]);
        assert_eq!(order(&[1, 2, 3], 1), [3, 2, 1]);
    }
}
