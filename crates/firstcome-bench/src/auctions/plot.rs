//! Draws the strategies of the auction benchmark.

use super::{AuctionRow, Report, ms};
use crate::output::grouped;
use crate::plot::{self, Bar, Chart, Drawing};
use std::path::Path;

/// Renders the drawing, or a page with it.
pub(super) fn draw(path: &Path, report: &Report<'_>) -> String {
    // The rate at half load was chosen, and /healthz places no bids: only audited rows at full load are compared.
    let at_full_load = |row: &&AuctionRow| row.correct.is_some() && !row.strategy.contains("half load");
    let rows: Vec<&AuctionRow> = report.rows.iter().filter(at_full_load).collect();
    let chart = |title, reading, value: fn(&AuctionRow) -> (f64, String)| {
        let bar = |row: &&AuctionRow| Bar {
            name: format!("{}: {}", row.store, row.strategy),
            value: Some(value(row)),
            range: None,
            ours: row.ours,
        };
        Chart { title, reading, bars: rows.iter().map(bar).collect() }
    };
    let charts = vec![
        chart("Accepted bids per second", "longer is better", |row| {
            (row.accepted_per_second, grouped(row.accepted_per_second.round() as u64))
        }),
        chart("Answer, 99th percentile", "at full load, callers that wait included; shorter is better", |row| {
            (row.p99_us as f64, format!("{} ms", ms(row.p99_us)))
        }),
        chart("Bids that failed", "no answer by a rule; 0 is right", |row| (row.failed as f64, grouped(row.failed))),
    ];
    let title = "One hot auction under every strategy";
    plot::draw(path, &Drawing { subject: "Auctions", title, head: report.head(), charts })
}
