//! `firstcome-bench beside PROGRAM`: compares this build with another one under the same load, round by round; and how
//! long both take to start, and how large they are.
//!
//! Rates of two days differ by more than most changes do. So both services run at once, only one of them under load,
//! and the ratio is taken within a round. The first one alternates, since the machine's speed drifts within a round
//! too.

use super::coupons::Scratch;
use super::field::about::About;
use super::http::{KEY, Service, claims, fixed_body, fresh_body, get, no_body};
use super::load::{Aim, Shot, fire, once};
use super::spread::Spread;
use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::output::{grouped, progress, table, write_out};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
pub(crate) struct BesideArgs {
    /// The other build of firstcome
    program: PathBuf,
    /// This build of firstcome [default: the service that this program has in it]
    #[arg(long, value_name = "PROGRAM")]
    ours: Option<PathBuf>,
    /// Directory on a disk, in which scratch directories are made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Time for each kind of request on each build, in each round
    #[arg(long, value_parser = duration, default_value = "2s")]
    time: Duration,
    /// Rounds over all kinds of request
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections over HTTP
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How often each build is started on an empty store.
const STARTS: u32 = 5;

/// A service of one build, with its data directory.
struct Side {
    service: Service,
    /// The path of a waiting ticket; absent if this build has no rooms.
    ticket: Option<String>,
    _scratch: Scratch,
}

impl Side {
    fn start(program: &Path, args: &BesideArgs, name: &str) -> anyhow::Result<Self> {
        let scratch = Scratch::new(&args.data, name)?;
        let directory = scratch.0.to_str().context("the directory's name is not text")?;
        let open = (0..args.rounds).map(|round| format!("open-{round}=100000000"));
        let coupons: Vec<String> = open.chain(["gone=1".into()]).collect();
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--data", directory];
        arguments.extend(coupons.iter().flat_map(|coupon| ["--coupon", coupon]));
        let service = Service::start_of(program, &arguments)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (first, _) = runtime.block_on(once(service.address, &claims("gone", fresh_body)))?;
        if first != 201 {
            bail!("{}: the first claim was answered {first}", program.display());
        }
        let ticket = runtime.block_on(ticket(service.address))?;
        Ok(Self { service, ticket, _scratch: scratch })
    }

    /// Returns the requests of a round, as far as this build supports them.
    fn kinds(&self, round: u32) -> [Option<Kind>; 4] {
        let poll = |ticket: &String| Shot {
            method: "GET",
            aim: Aim::One(ticket.clone()),
            key: None,
            pass: None,
            body: no_body,
        };
        [
            Some(Kind { status: 201, shot: claims(&format!("open-{round}"), fresh_body) }),
            Some(Kind { status: 409, shot: claims("gone", fixed_body) }),
            self.ticket.as_ref().map(|ticket| Kind { status: 200, shot: poll(ticket) }),
            Some(Kind { status: 200, shot: get("/healthz") }),
        ]
    }
}

const NAMES: [&str; 4] = ["durable claims", "sold out", "polls of a ticket", "healthz"];

/// A kind of request, with its required status.
struct Kind {
    status: u16,
    shot: Shot,
}

/// Joins a paused room, and returns the path of the ticket.
async fn ticket(address: SocketAddr) -> anyhow::Result<Option<String>> {
    let shot =
        |method, path: &str, body| Shot { method, aim: Aim::One(path.into()), key: Some(KEY.into()), pass: None, body };
    let room = shot("PUT", "/v1/rooms/line", |_, _| r#"{"max_active":1,"paused":true}"#.into());
    if once(address, &room).await?.0 != 201 {
        return Ok(None);
    }
    let (status, body) = once(address, &shot("POST", "/v1/rooms/line/tickets", fixed_body)).await?;
    let answer: serde_json::Value = serde_json::from_str(&body).context("a join was answered without JSON")?;
    let ticket = answer["ticket"].as_str().with_context(|| format!("a join was answered {status} without a ticket"))?;
    Ok(Some(format!("/v1/rooms/line/tickets/{ticket}")))
}

/// Requests per second of both builds, in one round.
#[derive(Clone, Copy)]
struct Pair {
    ours: f64,
    others: f64,
}

pub(crate) fn run(args: &BesideArgs) -> Outcome {
    let about = About::measure(&args.data).map_err(Failure::Usage)?;
    let program = args.ours.clone().map_or_else(std::env::current_exe, Ok)?;
    let builds = [Build::measure(&program, args)?, Build::measure(&args.program, args)?];
    let other = Side::start(&args.program, args, "other")?;
    let ours = Side::start(&program, args, "ours")?;
    let bar = progress(u64::from(args.rounds), "rounds");
    let mut pairs: [Vec<Pair>; 4] = Default::default();
    for round in 0..args.rounds {
        let kinds = ours.kinds(round).into_iter().zip(other.kinds(round)).zip(NAMES).zip(&mut pairs);
        for (((our_kind, other_kind), name), pairs) in kinds {
            let (Some(our_kind), Some(other_kind)) = (our_kind, other_kind) else { continue };
            let load = |side: &Side, kind: &Kind| {
                let load = fire(side.service.address, &kind.shot, args.connections, args.time)?;
                load.expect(name, &[kind.status])?;
                anyhow::Ok(load.per_second())
            };
            let pair = if round % 2 == 0 {
                let others = load(&other, &other_kind)?;
                Pair { ours: load(&ours, &our_kind)?, others }
            } else {
                Pair { ours: load(&ours, &our_kind)?, others: load(&other, &other_kind)? }
            };
            pairs.push(pair);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if args.json {
        let report = Report { about, requests: requests(&pairs), builds };
        write_out(format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes())?;
    } else {
        write_out(format!("{}{}{}", about.machine.line(), text(&pairs), text_of(&builds)).as_bytes())?;
    }
    Ok(())
}

/// The report of a comparison.
#[derive(Serialize)]
struct Report {
    about: About,
    /// What both builds measured for each kind of request, by its name.
    requests: BTreeMap<&'static str, Requests>,
    /// This build, and the other one.
    builds: [Build; 2],
}

#[derive(Serialize)]
struct Requests {
    ours: Option<Spread>,
    others: Option<Spread>,
    /// The rate of the other build ÷ that of this build, within a round.
    others_to_ours: Option<Spread>,
}

fn requests(pairs: &[Vec<Pair>; 4]) -> BTreeMap<&'static str, Requests> {
    let spread = |pairs: &[Pair], of: fn(&Pair) -> f64| Spread::of(pairs.iter().map(of));
    let requests = NAMES.iter().zip(pairs).filter(|(_, pairs)| !pairs.is_empty()).map(|(name, pairs)| {
        let ours = spread(pairs, |pair| pair.ours);
        let others = spread(pairs, |pair| pair.others);
        (*name, Requests { ours, others, others_to_ours: spread(pairs, |pair| pair.others / pair.ours) })
    });
    requests.collect()
}

/// What a build is without load.
#[derive(Serialize)]
struct Build {
    binary_bytes: u64,
    /// From the start of the process to its line with the address, on an empty store.
    start_ms: Option<Spread>,
}

impl Build {
    fn measure(program: &Path, args: &BesideArgs) -> anyhow::Result<Self> {
        let mut starts_ms = Vec::new();
        for _ in 0..STARTS {
            let scratch = Scratch::new(&args.data, "start")?;
            let directory = scratch.0.to_str().context("the directory's name is not text")?;
            let service = Service::start_of(program, &["serve", "--listen", "127.0.0.1:0", "--data", directory])?;
            starts_ms.push(service.started.as_secs_f64() * 1e3);
        }
        let binary_bytes = std::fs::metadata(program).map_or(0, |file| file.len());
        Ok(Self { binary_bytes, start_ms: Spread::of(starts_ms) })
    }
}

fn text_of(builds: &[Build; 2]) -> String {
    let [ours, others] = builds;
    let size = |build: &Build| format!("{:.1} MB", build.binary_bytes as f64 / 1e6);
    let start = |build: &Build| build.start_ms.map_or_else(|| "–".into(), |start| format!("{:.1} ms", start.median));
    let mut rows = table(&["Build", ">This one", ">Other build"]);
    rows.add_row(["binary".to_owned(), size(ours), size(others)]);
    rows.add_row(["start of an empty store".to_owned(), start(ours), start(others)]);
    format!("{rows}\n")
}

fn text(pairs: &[Vec<Pair>; 4]) -> String {
    let mut rows = table(&["Requests", ">Per second", ">Other build", ">Ratio", ">Lowest", ">Highest"]);
    for (name, pairs) in NAMES.iter().zip(pairs) {
        let Some(ratios) = Spread::of(pairs.iter().map(|pair| pair.ours / pair.others)) else {
            rows.add_row([name, "not measured: a build has no rooms", "", "", "", ""]);
            continue;
        };
        let rate = |side: fn(&Pair) -> f64| Spread::of(pairs.iter().map(side)).map_or(0, |spread| spread.median as u64);
        let [median, lowest, highest] = [ratios.median, ratios.min, ratios.max].map(|ratio| format!("{ratio:.3}"));
        let [ours, others] = [rate(|pair| pair.ours), rate(|pair| pair.others)].map(grouped);
        rows.add_row([*name, &ours, &others, &median, &lowest, &highest]);
    }
    format!("{rows}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_rooms_is_told_so() {
        let pair = Pair { ours: 800.0, others: 1_000.0 };
        let text = text(&[vec![pair], vec![pair], Vec::new(), vec![pair]]);
        assert!(text.contains("0.800") && text.contains("a build has no rooms"), "{text}");
    }
}
