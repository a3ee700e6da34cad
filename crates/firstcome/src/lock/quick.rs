//! The way of a free lock in memory: two steps of the store, and no word to the client of the core.
//!
//! A hold that lasts until the next sweep, or of which anything is asked but to end, goes to the client, which renews it
//! and keeps its time. Most holds are over by then.

use super::driver::{Backend, Machine, Seat, Shared};
use super::{Fence, Guard, LockError};
use firstcome_store::MemoryLocks;
use firstcome_store::core::lock::{Acquired, Ask, Copies, LockAnswer, Released, Request, Step, Wait, Waiter};
use firstcome_store::core::time::Steady;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// How often it is looked whether a hold lasts: a quarter of the shortest lease.
const SWEEP_MS: u64 = 25;

/// Requests of this way count from here, so that none has the number of one of the client's.
pub(super) const FIRST: u64 = 1 << 62;

/// Numbers that count up need no hashing against malice.
#[derive(Default)]
pub(super) struct Counted(u64);

impl Hasher for Counted {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A hold that the client does not know of.
struct Hold {
    ask: Ask,
    fence: Fence,
    /// Before it was granted.
    asked: Steady,
}

/// All of them.
#[derive(Default)]
pub(super) struct Quick {
    holds: HashMap<u64, Hold, BuildHasherDefault<Counted>>,
    /// Of how many holds that are not here any more the store has yet to hear.
    giving_back: usize,
    /// When it is looked which of them last, if a process will.
    pub(super) sweep_at: Option<Steady>,
}

impl Machine {
    /// Whether nothing is held or wanted.
    pub(super) fn is_quiet(&self) -> bool {
        self.client.is_empty() && self.quick.holds.is_empty() && self.quick.giving_back == 0
    }

    /// Gives a hold to the client, if it is one of this way.
    fn adopt(&mut self, number: u64, now: Steady) {
        let Some(Hold { ask, fence, asked }) = self.quick.holds.remove(&number) else { return };
        let deadline = self.client.adopt(number, ask, asked, now);
        self.seats.insert(number, Seat::of_hold(fence, deadline));
    }

    /// Gives the client all holds that last, when it is time. Returns when to look again.
    pub(super) fn expire(&mut self, now: Steady) -> Option<Steady> {
        if self.quick.sweep_at.is_some_and(|at| at <= now) {
            let lasting: Vec<u64> = self.quick.holds.keys().copied().collect();
            lasting.into_iter().for_each(|number| self.adopt(number, now));
            self.quick.sweep_at = None;
        }
        self.quick.sweep_at
    }
}

impl Shared {
    /// Takes a lock in memory if it is free; else nothing has happened, and the wish comes back.
    pub(super) fn acquire_quickly(self: &Arc<Self>, ask: Ask) -> Result<Guard, Ask> {
        let Backend::Memory(store) = &self.backend else { return Err(ask) };
        if 1 < ask.passes {
            return Err(ask);
        }
        let asked = self.now();
        let (number, request) = self.draw();
        let waiter = Waiter { request, owner: ask.owner.clone(), lease_ms: ask.lease_ms, passes: 1 };
        let step = Step::Acquire { name: ask.name.clone(), waiter, wait: Wait::No };
        let LockAnswer::Acquired(Acquired::Granted(grant)) = store.take_now(&step).said else { return Err(ask) };
        let wanted = (ask.name.clone(), ask.owner.clone(), Duration::from_millis(u64::from(ask.lease_ms)));
        let wakes = {
            let mut machine = self.machine.lock();
            machine.quick.holds.insert(number, Hold { ask, fence: grant.fence, asked });
            let first = machine.quick.sweep_at.is_none();
            let sweep_at = asked.plus_ms(SWEEP_MS);
            if first {
                machine.quick.sweep_at = Some(sweep_at);
            }
            first && machine.sleep_until_at_most(sweep_at)
        };
        if wakes {
            self.wake.notify_one();
        }
        Ok(Guard::new(Arc::clone(self), number, wanted, grant.fence))
    }

    /// Gives back a hold that the client does not know of. `None` if it knows it.
    pub(super) fn release_quickly(&self, number: u64) -> Option<Result<(), LockError>> {
        let Backend::Memory(store) = &self.backend else { return None };
        if number < FIRST {
            return None;
        }
        let hold = {
            let mut machine = self.machine.lock();
            let hold = machine.quick.holds.remove(&number)?;
            machine.quick.giving_back += 1;
            hold
        };
        // Not under the mutex: the store tells the process that is next, which may be this process.
        let released = self.give_back(store, number, hold);
        let quiet = {
            let mut machine = self.machine.lock();
            machine.quick.giving_back -= 1;
            if machine.is_quiet() { std::mem::take(&mut machine.quiet) } else { Vec::new() }
        };
        quiet.into_iter().for_each(Waker::wake);
        Some(released)
    }

    fn give_back(&self, store: &MemoryLocks, number: u64, hold: Hold) -> Result<(), LockError> {
        let request = Request { client: self.id, number };
        let step = Step::Release { name: hold.ask.name, request, copies: Copies::One };
        match store.take_now(&step).said {
            LockAnswer::Released(Released::Released) => Ok(()),
            _ => Err(LockError::Lost),
        }
    }

    /// From here on the client keeps the time of a hold.
    pub(super) fn adopt(self: &Arc<Self>, number: u64) {
        // Asked of every hold again and again: what the client knows already costs one look.
        if FIRST <= number && self.machine.lock().quick.holds.contains_key(&number) {
            self.act_and_send(|machine, now| machine.adopt(number, now));
        }
    }
}
