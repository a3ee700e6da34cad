//! The curves of `firstcome-bench curves`: panels, and how steep each line is.

use super::{about, rate, ratio, spread};
use crate::lines::{Across, Panel, Point, Series, short, svg};
use serde_json::Value;
use std::fmt::Write as _;

/// The names of all curves: a run may leave some out.
const CURVES: [&str; 10] =
    ["waiters", "processes", "connections", "payload", "users", "memory", "held", "stock", "streams", "nodes"];

fn curves(report: &Value) -> &[Value] {
    report["curves"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn series(curve: &Value) -> Result<Vec<Series>, String> {
    let lines = curve["series"].as_array().into_iter().flatten();
    lines
        .map(|line| {
            let points = line["points"].as_array().into_iter().flatten();
            let points = points.map(|point| {
                let [min, y, max] = spread(&point["value"]).ok_or("a point has no value")?;
                Ok(Point { x: point["x"].as_f64().ok_or("a point has no place")?, y, min, max })
            });
            let points = points.collect::<Result<Vec<_>, String>>()?;
            Ok(Series { name: text(&line["name"]).to_owned(), ours: line["ours"] != false, points })
        })
        .collect()
}

/// Returns the content of the block `curves/PART`.
pub(super) fn block(report: &Value, part: &str) -> Result<String, String> {
    if part == "about" {
        return about(report);
    }
    let curve = curves(report).iter().find(|curve| curve["name"] == part);
    match curve {
        Some(curve) => slopes(curve),
        None if CURVES.contains(&part) => Ok("Not measured in this run.".into()),
        None => Err(format!("curves/{part}: there is no such curve")),
    }
}

/// Describes each line by its ends, its exponent and its highest point.
///
/// The exponent is that of `value ~ quantity ^ exponent` between the ends: 0 is flat, 1 is proportional.
fn slopes(curve: &Value) -> Result<String, String> {
    let (what, unit) = (text(&curve["across_is"]), text(&curve["reading"]));
    let mut markdown =
        format!("| {unit} | {what} | first | last | × | exponent | highest at |\n|---|---|---:|---:|---:|---:|---:|\n");
    for Series { name, points, .. } in series(curve)? {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        let highest = points.iter().max_by(|a, b| a.y.total_cmp(&b.y)).map_or(0.0, |point| point.x);
        let times = last.y / first.y;
        let exponent = if first.x == last.x { 0.0 } else { times.ln() / (last.x / first.x).ln() };
        let _ = writeln!(
            markdown,
            "| {name} | {} … {} | {} | {} | {} | {exponent:.2} | {} |",
            short(first.x),
            short(last.x),
            rate(first.y),
            rate(last.y),
            ratio(times),
            short(highest)
        );
    }
    Ok(markdown)
}

/// Draws all curves.
pub(super) fn plot(report: &Value) -> Result<String, String> {
    let panel = |curve: &Value| {
        Ok::<_, String>(Panel {
            title: text(&curve["title"]).to_owned(),
            reading: text(&curve["reading"]).to_owned(),
            across_is: format!("{}, logarithmic", text(&curve["across_is"])),
            across: Across::Quantities,
            series: series(curve)?,
            ratio: false,
        })
    };
    let panels = curves(report).iter().map(panel).collect::<Result<Vec<_>, _>>()?;
    let about = &report["about"];
    let head = format!(
        "{} · {} processors · one sync {} µs · commit {}\npoint: median, upright line: lowest to highest of {} rounds",
        text(&about["date"]),
        about["machine"]["cpus"],
        about["machine"]["fsync_p50_us"],
        text(&about["commit"]).split(',').next().unwrap_or_default(),
        report["rounds"],
    );
    Ok(svg("How the rates change", &head, &panels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_exponent_of_a_proportional_line_is_one() {
        let point = |x: f64, y: f64| json!({"x": x, "value": {"min": y, "median": y, "max": y}});
        let report = json!({"curves": [{"name": "a", "title": "A", "across_is": "users", "reading": "seconds",
            "series": [{"name": "memory", "points": [point(10.0, 300.0), point(1_000.0, 30_000.0)]}]}]});
        let made = block(&report, "a").expect("a table");
        assert!(made.contains("| memory | 10 … 1 k | 300 | 30 000 | 100 | 1.00 | 1 k |"), "{made}");
    }
}
