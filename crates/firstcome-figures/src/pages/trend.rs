//! The trend over commits of `cargo xtask full perf`.

use super::{about, rate, spread};
use crate::lines::{Across, Panel, Point, Series, svg};
use serde_json::Value;
use std::fmt::Write as _;

/// The rates over HTTP, as `firstcome-bench beside` names them, with the titles of their panels.
const RATES: [(&str, &str); 4] = [
    ("durable claims", "Durable claims over HTTP"),
    ("sold out", "Sold-out answers over HTTP"),
    ("polls of a ticket", "Polls of a ticket over HTTP"),
    ("healthz", "/healthz"),
];

fn points(report: &Value) -> &[Value] {
    report["points"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns one line over all commits, without the commits that lack the value.
fn line(report: &Value, name: &str, value: impl Fn(&Value) -> Option<[f64; 3]>) -> Series {
    let points = points(report).iter().enumerate().filter_map(|(at, point)| {
        let [min, y, max] = value(point)?;
        Some(Point { x: at as f64, y, min, max })
    });
    Series { name: name.to_owned(), ours: true, points: points.collect() }
}

fn single(value: &Value, divisor: f64) -> Option<[f64; 3]> {
    value.as_f64().map(|value| [value / divisor; 3])
}

/// Draws ratios to the newest commit, size, start and instructions.
pub(super) fn plot(report: &Value) -> Result<String, String> {
    let names: Vec<String> = points(report).iter().map(|point| text(&point["commit"]).to_owned()).collect();
    let newest = points(report).last().ok_or("the trend has no commit")?;
    let panel = |title: &str, reading: &str, series: Vec<Series>, ratio| Panel {
        title: title.into(),
        reading: reading.into(),
        across_is: "commit, the oldest on the left".into(),
        across: Across::Names(names.clone()),
        series: series.into_iter().filter(|series| !series.points.is_empty()).collect(),
        ratio,
    };
    let rates = RATES.map(|(key, name)| {
        let line = line(report, "", |point| spread(&point["ratios"][key]));
        panel(name, "rate ÷ rate of the newest commit, same run", vec![line], true)
    });
    let counted = newest["instructions"].as_object().into_iter().flatten();
    let counts = counted.filter(|(name, _)| name.starts_with("http-")).map(|(name, now)| {
        let relative = |point: &Value| Some([point["instructions"][name].as_f64()? / now.as_f64()?; 3]);
        line(report, name.trim_start_matches("http-"), relative)
    });
    let rest = [
        panel("Instructions of a request", "count ÷ count of the newest commit", counts.collect(), true),
        panel("Binary", "MB", vec![line(report, "", |point| single(&point["binary_bytes"], 1e6))], false),
        panel("Start of an empty store", "ms", vec![line(report, "", |point| spread(&point["start_ms"]))], false),
    ];
    let shown: Vec<Panel> = rates.into_iter().chain(rest).filter(|panel| !panel.series.is_empty()).collect();
    let about = &report["about"];
    let head = format!(
        "{} · {} processors · newest: commit {}",
        text(&about["date"]),
        about["machine"]["cpus"],
        text(&newest["commit"])
    );
    Ok(svg("The trend over commits", &head, &shown))
}

/// Returns the content of the block `perf/PART`.
pub(super) fn block(report: &Value, part: &str) -> Result<String, String> {
    match part {
        "about" => about(report),
        "trend" => table(report),
        _ => Err(format!("perf/{part}: there are no such figures")),
    }
}

fn table(report: &Value) -> Result<String, String> {
    let mut markdown =
        String::from("| commit | day | claims | sold out | polls | `/healthz` | binary, MB | start, ms |\n");
    markdown.push_str("|---|---|---:|---:|---:|---:|---:|---:|\n");
    for point in points(report) {
        let ratios = RATES.map(|(key, _)| {
            spread(&point["ratios"][key]).map_or_else(|| "–".into(), |[_, ratio, _]| format!("{ratio:.2}"))
        });
        let binary = single(&point["binary_bytes"], 1e6).map_or_else(|| "–".into(), |[size, ..]| format!("{size:.1}"));
        let start = spread(&point["start_ms"]).map_or_else(|| "–".into(), |[_, start, _]| rate(start));
        let (commit, day) = (text(&point["commit"]), text(&point["date"]));
        let _ = writeln!(markdown, "| `{commit}` | {day} | {} | {binary} | {start} |", ratios.join(" | "));
    }
    markdown.push_str("\nRates are ratios to the newest commit, taken within the rounds of one run.\n");
    Ok(markdown)
}
