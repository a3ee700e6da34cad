//! One run: real processes' sides of locks, the real rules on the store, and everything between them simulated.
//!
//! While faults are on, the invariants demand only what is promised then. Then faults stop: a client that waits must stand
//! in line, and once every client has gone nothing may be left.

use super::history::{Belief, History, LockMessage, LockRequest, is_final};
use super::ledger::Ledger;
use super::network::{Back, USUAL_DELAY_US};
use super::table::{Hasher, LoggingLockTable, TableOperation};
use super::tasks::Act;
use super::workload::{Fault, LEASE_MS_LONGEST, Plan};
use crate::Play;
use crate::invariants::{self, LockEvidence, Violation};
use crate::report::Report;
use crate::rng::Rng;
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{
    self, Acquired, Answer, Client, ClientId, Copies, Failed, LockAnswer, LockReply, MemoryLockTable, Mode, Push,
    Released, Request, Settings, Step, Wait, Waiter, bucket_of,
};
use firstcome_core::time::Steady;
use std::collections::{BTreeMap, BTreeSet};

/// When the store's clock begins, in µs.
const STORE_START_US: i64 = 1_700_000_000_000_000;
/// An hour, by which clocks are set.
pub(super) const HOUR_US: i64 = 3_600_000_000;
/// After the heal every client must stand where it should within this.
pub const SETTLE_US: i64 = 6_000_000;
/// More events than any run has: a run that goes beyond them runs in a circle.
const EVENTS_MAX: usize = 400_000;

pub(super) enum Event {
    /// A task of the process wants something.
    Ask,
    /// The task of a request does something.
    Task { request: Request, act: Act },
    /// A call is at the store.
    Arrive { call: u64, step: Step, back_us: Option<i64>, client: ClientId },
    /// The caller hears what came of its call.
    Back { client: ClientId, call: u64, answer: Result<Answer, Failed> },
    /// A push arrives.
    Pushed(Push),
    /// A fence arrives at what the lock guards.
    Write { name: LockName, request: Request, fence: u64 },
    /// Something goes wrong.
    Fault(Fault),
    /// A process goes on.
    Resume,
    /// Calls get through again.
    Connect,
    /// Pushes get through again.
    ConnectInbox,
}

/// One process, and a client that takes its place after a kill.
pub(super) struct Process {
    pub(super) client: Client,
    pub(super) owner: OwnerName,
    // Its steady clock is so much ahead of the world's.
    pub(super) offset_us: i64,
    pub(super) is_paused: bool,
    // What happened to it while it was paused.
    pub(super) missed: Vec<Event>,
    pub(super) is_connected: bool,
    pub(super) has_inbox: bool,
    // Calls without an answer, and whether they are at the store.
    pub(super) pending: BTreeMap<u64, bool>,
    // Calls that a cut stopped on their way.
    pub(super) stopped: BTreeSet<u64>,
    // When the last call arrives on each connection.
    pub(super) streams: Vec<i64>,
}

/// Everything that a seed brings into being.
pub struct World {
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) now: i64,
    pub(super) store_ahead_us: i64,
    pub(super) tables: BTreeMap<u8, MemoryLockTable<Hasher>>,
    pub(super) processes: Vec<Process>,
    pub(super) queue: BTreeMap<(i64, u64), (usize, Event)>,
    pub(super) queued: u64,
    pub(super) guarded: BTreeMap<LockName, u64>,
    // The fence of the last write to what has no fence.
    pub(super) unguarded: BTreeMap<LockName, u64>,
    // The running belief of a request.
    pub(super) believing: BTreeMap<Request, usize>,
    // Holds that their process knows nothing of any more.
    pub(super) handed_out: BTreeSet<Request>,
    pub(super) history: History,
    pub(super) report: Report,
}

impl World {
    /// The world of a seed, with nothing held.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let plan = Plan::draw(&mut rng);
        let history = History::with_store_rate(plan.store_rate_ppm);
        let mut world = Self {
            seed,
            rng,
            plan,
            now: 0,
            store_ahead_us: STORE_START_US,
            tables: BTreeMap::new(),
            processes: Vec::new(),
            queue: BTreeMap::new(),
            queued: 0,
            guarded: BTreeMap::new(),
            unguarded: BTreeMap::new(),
            believing: BTreeMap::new(),
            handed_out: BTreeSet::new(),
            history,
            report: Report::default(),
        };
        for number in 0..world.plan.processes {
            let process = world.process(number);
            world.processes.push(process);
            world.later(0, number, Event::Ask);
        }
        world.plan_fault();
        world
    }

    fn process(&mut self, number: usize) -> Process {
        let owner = match OwnerName::parse(&format!("process-{number}")) {
            Ok(owner) => owner,
            Err(error) => panic!("{number} {error}"),
        };
        Process {
            client: Client::new(ClientId(self.rng.bits()), Settings::default()),
            owner,
            offset_us: self.rng.below(1_000_000_000_000) as i64,
            is_paused: false,
            missed: Vec::new(),
            is_connected: true,
            has_inbox: true,
            pending: BTreeMap::new(),
            stopped: BTreeSet::new(),
            streams: vec![0; self.plan.streams],
        }
    }

    /// Lets happen what happens until an instant.
    fn play(&mut self, until: i64) {
        for _ in 0..EVENTS_MAX {
            let timers = self.processes.iter().enumerate().filter(|(_, process)| !process.is_paused);
            let timers = timers.filter_map(|(at, it)| Some((it.client.next_due()?.as_us() - it.offset_us, at)));
            let timer = timers.min();
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let next = match (timer, event) {
                (Some((timer, _)), Some(event)) => timer.min(event),
                (timer, event) => timer.map(|(at, _)| at).or(event).unwrap_or(i64::MAX),
            };
            if until < next {
                self.pass_to(until);
                return;
            }
            self.pass_to(self.now.max(next));
            if event == Some(next) {
                if let Some((_, (process, event))) = self.queue.pop_first() {
                    self.happen(process, event);
                }
            } else if let Some((_, process)) = timer {
                let now = self.steady(process);
                self.processes[process].client.tick(now);
                self.drain(process);
            }
        }
        panic!("more than {EVENTS_MAX} events");
    }

    pub(super) fn pass_to(&mut self, at: i64) {
        self.now = at;
        self.history.now = at;
    }

    pub(super) fn later(&mut self, after_us: i64, process: usize, event: Event) {
        self.queued += 1;
        self.queue.insert((self.now + after_us, self.queued), (process, event));
    }

    pub(super) const fn store_us(&self) -> u64 {
        (self.now + self.now * self.plan.store_rate_ppm / 1_000_000 + self.store_ahead_us) as u64
    }

    pub(super) fn steady(&self, process: usize) -> Steady {
        Steady::from_us(self.now + self.processes[process].offset_us)
    }

    pub(super) fn happen(&mut self, process: usize, event: Event) {
        let is_outside = matches!(
            event,
            Event::Arrive { .. } | Event::Write { .. } | Event::Fault(_) | Event::Resume | Event::Connect
        );
        if self.processes[process].is_paused && !is_outside {
            self.processes[process].missed.push(event);
            return;
        }
        match event {
            Event::Ask => self.ask(process),
            Event::Task { request, act } => self.act(process, request, act),
            Event::Arrive { call, step, back_us, client } => self.arrive(process, call, &step, back_us, client),
            Event::Back { client, call, answer } => self.back(process, client, call, answer),
            Event::Pushed(push) => self.pushed(process, &push),
            Event::Write { name, request, fence } => self.write(name, request, fence),
            Event::Fault(fault) => self.fault(process, fault),
            Event::Resume => self.resume(process),
            Event::Connect => self.processes[process].is_connected = true,
            Event::ConnectInbox => self.connect_inbox(process),
        }
    }

    fn ask(&mut self, process: usize) {
        if self.history.healed_at.is_some() {
            return;
        }
        let ask = self.plan.ask(&mut self.rng, &self.processes[process].owner);
        let now = self.steady(process);
        let number = self.processes[process].client.ask(ask.clone(), now);
        let request = Request { client: self.processes[process].client.id(), number };
        let how = if ask.wait_ms == 0 { "try" } else { "wait" };
        self.report.count("lock ask", how);
        let asked = LockRequest { at: self.now, ask, given_up: None, dropped: false, copied: false };
        self.history.asked.insert(request, asked);
        self.drain(process);
        if self.rng.chance(120) {
            let act = if self.rng.chance(700) { Act::Drop } else { Act::Release };
            let after_us = *self.rng.pick(&[0, 1_000, 20_000, 800_000]);
            self.later(after_us, process, Event::Task { request, act });
        }
        let gap_us = self.plan.ask_gap_us(&mut self.rng);
        self.later(gap_us, process, Event::Ask);
    }

    /// What the lock guards takes a fence only if it saw no higher one. Beside it is something that takes everything.
    fn write(&mut self, name: LockName, request: Request, fence: u64) {
        let highest = self.guarded.entry(name.clone()).or_default();
        let accepted = *highest <= fence;
        *highest = fence.max(*highest);
        self.report.count("lock write", if accepted { "accepted" } else { "refused" });
        if self.unguarded.insert(name.clone(), fence).is_some_and(|before| fence < before) {
            self.report.count("lock write", "spoils what has no fence");
        }
        self.history.writes.push(super::history::Write { at: self.now, name, request, fence, accepted });
    }

    /// Takes over what a process puts out: calls to send, and replies to its tasks.
    pub(super) fn drain(&mut self, process: usize) {
        while let Some(call) = self.processes[process].client.next_call() {
            self.send(process, call.id, call.step);
        }
        while let Some((number, told)) = self.processes[process].client.next_reply() {
            let request = Request { client: self.processes[process].client.id(), number };
            self.told(process, request, told);
        }
    }

    fn send(&mut self, process: usize, call: u64, step: Step) {
        let client = self.processes[process].client.id();
        self.processes[process].pending.insert(call, false);
        if !self.processes[process].is_connected {
            self.trouble(client, 5_000);
            let answer = Err(Failed::Unavailable);
            return self.later(5_000, process, Event::Back { client, call, answer });
        }
        let fate = self.plan.weather.fate(&mut self.rng);
        let lane = self.rng.index(self.plan.streams);
        let back_us = match fate.back {
            Back::After(back_us) => Some(back_us),
            Back::Fails(after_us, failed) => {
                self.report.count("lock network", if failed == Failed::Unknown { "unknown" } else { "unavailable" });
                self.later(after_us, process, Event::Back { client, call, answer: Err(failed) });
                self.trouble(client, after_us);
                None
            }
        };
        if let Some(arrives_us) = fate.arrives_us {
            // A call that its caller has given up is on a connection of its own.
            let after_us = match back_us {
                Some(_) => (self.processes[process].streams[lane] - self.now).max(arrives_us),
                None => arrives_us,
            };
            if let Some(back_us) = back_us {
                self.processes[process].streams[lane] = self.now + after_us;
                if USUAL_DELAY_US < after_us.max(back_us) {
                    self.report.count("lock network", "slow");
                    self.trouble(client, after_us + back_us);
                }
            }
            self.copied(&step, back_us.is_none());
            self.later(after_us, process, Event::Arrive { call, step: step.clone(), back_us, client });
        }
        if let Some(copy_us) = fate.copy_us {
            self.report.count("lock network", "doubled");
            self.copied(&step, true);
            self.later(copy_us, process, Event::Arrive { call, step, back_us: None, client });
        }
    }

    fn copied(&mut self, step: &Step, is_copied: bool) {
        let request = match step {
            Step::Acquire { waiter, .. } => waiter.request,
            _ => return,
        };
        if let Some(asked) = self.history.asked.get_mut(&request) {
            asked.copied |= is_copied;
        }
    }

    pub(super) fn trouble(&mut self, client: ClientId, lasts_us: i64) {
        self.history.troubles.entry(client).or_default().push((self.now, self.now + lasts_us));
    }

    pub(super) fn take(&mut self, step: &Step) -> (Answer, Vec<Push>) {
        let bucket = match step {
            Step::Acquire { name, .. } | Step::Release { name, .. } => bucket_of(name),
            Step::Renew { bucket, .. } | Step::Beat { bucket, .. } => *bucket,
        };
        let (at, store_us) = (self.now, self.store_us());
        let table = self.tables.entry(bucket).or_insert_with(|| MemoryLockTable::new(Hasher::default()));
        let mut table = LoggingLockTable { table, log: &mut self.history.log, at, store_us, bucket };
        table.log(TableOperation::Step(step.clone()));
        lock::take(&mut table, step, store_us)
    }

    fn arrive(&mut self, process: usize, call: u64, step: &Step, back_us: Option<i64>, client: ClientId) {
        if self.processes[process].stopped.remove(&call) && client == self.processes[process].client.id() {
            return;
        }
        let (answer, pushes) = self.take(step);
        self.count(&answer);
        if client == self.processes[process].client.id()
            && let Some(arrived) = self.processes[process].pending.get_mut(&call)
        {
            *arrived = true;
        }
        if let Some(back_us) = back_us {
            self.later(back_us, process, Event::Back { client, call, answer: Ok(answer) });
        }
        for push in pushes {
            self.push(push);
        }
    }

    pub(super) fn count(&mut self, answer: &Answer) {
        let (what, how) = match &answer.said {
            LockAnswer::Acquired(Acquired::Granted(_)) => ("acquire", "granted"),
            LockAnswer::Acquired(Acquired::Queued { .. }) => ("acquire", "queued"),
            LockAnswer::Acquired(Acquired::Contended { .. }) => ("acquire", "contended"),
            LockAnswer::Acquired(Acquired::Void) => ("acquire", "void"),
            LockAnswer::Released(Released::Released) => ("give up", "released"),
            LockAnswer::Released(Released::Withdrawn { .. }) => ("give up", "withdrawn"),
            LockAnswer::Released(Released::NotHeld) => ("give up", "not held"),
            LockAnswer::Renewed(ends) if ends.contains(&None) => ("renew", "lost"),
            LockAnswer::Renewed(_) => ("renew", "renewed"),
            LockAnswer::Beaten { looked, .. } if looked.iter().any(|(grants, _)| !grants.is_empty()) => {
                ("beat", "has a grant")
            }
            LockAnswer::Beaten { .. } => ("beat", "heard"),
        };
        self.report.count(what, how);
        self.report.trace(answer.now_us);
    }

    pub(super) fn push(&mut self, push: Push) {
        let to = self.processes.iter().position(|process| process.client.id() == push.grant.request.client);
        let lost = self.rng.chance(self.plan.weather.push_lost_per_mille);
        match to {
            Some(process) if self.processes[process].has_inbox && !lost => {
                if self.rng.chance(50) {
                    let delay_us = self.plan.weather.delay_us(&mut self.rng);
                    self.later(delay_us, process, Event::Pushed(push.clone()));
                }
                let delay_us = self.plan.weather.delay_us(&mut self.rng);
                self.later(delay_us, process, Event::Pushed(push));
            }
            _ => self.report.count("lock network", "push lost"),
        }
    }

    fn back(&mut self, process: usize, client: ClientId, call: u64, answer: Result<Answer, Failed>) {
        let is_same = client == self.processes[process].client.id();
        if !is_same || self.processes[process].pending.remove(&call).is_none() {
            return;
        }
        let now = self.steady(process);
        self.processes[process].client.answered(call, answer, now);
        self.drain(process);
    }

    fn pushed(&mut self, process: usize, push: &Push) {
        if push.grant.request.client != self.processes[process].client.id() {
            return;
        }
        // Now and then a task gives up at the very moment at which it is given the lock.
        let gives_up = self.rng.chance(30);
        let before = gives_up && self.rng.chance(500);
        if before {
            self.act(process, push.grant.request, Act::Drop);
        }
        let now = self.steady(process);
        self.processes[process].client.pushed(push, now);
        if gives_up && !before {
            self.drain(process);
            self.act(process, push.grant.request, Act::Drop);
        }
        self.drain(process);
    }

    pub(super) fn believe_no_more(&mut self, request: Request, at: i64) {
        if let Some(belief) = self.believing.remove(&request) {
            let belief = &mut self.history.beliefs[belief];
            belief.until = belief.until.min(at);
        }
    }

    /// A task hears about its request.
    fn told(&mut self, process: usize, request: Request, mut told: LockReply) {
        let offset_us = self.processes[process].offset_us;
        if let LockReply::Granted { deadline, .. } | LockReply::Renewed { deadline } = &mut told {
            *deadline = Steady::from_us(deadline.as_us() - offset_us);
        }
        self.report.count("lock told", word(&told));
        if is_final(&told) {
            self.believe_no_more(request, self.now);
        }
        match &told {
            LockReply::Granted { fence, deadline, .. } => {
                let name = self.history.asked[&request].ask.name.clone();
                let (from, until) = (self.now, deadline.as_us());
                self.believing.insert(request, self.history.beliefs.len());
                self.history.believe(Belief { name, request, fence: *fence, from, until });
                self.plan_task(process, request);
            }
            LockReply::Renewed { deadline } => {
                if let Some(belief) = self.believing.get(&request) {
                    self.history.beliefs[*belief].until = deadline.as_us();
                }
            }
            _ => {}
        }
        self.history.tell(LockMessage { at: self.now, request, told });
    }

    fn look_for_remains(&mut self) {
        let mut left = Vec::new();
        for process in &self.processes {
            if !process.client.is_empty() {
                left.push(format!("{} still has {} requests", process.owner, process.client.len()));
            }
        }
        for name in self.plan.locks.clone() {
            self.queued += 1;
            let request = Request { client: ClientId(1), number: self.queued };
            let waiter = Waiter { request, owner: self.processes[0].owner.clone(), lease_ms: 1_000, mode: Mode::ALONE };
            let acquire = Step::Acquire { name: name.clone(), waiter, wait: Wait::No };
            let (answer, _) = self.take(&acquire);
            if !matches!(answer.said, LockAnswer::Acquired(Acquired::Granted(_))) {
                left.push(format!("{name} is not free: {:?}", answer.said));
            }
            self.take(&Step::Release { name, request, copies: Copies::One });
        }
        for (bucket, table) in &self.tables {
            if !table.is_empty() {
                left.push(format!("bucket {bucket} is not empty"));
            }
        }
        self.history.left = left;
    }
}

impl Play for World {
    fn run(&mut self) -> Result<Report, Violation> {
        self.play(self.plan.busy_us);
        self.heal();
        self.play(self.plan.busy_us + SETTLE_US);
        self.go_home();
        // The longest lease after the last withdrawal, and everything that is under way.
        self.play(self.now + i64::from(LEASE_MS_LONGEST) * 1_010 + 15_000_000);
        // A clock that was set back lengthens a hold by its lease, from the first step after that.
        self.look_for_remains();
        self.play(self.now + i64::from(LEASE_MS_LONGEST) * 1_010);
        self.look_for_remains();
        self.check()?;
        Ok(std::mem::take(&mut self.report))
    }

    fn check(&self) -> Result<(), Violation> {
        let ledger = Ledger::read(&self.history);
        invariants::check_locks(&LockEvidence { seed: self.seed, history: &self.history, ledger: &ledger })
    }
}

const fn word(told: &LockReply) -> &'static str {
    match told {
        LockReply::Granted { .. } => "granted",
        LockReply::Renewed { .. } => "renewed",
        LockReply::Contended { .. } => "contended",
        LockReply::TimedOut { .. } => "timed out",
        LockReply::Failed(Failed::Unavailable) => "unavailable",
        LockReply::Failed(Failed::Unknown) => "unknown",
        LockReply::Lost => "lost",
        LockReply::Released => "released",
        LockReply::NotHeld => "not held",
    }
}
