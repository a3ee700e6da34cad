//! The tables of the field: rows that were measured in turns, and ways that were not measured, with the reason.

use crate::output::{grouped, table};
use crate::spread::Spread;
use comfy_table::{Cell, Color};
use serde::Serialize;

/// One measurement of one way, in one round.
#[derive(Clone, Default)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    /// What the limit of this way made in the same round.
    pub(crate) limit: Option<f64>,
    /// The slowest 1 % of answers begins here.
    pub(crate) p99_us: Option<f64>,
    /// The most later arrivals that were served before one waiter.
    pub(crate) overtaken: Option<f64>,
    pub(crate) exact: Option<bool>,
    /// What was wrong.
    pub(crate) finding: Option<String>,
}

/// The description of a way, which does not depend on a measurement.
#[derive(Clone, Default)]
pub(crate) struct Way {
    pub(crate) name: String,
    /// Whether it is one of firstcome's.
    pub(crate) ours: bool,
    /// The limit that it is compared with: `one bare round trip`.
    pub(crate) limit: &'static str,
    /// Whether an answer survives a crash of the machine; `None` for a lock, which keeps nothing.
    pub(crate) durable: Option<bool>,
    /// What a reader must know about the figures of this way.
    pub(crate) note: Option<&'static str>,
}

/// One way with its figures over all rounds.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The description that a peer gave of itself: library, version, settings.
    pub(crate) what: Option<String>,
    pub(crate) ours: bool,
    pub(crate) per_second: Spread,
    pub(crate) limit: &'static str,
    pub(crate) share_of_limit: Option<Spread>,
    pub(crate) p99_us: Option<Spread>,
    pub(crate) overtaken: Option<f64>,
    pub(crate) exact: Option<bool>,
    pub(crate) durable: Option<bool>,
    pub(crate) finding: Option<String>,
    pub(crate) note: Option<&'static str>,
    pub(crate) rounds: usize,
}

/// A way that is left out, and why.
#[derive(Serialize)]
pub(crate) struct NotMeasured {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// One contest: the same work by every way.
#[derive(Serialize)]
pub(crate) struct Table {
    /// The name by which a document refers to it.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    /// The unit of the rates: `acquisitions per second`.
    pub(crate) unit: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) not_measured: Vec<NotMeasured>,
}

impl Table {
    pub(crate) fn new(name: &'static str, title: impl Into<String>, unit: &'static str) -> Self {
        Self { name, title: title.into(), unit, rows: Vec::new(), not_measured: Vec::new() }
    }

    pub(crate) fn leave_out(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        self.not_measured.push(NotMeasured { name: name.into(), reason: reason.into() });
    }

    /// Adds a way with its samples. A way without a sample, or with a round that failed, is named as not measured.
    pub(crate) fn add(&mut self, way: Way, what: Option<String>, samples: &[Sample], failure: Option<String>) {
        let per_second = Spread::of(samples.iter().map(|sample| sample.per_second));
        let (None, Some(per_second)) = (&failure, per_second) else {
            self.leave_out(way.name, failure.unwrap_or_else(|| "no round was measured".into()));
            return;
        };
        let share = |sample: &Sample| sample.limit.map(|limit| sample.per_second / limit);
        let found = samples.iter().filter_map(|sample| sample.exact);
        self.rows.push(Row {
            name: way.name,
            what,
            ours: way.ours,
            per_second,
            limit: way.limit,
            share_of_limit: Spread::of(samples.iter().filter_map(share)),
            p99_us: Spread::of(samples.iter().filter_map(|sample| sample.p99_us)),
            overtaken: samples.iter().filter_map(|sample| sample.overtaken).max_by(f64::total_cmp),
            exact: found.reduce(|all, one| all && one),
            durable: way.durable,
            finding: samples.iter().find_map(|sample| sample.finding.clone()),
            note: way.note,
            rounds: samples.len(),
        });
    }

    /// Returns the first way of firstcome that was not exact, with the reason.
    pub(crate) fn wrong(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| row.ours && row.exact == Some(false))?;
        let finding = row.finding.as_deref().unwrap_or("it was not exact");
        Some(format!("{}: {}: {finding}", self.name, row.name))
    }

    /// Renders the table for people.
    pub(crate) fn text(&self) -> String {
        let columns = ["Way", ">Per second", ">min–max", ">÷ limit", "Limit", ">p99", "Exact", "Durable"];
        let mut rows = table(&columns);
        for row in &self.rows {
            rows.add_row([
                Cell::new(&row.name),
                Cell::new(rate(row.per_second.median)),
                Cell::new(format!("{}–{}", rate(row.per_second.min), rate(row.per_second.max))),
                Cell::new(row.share_of_limit.map_or_else(|| "–".into(), |share| format!("{:.3}", share.median))),
                Cell::new(row.limit),
                Cell::new(row.p99_us.map_or_else(|| "–".into(), |p99| time(p99.median))),
                answer(row.exact),
                answer(row.durable),
            ]);
        }
        let mut text = format!("\n{}, {}\n{rows}\n", self.title, self.unit);
        for row in &self.rows {
            text.extend(row.finding.iter().map(|finding| format!("{}: {finding}\n", row.name)));
        }
        for left in &self.not_measured {
            text.push_str(&format!("not measured: {}: {}\n", left.name, left.reason));
        }
        text
    }
}

fn answer(answer: Option<bool>) -> Cell {
    match answer {
        None => Cell::new("–"),
        Some(true) => Cell::new("yes").fg(Color::Green),
        Some(false) => Cell::new("NO").fg(Color::Red),
    }
}

fn rate(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { grouped(value.round() as u64) }
}

fn time(us: f64) -> String {
    if us < 1_000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(per_second: f64, limit: f64, exact: Option<bool>) -> Sample {
        Sample { per_second, limit: Some(limit), exact, ..Sample::default() }
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let mut table = Table::new("locks", "Locks", "per second");
        let samples = [sample(50.0, 100.0, None), sample(90.0, 300.0, None), sample(20.0, 100.0, None)];
        table.add(Way { name: "a".into(), ..Way::default() }, None, &samples, None);
        let row = &table.rows[0];
        assert_eq!(row.per_second, Spread { min: 20.0, median: 50.0, max: 90.0 });
        assert_eq!(row.share_of_limit.map(|share| share.median), Some(0.3));
    }

    #[test]
    fn one_wrong_round_makes_a_way_wrong() {
        let mut table = Table::new("coupons", "Coupons", "per second");
        let way = Way { name: "ours".into(), ours: true, ..Way::default() };
        table.add(way, None, &[sample(1.0, 1.0, Some(true)), sample(1.0, 1.0, Some(false))], None);
        assert_eq!(table.rows[0].exact, Some(false));
        assert!(table.wrong().is_some_and(|wrong| wrong.contains("coupons: ours")));
    }

    #[test]
    fn a_way_that_failed_is_named_with_the_reason() {
        let mut table = Table::new("locks", "Locks", "per second");
        table.add(Way { name: "a".into(), ..Way::default() }, None, &[], Some("no program".into()));
        assert_eq!(table.not_measured[0].reason, "no program");
        assert!(table.text().contains("not measured: a: no program"));
    }
}
