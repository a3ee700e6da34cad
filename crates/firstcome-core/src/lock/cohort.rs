//! Cohorts: tasks of one process that pass a lock on among themselves, so that one grant of the store serves many.
//!
//! A batch is one request at the store. It begins with its first member, and has as many fences as it allows passes. A
//! member that comes while the last batch has room joins it. So a process serves its members in order, and the store
//! serves batches in order. Members of different processes are not in order: that is the price of a cohort.
//!
//! # Invariants
//! - A batch serves at most as many members as it has passes, each with its own fence above those before it.
//! - No member is served later than one lease after the store's grant. Members that are left go to a new batch.
//! - A batch without members asks for nothing and holds nothing.

use super::client::{Answer, Ask, Call, Client, Failed, LockReply, Settings};
use super::{ClientId, Fence, Mode, Push, Request, Taken};
use crate::id::LockName;
use crate::limits::WAIT_MS_MAX;
use crate::time::Steady;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The requests of one process, some of which share grants. Everything else works as with [`Client`].
pub struct Party {
    client: Client,
    /// By the number of their request at the store.
    batches: BTreeMap<u64, Batch>,
    /// The batch of each lock that newcomers join, if it has room.
    last: BTreeMap<LockName, u64>,
    members: BTreeMap<u64, Member>,
    timers: BTreeSet<(Steady, u64)>,
    told: VecDeque<(u64, LockReply)>,
}

crate::debug_by_name!(Party);

struct Batch {
    ask: Ask,
    waiting: VecDeque<u64>,
    /// The member that has the lock now.
    holder: Option<u64>,
    /// How many members have joined.
    joined: u32,
    grant: Option<BatchGrant>,
}

#[derive(Clone, Copy)]
struct BatchGrant {
    fence: Fence,
    deadline: Steady,
    /// No further member is served after this.
    until: Steady,
    served: u32,
}

struct Member {
    batch: u64,
    wait_until: Steady,
}

impl Party {
    /// See [`Client::new`].
    pub const fn new(id: ClientId, settings: Settings) -> Self {
        Self {
            client: Client::new(id, settings),
            batches: BTreeMap::new(),
            last: BTreeMap::new(),
            members: BTreeMap::new(),
            timers: BTreeSet::new(),
            told: VecDeque::new(),
        }
    }

    /// See [`Client::id`].
    pub const fn id(&self) -> ClientId {
        self.client.id()
    }

    /// See [`Client::ask`]. A request that allows more than one pass, and may wait, joins a cohort.
    pub fn ask(&mut self, ask: Ask, now: Steady) -> u64 {
        if ask.mode.is_shared() {
            return self.client.ask(ask, now);
        }
        if ask.mode.passes() <= 1 || ask.wait_ms == 0 {
            return self.client.ask(Ask { mode: Mode::ALONE, ..ask }, now);
        }
        let number = self.client.draw();
        let wait_until = now.plus_ms(u64::from(ask.wait_ms));
        self.members.insert(number, Member { batch: 0, wait_until });
        self.timers.insert((wait_until, number));
        self.join(number, ask, now);
        number
    }

    /// Puts a member into the last batch, or into a new one.
    fn join(&mut self, number: u64, ask: Ask, now: Steady) {
        let room = self.last.get(&ask.name).copied().filter(|lead| {
            self.batches.get(lead).is_some_and(|batch| {
                let in_time = batch.grant.is_none_or(|grant| now < grant.until);
                batch.joined < batch.ask.mode.passes()
                    && (&batch.ask.owner, batch.ask.lease_ms) == (&ask.owner, ask.lease_ms)
                    && in_time
            })
        });
        let lead = room.unwrap_or_else(|| {
            let lead = self.client.ask(Ask { wait_ms: WAIT_MS_MAX, ..ask.clone() }, now);
            self.last.insert(ask.name.clone(), lead);
            let batch = Batch { ask, waiting: VecDeque::new(), holder: None, joined: 0, grant: None };
            self.batches.insert(lead, batch);
            lead
        });
        if let Some(member) = self.members.get_mut(&number) {
            member.batch = lead;
        }
        if let Some(batch) = self.batches.get_mut(&lead) {
            batch.joined += 1;
            batch.waiting.push_back(number);
        }
        // The batch may have the lock while no member holds it.
        self.serve(lead, now);
    }

    /// Gives the lock to the next member. Releases it at the store if no member is left or the time is over.
    fn serve(&mut self, lead: u64, now: Steady) {
        let Some(batch) = self.batches.get_mut(&lead) else { return };
        let Some(grant) = batch.grant.as_mut().filter(|_| batch.holder.is_none()) else { return };
        let in_time = grant.served == 0 || now < grant.until;
        if in_time && let Some(next) = batch.waiting.pop_front() {
            let fence = grant.fence.after(grant.served);
            grant.served += 1;
            batch.holder = Some(next);
            if let Some(member) = self.members.get(&next) {
                self.timers.remove(&(member.wait_until, next));
            }
            self.told.push_back((next, LockReply::Granted { fence, deadline: grant.deadline, taken: Taken::Yes }));
            return;
        }
        self.dissolve(lead, now);
        self.client.drop_request(lead, now);
    }

    /// Ends a batch. A member that still waits in it joins another one.
    fn dissolve(&mut self, lead: u64, now: Steady) {
        let Some(batch) = self.batches.remove(&lead) else { return };
        if self.last.get(&batch.ask.name) == Some(&lead) {
            self.last.remove(&batch.ask.name);
        }
        for number in batch.waiting {
            self.join(number, batch.ask.clone(), now);
        }
    }

    /// Removes a member. Returns whether it had the lock, and its batch.
    fn leave(&mut self, number: u64) -> Option<(bool, u64)> {
        let member = self.members.remove(&number)?;
        self.timers.remove(&(member.wait_until, number));
        let batch = self.batches.get_mut(&member.batch)?;
        let held = batch.holder == Some(number);
        if held {
            batch.holder = None;
        }
        batch.waiting.retain(|waiting| *waiting != number);
        Some((held, member.batch))
    }

    /// Goes on after a member left: serves the next one, or gives up a batch without members.
    fn go_on(&mut self, lead: u64, now: Steady) {
        let empty = self.batches.get(&lead).is_some_and(|batch| batch.waiting.is_empty() && batch.holder.is_none());
        if empty {
            self.dissolve(lead, now);
            self.client.drop_request(lead, now);
        } else {
            self.serve(lead, now);
        }
    }

    /// See [`Client::release`]. A pass within the cohort takes effect at once. After the last pass the client releases the lock
    /// at the store in the background.
    pub fn release(&mut self, number: u64, now: Steady) {
        if !self.members.contains_key(&number) {
            return self.client.release(number, now);
        }
        if let Some((held, lead)) = self.leave(number) {
            if held {
                self.told.push_back((number, LockReply::Released));
            }
            self.go_on(lead, now);
        }
    }

    /// See [`Client::drop_request`].
    pub fn drop_request(&mut self, number: u64, now: Steady) {
        if !self.members.contains_key(&number) {
            return self.client.drop_request(number, now);
        }
        if let Some((_, lead)) = self.leave(number) {
            self.go_on(lead, now);
        }
    }

    /// See [`Client::adopt`].
    pub fn adopt(&mut self, number: u64, ask: Ask, asked: Steady, now: Steady) -> Steady {
        self.client.adopt(number, ask, asked, now)
    }

    /// See [`Client::hand_out`]. Returns `None` for a member of a cohort: its hold stays there.
    pub fn hand_out(&mut self, number: u64, now: Steady) -> Option<Request> {
        self.client.hand_out(number, now)
    }

    /// See [`Client::renew`]. A hold of a cohort is renewed with the lease of its batch.
    pub fn renew(&mut self, number: u64, lease_ms: u32, now: Steady) {
        match self.members.get(&number) {
            Some(member) => {
                let lead = member.batch;
                let lease_ms = self.batches.get(&lead).map_or(lease_ms, |batch| batch.ask.lease_ms);
                self.client.renew(lead, lease_ms, now);
            }
            None => self.client.renew(number, lease_ms, now),
        }
        self.translate(now);
    }

    /// See [`Client::answered`].
    pub fn answered(&mut self, call: u64, answer: Result<Answer, Failed>, now: Steady) {
        self.client.answered(call, answer, now);
        self.translate(now);
    }

    /// See [`Client::pushed`].
    pub fn pushed(&mut self, push: &Push, now: Steady) {
        self.client.pushed(push, now);
        self.translate(now);
    }

    /// See [`Client::check_everywhere`].
    pub fn check_everywhere(&mut self, now: Steady) {
        self.client.check_everywhere(now);
    }

    /// See [`Client::next_call`].
    pub fn next_call(&mut self) -> Option<Call> {
        self.client.next_call()
    }

    /// See [`Client::next_reply`].
    pub fn next_reply(&mut self) -> Option<(u64, LockReply)> {
        self.told.pop_front()
    }

    /// See [`Client::next_due`].
    pub fn next_due(&self) -> Option<Steady> {
        let own = self.timers.first().map(|(due, _)| *due);
        match (own, self.client.next_due()) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        }
    }

    /// See [`Client::tick`].
    pub fn tick(&mut self, now: Steady) {
        self.client.tick(now);
        self.translate(now);
        while let Some(&(due, number)) = self.timers.first()
            && due <= now
        {
            self.timers.remove(&(due, number));
            let ahead = self.members.get(&number).and_then(|member| {
                let batch = self.batches.get(&member.batch)?;
                let ahead = batch.waiting.iter().position(|waiting| *waiting == number)?;
                u32::try_from(ahead + usize::from(batch.holder.is_some())).ok()
            });
            self.told.push_back((number, LockReply::TimedOut { ahead }));
            self.drop_request(number, now);
        }
    }

    /// Passes replies of the client on to the members that they concern.
    fn translate(&mut self, now: Steady) {
        while let Some((number, told)) = self.client.next_reply() {
            if !self.batches.contains_key(&number) {
                self.told.push_back((number, told));
                continue;
            }
            match told {
                LockReply::Granted { fence, deadline, .. } => self.begin(number, fence, deadline, now),
                LockReply::Renewed { deadline } => {
                    if let Some(batch) = self.batches.get_mut(&number) {
                        if let Some(grant) = &mut batch.grant {
                            grant.deadline = deadline;
                        }
                        self.told.extend(batch.holder.map(|holder| (holder, LockReply::Renewed { deadline })));
                    }
                }
                // The batch got no lock, or lost it.
                last => self.fail(number, last, now),
            }
        }
    }

    fn begin(&mut self, lead: u64, fence: Fence, deadline: Steady, now: Steady) {
        if let Some(batch) = self.batches.get_mut(&lead) {
            let until = now.plus_ms(u64::from(batch.ask.lease_ms));
            batch.grant = Some(BatchGrant { fence, deadline, until, served: 0 });
        }
        self.serve(lead, now);
    }

    fn fail(&mut self, lead: u64, told: LockReply, now: Steady) {
        let Some(batch) = self.batches.get_mut(&lead) else { return };
        if let Some(holder) = batch.holder.take() {
            // The member is over: its process has nothing to release.
            self.told.push_back((holder, told));
            self.members.remove(&holder);
        } else if matches!(told, LockReply::Failed(_)) {
            // The store cannot be reached: every waiting member is told, as it would be without a cohort.
            for number in std::mem::take(&mut batch.waiting) {
                if let Some(member) = self.members.remove(&number) {
                    self.timers.remove(&(member.wait_until, number));
                }
                self.told.push_back((number, told.clone()));
            }
        }
        self.dissolve(lead, now);
    }

    /// See [`Client::len`].
    pub fn len(&self) -> usize {
        self.client.len() + self.members.len()
    }

    /// See [`Client::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.client.is_empty() && self.members.is_empty() && self.batches.is_empty() && self.timers.is_empty()
    }
}
