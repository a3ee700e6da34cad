//! Checks the settings in a simulated back end: the utilisation is as planned, and the queue does not grow.

use super::admit::Admit;
use super::inputs::Inputs;
use super::rates::Plan;
use super::simulation::{Arrivals, Measured, Run, simulate};
use anyhow::{Context, ensure};

/// How far the measured utilisation may differ from the planned one.
const TOLERANCE: f64 = 0.03;
/// A queue grows if it is at last this many times as long as at first, plus one query per connection.
const GROWTH: f64 = 1.5;
/// Queries of one run: enough for the tolerance, and a fraction of a second on any machine.
const QUERIES: f64 = 400_000.0;
/// The most queries of the run at the planned rate. The check refuses a larger run.
const QUERIES_MAX: f64 = 1_000_000.0;
/// The longest run in simulated seconds, thirty years: its nanoseconds fit in 64 bits.
const RUN_S_MAX: f64 = 1e9;
/// The shortest stay, as a multiple of the time of a visit's queries: people must think most of the time.
const STAY_VISITS: f64 = 4.0;
/// The length of a run in stays. In the first half the arrivals and departures balance; the second half is measured.
const RUN_STAYS: f64 = 4.0;
/// The longest slice of a room: it admits at most this much of its rate at once.
const SLICE_NS: u64 = 250_000_000;
/// The fewest slices in a stay, if the stay is shortened.
const SLICES_PER_STAY: u64 = 40;

/// One rate, with the measurements of the back end.
#[derive(PartialEq, Debug)]
pub(crate) struct PlanRow {
    pub(crate) what: &'static str,
    pub(crate) per_second: f64,
    pub(crate) offered: f64,
    pub(crate) simulated_s: f64,
    pub(crate) stay_s: f64,
    pub(crate) measured: Measured,
}

/// The rows, the planned rate first, and whether the planned rate holds.
#[derive(PartialEq, Debug)]
pub(crate) struct Check {
    pub(crate) rows: Vec<PlanRow>,
    pub(crate) verdict: Result<(), String>,
}

impl Check {
    /// Runs the check. Fails only if it would take too long.
    pub(crate) fn run(plan: &Plan, seed: u64) -> anyhow::Result<Self> {
        let (inputs, planned) = (&plan.inputs, plan.admit.per_second());
        let least = STAY_VISITS * RUN_STAYS * inputs.visit_s() * planned * inputs.queries();
        ensure!(
            least <= QUERIES_MAX,
            "--check would simulate {least:.0} queries, at most {QUERIES_MAX}: try fewer connections or queries in proportion"
        );
        let rates = [
            ("planned", planned),
            ("planned ÷ utilisation", planned / inputs.utilisation),
            ("twice the planned", planned * 2.0),
            ("busy connections as people per second", plan.busy),
        ];
        let row = |(what, per_second)| row(inputs, what, per_second, seed);
        let rows = rates.into_iter().map(row).collect::<anyhow::Result<Vec<_>>>()?;
        let verdict = judge(inputs.utilisation, rows[0].offered, &rows[0].measured, inputs.pool);
        Ok(Self { rows, verdict })
    }
}

fn row(inputs: &Inputs, what: &'static str, per_second: f64, seed: u64) -> anyhow::Result<PlanRow> {
    let admit = Admit::at_most(per_second).context("a rate to compare with is beyond what a room can be set to")?;
    let (visit_s, per_second) = (inputs.visit_s(), admit.per_second());
    let offered = per_second * visit_s / inputs.pool as f64;
    let enough_s = (QUERIES / (per_second * inputs.queries().max(1.0))).min(RUN_S_MAX);
    // Under overload no visit completes in any run, so a short run is enough.
    let least_s = if offered <= 1.0 { STAY_VISITS * visit_s } else { 0.0 };
    let stay_s = inputs.stay.as_secs_f64().min(least_s.max(enough_s / RUN_STAYS));
    let simulated_s = enough_s.max(stay_s * RUN_STAYS);
    let stay_ns = stay_s * 1e9;
    let end_ns = (simulated_s * 1e9) as u64;
    let run = Run {
        back_end: inputs,
        arrivals: Arrivals::Room { admit, slice_ns: (stay_ns as u64 / SLICES_PER_STAY).clamp(1, SLICE_NS) },
        // People think before each query and after the last.
        think_ns: (stay_ns - visit_s * 1e9).max(stay_ns / 2.0) / (inputs.queries().max(1.0) + 1.0),
        warm_ns: end_ns / 2,
        end_ns,
    };
    Ok(PlanRow { what, per_second, offered, simulated_s, stay_s, measured: simulate(&run, seed) })
}

/// Judges the planned rate. Order of checks: the queue ends, the allowed utilisation is kept, the formula predicted
/// it.
pub(crate) fn judge(allowed: f64, offered: f64, measured: &Measured, pool: u64) -> Result<(), String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let (first, last) = (measured.queue_first, measured.queue_last);
    if pool as f64 + GROWTH * first < last {
        return Err(format!("the queue for a connection grows: {first:.1} queries at first, {last:.1} at last"));
    }
    let used = measured.utilisation;
    if allowed + TOLERANCE < used {
        return Err(format!("connections are busy {} of the time, {} are allowed", percent(used), percent(allowed)));
    }
    if TOLERANCE < (used - offered).abs() {
        return Err(format!(
            "connections are busy {} of the time, the formula says {}",
            percent(used),
            percent(offered)
        ));
    }
    Ok(())
}
