//! Bids over HTTP, beside `/healthz` of the same service.

use super::engine::Auction;
use super::hot::Run;
use super::{AuctionRow, Bench};
use crate::coupons::disk;
use crate::http::{KEY, ROUNDS, Service, no_body};
use crate::load::{Aim, Load, Shot, fire};
use crate::report::Target;
use anyhow::{Context, bail};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LISTING: &str = "http";
/// Enough bidders that none outbids itself, with all connections.
const BIDDERS: usize = 2_048;

/// The number of connections, each with one request under way: enough to fill commits of some hundred bids.
const CONNECTIONS: usize = 256;

/// The next price, which also selects the bidder. One thread sends all requests, so prices rise in the order of
/// sending. A bid that the service judges after a later one is refused. One counter is enough, since there is one
/// auction.
static NEXT: AtomicU64 = AtomicU64::new(0);

fn bid(_: usize, _: usize) -> String {
    let turn = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(r#"{{"bidder":"{LISTING}-{:05}","price":{}}}"#, turn as usize % BIDDERS, turn + 1)
}

/// Measures rounds of both kinds in turn, so that the machine's drift affects both.
pub(super) async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let directory = bench.scratch.join("http");
    std::fs::create_dir(&directory)?;
    // Creates the auction before the service starts.
    let store = disk(&directory)?;
    Auction::open(store.clone(), LISTING, BIDDERS).await?;
    store.close();
    drop(store);
    let path = directory.to_str().context("the directory's name is not text")?.to_owned();
    let time = bench.args.time;
    bench.step("HTTP", "bids and /healthz");
    let [health, bids] = tokio::task::spawn_blocking(move || rounds(&path, time)).await??;
    let pairs = bids.iter().zip(&health);
    let mut ratios: Vec<f64> = pairs.map(|(bids, health)| accepted_per_second(bids) / health.per_second()).collect();
    ratios.sort_by(f64::total_cmp);
    bench.targets.push(Target::at_least("HTTP: accepted bids ÷ /healthz", ratios[ratios.len() / 2], 0.4));
    let (health, bids) = (together(&health)?, together(&bids)?);
    // The service has ended: audits the store that it has left.
    let auction = Auction::at(disk(&directory)?, LISTING, BIDDERS)?;
    let row = AuctionRow::new("HTTP", "combining (ours)", true, &bids).judged(&auction.facts(&bids).await?);
    auction.store.close();
    bench.rows.extend([row, AuctionRow::new("HTTP", "/healthz, beside it", false, &health)]);
    Ok(())
}

fn rounds(directory: &str, time: Duration) -> anyhow::Result<[Vec<Load>; 2]> {
    let service = Service::start(&["serve", "--listen", "127.0.0.1:0", "--data", directory])?;
    let healthz = Shot { method: "GET", aim: Aim::One("/healthz".into()), key: None, pass: None, body: no_body };
    let aim = Aim::One(format!("/v1/listings/{LISTING}/bids"));
    let bids = Shot { method: "POST", aim, key: Some(KEY.into()), pass: None, body: bid };
    let mut loads = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let health = fire(service.address, &healthz, CONNECTIONS, time)?;
        let bids = fire(service.address, &bids, CONNECTIONS, time)?;
        for (load, fine) in [(&health, &[200][..]), (&bids, &[201, 409])] {
            if load.statuses.keys().any(|status| !fine.contains(status)) {
                bail!("answers over HTTP: {:?}", load.statuses);
            }
        }
        loads[0].push(health);
        loads[1].push(bids);
    }
    Ok(loads)
}

fn count(load: &Load, status: u16) -> u64 {
    load.statuses.get(&status).copied().unwrap_or(0)
}

fn accepted_per_second(load: &Load) -> f64 {
    count(load, 201) as f64 / load.elapsed.as_secs_f64()
}

/// Combines all rounds to one run.
fn together(loads: &[Load]) -> anyhow::Result<Run> {
    let mut run = Run::new();
    for load in loads {
        run.elapsed += load.elapsed;
        run.times.add(&load.times)?;
        run.accepted += count(load, 200) + count(load, 201);
        run.refused += count(load, 409);
    }
    Ok(run)
}
