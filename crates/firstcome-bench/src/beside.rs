//! `firstcome-bench beside PROGRAM`: compares this build with another one under the same load, round by round.
//!
//! Rates of two days differ by more than most changes do. So both services run at once, only one of them under load,
//! and the ratio is taken within a round. The first one alternates, since the machine's speed drifts within a round
//! too.

use super::conditions::Conditions;
use super::coupons::Scratch;
use super::http::{KEY, Service, claims, fixed_body, fresh_body, no_body};
use super::load::{Aim, Shot, fire, once};
use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::output::{grouped, progress, table, write_out};
use anyhow::{Context, bail};
use clap::Args;
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
}

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
    fn kinds(&self, round: u32) -> [Option<Kind>; 3] {
        let poll = |ticket: &String| Shot { method: "GET", aim: Aim::One(ticket.clone()), key: None, body: no_body };
        [
            Some(Kind { status: 201, shot: claims(&format!("open-{round}"), fresh_body) }),
            Some(Kind { status: 409, shot: claims("gone", fixed_body) }),
            self.ticket.as_ref().map(|ticket| Kind { status: 200, shot: poll(ticket) }),
        ]
    }
}

const NAMES: [&str; 3] = ["durable claims", "sold out", "polls of a ticket"];

/// A kind of request, with its required status.
struct Kind {
    status: u16,
    shot: Shot,
}

/// Joins a paused room, and returns the path of the ticket.
async fn ticket(address: SocketAddr) -> anyhow::Result<Option<String>> {
    let shot = |method, path: &str, body| Shot { method, aim: Aim::One(path.into()), key: Some(KEY.into()), body };
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
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let other = Side::start(&args.program, args, "other")?;
    let program = args.ours.clone().map_or_else(std::env::current_exe, Ok)?;
    let ours = Side::start(&program, args, "ours")?;
    let bar = progress(u64::from(args.rounds), "rounds");
    let mut pairs: [Vec<Pair>; 3] = Default::default();
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
    write_out(format!("{}{}", conditions.line(), text(&pairs)).as_bytes())?;
    Ok(())
}

fn text(pairs: &[Vec<Pair>; 3]) -> String {
    let mut rows = table(&["Requests", ">Per second", ">Other build", ">Ratio", ">Lowest", ">Highest"]);
    for (name, pairs) in NAMES.iter().zip(pairs) {
        let Some(ratios) = Spread::of(pairs.iter().map(|pair| pair.ours / pair.others)) else {
            rows.add_row([name, "not measured: a build has no rooms", "", "", "", ""]);
            continue;
        };
        let rate = |side: fn(&Pair) -> f64| Spread::of(pairs.iter().map(side)).map_or(0, |spread| spread.median as u64);
        let [median, lowest, highest] =
            [ratios.median, ratios.lowest, ratios.highest].map(|ratio| format!("{ratio:.3}"));
        let [ours, others] = [rate(|pair| pair.ours), rate(|pair| pair.others)].map(grouped);
        rows.add_row([*name, &ours, &others, &median, &lowest, &highest]);
    }
    format!("{rows}\n")
}

/// The median and the extremes of some figures.
#[derive(PartialEq, Debug)]
struct Spread {
    lowest: f64,
    median: f64,
    highest: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let (lowest, highest) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            f64::midpoint(figures[middle - 1], figures[middle])
        } else {
            figures[middle]
        };
        Some(Self { lowest, median, highest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends_are_found() {
        let spread = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[0.9, 0.7, 0.8]), Some(Spread { lowest: 0.7, median: 0.8, highest: 0.9 }));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some(Spread { lowest: 1.0, median: 2.5, highest: 4.0 }));
    }

    #[test]
    fn a_build_without_rooms_is_told_so() {
        let pair = Pair { ours: 800.0, others: 1_000.0 };
        let text = text(&[vec![pair], vec![pair], Vec::new()]);
        assert!(text.contains("0.800") && text.contains("a build has no rooms"), "{text}");
    }
}
