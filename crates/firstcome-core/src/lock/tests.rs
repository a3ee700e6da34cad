//! The rules of a lock, and the client of one process: an instant, a command, and the expected answer.
//!
//! Only [`Play`] calls the rules. It writes an answer as `granted 10000 ms`, `open 2000 ms` (not confirmed yet), `queued 3`
//! (three ahead), `contended c1 0 500 ms`, and a push as `a to 2.7: open 2000 ms` (lock, client, request).

mod client;
mod clocks;
mod cost;
mod dead;
mod granting;
mod model;
#[cfg(feature = "planted-bugs")]
mod planted;
mod releasing;
mod values;
mod waiting;

use super::*;
use crate::id::OwnerName;
use std::hash::RandomState;

const START_US: u64 = 1_700_000_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const LEASE_MS: u32 = 10_000;

fn lock_name(text: &str) -> LockName {
    LockName::parse(text).unwrap()
}

fn request(client: u64, number: u64) -> Request {
    Request { client: ClientId(client), number }
}

fn waiter(client: u64, number: u64) -> Waiter {
    let owner = OwnerName::parse(&format!("c{client}")).unwrap();
    Waiter { request: request(client, number), owner, lease_ms: LEASE_MS, mode: Mode::ALONE }
}

fn lasting(lease_ms: u32, waiter: Waiter) -> Waiter {
    Waiter { lease_ms, ..waiter }
}

#[expect(clippy::disallowed_methods, reason = "any seed will do: no answer may depend on it")]
fn hasher() -> RandomState {
    RandomState::new()
}

/// A bucket, its time, and its pushes since the last look.
struct Play {
    table: MemoryLockTable<RandomState>,
    now_us: u64,
    pushes: Vec<Push>,
}

impl Play {
    fn new() -> Self {
        Self { table: MemoryLockTable::new(hasher()), now_us: START_US, pushes: Vec::new() }
    }

    /// Makes a bucket in which client 1 holds lock `a` by its request 1.
    fn held() -> Self {
        let mut play = Self::new();
        assert_eq!(play.try_lock("a", waiter(1, 1)), "granted 10000 ms");
        play
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    fn acquire(&mut self, name: &str, waiter: Waiter, wait: Wait) -> Acquired {
        let (acquired, push) = acquire(&mut self.table, &lock_name(name), waiter, wait, self.now_us);
        self.pushes.extend(push);
        acquired
    }

    fn ask(&mut self, name: &str, waiter: Waiter, wait: Wait) -> String {
        let acquired = self.acquire(name, waiter, wait);
        self.describe_acquired(&acquired)
    }

    fn try_lock(&mut self, name: &str, waiter: Waiter) -> String {
        self.ask(name, waiter, Wait::No)
    }

    fn wait(&mut self, name: &str, waiter: Waiter) -> String {
        self.ask(name, waiter, Wait::Yes)
    }

    /// Joins the line, and returns the place.
    fn place(&mut self, name: &str, waiter: Waiter) -> u64 {
        match self.acquire(name, waiter, Wait::Yes) {
            Acquired::Queued { number, .. } => number,
            other => panic!("it gets in line: {other:?}"),
        }
    }

    fn give_up(&mut self, name: &str, request: Request, copies: Copies) -> String {
        let (released, push) = release(&mut self.table, &lock_name(name), request, copies, self.now_us);
        self.pushes.extend(push);
        match released {
            Released::Released => "released".to_owned(),
            Released::Withdrawn { ahead } => format!("withdrawn {ahead}"),
            Released::NotHeld => "not held".to_owned(),
        }
    }

    fn release(&mut self, name: &str, request: Request) -> String {
        self.give_up(name, request, Copies::One)
    }

    fn renew(&mut self, name: &str, request: Request, lease_ms: u32) -> String {
        let (expires_us, push) = renew(&mut self.table, &lock_name(name), request, lease_ms, self.now_us);
        self.pushes.extend(push);
        expires_us.map_or("lost".to_owned(), |expires_us| format!("{} ms", self.left_ms(expires_us)))
    }

    fn heartbeat(&mut self, client: u64) -> u64 {
        heartbeat(&mut self.table, ClientId(client), self.now_us)
    }

    fn look(&mut self, name: &str, client: u64) -> String {
        let (grants, seen, push) = advance_lock(&mut self.table, &lock_name(name), ClientId(client), self.now_us);
        self.pushes.extend(push);
        let grants: Vec<String> = grants.into_iter().map(|grant| self.describe_grant(grant)).collect();
        let grant = (!grants.is_empty()).then(|| grants.join(" and "));
        let seen = seen.map(|seen| {
            let head = if seen.head == Head::Mine { "mine" } else { "others" };
            format!("{head} in {} ms", self.left_ms(seen.expires_us))
        });
        format!("{}, {}", grant.unwrap_or("nothing".to_owned()), seen.unwrap_or("free".to_owned()))
    }

    /// Returns the pushes since the last call.
    fn news(&mut self) -> String {
        let pushes = std::mem::take(&mut self.pushes);
        let told: Vec<String> = pushes.iter().map(|push| self.describe_push(push)).collect();
        told.join(", ")
    }

    fn holder(&self, name: &str) -> Option<Request> {
        self.table.hold(&lock_name(name)).map(|hold| hold.waiter.request)
    }

    fn fence(&self, name: &str) -> u64 {
        self.table.hold(&lock_name(name)).expect("somebody has it").fence.get()
    }

    fn left_ms(&self, expires_us: u64) -> u64 {
        expires_us.saturating_sub(self.now_us).div_ceil(1_000)
    }

    fn describe_grant(&self, grant: Grant) -> String {
        let how = if grant.taken == Taken::Open { "open" } else { "granted" };
        format!("{how} {} ms", self.left_ms(grant.expires_us))
    }

    fn describe_push(&self, push: &Push) -> String {
        let Request { client, number } = push.grant.request;
        format!("{} to {}.{number}: {}", push.name, client.0, self.describe_grant(push.grant))
    }

    fn describe_acquired(&self, acquired: &Acquired) -> String {
        match acquired {
            Acquired::Granted(grant) => self.describe_grant(*grant),
            Acquired::Queued { ahead, .. } => format!("queued {ahead}"),
            Acquired::Contended { holder, waiters, expires_us } => {
                format!("contended {holder} {waiters} {} ms", self.left_ms(*expires_us))
            }
            Acquired::Void => "void".to_owned(),
        }
    }
}
