//! `firstcome-bench rooms`: measures the cost of waiting, and the exactness of admission.

mod cluster;
mod field;
mod flow;
mod minute;

pub(crate) use field::field;

use super::conditions::Conditions;
use super::coupons::{Scratch, disk, patiently};
use super::http::{KEY, ROUNDS, Service, fresh_body, get, median_ratio, middle_row, no_body};
use super::load::{Aim, Load, Shot, fire};
use super::report::{Report, ReportRow, Target};
use crate::arguments::duration;
use crate::database::Named;
use crate::failure::{Failure, Outcome};
use crate::output::{progress, wants_table};
use anyhow::{Context, anyhow};
use clap::Args;
use firstcome::core::id::{RoomName, UserId};
use firstcome::core::room::{Join, RoomSettings};
use firstcome::edge::Stopwatch;
use firstcome::{Embedded, RoomStore};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How many tickets the polls are spread over.
const POLLED: u32 = 65_536;

#[derive(Args)]
pub(crate) struct RoomsArgs {
    /// Directory on a disk, in which scratch directories are made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Time for each kind of request, in each of five rounds
    #[arg(long, value_parser = duration, default_value = "3s")]
    time: Duration,
    /// How long admission is watched
    #[arg(long, value_parser = duration, default_value = "1m")]
    watched: Duration,
    /// Connections over HTTP
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// People in line
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    people: u32,
    /// Measure the load on Redis instead, with a room over it and this database: postgres or mariadb for a server that
    /// is started, or the address of one on this machine
    #[arg(long, value_name = "KIND|URL")]
    sql: Option<String>,
    /// A Redis that runs, instead of one that is started: an empty database of it is used and emptied; with --sql
    #[arg(long, value_name = "redis://…", requires = "sql")]
    redis: Option<String>,
    /// Nodes that people are spread over, all in this process; with --sql
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// How long people wait before anything is measured: longer than a minute, or else some have not asked yet
    #[arg(long, value_parser = duration, default_value = "65s", hide = true)]
    warm_up: Duration,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

fn name(text: &str) -> anyhow::Result<RoomName> {
    RoomName::parse(text).map_err(|error| anyhow!("{error}"))
}

async fn put(store: &Embedded, room: &RoomName, settings: RoomSettings) -> anyhow::Result<()> {
    store.put_room(room, settings).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
    Ok(())
}

fn user(number: u32) -> anyhow::Result<UserId> {
    UserId::parse(&format!("user-{number:011}")).map_err(|error| anyhow!("{error}"))
}

/// Returns the settings of a room that admits no visitor.
fn line_only() -> RoomSettings {
    RoomSettings { paused: true, max_waiting: 100_000_000, ..RoomSettings::with_slots(1) }
}

pub(crate) fn run(args: &RoomsArgs) -> Outcome {
    let named = args.sql.as_deref().map(Named::parse).transpose().map_err(Failure::Usage)?;
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let mut report = Report { conditions, rows: Vec::new(), targets: Vec::new() };
    if let Some(named) = named {
        cluster::measure(args, &named, &mut report)?;
        return finish(args, &report);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bar = progress(5, "");
    let step = |doing: &'static str| {
        bar.set_message(doing);
        bar.inc(1);
    };
    step("ticks");
    flow::ticks(args.people, &mut report);
    step("a draw");
    flow::draw(args.people, &mut report);
    step("flow in simulated time");
    flow::measure(args.people, &mut report)?;
    step("admission, watched");
    minute::measure(&args.data, args.watched, &runtime, &mut report)?;
    step("a long line");
    let scratch = Scratch::new(&args.data, "rooms")?;
    let (tickets, row) = fill(&scratch.0, args.people, &runtime)?;
    report.rows.push(row);
    step("HTTP");
    over_http(args, &scratch.0, tickets, &mut report)?;
    bar.finish_and_clear();
    finish(args, &report)
}

fn finish(args: &RoomsArgs, report: &Report) -> Outcome {
    report.print(args.table || wants_table(args.json))?;
    let wrong = report.rows.iter().any(|row| row.correct == Some(false));
    if wrong { Err(Failure::Refused(anyhow!("a room was not exact"))) } else { Ok(()) }
}

/// Puts so many people with names of 16 bytes in line, durably, and returns some of their tickets.
fn fill(directory: &Path, people: u32, runtime: &Runtime) -> anyhow::Result<(Vec<String>, ReportRow)> {
    let store = disk(directory)?;
    let room = name("line")?;
    runtime.block_on(put(&store, &room, line_only()))?;
    runtime.block_on(put(&store, &name("joins")?, line_only()))?;
    let watch = Stopwatch::start();
    let (tasks, every) = (512, (people / POLLED).max(1));
    let joiners = (0..tasks).map(|task| {
        let (store, room) = (store.clone(), room.clone());
        runtime.spawn(async move {
            let mut kept = Vec::new();
            for number in (task..people).step_by(tasks as usize) {
                let join = Join { user: Some(user(number)?), request: None };
                let (joined, _) = patiently(|| store.join(&room, join.clone())).await?;
                let joined = joined.map_err(|refused| anyhow!("{}", refused.code()))?;
                if number % every == 0 {
                    kept.push(format!("/v1/rooms/line/tickets/{}", joined.1.ticket));
                }
            }
            anyhow::Ok(kept)
        })
    });
    let mut tickets = Vec::new();
    for joiner in joiners.collect::<Vec<_>>() {
        tickets.extend(runtime.block_on(joiner)??);
    }
    let row = ReportRow::new("durable joins, in process", u64::from(people), watch.elapsed());
    let view = runtime.block_on(store.room(&room))?.map_err(|refused| anyhow!("{}", refused.code()))?.view;
    store.close();
    Ok((tickets, row.correct(view.waiting == people)))
}

fn over_http(args: &RoomsArgs, directory: &Path, tickets: Vec<String>, report: &mut Report) -> anyhow::Result<()> {
    let empty = Scratch::new(&args.data, "rooms-empty")?;
    let serve = |directory: &Path| {
        let directory = directory.to_str().context("the directory's name is not text")?;
        Service::start(&["serve", "--listen", "127.0.0.1:0", "--data", directory])
    };
    let empty_rss = serve(&empty.0)?.rss()?;
    let service = serve(directory)?;
    let per_ticket = service.rss()?.saturating_sub(empty_rss) as f64 / f64::from(args.people);
    report.targets.extend([
        Target::at_most("RAM per waiting ticket, bytes", per_ticket, 64.0),
        Target::at_most("restart with everybody waiting, s", service.started.as_secs_f64(), 2.0),
    ]);
    let join = Aim::One("/v1/rooms/joins/tickets".into());
    let kinds = [
        ("HTTP: /healthz", 200, get("/healthz")),
        (
            "HTTP: polls of a ticket",
            200,
            Shot { method: "GET", aim: Aim::Many(tickets.into()), key: None, pass: None, body: no_body },
        ),
        (
            "HTTP: durable joins",
            201,
            Shot { method: "POST", aim: join, key: Some(KEY.into()), pass: None, body: fresh_body },
        ),
    ];
    let mut loads: [Vec<Load>; 3] = Default::default();
    for round in 0..ROUNDS {
        for ((what, status, shot), loads) in kinds.iter().zip(&mut loads) {
            // Users of the first round have a place already: other users join in the next rounds.
            let shot = if round == 0 || *status != 201 { shot.clone() } else { again(shot, round)? };
            let load = fire(service.address, &shot, args.connections, args.time)?;
            load.expect(what, &[*status])?;
            loads.push(load);
        }
    }
    let [health, polls, joins] = loads;
    report.targets.extend([
        Target::at_least("HTTP: polls ÷ /healthz", median_ratio(&polls, &health), 0.85),
        Target::at_least("HTTP: durable joins ÷ /healthz", median_ratio(&joins, &health), 0.45),
    ]);
    for ((what, _, _), loads) in kinds.iter().zip([health, polls, joins]) {
        report.rows.push(middle_row(what, loads));
    }
    Ok(())
}

/// Returns the same request with users of another round.
fn again(shot: &Shot, round: usize) -> anyhow::Result<Shot> {
    let bodies: [fn(usize, usize) -> String; 4] = [
        |connection, number| fresh_body(100 + connection, number),
        |connection, number| fresh_body(200 + connection, number),
        |connection, number| fresh_body(300 + connection, number),
        |connection, number| fresh_body(400 + connection, number),
    ];
    let body = *bodies.get(round - 1).context("a round too many")?;
    Ok(Shot { body, ..shot.clone() })
}
