//! Every way in which two or three processes and one lock can go, within bounds, over the real rules.
//!
//! A search of its own: the state is cloned, changed by one action, and kept if its digest is new. What a library for it
//! would bring (a web explorer that cannot be left out, threads, a random source) is more than the search itself.
//!
//! In every state at most one process believes that it has the lock, or no more than may share it, and fences grow. From every
//! state in which nothing more may go wrong, the world goes on without faults, and then everybody gets the lock or a word, and nothing is left.

use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{
    self, Acquired, Answer, Ask, Call, Client, ClientId, Copies, Failed, Hold, LockAnswer, LockReply, LockTable, Mode,
    Place, Push, Request, Session, Settings, Step, Wait, Waiter, Watch,
};
use firstcome_core::time::Steady;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How long to wait, and how to hold.
type Wish = (u32, Mode);

const ALONE: Wish = (9_000, Mode::ALONE);
const READ: Wish = (9_000, Mode::Shared { permits: 1_000 });
const PERMIT: Wish = (9_000, Mode::Shared { permits: 2 });

/// The state of a bucket, so small that it can be cloned and digested.
#[derive(Clone, Default, Hash)]
struct SmallLockTable {
    last: u64,
    hold: Option<Hold>,
    line: BTreeMap<Place, Waiter>,
    lives: BTreeMap<ClientId, Session>,
    voids: BTreeSet<Request>,
    granted: u64,
}

impl LockTable for SmallLockTable {
    fn last(&self) -> u64 {
        self.last
    }

    fn set_last(&mut self, last: u64) {
        self.last = last;
    }

    fn hold(&self, _: &LockName) -> Option<Hold> {
        self.hold.clone()
    }

    fn put_hold(&mut self, _: &LockName, hold: Hold) {
        let holds = |before: &Hold| {
            // Of those who share the lock, another one may be the first now.
            let goes_on =
                |request| request == before.waiter.request || before.others.iter().any(|o| o.waiter.request == request);
            goes_on(hold.waiter.request) || hold.others.iter().any(|other| goes_on(other.waiter.request))
        };
        if !self.hold.as_ref().is_some_and(holds) {
            assert!(self.granted < hold.fence.get(), "the fence does not grow");
            self.granted = hold.fence.get();
        }
        self.hold = Some(hold);
    }

    fn remove_hold(&mut self, _: &LockName) {
        self.hold = None;
    }

    fn first(&self, _: &LockName) -> Option<(Place, Waiter)> {
        self.line.first_key_value().map(|(place, waiter)| (*place, waiter.clone()))
    }

    fn first_exclusive(&self, _: &LockName) -> Option<(Place, Waiter)> {
        let mut exclusive = self.line.iter().filter(|(place, _)| !place.is_shared());
        exclusive.next().map(|(place, waiter)| (*place, waiter.clone()))
    }

    fn place_of(&self, _: &LockName, request: Request) -> Option<Place> {
        self.line.iter().find(|(_, waiter)| waiter.request == request).map(|(place, _)| *place)
    }

    fn is_taken(&self, _: &LockName, place: Place) -> bool {
        self.line.contains_key(&place)
    }

    fn push(&mut self, _: &LockName, place: Place, waiter: Waiter) {
        self.line.insert(place, waiter);
    }

    fn remove(&mut self, _: &LockName, place: Place) {
        self.line.remove(&place);
    }

    fn waiters(&self, _: &LockName) -> u32 {
        self.line.len() as u32
    }

    fn ahead(&self, _: &LockName, place: Place) -> u32 {
        self.line.range(..place).count() as u32
    }

    fn life(&self, client: ClientId) -> Option<Session> {
        self.lives.get(&client).copied()
    }

    fn put_life(&mut self, client: ClientId, life: Session) {
        self.lives.insert(client, life);
    }

    fn is_void(&self, request: Request, _: u64) -> bool {
        self.voids.contains(&request)
    }

    fn put_void(&mut self, request: Request, _: u64, _: u64) {
        self.voids.insert(request);
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Message {
    Call { from: usize, call: u64, step: Step, is_copy: bool },
    Answer { to: usize, call: u64, answer: Result<Answer, Failed> },
    Push(Push),
}

#[derive(Clone, Hash)]
struct Process {
    client: Client,
    mode: Mode,
    is_paused: bool,
    is_dead: bool,
    request: u64,
    deadline: Option<Steady>,
    has_given_up: bool,
    is_over: bool,
}

/// What may still go wrong or happen.
#[derive(Clone, Copy, Hash)]
struct Budget {
    instants: u32,
    losses: u32,
    doubles: u32,
    kills: u32,
    pauses: u32,
}

#[derive(Clone)]
struct World {
    now_us: i64,
    processes: Vec<Process>,
    table: SmallLockTable,
    messages: Vec<Message>,
    budget: Budget,
    // How it came to this: told when something is wrong.
    path: Vec<Action>,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Deliver(usize),
    Lose(usize),
    Double(usize),
    Pass,
    Release(usize),
    Kill(usize),
    Pause(usize),
    Resume(usize),
}

const LEASE_MS: u32 = 600;
const INSTANT_US: i64 = 250_000;

fn name() -> LockName {
    LockName::parse("l").unwrap()
}

fn owner() -> OwnerName {
    OwnerName::parse("o").unwrap()
}

impl World {
    fn new(wishes: &[Wish], budget: Budget) -> Self {
        let mut world = Self {
            now_us: 1_000_000,
            processes: Vec::new(),
            table: SmallLockTable::default(),
            messages: Vec::new(),
            budget,
            path: Vec::new(),
        };
        for (at, &(wait_ms, mode)) in wishes.iter().enumerate() {
            let mut client = Client::new(ClientId(at as u64 + 1), Settings::default());
            let ask = Ask { name: name(), owner: owner(), wait_ms, lease_ms: LEASE_MS, mode, watch: Watch::Renew };
            let request = client.ask(ask, world.now());
            let (is_paused, is_dead, has_given_up, is_over) = (false, false, false, false);
            let process = Process { client, mode, is_paused, is_dead, request, deadline: None, has_given_up, is_over };
            world.processes.push(process);
            world.drain(at);
        }
        world
    }

    fn now(&self) -> Steady {
        Steady::from_us(self.now_us)
    }

    fn drain(&mut self, at: usize) {
        let process = &mut self.processes[at];
        while let Some(Call { id, step }) = process.client.next_call() {
            self.messages.push(Message::Call { from: at, call: id, step, is_copy: false });
        }
        while let Some((number, told)) = process.client.next_reply() {
            assert_eq!(number, process.request);
            assert!(!process.is_over, "a word after the last one: {told:?}");
            match told {
                LockReply::Granted { deadline, .. } | LockReply::Renewed { deadline } => {
                    process.deadline = Some(deadline);
                }
                _ => (process.deadline, process.is_over) = (None, true),
            }
        }
        self.at_most_one_believes();
    }

    fn believes(&self, process: &Process) -> bool {
        !process.is_dead && process.deadline.is_some_and(|deadline| self.now() < deadline)
    }

    fn at_most_one_believes(&self) {
        let believing = self.processes.iter().filter(|process| self.believes(process));
        let modes: Vec<Mode> = believing.map(|process| process.mode).collect();
        let together = modes.iter().map(|mode| match mode {
            Mode::Exclusive { .. } => 1,
            Mode::Shared { permits } => *permits as usize,
        });
        let most = if modes.iter().all(|mode| mode.is_shared()) { together.max().unwrap_or(1) } else { 1 };
        assert!(modes.len() <= most, "too many believe that they have the lock: {:?}", self.path);
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (at, message) in self.messages.iter().enumerate() {
            let is_reachable = match message {
                Message::Call { .. } => true,
                Message::Answer { to, .. } => !self.processes[*to].is_paused,
                Message::Push(push) => !self.processes[push.grant.request.client.0 as usize - 1].is_paused,
            };
            if is_reachable {
                actions.push(Action::Deliver(at));
            }
            if 0 < self.budget.losses {
                actions.push(Action::Lose(at));
            }
            if 0 < self.budget.doubles && !matches!(message, Message::Answer { .. }) {
                actions.push(Action::Double(at));
            }
        }
        if 0 < self.budget.instants {
            actions.push(Action::Pass);
        }
        for (at, process) in self.processes.iter().enumerate().filter(|(_, process)| !process.is_dead) {
            if process.is_paused {
                actions.push(Action::Resume(at));
                continue;
            }
            if !process.has_given_up && !process.is_over {
                actions.push(Action::Release(at));
            }
            if 0 < self.budget.kills {
                actions.push(Action::Kill(at));
            }
            if 0 < self.budget.pauses {
                actions.push(Action::Pause(at));
            }
        }
        actions
    }

    fn act(&mut self, action: Action) {
        self.path.push(action);
        match action {
            Action::Deliver(at) => self.deliver(at),
            Action::Lose(at) => {
                self.budget.losses -= 1;
                match self.messages.remove(at) {
                    Message::Call { from, call, is_copy: false, .. } | Message::Answer { to: from, call, .. } => {
                        self.messages.push(Message::Answer { to: from, call, answer: Err(Failed::Unknown) });
                    }
                    Message::Call { .. } | Message::Push(_) => {}
                }
            }
            Action::Double(at) => {
                self.budget.doubles -= 1;
                let mut copy = self.messages[at].clone();
                if let Message::Call { is_copy, .. } = &mut copy {
                    *is_copy = true;
                }
                self.messages.push(copy);
            }
            Action::Pass => {
                self.budget.instants -= 1;
                self.pass();
            }
            Action::Release(at) => self.release(at),
            Action::Kill(at) => {
                self.budget.kills -= 1;
                self.processes[at].is_dead = true;
                self.messages.retain(|message| !matches!(message, Message::Answer { to, .. } if *to == at));
            }
            Action::Pause(at) => {
                self.budget.pauses -= 1;
                self.processes[at].is_paused = true;
            }
            Action::Resume(at) => self.resume(at),
        }
    }

    fn release(&mut self, at: usize) {
        let (now, number) = (self.now(), self.processes[at].request);
        let had = self.processes[at].deadline.take();
        self.processes[at].has_given_up = true;
        // A client that gives up before it has the lock is told nothing more.
        self.processes[at].is_over |= had.is_none();
        self.processes[at].client.release(number, now);
        self.drain(at);
    }

    fn resume(&mut self, at: usize) {
        self.processes[at].is_paused = false;
        let now = self.now();
        self.processes[at].client.tick(now);
        self.drain(at);
    }

    fn pass(&mut self) {
        self.now_us += INSTANT_US;
        for at in 0..self.processes.len() {
            if !self.processes[at].is_paused && !self.processes[at].is_dead {
                self.resume(at);
            }
        }
    }

    fn deliver(&mut self, at: usize) {
        let now = self.now();
        match self.messages.remove(at) {
            Message::Call { from, call, step, is_copy } => {
                let (answer, pushes) = lock::take(&mut self.table, &step, self.now_us as u64);
                if !is_copy && !self.processes[from].is_dead {
                    self.messages.push(Message::Answer { to: from, call, answer: Ok(answer) });
                }
                let processes = &self.processes;
                let is_alive = |push: &Push| !processes[push.grant.request.client.0 as usize - 1].is_dead;
                self.messages.extend(pushes.into_iter().filter(is_alive).map(Message::Push));
            }
            Message::Answer { to, call, answer } => {
                self.processes[to].client.answered(call, answer, now);
                self.drain(to);
            }
            Message::Push(push) => {
                let to = push.grant.request.client.0 as usize - 1;
                if !self.processes[to].is_dead {
                    self.processes[to].client.pushed(&push, now);
                    self.drain(to);
                }
            }
        }
    }

    fn digest(&self) -> u128 {
        // What is under way is a set: it may arrive in any order.
        let mut messages: Vec<u64> = self.messages.iter().map(|message| digest(0, message)).collect();
        messages.sort_unstable();
        let state = (self.now_us, &self.processes, &self.table, messages, self.budget);
        u128::from(digest(0, &state)) << 64 | u128::from(digest(1, &state))
    }

    /// Goes on without faults: everything arrives, and a client that has the lock gives it up. Everybody must come to an end
    /// before its wait is over, and then nothing is left.
    fn goes_well(mut self) {
        for at in 0..self.processes.len() {
            if self.processes[at].is_paused {
                self.resume(at);
            }
        }
        for _ in 0..40 {
            while !self.messages.is_empty() {
                self.deliver(0);
            }
            for at in 0..self.processes.len() {
                if self.believes(&self.processes[at]) {
                    self.release(at);
                }
            }
            if self.messages.is_empty() {
                self.pass();
            }
        }
        for process in self.processes.iter().filter(|process| !process.is_dead) {
            assert!(process.is_over && process.client.is_empty(), "somebody is stuck: {:?}", self.path);
        }
        let request = Request { client: ClientId(9), number: 1 };
        let waiter = Waiter { request, owner: owner(), lease_ms: LEASE_MS, mode: Mode::ALONE };
        let acquire = Step::Acquire { name: name(), waiter, wait: Wait::No };
        let (answer, _) = lock::take(&mut self.table, &acquire, self.now_us as u64);
        assert!(
            matches!(answer.said, LockAnswer::Acquired(Acquired::Granted(_))),
            "not free: {answer:?} {:?}",
            self.path
        );
        let release = Step::Release { name: name(), request, copies: Copies::One };
        lock::take(&mut self.table, &release, self.now_us as u64);
        assert!(self.table.hold.is_none() && self.table.line.is_empty(), "something is left: {:?}", self.path);
    }
}

fn digest(salt: u8, what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    salt.hash(&mut hasher);
    what.hash(&mut hasher);
    hasher.finish()
}

/// Plays everything that can happen; returns how many states there are, and how many of them are ends.
fn explore(wishes: &[Wish], budget: Budget) -> (usize, usize) {
    let first = World::new(wishes, budget);
    let mut known = HashSet::with_hasher(std::hash::BuildHasherDefault::<DefaultHasher>::default());
    known.insert(first.digest());
    let mut open = vec![first];
    let mut ends = 0;
    // Depth first: what is open stays small.
    while let Some(world) = open.pop() {
        if world.budget.instants == 0 {
            ends += 1;
            world.goes_well();
            continue;
        }
        for action in world.actions() {
            let mut next = world.clone();
            next.act(action);
            if known.insert(next.digest()) {
                open.push(next);
            }
        }
    }
    (known.len(), ends)
}

#[test]
fn no_way_of_few_processes_and_one_lock_leads_to_two_holders_or_to_none_for_ever() {
    let calm = Budget { instants: 3, losses: 0, doubles: 0, kills: 0, pauses: 0 };
    let rows = [
        (&[ALONE, ALONE][..], calm),
        (&[ALONE, ALONE], Budget { instants: 2, losses: 1, ..calm }),
        (&[ALONE, ALONE, ALONE], Budget { instants: 1, ..calm }),
        (&[ALONE, ALONE], Budget { instants: 2, doubles: 1, ..calm }),
        (&[ALONE, ALONE], Budget { instants: 2, kills: 1, pauses: 1, ..calm }),
        (&[ALONE, READ], Budget { instants: 2, losses: 1, ..calm }),
        (&[READ, ALONE, READ], Budget { instants: 1, ..calm }),
        (&[READ, ALONE], Budget { instants: 2, kills: 1, pauses: 1, ..calm }),
        (&[PERMIT, PERMIT, PERMIT], Budget { instants: 1, ..calm }),
    ];
    for (wishes, budget) in rows {
        let (states, ends) = explore(wishes, budget);
        println!("{wishes:?}: {states} states, {ends} ends");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_search_finds_a_bug_that_is_planted() {
    use firstcome_core::planted::{Bug, plant};
    // Who gives up in line takes the lock from its holder: a third one must wait to be given it.
    let budget = Budget { instants: 1, losses: 0, doubles: 0, kills: 0, pauses: 0 };
    let rows = [(Bug::AnybodyReleases, ALONE), (Bug::FenceStands, ALONE), (Bug::TooManyShare, PERMIT)];
    for (bug, wish) in rows {
        plant(Some(bug));
        let found = std::panic::catch_unwind(|| explore(&[wish; 3], budget)).is_err();
        plant(None);
        assert!(found, "{bug:?} was not found");
    }
}
