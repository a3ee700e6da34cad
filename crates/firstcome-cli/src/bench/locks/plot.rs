//! The strategies side by side, as a drawing that needs nothing else.

use super::{Report, Row, time};
use crate::markup::{escaped, put};
use crate::output::grouped;
use anyhow::bail;
use std::path::Path;

/// Widths and heights, in the drawing's own units.
const WIDTH: f64 = 900.0;
const NAMES: f64 = 230.0;
const VALUES: f64 = 90.0;
const BAR: f64 = 16.0;
const GAP: f64 = 8.0;
const TITLE: f64 = 50.0;

const STYLE: &str = "\
svg{font:13px system-ui,sans-serif;fill:#1d2430;background:#fff}\
.title{font-weight:600;font-size:15px}.soft{fill:#667085;font-size:12px}.value{font-variant-numeric:tabular-nums}\
.bar{fill:#8fa3bf}.ours{fill:#2563eb}.bad{fill:#d92d20}.none{fill:#98a2b3}.axis{stroke:#d0d5dd;stroke-width:1}\
@media (prefers-color-scheme:dark){svg{fill:#e6e9ef;background:#12161c}.soft{fill:#98a2b3}.bar{fill:#5b6b83}\
.ours{fill:#5b8def}.bad{fill:#f97066}.axis{stroke:#344054}}";

/// One group of bars: what, how it is read, and how a value is written.
struct Chart {
    title: &'static str,
    reading: &'static str,
    value: fn(&Row) -> Option<f64>,
    written: fn(f64) -> String,
}

const CHARTS: [Chart; 5] = [
    Chart {
        title: "Acquisitions per second",
        reading: "longer is better",
        value: |row| Some(row.per_second),
        written: |value| grouped(value.round() as u64),
    },
    Chart { title: "Longest wait", reading: "shorter is better", value: |row| Some(row.wait_max_us), written: time },
    Chart {
        title: "Hand-over, median",
        reading: "from one holder's release to the next one's grant; shorter is better",
        value: |row| row.hand_over_p50_us,
        written: time,
    },
    Chart {
        title: "Later arrivals served before one waiter, at most",
        reading: "0 is first come, first served",
        value: |row| Some(row.greatest_overtaking as f64),
        written: |value| grouped(value as u64),
    },
    Chart {
        title: "Requests per acquisition",
        reading: "acquire and release make 2; shorter is better",
        value: |row| row.requests_each,
        written: |value| format!("{value:.1}"),
    },
];

/// Refuses a name from which the kind of drawing cannot be told.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "html") => Ok(()),
        _ => bail!("--plot wants a file that ends in .svg or .html"),
    }
}

/// The drawing, or a page with it.
pub(super) fn draw(path: &Path, report: &Report<'_>) -> String {
    let svg = svg(report);
    if path.extension().is_some_and(|extension| extension == "svg") {
        return svg;
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Locks · firstcome</title>\
         <style>body{{margin:24px auto;max-width:900px;padding:0 12px}}svg{{width:100%;height:auto}}\
         @media (prefers-color-scheme:dark){{body{{background:#12161c}}}}</style></head>\n<body>{svg}</body></html>\n"
    )
}

fn svg(report: &Report<'_>) -> String {
    // The control is no lock: what it reaches is no figure of one.
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.lost_updates == 0).collect();
    let chart_height = TITLE + rows.len() as f64 * (BAR + GAP) + 14.0;
    let head_height = 62.0;
    let height = head_height + CHARTS.len() as f64 * chart_height;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"Locks under every strategy\"><style>{STYLE}</style>\
         <text x=\"12\" y=\"26\" class=\"title\">One hot lock under every strategy</text>"
    );
    for (at, line) in report.head().lines().enumerate() {
        let y = 44.0 + at as f64 * 15.0;
        put(&mut svg, format_args!("<text x=\"12\" y=\"{y:.0}\" class=\"soft\">{}</text>", escaped(line)));
    }
    for (at, chart) in CHARTS.iter().enumerate() {
        draw_chart(chart, &rows, head_height + at as f64 * chart_height, &mut svg);
    }
    svg.push_str("</svg>");
    svg
}

/// Lengths are logarithmic: strategies lie powers of ten apart.
fn draw_chart(chart: &Chart, rows: &[&Row], top: f64, svg: &mut String) {
    let values = || rows.iter().filter_map(|row| (chart.value)(row));
    let most = values().fold(1.0, f64::max);
    let least = values().filter(|value| 0.0 < *value).fold(most, f64::min);
    // The shortest bar is still one, and powers of ten are equally long in all charts that span as many.
    let low = least.log10().floor() - 0.5;
    let room = WIDTH - NAMES - VALUES - 12.0;
    let span = most.log10() - low;
    let title = escaped(chart.title);
    put(svg, format_args!("<text x=\"12\" y=\"{:.0}\" class=\"title\">{title}</text>", top + 26.0));
    let reading = format!("{} · logarithmic", chart.reading);
    put(svg, format_args!("<text x=\"12\" y=\"{:.0}\" class=\"soft\">{}</text>", top + 42.0, escaped(&reading)));
    let (first, last) = (top + TITLE, top + TITLE + rows.len() as f64 * (BAR + GAP));
    put(svg, format_args!("<path class=\"axis\" d=\"M{NAMES} {first:.0}V{last:.0}\"/>"));
    for (at, row) in rows.iter().enumerate() {
        let y = first + GAP / 2.0 + at as f64 * (BAR + GAP);
        let text_y = y + BAR - 3.5;
        let name = escaped(&row.strategy);
        put(svg, format_args!("<text x=\"{:.0}\" y=\"{text_y:.1}\" text-anchor=\"end\">{name}</text>", NAMES - 10.0));
        let Some(value) = (chart.value)(row) else {
            put(svg, format_args!("<text x=\"{:.0}\" y=\"{text_y:.1}\" class=\"none\">–</text>", NAMES + 8.0));
            continue;
        };
        let share = if value <= 0.0 { 0.0 } else { ((value.log10() - low) / span).clamp(0.0, 1.0) };
        let length = share * room;
        let ours = if row.strategy.contains("native") { "bar ours" } else { "bar" };
        put(
            svg,
            format_args!(
                "<rect class=\"{ours}\" x=\"{NAMES}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{text_y:.1}\" class=\"value\">{}</text>",
                NAMES + length + 8.0,
                escaped(&(chart.written)(value))
            ),
        );
    }
}
