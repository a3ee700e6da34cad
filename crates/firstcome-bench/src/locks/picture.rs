//! Draws the strategies of the lock benchmark.

use super::{LockRow, Report, time};
use crate::output::grouped;
use crate::plot::{self, Bar, Chart, Drawing};
use std::path::Path;

/// A group of bars: title, explanation, value and format.
struct Figure {
    title: &'static str,
    reading: &'static str,
    value: fn(&LockRow) -> Option<f64>,
    written: fn(f64) -> String,
}

const FIGURES: [Figure; 5] = [
    Figure {
        title: "Acquisitions per second",
        reading: "longer is better",
        value: |row| Some(row.per_second),
        written: |value| grouped(value.round() as u64),
    },
    Figure { title: "Longest wait", reading: "shorter is better", value: |row| Some(row.wait_max_us), written: time },
    Figure {
        title: "Hand-over, median",
        reading: "from one holder's release to the next one's grant; shorter is better",
        value: |row| row.hand_over_p50_us,
        written: time,
    },
    Figure {
        title: "Later arrivals served before one waiter, at most",
        reading: "0 is first come, first served",
        value: |row| Some(row.greatest_overtaking as f64),
        written: |value| grouped(value as u64),
    },
    Figure {
        title: "Requests per acquisition",
        reading: "acquire and release make 2; shorter is better",
        value: |row| row.requests_each,
        written: |value| format!("{value:.1}"),
    },
];

/// Renders the drawing, or a page with it.
pub(super) fn draw(path: &Path, report: &Report<'_>) -> String {
    // The control is not a lock, so its figures are not drawn.
    let rows: Vec<&LockRow> = report.rows.iter().filter(|row| row.lost_updates == 0).collect();
    let chart = |figure: &Figure| {
        let bar = |row: &&LockRow| {
            let value = (figure.value)(row).map(|value| (value, (figure.written)(value)));
            Bar { name: row.strategy.clone(), value, range: None, ours: row.strategy.contains("native") }
        };
        Chart { title: figure.title, reading: figure.reading, bars: rows.iter().map(bar).collect() }
    };
    let charts = FIGURES.iter().map(chart).collect();
    plot::draw(
        path,
        &Drawing { subject: "Locks", title: "One hot lock under every strategy", head: report.head(), charts },
    )
}
