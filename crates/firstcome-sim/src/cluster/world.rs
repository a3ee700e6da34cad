//! One run: faults first, then everything heals, the operator accepts what is lost, and every user asks again.

use super::history::{CHECK_EVERY, ClusterReply, History};
use super::node::{Known, Node, Reach, Shared, World as Handle};
use super::redis::{Redis, SimSequencer};
use super::sql::{Sql, User};
use super::tasks::Tasks;
use crate::Play;
use crate::invariants::{self, NodesEvidence, Violation};
use crate::report::Report;
use crate::rng::Rng;
use std::cell::RefCell;
use std::rc::Rc;

/// Steps after the heal in which everything must come to rest.
const HEAL_STEPS_MAX: u64 = 60_000;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    NodeDies,
    RedisDies,
    RedisForgets,
    RedisGoesBack,
    RedisUnfit,
    RedisMended,
    SqlDies,
    SqlGoesBack,
    ServerSlow,
    BackupMade,
    LossAccepted,
}

/// How one run is set up.
struct Plan {
    steps: u64,
    users: u32,
    early_per_mille: u64,
    ask_per_mille: u64,
    fault_per_mille: u64,
    weights: [(Fault, u64); 11],
}

impl Plan {
    fn draw(rng: &mut Rng) -> Self {
        let mut weight = |most: u64| if rng.chance(400) { 0 } else { rng.range(1, most) };
        let weights = [
            (Fault::NodeDies, weight(4)),
            (Fault::RedisDies, weight(4)),
            (Fault::RedisForgets, weight(2)),
            (Fault::RedisGoesBack, weight(2)),
            (Fault::RedisUnfit, weight(4)),
            (Fault::RedisMended, weight(2)),
            (Fault::SqlDies, weight(4)),
            (Fault::SqlGoesBack, weight(3)),
            (Fault::ServerSlow, weight(4)),
            (Fault::BackupMade, 6),
            (Fault::LossAccepted, 2),
        ];
        Self {
            steps: rng.range(300, 1_500),
            users: rng.range(4, 40) as u32,
            early_per_mille: *rng.pick(&[0, 300, 1_000]),
            ask_per_mille: rng.range(20, 150),
            fault_per_mille: *rng.pick(&[2, 8, 20]),
            weights,
        }
    }
}

/// Everything that a seed brings into being.
pub struct World {
    seed: u64,
    rng: Rng,
    plan: Plan,
    shared: Handle,
    tasks: Tasks,
    tags: u64,
    sql_backup: Sql,
    redis_backup: Option<SimSequencer>,
}

impl World {
    /// The world of a seed: an empty sequencer, and one coupon in the database.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let plan = Plan::draw(&mut rng);
        let (limit, nodes) = (rng.range(2, 30) as u32, rng.range(1, 3) as usize);
        let lost_per_mille = *rng.pick(&[0, 0, 20, 100]);
        let reach = |delay| Reach { is_up: true, runs: 0, delay, lost_per_mille };
        let sql = Sql::new(limit);
        let shared = Shared {
            redis: (reach(rng.range(0, 4)), Redis::new()),
            sql: (reach(rng.range(0, 8)), sql.clone()),
            nodes: vec![Known::default(); nodes],
            history: History::default(),
            report: Report::default(),
            spawned: Vec::new(),
            rng: rng.fork(),
        };
        let shared = Rc::new(RefCell::new(shared));
        Self { seed, rng, plan, shared, tasks: Tasks::default(), tags: 0, sql_backup: sql, redis_backup: None }
    }

    fn user(&mut self) -> User {
        self.rng.below(u64::from(self.plan.users)) as User
    }

    fn ask(&mut self, user: User, is_early: bool) {
        self.tags += 1;
        let at = self.rng.index(self.shared.borrow().nodes.len());
        let node = Node::new(Rc::clone(&self.shared), at);
        self.tasks.spawn(at, Box::pin(node.claim(user, self.tags, is_early)));
    }

    fn step(&mut self, is_checked: bool) {
        let now = {
            let shared = &mut *self.shared.borrow_mut();
            shared.history.now += 1;
            shared.history.now
        };
        // Half of the time that the promise names: a look takes its time too.
        if is_checked && now.is_multiple_of(CHECK_EVERY / 4) {
            for at in 0..self.shared.borrow().nodes.len() {
                self.tasks.spawn(at, Box::pin(Node::new(Rc::clone(&self.shared), at).check()));
            }
        }
        for _ in 0..=self.tasks.len() / 8 {
            self.tasks.step(&mut self.rng);
        }
        for (node, task) in self.shared.borrow_mut().spawned.drain(..) {
            self.tasks.spawn(node, task);
        }
    }

    fn fault(&mut self, fault: Fault) {
        let shared = &mut *self.shared.borrow_mut();
        let is_accepted = shared.nodes.iter().any(|node| node.stands_still);
        if matches!(fault, Fault::LossAccepted) && !is_accepted {
            return;
        }
        shared.report.count("node fault", name(fault));
        match fault {
            Fault::NodeDies => {
                let at = self.rng.index(shared.nodes.len());
                shared.nodes[at] = Known::default();
                self.tasks.kill(at);
            }
            Fault::RedisDies | Fault::RedisForgets | Fault::RedisGoesBack => {
                let before = shared.redis.1.sequencer().cloned();
                match fault {
                    Fault::RedisDies => shared.redis.1.restart(),
                    Fault::RedisForgets => shared.redis.1.restore(None),
                    _ => shared.redis.1.restore(self.redis_backup.clone()),
                }
                shared.redis.0.runs += 1;
                let since = shared.history.unfit_since;
                let lost: Vec<u64> = History::lost(before.as_ref(), shared.redis.1.sequencer()).collect();
                if fault == Fault::RedisDies {
                    shared.history.crashed.extend(lost.into_iter().map(|tag| (tag, since)));
                } else {
                    shared.history.forgotten.extend(lost);
                }
            }
            Fault::RedisUnfit if shared.redis.1.is_fit => {
                shared.redis.1.is_fit = false;
                shared.history.unfit_since = shared.history.now;
            }
            Fault::RedisUnfit => {}
            Fault::RedisMended => shared.redis.1.rebuild(),
            Fault::SqlDies => shared.sql.0.runs += 1,
            Fault::SqlGoesBack => {
                let before = std::mem::replace(&mut shared.sql.1, self.sql_backup.clone());
                shared.sql.0.runs += 1;
                shared.history.restored(&before, &shared.sql.1);
            }
            Fault::ServerSlow => {
                let delay = *self.rng.pick(&[0, 3, 30]);
                if self.rng.chance(500) { shared.sql.0.delay = delay } else { shared.redis.0.delay = delay }
            }
            Fault::BackupMade => {
                self.sql_backup = shared.sql.1.clone();
                self.redis_backup = shared.redis.1.sequencer().cloned();
            }
            Fault::LossAccepted => accept_loss(shared),
        }
    }

    /// Ends all faults, and lets every user ask until it has an answer.
    fn heal(&mut self) -> Result<(), Violation> {
        {
            let shared = &mut *self.shared.borrow_mut();
            for reach in [&mut shared.redis.0, &mut shared.sql.0] {
                (reach.is_up, reach.lost_per_mille, reach.delay) = (true, 0, 2);
            }
            shared.redis.1.rebuild();
        }
        let users: Vec<User> = (0..self.plan.users).collect();
        for user in users {
            let mut is_told = false;
            for _ in 0..8 {
                self.ask(user, false);
                self.rest()?;
                let shared = &mut *self.shared.borrow_mut();
                let told = shared.history.answers.iter().rev().find(|answer| answer.tag == self.tags);
                match told.map(|answer| answer.told) {
                    Some(ClusterReply::Issued(_) | ClusterReply::SoldOut) => is_told = true,
                    Some(ClusterReply::WentBack) => accept_loss(shared),
                    _ => {}
                }
                if is_told {
                    break;
                }
            }
            if !is_told {
                let detail = format!("user {user} has no answer though everything works");
                return Err(Violation::new("liveness", self.seed, detail));
            }
        }
        Ok(())
    }

    /// Lets all calls come to their ends.
    fn rest(&mut self) -> Result<(), Violation> {
        for _ in 0..HEAL_STEPS_MAX {
            if self.tasks.is_empty() {
                return Ok(());
            }
            self.step(false);
        }
        Err(Violation::new("liveness", self.seed, "calls do not come to an end though everything works"))
    }

    fn check_invariants(&self, phase: Phase) -> Result<(), Violation> {
        let shared = self.shared.borrow();
        let stored = (phase == Phase::Healed).then_some(&shared.sql.1);
        invariants::check_nodes(&NodesEvidence { seed: self.seed, history: &shared.history, stored })
    }
}

impl Play for World {
    fn run(&mut self) -> Result<Report, Violation> {
        for _ in 0..self.plan.steps {
            if self.rng.chance(self.plan.fault_per_mille) {
                let fault = *self.rng.pick_by_weight(&self.plan.weights);
                self.fault(fault);
            }
            if self.rng.chance(self.plan.ask_per_mille) {
                let (user, is_early) = (self.user(), self.rng.chance(self.plan.early_per_mille));
                self.ask(user, is_early);
            }
            self.step(true);
        }
        self.check_invariants(Phase::Faulty)?;
        self.heal()?;
        self.check_invariants(Phase::Healed)?;
        let shared = &mut *self.shared.borrow_mut();
        let Sql { row, .. } = &shared.sql.1;
        for word in [row.generation as u64, row.position, u64::from(row.issued), shared.history.now] {
            shared.report.trace(word);
        }
        Ok(std::mem::take(&mut shared.report))
    }

    /// Nothing: a panic may leave what the calls share half changed.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Faulty,
    Healed,
}

/// The operator goes on without what is gone. Everything that waits in the sequencer goes with it.
fn accept_loss(shared: &mut Shared) {
    let known = shared.redis.1.sequencer().map_or(0, |sequencer| sequencer.generation);
    shared.sql.1.accept_loss(known);
    shared.history.accepted_at = Some(shared.history.now);
    shared.report.count("node", "loss accepted");
}

const fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::NodeDies => "a node dies",
        Fault::RedisDies => "redis dies",
        Fault::RedisForgets => "redis forgets",
        Fault::RedisGoesBack => "redis goes back",
        Fault::RedisUnfit => "redis becomes unfit",
        Fault::RedisMended => "redis is fit again",
        Fault::SqlDies => "the database dies",
        Fault::SqlGoesBack => "the database goes back",
        Fault::ServerSlow => "a server is slow or fast",
        Fault::BackupMade => "a backup is made",
        Fault::LossAccepted => "the operator accepts the loss",
    }
}
