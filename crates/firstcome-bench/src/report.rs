//! The results of a benchmark: rows of figures, and targets that they meet or miss.

use super::conditions::Conditions;
use crate::failure::Outcome;
use crate::output::{grouped, table, write_out};
use comfy_table::{Cell, Color};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Latencies in microseconds.
pub(crate) type Latencies = Histogram<u64>;

/// Creates an empty histogram of up to a minute, to three digits.
pub(crate) fn latencies() -> Latencies {
    // The bounds are constants that the library accepts.
    Histogram::new_with_bounds(1, 60_000_000, 3).unwrap_or_else(|_| unreachable!())
}

/// The origin of a strategy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A strategy of firstcome: it must be exact.
    Firstcome,
    /// A usual strategy for comparison, which may be wrong.
    Comparison,
}

/// One strategy under load.
#[derive(Serialize)]
pub(crate) struct ReportRow {
    #[serde(skip)]
    pub(crate) origin: Origin,
    pub(crate) strategy: String,
    /// Whether a contest issued exactly N, one each, without a gap. `None` if there is no rule to keep.
    pub(crate) correct: Option<bool>,
    pub(crate) per_second: f64,
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    pub(crate) max_us: Option<u64>,
    pub(crate) per_commit: Option<f64>,
    /// Requests that were refused because the store was overloaded, or could not write for a while. They count in no
    /// other figure.
    pub(crate) refused: u64,
}

impl ReportRow {
    pub(crate) fn new(strategy: impl Into<String>, operations: u64, elapsed: Duration) -> Self {
        Self {
            origin: Origin::Firstcome,
            strategy: strategy.into(),
            correct: None,
            per_second: operations as f64 / elapsed.as_secs_f64(),
            p50_us: None,
            p99_us: None,
            max_us: None,
            per_commit: None,
            refused: 0,
        }
    }

    pub(crate) const fn refused(mut self, refused: u64) -> Self {
        self.refused = refused;
        self
    }

    pub(crate) fn latencies(mut self, latencies: &Latencies) -> Self {
        self.p50_us = Some(latencies.value_at_quantile(0.5));
        self.p99_us = Some(latencies.value_at_quantile(0.99));
        self.max_us = Some(latencies.max());
        self
    }

    pub(crate) const fn correct(mut self, correct: bool) -> Self {
        self.correct = Some(correct);
        self
    }

    /// Marks the row as a comparison.
    pub(crate) const fn into_comparison(mut self) -> Self {
        self.origin = Origin::Comparison;
        self
    }

    pub(crate) const fn per_commit(mut self, claims: f64) -> Self {
        self.per_commit = Some(claims);
        self
    }
}

/// A figure with its required value.
#[derive(Serialize)]
pub(crate) struct Target {
    pub(crate) what: &'static str,
    pub(crate) wanted: String,
    pub(crate) reached: String,
    pub(crate) met: bool,
}

impl Target {
    pub(crate) fn at_least(what: &'static str, reached: f64, wanted: f64) -> Self {
        Self { what, wanted: format!("≥ {}", figure(wanted)), reached: figure(reached), met: wanted <= reached }
    }

    pub(crate) fn at_most(what: &'static str, reached: f64, wanted: f64) -> Self {
        Self { what, wanted: format!("≤ {}", figure(wanted)), reached: figure(reached), met: reached <= wanted }
    }

    pub(crate) fn exactly(what: &'static str, reached: f64, wanted: f64) -> Self {
        let met = (reached - wanted).abs() < 1e-9;
        Self { what, wanted: format!("= {}", figure(wanted)), reached: figure(reached), met }
    }
}

/// Renders targets as a table.
pub(crate) fn target_table(targets: &[Target]) -> String {
    let mut table = table(&["Target", ">Wanted", ">Reached", "Met"]);
    for target in targets {
        let met = if target.met { Cell::new("yes").fg(Color::Green) } else { Cell::new("NO").fg(Color::Red) };
        table.add_row([Cell::new(target.what), Cell::new(&target.wanted), Cell::new(&target.reached), met]);
    }
    format!("{table}\n")
}

pub(crate) fn figure(value: f64) -> String {
    if 1_000.0 <= value { grouped(value.round() as u64) } else { format!("{}", (value * 100.0).round() / 100.0) }
}

/// The whole report.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) conditions: Conditions,
    pub(crate) rows: Vec<ReportRow>,
    pub(crate) targets: Vec<Target>,
}

impl Report {
    pub(crate) fn print(&self, as_tables: bool) -> Outcome {
        if !as_tables {
            write_out(format!("{}\n", serde_json::to_string_pretty(self)?).as_bytes())?;
            return Ok(());
        }
        write_out(self.text().as_bytes())?;
        Ok(())
    }

    /// Renders the report as tables.
    pub(crate) fn text(&self) -> String {
        let mut text = self.conditions.line();
        let mut rows = table(&[
            "Strategy",
            ">Per second",
            "Correct",
            ">p50 µs",
            ">p99 µs",
            ">max µs",
            ">Claims/commit",
            ">Refused",
        ]);
        let number = |value: Option<u64>| value.map_or_else(|| "–".into(), grouped);
        for row in &self.rows {
            let correct = match row.correct {
                None => Cell::new("–"),
                Some(true) => Cell::new("yes").fg(Color::Green),
                Some(false) => Cell::new("NO").fg(Color::Red),
            };
            rows.add_row([
                Cell::new(&row.strategy),
                Cell::new(grouped(row.per_second.round() as u64)),
                correct,
                Cell::new(number(row.p50_us)),
                Cell::new(number(row.p99_us)),
                Cell::new(number(row.max_us)),
                Cell::new(row.per_commit.map_or_else(|| "–".into(), |claims| format!("{claims:.1}"))),
                match row.refused {
                    0 => Cell::new("–"),
                    refused => Cell::new(grouped(refused)).fg(Color::Red),
                },
            ]);
        }
        text.push_str(&format!("{rows}\n"));
        if self.rows.iter().any(|row| 0 < row.refused) {
            text.push_str(
                "Refused: turned away while the store had too much to do or could not write. Another process uses this disk or \
                 these processors; measure again when it does not.\n",
            );
        }
        text.push_str(&target_table(&self.targets));
        text
    }
}
