//! `report.html`: one self-contained page for people.

use super::plot::Plot;
use super::scale::{duration, figure, grouped_tight, quantile_ms, whole};
use super::table::QUANTILES;
use super::{Verdict, charts, verdict};
use crate::drill::facts::{AuditCheck, Facts, Kill, Latency};
use askama::Template;

const STYLE: &str = include_str!("../../../assets/drill.css");

#[derive(Template)]
#[template(path = "drill.html")]
struct Page<'a> {
    style: &'static str,
    version: &'static str,
    facts: &'a Facts,
    /// The name of the goods.
    goods: &'static str,
    /// The heading of the outcomes.
    fates: &'static str,
    counted: &'static str,
    verdict: &'static str,
    says: String,
    explained: String,
    figures: Vec<(&'a str, String)>,
    broken: Vec<CheckRow<'a>>,
    checks: Vec<CheckRow<'a>>,
    plots: Vec<String>,
    latency_plot: String,
    latencies: Vec<LatencyRow<'a>>,
    outcomes: Vec<OutcomeRow<'a>>,
    kills: Vec<[String; 5]>,
}

struct CheckRow<'a> {
    check: &'a AuditCheck,
    checked: String,
    breaches: String,
    state: &'static str,
    word: &'static str,
}

struct LatencyRow<'a> {
    call: &'a str,
    count: String,
    quantiles: Vec<String>,
}

struct OutcomeRow<'a> {
    outcome: &'a str,
    people: String,
    percent: String,
    /// The length of the bar, of 100.
    length: String,
}

/// Renders the page.
pub(super) fn page(facts: &Facts) -> anyhow::Result<String> {
    let (verdict, says) = verdict(facts);
    // Broken ones come first, in both places.
    let (broken, kept): (Vec<_>, Vec<_>) = facts.checks.iter().map(check_row).partition(|row| 0 < row.check.breaches);
    let broken_again = facts.checks.iter().filter(|check| 0 < check.breaches).map(check_row);
    let (plots, latency_plot) = (charts::over_the_event(facts), charts::latencies(facts));
    let left = plots.iter().map(Plot::left).fold(0.0, f64::max);
    let page = Page {
        style: STYLE,
        version: env!("CARGO_PKG_VERSION"),
        facts,
        goods: match facts.event {
            "concert" => "tickets",
            "auction" => "listings, by auction and at a fixed price",
            _ => "coupons",
        },
        fates: if facts.auctions.is_some() { "What became of orders" } else { "What became of people" },
        counted: if facts.auctions.is_some() { "Orders" } else { "People" },
        verdict: match verdict {
            Verdict::Held => "good",
            Verdict::Broken => "bad",
            Verdict::Unchecked => "unsure",
        },
        says: capitalised(&says),
        explained: explained(facts, verdict),
        figures: figures(facts),
        checks: broken_again.chain(kept).collect(),
        broken,
        plots: plots.iter().map(|plot| plot.figure(left)).collect(),
        latency_plot: latency_plot.figure(latency_plot.left()),
        latencies: latency_rows(facts),
        outcomes: outcome_rows(facts),
        kills: kill_rows(facts),
    };
    Ok(page.render()?)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn explained(facts: &Facts, verdict: Verdict) -> String {
    let looks = facts.checks.iter().map(|check| check.checked).fold(0, u64::saturating_add);
    let (promises, looks) = (facts.checks.len(), grouped_tight(looks));
    match (verdict, facts.kills.len()) {
        (Verdict::Unchecked, _) => "This run says nothing about whether the service keeps its word.".into(),
        (_, 0) => format!("{promises} promises, looked at {looks} times from the outside."),
        (_, 1) => format!("{promises} promises, looked at {looks} times from the outside, across one kill."),
        (_, kills) => format!("{promises} promises, looked at {looks} times from the outside, across {kills} kills."),
    }
}

fn figures(facts: &Facts) -> Vec<(&str, String)> {
    let mut figures = vec![
        ("people", grouped_tight(facts.people)),
        (if facts.auctions.is_some() { "listings" } else { "in stock" }, grouped_tight(facts.stock)),
        (if facts.auctions.is_some() { "sold" } else { "issued" }, grouped_tight(facts.issued)),
        ("took", duration(facts.seconds)),
    ];
    figures.extend(facts.auctions.iter().map(|auctions| ("bids accepted", grouped_tight(auctions.bids))));
    figures.extend(facts.figures.iter().map(|(name, value)| (name.as_str(), value.clone())));
    figures
}

fn check_row(check: &AuditCheck) -> CheckRow<'_> {
    let (state, word) = match (check.breaches, check.checked) {
        (0, 0) => ("unsure", "not looked at"),
        (0, _) => ("good", "held"),
        _ => ("bad", "broken"),
    };
    let (checked, breaches) = (grouped_tight(check.checked), grouped_tight(check.breaches));
    CheckRow { check, checked, breaches, state, word }
}

fn latency_rows(facts: &Facts) -> Vec<LatencyRow<'_>> {
    let row = |latency: &Latency| {
        let quantiles = QUANTILES.iter().map(|(quantile, _)| quantile_ms(&latency.quantiles_ms, *quantile));
        (grouped_tight(latency.count), quantiles.collect())
    };
    let rows = facts.latencies.iter().map(|latency| (latency.call.as_str(), row(latency)));
    rows.map(|(call, (count, quantiles))| LatencyRow { call, count, quantiles }).collect()
}

fn outcome_rows(facts: &Facts) -> Vec<OutcomeRow<'_>> {
    let all = facts.outcomes.iter().map(|(_, people)| *people as f64).sum::<f64>().max(1.0);
    let rows = facts.outcomes.iter().map(|(outcome, people)| (outcome, *people, *people as f64 / all * 100.0));
    rows.map(|(outcome, people, percent)| OutcomeRow {
        outcome,
        people: grouped_tight(people),
        percent: if 0.0 < percent && percent < 0.1 { "< 0.1 %".into() } else { format!("{percent:.1} %") },
        length: format!("{percent:.1}"),
    })
    .collect()
}

fn kill_rows(facts: &Facts) -> Vec<[String; 5]> {
    let row = |(at, kill): (usize, &Kill)| {
        let down = figure(kill.down_ms as f64);
        [(at + 1).to_string(), kill.what(), duration(kill.at_s), whole(kill.in_flight as f64), format!("{down} ms")]
    };
    facts.kills.iter().enumerate().map(row).collect()
}
