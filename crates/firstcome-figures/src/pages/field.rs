//! The tables and bars of `firstcome-bench field`.

use super::{about, rate, ratio, spread, time};
use crate::bars::{self, Bar, Chart, Drawing};
use serde_json::Value;
use std::fmt::Write as _;

/// The plots: the name of the file, and the tables that it shows.
const PLOTS: [(&str, &str, &[&str]); 4] = [
    ("locks", "One lock, by every library", &["locks-hot", "locks-alone"]),
    ("coupons", "A coupon of limited stock, by every way", &["coupons"]),
    ("auctions", "One hot auction, by every way", &["auctions"]),
    ("rooms", "A waiting room", &["rooms-polls", "rooms-joins"]),
];

fn tables(report: &Value) -> &[Value] {
    report["tables"].as_array().map_or(&[], Vec::as_slice)
}

fn table<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    tables(report).iter().find(|table| table["name"] == name)
}

fn rows(table: &Value) -> &[Value] {
    table["rows"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn per_second(row: &Value) -> Option<[f64; 3]> {
    spread(&row["per_second"])
}

/// Returns the content of the block `field/PART`.
pub(super) fn block(report: &Value, part: &str) -> Result<String, String> {
    match part {
        "about" => head(report),
        "summary" => summary(report),
        name => {
            let table = table(report, name).ok_or(format!("field/{name}: the report has no such table"))?;
            markdown(table)
        }
    }
}

fn head(report: &Value) -> Result<String, String> {
    let number = |name: &str| report[name].as_f64().ok_or(format!("the field does not say its {name}"));
    let turns = format!(
        "{} rounds of {} s for each way, in turns; each figure is the median of the rounds, with the lowest and the highest.",
        number("rounds")?,
        number("seconds")?
    );
    Ok(format!("{} {turns}", about(report)?))
}

fn markdown(table: &Value) -> Result<String, String> {
    let mut markdown = format!("**{}**\n\n", text(&table["title"]));
    let unit = text(&table["unit"]);
    let _ = writeln!(markdown, "| | {unit} | lowest – highest | ÷ limit | slowest 1 % | exact | durable |");
    markdown.push_str("|---|---:|---:|---:|---:|---|---|\n");
    let mut limits: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut notes = String::new();
    let mut sorted: Vec<&Value> = rows(table).iter().collect();
    sorted.sort_by(|a, b| {
        per_second(b).map(|[_, b, _]| b).unwrap_or(0.0).total_cmp(&per_second(a).map(|[_, a, _]| a).unwrap_or(0.0))
    });
    for row in sorted {
        let [min, median, max] = per_second(row).ok_or("a row has no rate")?;
        let (name, limit) = (text(&row["name"]), text(&row["limit"]));
        let share = spread(&row["share_of_limit"]).map_or_else(|| "–".into(), |[_, share, _]| ratio(share));
        let p99 = spread(&row["p99_us"]).map_or_else(|| "–".into(), |[_, p99, _]| time(p99));
        let [exact, durable] = ["exact", "durable"].map(|question| answer(&row[question]));
        let shown = if row["ours"] == true { format!("**{name}**") } else { name.to_owned() };
        let (median, min, max) = (rate(median), rate(min), rate(max));
        let _ = writeln!(markdown, "| {shown} | {median} | {min} – {max} | {share} | {p99} | {exact} | {durable} |");
        match limits.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, names)) => names.push(name),
            None => limits.push((limit, vec![name])),
        }
        for more in ["finding", "note"] {
            if let Some(words) = row[more].as_str() {
                let _ = writeln!(notes, "- {name}: {words}.");
            }
        }
    }
    let _ = writeln!(markdown, "\nLimit: {}.", limit_words(&limits));
    if !notes.is_empty() {
        let _ = write!(markdown, "\n{notes}");
    }
    for left in table["not_measured"].as_array().into_iter().flatten() {
        let _ = write!(markdown, "\nNot measured: {}: {}.\n", text(&left["name"]), text(&left["reason"]));
    }
    Ok(markdown)
}

/// Says which limit counts for which ways; the limit of most ways first.
fn limit_words(limits: &[(&str, Vec<&str>)]) -> String {
    let mut limits: Vec<&(&str, Vec<&str>)> = limits.iter().filter(|(limit, _)| *limit != "–").collect();
    limits.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let words = limits.iter().enumerate().map(|(at, (limit, names))| {
        if at == 0 { (*limit).to_owned() } else { format!("{limit} for {}", names.join(", ")) }
    });
    words.collect::<Vec<_>>().join("; ")
}

fn answer(value: &Value) -> &'static str {
    match value.as_bool() {
        None => "",
        Some(true) => "yes",
        Some(false) => "**no**",
    }
}

/// Returns a short table: ours beside the fastest other way that was exact, and as durable.
fn summary(report: &Value) -> Result<String, String> {
    let mut markdown =
        String::from("| | per second | the best other exact and durable way | × |\n|---|---:|---|---:|\n");
    for table in tables(report) {
        let median = |row: &&Value| per_second(row).map_or(0.0, |[_, median, _]| median);
        let best = |wanted: &dyn Fn(&Value) -> bool| {
            rows(table).iter().filter(|row| wanted(row)).max_by(|a, b| median(a).total_cmp(&median(b)))
        };
        let Some(ours) = best(&|row| row["ours"] == true) else { continue };
        let fit = |row: &Value| row["ours"] != true && row["exact"] != false && row["durable"] != false;
        let title = text(&table["title"]);
        let (what, rate_ours) = (text(&ours["name"]), median(&ours));
        let Some(other) = best(&fit) else {
            let _ = writeln!(markdown, "| {title}: {what} | {} | | |", rate(rate_ours));
            continue;
        };
        let times = ratio(rate_ours / median(&other));
        let _ = writeln!(
            markdown,
            "| {title}: {what} | {} | {}: {} | {times} |",
            rate(rate_ours),
            text(&other["name"]),
            rate(median(&other))
        );
    }
    Ok(markdown)
}

/// Returns all plots, each with its name.
pub(super) fn plots(report: &Value) -> Result<Vec<(&'static str, String)>, String> {
    let about = &report["about"];
    let head = format!(
        "{} · {} processors · one sync {} µs · commit {}\nbar: median of {} rounds, line: lowest to highest · blue: firstcome",
        text(&about["date"]),
        about["machine"]["cpus"],
        about["machine"]["fsync_p50_us"],
        text(&about["commit"]).split(',').next().unwrap_or_default(),
        report["rounds"],
    );
    let mut plots = Vec::new();
    for (file, title, names) in PLOTS {
        let shown: Vec<&Value> = names.iter().filter_map(|name| table(report, name)).collect();
        if shown.is_empty() {
            continue;
        }
        let charts = shown.iter().map(|table| chart(table)).collect::<Result<_, String>>()?;
        plots.push((file, bars::svg(&Drawing { subject: title, title, head: head.clone(), charts }) + "\n"));
    }
    Ok(plots)
}

fn chart(table: &Value) -> Result<Chart<'_>, String> {
    let mut bars = Vec::new();
    for row in rows(table) {
        let [min, median, max] = per_second(row).ok_or("a row has no rate")?;
        let wrong = if row["exact"] == false { " · not exact" } else { "" };
        let soft = if row["durable"] == false { " · not durable" } else { "" };
        bars.push(Bar {
            name: text(&row["name"]).to_owned(),
            value: Some((median, format!("{}{wrong}{soft}", rate(median)))),
            range: Some((min, max)),
            ours: row["ours"] == true,
        });
    }
    let value = |bar: &Bar| bar.value.as_ref().map_or(0.0, |(value, _)| *value);
    bars.sort_by(|a, b| value(b).total_cmp(&value(a)));
    Ok(Chart { title: text(&table["title"]), reading: text(&table["unit"]), bars })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(rate: f64) -> Value {
        let spread = |median: f64| json!({"min": median * 0.9, "median": median, "max": median * 1.1});
        let row = |name: &str, ours: bool, rate: f64| {
            json!({"name": name, "ours": ours, "per_second": spread(rate), "limit": "one sync",
                "share_of_limit": spread(0.5), "p99_us": null, "exact": true, "durable": true})
        };
        json!({"rounds": 3, "seconds": 1.0, "about": {"date": "2026-11-25", "commit": "abc1234", "versions": {},
            "machine": {"cpus": 2, "cpu_model": "x", "file_system": "ext4", "fsync_p50_us": 100, "fsync_p99_us": 200,
                "binary_bytes": 9_000_000, "debug_build": false}},
            "tables": [{"name": "coupons", "title": "One coupon", "unit": "claims per second",
                "rows": [row("firstcome", true, rate), row("UPDATE", false, 1_000.0)],
                "not_measured": [{"name": "x", "reason": "no Java"}]}]})
    }

    #[test]
    fn a_table_has_every_row_and_what_was_left_out() {
        let made = block(&report(50_000.0), "coupons").expect("a table");
        assert!(made.contains("| **firstcome** | 50 000 | 45 000 – 55 000 | 0.50 | – | yes | yes |"), "{made}");
        assert!(made.contains("Not measured: x: no Java."), "{made}");
        assert!(block(&report(1.0), "nothing").is_err());
    }

    #[test]
    fn another_number_in_the_report_makes_another_page_and_plot() {
        let [before, after] = [50_000.0, 50_001.0].map(report);
        assert_ne!(block(&before, "coupons"), block(&after, "coupons"));
        assert_ne!(plots(&before), plots(&after));
        assert_eq!(plots(&before), plots(&before));
    }

    #[test]
    fn the_summary_names_the_best_other_way() {
        let made = block(&report(50_000.0), "summary").expect("a table");
        assert!(made.contains("| One coupon: firstcome | 50 000 | UPDATE: 1 000 | 50 |"), "{made}");
    }
}
