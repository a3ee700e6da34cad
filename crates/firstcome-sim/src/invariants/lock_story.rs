//! Histories of a lock written by hand, so that each invariant can be shown what it must reject.

use super::{LockEvidence, Violation};
use crate::lock::history::{Belief, Disturbance, History, LockMessage, LockRequest, Write};
use crate::lock::ledger::Ledger;
use crate::lock::table::{Logged, TableOperation};
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{
    Ask, ClientId, Copies, Fence, Hold, LockReply, Mode, Place, Renewal, Request, Session, Sharer, Step, Taken, Wait,
    Waiter, Watch,
};
use firstcome_core::time::Steady;

type Check = fn(&LockEvidence<'_>) -> Result<(), Violation>;

/// One lock, told step by step. Each process has one request; leases are a second.
pub(super) struct Story {
    history: History,
}

const LEASE_MS: u32 = 1_000;

fn name() -> LockName {
    LockName::parse("l").unwrap()
}

fn owner() -> OwnerName {
    OwnerName::parse("o").unwrap()
}

fn request(of: u64) -> Request {
    Request { client: ClientId(of), number: 1 }
}

fn waiter(of: u64) -> Waiter {
    Waiter { request: request(of), owner: owner(), lease_ms: LEASE_MS, mode: Mode::ALONE }
}

/// Two permits.
const SHARED: Mode = Mode::Shared { permits: 2 };

fn sharing(of: u64) -> Waiter {
    Waiter { mode: SHARED, ..waiter(of) }
}

impl Story {
    pub(super) fn new() -> Self {
        Self { history: History::default() }
    }

    fn log(&mut self, what: TableOperation) -> &mut Self {
        let at = self.history.now;
        self.history.log.push(Logged { at, store_us: at as u64, bucket: 0, what });
        self
    }

    fn hold(&mut self, of: u64, fence: u64, lease_ms: u64) -> &mut Self {
        self.hold_as(of, fence, lease_ms, Taken::Yes)
    }

    fn hold_as(&mut self, of: u64, fence: u64, lease_ms: u64, taken: Taken) -> &mut Self {
        let expires_us = self.history.now as u64 + lease_ms * 1_000;
        let fence = Fence::new(fence).unwrap();
        let hold = Hold { waiter: waiter(of), fence, expires_us, taken, others: Vec::new() };
        self.log(TableOperation::Hold(name(), hold))
    }

    /// These share the lock.
    pub(super) fn shared(&mut self, of: &[u64], fence: u64) -> &mut Self {
        let (expires_us, taken) = (self.history.now as u64 + u64::from(LEASE_MS) * 1_000, Taken::Yes);
        let mut sharers = of.iter().map(|of| Sharer { waiter: sharing(*of), expires_us, taken });
        let Sharer { waiter, .. } = sharers.next().unwrap();
        let hold = Hold { waiter, fence: Fence::new(fence).unwrap(), expires_us, taken, others: sharers.collect() };
        self.log(TableOperation::Hold(name(), hold))
    }

    /// Asks for one of two permits.
    pub(super) fn asks_to_share(&mut self, of: u64) -> &mut Self {
        self.asks(of);
        if let Some(asked) = self.history.asked.get_mut(&request(of)) {
            asked.ask.mode = SHARED;
        }
        self
    }

    fn acquire(&mut self, of: u64) -> &mut Self {
        self.log(TableOperation::Step(Step::Acquire { name: name(), waiter: waiter(of), wait: Wait::Yes }))
    }

    fn release(&mut self, of: u64) -> &mut Self {
        self.log(TableOperation::Step(Step::Release { name: name(), request: request(of), copies: Copies::One }))
    }

    pub(super) fn pass_ms(&mut self, ms: i64) -> &mut Self {
        self.history.now += ms * 1_000;
        self
    }

    pub(super) fn asks(&mut self, of: u64) -> &mut Self {
        let (wait_ms, lease_ms) = (120_000, LEASE_MS);
        let ask = Ask { name: name(), owner: owner(), wait_ms, lease_ms, mode: Mode::ALONE, watch: Watch::Renew };
        let asked = LockRequest { at: self.history.now - 1, ask, given_up: None, dropped: false, copied: false };
        self.history.asked.insert(request(of), asked);
        self
    }

    pub(super) fn granted(&mut self, of: u64, fence: u64) -> &mut Self {
        self.acquire(of).hold(of, fence, u64::from(LEASE_MS))
    }

    pub(super) fn freed(&mut self, of: u64) -> &mut Self {
        self.release(of).log(TableOperation::Free(name()))
    }

    pub(super) fn lives(&mut self, of: u64) -> &mut Self {
        let seen_us = self.history.now as u64;
        self.log(TableOperation::Life(ClientId(of), Session { number: 1, seen_us }))
    }

    pub(super) fn in_line(&mut self, of: u64, number: u64) -> &mut Self {
        let place = Place::of(Mode::ALONE, number);
        self.acquire(of).log(TableOperation::InLine(name(), place, waiter(of))).lives(of)
    }

    /// The holder gives up, and this one has the lock.
    pub(super) fn handed_to(&mut self, of: u64, number: u64, fence: u64) -> &mut Self {
        let place = Place::of(Mode::ALONE, number);
        self.release(1).log(TableOperation::OutOfLine(name(), place)).hold_as(
            of,
            fence,
            u64::from(LEASE_MS),
            Taken::Open,
        )
    }

    /// The holder gives up, and so no client has the lock.
    pub(super) fn passed_over(&mut self, by: u64, number: u64) -> &mut Self {
        let place = Place::of(Mode::ALONE, number);
        self.release(by).log(TableOperation::OutOfLine(name(), place)).log(TableOperation::Free(name()))
    }

    pub(super) fn renewed(&mut self, of: u64, fence: u64, lease_ms: u64) -> &mut Self {
        self.renewed_by(of, of, fence, lease_ms)
    }

    pub(super) fn renewed_by(&mut self, by: u64, of: u64, fence: u64, lease_ms: u64) -> &mut Self {
        let renewal = Renewal { name: name(), request: request(by), lease_ms: lease_ms as u32 };
        self.log(TableOperation::Step(Step::Renew { bucket: 0, renewals: vec![renewal] })).hold(of, fence, lease_ms)
    }

    pub(super) fn flush(&mut self) -> &mut Self {
        self.history.disturbances.push((self.history.now, Disturbance::Flush));
        self.log(TableOperation::Flush)
    }

    pub(super) fn clock_back(&mut self) -> &mut Self {
        self.history.disturbances.push((self.history.now, Disturbance::ClockBack));
        self
    }

    pub(super) fn killed(&mut self, of: u64) -> &mut Self {
        self.history.killed.insert(ClientId(of), self.history.now);
        self
    }

    pub(super) fn healed(&mut self) -> &mut Self {
        self.history.healed_at = Some(self.history.now);
        self
    }

    pub(super) fn left(&mut self, what: &str) -> &mut Self {
        self.history.left.push(what.into());
        self
    }

    pub(super) fn told(&mut self, of: u64, told: LockReply) -> &mut Self {
        self.history.tell(LockMessage { at: self.history.now, request: request(of), told });
        self
    }

    pub(super) fn believes(&mut self, of: u64, fence: u64, from: i64, until: i64) -> &mut Self {
        let fence = Fence::new(fence).unwrap();
        self.history.believe(Belief { name: name(), request: request(of), fence, from, until });
        self
    }

    pub(super) fn replied_until(&mut self, of: u64, fence: u64, until: i64) -> &mut Self {
        let (fence_told, deadline) = (Fence::new(fence).unwrap(), Steady::from_us(until));
        let told = LockReply::Granted { fence: fence_told, deadline, taken: Taken::Yes };
        self.believes(of, fence, self.history.now, until).told(of, told)
    }

    /// Told of the grant as soon as it was there.
    pub(super) fn grants(&mut self, of: u64, fence: u64) -> &mut Self {
        self.replied_until(of, fence, self.history.now + 900_000)
    }

    pub(super) fn writes(&mut self, of: u64, fence: u64, accepted: bool) -> &mut Self {
        let at = self.history.now;
        self.history.writes.push(Write { at, name: name(), request: request(of), fence, accepted });
        self
    }

    fn judge(&self, check: Check) -> Result<(), Violation> {
        check(&LockEvidence { seed: 0, history: &self.history, ledger: &Ledger::read(&self.history) })
    }

    #[track_caller]
    pub(super) fn assert_found(&self, check: Check, detail: &str) {
        super::assert_found(self.judge(check), detail);
    }

    #[track_caller]
    pub(super) fn assert_clean(&self, check: Check) {
        assert_eq!(self.judge(check), Ok(()));
    }
}
