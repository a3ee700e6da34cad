//! One run: the real store on a simulated disk, clients polled by hand, everything in one thread.
//!
//! Two phases. While faults are on, only safety is asked for. Then the disk heals, everybody repeats what is unclear,
//! and exactness is demanded: see [`crate::invariants::no_oversell`].

use crate::history::{Command, CouponReply, History, OperationId, Outcome};
use crate::invariants::{self, Evidence, Violation};
use crate::journal::{Call, Disk, SharedDisk, Visitor};
use crate::recovery;
use crate::report::Report;
use crate::rng::Rng;
use crate::workload::{Action, Plan, START_US, Workload, pause_us, settings};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{CouponName, UserId};
use firstcome_core::time::Timestamp;
use firstcome_store::edge::{Clock, ManualClock, draw_hasher};
use firstcome_store::embedded::{Backing, Embedded, Stepper};
use firstcome_store::{CouponStore, Durability, Refused, StoreError};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Runtime;

/// Batches that may be needed to answer everybody after the heal.
const HEAL_BATCHES_MAX: usize = 10_000;

/// One store from its start to its end.
struct StoreRun {
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
    life: StoreRun,
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
        let disk = SharedDisk::new(Disk::new(rng.fork(), plan.commit_fault_per_mille));
        let life = start(&disk, &clock, Vec::new());
        let runtime = match tokio::runtime::Builder::new_current_thread().build() {
            Ok(runtime) => Arc::new(runtime),
            Err(error) => panic!("no runtime for reads: {error}"),
        };
        let (history, report) = (History::default(), Report::default());
        Self { seed, rng, plan, workload, clock, disk, life, runtime, pending: Vec::new(), history, report }
    }

    /// Plays the whole run.
    pub fn run(mut self) -> Result<Report, Violation> {
        for coupon in self.workload.coupons().to_vec() {
            let settings = settings(&mut self.rng);
            self.ask(coupon, Command::Put(settings));
        }
        for _ in 0..self.plan.actions {
            self.act()?;
        }
        self.heal()?;
        Ok(self.report)
    }

    fn act(&mut self) -> Result<(), Violation> {
        match self.plan.action(&mut self.rng) {
            Action::Ask => {
                let (coupon, command) = self.workload.ask(&mut self.rng, &self.plan);
                self.ask(coupon, command);
            }
            Action::Step => self.step()?,
            Action::Deliver => self.deliver(700),
            Action::GoAway => self.go_away(),
            Action::Wait => {
                let now_us = self.clock.now().as_us() + pause_us(&mut self.rng);
                self.clock.set(Timestamp::clamped_us(now_us));
            }
            Action::Crash => {
                self.report.count("fault", "crash between batches");
                self.restart()?;
            }
            Action::Restart => self.close_and_restart()?,
        }
        // A store that failed is asked for a while longer before a client starts it again.
        if self.life.store.fault().is_some() && self.rng.chance(150) { self.restart() } else { Ok(()) }
    }

    /// A client asks: its request is polled once, which either answers it or puts it in the queue.
    fn ask(&mut self, coupon: CouponName, command: Command) {
        if self.life.store.fault().is_some() {
            self.report.count("fault", "asked a store that failed");
        }
        let call = call(&self.life.store, &self.runtime, coupon.clone(), command.clone());
        let id = self.history.invoke(coupon, command, self.clock.now());
        self.poll(id, call);
    }

    fn poll(&mut self, id: OperationId, mut call: Call) {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.pending.push((id, call)),
            Poll::Ready(answer) => {
                let durable = self.disk.lock().durable(&self.history.operations()[id].coupon);
                self.answer(id, answer, durable);
            }
        }
    }

    fn answer(&mut self, id: OperationId, answer: Result<CouponReply, StoreError>, durable: u32) {
        let lost = self.rng.chance(self.plan.lost_answer_per_mille);
        let outcome = match answer {
            _ if lost => Outcome::Unknown,
            Ok(told) => Outcome::Told(told),
            Err(StoreError::Unavailable(_) | StoreError::Overloaded { .. }) => Outcome::NotDone,
            Err(_) => Outcome::Unknown,
        };
        if lost {
            self.report.count("fault", "answer lost");
        }
        self.end(id, outcome, durable);
    }

    fn end(&mut self, id: OperationId, outcome: Outcome, durable: u32) {
        self.history.answer(id, outcome, durable, self.clock.now());
        let operation = &self.history.operations()[id];
        let how = match &operation.outcome {
            Outcome::Told(told) => told.kind(),
            Outcome::NotDone => "not done",
            Outcome::Unknown | Outcome::Pending => "unknown",
        };
        self.report.count(operation.command.kind(), how);
        self.report.trace(id as u64);
        self.report.trace(u64::from(operation.claims_implied()));
        self.report.trace(self.clock.now().as_us() as u64);
        self.workload.learn(operation);
    }

    /// The writer runs one batch; now and then a client comes in the middle of its commit.
    fn step(&mut self) -> Result<(), Violation> {
        if self.rng.chance(300) {
            for _ in 0..self.rng.range(1, 3) {
                let (coupon, command) = self.workload.visit(&mut self.rng, &self.plan);
                let call = call(&self.life.store, &self.runtime, coupon.clone(), command.clone());
                let operation = self.history.invoke(coupon.clone(), command, self.clock.now());
                self.disk.lock().visitors.push(Visitor { operation, coupon, call, answer: None, begun: false });
            }
        }
        let batch = self.rng.range(1, self.plan.batch_max) as usize;
        self.life.stepper.step(batch);
        let (commits, visitors, crashed) = {
            let mut disk = self.disk.lock();
            (std::mem::take(&mut disk.commits), std::mem::take(&mut disk.visitors), disk.crashed)
        };
        for fault in commits {
            self.report.count("commit", fault.name());
        }
        for visitor in visitors {
            match visitor.answer {
                Some((answer, durable)) => {
                    self.report.count("fault", "answered in the middle of a commit");
                    self.answer(visitor.operation, answer, durable);
                }
                None if visitor.begun => self.pending.push((visitor.operation, visitor.call)),
                None if crashed => {}
                None => self.poll(visitor.operation, visitor.call),
            }
        }
        if crashed { self.restart() } else { Ok(()) }
    }

    /// Each client with a request under way looks for its answer, with this chance per thousand.
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
        self.report.count("fault", "caller went away");
        self.end(id, Outcome::Unknown, 0);
    }

    fn close_and_restart(&mut self) -> Result<(), Violation> {
        self.report.count("fault", "restart in order");
        self.life.store.close();
        // Who comes now is sent away; who waits is served.
        for _ in 0..self.rng.below(3) {
            let (coupon, command) = self.workload.ask(&mut self.rng, &self.plan);
            self.ask(coupon, command);
        }
        while !self.disk.lock().crashed && 0 < self.life.stepper.step(64) {}
        if !self.disk.lock().crashed {
            self.deliver(900);
        }
        self.restart()
    }

    /// The process is gone with all that was not on disk. What clients know is held against what survived.
    fn restart(&mut self) -> Result<(), Violation> {
        for (id, call) in std::mem::take(&mut self.pending) {
            drop(call);
            self.end(id, Outcome::Unknown, 0);
        }
        self.history.end_life();
        self.check(None)?;
        let stored = {
            let mut disk = self.disk.lock();
            for fault in std::mem::take(&mut disk.commits) {
                self.report.count("commit", fault.name());
            }
            disk.crashed = false;
            disk.visitors.clear();
            disk.stored.clone()
        };
        let hasher = draw_hasher();
        let damaged = |damaged: recovery::Damaged| {
            let detail = format!("{}: {}", damaged.coupon, damaged.damage.as_str());
            Violation::new("recovery", self.seed, detail)
        };
        let first = recovery::recover(&stored, &hasher).map_err(damaged)?;
        let written = recovery::written_again(&first, &stored);
        if let Some(difference) = recovery::difference(&stored, &written) {
            return Err(Violation::new("recovery", self.seed, difference));
        }
        let second = recovery::recover(&written, &hasher).map_err(damaged)?;
        if let Some(difference) = recovery::difference(&written, &recovery::written_again(&second, &written)) {
            return Err(Violation::new("recovery", self.seed, difference));
        }
        self.life = start(&self.disk, &self.clock, second);
        Ok(())
    }

    /// Faults end, everybody repeats, and everything that can be sold must be.
    fn heal(&mut self) -> Result<(), Violation> {
        self.plan.lost_answer_per_mille = 0;
        self.disk.lock().fault_per_mille = 0;
        self.restart()?;
        let opens_at = self.disk.lock().stored.values().filter_map(|rows| rows.settings.opens_at).max();
        if let Some(opens_at) = opens_at {
            self.clock.set(opens_at);
        }
        for coupon in self.workload.coupons().to_vec() {
            if self.disk.lock().rows(&coupon).is_none() {
                let mut settings = settings(&mut self.rng);
                settings.opens_at = None;
                self.ask(coupon, Command::Put(settings));
            }
        }
        self.settle()?;
        let repeats = self.history.operations().iter().filter(|operation| {
            operation.outcome == Outcome::Unknown
                && matches!(operation.command, Command::Claim(_) | Command::Redeem(..))
        });
        for (coupon, command) in
            repeats.map(|unclear| (unclear.coupon.clone(), unclear.command.clone())).collect::<Vec<_>>()
        {
            self.ask(coupon, command);
        }
        for coupon in self.workload.coupons().to_vec() {
            let users: Vec<UserId> = self.history.claimants(&coupon).into_iter().cloned().collect();
            for user in users {
                let claim = firstcome_core::coupon::Claim { user, attributes: None, request: None };
                self.ask(coupon.clone(), Command::Claim(claim));
            }
        }
        self.settle()?;
        self.history.end_life();
        self.check(Some(self.clock.now()))?;
        self.restart()?;
        self.count_healed();
        Ok(())
    }

    /// Runs the store until everybody has an answer.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..HEAL_BATCHES_MAX {
            if self.pending.is_empty() {
                return Ok(());
            }
            self.step_quietly();
            self.deliver(1_000);
        }
        let detail = format!("{} requests have no answer on a healthy disk", self.pending.len());
        Err(Violation::new("liveness", self.seed, detail))
    }

    fn step_quietly(&mut self) {
        let batch = self.rng.range(1, self.plan.batch_max) as usize;
        self.life.stepper.step(batch);
    }

    fn count_healed(&mut self) {
        let disk = self.disk.lock();
        for rows in disk.stored.values() {
            let issued = rows.claims.len();
            let how = if issued == rows.settings.limit.get() as usize {
                "sold all"
            } else if issued == self.history.claimants(&rows.name).len() {
                "served all"
            } else {
                "ended before all were served"
            };
            self.report.count("heal", how);
        }
    }

    fn check(&self, healed_at: Option<Timestamp>) -> Result<(), Violation> {
        let disk = self.disk.lock();
        invariants::check(&Evidence { seed: self.seed, history: &self.history, stored: &disk.stored, healed_at })
    }
}

fn start(
    disk: &SharedDisk,
    clock: &Arc<ManualClock>,
    coupons: Vec<firstcome_store::embedded::StoredCoupon>,
) -> StoreRun {
    let backing = Backing {
        journal: Box::new(disk.clone()),
        rows: Arc::new(disk.clone()),
        durability: Durability::Disk,
        coupons,
        // Its seed decides where entries lie, never what is answered.
        hasher: draw_hasher(),
        ..Backing::memory()
    };
    let (store, stepper) = Embedded::stepped(backing, Arc::clone(clock) as Arc<dyn Clock>);
    StoreRun { store, stepper }
}

/// One request to the store, as a client of its port makes it.
fn call(store: &Embedded, runtime: &Arc<Runtime>, coupon: CouponName, command: Command) -> Call {
    let (store, runtime) = (store.clone(), Arc::clone(runtime));
    Box::pin(async move {
        Ok(match command {
            Command::Put(settings) => told(store.put_coupon(&coupon, settings).await?, CouponReply::Put),
            Command::Delete => told(store.delete_coupon(&coupon).await?, |()| CouponReply::Deleted),
            Command::View => told(store.coupon(&coupon).await?, |view| CouponReply::View {
                limit: view.settings.limit.get(),
                issued: view.issued,
                state: view.state,
            }),
            Command::Claim(claim) => told(store.claim(&coupon, claim).await?, |effect| {
                let code = match &effect {
                    Effect::New(claimed) | Effect::Again(claimed) => claimed.code,
                };
                CouponReply::Claimed(effect.map(|claimed| claimed.issued), code)
            }),
            // A read of rows goes to a thread of its own. The world stands still until it is back.
            Command::ClaimOf(user) => told(runtime.block_on(store.claim_of(&coupon, user.as_str()))?, |record| {
                CouponReply::ClaimOf(record.map(|record| (record.claimed.issued, record.redeemed)))
            }),
            Command::Redeem(redeem, _) => {
                told(store.redeem(&coupon, redeem).await?, |effect| match effect.clone().into_inner().redeemed {
                    Some(redeemed) => CouponReply::Redeemed(effect.map(|_| redeemed)),
                    None => panic!("a redemption came back without its instant"),
                })
            }
        })
    })
}

fn told<T>(answer: Result<T, Refused>, tell: impl FnOnce(T) -> CouponReply) -> CouponReply {
    answer.map_or_else(|refused| CouponReply::Refused(refused.rejection, refused.claim.map(|claim| claim.code)), tell)
}
