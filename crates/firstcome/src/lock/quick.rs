//! The fast path for a free lock in memory: two steps of the store, without the lock client of the core.
//!
//! A hold moves to the client when it lasts until the next sweep, or when a caller asks it for anything but its end.
//! The client then renews it and keeps its time. Most holds end before that.

use super::driver::{Backend, Machine, Seat, Shared};
use super::guard::HoldTerms;
use super::{Fence, Guard, LockError};
use firstcome_store::MemoryLocks;
use firstcome_store::core::lock::{Acquired, Ask, Copies, LockAnswer, Mode, Released, Request, Step, Wait, Waiter};
use firstcome_store::core::time::Steady;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::task::Waker;

/// How often the sweep looks for holds that last: a quarter of the shortest lease.
const SWEEP_MS: u64 = 25;

/// The first request number of the fast path, which the client's own numbers never reach.
pub(super) const FIRST: u64 = 1 << 62;

/// A hasher for numbers that this process counts up, which need no defence against chosen keys.
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

/// A hold that the client does not know.
struct Hold {
    ask: Ask,
    fence: Fence,
    /// When the request was made, which is before the grant.
    asked: Steady,
}

/// All holds of the fast path.
#[derive(Default)]
pub(super) struct Quick {
    holds: HashMap<u64, Hold, BuildHasherDefault<Counted>>,
    /// How many removed holds the store has not yet released.
    giving_back: usize,
    /// When the next sweep runs; `None` if no hold needs one.
    pub(super) sweep_at: Option<Steady>,
}

impl Machine {
    /// Whether this process neither holds nor wants a lock.
    pub(super) fn is_quiet(&self) -> bool {
        self.client.is_empty() && self.quick.holds.is_empty() && self.quick.giving_back == 0
    }

    /// Moves a hold to the client, if it is a hold of the fast path.
    fn adopt(&mut self, number: u64, now: Steady) {
        let Some(Hold { ask, fence, asked }) = self.quick.holds.remove(&number) else { return };
        let deadline = self.client.adopt(number, ask, asked, now);
        self.seats.insert(number, Seat::of_hold(fence, deadline));
    }

    /// Moves all lasting holds to the client when the sweep is due. Returns when to sweep next.
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
    /// Takes a lock in memory if it is free. Otherwise nothing has happened, and the request comes back.
    pub(super) fn acquire_quickly(self: &Arc<Self>, ask: Ask) -> Result<Guard, Ask> {
        let Backend::Memory(store) = &self.backend else { return Err(ask) };
        if ask.mode != Mode::ALONE {
            return Err(ask);
        }
        let asked = self.now();
        let (number, request) = self.draw();
        let waiter = Waiter { request, owner: ask.owner.clone(), lease_ms: ask.lease_ms, mode: Mode::ALONE };
        let step = Step::Acquire { name: ask.name.clone(), waiter, wait: Wait::No };
        let LockAnswer::Acquired(Acquired::Granted(grant)) = store.take_now(&step).said else { return Err(ask) };
        let wanted = HoldTerms::of(&ask);
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

    /// Releases a hold that the client does not know. Returns `None` if the client knows it.
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
        // Not under the mutex: the store notifies the next holder, which may be this process.
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

    /// Leaves a hold to its lease: this process neither renews nor releases it any more.
    pub(super) fn leave(self: &Arc<Self>, number: u64) {
        self.act_and_send(|machine, now| {
            machine.adopt(number, now);
            machine.seats.remove(&number);
            // `None` if the hold is lost: then there is nothing to leave.
            let _ = machine.client.hand_out(number, now);
        });
    }

    /// Lets the client keep the time of a hold from here on.
    pub(super) fn adopt(self: &Arc<Self>, number: u64) {
        // Callers ask this of every hold repeatedly: a hold that the client has already costs one comparison or
        // look-up.
        if FIRST <= number && self.machine.lock().quick.holds.contains_key(&number) {
            self.act_and_send(|machine, now| machine.adopt(number, now));
        }
    }
}
