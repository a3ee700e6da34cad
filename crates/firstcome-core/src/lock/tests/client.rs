//! The client of a process, against the real rules, over a network that delivers, delays, loses and doubles on demand.
//!
//! [`Net`] plays all of it in virtual time: nothing here waits, and the same run always goes the same way. It checks at every
//! instant that a process that was told to hold a lock does, and that no request has two final replies.

mod asking;
mod failing;
mod heartbeat;
mod holding;
mod leaving;
mod random;

use super::*;
use crate::lock::client::{Ask, Call, Failed, LockReply, Settings, Watch};
use crate::time::Steady;
use std::collections::{BTreeMap, BTreeSet};

/// The start of the processes' steady clock: a number that no process can take for the store's clock.
const STEADY_US: i64 = 7_000_000_000;

/// The fate of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallFate {
    /// The call and its answer arrive.
    Good,
    /// The store refuses the call, and the process gets that answer.
    Refused,
    /// The call does not arrive.
    StepLost,
    /// The store does the step, but its answer is lost.
    AnswerLost,
    /// The sender gives the call up, and it arrives so many milliseconds later.
    Late(u64),
}

#[derive(Debug)]
enum Mail {
    Step { client: usize, call: Call, way: CallFate },
    Answer { client: usize, id: u64, answer: Result<Answer, Failed> },
    Push { client: usize, push: Push },
}

struct HeldNow {
    name: LockName,
    fence: Fence,
    deadline: Steady,
}

/// Processes, a store, and the network between them.
pub(super) struct Net {
    now_us: u64,
    tables: BTreeMap<u8, MemoryLockTable<RandomState>>,
    clients: Vec<Option<Client>>,
    mail: BTreeMap<(u64, u64), Mail>,
    sent: u64,
    /// The delays of a call and of its answer.
    pub(super) delay_ms: (u64, u64),
    way: CallFate,
    pub(super) lose_pushes: bool,
    /// How much faster the store's clock runs than those of the processes, in parts per million.
    rate_ppm: i64,
    /// How far an operator has set the store's clock.
    set_by_us: i64,
    chance: Option<Chance>,
    held: BTreeMap<(usize, u64), HeldNow>,
    told: Vec<(u64, usize, u64, LockReply)>,
    ended: BTreeSet<(usize, u64)>,
    /// The steps that were sent, and when.
    calls: Vec<(u64, usize, Step)>,
    wake_ups: u64,
    /// False if the store forgets or its clock jumps: then only fences protect.
    checks_holds: bool,
}

pub(super) fn wish(name: &str) -> Ask {
    let owner = OwnerName::parse("somebody").unwrap();
    Ask { name: lock_name(name), owner, wait_ms: 600_000, lease_ms: LEASE_MS, mode: Mode::ALONE, watch: Watch::Renew }
}

fn once(name: &str) -> Ask {
    Ask { wait_ms: 0, ..wish(name) }
}

impl Net {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            now_us: 0,
            tables: BTreeMap::new(),
            clients: (0..clients).map(|id| Some(Client::new(ClientId(id as u64), Settings::default()))).collect(),
            mail: BTreeMap::new(),
            sent: 0,
            delay_ms: (1, 1),
            way: CallFate::Good,
            lose_pushes: false,
            rate_ppm: 0,
            set_by_us: 0,
            chance: None,
            held: BTreeMap::new(),
            told: Vec::new(),
            ended: BTreeSet::new(),
            calls: Vec::new(),
            wake_ups: 0,
            checks_holds: true,
        }
    }

    /// Makes a network in which one process holds lock `a` by its first request, and returns that request's number.
    fn held(clients: usize) -> (Self, u64) {
        let mut net = Self::new(clients);
        let number = net.ask(0, wish("a"));
        net.run_ms(10);
        assert_eq!(net.last(0, number), "granted");
        (net, number)
    }

    fn steady(&self) -> Steady {
        Steady::from_us(STEADY_US + self.now_us as i64)
    }

    /// Returns what the store's clock shows at an instant of the processes' clock.
    pub(super) fn true_us(&self, at: Steady) -> u64 {
        let us = at.as_us() - STEADY_US;
        START_US.saturating_add_signed(us + us * self.rate_ppm / 1_000_000 + self.set_by_us)
    }

    fn server_us(&self) -> u64 {
        self.true_us(self.steady())
    }

    fn client(&mut self, at: usize) -> &mut Client {
        self.clients[at].as_mut().expect("it lives")
    }

    pub(super) fn ask(&mut self, at: usize, ask: Ask) -> u64 {
        let now = self.steady();
        let number = self.client(at).ask(ask, now);
        self.collect();
        number
    }

    pub(super) fn release(&mut self, at: usize, number: u64) {
        let now = self.steady();
        self.held.remove(&(at, number));
        self.client(at).release(number, now);
        self.collect();
    }

    fn drop_request(&mut self, at: usize, number: u64) {
        let now = self.steady();
        self.held.remove(&(at, number));
        self.client(at).drop_request(number, now);
        self.collect();
    }

    fn renew(&mut self, at: usize, number: u64, lease_ms: u32) {
        let now = self.steady();
        self.client(at).renew(number, lease_ms, now);
        self.collect();
    }

    /// Ends the process; everything that it would have sent is lost.
    fn kill(&mut self, at: usize) {
        self.clients[at] = None;
        self.held.retain(|(client, _), _| *client != at);
    }

    pub(super) fn hold(&self, name: &str) -> Option<Hold> {
        let name = lock_name(name);
        self.tables.get(&bucket_of(&name))?.hold(&name).filter(|hold| self.server_us() < hold.expires_us)
    }

    /// Returns whether the store knows no holder and no waiter.
    fn nothing_is_left(&self) -> bool {
        self.tables.values().all(MemoryLockTable::is_empty)
    }

    fn waiters(&self, name: &str) -> u32 {
        let name = lock_name(name);
        self.tables.get(&bucket_of(&name)).map_or(0, |table| table.waiters(&name))
    }

    /// Returns the last reply to a request, except for renewals.
    pub(super) fn last(&self, at: usize, number: u64) -> String {
        let of = |(_, client, request, told): &&(u64, usize, u64, LockReply)| {
            (*client, *request) == (at, number) && !matches!(told, LockReply::Renewed { .. })
        };
        self.told.iter().rev().find(of).map_or(String::new(), |(_, _, _, told)| tell(told))
    }

    /// Returns when a request got this reply for the first time, in ms.
    fn told_at_ms(&self, at: usize, number: u64, what: &str) -> Option<u64> {
        let of = |(_, client, request, told): &&(u64, usize, u64, LockReply)| {
            (*client, *request) == (at, number) && tell(told) == what
        };
        self.told.iter().find(of).map(|(us, ..)| us / 1_000)
    }

    pub(super) fn deadline(&self, at: usize, number: u64) -> Steady {
        self.held[&(at, number)].deadline
    }

    /// Counts the steps of this kind that were sent since.
    fn count(&self, since_ms: u64, kind: &str) -> usize {
        self.calls.iter().filter(|(us, _, step)| since_ms * 1_000 <= *us && describe_step(step) == kind).count()
    }

    fn post(&mut self, after_ms: u64, mail: Mail) {
        self.sent += 1;
        self.mail.insert((self.now_us + after_ms * 1_000, self.sent), mail);
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.chance.as_mut().map_or(0, |chance| chance.below(bound))
    }

    /// Chooses the fate of the next call.
    fn next_way(&mut self) -> (u64, CallFate) {
        let (there_ms, _) = self.delay_ms;
        if self.chance.is_none() || self.way != CallFate::Good {
            return (there_ms, self.way);
        }
        let way = match self.below(40) {
            0 => CallFate::Refused,
            1 => CallFate::StepLost,
            2 => CallFate::AnswerLost,
            3 => CallFate::Late(self.below(4_000).into()),
            _ => CallFate::Good,
        };
        (u64::from(self.below(30)), way)
    }

    fn back_ms(&mut self) -> u64 {
        let (_, back_ms) = self.delay_ms;
        match self.below(20) {
            0 => back_ms,
            1 => self.below(3_000).into(),
            ms => back_ms + u64::from(ms),
        }
    }

    /// Takes the calls and the replies of the processes.
    fn collect(&mut self) {
        for at in 0..self.clients.len() {
            while let Some(call) = self.clients[at].as_mut().and_then(Client::next_call) {
                self.calls.push((self.now_us, at, call.step.clone()));
                let (after_ms, way) = self.next_way();
                self.post(after_ms, Mail::Step { client: at, call, way });
            }
            while let Some((number, told)) = self.clients[at].as_mut().and_then(Client::next_reply) {
                self.on_reply(at, number, told);
            }
        }
    }

    fn on_reply(&mut self, at: usize, number: u64, told: LockReply) {
        let key = (at, number);
        assert!(!self.ended.contains(&key), "{key:?} has ended, and then {told:?}");
        match &told {
            LockReply::Granted { fence, deadline, .. } => {
                let name = self.name_of(at, number);
                let before = self.held.insert(key, HeldNow { name, fence: *fence, deadline: *deadline });
                assert!(before.is_none(), "{key:?} is granted twice");
            }
            LockReply::Renewed { deadline } => self.held.get_mut(&key).expect("it holds").deadline = *deadline,
            _ => {
                self.held.remove(&key);
                self.ended.insert(key);
            }
        }
        self.told.push((self.now_us, at, number, told));
    }

    fn name_of(&self, at: usize, number: u64) -> LockName {
        let names = self.calls.iter().rev().find_map(|(_, client, step)| match step {
            Step::Acquire { name, waiter, .. } if *client == at && waiter.request.number == number => Some(name),
            _ => None,
        });
        names.expect("it asked").clone()
    }

    fn deliver(&mut self, mail: Mail) {
        let now = self.steady();
        match mail {
            Mail::Step { client, call: Call { id, step }, way } => {
                let failed = if way == CallFate::Refused { Failed::Unavailable } else { Failed::Unknown };
                if way == CallFate::Good || way == CallFate::AnswerLost {
                    let answer = self.take(&step);
                    let back_ms = self.back_ms();
                    let answer = if way == CallFate::Good { Ok(answer) } else { Err(failed) };
                    if self.below(20) == 1 {
                        self.post(back_ms + 40, Mail::Answer { client, id, answer: answer.clone() });
                    }
                    return self.post(back_ms, Mail::Answer { client, id, answer });
                }
                self.post(1, Mail::Answer { client, id, answer: Err(failed) });
                if let CallFate::Late(ms) = way {
                    // Under number 0, so that no process recognises the answer.
                    self.post(ms, Mail::Step { client, call: Call { id: 0, step }, way: CallFate::Good });
                }
            }
            Mail::Answer { client, id, answer } => {
                if let Some(client) = &mut self.clients[client] {
                    client.answered(id, answer, now);
                }
            }
            Mail::Push { client, push } => {
                if let Some(client) = &mut self.clients[client] {
                    client.pushed(&push, now);
                }
            }
        }
    }

    fn take(&mut self, step: &Step) -> Answer {
        let now_us = self.server_us();
        let bucket = match step {
            Step::Acquire { name, .. } | Step::Release { name, .. } => bucket_of(name),
            Step::Renew { bucket, renewals } => {
                assert!((1..=RENEWALS_MAX).contains(&renewals.len()), "{} renewals", renewals.len());
                assert!(renewals.iter().all(|renewal| bucket_of(&renewal.name) == *bucket));
                *bucket
            }
            Step::Beat { bucket, names, .. } => {
                assert!(!names.is_empty() && names.iter().all(|name| bucket_of(name) == *bucket));
                *bucket
            }
        };
        let table = self.tables.entry(bucket).or_insert_with(|| MemoryLockTable::new(hasher()));
        let (answer, pushes) = super::take(table, step, now_us);
        for push in pushes {
            let client = push.grant.request.client.0 as usize;
            if self.lose_pushes || self.below(8) == 1 {
                continue;
            }
            if self.below(8) == 1 {
                let later_ms = self.below(2_000);
                self.post(later_ms.into(), Mail::Push { client, push: push.clone() });
            }
            let back_ms = self.back_ms();
            self.post(back_ms, Mail::Push { client, push });
        }
        answer
    }

    /// Checks that a process that believes to hold a lock does.
    fn check_holds(&self) {
        let (now, now_us) = (self.steady(), self.server_us());
        for ((at, number), held) in self.held.iter().filter(|(_, held)| now < held.deadline) {
            let hold = self.tables[&bucket_of(&held.name)].hold(&held.name).expect("somebody holds it");
            assert_eq!(hold.waiter.request, request(*at as u64, *number), "{} is held by", held.name);
            assert_eq!(hold.fence, held.fence);
            assert!(now_us < hold.expires_us, "the holder knows first");
            assert!(self.true_us(held.deadline) <= hold.expires_us, "no deadline is after the end");
        }
    }

    pub(super) fn run_ms(&mut self, ms: u64) {
        let until_us = self.now_us + ms * 1_000;
        let mut here = 0;
        loop {
            let mail_us = self.mail.first_key_value().map(|((due_us, _), _)| *due_us);
            let due = self.clients.iter().flatten().filter_map(Client::next_due).min();
            let due_us = due.map(|due| (due.as_us() - STEADY_US).max(0).unsigned_abs());
            let Some(next_us) = mail_us.into_iter().chain(due_us).min().filter(|us| *us <= until_us) else { break };
            here = if next_us <= self.now_us { here + 1 } else { 0 };
            assert!(here < 100_000, "busy at one instant");
            self.now_us = self.now_us.max(next_us);
            if self.checks_holds {
                self.check_holds();
            }
            if mail_us.is_some_and(|us| us <= self.now_us) {
                let (_, mail) = self.mail.pop_first().expect("there is mail");
                self.deliver(mail);
            } else {
                self.wake_ups += 1;
                let now = self.steady();
                for client in self.clients.iter_mut().flatten() {
                    client.tick(now);
                    assert!(client.next_due().is_none_or(|due| now < due), "a tick does all that is due");
                }
            }
            self.collect();
        }
        self.now_us = until_us;
    }

    /// Gives everything up, and checks that nothing is left anywhere.
    fn end(&mut self) {
        (self.chance, self.way, self.lose_pushes, self.delay_ms) = (None, CallFate::Good, false, (1, 1));
        for at in 0..self.clients.len() {
            let Some(client) = &self.clients[at] else { continue };
            for number in client.numbers() {
                self.drop_request(at, number);
            }
        }
        self.run_ms(10_000);
        assert!(self.mail.is_empty(), "{:?}", self.mail);
        for client in self.clients.iter().flatten() {
            assert_eq!((client.len(), client.is_empty(), client.next_due()), (0, true, None));
            assert!(client.is_idle(), "no bucket, no call and no timer is left");
        }
        let now_us = self.server_us();
        for (_, _, step) in &self.calls {
            // A hold that no process could release stays until a process looks. Waiters of dead processes stay until their turn.
            if let Step::Acquire { name, .. } = step
                && let Some(table) = self.tables.get_mut(&bucket_of(name))
            {
                advance_lock(table, name, ClientId(99), now_us);
            }
        }
        assert!(self.nothing_is_left(), "in the store");
    }
}

/// Numbers that look random, the same in every run.
struct Chance(u64);

impl Chance {
    const fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as u32
    }
}

fn tell(told: &LockReply) -> String {
    match told {
        LockReply::Granted { .. } => "granted".to_owned(),
        LockReply::Renewed { .. } => "renewed".to_owned(),
        LockReply::Contended { holder, waiters, ttl_ms } => format!("contended {holder} {waiters} {ttl_ms} ms"),
        LockReply::TimedOut { ahead } => format!("timed out {ahead:?}"),
        LockReply::Failed(failed) => format!("failed {failed:?}"),
        LockReply::Lost => "lost".to_owned(),
        LockReply::Released => "released".to_owned(),
        LockReply::NotHeld => "not held".to_owned(),
    }
}

const fn describe_step(step: &Step) -> &'static str {
    match step {
        Step::Acquire { .. } => "acquire",
        Step::Release { .. } => "release",
        Step::Renew { .. } => "renew",
        Step::Beat { .. } => "beat",
    }
}
