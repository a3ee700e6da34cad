//! The trend over commits: `cargo xtask full perf [COMMIT…]` measures builds of other commits beside this tree.
//!
//! Each commit is built once, under `target/against`. Its rates over HTTP are ratios to this tree, taken within the rounds of
//! one run; its instructions are those of its own `docs/perf.toml`. The report keeps the points of earlier runs: when this tree
//! is newer than the newest point, that point is measured beside it, and the ratios of all points that are not measured again
//! are multiplied by its ratio.

use super::counts::Counts;
use super::{FILE, against};
use crate::shell;
use serde_json::{Map, Value, json};
use std::fs;

/// The first commit of the trend, which the older figures are of.
const FIRST: &str = "7c7b594";
/// The most commits of a run without names: each takes minutes to build.
const COMMITS_MAX: usize = 12;
const REPORT: &str = "docs/full/perf.json";
const BENCH: &str = "target/release/firstcome-bench";
const PRODUCT: &str = "target/release/firstcome";
/// A few short rounds: the trend shows steps of a tenth, not of a hundredth.
const LOAD: [&str; 4] = ["--rounds", "5", "--time", "1s"];

/// Measures the named commits, or the first one of each day, beside this tree.
///
/// Returns the trend as text.
pub(crate) fn run(names: &[&str]) -> Result<String, String> {
    let head = commit("HEAD")?;
    let path = shell::root().join(REPORT);
    let mut report: Value = match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{REPORT}: {error}"))?,
        Err(_) => json!({ "points": [] }),
    };
    let newest = points(&report).last().map(|point| text(&point["commit"]));
    let mut wanted = if names.is_empty() { of_each_day(&report)? } else { Vec::new() };
    for name in names {
        wanted.push(commit(name)?);
    }
    // The link between this run and the earlier ones.
    wanted.extend(newest.filter(|newest| *newest != head));
    wanted.retain(|commit| *commit != head);
    wanted.dedup();
    shell::run("cargo", &["build", "--release", "--quiet", "-p", "firstcome-cli"])?;
    shell::run("cargo", &["build", "--release", "--quiet", "-p", "firstcome-bench"])?;
    let mut measured = Vec::new();
    let mut own = None;
    for (at, commit) in wanted.iter().enumerate() {
        println!("perf: commit {commit}, {} of {}", at + 1, wanted.len());
        match beside(commit) {
            Ok(beside) => {
                own = Some(point(&head, &beside, Side::This)?);
                report["about"] = beside["about"].clone();
                measured.push(point(commit, &beside, Side::Other)?);
            }
            // A commit that does not build, or has no such service, must not end the others' run.
            Err(error) => println!("perf: commit {commit} is left out: {error}"),
        }
    }
    measured.push(own.ok_or("no commit was measured beside this tree; name one that builds")?);
    report["points"] = Value::Array(joined(points(&report), &measured));
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    fs::write(&path, text + "\n").map_err(|error| format!("{REPORT}: {error}"))?;
    Ok(page(&report))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn points(report: &Value) -> &[Value] {
    report["points"].as_array().map_or(&[], Vec::as_slice)
}

fn commit(name: &str) -> Result<String, String> {
    let wanted = format!("{name}^{{commit}}");
    Ok(shell::output("git", &["rev-parse", "--verify", "--short=7", &wanted])?.trim().to_owned())
}

/// Returns the first commit of each day since the first one of the trend that the report does not have: the latest of them.
fn of_each_day(report: &Value) -> Result<Vec<String>, String> {
    let range = format!("{FIRST}..HEAD");
    let log = shell::output("git", &["log", "--first-parent", "--reverse", "--abbrev=7", "--format=%h %cs", &range])?;
    let mut days: Vec<(&str, &str)> = Vec::new();
    for (commit, day) in log.lines().filter_map(|line| line.split_once(' ')) {
        if days.last().is_none_or(|(_, last)| *last != day) {
            days.push((commit, day));
        }
    }
    let known: Vec<String> = points(report).iter().map(|point| text(&point["commit"])).collect();
    let all = std::iter::once(FIRST).chain(days.into_iter().map(|(commit, _)| commit));
    let new: Vec<String> = all.filter(|commit| !known.iter().any(|known| known == commit)).map(str::to_owned).collect();
    Ok(new[new.len().saturating_sub(COMMITS_MAX)..].to_vec())
}

/// Builds a commit, if it is not built yet, and measures it beside this tree.
fn beside(commit: &str) -> Result<Value, String> {
    // As `perf --against` names its builds, so that both use them.
    let sha = shell::output("git", &["rev-parse", "--verify", "--short=12", commit])?;
    let other = against::build_other(sha.trim())?;
    let sides = ["beside", other.as_str(), "--ours", PRODUCT, "--data", "target", "--json"];
    let printed = shell::output(BENCH, &[&sides[..], &LOAD].concat())?;
    serde_json::from_str(&printed).map_err(|error| format!("the benchmark printed no report: {error}"))
}

/// A side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    This,
    Other,
}

/// Makes the point of a commit from its comparison with this tree.
fn point(commit: &str, beside: &Value, side: Side) -> Result<Value, String> {
    let ratios = beside["requests"].as_object().into_iter().flatten().map(|(name, request)| {
        let one = json!({ "min": 1.0, "median": 1.0, "max": 1.0 });
        let ratio = if side == Side::This { one } else { request["others_to_ours"].clone() };
        (name.clone(), ratio)
    });
    let ratios: Map<String, Value> = ratios.collect();
    let build = &beside["builds"][if side == Side::This { 0 } else { 1 }];
    let day = shell::output("git", &["log", "-1", "--format=%cs %s", commit])?;
    let (date, subject) = day.trim().split_once(' ').unwrap_or_default();
    Ok(json!({
        "commit": commit,
        "date": date,
        "subject": subject,
        "ratios": ratios,
        "binary_bytes": build["binary_bytes"],
        "start_ms": build["start_ms"],
        "instructions": instructions(commit),
    }))
}

/// Reads the instructions per operation that a commit has accepted. A commit without that file has none.
fn instructions(commit: &str) -> Value {
    let text = shell::output("git", &["show", &format!("{commit}:{FILE}")]).unwrap_or_default();
    let costs = Counts::parse(&text).map(|counts| counts.costs).unwrap_or_default();
    costs.into_iter().map(|(name, cost)| (name, Value::from(cost.instructions))).collect::<Map<_, _>>().into()
}

/// Joins earlier points with those that were measured now, in the order of the commits. Earlier ones that were not measured
/// again are related to this tree by the newest of them.
fn joined(before: &[Value], now: &[Value]) -> Vec<Value> {
    let is = |commit: &Value| now.iter().find(|point| point["commit"] == *commit);
    let link = before.last().and_then(|newest| is(&newest["commit"])).cloned();
    let kept = before.iter().filter(|point| is(&point["commit"]).is_none());
    let related = kept.map(|point| link.as_ref().map_or_else(|| point.clone(), |link| times(point, link)));
    let mut all: Vec<Value> = related.chain(now.iter().cloned()).collect();
    // The sort is stable: commits of one day keep their order.
    let head = now.last().map(|point| point["commit"].clone());
    all.sort_by_key(|point| (Some(&point["commit"]) == head.as_ref(), text(&point["date"])));
    all
}

/// Multiplies the ratios of a point by the median ratios of another one.
fn times(point: &Value, link: &Value) -> Value {
    let mut related = point.clone();
    for (name, ratio) in related["ratios"].as_object_mut().into_iter().flatten() {
        let Some(by) = link["ratios"][name]["median"].as_f64() else { continue };
        for part in ["min", "median", "max"] {
            if let Some(value) = ratio[part].as_f64() {
                ratio[part] = Value::from(value * by);
            }
        }
    }
    related
}

/// Renders the report as text.
fn page(report: &Value) -> String {
    let newest = points(report).last().cloned().unwrap_or_default();
    let names: Vec<String> = newest["ratios"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let mut page = format!("Each rate is a ratio to that of commit {}.\n\n", text(&newest["commit"]));
    let mut line = |cells: [String; 4]| {
        let [commit, day, rates, rest] = cells;
        page.push_str(&format!("{commit:<9} {day:<11}{rates} {rest}\n"));
    };
    let columns = names.iter().map(|name| format!(" {name:>18}")).collect();
    line(["commit".into(), "day".into(), columns, format!("{:>11} {:>10}", "binary, MB", "start, ms")]);
    for point in points(report) {
        let rates = names.iter().map(|name| {
            let ratio = point["ratios"][name]["median"].as_f64();
            format!(" {:>18}", ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}")))
        });
        let size = point["binary_bytes"].as_f64().unwrap_or(0.0) / 1e6;
        let start = point["start_ms"]["median"].as_f64().unwrap_or(0.0);
        line([text(&point["commit"]), text(&point["date"]), rates.collect(), format!("{size:>11.1} {start:>10.1}")]);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(commit: &str, date: &str, ratio: f64) -> Value {
        json!({ "commit": commit, "date": date, "ratios": { "claims": { "min": ratio, "median": ratio, "max": ratio } } })
    }

    #[test]
    fn earlier_points_stay_and_are_related_to_the_new_tree() {
        let before = [at("a", "2026-01-01", 1.5), at("b", "2026-01-02", 1.0)];
        // The new tree is twice as fast as b.
        let all = joined(&before, &[at("b", "2026-01-02", 0.5), at("c", "2026-01-03", 1.0)]);
        let shown: Vec<(String, Option<f64>)> =
            all.iter().map(|point| (text(&point["commit"]), point["ratios"]["claims"]["median"].as_f64())).collect();
        assert_eq!(shown, [("a".into(), Some(0.75)), ("b".into(), Some(0.5)), ("c".into(), Some(1.0))]);
    }

    #[test]
    fn this_tree_is_the_last_point_even_on_the_day_of_another() {
        let all = joined(&[], &[at("b", "2026-01-03", 0.5), at("a", "2026-01-01", 0.7), at("c", "2026-01-03", 1.0)]);
        assert_eq!(all.iter().map(|point| text(&point["commit"])).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
