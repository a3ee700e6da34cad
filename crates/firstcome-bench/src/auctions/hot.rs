//! One hot auction: all tasks bid, as fast as answers come or at a fixed rate.

use crate::conditions::micros;
use crate::report::{Latencies, latencies};
use firstcome::edge::Stopwatch;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An accepted bid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlacedOnHot {
    /// Its number among the accepted bids, from 1.
    pub(super) number: u32,
    /// The index of the bidder, from 0.
    pub(super) bidder: usize,
    pub(super) price: u64,
}

/// The outcome of a bid.
#[derive(Debug)]
pub(super) enum BidOutcome {
    Accepted(PlacedOnHot),
    /// Refused by a rule.
    Refused,
    /// Failed otherwise: the strategy gave up, or an error occurred.
    Failed {
        may_be_done: bool,
        says: String,
    },
}

/// A strategy to place bids, on one auction.
pub(super) trait Bidding: Send + Sync + 'static {
    fn place(&self, bidder: usize, price: u64) -> impl Future<Output = BidOutcome> + Send;
}

/// The results of a run.
pub(super) struct Run {
    pub(super) elapsed: Duration,
    /// The latencies of all bids that got an answer, a refusal included.
    pub(super) times: Latencies,
    pub(super) accepted: u64,
    /// The accepted bids whose answers were kept.
    pub(super) placed: Vec<PlacedOnHot>,
    pub(super) refused: u64,
    pub(super) failed: u64,
    /// The failed bids that may have been accepted all the same.
    pub(super) may_be_done: u64,
    /// The message of the first failure.
    pub(super) says: Option<String>,
}

impl Run {
    pub(super) fn new() -> Self {
        let (elapsed, times, placed, says) = (Duration::ZERO, latencies(), Vec::new(), None);
        Self { elapsed, times, accepted: 0, placed, refused: 0, failed: 0, may_be_done: 0, says }
    }

    pub(super) fn per_second(&self) -> f64 {
        self.accepted as f64 / self.elapsed.as_secs_f64()
    }

    fn take(&mut self, told: BidOutcome, time: Duration) {
        match told {
            BidOutcome::Failed { may_be_done, says } => {
                self.failed += 1;
                self.may_be_done += u64::from(may_be_done);
                self.says.get_or_insert(says);
                return;
            }
            BidOutcome::Accepted(placed) => {
                self.accepted += 1;
                self.placed.push(placed);
            }
            BidOutcome::Refused => self.refused += 1,
        }
        self.times.saturating_record(micros(time));
    }

    fn add(&mut self, other: Self) -> anyhow::Result<()> {
        self.times.add(other.times)?;
        self.accepted += other.accepted;
        self.placed.extend(other.placed);
        self.refused += other.refused;
        self.failed += other.failed;
        self.may_be_done += other.may_be_done;
        self.says = self.says.take().or(other.says);
        Ok(())
    }
}

/// Chooses the next bidder and price: prices rise in the order of sending, and no bidder outbids itself.
pub(super) struct BidderTurns {
    next: AtomicU64,
    bidders: usize,
}

impl BidderTurns {
    pub(super) const fn new(bidders: usize) -> Self {
        Self { next: AtomicU64::new(0), bidders }
    }

    fn next(&self) -> (usize, u64) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        (turn as usize % self.bidders, turn + 1)
    }
}

/// Runs tasks that bid again after each answer. When the time is over, waits for the bids under way.
pub(super) async fn closed_loop<B: Bidding>(
    way: &Arc<B>,
    turns: &Arc<BidderTurns>,
    tasks: usize,
    time: Duration,
) -> anyhow::Result<Run> {
    let watch = Stopwatch::start();
    let callers = (0..tasks).map(|_| {
        let (way, turns) = (Arc::clone(way), Arc::clone(turns));
        tokio::spawn(async move {
            let mut run = Run::new();
            let mut sent = watch.elapsed();
            while sent < time {
                let (bidder, price) = turns.next();
                let told = way.place(bidder, price).await;
                let answered = watch.elapsed();
                run.take(told, answered.saturating_sub(sent));
                sent = answered;
            }
            run
        })
    });
    let mut all = Run::new();
    for caller in callers.collect::<Vec<_>>() {
        all.add(caller.await?)?;
    }
    all.elapsed = watch.elapsed();
    Ok(all)
}

/// Sends bids at a fixed rate, whether or not earlier ones are answered. Each latency counts from the planned instant.
pub(super) async fn open_loop<B: Bidding>(
    way: &Arc<B>,
    turns: &Arc<BidderTurns>,
    per_second: f64,
    time: Duration,
) -> anyhow::Result<Run> {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let watch = Stopwatch::start();
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let mut sent: u64 = 0;
    while watch.elapsed() < time {
        ticks.tick().await;
        let due = (watch.elapsed().as_secs_f64() * per_second) as u64;
        for number in sent..due {
            let (way, turns, sender) = (Arc::clone(way), Arc::clone(turns), sender.clone());
            let intended = Duration::from_secs_f64(number as f64 / per_second);
            tokio::spawn(async move {
                let (bidder, price) = turns.next();
                let told = way.place(bidder, price).await;
                // The receiver lives until every sender is gone.
                let _ = sender.send((told, watch.elapsed().saturating_sub(intended)));
            });
        }
        sent = due;
    }
    drop(sender);
    let mut all = Run::new();
    while let Some((told, time)) = receiver.recv().await {
        all.take(told, time);
    }
    all.elapsed = watch.elapsed();
    Ok(all)
}
