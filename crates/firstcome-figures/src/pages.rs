//! Which documents and plots there are, and which report each of them shows.

mod curves;
mod field;
mod printed;
mod trend;

use crate::{Made, blocks};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The document in which every number is made from a report.
pub(crate) const BENCHMARKS: &str = "docs/benchmarks.md";
/// The documents with blocks.
const DOCUMENTS: [&str; 2] = [BENCHMARKS, "README.md"];

/// The percentage of the processors that others may use during a measurement.
const BUSY_PERCENT_MAX: u64 = 20;

/// The reports, as far as they are there.
pub(crate) struct Reports {
    field: Option<Value>,
    curves: Option<Value>,
    perf: Option<Value>,
}

impl Reports {
    fn read(root: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            let path = root.join("docs/full").join(name);
            let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
            serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self { field: read("field.json")?, curves: read("curves.json")?, perf: read("perf.json")? })
    }
}

/// Returns every document and every plot.
pub(crate) fn all(root: &Path) -> Result<Vec<Made>, String> {
    let reports = Reports::read(root)?;
    let mut mades = Vec::new();
    for document in DOCUMENTS {
        let Ok(text) = fs::read_to_string(root.join(document)) else { continue };
        let filled = blocks::filled(&text, |name| content(root, &reports, name));
        let text = filled.map_err(|error| format!("{document}: {error}"))?;
        mades.push(Made { path: document.into(), text });
    }
    let mut plot = |name: &str, text: String| mades.push(Made { path: format!("docs/plots/{name}.svg").into(), text });
    if let Some(report) = &reports.field {
        for (name, svg) in field::plots(report)? {
            plot(name, svg);
        }
    }
    if let Some(report) = &reports.curves {
        plot("curves", curves::plot(report)?);
    }
    if let Some(report) = &reports.perf {
        plot("trend", trend::plot(report)?);
    }
    Ok(mades)
}

/// Returns the content of a block.
fn content(root: &Path, reports: &Reports, name: &str) -> Result<String, String> {
    let (report, part) = name.split_once('/').unwrap_or((name, ""));
    let of = |report: &Option<Value>| report.clone().ok_or(format!("{name}: there is no such report"));
    match report {
        "field" => field::block(&of(&reports.field)?, part),
        "curves" => curves::block(&of(&reports.curves)?, part),
        "perf" => trend::block(&of(&reports.perf)?, part),
        "report" => printed::block(root, part),
        _ => Err(format!("{name}: there are no such figures")),
    }
}

/// Describes machine, commit and day of a report in one paragraph.
fn about(report: &Value) -> Result<String, String> {
    let about = &report["about"];
    let machine = &about["machine"];
    let words = |value: &Value| value.as_str().map(str::to_owned).ok_or("a report does not say how it was made");
    let number = |value: &Value| value.as_f64().ok_or("a report does not say how it was made");
    let versions = about["versions"].as_object().into_iter().flatten();
    let versions: Vec<String> = versions
        .map(|(name, version)| {
            let version = version.as_str().unwrap_or_default();
            // Some servers and tools name themselves.
            if version.to_lowercase().contains(&name.to_lowercase()) {
                version.to_owned()
            } else {
                format!("{name} {version}")
            }
        })
        .collect();
    let busy = match about["busy_percent"].as_u64() {
        Some(percent) if BUSY_PERCENT_MAX < percent => {
            format!(" **Other programs used {percent} % of the processors: the figures say little.**")
        }
        _ => String::new(),
    };
    let debug = if machine["debug_build"] == true { " **Debug build: the figures say nothing.**" } else { "" };
    Ok(format!(
        "Measured on {} at commit `{}`: {} processors ({}), {}, one sync {} µs (median; {} µs at the 99th percentile), binary \
         {:.1} MB. {}.{busy}{debug}",
        words(&about["date"])?,
        words(&about["commit"])?,
        number(&machine["cpus"])?,
        words(&machine["cpu_model"])?,
        words(&machine["file_system"])?,
        number(&machine["fsync_p50_us"])?,
        number(&machine["fsync_p99_us"])?,
        number(&machine["binary_bytes"])? / 1e6,
        versions.join(", "),
    ))
}

/// Reads the lowest, the median and the highest value.
fn spread(value: &Value) -> Option<[f64; 3]> {
    Some([value["min"].as_f64()?, value["median"].as_f64()?, value["max"].as_f64()?])
}

/// Formats a rate for a table: `354 000`.
fn rate(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = (value.round() as u64).to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

/// Formats a time of microseconds.
fn time(us: f64) -> String {
    match us {
        ..1_000.0 => format!("{us:.0} µs"),
        ..10_000.0 => format!("{:.1} ms", us / 1e3),
        ..1_000_000.0 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// Formats a ratio with two significant digits or more.
fn ratio(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
