//! One run: the real store on a simulated disk, members polled by hand, everything in one thread.
//!
//! While faults are on, only safety is asked for. Then the disk heals, everybody repeats what is unclear, time passes
//! all ends, and every auction must come to one.

use super::history::{AuctionReply, Command, History, OperationId, Outcome};
use super::journal::{Call, SharedDisk, Stored, Visitor};
use super::recovery;
use super::workload::{Action, Plan, Workload, pause_us};
use crate::invariants::{self, AuctionEvidence, Violation};
use crate::report::Report;
use crate::rng::Rng;
use crate::workload::START_US;
use firstcome_core::auction::{Phase, Terms};
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::edge::{Clock, ManualClock, draw_hasher};
use firstcome_store::embedded::{Backing, Embedded, Stepper};
use firstcome_store::{AuctionStore, Durability, Purchase, StoreError};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Runtime;

/// Batches in which everybody who asked must be answered.
const SETTLE_BATCHES_MAX: usize = 10_000;
/// After so long every auction that was put is over, late bids included.
const ALL_OVER_MS: u64 = 60_000;
/// After so long no client that has won has time to settle.
const SETTLED_MS: u64 = 60_001;
const HOUR_US: i64 = 3_600_000_000;
/// So far at most an operator sets the wall clock ahead of steady time. For so long keys of movements may be remembered beyond
/// their time.
pub(crate) const WALL_AHEAD_MS_MAX: u64 = 20 * 3_600_000;
/// A day longer than keys of movements are remembered.
const KEYS_OVER_MS: u64 = 31 * 86_400_000;

struct AuctionStoreRun {
    store: Embedded,
    stepper: Stepper,
}

/// Everything that a seed brings into being.
pub struct World {
    seed: u64,
    rng: Rng,
    plan: Plan,
    workload: Workload,
    clock: Arc<ManualClock>,
    disk: SharedDisk,
    life: AuctionStoreRun,
    runtime: Arc<Runtime>,
    pending: Vec<(OperationId, Call)>,
    history: History,
    report: Report,
}

impl World {
    /// The world of a seed, with an empty disk.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let plan = Plan::draw(&mut rng);
        let workload = Workload::draw(&mut rng);
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(START_US)));
        let (history, report) = (History::default(), Report::default());
        let disk = SharedDisk::new(rng.fork(), plan.commit_fault_per_mille, Arc::clone(&clock), history.events());
        let life = match start(&disk, &clock) {
            Ok(life) => life,
            Err(damage) => panic!("an empty disk is refused: {damage}"),
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().build() {
            Ok(runtime) => Arc::new(runtime),
            Err(error) => panic!("no runtime for reads: {error}"),
        };
        Self { seed, rng, plan, workload, clock, disk, life, runtime, pending: Vec::new(), history, report }
    }

    /// Plays the whole run.
    pub fn run(&mut self) -> Result<Report, Violation> {
        for command in self.workload.opening(&mut self.rng, &self.plan, self.clock.now()) {
            self.ask(command);
        }
        for _ in 0..self.plan.actions {
            self.act()?;
        }
        self.heal()?;
        Ok(std::mem::take(&mut self.report))
    }

    fn act(&mut self) -> Result<(), Violation> {
        match self.plan.action(&mut self.rng) {
            Action::Ask => {
                let command = self.workload.ask(&mut self.rng, &self.plan, self.clock.now());
                self.ask(command);
            }
            Action::Crowd => {
                let crowd = self.workload.crowd(&mut self.rng, &self.plan);
                crowd.into_iter().for_each(|command| self.ask(command));
            }
            Action::Snipe => self.snipe()?,
            Action::Step => self.step()?,
            Action::Deliver => self.deliver(700),
            Action::GoAway => self.go_away(),
            Action::Wait => {
                let pause_us = pause_us(&mut self.rng);
                self.clock.set(Timestamp::clamped_us(self.clock.now().as_us() + pause_us as i64));
            }
            Action::SetClock => {
                if self.rng.chance(300) {
                    self.set_clock();
                }
            }
            Action::Tick => self.ask(Command::CloseDue),
            Action::Crash => {
                self.report.count("auctions fault", "crash between batches");
                self.restart()?;
            }
            Action::Restart => self.close_and_restart()?,
        }
        // A store that failed is asked for a while longer before a client starts it again.
        if self.life.store.fault().is_some() && self.rng.chance(150) { self.restart() } else { Ok(()) }
    }

    /// An operator sets the wall clock forward by an hour, or a month passes, after which keys of movements are forgotten.
    fn set_clock(&mut self) {
        let Now { wall, steady } = self.clock.both();
        let ahead_us = wall.as_us() - steady.as_us();
        if self.rng.chance(500) {
            self.clock.pass_ms(KEYS_OVER_MS);
            self.report.count("auctions fault", "a month");
        } else if ahead_us + HOUR_US <= WALL_AHEAD_MS_MAX as i64 * 1_000 {
            self.clock.step_forward_ms(HOUR_US as u64 / 1_000);
            self.report.count("auctions fault", "clock set forward");
        }
    }

    /// Everybody who waits is served first, so that those who come at the instant are judged at it.
    fn snipe(&mut self) -> Result<(), Violation> {
        let Some((instant, commands)) = self.workload.snipe(&mut self.rng, &self.plan, self.clock.now()) else {
            return Ok(());
        };
        self.report.count("auctions fault", "asked at an instant that matters");
        self.clock.set(instant);
        commands.into_iter().for_each(|command| self.ask(command));
        if self.rng.chance(300) {
            self.ask(Command::CloseDue);
        }
        self.step()
    }

    /// A client asks: the request is polled once, which either answers it or puts it in the queue.
    fn ask(&mut self, command: Command) {
        if self.life.store.fault().is_some() {
            self.report.count("auctions fault", "asked a store that failed");
        }
        let call = call(&self.life.store, &self.runtime, command.clone());
        let id = self.history.ask(command, self.clock.now());
        self.poll(id, call);
    }

    fn poll(&mut self, id: OperationId, mut call: Call) {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.pending.push((id, call)),
            Poll::Ready(answer) => self.answer(id, answer),
        }
    }

    fn answer(&mut self, id: OperationId, answer: Result<AuctionReply, StoreError>) {
        let lost = self.rng.chance(self.plan.lost_answer_per_mille);
        let outcome = match answer {
            _ if lost => Outcome::Unknown,
            Ok(told) => Outcome::Told(told),
            Err(StoreError::Unavailable(_) | StoreError::Overloaded { .. }) => Outcome::NotDone,
            Err(_) => Outcome::Unknown,
        };
        if lost {
            self.report.count("auctions fault", "answer lost");
        }
        self.end(id, outcome);
    }

    fn end(&mut self, id: OperationId, outcome: Outcome) {
        self.history.answer(id, outcome, self.clock.now());
        let operation = &self.history.operations()[id];
        let how = match &operation.outcome {
            Outcome::Told(told) => told.kind(),
            Outcome::NotDone => "not done",
            Outcome::Unknown | Outcome::Pending => "unknown",
        };
        self.report.count(operation.command.kind(), how);
        self.report.trace(id as u64);
        self.report.trace(self.clock.now().as_us() as u64);
        self.workload.learn(operation);
    }

    /// The writer runs one batch; now and then a client comes in the middle of its commit.
    fn step(&mut self) -> Result<(), Violation> {
        if self.rng.chance(300) {
            for _ in 0..self.rng.range(1, 4) {
                let command = self.workload.visit(&mut self.rng, &self.plan, self.clock.now());
                let call = call(&self.life.store, &self.runtime, command.clone());
                let operation = self.history.ask(command, self.clock.now());
                let comes_late = self.rng.chance(500);
                let visitor = Visitor { operation, call, comes_late, answer: None, begun: false };
                self.disk.lock().visitors.push(visitor);
            }
        }
        let batch = self.rng.range(1, self.plan.batch_max) as usize;
        self.life.stepper.step(batch);
        let (visitors, crashed) = {
            let mut disk = self.disk.lock();
            (std::mem::take(&mut disk.visitors), disk.crashed)
        };
        self.count_commits();
        for visitor in visitors {
            match visitor.answer {
                Some(answer) => {
                    self.report.count("auctions fault", "answered in the middle of a commit");
                    self.answer(visitor.operation, answer);
                }
                None if visitor.begun => self.pending.push((visitor.operation, visitor.call)),
                None if crashed => {}
                None => self.poll(visitor.operation, visitor.call),
            }
        }
        if crashed { self.restart() } else { Ok(()) }
    }

    fn count_commits(&mut self) {
        for how in std::mem::take(&mut self.disk.lock().commits) {
            self.report.count("auctions commit", how);
        }
    }

    fn deliver(&mut self, per_mille: u64) {
        for (id, call) in std::mem::take(&mut self.pending) {
            if self.rng.chance(per_mille) {
                self.poll(id, call);
            } else {
                self.pending.push((id, call));
            }
        }
    }

    fn go_away(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let (id, call) = self.pending.swap_remove(self.rng.index(self.pending.len()));
        drop(call);
        self.report.count("auctions fault", "caller went away");
        self.end(id, Outcome::Unknown);
    }

    fn close_and_restart(&mut self) -> Result<(), Violation> {
        self.report.count("auctions fault", "restart in order");
        self.life.store.close();
        // Who comes now is sent away; who waits is served.
        for _ in 0..self.rng.below(3) {
            let command = self.workload.ask(&mut self.rng, &self.plan, self.clock.now());
            self.ask(command);
        }
        while !self.disk.lock().crashed && 0 < self.life.stepper.step(64) {}
        if !self.disk.lock().crashed {
            self.deliver(900);
        }
        self.restart()
    }

    /// The process is gone with all that was not on disk. What members know is held against what survived.
    fn restart(&mut self) -> Result<(), Violation> {
        for (id, call) in std::mem::take(&mut self.pending) {
            drop(call);
            self.end(id, Outcome::Unknown);
        }
        self.disk.lock().reopen();
        self.history.end_life(self.clock.now());
        self.count_commits();
        self.check()?;
        let damaged = |detail| Violation::new("recovery", self.seed, detail);
        self.life = start(&self.disk, &self.clock).map_err(damaged)?;
        Ok(())
    }

    /// Faults end, everybody repeats, and every auction comes to an end at which nothing is held any more.
    fn heal(&mut self) -> Result<(), Violation> {
        self.plan.lost_answer_per_mille = 0;
        self.disk.lock().fault_per_mille = 0;
        self.restart()?;
        self.workload.unclear().into_iter().for_each(|command| self.ask(command));
        self.settle()?;
        self.clock.pass_ms(ALL_OVER_MS);
        self.ask(Command::CloseDue);
        self.settle()?;
        let stored = self.disk.lock().stored.clone();
        for row in stored.listings.values() {
            let won = row.standing.highest.clone().filter(|_| matches!(row.standing.phase, Phase::Ended(_)));
            if let Some(bid) = won.filter(|_| self.may_settle(&row.standing.terms)) {
                let purchase = Purchase { buyer: bid.bidder, request: None };
                self.ask(Command::Purchase(row.standing.name.clone(), purchase));
            }
        }
        self.settle()?;
        self.clock.pass_ms(SETTLED_MS);
        self.ask(Command::CloseDue);
        self.settle()?;
        self.look_around();
        self.settle()?;
        self.restart()?;
        self.all_is_over()
    }

    /// A client that has for ever settles in the end; of the others some do not.
    fn may_settle(&mut self, terms: &Terms) -> bool {
        let for_ever = matches!(terms, Terms::Auction(terms) if terms.settle_within_ms.is_none());
        for_ever || self.rng.chance(500)
    }

    fn look_around(&mut self) {
        for name in self.workload.listings().to_vec() {
            self.ask(Command::View(name.clone()));
            self.ask(Command::Bids(name, None, usize::MAX));
        }
        for member in self.workload.members().to_vec() {
            self.ask(Command::Balance(member.clone()));
            self.ask(Command::Records(member, None, usize::MAX));
        }
    }

    fn all_is_over(&mut self) -> Result<(), Violation> {
        let disk = self.disk.lock();
        for row in disk.stored.listings.values() {
            let how = match (&row.standing.phase, row.standing.terms) {
                (Phase::Sold(_), Terms::Auction(_)) => "sold to the winner",
                (Phase::Sold(_), Terms::FixedPrice) => "sold at its price",
                (Phase::Unsold(_), _) if row.standing.highest.is_some() => "not settled",
                (Phase::Unsold(_), _) => "unsold",
                (_, Terms::FixedPrice) => "still for sale",
                (_, Terms::Auction(_)) => {
                    let detail = format!("{} did not come to an end: {:?}", row.standing.name, row.standing);
                    return Err(Violation::new("liveness", self.seed, detail));
                }
            };
            self.report.count("auctions heal", how);
        }
        match disk.stored.members.values().find(|wallet| wallet.balance.held() != 0) {
            Some(wallet) => {
                let detail = format!("points of {} are held when all auctions are over", wallet.member);
                Err(Violation::new("liveness", self.seed, detail))
            }
            None => Ok(()),
        }
    }

    /// Runs the store until everybody has an answer.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..SETTLE_BATCHES_MAX {
            if self.pending.is_empty() {
                return Ok(());
            }
            self.life.stepper.step(self.plan.batch_max as usize);
            self.deliver(1_000);
        }
        let detail = format!("{} requests have no answer on a healthy disk", self.pending.len());
        Err(Violation::new("liveness", self.seed, detail))
    }

    /// Asks all invariants.
    pub fn check(&self) -> Result<(), Violation> {
        let disk = self.disk.lock();
        invariants::check_auctions(&AuctionEvidence { seed: self.seed, history: &self.history, log: &disk.log })
    }
}

/// A store over what is on disk. What comes back is asked whether it is what was stored, and so is what the store shows.
fn start(disk: &SharedDisk, clock: &Arc<ManualClock>) -> Result<AuctionStoreRun, String> {
    let stored: Stored = disk.lock().stored.clone();
    // As the store does it: keys are forgotten once both clocks say so.
    let Now { wall, steady } = clock.both();
    let now = Timestamp::clamped_us(wall.as_us().min(steady.as_us()));
    let first = recovery::written_again(&recovery::recover(&stored, now)?, &stored);
    if let Some(difference) = recovery::difference(&stored, &first) {
        return Err(difference);
    }
    let auctions = recovery::recover(&first, now)?;
    if let Some(difference) = recovery::difference(&first, &recovery::written_again(&auctions, &first)) {
        return Err(difference);
    }
    let backing = Backing {
        journal: Box::new(disk.clone()),
        rows: Arc::new(disk.clone()),
        durability: Durability::Disk,
        auctions,
        // Its seed decides where entries lie, never what is answered.
        hasher: draw_hasher(),
        ..Backing::memory()
    };
    let (store, stepper) = Embedded::stepped(backing, Arc::clone(clock) as Arc<dyn Clock>);
    let counts = (stored.listings.len(), stored.members.len());
    if store.auction_counts() != counts {
        return Err(format!("(listings, members) {counts:?} became {:?}", store.auction_counts()));
    }
    Ok(AuctionStoreRun { store, stepper })
}

/// One request to the store, as a client of its port makes it.
fn call(store: &Embedded, runtime: &Arc<Runtime>, command: Command) -> Call {
    let (store, runtime) = (store.clone(), Arc::clone(runtime));
    Box::pin(async move {
        let told = match command {
            Command::Put(listing, settings) => store.put_listing(&listing, *settings).await?.map(AuctionReply::Put),
            Command::View(listing) => store.listing(&listing).await?.map(|view| AuctionReply::View(Box::new(view))),
            // A read of rows goes to a thread of its own. The world stands still until it is back.
            Command::Bids(listing, after, count) => {
                runtime.block_on(store.bids(&listing, after, count))?.map(AuctionReply::Bids)
            }
            Command::Bid(listing, bid) => store.place_bid(&listing, bid).await?.map(AuctionReply::Placed),
            Command::Purchase(listing, purchase) => store.purchase(&listing, purchase).await?.map(AuctionReply::Bought),
            Command::Move(member, movement) => store.move_points(&member, movement).await?.map(AuctionReply::Moved),
            Command::Balance(member) => Ok(AuctionReply::Balance(store.balance(&member).await?)),
            Command::Records(member, after, count) => {
                Ok(AuctionReply::Records(runtime.block_on(store.records(&member, after, count))?))
            }
            Command::CloseDue => Ok(store.close_due().await.map(|()| AuctionReply::Closed)?),
        };
        Ok(told.unwrap_or_else(AuctionReply::Refused))
    })
}
