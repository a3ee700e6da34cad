//! Auctions on the embedded store, in process.

use super::engine::Auction;
use super::hot::{BidderTurns, closed_loop, open_loop};
use super::{AuctionRow, Bench, HALF_LOAD_P99_MS};
use crate::coupons::disk;
use crate::report::Target;
use std::sync::Arc;

const STORE: &str = "embedded";

/// Measures full load and half load. All bids are durable.
pub(super) async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let directory = bench.scratch.join("embedded");
    std::fs::create_dir(&directory)?;
    let store = disk(&directory)?;
    let (bidders, time) = (bench.args.bidders as usize, bench.args.time);
    bench.step(STORE, "combining");
    let auction = Arc::new(Auction::open(store.clone(), "full", bidders).await?);
    let turns = Arc::new(BidderTurns::new(bidders));
    let before = store.stats().batch_changes.count();
    let full = closed_loop(&auction, &turns, bench.args.tasks as usize, time).await?;
    let commits = store.stats().batch_changes.count() - before;
    let row =
        AuctionRow::new(STORE, "combining (ours)", true, &full).judged(&auction.facts(&full).await?).commits(commits);
    bench.rows.push(row);
    bench.step(STORE, "half load");
    let auction = Arc::new(Auction::open(store.clone(), "half", bidders).await?);
    let turns = Arc::new(BidderTurns::new(bidders));
    let before = store.stats().batch_changes.count();
    let half = open_loop(&auction, &turns, full.per_second() / 2.0, time).await?;
    let commits = store.stats().batch_changes.count() - before;
    let row = AuctionRow::new(STORE, "combining, half load", true, &half)
        .judged(&auction.facts(&half).await?)
        .commits(commits);
    let p99_ms = row.p99_us as f64 / 1e3;
    bench.rows.push(row);
    bench.targets.extend([
        Target::at_least("embedded: accepted bids per second, durable", full.per_second(), 40_000.0),
        Target::at_most("embedded: p99 at half load, ms", p99_ms, HALF_LOAD_P99_MS),
    ]);
    store.close();
    Ok(())
}
