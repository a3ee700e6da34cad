//! Draws what the panels of the Grafana dashboard show beside a drill, from the answers of a Prometheus to the same queries.

use crate::setup;
use crate::shell;
use crate::test::TEST_NAMED;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;

/// Width of a column of the grid, height of a row, as in Grafana; and the place that a title and a legend take.
const COLUMN: f64 = 62.0;
const ROW: f64 = 30.0;
const HEAD: f64 = 24.0;
const FOOT: f64 = 40.0;
const LEFT: f64 = 58.0;
/// Colours of lines that are told apart also without colours of one kind.
const COLOURS: [&str; 8] = ["#2f6fde", "#d9762b", "#3a9a5b", "#b3409f", "#8a6d1f", "#14919b", "#c0392b", "#6b6f76"];
/// Where the picture goes.
const PICTURE: &str = "docs/grafana.png";

/// Runs the test of the panels with a longer load, and draws what it wrote.
pub(crate) fn run() -> Result<String, String> {
    setup::need(&[("prometheus", "prometheus"), ("chromium", "chromium")])?;
    let scratch = shell::output("mktemp", &["-d", "--tmpdir", "firstcome-panels.XXXXXX"])?;
    let (data, page) = (format!("{}/panels.json", scratch.trim()), format!("{}/panels.html", scratch.trim()));
    let file = format!("FIRSTCOME_PANELS={data}");
    let test = [&["CI=true", &file], &TEST_NAMED[..], &["ops::panels"]].concat();
    let drawn = shell::output("env", &test).and_then(|_| {
        let text = fs::read_to_string(&data).map_err(|error| error.to_string())?;
        let told: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let (html, height) = html(&told);
        fs::write(&page, html).map_err(|error| error.to_string())?;
        let picture = format!("--screenshot={}", shell::root().join(PICTURE).display());
        let size = format!("--window-size={:.0},{height:.0}", 24.0 * COLUMN);
        let url = format!("file://{page}");
        shell::output("chromium", &["--headless", "--no-sandbox", "--hide-scrollbars", &picture, &size, &url])?;
        Ok(summary(&told))
    });
    // It lies in the system's directory for temporary files, so what is left there goes in time.
    let _ = fs::remove_dir_all(scratch.trim());
    drawn
}

/// One line for each panel: how many series it shows, and the greatest value.
fn summary(told: &Value) -> String {
    let mut text = format!("drawn into {PICTURE}\n");
    for panel in panels(told).filter(|panel| panel["type"] != "row") {
        let series = panel["series"].as_array().map_or(0, Vec::len);
        let title = panel["title"].as_str().unwrap_or_default();
        let unit = panel["unit"].as_str().unwrap_or_default();
        let most = lines(panel).flat_map(|(_, points)| points).map(|(_, y)| y).fold(0.0, f64::max);
        let _ = writeln!(text, "{title:<40} {series:>3} series, at most {}", short(most, unit));
    }
    text
}

fn panels(told: &Value) -> impl Iterator<Item = &Value> {
    told["panels"].as_array().into_iter().flatten()
}

/// The series of a panel: names, and points of an instant in seconds and a value.
fn lines(panel: &Value) -> impl Iterator<Item = (&str, Vec<(f64, f64)>)> {
    panel["series"].as_array().into_iter().flatten().map(|series| {
        let points = series["values"].as_array().into_iter().flatten().filter_map(|point| {
            let value: f64 = point[1].as_str()?.parse().ok()?;
            Some((point[0].as_f64()?, value)).filter(|_| value.is_finite())
        });
        (series["name"].as_str().unwrap_or_default(), points.collect())
    })
}

/// The page, and its height.
fn html(told: &Value) -> (String, f64) {
    let (since, now) = (told["since_s"].as_f64().unwrap_or(0.0), told["now_s"].as_f64().unwrap_or(1.0));
    let mut body = String::new();
    let mut height = 0.0_f64;
    for panel in panels(told) {
        let at = |name: &str| panel["at"][name].as_f64().unwrap_or(0.0);
        let (x, y, w, h) = (at("x") * COLUMN, at("y") * ROW, at("w") * COLUMN, at("h") * ROW);
        height = height.max(y + h);
        let title = panel["title"].as_str().unwrap_or_default();
        let class = panel["type"].as_str().unwrap_or_default();
        let inside = match class {
            "row" => String::new(),
            "stat" => stat(panel),
            _ => chart(panel, (since, now), (w - 26.0, h - HEAD - FOOT)),
        };
        let _ = write!(
            body,
            "<section class='{class}' style='left:{x:.0}px;top:{y:.0}px;width:{:.0}px;height:{:.0}px'><h2>{title}</h2>{inside}</section>",
            w - 8.0,
            h - 8.0
        );
    }
    let style = "body{margin:0;background:#f4f5f5;font:11px sans-serif;color:#24292e}\
        section{position:absolute;margin:4px;background:#fff;border:1px solid #e0e2e5;border-radius:2px;overflow:hidden}\
        section.row{background:none;border:none}h2{font-size:12px;font-weight:600;margin:5px 8px}\
        .row h2{font-size:14px}.stat b{display:block;text-align:center;font-size:30px;margin-top:8px;color:#3a9a5b}\
        ul{margin:2px 8px;padding:0;list-style:none;height:32px;overflow:hidden}li{display:inline-block;margin-right:10px}\
        i{display:inline-block;width:10px;height:3px;margin:0 4px 3px 0}p{color:#6b6f76;text-align:center}";
    (format!("<!doctype html><meta charset='utf-8'><style>{style}</style>{body}"), height + 8.0)
}

/// The last value that a number has had while all was well: the greatest.
fn stat(panel: &Value) -> String {
    let most = lines(panel).flat_map(|(_, points)| points).map(|(_, y)| y).fold(0.0, f64::max);
    format!("<b>{}</b>", short(most, panel["unit"].as_str().unwrap_or_default()))
}

fn chart(panel: &Value, (since, now): (f64, f64), (width, height): (f64, f64)) -> String {
    let unit = panel["unit"].as_str().unwrap_or_default();
    let lines: Vec<_> = lines(panel).collect();
    if lines.is_empty() {
        return "<p>No data</p>".to_owned();
    }
    let most = lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
    let (x, y) = (
        |at: f64| LEFT + (at - since) / (now - since) * (width - LEFT),
        |value: f64| height - value / most * (height - 6.0),
    );
    let mut svg = format!("<svg width='{width:.0}' height='{height:.0}'>");
    for share in [0.0, 0.5, 1.0] {
        let (level, label) = (y(most * share), short(most * share, unit));
        let _ = write!(
            svg,
            "<path d='M{LEFT} {level:.1}H{width:.1}' stroke='#e0e2e5'/><text x='{:.0}' y='{:.1}' text-anchor='end' fill='#6b6f76'>{label}</text>",
            LEFT - 4.0,
            (level + 4.0).clamp(9.0, height - 1.0)
        );
    }
    let mut legend = String::new();
    for (at, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let mut path = String::new();
        let mut before = f64::NEG_INFINITY;
        for &(instant, value) in points {
            // Prometheus gives nothing where there was nothing: the line is broken there.
            let go = if instant - before < 1.5 { 'L' } else { 'M' };
            let _ = write!(path, "{go}{:.1} {:.1}", x(instant), y(value));
            before = instant;
        }
        let _ = write!(svg, "<path d='{path}' fill='none' stroke='{colour}' stroke-width='1.4'/>");
        let _ = write!(legend, "<li><i style='background:{colour}'></i>{name}</li>");
    }
    format!("{svg}</svg><ul>{legend}</ul>")
}

/// A value in a few letters.
fn short(value: f64, unit: &str) -> String {
    match unit {
        "s" if value < 0.001 => format!("{:.0} µs", value * 1e6),
        "s" if value < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{value:.1} s"),
        "percentunit" => format!("{:.1} %", value * 100.0),
        _ if 10_000.0 <= value => format!("{:.0}k", value / 1_000.0),
        _ if value.fract() == 0.0 || 100.0 <= value => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}
