//! Sends heartbeats while a process waits, and renewals while it holds.

use super::{About, Client, Due, Failed, RENEWALS_MAX, Renewal, State, Step, Watch, spread};
use crate::id::LockName;
use crate::limits::CLAIM_WINDOW_MS;
use crate::lock::{Copies, Head, Taken, WaiterView};
use crate::time::Steady;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

/// How long after the end of a hold the head of the line looks again: the store's clock ticks in whole units.
const LOOK_LATER_MS: u64 = 1;

/// The work of this process in one bucket.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Bucket {
    /// The locks that it waits for, with the waiting requests.
    lines: BTreeMap<LockName, HeartbeatLine>,
    held: BTreeSet<u64>,
    /// See [`crate::lock::heartbeat`].
    pub(super) life: u64,
    beat_at: Option<Steady>,
    beating: bool,
    pub(super) timer: Option<Steady>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct HeartbeatLine {
    requests: BTreeSet<u64>,
    /// The shortest lease among the requests that joined this line.
    lease_ms: Option<u32>,
    /// The heartbeat period. `look_at` is when to look because the hold is over.
    every_ms: u64,
    look_at: Option<Steady>,
}

impl Client {
    /// Notes that a request is in line.
    pub(super) fn waits(&mut self, number: u64, life: u64, seen: WaiterView, server_us: u64, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.state = State::Waiting;
        let (name, id, lease_ms) = (entry.ask.name.clone(), entry.bucket, entry.ask.lease_ms);
        let bucket = self.buckets.entry(id).or_default();
        let line = bucket.lines.entry(name.clone()).or_default();
        line.requests.insert(number);
        line.lease_ms = Some(line.lease_ms.map_or(lease_ms, |shortest| shortest.min(lease_ms)));
        self.looked(id, &name, Some(seen), server_us, now);
        self.lives(id, life, now);
        self.schedule_bucket(id, now);
        self.schedule_request(number);
    }

    /// Notes the state of a lock that this process waits for.
    pub(super) fn looked(&mut self, id: u8, name: &LockName, seen: Option<WaiterView>, server_us: u64, now: Steady) {
        let Some(line) = self.buckets.get_mut(&id).and_then(|bucket| bucket.lines.get_mut(name)) else { return };
        let half_ms = u64::from(CLAIM_WINDOW_MS / 2);
        let Some(seen) = seen else {
            (line.every_ms, line.look_at) = (half_ms, None);
            return;
        };
        // Until it is confirmed, a grant lasts no longer than the lease that the request wanted.
        let lease_ms = line.lease_ms.map_or(seen.lease_ms, |shortest| shortest.min(seen.lease_ms));
        line.every_ms = half_ms.min(u64::from(lease_ms) / 2).max(1);
        let left_us = seen.expires_us.saturating_sub(server_us);
        let ends = now.plus_ms(left_us.div_ceil(1_000) + LOOK_LATER_MS);
        line.look_at = (seen.head == Head::Mine).then_some(ends);
    }

    /// Notes the life of this process in a bucket. After a new life, every request that joined a line in another life asks again:
    /// the store may have forgotten it.
    pub(super) fn lives(&mut self, id: u8, life: u64, now: Steady) {
        let Some(bucket) = self.buckets.get_mut(&id) else { return };
        if mem::replace(&mut bucket.life, life) == life {
            return;
        }
        let waiting = bucket.lines.values().flat_map(|line| line.requests.iter().copied());
        let forgotten = waiting.filter(|number| self.entries.get(number).is_some_and(|entry| entry.life != life));
        for number in forgotten.collect::<Vec<u64>>() {
            self.ask_once_more(number, now);
        }
    }

    /// Asks again for every request that waits for this lock.
    pub(super) fn ask_again(&mut self, id: u8, name: &LockName, now: Steady) {
        let Some(line) = self.buckets.get(&id).and_then(|bucket| bucket.lines.get(name)) else { return };
        for number in line.requests.iter().copied().collect::<Vec<u64>>() {
            self.ask_once_more(number, now);
        }
    }

    fn ask_once_more(&mut self, number: u64, now: Steady) {
        if self.entries.get(&number).is_some_and(|entry| entry.call.is_none() && entry.state == State::Waiting) {
            self.send_acquire(number, now);
        }
    }

    /// Notes that a request has the lock.
    pub(super) fn holds(&mut self, number: u64, taken: Taken, deadline: Steady, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let left_ms = deadline.since_us(now) / 1_000;
        let third_ms = left_ms / 3;
        let wait_ms = third_ms - spread(number, third_ms / 5 + 1);
        let renews = taken == Taken::Open || entry.ask.watch == Watch::Renew;
        let renew_at = if renews { now.plus_ms(wait_ms) } else { deadline.plus_ms(1) };
        entry.state = State::Held { deadline, renew_at };
        // No earlier call needs an answer any more, but copies may still arrive, unless the only one was the granted one.
        (entry.retry_at, entry.pushed) = (None, None);
        if entry.call.take().is_some() && 1 < entry.asks {
            entry.copies = Copies::Several;
        }
        let id = entry.bucket;
        self.leave_line(number, id);
        self.buckets.entry(id).or_default().held.insert(number);
        self.schedule_bucket(id, now);
        self.schedule_request(number);
    }

    fn leave_line(&mut self, number: u64, id: u8) {
        let Some(entry) = self.entries.get(&number) else { return };
        let Some(bucket) = self.buckets.get_mut(&id) else { return };
        if let Some(line) = bucket.lines.get_mut(&entry.ask.name) {
            line.requests.remove(&number);
            if line.requests.is_empty() {
                bucket.lines.remove(&entry.ask.name);
            }
        }
    }

    /// Removes a request that neither waits nor holds any more.
    pub(super) fn forget_in_bucket(&mut self, number: u64, id: u8, now: Steady) {
        self.leave_line(number, id);
        let Some(bucket) = self.buckets.get_mut(&id) else { return };
        bucket.held.remove(&number);
        if bucket.held.is_empty() && bucket.lines.is_empty() {
            if let Some(due) = bucket.timer {
                self.timers.remove(&(due, Due::Bucket(id)));
            }
            self.buckets.remove(&id);
            return;
        }
        self.schedule_bucket(id, now);
    }

    /// Sets the timer of a bucket.
    pub(super) fn schedule_bucket(&mut self, id: u8, now: Steady) {
        let Some(bucket) = self.buckets.get_mut(&id) else { return };
        let every_ms = bucket.lines.values().map(|line| line.every_ms).min();
        bucket.beat_at = every_ms.map(|every_ms| {
            let regular = bucket.beat_at.unwrap_or(now).min(now).plus_ms(every_ms);
            bucket.beat_at.map_or(regular, |known| known.min(regular).max(now))
        });
        let look_at = bucket.lines.values().filter_map(|line| line.look_at).min();
        let beat_at = bucket
            .beat_at
            .map(|heartbeat| look_at.map_or(heartbeat, |look| look.min(heartbeat)))
            .filter(|_| !bucket.beating);
        let entries = &self.entries;
        let renewals = bucket.held.iter().filter_map(|number| match entries.get(number)?.state {
            State::Held { renew_at, deadline } if renew_at <= deadline => Some(renew_at),
            _ => None,
        });
        let renew_at = renewals.min();
        let due = match (beat_at, renew_at) {
            (Some(heartbeat), Some(renew)) => Some(heartbeat.min(renew)),
            (heartbeat, renew) => heartbeat.or(renew),
        };
        if bucket.timer == due {
            return;
        }
        if let Some(before) = bucket.timer {
            self.timers.remove(&(before, Due::Bucket(id)));
        }
        bucket.timer = due;
        if let Some(due) = due {
            self.timers.insert((due, Due::Bucket(id)));
        }
    }

    /// Handles the timer of a bucket: sends a heartbeat or renewals.
    pub(super) fn bucket_due(&mut self, id: u8, now: Steady) {
        let Some(bucket) = self.buckets.get_mut(&id) else { return };
        let look_at = bucket.lines.values().filter_map(|line| line.look_at).min();
        let due = |at: Option<Steady>| at.is_some_and(|at| at <= now);
        if !bucket.beating && (due(bucket.beat_at) || due(look_at)) {
            self.heartbeat(id, now);
        }
        self.send_renewals(id, now);
        self.schedule_bucket(id, now);
    }

    /// Sends a heartbeat to a bucket, which also asks about every lock that this process waits for there.
    pub(super) fn heartbeat(&mut self, id: u8, now: Steady) {
        let client = self.id;
        let Some(bucket) = self.buckets.get_mut(&id) else { return };
        if bucket.lines.is_empty() || bucket.beating {
            return;
        }
        bucket.beating = true;
        bucket.beat_at = None;
        bucket.lines.values_mut().for_each(|line| line.look_at = None);
        let names: Vec<LockName> = bucket.lines.keys().cloned().collect();
        self.send(Step::Beat { bucket: id, client, names: names.clone() }, About::Beat(id, names), now);
    }

    /// Renews every hold that is due now or soon, in one call instead of many.
    fn send_renewals(&mut self, id: u8, now: Steady) {
        let Some(bucket) = self.buckets.get(&id) else { return };
        let renewable = |number: &u64| match self.entries.get(number)?.state {
            State::Held { renew_at, deadline } if renew_at <= deadline => Some((*number, renew_at, deadline)),
            _ => None,
        };
        let due: Vec<(u64, Steady, Steady)> = bucket.held.iter().filter_map(renewable).collect();
        if !due.iter().any(|(_, renew_at, _)| *renew_at <= now) {
            return;
        }
        let soon = |renew_at: Steady, deadline: Steady| renew_at.since_us(now) <= deadline.since_us(now) / 4;
        let numbers: Vec<u64> =
            due.into_iter().filter(|(_, at, end)| soon(*at, *end)).map(|(number, ..)| number).collect();
        for part in numbers.chunks(RENEWALS_MAX) {
            let renewals = part.iter().filter_map(|number| {
                let ask = &self.entries.get(number)?.ask;
                Some(Renewal { name: ask.name.clone(), request: self.request(*number), lease_ms: ask.lease_ms })
            });
            let step = Step::Renew { bucket: id, renewals: renewals.collect() };
            self.send(step, About::Renewals(id, part.to_vec()), now);
        }
        for number in numbers {
            // No second renewal before the answer, unless the holder asks for one.
            if let Some(State::Held { deadline, renew_at }) =
                self.entries.get_mut(&number).map(|entry| &mut entry.state)
            {
                *renew_at = deadline.plus_ms(1);
            }
        }
    }

    /// Notes the answer to a heartbeat, or its failure. After a failure the next heartbeat comes sooner: this process counts as
    /// dead if none arrives for a window.
    pub(super) fn beaten(&mut self, id: u8, heard: Result<(), Failed>, now: Steady) {
        if let Some(bucket) = self.buckets.get_mut(&id) {
            bucket.beating = false;
            if heard.is_err() {
                let every_ms = bucket.lines.values().map(|line| line.every_ms).min();
                bucket.beat_at = every_ms.map(|every_ms| now.plus_ms((every_ms / 4).max(1)));
            }
        }
        self.schedule_bucket(id, now);
    }

    /// Sends heartbeats to all buckets in which requests wait, because pushes may have been missed.
    pub fn check_everywhere(&mut self, now: Steady) {
        let waited: Vec<u8> = self.buckets.iter().filter(|(_, b)| !b.lines.is_empty()).map(|(id, _)| *id).collect();
        for id in waited {
            self.heartbeat(id, now);
        }
    }
}

#[cfg(test)]
impl Client {
    /// Returns the requests that are not over.
    pub(in crate::lock) fn numbers(&self) -> Vec<u64> {
        self.entries.keys().copied().collect()
    }

    /// Returns whether no state is left at all.
    pub(in crate::lock) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.buckets.is_empty() && self.under_way.is_empty() && self.timers.is_empty()
    }
}
