//! The output of a drill on a terminal.

use super::{Verdict, broken, scale, verdict};
use crate::drill::facts::Facts;
use crate::output::{grouped, table};
use comfy_table::{Cell, Color};

/// The percentiles that fit on a terminal.
pub(super) const QUANTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];

/// Renders everything except the plots. Broken invariants come last, just above the next prompt.
pub(super) fn text(facts: &Facts) -> String {
    let took = scale::duration(facts.seconds);
    let (people, stock, issued) = (grouped(facts.people), grouped(facts.stock), grouped(facts.issued));
    let mut text = format!("{} drill: {people} people, ", facts.event);
    text.push_str(&match &facts.auctions {
        Some(auctions) => format!("{stock} listings, {} bids, {issued} sold, {took}\n", grouped(auctions.bids)),
        None => format!("{stock} in stock, {issued} issued, {took}\n"),
    });
    let conditions: Vec<String> = facts.conditions.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if !conditions.is_empty() {
        text.push_str(&format!("{}\n", conditions.join(" · ")));
    }
    figures(facts, &mut text);
    latencies(facts, &mut text);
    kills(facts, &mut text);
    checks(facts, &mut text);
    for check in broken(facts) {
        text.push_str(&format!("\nbroken: {}: {}\n", check.invariant, check.says));
        for example in &check.examples {
            text.push_str(&format!("  {example}\n"));
        }
    }
    let (verdict, says) = verdict(facts);
    let stress = if verdict == Verdict::Held { "" } else { "!" };
    text.push_str(&format!("\n{says}{stress}\n"));
    text
}

fn figures(facts: &Facts, text: &mut String) {
    if facts.figures.is_empty() && facts.outcomes.is_empty() {
        return;
    }
    let mut table = table(&["Figure", ">Value"]);
    let who = if facts.auctions.is_some() { "orders" } else { "people" };
    for (outcome, people) in &facts.outcomes {
        table.add_row([Cell::new(format!("{who}: {outcome}")), Cell::new(grouped(*people))]);
    }
    for (name, value) in &facts.figures {
        table.add_row([Cell::new(name), Cell::new(value)]);
    }
    text.push_str(&format!("{table}\n"));
}

fn latencies(facts: &Facts, text: &mut String) {
    if facts.latencies.is_empty() {
        return;
    }
    let mut columns = vec!["Call".to_owned(), ">Count".to_owned()];
    columns.extend(QUANTILES.iter().map(|(_, name)| format!(">{name} ms")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = table(&columns);
    for latency in &facts.latencies {
        let mut row = vec![Cell::new(&latency.call), Cell::new(grouped(latency.count))];
        let cell = |(quantile, _): &(f64, &str)| scale::quantile_ms(&latency.quantiles_ms, *quantile);
        row.extend(QUANTILES.iter().map(cell).map(Cell::new));
        table.add_row(row);
    }
    text.push_str(&format!("{table}\n"));
}

fn kills(facts: &Facts, text: &mut String) {
    if facts.kills.is_empty() {
        return;
    }
    let mut table = table(&["Killed", ">After", ">In flight", ">Down ms"]);
    for kill in &facts.kills {
        let after = scale::duration(kill.at_s);
        let (in_flight, down) = (grouped(kill.in_flight), grouped(kill.down_ms));
        table.add_row([Cell::new(kill.what()), Cell::new(after), Cell::new(in_flight), Cell::new(down)]);
    }
    text.push_str(&format!("{table}\n"));
}

fn checks(facts: &Facts, text: &mut String) {
    let mut table = table(&["Promise", ">Checked", ">Breaches"]);
    for check in &facts.checks {
        let colour = match (check.breaches, check.checked) {
            (0, 0) => Color::Yellow,
            (0, _) => Color::Green,
            _ => Color::Red,
        };
        let breaches = Cell::new(grouped(check.breaches)).fg(colour);
        table.add_row([Cell::new(check.invariant), Cell::new(grouped(check.checked)), breaches]);
    }
    text.push_str(&format!("{table}\n"));
}
