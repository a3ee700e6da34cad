//! One run: the real store on a simulated disk, clients polled by hand, everything in one thread.
//!
//! Two phases. While faults are on, the invariants demand safety only. Then the disk heals, clients repeat what is
//! unclear, and each [`Primitive`] demands what must come of it.

use crate::Play;
use crate::history::{History, Kind, OperationId, Outcome};
use crate::invariants::{Evidence, Violation};
use crate::journal::{Answer, Call, SharedDisk, Visitor};
use crate::primitive::{Breach, Primitive};
use crate::report::Report;
use crate::rng::Rng;
use crate::secrets::SeededSecrets;
use crate::workload::{Action, Plan, START_US};
use firstcome_core::time::Timestamp;
use firstcome_store::edge::{Clock, ManualClock, SecretSource};
use firstcome_store::embedded::{Backing, Embedded, Stepper};
use firstcome_store::{Durability, StoreError};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Runtime;

/// Batches in which the store must answer every client after the heal.
const SETTLE_BATCHES_MAX: usize = 10_000;

/// One store from its start to its end.
struct StoreRun {
    store: Embedded,
    stepper: Stepper,
}

/// Everything that a seed brings into being.
pub struct World<P: Primitive> {
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan<P::Action>,
    pub(crate) clients: P,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) disk: SharedDisk<P>,
    secrets: Arc<SeededSecrets>,
    pub(crate) history: History<P>,
    pub(crate) report: Report,
    life: StoreRun,
    runtime: Arc<Runtime>,
    pending: Vec<(OperationId, Call<P>)>,
}

impl<P: Primitive> World<P> {
    /// The world of a seed, with an empty disk.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let (plan, clients) = P::draw(&mut rng);
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(START_US)));
        let (mut history, report) = (History::default(), Report::default());
        let disk = SharedDisk::new(rng.fork(), plan.commit_fault_per_mille, Arc::clone(&clock), history.events());
        let secrets = Arc::new(SeededSecrets::new(seed));
        let life = match start(&disk, &clock, &secrets) {
            Ok(life) => life,
            Err((_, detail)) => panic!("an empty disk is refused: {detail}"),
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().build() {
            Ok(runtime) => Arc::new(runtime),
            Err(error) => panic!("no runtime for reads: {error}"),
        };
        history.begin_life(clock.both());
        Self { seed, rng, plan, clients, clock, disk, secrets, history, report, life, runtime, pending: Vec::new() }
    }

    fn act(&mut self) -> Result<(), Violation> {
        self.pass_us(P::ACTION_US);
        match *self.rng.pick_by_weight(&self.plan.weights) {
            Action::Ask => {
                let (name, command) = self.clients.ask(&mut self.rng, self.clock.now());
                self.ask(name, command);
            }
            Action::Crowd => {
                let crowd = self.clients.crowd(&mut self.rng);
                crowd.into_iter().for_each(|(name, command)| self.ask(name, command));
            }
            Action::Step => self.step()?,
            Action::Deliver => self.deliver(700),
            Action::GoAway => self.go_away(),
            Action::Wait => {
                let pause_us = P::pause_us(&mut self.rng);
                self.pass_us(pause_us as i64);
                P::waited(self)?;
            }
            Action::Crash => {
                self.report.count(P::FAULT, "crash between batches");
                self.restart()?;
            }
            Action::Restart => self.close_and_restart()?,
            Action::Own(action) => P::act(self, action)?,
        }
        // Clients ask a store that failed for a while longer before it is started again.
        if self.life.store.fault().is_some() && self.rng.chance(150) { self.restart() } else { Ok(()) }
    }

    /// Lets time pass.
    pub(crate) fn pass_us(&mut self, us: i64) {
        self.clock.set(Timestamp::clamped_us(self.clock.now().as_us() + us));
        self.history.pass(self.clock.both());
    }

    /// A client asks: its request is polled once, which either answers it or puts it in the queue.
    pub(crate) fn ask(&mut self, name: P::Name, command: P::Command) {
        if self.life.store.fault().is_some() {
            self.report.count(P::FAULT, "asked a store that failed");
        }
        let (id, call) = self.begin(name, command);
        self.poll(id, call);
    }

    fn begin(&mut self, name: P::Name, command: P::Command) -> (OperationId, Call<P>) {
        let call = P::call(&self.life.store, &self.runtime, (name.clone(), command.clone()));
        (self.history.ask(name, command, self.clock.both()), call)
    }

    fn poll(&mut self, id: OperationId, mut call: Call<P>) {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.pending.push((id, call)),
            Poll::Ready(answer) => {
                let durable = P::durable(&self.disk.lock().stored, &self.history.operations()[id].name);
                self.answer(id, answer, durable);
            }
        }
    }

    fn answer(&mut self, id: OperationId, answer: Answer<P>, durable: u32) {
        let lost = self.rng.chance(self.plan.lost_answer_per_mille);
        let outcome = match answer {
            _ if lost => Outcome::Unknown,
            Ok(told) => Outcome::Answered(told),
            Err(StoreError::Faulted(_) | StoreError::Busy { .. }) => Outcome::NotDone,
            Err(_) => Outcome::Unknown,
        };
        if lost {
            self.report.count(P::FAULT, "answer lost");
        }
        self.end(id, outcome, durable);
    }

    fn end(&mut self, id: OperationId, outcome: Outcome<P::Reply>, durable: u32) {
        let now = self.clock.both();
        self.history.answer(id, outcome, durable, now);
        let operation = &self.history.operations()[id];
        let how = match &operation.outcome {
            Outcome::Answered(told) => told.kind(),
            Outcome::NotDone => "not done",
            Outcome::Unknown | Outcome::Pending => "unknown",
        };
        self.report.count(operation.command.kind(), how);
        self.report.trace(id as u64);
        P::trace(operation, now, &mut self.report);
        self.clients.learn(operation);
    }

    /// The writer runs one batch; now and then clients come in the middle of its commit.
    pub(crate) fn step(&mut self) -> Result<(), Violation> {
        if self.rng.chance(300) {
            for _ in 0..self.rng.range(1, P::VISITORS_MAX) {
                let (name, command) = self.clients.visit(&mut self.rng, self.clock.now());
                let (operation, call) = self.begin(name.clone(), command);
                let comes_late = P::WRITES_IN_STEPS && self.rng.chance(500);
                let visitor = Visitor { operation, name, call, comes_late, answer: None, begun: false };
                self.disk.lock().visitors.push(visitor);
            }
        }
        let batch = self.rng.range(1, self.plan.batch_max) as usize;
        self.life.stepper.step(batch);
        let (visitors, crashed, read_again) = {
            let mut disk = self.disk.lock();
            (std::mem::take(&mut disk.visitors), disk.crashed, std::mem::take(&mut disk.read_again))
        };
        self.count_commits();
        for Visitor { operation, call, answer, begun, .. } in visitors {
            match answer {
                Some((answer, durable)) => {
                    self.report.count(P::FAULT, "answered in the middle of a commit");
                    self.answer(operation, answer, durable);
                }
                None if begun => self.pending.push((operation, call)),
                None if crashed => {}
                None => self.poll(operation, call),
            }
        }
        if crashed {
            return self.restart();
        }
        if !read_again.is_empty() {
            P::read_again(self, read_again);
        }
        Ok(())
    }

    fn count_commits(&mut self) {
        for how in std::mem::take(&mut self.disk.lock().commits) {
            self.report.count(P::COMMIT, how);
        }
    }

    /// Each client with a request under way looks for its answer, with this chance per thousand.
    pub(crate) fn deliver(&mut self, per_mille: u64) {
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
        self.report.count(P::FAULT, "caller went away");
        self.end(id, Outcome::Unknown, 0);
    }

    fn close_and_restart(&mut self) -> Result<(), Violation> {
        self.report.count(P::FAULT, "restart in order");
        self.life.store.close();
        // The store refuses clients that come now, and serves those that wait.
        for _ in 0..self.rng.below(3) {
            let (name, command) = self.clients.ask(&mut self.rng, self.clock.now());
            self.ask(name, command);
        }
        while !self.disk.lock().crashed && 0 < self.life.stepper.step(64) {}
        if !self.disk.lock().crashed {
            self.deliver(900);
        }
        self.restart()
    }

    /// The process is gone with all that was not on disk. The invariants compare what clients know with what survived.
    pub(crate) fn restart(&mut self) -> Result<(), Violation> {
        for (id, call) in std::mem::take(&mut self.pending) {
            drop(call);
            self.end(id, Outcome::Unknown, 0);
        }
        self.disk.lock().reopen();
        self.history.end_life(self.clock.both());
        self.count_commits();
        self.judge(None)?;
        self.pass_us(P::ACTION_US);
        let damaged = |(invariant, detail)| Violation::new(invariant, self.seed, detail);
        self.life = start(&self.disk, &self.clock, &self.secrets).map_err(damaged)?;
        self.history.begin_life(self.clock.both());
        Ok(())
    }

    fn heal(&mut self) -> Result<(), Violation> {
        self.plan.lost_answer_per_mille = 0;
        self.disk.lock().fault_per_mille = 0;
        self.restart()?;
        P::heal(self)
    }

    /// Runs the store until every client has an answer.
    pub(crate) fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..SETTLE_BATCHES_MAX {
            if self.pending.is_empty() {
                return Ok(());
            }
            self.pass_us(P::ACTION_US);
            let batch = P::healed_batch(&self.plan, &mut self.rng);
            self.life.stepper.step(batch as usize);
            self.deliver(1_000);
        }
        Err(self.liveness(format!("{} requests have no answer on a healthy disk", self.pending.len())))
    }

    /// Something that must come after the heal, and does not.
    pub(crate) fn liveness(&self, detail: impl Into<String>) -> Violation {
        Violation::new("liveness", self.seed, detail)
    }

    /// Asks all invariants. `healed_at` is set once faults have ended and clients have repeated what was unclear.
    pub(crate) fn judge(&self, healed_at: Option<Timestamp>) -> Result<(), Violation> {
        let disk = self.disk.lock();
        let (seed, history) = (self.seed, &self.history);
        P::check(&Evidence { seed, history, stored: &disk.stored, log: &disk.log, healed_at })
    }
}

impl<P: Primitive> Play for World<P> {
    fn run(&mut self) -> Result<Report, Violation> {
        for (name, command) in self.clients.opening(&mut self.rng, self.clock.now()) {
            self.ask(name, command);
        }
        for _ in 0..self.plan.actions {
            self.act()?;
        }
        self.heal()?;
        Ok(std::mem::take(&mut self.report))
    }

    fn check(&self) -> Result<(), Violation> {
        if P::JUDGED_AFTER_PANIC { self.judge(None) } else { Ok(()) }
    }
}

/// Starts a store over what is on disk.
fn start<P: Primitive>(
    disk: &SharedDisk<P>,
    clock: &Arc<ManualClock>,
    secrets: &Arc<SeededSecrets>,
) -> Result<StoreRun, Breach> {
    let stored = disk.lock().stored.clone();
    let backing = Backing {
        journal: Box::new(disk.clone()),
        rows: Arc::new(disk.clone()),
        durability: Durability::Disk,
        secrets: Arc::clone(secrets) as Arc<dyn SecretSource>,
        ..P::recover(&stored, clock)?
    };
    let (store, stepper) = Embedded::stepped(backing, Arc::clone(clock) as Arc<dyn Clock>);
    P::check_started(&store, &stored)?;
    Ok(StoreRun { store, stepper })
}
