//! `report.json`, for programs. Fields may be added; none changes its meaning.

use super::broken;
use crate::drill::facts::{AuctionFacts, Facts, Latency, SamplePerson};
use serde_json::{Value, json};

/// Returns the report as one JSON object.
pub(super) fn report(facts: &Facts) -> Value {
    let pair = |(name, value): &(String, String)| json!({"name": name, "value": value});
    let violations = broken(facts).into_iter().map(|check| {
        json!({
            "invariant": check.invariant, "says": check.says,
            "breaches": check.breaches, "examples": check.examples,
        })
    });
    let checks = facts.checks.iter().map(|check| {
        json!({
            "invariant": check.invariant, "says": check.says, "checked": check.checked,
            "breaches": check.breaches, "examples": check.examples,
        })
    });
    let kills = facts.kills.iter().map(|kill| {
        json!({
            "target": kill.target, "data_lost": kill.loses, "at_s": kill.at_s, "in_flight": kill.in_flight,
            "down_ms": kill.down_ms,
        })
    });
    let outcomes = facts.outcomes.iter().map(|(outcome, people)| json!({"outcome": outcome, "people": people}));
    let mut report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "event": facts.event,
        "started_at": facts.started_at,
        "seconds": facts.seconds,
        "people": facts.people,
        "stock": facts.stock,
        "issued": facts.issued,
        "violations": violations.collect::<Vec<_>>(),
        "checks": checks.collect::<Vec<_>>(),
        "kills": kills.collect::<Vec<_>>(),
        "figures": facts.figures.iter().map(pair).collect::<Vec<_>>(),
        "conditions": facts.conditions.iter().map(pair).collect::<Vec<_>>(),
        "outcomes": outcomes.collect::<Vec<_>>(),
        "latencies": facts.latencies.iter().map(latency).collect::<Vec<_>>(),
        "series": series(facts),
        "sample_people": facts.sample_people.iter().map(sample_person).collect::<Vec<_>>(),
    });
    if let Some(auctions) = &facts.auctions {
        report["bids"] = auctions.bids.into();
        report["sales"] = auctions.sales.into();
        report["market"] = auction_series(auctions);
    }
    report
}

fn auction_series(auctions: &AuctionFacts) -> Value {
    let prices = auctions.hot_prices.iter().map(|(at_s, price)| json!({"at_s": at_s, "price": price}));
    json!({
        "accepted_per_s": auctions.accepted_per_s,
        "refused_per_s": auctions.refused_per_s,
        "sold": auctions.sold,
        "held": auctions.held,
        "hot_prices": prices.collect::<Vec<_>>(),
        "hot_ends_s": auctions.hot_ends_s,
    })
}

fn latency(latency: &Latency) -> Value {
    let quantiles = latency.quantiles_ms.iter().map(|(quantile, ms)| json!({"quantile": quantile, "ms": ms}));
    json!({"call": latency.call, "count": latency.count, "quantiles": quantiles.collect::<Vec<_>>()})
}

fn series(facts: &Facts) -> Value {
    let series = &facts.series;
    json!({
        "step_s": series.step_s,
        "arrivals_per_s": series.arrivals_per_s,
        "admissions_per_s": series.admissions_per_s,
        "admission_limit_per_s": series.admission_limit_per_s,
        "waiting": series.waiting,
        "active": series.active,
        "active_cap": series.active_cap,
        "issued": series.issued,
        "requests_per_s": series.requests_per_s,
    })
}

fn sample_person(person: &SamplePerson) -> Value {
    let positions = person.positions.iter().map(|(at_s, position)| json!({"at_s": at_s, "position": position}));
    json!({
        "label": person.label,
        "positions": positions.collect::<Vec<_>>(),
        "admitted_at_s": person.admitted_at_s,
        "outcome": person.outcome,
    })
}
