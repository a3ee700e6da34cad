//! The validated inputs of a plan.

use crate::arguments::duration;
use anyhow::{anyhow, ensure};
use clap::Args;
use std::time::Duration;

/// The largest figure. A larger one is a mistake, and would make the arithmetic inexact.
const FIGURE_MAX: f64 = 1e9;
/// The most queries of one visit. Protects the simulation.
const QUERIES_MAX: f64 = 10_000.0;
/// The most connections. Protects the simulation.
const POOL_MAX: u64 = 10_000;
/// The longest slot of any room.
const PERIOD_MAX: Duration = Duration::from_hours(24);

/// The formulas in the help text.
const FORMULAS: &str = "\
A visit holds a connection for   reads x read-ms + writes x write-ms
The back end carries             pool x utilisation / that time, in people per second
People who come                  mau x daily x peak, within the spike
People inside (Little)           rate x stay; max_active has 20% more
The line lasts                   people / rate";

/// From the people who come and the time that their queries hold a database connection to the settings of a room
#[derive(Args)]
#[command(after_help = FORMULAS)]
pub struct PlanArgs {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Try the settings in a simulated back end; exit code 1 if they do not hold
    #[arg(long)]
    pub(crate) check: bool,
    /// Seed of the simulation: the same seed gives the same figures
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    pub(crate) json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    pub(crate) table: bool,
}

/// The figures of one back end and one event. Shares are fractions of 1.
#[derive(Args, Clone)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Inputs {
    /// People who use the service in a month
    #[arg(long, default_value = "5000", value_parser = people, value_name = "PEOPLE", allow_negative_numbers = true)]
    pub(crate) mau: u64,
    /// Share of them that comes on an ordinary day
    #[arg(long, default_value = "60%", value_parser = share, value_name = "PERCENT", allow_hyphen_values = true)]
    pub(crate) daily: f64,
    /// How many times as many people come on the day of the event
    #[arg(long, default_value = "2", value_parser = positive, value_name = "FACTOR", allow_negative_numbers = true)]
    pub(crate) peak: f64,
    /// Time within which all of them arrive, evenly
    #[arg(long, default_value = "10s", value_parser = period, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) spike: Duration,
    /// Reading queries of one person's whole visit, on average, failed attempts included
    #[arg(long, default_value = "15.5", value_parser = queries, value_name = "QUERIES", allow_negative_numbers = true)]
    pub(crate) reads: f64,
    /// Writing queries of one person's whole visit, on average, failed attempts included
    #[arg(long, default_value = "8.5", value_parser = queries, value_name = "QUERIES", allow_negative_numbers = true)]
    pub(crate) writes: f64,
    /// Mean time for which one reading query holds a connection, in milliseconds
    #[arg(long, default_value = "2", value_parser = query_ms, value_name = "MS", allow_negative_numbers = true)]
    pub(crate) read_ms: f64,
    /// Mean time for which one writing query holds a connection, in milliseconds
    #[arg(long, default_value = "10", value_parser = query_ms, value_name = "MS", allow_negative_numbers = true)]
    pub(crate) write_ms: f64,
    /// Database connections that the visitors share, over all servers
    #[arg(long, default_value = "20", value_parser = connections, value_name = "CONNECTIONS", allow_negative_numbers = true)]
    pub(crate) pool: u64,
    /// Share of the connections' time that visitors may use; below 100%, where the wait grows without end
    #[arg(long, default_value = "60%", value_parser = utilisation, value_name = "PERCENT", allow_hyphen_values = true)]
    pub(crate) utilisation: f64,
    /// Time from admission until a person's slot is released
    #[arg(long, default_value = "5m", value_parser = period, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) stay: Duration,
    /// People who may be inside at once, if something else limits them (sessions, memory)
    #[arg(long, value_parser = people, value_name = "PEOPLE", allow_negative_numbers = true)]
    pub(crate) max_active: Option<u64>,
    /// Take this rate (people per second) for the room, instead of the computed one
    #[arg(long, conflicts_with = "max_active", value_parser = positive, value_name = "PER_SECOND", allow_negative_numbers = true)]
    pub(crate) rate: Option<f64>,
}

impl Inputs {
    /// Returns the number of queries of one visit.
    pub(crate) fn queries(&self) -> f64 {
        self.reads + self.writes
    }

    /// Returns the time for which one visit holds a connection, in seconds.
    pub(crate) fn visit_s(&self) -> f64 {
        (self.reads * self.read_ms + self.writes * self.write_ms) / 1_000.0
    }
}

fn number(text: &str) -> anyhow::Result<f64> {
    let number: f64 = text.parse().map_err(|_| anyhow!("{text:?} is not a number"))?;
    ensure!(number.is_finite(), "must be a finite number");
    Ok(number)
}

fn positive(text: &str) -> anyhow::Result<f64> {
    let number = number(text)?;
    ensure!((1e-9..=FIGURE_MAX).contains(&number), "must be above 0 and at most 1000000000");
    Ok(number)
}

fn queries(text: &str) -> anyhow::Result<f64> {
    let number = number(text)?;
    ensure!((0.0..=QUERIES_MAX).contains(&number), "must be 0 to 10000 queries");
    Ok(number)
}

fn query_ms(text: &str) -> anyhow::Result<f64> {
    let number = number(text)?;
    ensure!((0.001..=3_600_000.0).contains(&number), "must be 0.001 to 3600000 milliseconds");
    Ok(number)
}

fn share(text: &str) -> anyhow::Result<f64> {
    let percent = number(text.strip_suffix('%').unwrap_or(text))?;
    ensure!((1e-6..=100.0).contains(&percent), "must be above 0% and at most 100%");
    Ok(percent / 100.0)
}

fn utilisation(text: &str) -> anyhow::Result<f64> {
    let share = share(text)?;
    ensure!((0.01..=0.99).contains(&share), "must be 1% to 99%: at 100% the wait for a connection grows without end");
    Ok(share)
}

fn whole(text: &str, last: u64, what: &str) -> anyhow::Result<u64> {
    let number = text.parse().ok().filter(|number| (1..=last).contains(number));
    number.ok_or_else(|| anyhow!("must be a whole number of {what}, 1 to {last}"))
}

fn people(text: &str) -> anyhow::Result<u64> {
    whole(text, FIGURE_MAX as u64, "people")
}

fn connections(text: &str) -> anyhow::Result<u64> {
    whole(text, POOL_MAX, "connections")
}

fn period(text: &str) -> anyhow::Result<Duration> {
    let period = duration(text)?;
    ensure!((Duration::from_millis(100)..=PERIOD_MAX).contains(&period), "must be 100ms to 24h");
    Ok(period)
}
