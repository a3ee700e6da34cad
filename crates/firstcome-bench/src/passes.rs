//! `firstcome-bench passes`: what a program pays that verifies passes by itself, after the first check of a pass and for
//! one that is forged.

use super::conditions::{Conditions, micros};
use super::coupons::Scratch;
use super::gate::admitted;
use super::http::{KEY, Service};
use super::load::{Aim, Shot, once};
use super::report::{Report, ReportRow, Target, latencies};
use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::output::wants_table;
use anyhow::{Context, bail};
use clap::Args;
use firstcome::edge::Stopwatch;
use firstcome::pass::PassVerifier;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

/// How many checks lie between two looks at the watch.
const CHECKS: u64 = 1_000;

#[derive(Args)]
pub(crate) struct PassesArgs {
    /// Directory on a disk, in which a scratch directory is made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Time for each kind of pass
    #[arg(long, value_parser = duration, default_value = "3s")]
    time: Duration,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

pub(crate) fn run(args: &PassesArgs) -> Outcome {
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let mut report = Report { conditions, rows: Vec::new(), targets: Vec::new() };
    measure(args, &mut report)?;
    report.print(args.table || wants_table(args.json))
}

fn measure(args: &PassesArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new(&args.data, "passes")?;
    let data = scratch.0.join("data");
    let data = data.to_str().context("the directory's name is not text")?;
    let service = Service::start(&["serve", "--listen", "127.0.0.1:0", "--data", data])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (passes, pass) = runtime.block_on(async {
        let body = |_, _| r#"{"max_active": 10, "idle_ttl_ms": 0}"#.into();
        let put =
            Shot { method: "PUT", aim: Aim::One("/v1/rooms/site".into()), key: Some(KEY.into()), pass: None, body };
        let (status, says) = once(service.address, &put).await?;
        if status != 201 {
            bail!("no room: {status}: {says}");
        }
        let pass = admitted(service.address).await?;
        let passes = PassVerifier::start(&format!("http://{}", service.address), KEY, "site")?;
        passes.ready().await;
        passes.check(&pass)?;
        Ok((passes, pass))
    })?;
    let (signed, footer) = pass.rsplit_once('.').context("a pass has a footer")?;
    // One character in the middle of the signature is another.
    let (before, after) = signed.split_at(signed.len() - 40);
    let other = if after.starts_with('A') { "B" } else { "A" };
    let forged = format!("{before}{other}{}.{footer}", &after[1..]);
    let known = row("a pass after its first check", args.time, || passes.check(black_box(&pass)).is_ok())?;
    let fresh =
        row("a forged pass: its signature is verified", args.time, || passes.check(black_box(&forged)).is_err())?;
    report.targets.push(Target::at_most("check of a pass after the first, µs", 1e6 / known.per_second, 2.0));
    report.rows.extend([known, fresh]);
    Ok(())
}

/// Checks again and again on one thread. Each check has to answer as it should.
fn row(name: &str, time: Duration, check: impl Fn() -> bool) -> anyhow::Result<ReportRow> {
    let (mut count, watch) = (0, Stopwatch::start());
    while watch.elapsed() < time {
        for _ in 0..CHECKS {
            if !check() {
                bail!("{name}: the answer is wrong");
            }
        }
        count += CHECKS;
    }
    let row = ReportRow::new(name, count, watch.elapsed());
    // A look at the watch costs much of a check, so the rate comes from a loop without one.
    let mut times = latencies();
    let watch = Stopwatch::start();
    while watch.elapsed() < time {
        let one = Stopwatch::start();
        black_box(check());
        times.saturating_record(micros(one.elapsed()));
    }
    Ok(row.latencies(&times).correct(true))
}
