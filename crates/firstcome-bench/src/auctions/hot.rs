//! One hot auction: everybody bids, as fast as answers come or at a fixed rate.

use crate::conditions::micros;
use crate::report::{Latencies, latencies};
use firstcome::edge::Stopwatch;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One bid that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlacedOnHot {
    /// Its place among the accepted bids, from 1.
    pub(super) number: u32,
    /// Whose, as a number from 0.
    pub(super) bidder: usize,
    pub(super) price: u64,
}

/// What came of a bid.
#[derive(Debug)]
pub(super) enum BidOutcome {
    Accepted(PlacedOnHot),
    /// By a rule.
    Refused,
    /// By no rule: the way gave up, or broke.
    Failed {
        may_be_done: bool,
        says: String,
    },
}

/// One way to place bids, on one auction.
pub(super) trait Bidding: Send + Sync + 'static {
    fn place(&self, bidder: usize, price: u64) -> impl Future<Output = BidOutcome> + Send;
}

/// What everybody together found.
pub(super) struct Run {
    pub(super) elapsed: Duration,
    /// Of all bids that got an answer, a refusal included.
    pub(super) times: Latencies,
    pub(super) accepted: u64,
    /// Those of them whose answers were kept.
    pub(super) placed: Vec<PlacedOnHot>,
    pub(super) refused: u64,
    pub(super) failed: u64,
    /// Of these, those that may have been accepted all the same.
    pub(super) may_be_done: u64,
    /// What the first of them said.
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

/// Who bids next, and how much: prices rise in the order in which bids are sent, and no task outbids himself.
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

/// Every caller bids again as soon as it is answered. A task that waits when the time is over is waited for.
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

/// Bids arrive at a fixed rate, no matter what became of those before; each is timed from when it should have been sent.
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
