//! Coupons over HTTP: a service as a child process, and plain axum beside it.

use super::coupons::{Scratch, claim_by, disk, name, patiently, put};
use super::load::{Aim, Load, Shot, fire, once};
use super::report::{Report, ReportRow, Target};
use crate::failure::Outcome;
use crate::redis_set;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use firstcome::edge::Stopwatch;
use firstcome::{CouponStore, core::id::RequestId};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Rounds over all kinds of request. Rates are compared within a round, since the machine's speed drifts. The median
/// of these ratios counts.
pub(super) const ROUNDS: usize = 5;
pub(super) const KEY: &str = "bench-key-of-a-scratch-service";

/// A child process that ends with the benchmark.
pub(super) struct Service {
    child: Child,
    pub(super) address: SocketAddr,
    pub(super) started: Duration,
}

impl Service {
    /// Starts this program, which can also serve, and waits for the line with its address.
    pub(super) fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_of(&std::env::current_exe()?, arguments)
    }

    /// Starts another program in the same way.
    pub(super) fn start_of(program: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let watch = Stopwatch::start();
        let mut command = Command::new(program);
        command.args(arguments).env("FIRSTCOME_ADMIN_KEY", KEY).env("FIRSTCOME_LOG", "error,firstcome::audit=off");
        // All load comes from one address.
        command.env("FIRSTCOME_CALLS_PER_MINUTE", "0").env("FIRSTCOME_CONNECTIONS_PER_ADDRESS", "0");
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the service")?;
        let output = child.stdout.take().context("the service has no output")?;
        let mut lines = BufReader::new(output).lines();
        let address = lines.find_map(|line| line.ok()?.strip_prefix("listening on http://")?.parse().ok());
        let Some(address) = address else {
            child.kill()?;
            bail!("the service did not start");
        };
        Ok(Self { child, address, started: watch.elapsed() })
    }

    /// Returns the resident memory of the process, in bytes.
    pub(super) fn rss(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Args)]
pub(crate) struct EmptyRouteArgs {
    /// Also serve routes that run a bare script there, and that keep a line of people in a sorted set
    #[arg(long)]
    redis: Option<String>,
}

/// Serves one empty route with plain axum until it is killed. With a Redis it also serves a route that runs a bare
/// script.
pub(crate) fn serve_empty_route(args: &EmptyRouteArgs) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}", listener.local_addr()?);
        let mut router = axum::Router::new().route("/empty", axum::routing::get(async || "ok\n"));
        if let Some(url) = &args.redis {
            let set = redis_set::Bare::open(url).await?;
            let run = async move |body: String| match set.claim(&body).await {
                Ok(_) => axum::http::StatusCode::OK,
                Err(_) => axum::http::StatusCode::SERVICE_UNAVAILABLE,
            };
            router = router.route("/bare", axum::routing::post(run));
            let line = redis_set::SortedSet::open(url).await?;
            let join = line.clone();
            let rank =
                async move |axum::extract::Path(member): axum::extract::Path<String>| match line.rank(&member).await {
                    Ok(Some(rank)) => (axum::http::StatusCode::OK, format!("{{\"position\":{}}}", rank + 1)),
                    Ok(None) => (axum::http::StatusCode::NOT_FOUND, String::new()),
                    Err(_) => (axum::http::StatusCode::SERVICE_UNAVAILABLE, String::new()),
                };
            let join = async move |body: String| match join.join(&body).await {
                Ok(_) => axum::http::StatusCode::OK,
                Err(_) => axum::http::StatusCode::SERVICE_UNAVAILABLE,
            };
            router =
                router.route("/zrank/{member}", axum::routing::get(rank)).route("/zadd", axum::routing::post(join));
        }
        axum::serve(listener, router).await?;
        Ok(())
    })
}

pub(super) fn no_body(_: usize, _: usize) -> String {
    String::new()
}

pub(super) fn fixed_body(_: usize, _: usize) -> String {
    r#"{"user":"somebody-too-late"}"#.into()
}

pub(super) fn fresh_body(connection: usize, number: usize) -> String {
    format!(r#"{{"user":"user-{connection:03}-{number:08}"}}"#)
}

pub(super) fn get(path: &str) -> Shot {
    Shot { method: "GET", aim: Aim::One(path.into()), key: None, pass: None, body: no_body }
}

pub(super) fn claims(coupon: &str, body: fn(usize, usize) -> String) -> Shot {
    let aim = Aim::One(format!("/v1/coupons/{coupon}/claims"));
    Shot { method: "POST", aim, key: Some(KEY.into()), pass: None, body }
}

/// A kind of request, with its required status.
struct Kind {
    name: &'static str,
    status: u16,
    empty_route: bool,
    shot: Shot,
}

fn kinds(round: usize) -> [Kind; 5] {
    let kind = |name, status, shot| Kind { name, status, empty_route: false, shot };
    [
        Kind { empty_route: true, ..kind("HTTP: an empty axum route", 200, get("/empty")) },
        kind("HTTP: /healthz", 200, get("/healthz")),
        kind("HTTP: durable claims", 201, claims(&format!("open-{round}"), fresh_body)),
        kind("HTTP: sold out", 409, claims("gone", fixed_body)),
        kind("HTTP: unknown coupon", 404, claims("nothing", fixed_body)),
    ]
}

/// Measures the kinds of request, and compares them.
pub(crate) fn measure(data: &Path, connections: usize, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new(data, "http")?;
    let directory = scratch.0.to_str().context("the directory's name is not text")?;
    let plain = Service::start(&["empty-route"])?;
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--data", directory, "--coupon", "gone=1"];
    let coupons: Vec<String> = (0..ROUNDS).map(|round| format!("open-{round}=100000000")).collect();
    arguments.extend(coupons.iter().flat_map(|coupon| ["--coupon", coupon]));
    let service = Service::start(&arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (first, _) = runtime.block_on(once(service.address, &claims("gone", fresh_body)))?;
    if first != 201 {
        bail!("the first claim was answered {first}");
    }
    let mut loads: [Vec<Load>; 5] = Default::default();
    for round in 0..ROUNDS {
        for (kind, loads) in kinds(round).iter().zip(&mut loads) {
            let address = if kind.empty_route { plain.address } else { service.address };
            let load = fire(address, &kind.shot, connections, time)?;
            load.expect(kind.name, &[kind.status])?;
            loads.push(load);
        }
    }
    let ratio = |above: usize, below: usize| median_ratio(&loads[above], &loads[below]);
    let [empty, health, durable, sold_out, unknown] = [0, 1, 2, 3, 4];
    report.targets.extend([
        Target::at_least("HTTP: /healthz ÷ empty axum route", ratio(health, empty), 1.0),
        Target::at_least("HTTP: durable claims ÷ /healthz", ratio(durable, health), 0.6),
        Target::at_least("HTTP: sold out ÷ /healthz", ratio(sold_out, health), 0.85),
        Target::at_least("HTTP: sold out ÷ unknown coupon", ratio(sold_out, unknown), 0.9),
    ]);
    for (kind, loads) in kinds(0).iter().zip(loads) {
        report.rows.push(middle_row(kind.name, loads));
    }
    Ok(())
}

/// Returns the median of the ratios within each round.
pub(super) fn median_ratio(above: &[Load], below: &[Load]) -> f64 {
    let pairs = above.iter().zip(below);
    let mut ratios: Vec<f64> = pairs.map(|(above, below)| above.per_second() / below.per_second()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Returns the row of the round with the median rate.
pub(super) fn middle_row(name: &str, mut loads: Vec<Load>) -> ReportRow {
    loads.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    let refused = loads.iter().map(Load::refused).sum();
    let load = loads.swap_remove(loads.len() / 2);
    ReportRow::new(name, load.times.len(), load.elapsed).latencies(&load.times).refused(refused)
}

/// Measures memory per claim and the start of a full store. Users have 16 bytes; every claim has a key.
pub(crate) fn measure_size(data: &Path, count: u32, runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new(data, "size")?;
    let directory = scratch.0.to_str().context("the directory's name is not text")?;
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data", directory];
    let empty = Service::start(&arguments)?;
    let (empty_rss, started) = (empty.rss()?, empty.started);
    drop(empty);
    runtime.block_on(fill(&scratch.0, count))?;
    let full = Service::start(&arguments)?;
    let (full_rss, recovered) = (full.rss()?, full.started);
    drop(full);
    let per_million = full_rss.saturating_sub(empty_rss) as f64 / f64::from(count);
    report.targets.extend([
        Target::at_most("start, ms", started.as_secs_f64() * 1e3, 10.0),
        Target::at_most("RSS per 1 M claims, MB", per_million, 200.0),
        Target::at_most("recovery of 1 M claims, s", recovered.as_secs_f64() * 1e6 / f64::from(count), 0.5),
    ]);
    Ok(())
}

async fn fill(directory: &Path, count: u32) -> anyhow::Result<()> {
    let store = disk(directory)?;
    let coupon = name("full")?;
    put(&store, &coupon, 100_000_000).await?;
    let tasks = 512;
    let fillers = (0..tasks).map(|task| {
        let (store, coupon) = (store.clone(), coupon.clone());
        tokio::spawn(async move {
            for number in (task..count).step_by(tasks as usize) {
                let mut claim = claim_by(&format!("user-{number:011}"))?;
                // Any well-distributed number can be a key.
                let key = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                claim.request = Some(RequestId { key, body: 0 });
                let (claimed, _) = patiently(|| store.claim(&coupon, claim.clone())).await?;
                claimed.map_err(|refused| anyhow!("{}", refused.rejection.code()))?;
            }
            anyhow::Ok(())
        })
    });
    for filler in fillers.collect::<Vec<_>>() {
        filler.await??;
    }
    store.close();
    Ok(())
}
