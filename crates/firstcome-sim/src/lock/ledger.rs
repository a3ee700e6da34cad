//! What the store's log says of each hold and of each place in line. It says nothing about right or wrong.

use super::history::History;
use super::table::{Logged, TableOperation};
use firstcome_core::id::LockName;
use firstcome_core::limits::CLAIM_WINDOW_MS;
use firstcome_core::lock::{ClientId, Fence, Hold, Place, Request, Step, Taken, Wait, Waiter};
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
    /// A client whose turn it was, and that was left in line.
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
    /// Where it stands.
    pub place: Place,
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
    /// The holds of each lock, and when each ends; several only if they share it.
    open: BTreeMap<LockName, Vec<(usize, u64)>>,
    lines: BTreeMap<LockName, BTreeMap<Place, usize>>,
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
                let ended = self.open.remove(name).unwrap_or_default();
                self.end(entry, ended);
            }
            TableOperation::InLine(name, place, waiter) => self.in_line(entry, name, *place, waiter),
            TableOperation::OutOfLine(name, place) => {
                let Some(place) = self.lines.get_mut(name).and_then(|line| line.remove(place)) else { return };
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
        let others = hold.others.iter().map(|other| (&other.waiter, other.taken, other.expires_us));
        let first = (&hold.waiter, hold.taken, hold.expires_us);
        let holders: Vec<(&Waiter, Taken, u64)> = std::iter::once(first).chain(others).collect();
        let before = self.open.remove(name).unwrap_or_default();
        let (stand, ended): (Vec<_>, Vec<_>) = before.into_iter().partition(|(open, _)| {
            let HoldStory { waiter, fence, .. } = &self.holds[*open];
            *fence == hold.fence && holders.iter().any(|(holder, ..)| holder.request == waiter.request)
        });
        let goes_on = !stand.is_empty();
        let was_exclusive = ended.first().is_some_and(|(open, _)| !self.holds[*open].waiter.mode.is_shared());
        self.end(entry, ended);
        self.open.insert(name.clone(), stand);
        for (waiter, taken, expires_us) in holders {
            let left_us = expires_us as i64 - entry.store_us as i64;
            let end = entry.at + left_us - left_us * self.rate_ppm / 1_000_000;
            if !self.goes_on(entry, name, waiter.request, (expires_us, end)) {
                self.begin(entry, name, (waiter, hold.fence, taken), (expires_us, end), (goes_on, was_exclusive));
            }
        }
        self.pass_over();
    }

    /// Notes that a hold stands, if it stood before. Returns whether it did.
    fn goes_on(&mut self, entry: &Logged, name: &LockName, request: Request, (expires_us, end): (u64, i64)) -> bool {
        let open = self.open.get_mut(name).into_iter().flatten();
        let mut open = open.filter(|(open, _)| self.holds[*open].waiter.request == request);
        let Some((open, before_us)) = open.next() else { return false };
        let story = &mut self.holds[*open];
        let by_others = match &self.step {
            Some(Step::Renew { renewals, .. }) => renewals.iter().all(|renewal| renewal.request != request),
            _ => false,
        };
        // A clock that was set back shortens a hold in any step.
        story.renewed_by_others |= by_others && *before_us < expires_us;
        story.ends.push((entry.at, end));
        *before_us = expires_us;
        true
    }

    /// Notes a grant. `goes_on`: others shared the lock before. `was_exclusive`: it ended an exclusive hold.
    fn begin(
        &mut self,
        entry: &Logged,
        name: &LockName,
        (waiter, fence, taken): (&Waiter, Fence, Taken),
        (expires_us, end): (u64, i64),
        (goes_on, was_exclusive): (bool, bool),
    ) {
        let request = waiter.request;
        // A request that asks again may be passed over as dead, and granted the lock anew, in one step.
        let of = |(place, _): &(usize, i64)| taken == Taken::Open && self.places[*place].request == request;
        let granted = self.leaving.iter().position(of);
        let granted = granted.map(|at| self.leaving.remove(at).0);
        if let Some(place) = granted {
            self.places[place].out = Some((entry.at, Out::Granted));
        }
        let line = self.lines.get(name).into_iter().flatten().map(|(_, place)| *place);
        let is_shared = waiter.mode.is_shared();
        let before = line.clone().find(|other| {
            self.places[*other].place.is_shared() == is_shared
                && granted.is_none_or(|granted| self.places[*other].place < self.places[granted].place)
        });
        let lives = |place: &usize| {
            let silence_us = self.silence_us(entry, self.places[*place].request.client);
            silence_us.is_some_and(|silence_us| silence_us <= u64::from(CLAIM_WINDOW_MS) * 1_000)
        };
        // The turn of the other kind: of exclusive requests while a phase goes on, of shared ones after an exclusive hold.
        let turn = line.filter(|other| self.places[*other].place.is_shared() != is_shared).find(lives);
        let overtook = before.or(turn.filter(|_| if is_shared { goes_on } else { was_exclusive }));
        self.open.entry(name.clone()).or_default().push((self.holds.len(), expires_us));
        self.holds.push(HoldStory {
            name: name.clone(),
            waiter: waiter.clone(),
            fence,
            at: entry.at,
            from_line: granted.is_some(),
            ends: vec![(entry.at, end)],
            ended: None,
            overtook: overtook.map(|place| self.places[place].request),
            silence_us: self.silence_us(entry, request.client),
            renewed_by_others: false,
        });
    }

    fn in_line(&mut self, entry: &Logged, name: &LockName, place: Place, waiter: &Waiter) {
        let line = self.lines.entry(name.clone()).or_default();
        let is_new = matches!(&self.step, Some(Step::Acquire { wait: Wait::Yes, .. }));
        let mut alike = line.keys().filter(|other| other.is_shared() == place.is_shared());
        let jumped = is_new && alike.next_back().is_some_and(|last| place < *last);
        line.insert(place, self.places.len());
        let (name, request) = (name.clone(), waiter.request);
        self.places.push(WaiterStory { name, request, place, at: entry.at, jumped, out: None });
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

    fn end(&mut self, entry: &Logged, ended: Vec<(usize, u64)>) {
        for (open, expires_us) in ended {
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
    }

    fn flush(&mut self, entry: &Logged) {
        for (open, _) in std::mem::take(&mut self.open).into_values().flatten() {
            self.holds[open].ended = Some((entry.at, End::Forgotten));
        }
        for place in std::mem::take(&mut self.lines).into_values().flat_map(BTreeMap::into_values) {
            self.places[place].out = Some((entry.at, Out::Forgotten));
        }
        self.lives.clear();
    }
}
