//! One process's side of locks: asks, waits, renews, gives up, and knows when a hold may be over.
//!
//! Pure like the rules: it is told what is wanted ([`Client::ask`], [`Client::release`]), what the store answered, what a
//! push said and what time it is; it says which steps to send ([`Client::next_call`]) and what came of each request
//! ([`Client::next_reply`]). An operator that runs it owns the sockets and the clock. Time is [`Steady`]: no operator sets it.
//!
//! # Invariants
//! - A hold's deadline is never after the store's: it counts from when the last answered call was *sent*, by what was left
//!   of the lease when the store answered it, less the drift of two clocks.
//! - A request that was given up is never renewed again.
//! - Every request ends with exactly one final word: contended, timed out, failed, void, or, once granted, lost or given
//!   up.
//! - Everything that is under way for a request that no process waits for any more is undone.

mod heartbeat;
mod on_reply;

use super::{Acquired, ClientId, Copies, Fence, Grant, Released, Request, Taken, Wait, Waiter};
use crate::id::{LockName, OwnerName};
use crate::limits::CLAIM_WINDOW_MS;
use crate::time::Steady;
use heartbeat::Bucket;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// After this without an answer to the withdrawal a waiter whose time is over is told so all the same.
const WITHDRAWAL_MS: u64 = 1_000;

/// Longer than a grant that no process has taken lasts: a push that comes later says so by its end.
const HANDED_OUT_MS: u64 = 2 * CLAIM_WINDOW_MS as u64;

/// What is the same for all requests of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// How much of a lease two clocks may disagree by: parts in a million.
    pub drift_ppm: u32,
}

impl Default for Settings {
    /// One per cent, as Redlock assumes: clocks do far better, machines that are being moved do not.
    fn default() -> Self {
        Self { drift_ppm: 10_000 }
    }
}

impl Settings {
    /// What is certainly left by our clock of a time that the store's clock counts.
    pub const fn less_drift_us(self, left_us: u64) -> u64 {
        left_us.saturating_sub((left_us * self.drift_ppm as u64).div_ceil(1_000_000))
    }
}

/// Whether a hold is renewed as long as its holder lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Watch {
    /// It is, three times per lease.
    Renew,
    /// It ends with its lease.
    Fixed,
}

/// A wish for a lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ask {
    /// Which lock.
    pub name: LockName,
    /// As others are told.
    pub owner: OwnerName,
    /// How long to wait; 0 for not at all.
    pub wait_ms: u32,
    /// See [`Waiter::lease_ms`].
    pub lease_ms: u32,
    /// See [`Waiter::passes`].
    pub passes: u32,
    /// Whether the hold is renewed.
    pub watch: Watch,
}

/// One step of the store: one transaction on one bucket, one round trip.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// See [`super::acquire`].
    Acquire {
        /// Which lock.
        name: LockName,
        /// For whom.
        waiter: Waiter,
        /// Whether to get in line.
        wait: Wait,
    },
    /// See [`super::release`].
    Release {
        /// Which lock.
        name: LockName,
        /// What is given up.
        request: Request,
        /// Whether more of it may be under way.
        copies: Copies,
    },
    /// See [`super::renew`]; all names are of one bucket.
    Renew {
        /// Which bucket.
        bucket: u8,
        /// At most [`RENEWALS_MAX`].
        renewals: Vec<Renewal>,
    },
    /// See [`super::heartbeat`] and [`super::advance_lock`].
    Beat {
        /// Which bucket.
        bucket: u8,
        /// Who lives.
        client: ClientId,
        /// The locks of the bucket that it waits for.
        names: Vec<LockName>,
    },
}

/// Renewals in one call at most.
pub const RENEWALS_MAX: usize = 500;

/// One hold that is to go on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Renewal {
    /// Which lock.
    pub name: LockName,
    /// Whose hold.
    pub request: Request,
    /// From now on.
    pub lease_ms: u32,
}

/// The answer to a [`Step`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Answer {
    /// The store's clock when the step was taken, in µs.
    pub now_us: u64,
    /// What the step says.
    pub said: LockAnswer,
}

/// See [`Answer`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LockAnswer {
    /// To an acquire.
    Acquired(Acquired),
    /// To a release.
    Released(Released),
    /// To renewals, in their order: until when, or `None` for what is lost.
    Renewed(Vec<Option<u64>>),
    /// To a heartbeat.
    Beaten {
        /// The life of the process in this bucket.
        life: u64,
        /// What is known of each lock, in the order of the names.
        looked: Vec<(Option<Grant>, Option<super::WaiterView>)>,
    },
}

/// Why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failed {
    /// It was not done.
    Unavailable,
    /// It may have been done.
    Unknown,
}

/// A step that must be sent now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// Under which number to tell what came of it.
    pub id: u64,
    /// What to do.
    pub step: Step,
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LockReply {
    /// It holds the lock, at least until the deadline.
    Granted {
        /// The fence of the first pass.
        fence: Fence,
        /// Until when.
        deadline: Steady,
        /// Whether the hold lasts its whole lease already.
        taken: Taken,
    },
    /// The hold lasts longer now.
    Renewed {
        /// Until when.
        deadline: Steady,
    },
    /// Final: another process has it, and waiting was not wanted.
    Contended {
        /// Who.
        holder: OwnerName,
        /// How many wait.
        waiters: u32,
        /// How long their hold lasts unless it is renewed.
        ttl_ms: u64,
    },
    /// Final: the wait is over.
    TimedOut {
        /// How many were ahead when that was known last.
        ahead: Option<u32>,
    },
    /// Final: the store gave no answer in time.
    Failed(Failed),
    /// Final: the hold is over, or no process can say that it is not.
    Lost,
    /// Final: given up, as was wanted.
    Released,
    /// Final: it was over already when it was to be given up.
    NotHeld,
}

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// The store has not told where it stands.
    Asking,
    /// In line.
    Waiting,
    /// It has the lock until the deadline.
    Held { deadline: Steady, renew_at: Steady },
    /// Being given up; a process may wait for what comes of it.
    Leaving { of: Leaving, until: Steady },
}

/// Why a request is being given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Leaving {
    /// No process wants it any more, and no process is told.
    Dropped,
    /// Its wait is over.
    TimedOut,
    /// Its holder gives it up, and is told how that went. Until the deadline: afterwards it is over anyway.
    Released,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    ask: Ask,
    bucket: u8,
    state: State,
    /// When the wait is over.
    wait_until: Steady,
    /// The place in line.
    number: Option<u64>,
    ahead: Option<u32>,
    /// The life of the process in the bucket when this got in line.
    life: u64,
    copies: Copies,
    /// How many times it was asked for.
    asks: u32,
    tries: u32,
    /// A try that waits for its time.
    retry_at: Option<Steady>,
    /// What a push said before there was an answer to reckon its end by.
    pushed: Option<Grant>,
    /// The call whose answer moves this on.
    call: Option<u64>,
    failed: Failed,
    timer: Option<Steady>,
}

/// What the answer to a call is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum About {
    Request(u64),
    Renewals(u8, Vec<u64>),
    Beat(u8, Vec<LockName>),
}

/// What is due at some time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Due {
    Request(u64),
    Bucket(u8),
}

/// What the store's clock showed at or after an instant of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Base {
    sent: Steady,
    server_us: u64,
}

/// All requests of one process for the locks of one store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Client {
    id: ClientId,
    settings: Settings,
    drawn: u64,
    entries: BTreeMap<u64, Entry>,
    buckets: BTreeMap<u8, Bucket>,
    under_way: BTreeMap<u64, (Steady, About)>,
    timers: BTreeSet<(Steady, Due)>,
    base: Option<Base>,
    /// What was handed out, for as long as a push about its grant may still be under way.
    handed_out: VecDeque<(Steady, u64)>,
    calls: VecDeque<Call>,
    told: VecDeque<(u64, LockReply)>,
}

impl Client {
    /// A process that has asked for nothing yet. `id` must be unlike that of any other: draw 64 random bits.
    pub const fn new(id: ClientId, settings: Settings) -> Self {
        Self {
            id,
            settings,
            drawn: 0,
            entries: BTreeMap::new(),
            buckets: BTreeMap::new(),
            under_way: BTreeMap::new(),
            timers: BTreeSet::new(),
            base: None,
            handed_out: VecDeque::new(),
            calls: VecDeque::new(),
            told: VecDeque::new(),
        }
    }

    /// Who this is, as the store knows it.
    pub const fn id(&self) -> ClientId {
        self.id
    }

    /// The next number of this process.
    pub(super) const fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Asks for a lock; returns the number under which it is told what comes of it.
    pub fn ask(&mut self, ask: Ask, now: Steady) -> u64 {
        let number = self.draw();
        let entry = Entry::new(ask, now);
        self.entries.insert(number, entry);
        self.send_acquire(number, now);
        number
    }

    /// Gives up what a request holds or waits for. What comes of it is told if the request holds the lock now.
    pub fn release(&mut self, number: u64, now: Steady) {
        let Some(entry) = self.entries.get(&number) else { return };
        let (of, until) = match entry.state {
            State::Held { deadline, .. } => (Leaving::Released, deadline),
            State::Leaving { .. } => return,
            State::Asking | State::Waiting => (Leaving::Dropped, entry.undone_until(now)),
        };
        self.leave(number, of, until, now);
    }

    /// Gives up what a request holds or waits for; no process is told what comes of it.
    pub fn drop_request(&mut self, number: u64, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if let State::Leaving { of, .. } = &mut entry.state {
            *of = Leaving::Dropped;
            return;
        }
        let until = entry.undone_until(now);
        self.leave(number, Leaving::Dropped, until, now);
    }

    /// Forgets a hold without giving it up: it is another process's to renew and to give up from now on, by its
    /// [`Request`], and ends with its lease otherwise. `None` if the request does not hold the lock.
    pub fn hand_out(&mut self, number: u64, now: Steady) -> Option<Request> {
        let entry = self.entries.get(&number)?;
        matches!(entry.state, State::Held { .. }).then_some(())?;
        self.end(number, None, now);
        while self.handed_out.front().is_some_and(|(until, _)| *until <= now) {
            self.handed_out.pop_front();
        }
        self.handed_out.push_back((now.plus_ms(HANDED_OUT_MS), number));
        Some(self.request(number))
    }

    /// Renews a hold now, for this lease from then on. Told as [`LockReply::Renewed`] or [`LockReply::Lost`].
    pub fn renew(&mut self, number: u64, lease_ms: u32, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let State::Held { renew_at, .. } = &mut entry.state else { return };
        *renew_at = now;
        entry.ask.lease_ms = lease_ms;
        let bucket = entry.bucket;
        self.schedule_bucket(bucket, now);
    }

    /// The next call that must be sent, in the order in which they should arrive.
    pub fn next_call(&mut self) -> Option<Call> {
        self.calls.pop_front()
    }

    /// What came of a request, in the order in which it happened.
    pub fn next_reply(&mut self) -> Option<(u64, LockReply)> {
        self.told.pop_front()
    }

    /// When [`Self::tick`] has something to do, unless something else happens before.
    pub fn next_due(&self) -> Option<Steady> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Does what time has made due.
    pub fn tick(&mut self, now: Steady) {
        while let Some(&(due, what)) = self.timers.first()
            && due <= now
        {
            self.timers.remove(&(due, what));
            match what {
                Due::Request(number) => {
                    if let Some(entry) = self.entries.get_mut(&number) {
                        entry.timer = None;
                    }
                    self.request_due(number, now);
                }
                Due::Bucket(bucket) => {
                    if let Some(bucket) = self.buckets.get_mut(&bucket) {
                        bucket.timer = None;
                    }
                    self.bucket_due(bucket, now);
                }
            }
        }
    }

    /// How many requests hold or want a lock.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is wanted, held or being given up.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    const fn request(&self, number: u64) -> Request {
        Request { client: self.id, number }
    }

    fn send(&mut self, step: Step, about: About, now: Steady) -> u64 {
        let id = self.draw();
        self.under_way.insert(id, (now, about));
        self.calls.push_back(Call { id, step });
        id
    }

    fn send_acquire(&mut self, number: u64, now: Steady) {
        let request = self.request(number);
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.retry_at = None;
        entry.asks += 1;
        let Ask { owner, lease_ms, passes, wait_ms, .. } = &entry.ask;
        let waiter = Waiter { request, owner: owner.clone(), lease_ms: *lease_ms, passes: *passes };
        let wait = match entry.number {
            Some(place) => Wait::Again(place),
            None if *wait_ms == 0 => Wait::No,
            None => Wait::Yes,
        };
        let step = Step::Acquire { name: entry.ask.name.clone(), waiter, wait };
        let call = self.send(step, About::Request(number), now);
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.call = Some(call);
        }
        self.schedule_request(number);
    }

    fn send_release(&mut self, number: u64, now: Steady) {
        let request = self.request(number);
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.retry_at = None;
        let step = Step::Release { name: entry.ask.name.clone(), request, copies: entry.copies };
        let call = self.send(step, About::Request(number), now);
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.call = Some(call);
        }
        self.schedule_request(number);
    }

    /// Begins to give up a request. What is under way for it is forgotten: its answer changes nothing any more.
    fn leave(&mut self, number: u64, of: Leaving, until: Steady, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if entry.call.is_some() {
            entry.copies = Copies::Several;
        }
        entry.state = State::Leaving { of, until };
        entry.tries = 0;
        let bucket = entry.bucket;
        self.forget_in_bucket(number, bucket, now);
        self.send_release(number, now);
    }

    /// The last word about a request.
    fn end(&mut self, number: u64, told: Option<LockReply>, now: Steady) {
        let Some(entry) = self.entries.remove(&number) else { return };
        if let Some(due) = entry.timer {
            self.timers.remove(&(due, Due::Request(number)));
        }
        self.forget_in_bucket(number, entry.bucket, now);
        if let Some(told) = told {
            self.told.push_back((number, told));
        }
    }

    /// When a request has to be looked at again.
    fn schedule_request(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let end = match entry.state {
            State::Asking | State::Waiting if entry.ask.wait_ms == 0 => None,
            State::Asking | State::Waiting => Some(entry.wait_until),
            State::Held { deadline, .. } => Some(deadline),
            State::Leaving { until, .. } => Some(until),
        };
        let due = match (end, entry.retry_at) {
            (Some(end), Some(retry)) => Some(end.min(retry)),
            (end, retry) => end.or(retry),
        };
        if entry.timer == due {
            return;
        }
        if let Some(before) = entry.timer {
            self.timers.remove(&(before, Due::Request(number)));
        }
        entry.timer = due;
        if let Some(due) = due {
            self.timers.insert((due, Due::Request(number)));
        }
    }

    /// A wait, a hold or a withdrawal is over, or a failed call is tried again.
    fn request_due(&mut self, number: u64, now: Steady) {
        let Some(entry) = self.entries.get(&number) else { return };
        let (ahead, undone_until) = (entry.ahead, entry.undone_until(now));
        let failed = if entry.call.is_some() { Failed::Unknown } else { entry.failed };
        match entry.state {
            State::Asking | State::Waiting if 0 < entry.ask.wait_ms && entry.wait_until <= now => {
                let never_heard = entry.state == State::Asking && 0 < entry.tries;
                if never_heard {
                    self.told.push_back((number, LockReply::Failed(failed)));
                }
                let (of, until) = match never_heard {
                    true => (Leaving::Dropped, undone_until),
                    false => (Leaving::TimedOut, now.plus_ms(WITHDRAWAL_MS)),
                };
                self.leave(number, of, until, now);
            }
            State::Held { deadline, .. } if deadline <= now => {
                // No process could say any more that the hold goes on. If it does, others need not wait for its end.
                self.told.push_back((number, LockReply::Lost));
                self.leave(number, Leaving::Dropped, undone_until, now);
            }
            State::Leaving { of: Leaving::Dropped, until } if until <= now => self.end(number, None, now),
            State::Leaving { of, until } if until <= now => {
                let told = match of {
                    Leaving::TimedOut => LockReply::TimedOut { ahead },
                    _ => LockReply::Failed(failed),
                };
                self.told.push_back((number, told));
                self.undo_quietly(number, undone_until);
            }
            State::Leaving { .. } if entry.retry_at.is_some_and(|at| at <= now) => self.send_release(number, now),
            _ if entry.retry_at.is_some_and(|at| at <= now) => self.send_acquire(number, now),
            _ => self.schedule_request(number),
        }
    }

    /// The deadline of a hold, by our clock; see the invariants.
    fn deadline(&self, expires_us: u64, lease_ms: u32, taken: Taken, now: Steady) -> Steady {
        let longest_ms = if taken == Taken::Open { lease_ms.min(CLAIM_WINDOW_MS) } else { lease_ms };
        let arrival = now.plus_ms(u64::from(longest_ms));
        let Some(base) = self.base else { return now };
        let base = if deadline_from_arrival() { Base { sent: now, ..base } } else { base };
        let left_us = expires_us.saturating_sub(base.server_us);
        // Longer than the lease only if the store's clock jumped.
        let left_us = left_us.min(u64::from(lease_ms) * 1_000 + u64::from(CLAIM_WINDOW_MS) * 1_000);
        // The clocks ran apart since the instant at which they were compared, which may be long before the grant.
        let left_us = self.settings.less_drift_us(left_us);
        Steady::from_us(base.sent.as_us().saturating_add_unsigned(left_us)).min(arrival)
    }
}

/// A number from 0 to below `end`, always the same for the same seed: chance has no place here.
const fn spread(seed: u64, end: u64) -> u64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if end == 0 { 0 } else { (mixed >> 32) % end }
}

#[cfg(feature = "planted-bugs")]
fn deadline_from_arrival() -> bool {
    crate::planted::is(crate::planted::Bug::DeadlineFromArrival)
}

#[cfg(not(feature = "planted-bugs"))]
const fn deadline_from_arrival() -> bool {
    false
}
