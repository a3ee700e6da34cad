//! One run: the real store on a simulated disk, people polled by hand, everything in one thread.
//!
//! While faults are on, only safety is asked for. Then the disk heals, and everybody who stays must be admitted.
//! Every action takes at least a microsecond, so that each has an instant of its own.

use super::history::{Command, History, OperationId, Outcome, RoomStepReply, WallStep};
use super::journal::{Call, SharedDisk, Stored, Visitor};
use super::recovery;
use super::workload::{Action, Plan, Workload, healed, pause_ms, settings};
use crate::invariants::{self, RoomEvidence, Violation};
use crate::report::Report;
use crate::rng::Rng;
use crate::workload::START_US;
use firstcome_core::id::RoomName;
use firstcome_core::room::{Join, TicketNumber, TicketState};
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::edge::{Clock, ManualClock, draw_hasher};
use firstcome_store::embedded::{Backing, Embedded, Stepper, StoredAuctions, Timeline};
use firstcome_store::{Durability, RoomStore, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Rounds of half a second in which everybody must be admitted after the heal.
const HEAL_ROUNDS_MAX: usize = 60;
/// Batches in which everybody who asked must be answered.
const SETTLE_BATCHES_MAX: usize = 1_000;

struct RoomStoreRun {
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
    life: RoomStoreRun,
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
        let disk = SharedDisk::new(rng.fork(), plan.commit_fault_per_mille, Arc::clone(&clock));
        let life = match start(&disk, &clock) {
            Ok(life) => life,
            Err((_, damage)) => panic!("an empty disk is refused: {damage}"),
        };
        let (mut history, report) = (History::default(), Report::default());
        history.begin_life(clock.both());
        Self { seed, rng, plan, workload, clock, disk, life, pending: Vec::new(), history, report }
    }

    /// Plays the whole run.
    pub fn run(&mut self) -> Result<Report, Violation> {
        for room in self.workload.rooms().to_vec() {
            let settings = settings(&mut self.rng);
            self.ask(room, Command::Put(settings));
        }
        for _ in 0..self.plan.actions {
            self.act()?;
        }
        self.heal()?;
        Ok(std::mem::take(&mut self.report))
    }

    fn act(&mut self) -> Result<(), Violation> {
        self.pass_us(1);
        match self.plan.action(&mut self.rng) {
            Action::Ask => {
                let (room, command) = self.workload.ask(&mut self.rng, &self.plan);
                self.ask(room, command);
            }
            Action::Crowd => {
                let room = self.rng.pick(self.workload.rooms()).clone();
                for _ in 0..self.rng.range(1, self.plan.crowd_max) {
                    self.ask(room.clone(), Command::Join(Join { user: None, request: None }));
                }
            }
            Action::Step => self.step()?,
            Action::Deliver => self.deliver(700),
            Action::GoAway => self.go_away(),
            Action::Wait => {
                let pause_ms = pause_ms(&mut self.rng);
                self.pass_us(pause_ms as i64 * 1_000);
                if self.rng.chance(800) {
                    self.ask_of_first(Command::Tick);
                    self.step()?;
                }
            }
            Action::PollAll => self.poll_all(700),
            Action::SetWall => self.set_wall(),
            Action::Crash => {
                self.report.count("room fault", "crash between batches");
                self.restart()?;
            }
            Action::Restart => self.close_and_restart()?,
        }
        // A store that failed is asked for a while longer before a client starts it again.
        if self.life.store.fault().is_some() && self.rng.chance(150) { self.restart() } else { Ok(()) }
    }

    fn pass_us(&mut self, us: i64) {
        self.clock.set(Timestamp::clamped_us(self.clock.now().as_us() + us));
        self.history.pass(self.clock.both());
    }

    /// An operator sets the wall clock an hour forward, or back, so that it stands still for an hour.
    fn set_wall(&mut self) {
        let at = self.clock.steady().as_us();
        let (by_us, how) = if self.rng.chance(500) {
            self.clock.step_forward_ms(3_600_000);
            (3_600_000_000, "wall clock set forward")
        } else {
            self.clock.stand_ms(3_600_000);
            (-3_600_000_000, "wall clock set back")
        };
        self.history.steps.push(WallStep { at, by_us });
        self.report.count("room fault", how);
        self.pass_us(1);
    }

    fn ask_of_first(&mut self, command: Command) {
        let room = self.workload.rooms()[0].clone();
        self.ask(room, command);
    }

    /// A client asks: the request is polled once, which either answers it or puts it in the queue.
    fn ask(&mut self, room: RoomName, command: Command) {
        if self.life.store.fault().is_some() {
            self.report.count("room fault", "asked a store that failed");
        }
        let call = call(&self.life.store, room.clone(), command.clone());
        let id = self.history.ask(room, command, self.clock.both());
        self.poll(id, call);
    }

    fn poll_all(&mut self, per_mille: u64) {
        for known in self.workload.tickets().to_vec() {
            if self.rng.chance(per_mille) {
                self.ask(known.room, Command::Poll(known.ticket, Some(known.number)));
            }
        }
    }

    fn poll(&mut self, id: OperationId, mut call: Call) {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.pending.push((id, call)),
            Poll::Ready(answer) => self.answer(id, answer),
        }
    }

    fn answer(&mut self, id: OperationId, answer: Result<RoomStepReply, StoreError>) {
        let lost = self.rng.chance(self.plan.lost_answer_per_mille);
        let outcome = match answer {
            _ if lost => Outcome::Unknown,
            Ok(told) => Outcome::Told(told),
            Err(StoreError::Unavailable(_) | StoreError::Overloaded { .. }) => Outcome::NotDone,
            Err(_) => Outcome::Unknown,
        };
        if lost {
            self.report.count("room fault", "answer lost");
        }
        self.end(id, outcome);
    }

    fn end(&mut self, id: OperationId, outcome: Outcome) {
        self.history.answer(id, outcome, self.clock.both());
        let operation = &self.history.operations()[id];
        let how = match &operation.outcome {
            Outcome::Told(told) => told.kind(),
            Outcome::NotDone => "not done",
            Outcome::Unknown | Outcome::Pending => "unknown",
        };
        self.report.count(operation.command.kind(), how);
        self.report.trace(id as u64);
        self.report.trace(self.clock.steady().as_us() as u64);
        if let Some(answer) = operation.ticket() {
            self.report.trace(u64::from(answer.number.get()));
            self.report.trace(u64::from(answer.poll_after_ms));
        }
        self.workload.learn(operation);
    }

    /// The writer runs one batch; now and then a client comes in the middle of its commit.
    fn step(&mut self) -> Result<(), Violation> {
        if self.rng.chance(300) {
            for _ in 0..self.rng.range(1, 4) {
                let (room, command) = self.workload.visit(&mut self.rng, &self.plan);
                let call = call(&self.life.store, room.clone(), command.clone());
                let operation = self.history.ask(room, command, self.clock.both());
                self.disk.lock().visitors.push(Visitor { operation, call, answer: None, begun: false });
            }
        }
        let batch = self.rng.range(1, self.plan.batch_max) as usize;
        self.life.stepper.step(batch);
        let (visitors, crashed, read_again) = {
            let mut disk = self.disk.lock();
            (std::mem::take(&mut disk.visitors), disk.crashed, std::mem::take(&mut disk.read_again))
        };
        self.count_commits();
        for visitor in visitors {
            match visitor.answer {
                Some(answer) => {
                    self.report.count("room fault", "answered in the middle of a commit");
                    self.answer(visitor.operation, answer);
                }
                None if visitor.begun => self.pending.push((visitor.operation, visitor.call)),
                None if crashed => {}
                None => self.poll(visitor.operation, visitor.call),
            }
        }
        if !read_again.is_empty() && !crashed {
            self.go_on(read_again);
        }
        if crashed { self.restart() } else { Ok(()) }
    }

    /// Rooms are as after a restart: people count as just seen, and places and paces may be those of before. What was asked
    /// and not answered is refused.
    fn go_on(&mut self, rooms: BTreeSet<RoomName>) {
        self.report.count("room fault", "rooms read again");
        self.deliver(1_000);
        self.history.end_life(self.clock.both());
        self.history.go_on(rooms, self.clock.both());
        self.pass_us(1);
    }

    fn count_commits(&mut self) {
        for fault in std::mem::take(&mut self.disk.lock().commits) {
            self.report.count("room commit", fault.name());
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
        self.report.count("room fault", "caller went away");
        self.end(id, Outcome::Unknown);
    }

    fn close_and_restart(&mut self) -> Result<(), Violation> {
        self.report.count("room fault", "restart in order");
        self.life.store.close();
        // Who comes now is sent away; who waits is served.
        for _ in 0..self.rng.below(3) {
            let (room, command) = self.workload.ask(&mut self.rng, &self.plan);
            self.ask(room, command);
        }
        while !self.disk.lock().crashed && 0 < self.life.stepper.step(64) {}
        if !self.disk.lock().crashed {
            self.deliver(900);
        }
        self.restart()
    }

    /// The process is gone with all that was not on disk. What people know is held against what survived.
    fn restart(&mut self) -> Result<(), Violation> {
        for (id, call) in std::mem::take(&mut self.pending) {
            drop(call);
            self.end(id, Outcome::Unknown);
        }
        self.history.end_life(self.clock.both());
        let now = self.clock.steady().as_us();
        if let Some(last) = self.disk.lock().log.last_mut().filter(|last| !last.is_known) {
            (last.in_force, last.is_known) = (now, true);
        }
        self.count_commits();
        self.check()?;
        {
            let mut disk = self.disk.lock();
            disk.crashed = false;
            disk.read_again.clear();
            disk.visitors.clear();
        }
        self.pass_us(1);
        let damaged = |(invariant, detail)| Violation::new(invariant, self.seed, detail);
        self.life = start(&self.disk, &self.clock).map_err(damaged)?;
        self.history.begin_life(self.clock.both());
        Ok(())
    }

    /// Faults end, the operator opens every room, and a client that stays must be admitted.
    fn heal(&mut self) -> Result<(), Violation> {
        self.plan.lost_answer_per_mille = 0;
        self.disk.lock().fault_per_mille = 0;
        self.restart()?;
        for room in self.workload.rooms().to_vec() {
            self.ask(room, Command::Put(healed()));
        }
        self.settle()?;
        for round in 0..HEAL_ROUNDS_MAX {
            self.pass_us(500_000);
            self.ask_of_first(Command::Tick);
            self.settle()?;
            let asked = self.history.operations().len();
            let over: BTreeSet<(RoomName, TicketNumber)> = self.ended();
            let staying: Vec<_> = self.workload.tickets().to_vec();
            let staying: Vec<_> =
                staying.into_iter().filter(|it| !over.contains(&(it.room.clone(), it.number))).collect();
            if staying.is_empty() {
                self.report
                    .count("room heal", if round == 0 { "no client was left" } else { "everybody was admitted" });
                self.history.end_life(self.clock.both());
                self.check()?;
                return self.restart();
            }
            for known in staying {
                self.ask(known.room, Command::Poll(known.ticket, Some(known.number)));
            }
            self.settle()?;
            let admitted: Vec<(RoomName, TicketNumber, u64)> = self.history.operations()[asked..]
                .iter()
                .filter_map(|operation| match operation.ticket()?.state {
                    TicketState::Admitted { slot, .. } => {
                        Some((operation.room.clone(), operation.ticket()?.number, slot.admission))
                    }
                    _ => None,
                })
                .collect();
            for (room, number, admission) in admitted {
                self.ask(room, Command::Release(number, admission));
            }
            self.settle()?;
        }
        self.check()?;
        Err(Violation::new("liveness", self.seed, "a visitor who stayed was not admitted on a healthy disk"))
    }

    /// The tickets that were told to be gone.
    fn ended(&self) -> BTreeSet<(RoomName, TicketNumber)> {
        let gone = self.history.operations().iter().filter_map(|operation| {
            let answer = operation.ticket()?;
            matches!(answer.state, TicketState::Gone(_)).then(|| (operation.room.clone(), answer.number))
        });
        gone.collect()
    }

    /// Runs the store until everybody has an answer.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..SETTLE_BATCHES_MAX {
            if self.pending.is_empty() {
                return Ok(());
            }
            self.pass_us(1);
            self.life.stepper.step(self.plan.batch_max as usize);
            self.deliver(1_000);
        }
        let detail = format!("{} requests have no answer on a healthy disk", self.pending.len());
        Err(Violation::new("liveness", self.seed, detail))
    }

    /// Asks all invariants.
    pub fn check(&self) -> Result<(), Violation> {
        let disk = self.disk.lock();
        invariants::check_rooms(&RoomEvidence { seed: self.seed, history: &self.history, log: &disk.log })
    }
}

/// A store over what is on disk. What comes back is asked whether it is what was stored; that is done with a room of
/// its own, since asking is a contact.
fn start(disk: &SharedDisk, clock: &Arc<ManualClock>) -> Result<RoomStoreRun, (&'static str, String)> {
    let stored: Stored = disk.lock().stored.clone();
    let timeline = Timeline::after(stored.clock, clock.as_ref());
    let now: Now = timeline.now(clock.as_ref());
    let hasher = draw_hasher();
    let recover = || recovery::recover(&stored, &hasher, now).map_err(|damage| ("recovery", damage));
    for mut found in recover()? {
        if let Some(difference) = recovery::difference(&mut found.room, &stored.rooms[&found.id], now) {
            return Err(difference);
        }
    }
    let backing = Backing {
        journal: Box::new(disk.clone()),
        rows: Arc::new(disk.clone()),
        durability: Durability::Disk,
        rooms: recover()?,
        pass_secrets: stored.secrets.clone(),
        auctions: StoredAuctions::default(),
        timeline,
        hasher: hasher.clone(),
        ..Backing::memory()
    };
    let (store, stepper) = Embedded::stepped(backing, Arc::clone(clock) as Arc<dyn Clock>);
    Ok(RoomStoreRun { store, stepper })
}

/// One request to the store, as a client of its port makes it.
fn call(store: &Embedded, room: RoomName, command: Command) -> Call {
    let store = store.clone();
    Box::pin(async move {
        let told = match command {
            Command::Put(settings) => store.put_room(&room, settings).await?.map(RoomStepReply::Put),
            Command::Close => store.close_room(&room).await?.map(|()| RoomStepReply::Closed),
            Command::View => store.room(&room).await?.map(|summary| RoomStepReply::View(Box::new(summary))),
            Command::Join(join) => {
                store.join(&room, join).await?.map(|(joining, answer)| RoomStepReply::Joined(joining, answer))
            }
            Command::Poll(ticket, _) => store.poll(&room, &ticket).await?.map(RoomStepReply::Ticket),
            Command::Leave(ticket, _) => store.leave(&room, &ticket).await?.map(|()| RoomStepReply::Left),
            Command::Release(number, admission) => {
                store.release(&room, number, admission).await?.map(|()| RoomStepReply::Released)
            }
            Command::Check(number, admission) => {
                store.check_pass(&room, number, admission).await?.map(RoomStepReply::Pass)
            }
            Command::Tick => Ok(store.tick().await.map(|()| RoomStepReply::Ticked)?),
            Command::Rotate => Ok(RoomStepReply::Rotated(store.rotate_pass_secret().await?)),
            Command::Secrets => Ok(RoomStepReply::Secrets(store.pass_secrets())),
        };
        Ok(told.unwrap_or_else(RoomStepReply::Refused))
    })
}
