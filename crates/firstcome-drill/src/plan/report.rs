//! The plan as tables for people and as JSON for programs.

use super::assumptions::ASSUMPTIONS;
use super::check::{Check, PlanRow};
use super::rates::{HEAD_ROOM, Limit, Plan};
use crate::output::{grouped, table};
use comfy_table::Cell;
use serde_json::{Value, json};

/// Formats three significant digits, or all digits of a larger number.
fn figure(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        large if 999.95 <= large => grouped(number.round() as u64),
        large if 99.95 <= large => trimmed(format!("{number:.1}")),
        large if 0.995 <= large => trimmed(format!("{number:.2}")),
        small => {
            let digits = (2.0 - small.log10().floor()).clamp(0.0, 15.0) as usize;
            trimmed(format!("{number:.digits$}"))
        }
    }
}

fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn percent(share: f64) -> String {
    format!("{} %", figure(share * 100.0))
}

/// Rounds a number for JSON: six digits after the point.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// Returns each formula with its figures: what, how, result.
fn formulas(plan: &Plan) -> Vec<[String; 3]> {
    let inputs = &plan.inputs;
    let (visit_s, stay_s, spike_s) = (inputs.visit_s(), inputs.stay.as_secs_f64(), inputs.spike.as_secs_f64());
    let [reads, writes, read_ms, write_ms] = [inputs.reads, inputs.writes, inputs.read_ms, inputs.write_ms].map(figure);
    let set = plan.admit.per_second();
    let line = |what: &str, how: String, result: String| [what.to_owned(), how, result];
    let mut lines = vec![
        line(
            "connection time of a visit",
            format!("{reads} reads × {read_ms} ms + {writes} writes × {write_ms} ms"),
            format!("{} ms", figure(visit_s * 1_000.0)),
        ),
        line(
            "busy connections",
            format!("{} connections × {}", grouped(inputs.pool), percent(inputs.utilisation)),
            format!("{} on average", figure(plan.busy)),
        ),
        line(
            "people who come",
            format!("{} a month × {} × {}", grouped(inputs.mau), percent(inputs.daily), figure(inputs.peak)),
            format!("{} people", figure(plan.people)),
        ),
    ];
    lines.extend(plan.limits.iter().map(|(limit, rate)| {
        let how = match limit {
            Limit::DatabasePool => format!("{} connections ÷ {} s a visit", figure(plan.busy), figure(visit_s)),
            Limit::Demand => format!("{} people ÷ {} s", figure(plan.people), figure(spike_s)),
            Limit::Slots => format!(
                "{} slots ÷ ({} s stay × {HEAD_ROOM})",
                grouped(inputs.max_active.unwrap_or_default()),
                figure(stay_s)
            ),
        };
        line(&format!("limit: {}", limit.words()), how, format!("{} people/s", figure(*rate)))
    }));
    lines.push(line(
        "rate of the room",
        match inputs.rate {
            Some(_) => format!("--rate instead; {} people per {} ms", plan.admit.count, plan.admit.every_ms),
            None => format!("{} people per {} ms", plan.admit.count, plan.admit.every_ms),
        },
        format!("{} people/s", figure(set)),
    ));
    lines.push(line(
        "people inside (Little)",
        format!("{} people/s × {} s stay", figure(set), figure(stay_s)),
        format!("{} people", figure(set * stay_s)),
    ));
    lines.push(line(
        "max_active",
        format!(
            "{} people × {HEAD_ROOM} head-room{}",
            figure(set * stay_s),
            if inputs.max_active.is_some() { ", at most --max-active" } else { "" }
        ),
        format!("{} slots", grouped(plan.max_active)),
    ));
    lines.push(line(
        "the line lasts",
        if plan.line_s() == 0.0 {
            format!("{} people/s come, {} people/s may", figure(plan.of(Limit::Demand)), figure(set))
        } else {
            format!("{} people ÷ {} people/s", figure(plan.people), figure(set))
        },
        if plan.line_s() == 0.0 { "no line".into() } else { format!("{} s", figure(plan.line_s())) },
    ));
    lines
}

/// Returns the notes for the reader.
fn notes(plan: &Plan) -> Vec<String> {
    let (limit, rate) = plan.binding();
    let mut notes = vec![format!("binds: {} ({} people/s)", limit.words(), figure(rate))];
    if limit == Limit::Demand {
        notes.push("Fewer people come than the back end carries: no line forms, the room stands by.".into());
    }
    let (offered, crowd) = (plan.offered(), plan.offered_by_crowd());
    if crowd < offered - 0.01 {
        let why = if limit == Limit::Demand {
            "So few people"
        } else {
            "Everybody is inside before the first have left: they"
        };
        notes.push(format!(
            "{why} keep only {} of the connections busy, with their queries spread over the stay of {} s. \
             {} is reached when a line lasts longer than a stay.",
            percent(crowd),
            figure(plan.inputs.stay.as_secs_f64()),
            percent(offered)
        ));
    }
    notes
}

/// Renders the plan for a terminal.
pub(crate) fn table_of(plan: &Plan, check: Option<&Check>) -> String {
    let mut sums = table(&["What", "How", ">Result"]);
    for line in formulas(plan) {
        sums.add_row(line);
    }
    let mut text = format!("{sums}\n\n");
    for note in notes(plan) {
        text.push_str(&format!("{note}\n"));
    }
    text.push_str(&format!("\nRoom settings, for PUT /v1/rooms/{{room}}:\n{:#}\n\n{}\n", plan.room(), plan.curl()));
    if let Some(check) = check {
        text.push_str(&check_table(check));
    }
    text.push_str("\nAssumed, and when it is wrong:\n");
    for (assumed, wrong) in ASSUMPTIONS {
        text.push_str(&format!("- {assumed}\n  Wrong when: {wrong}\n"));
    }
    text
}

fn check_table(check: &Check) -> String {
    let heads = [
        "Simulated rate",
        ">People/s",
        ">Admitted/s",
        ">Busy",
        ">Used",
        ">Wait, ms",
        ">p99",
        ">Query p99, ms",
        ">In queue",
    ];
    let mut rows = table(&heads);
    for row in &check.rows {
        let seen = &row.measured;
        let figures = [
            row.per_second,
            seen.admitted_per_second,
            seen.busy_connections,
            seen.utilisation * 100.0,
            seen.wait_mean_ms,
            seen.wait_p99_ms,
            seen.query_p99_ms,
            seen.queue_last,
        ];
        let cells = figures.iter().enumerate().map(|(at, number)| match at {
            3 => Cell::new(format!("{number:.1} %")),
            _ => Cell::new(figure(*number)),
        });
        rows.add_row([Cell::new(row.what)].into_iter().chain(cells));
    }
    let planned = &check.rows[0];
    let verdict = match &check.verdict {
        Ok(()) => "holds".to_owned(),
        Err(reason) => format!("does not hold: {reason}"),
    };
    format!(
        "\n{rows}\nThe plan {verdict}.\nSimulated: {} s of a line that does not run dry, stays of {} s, without max_active; measured in the second half. Waits under too much load grow with the time.\n",
        figure(planned.simulated_s),
        figure(planned.stay_s)
    )
}

/// Renders the plan for programs.
pub(crate) fn json_of(plan: &Plan, check: Option<&Check>) -> Value {
    let inputs = &plan.inputs;
    let binding = plan.binding().0;
    let limits: Vec<_> = plan
        .limits
        .iter()
        .map(|(limit, rate)| json!({"limit": limit.code(), "people_per_second": rounded(*rate), "binds": *limit == binding}))
        .collect();
    let formulas: Vec<_> = formulas(plan)
        .into_iter()
        .map(|[what, how, result]| json!({"what": what, "how": how, "result": result}))
        .collect();
    let assumptions: Vec<_> =
        ASSUMPTIONS.iter().map(|(assumed, wrong)| json!({"assumed": assumed, "wrong_when": wrong})).collect();
    json!({
        "inputs": {
            "mau": inputs.mau, "daily": inputs.daily, "peak": inputs.peak, "spike_ms": inputs.spike.as_millis() as u64,
            "reads": inputs.reads, "writes": inputs.writes, "read_ms": inputs.read_ms, "write_ms": inputs.write_ms,
            "pool": inputs.pool, "utilisation": inputs.utilisation, "stay_ms": inputs.stay.as_millis() as u64,
            "max_active": inputs.max_active, "rate": inputs.rate,
        },
        "visit": {"queries": rounded(inputs.queries()), "connection_ms": rounded(inputs.visit_s() * 1_000.0)},
        "busy_connections": rounded(plan.busy),
        "people": plan.people as u64,
        "limits": limits,
        "binds": binding.code(),
        "rate_per_second": rounded(plan.rate),
        "admitted_per_second": rounded(plan.admit.per_second()),
        "utilisation": rounded(plan.offered()),
        "utilisation_of_this_crowd": rounded(plan.offered_by_crowd()),
        "line_lasts_ms": (plan.line_s() * 1_000.0).round() as u64,
        "room": plan.room(),
        "curl": plan.curl(),
        "formulas": formulas,
        "notes": notes(plan),
        "assumptions": assumptions,
        "check": check.map(check_json),
    })
}

fn check_json(check: &Check) -> Value {
    let row = |row: &PlanRow| {
        let seen = &row.measured;
        json!({
            "what": row.what, "rate_per_second": rounded(row.per_second), "offered": rounded(row.offered),
            "simulated_ms": (row.simulated_s * 1e3).round() as u64, "stay_ms": (row.stay_s * 1e3).round() as u64,
            "queries": seen.queries, "admitted_per_second": rounded(seen.admitted_per_second),
            "busy_connections": rounded(seen.busy_connections), "utilisation": rounded(seen.utilisation),
            "wait_mean_ms": rounded(seen.wait_mean_ms), "wait_p99_ms": rounded(seen.wait_p99_ms),
            "query_p99_ms": rounded(seen.query_p99_ms), "queue_first": rounded(seen.queue_first),
            "queue_last": rounded(seen.queue_last),
        })
    };
    json!({
        "holds": check.verdict.is_ok(), "reason": check.verdict.as_ref().err(),
        "rows": check.rows.iter().map(row).collect::<Vec<_>>(),
    })
}
