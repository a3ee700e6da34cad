//! One process's side of locks: it asks, waits, renews, releases, and knows when a hold may be over.
//!
//! Pure like the rules. Callers tell it what they want ([`Client::ask`], [`Client::release`]), what the store answered, what
//! a push brought and what time it is. It returns the steps to send ([`Client::next_call`]) and the replies to requests
//! ([`Client::next_reply`]). The code that runs it owns the sockets and the clock. Time is [`Steady`], which nothing sets.
//!
//! # Invariants
//! - A hold's deadline is never after the store's. It counts from when the last answered call was *sent*, by the rest of the
//!   lease when the store answered it, less the drift between two clocks.
//! - The client never renews a request after its release.
//! - Every request that its caller does not drop ends with exactly one final reply: contended, timed out, failed or not
//!   held; after a grant, lost, released, failed or not held.
//! - The client undoes everything that is under way for a request that no caller waits for any more.

mod heartbeat;
mod on_reply;

use super::{Acquired, ClientId, Copies, Fence, Grant, Mode, Released, Request, Taken, Wait, Waiter};
use crate::id::{LockName, OwnerName};
use crate::limits::CLAIM_WINDOW_MS;
use crate::time::Steady;
use heartbeat::Bucket;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long a waiter whose time is over waits for the answer to its withdrawal. Then it gets its reply without one.
const WITHDRAWAL_MS: u64 = 1_000;

/// How long to remember a hold that was handed out: longer than an unconfirmed grant lasts. A later push shows by its
/// deadline that it is over.
const HANDED_OUT_MS: u64 = 2 * CLAIM_WINDOW_MS as u64;

/// Settings for all requests of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// How far two clocks may drift apart within a lease, in parts per million.
    pub drift_ppm: u32,
}

impl Default for Settings {
    /// One per cent, as Redlock assumes. Clocks do far better, but virtual machines in migration do not.
    fn default() -> Self {
        Self { drift_ppm: 10_000 }
    }
}

impl Settings {
    /// Returns what is certainly left, by our clock, of a time that the store's clock counts.
    pub const fn less_drift_us(self, left_us: u64) -> u64 {
        left_us.saturating_sub((left_us * self.drift_ppm as u64).div_ceil(1_000_000))
    }
}

/// Whether the client renews a hold as long as its holder lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Watch {
    /// The client renews it, three times per lease.
    Renew,
    /// The hold ends with its lease.
    Fixed,
}

/// What a caller wants: a lock, and how to wait for it and hold it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ask {
    /// Which lock.
    pub name: LockName,
    /// The holder's name as other clients see it.
    pub owner: OwnerName,
    /// How long to wait; 0 to return at once.
    pub wait_ms: u32,
    /// See [`Waiter::lease_ms`].
    pub lease_ms: u32,
    /// See [`Waiter::mode`].
    pub mode: Mode,
    /// Whether the client renews the hold.
    pub watch: Watch,
}

/// One step of the store: one transaction on one bucket, one round trip.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// See [`super::acquire`].
    Acquire {
        /// Which lock.
        name: LockName,
        /// The request, as the line keeps it.
        waiter: Waiter,
        /// Whether to join the line.
        wait: Wait,
    },
    /// See [`super::release`].
    Release {
        /// Which lock.
        name: LockName,
        /// The request to give up.
        request: Request,
        /// Whether more copies of the acquire may be under way.
        copies: Copies,
    },
    /// See [`super::renew`]; all names are of one bucket.
    Renew {
        /// Which bucket.
        bucket: u8,
        /// At most [`RENEWALS_MAX`] holds.
        renewals: Vec<Renewal>,
    },
    /// See [`super::heartbeat`] and [`super::advance_lock`].
    Beat {
        /// Which bucket.
        bucket: u8,
        /// The process that lives.
        client: ClientId,
        /// The locks of the bucket that it waits for.
        names: Vec<LockName>,
    },
}

/// Renewals in one call at most.
pub const RENEWALS_MAX: usize = 500;

/// The renewal of one hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Renewal {
    /// Which lock.
    pub name: LockName,
    /// The request that has the hold.
    pub request: Request,
    /// The lease from now on.
    pub lease_ms: u32,
}

/// The answer to a [`Step`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Answer {
    /// The store's clock when the step was taken, in µs.
    pub now_us: u64,
    /// The result of the step.
    pub said: LockAnswer,
}

/// The result of a step; see [`Answer`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LockAnswer {
    /// To an acquire.
    Acquired(Acquired),
    /// To a release.
    Released(Released),
    /// To renewals, in their order: when each hold ends, or `None` for a hold that is lost.
    Renewed(Vec<Option<u64>>),
    /// To a heartbeat.
    Beaten {
        /// The life of the process in this bucket.
        life: u64,
        /// For each lock, in the order of the names: grants to this process that it may have missed, and the state of the
        /// lock.
        looked: Vec<(Vec<Grant>, Option<super::WaiterView>)>,
    },
}

/// Why a call got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failed {
    /// The store did not do it.
    Unavailable,
    /// The store may have done it.
    Unknown,
}

/// A step to send now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// The number under which to report its answer to [`Client::answered`].
    pub id: u64,
    /// The step.
    pub step: Step,
}

/// The client's reply to a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LockReply {
    /// The request holds the lock, at least until the deadline.
    Granted {
        /// The fence of the first pass.
        fence: Fence,
        /// When the hold ends unless it is renewed.
        deadline: Steady,
        /// Whether the hold lasts its whole lease already.
        taken: Taken,
    },
    /// The hold lasts longer now.
    Renewed {
        /// When the hold ends unless it is renewed again.
        deadline: Steady,
    },
    /// Final: another request holds the lock, and this one did not want to wait.
    Contended {
        /// The holder's name.
        holder: OwnerName,
        /// How many requests wait.
        waiters: u32,
        /// How long the hold lasts unless it is renewed.
        ttl_ms: u64,
    },
    /// Final: the wait is over.
    TimedOut {
        /// How many waiters were ahead, when that was known last.
        ahead: Option<u32>,
    },
    /// Final: the store gave no answer in time.
    Failed(Failed),
    /// Final: the hold is over, or the client cannot prove that it is not.
    Lost,
    /// Final: the lock is released.
    Released,
    /// Final: the hold was already over at its release.
    NotHeld,
}

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// The store has not answered yet.
    Asking,
    /// In line.
    Waiting,
    /// It has the lock until the deadline.
    Held { deadline: Steady, renew_at: Steady },
    /// The client gives the request up; its caller may wait for the result.
    Leaving { of: Leaving, until: Steady },
}

/// Why a request is being given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Leaving {
    /// No caller wants it any more, and none gets a reply.
    Dropped,
    /// Its wait is over.
    TimedOut,
    /// Its holder releases it, and gets a reply. Only until the deadline: then the hold is over anyway.
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
    /// How many times the client asked for it.
    asks: u32,
    tries: u32,
    /// When to try a failed call again.
    retry_at: Option<Steady>,
    /// A pushed grant whose deadline cannot be computed before the next answer.
    pushed: Option<Grant>,
    /// The call whose answer the request waits for.
    call: Option<u64>,
    failed: Failed,
    timer: Option<Steady>,
}

/// What a call is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum About {
    Request(u64),
    Renewals(u8, Vec<u64>),
    Beat(u8, Vec<LockName>),
}

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Due {
    Request(u64),
    Bucket(u8),
}

/// A reading of the store's clock, taken at or after an instant of our clock.
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
    /// Holds that were handed out, for as long as a push about their grants may be under way.
    handed_out: VecDeque<(Steady, u64)>,
    calls: VecDeque<Call>,
    told: VecDeque<(u64, LockReply)>,
}

impl Client {
    /// Makes a client without requests. Each process needs its own `id`: draw 64 random bits.
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

    /// Returns the identity of this process at the store.
    pub const fn id(&self) -> ClientId {
        self.id
    }

    /// Draws the next number of this process.
    pub(super) const fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Asks for a lock. Returns the number under which [`Self::next_reply`] reports the result.
    pub fn ask(&mut self, ask: Ask, now: Steady) -> u64 {
        let number = self.draw();
        let entry = Entry::new(ask, now);
        self.entries.insert(number, entry);
        self.send_acquire(number, now);
        number
    }

    /// Gives up what a request holds or waits for. The caller gets a reply only if the request holds the lock now.
    pub fn release(&mut self, number: u64, now: Steady) {
        let Some(entry) = self.entries.get(&number) else { return };
        let (of, until) = match entry.state {
            State::Held { deadline, .. } => (Leaving::Released, deadline),
            State::Leaving { .. } => return,
            State::Asking | State::Waiting => (Leaving::Dropped, entry.undone_until(now)),
        };
        self.leave(number, of, until, now);
    }

    /// Gives up what a request holds or waits for; the caller gets no reply.
    pub fn drop_request(&mut self, number: u64, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if let State::Leaving { of, .. } = &mut entry.state {
            *of = Leaving::Dropped;
            return;
        }
        let until = entry.undone_until(now);
        self.leave(number, Leaving::Dropped, until, now);
    }

    /// Forgets a hold without releasing it, and returns its [`Request`], with which another process can renew and release it.
    /// Else it ends with its lease. `None` if the request does not hold the lock.
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

    /// Renews a hold now, with this lease from then on. The reply is [`LockReply::Renewed`] or [`LockReply::Lost`].
    pub fn renew(&mut self, number: u64, lease_ms: u32, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let State::Held { renew_at, .. } = &mut entry.state else { return };
        *renew_at = now;
        entry.ask.lease_ms = lease_ms;
        let bucket = entry.bucket;
        self.schedule_bucket(bucket, now);
    }

    /// Returns the next call to send. Send calls in this order.
    pub fn next_call(&mut self) -> Option<Call> {
        self.calls.pop_front()
    }

    /// Returns the next reply to a request, in the order in which the replies came about.
    pub fn next_reply(&mut self) -> Option<(u64, LockReply)> {
        self.told.pop_front()
    }

    /// Returns when to call [`Self::tick`], unless an answer or a push comes before.
    pub fn next_due(&self) -> Option<Steady> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Does everything that is due.
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

    /// Returns how many requests hold, want or give up a lock.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no request holds, wants or gives up a lock.
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
        let Ask { owner, lease_ms, mode, wait_ms, .. } = &entry.ask;
        let waiter = Waiter { request, owner: owner.clone(), lease_ms: *lease_ms, mode: *mode };
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

    /// Begins to give up a request. An answer that is still under way for it changes nothing any more.
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

    /// Ends a request, with its final reply if there is one.
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

    /// Sets the timer of a request.
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

    /// Handles the timer of a request: a wait, a hold or a withdrawal is over, or a failed call is tried again.
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
                // The client can no longer prove the hold. If it still exists, the release spares waiters the rest of its lease.
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

    /// Computes the deadline of a hold by our clock; see the invariants.
    fn deadline(&self, expires_us: u64, lease_ms: u32, taken: Taken, now: Steady) -> Steady {
        let longest_ms = if taken == Taken::Open { lease_ms.min(CLAIM_WINDOW_MS) } else { lease_ms };
        let arrival = now.plus_ms(u64::from(longest_ms));
        let Some(base) = self.base else { return now };
        let base = if deadline_from_arrival() { Base { sent: now, ..base } } else { base };
        let left_us = expires_us.saturating_sub(base.server_us);
        // More than the lease only if the store's clock jumped.
        let left_us = left_us.min(u64::from(lease_ms) * 1_000 + u64::from(CLAIM_WINDOW_MS) * 1_000);
        // The clocks drift from the instant at which they were compared, which may be long before the grant.
        let left_us = self.settings.less_drift_us(left_us);
        Steady::from_us(base.sent.as_us().saturating_add_unsigned(left_us)).min(arrival)
    }
}

/// Returns a number from 0 to below `end`, always the same for the same seed. The rules use no randomness.
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
