//! What the store's log says of each hold and of each place in line. It says nothing about right or wrong.

use super::history::History;
use super::table::{Logged, TableOperation};
use firstcome_core::id::LockName;
use firstcome_core::lock::{ClientId, Fence, Hold, Request, Step, Wait, Waiter};
use std::collections::BTreeMap;

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Its time was over.
    Over,
    /// It was given up.
    GivenUp,
    /// Something else took it away before its time.
    TakenAway,
    /// The store forgot it.
    Forgotten,
}

/// One hold, from its grant to its end.
#[derive(Clone, Debug)]
pub struct HoldStory {
    /// Which lock.
    pub name: LockName,
    /// The waiter that got it.
    pub waiter: Waiter,
    /// Its first fence.
    pub fence: Fence,
    /// When it was granted.
    pub at: i64,
    /// Whether it was granted to a client that waited.
    pub from_line: bool,
    /// When its end was set, and to which instant of the world if the store's clock runs evenly.
    pub ends: Vec<(i64, i64)>,
    /// When and how it ended.
    pub ended: Option<(i64, End)>,
    /// A client that was before it in line and was left there.
    pub overtook: Option<Request>,
    /// For how long the store had not heard of the process, in µs of its clock; `None` if it never had.
    pub silence_us: Option<u64>,
    /// A renewal by others changed it.
    pub renewed_by_others: bool,
}

/// How a place in line ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Out {
    /// By the grant.
    Granted,
    /// It was given up.
    Withdrawn,
    /// It was passed over, after so long a silence in µs of the store's clock; `None` if never heard of.
    PassedOver(Option<u64>),
    /// The store forgot it.
    Forgotten,
}

/// One place in line.
#[derive(Clone, Debug)]
pub struct WaiterStory {
    /// Which lock.
    pub name: LockName,
    /// Whose.
    pub request: Request,
    /// Its number in the line.
    pub number: u64,
    /// When it got in line.
    pub at: i64,
    /// Whether a waiter that had come before it stood behind it already.
    pub jumped: bool,
    /// When and how it left.
    pub out: Option<(i64, Out)>,
}

/// All holds and all places.
#[derive(Default)]
pub struct Ledger {
    /// In the order of their grants.
    pub holds: Vec<HoldStory>,
    /// In the order of their arrival.
    pub places: Vec<WaiterStory>,
    rate_ppm: i64,
    open: BTreeMap<LockName, (usize, u64)>,
    lines: BTreeMap<LockName, BTreeMap<u64, usize>>,
    lives: BTreeMap<(u8, ClientId), u64>,
    // Left the line in this step, and when, for a reason that is not known yet.
    leaving: Vec<(usize, i64)>,
    step: Option<Step>,
}

impl Ledger {
    /// Reads the log.
    pub fn read(history: &History) -> Self {
        let mut ledger = Self { rate_ppm: history.store_rate_ppm, ..Self::default() };
        for entry in &history.log {
            ledger.take(entry);
        }
        ledger.pass_over();
        ledger
    }

    fn take(&mut self, entry: &Logged) {
        match &entry.what {
            TableOperation::Step(step) => {
                self.pass_over();
                self.step = Some(step.clone());
            }
            TableOperation::Hold(name, hold) => self.hold(entry, name, hold),
            TableOperation::Free(name) => {
                self.pass_over();
                self.end(entry, name);
            }
            TableOperation::InLine(name, number, waiter) => self.in_line(entry, name, *number, waiter),
            TableOperation::OutOfLine(name, number) => {
                let Some(place) = self.lines.get_mut(name).and_then(|line| line.remove(number)) else { return };
                let silence_us = self.silence_us(entry, self.places[place].request.client);
                self.places[place].out = Some((entry.at, Out::PassedOver(silence_us)));
                self.leaving.push((place, entry.at));
            }
            TableOperation::Life(client, life) => {
                self.lives.insert((entry.bucket, *client), life.seen_us);
            }
            TableOperation::Flush => self.flush(entry),
        }
    }

    fn hold(&mut self, entry: &Logged, name: &LockName, hold: &Hold) {
        let left_us = hold.expires_us as i64 - entry.store_us as i64;
        let end = entry.at + left_us - left_us * self.rate_ppm / 1_000_000;
        let request = hold.waiter.request;
        if let Some((open, expires_us)) = self.open.get_mut(name)
            && self.holds[*open].waiter.request == request
            && self.holds[*open].fence == hold.fence
        {
            let story = &mut self.holds[*open];
            let by_others = match &self.step {
                Some(Step::Renew { renewals, .. }) => renewals.iter().all(|renewal| renewal.request != request),
                _ => false,
            };
            // A clock that was set back shortens a hold in any step.
            story.renewed_by_others |= by_others && *expires_us < hold.expires_us;
            story.ends.push((entry.at, end));
            *expires_us = hold.expires_us;
            return;
        }
        let granted = self.leaving.iter().position(|(place, _)| self.places[*place].request == request);
        let granted = granted.map(|at| self.leaving.remove(at).0);
        if let Some(place) = granted {
            self.places[place].out = Some((entry.at, Out::Granted));
        }
        self.pass_over();
        self.end(entry, name);
        let first = self.lines.get(name).and_then(|line| line.values().next().copied());
        let overtook =
            first.filter(|first| granted.is_none_or(|place| self.places[*first].number < self.places[place].number));
        self.open.insert(name.clone(), (self.holds.len(), hold.expires_us));
        self.holds.push(HoldStory {
            name: name.clone(),
            waiter: hold.waiter.clone(),
            fence: hold.fence,
            at: entry.at,
            from_line: granted.is_some(),
            ends: vec![(entry.at, end)],
            ended: None,
            overtook: overtook.map(|place| self.places[place].request),
            silence_us: self.silence_us(entry, request.client),
            renewed_by_others: false,
        });
    }

    fn in_line(&mut self, entry: &Logged, name: &LockName, number: u64, waiter: &Waiter) {
        let line = self.lines.entry(name.clone()).or_default();
        let is_new = matches!(&self.step, Some(Step::Acquire { wait: Wait::Yes, .. }));
        let jumped = is_new && line.last_key_value().is_some_and(|(last, _)| number < *last);
        line.insert(number, self.places.len());
        let (name, request) = (name.clone(), waiter.request);
        self.places.push(WaiterStory { name, request, number, at: entry.at, jumped, out: None });
    }

    fn silence_us(&self, entry: &Logged, client: ClientId) -> Option<u64> {
        self.lives.get(&(entry.bucket, client)).map(|seen_us| seen_us.abs_diff(entry.store_us))
    }

    /// A client that left the line in this step and was not granted the lock was passed over, unless it gave up.
    fn pass_over(&mut self) {
        for (place, at) in std::mem::take(&mut self.leaving) {
            let place = &mut self.places[place];
            if matches!(&self.step, Some(Step::Release { request, .. }) if *request == place.request) {
                place.out = Some((at, Out::Withdrawn));
            }
        }
    }

    fn end(&mut self, entry: &Logged, name: &LockName) {
        let Some((open, expires_us)) = self.open.remove(name) else { return };
        let given_up = match &self.step {
            Some(Step::Release { request, .. }) => *request == self.holds[open].waiter.request,
            _ => false,
        };
        let how = match () {
            () if expires_us <= entry.store_us => End::Over,
            () if given_up => End::GivenUp,
            () => End::TakenAway,
        };
        self.holds[open].ended = Some((entry.at, how));
    }

    fn flush(&mut self, entry: &Logged) {
        for (open, _) in std::mem::take(&mut self.open).into_values() {
            self.holds[open].ended = Some((entry.at, End::Forgotten));
        }
        for place in std::mem::take(&mut self.lines).into_values().flat_map(BTreeMap::into_values) {
            self.places[place].out = Some((entry.at, Out::Forgotten));
        }
        self.lives.clear();
    }
}
