//! Turns the answers into the facts of the report: figures, series, latencies.

use super::Setting;
use super::event::Played;
use super::plan::HOT;
use super::record::{DrillReply, History, RequestKind};
use crate::drill::audit;
use crate::drill::facts::{AuctionFacts, Facts, Kill, Series};
use crate::drill::outcome::{latency, levels, rates};
use crate::drill::sampler::STEP_MS;
use crate::drill::server::highest_rss;
use crate::output::grouped;
use firstcome::Check;
use std::collections::BTreeMap;

/// The most points of a series.
const POINTS_MAX: u64 = 600;

pub(super) fn facts(setting: &Setting, played: &Played, stored: Vec<Check>) -> Facts {
    let history = &played.bidders.history;
    let mut checks = audit::auction::all(history);
    if !stored.is_empty() {
        checks.push(audit::stored(stored));
    }
    let seconds = played.took_us as f64 / 1e6;
    let auctions = auctions(played);
    let kill = |restart: &crate::drill::record::Restart| Kill {
        target: restart.target.name(),
        loses: restart.loses,
        at_s: restart.killed_us as f64 / 1e6,
        in_flight: restart.in_flight,
        down_ms: (restart.ready_us - restart.killed_us) / 1_000,
    };
    let named = RequestKind::ALL.iter().zip(&played.bidders.latencies);
    Facts {
        event: "auction",
        started_at: played.started_at.clone(),
        seconds,
        people: u64::from(setting.size.people),
        stock: u64::from(setting.size.stock),
        issued: auctions.sales,
        conditions: conditions(setting, history.reading_us),
        figures: figures(played, seconds),
        outcomes: outcomes(history),
        checks,
        kills: history.restarts.iter().map(kill).collect(),
        latencies: named.filter_map(|(what, times)| latency(what.name(), times)).collect(),
        series: series(played),
        sample_people: Vec::new(),
        auctions: Some(auctions),
    }
}

fn conditions(setting: &Setting, reading_us: i64) -> Vec<(String, String)> {
    let mut rows = vec![
        ("seed", setting.size.seed.to_string()),
        ("connections", setting.connections.to_string()),
        ("charged by", format!("{:.1} s", setting.opens_us() as f64 / 1e6)),
        ("kills planned", setting.kills.to_string()),
        ("clocks differ by", format!("{:.1} ms at most", reading_us as f64 / 1e3)),
        ("store", setting.store.clone()),
        ("processors", std::thread::available_parallelism().map_or(1, usize::from).to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    if cfg!(debug_assertions) {
        rows.push(("build", "debug".to_owned()));
    }
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn figures(played: &Played, seconds: f64) -> Vec<(String, String)> {
    let history = &played.bidders.history;
    let told = |told: fn(DrillReply) -> bool| {
        grouped(history.on_reply.iter().filter(|on_reply| told(on_reply.told)).count() as u64)
    };
    let hot = history.bids.get(HOT as usize);
    let auctions = history.listings.iter().filter(|listing| listing.terms.is_some()).count();
    let sent = bids_sent(history);
    let mut rows = vec![
        ("auctions", grouped(auctions as u64)),
        ("bids sent", grouped(sent)),
        ("bids sent per second", grouped((sent as f64 / seconds) as u64)),
        ("answers", grouped(played.bidders.answers)),
        ("answers per second", grouped((played.bidders.answers as f64 / seconds) as u64)),
        ("bids of the hot auction", grouped(hot.map_or(0, Vec::len) as u64)),
        ("records of points", grouped(history.records.iter().map(Vec::len).sum::<usize>() as u64)),
        ("slowest send of the drill itself", format!("{} ms", played.latest_us / 1_000)),
        ("answers cut off by a kill", told(|told| told == DrillReply::Lost)),
        ("told a key was reused", told(|told| told == DrillReply::KeyReused)),
    ];
    if 0 < played.rss_max {
        rows.push(("server memory, highest", format!("{} MB", played.rss_max / 1_000_000)));
    }
    if let Some(bytes) = highest_rss() {
        rows.push(("drill memory, highest", format!("{} MB", bytes / 1_000_000)));
    }
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Counts the bids that were sent, each once, without its repeats.
fn bids_sent(history: &History) -> u64 {
    let mut orders: Vec<u32> = history.on_reply.iter().map(|on_reply| on_reply.order).collect();
    orders.sort_unstable();
    orders.dedup();
    orders.iter().filter(|order| history.orders[**order as usize].what == RequestKind::Bid).count() as u64
}

/// Counts the outcomes of the orders, by call. The last answer to an order counts.
fn outcomes(history: &History) -> Vec<(String, u64)> {
    const WORDS: [&str; 14] = [
        "done",
        "accepted",
        "bought",
        "own listing",
        "not in progress",
        "already the highest bidder",
        "too low",
        "not enough points",
        "auction not ended",
        "not the winner",
        "already sold",
        "settled too late",
        "key of another request",
        "outcome unknown",
    ];
    let mut counts: BTreeMap<(RequestKind, usize), u64> = BTreeMap::new();
    for on_reply in history.by_order().values() {
        let Some(last) = on_reply.iter().rev().find(|on_reply| !on_reply.told.is_undecided()).or(on_reply.last())
        else {
            continue;
        };
        let word = match last.told {
            DrillReply::Moved { .. } => 0,
            DrillReply::Placed(_) => 1,
            DrillReply::Sold(_) => 2,
            DrillReply::OwnListing => 3,
            DrillReply::NotInProgress => 4,
            DrillReply::AlreadyHighest => 5,
            DrillReply::TooLow(_) => 6,
            DrillReply::Insufficient(_) => 7,
            DrillReply::NotEnded(_) => 8,
            DrillReply::NotWinner => 9,
            DrillReply::AlreadySold(_) => 10,
            DrillReply::SettlementExpired(_) => 11,
            DrillReply::KeyReused => 12,
            DrillReply::Lost | DrillReply::Undecided | DrillReply::Unexpected => 13,
        };
        *counts.entry((history.order(last).what, word)).or_default() += 1;
    }
    counts.into_iter().map(|((what, word), count)| (format!("{}: {}", what.name(), WORDS[word]), count)).collect()
}

/// Returns the length of a step of the series, and the number of steps.
fn steps(played: &Played) -> (u64, usize) {
    let step_us = STEP_MS * 1_000 * (played.took_us / (STEP_MS * 1_000)).div_ceil(POINTS_MAX).max(1);
    (step_us, (played.took_us / step_us + 1) as usize)
}

fn series(played: &Played) -> Series {
    let (step_us, steps) = steps(played);
    let on_reply = &played.bidders.history.on_reply;
    let answered = on_reply
        .iter()
        .filter(|on_reply| on_reply.told != DrillReply::Lost)
        .map(|on_reply| on_reply.received_us.cast_unsigned());
    Series { step_s: step_us as f64 / 1e6, requests_per_s: rates(answered, steps, step_us), ..Series::default() }
}

fn auctions(played: &Played) -> AuctionFacts {
    let history = &played.bidders.history;
    let (step_us, steps) = steps(played);
    let unsigned = |at_us: i64| u64::try_from(at_us).unwrap_or(0);
    let accepted = history.bids.iter().flatten().map(|bid| unsigned(bid.at_us));
    let refused = history.on_reply.iter().filter(|on_reply| history.order(on_reply).what == RequestKind::Bid);
    let refused = refused.filter(|on_reply| !on_reply.told.is_effect() && !on_reply.told.is_undecided());
    let mut sold_us: Vec<u64> = history.last.iter().filter_map(|look| Some(unsigned(look.sale?.at_us))).collect();
    sold_us.sort_unstable();
    let sold: Vec<(u64, f64)> = sold_us.iter().zip(1..).map(|(&at_us, count)| (at_us, f64::from(count))).collect();
    let mut held: Vec<(u64, i64)> = history
        .records
        .iter()
        .flatten()
        .map(|record| (unsigned(record.at_us), record.total_delta - record.available_delta))
        .collect();
    held.sort_unstable();
    let mut sum = 0_i64;
    let held: Vec<(u64, f64)> = held
        .into_iter()
        .map(|(at_us, by)| {
            sum += by;
            (at_us, sum as f64)
        })
        .collect();
    let hot = history.bids.get(HOT as usize).map_or(&[][..], Vec::as_slice);
    let last = history.last.get(HOT as usize);
    AuctionFacts {
        bids: history.bids.iter().map(|bids| bids.len() as u64).sum(),
        sales: sold_us.len() as u64,
        accepted_per_s: rates(accepted, steps, step_us),
        refused_per_s: rates(refused.map(|on_reply| unsigned(on_reply.received_us)), steps, step_us),
        sold: levels(&sold, steps, step_us),
        held: levels(&held, steps, step_us),
        hot_prices: hot.iter().map(|bid| (bid.at_us as f64 / 1e6, bid.price as f64)).collect(),
        hot_ends_s: last.and_then(|look| Some(look.ends_us? as f64 / 1e6)),
    }
}
