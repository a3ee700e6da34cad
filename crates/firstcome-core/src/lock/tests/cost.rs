//! The cost of a step, in calls of the table: the same for any number of waiters.

use super::*;
use std::cell::Cell;

/// A table that counts its calls.
struct Counted {
    table: MemoryLockTable<RandomState>,
    asked: Cell<u32>,
}

impl Counted {
    fn inner(&self) -> &MemoryLockTable<RandomState> {
        self.asked.set(self.asked.get() + 1);
        &self.table
    }

    fn inner_mut(&mut self) -> &mut MemoryLockTable<RandomState> {
        self.asked.set(self.asked.get() + 1);
        &mut self.table
    }
}

impl LockTable for Counted {
    fn last(&self) -> u64 {
        self.inner().last()
    }
    fn set_last(&mut self, last: u64) {
        self.inner_mut().set_last(last);
    }
    fn hold(&self, name: &LockName) -> Option<Hold> {
        self.inner().hold(name)
    }
    fn put_hold(&mut self, name: &LockName, hold: Hold) {
        self.inner_mut().put_hold(name, hold);
    }
    fn remove_hold(&mut self, name: &LockName) {
        self.inner_mut().remove_hold(name);
    }
    fn first(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.inner().first(name)
    }
    fn first_exclusive(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.inner().first_exclusive(name)
    }
    fn place_of(&self, name: &LockName, request: Request) -> Option<Place> {
        self.inner().place_of(name, request)
    }
    fn is_taken(&self, name: &LockName, place: Place) -> bool {
        self.inner().is_taken(name, place)
    }
    fn push(&mut self, name: &LockName, place: Place, waiter: Waiter) {
        self.inner_mut().push(name, place, waiter);
    }
    fn remove(&mut self, name: &LockName, place: Place) {
        self.inner_mut().remove(name, place);
    }
    fn waiters(&self, name: &LockName) -> u32 {
        self.inner().waiters(name)
    }
    fn ahead(&self, name: &LockName, place: Place) -> u32 {
        self.inner().ahead(name, place)
    }
    fn life(&self, client: ClientId) -> Option<Session> {
        self.inner().life(client)
    }
    fn put_life(&mut self, client: ClientId, life: Session) {
        self.inner_mut().put_life(client, life);
    }
    fn is_void(&self, request: Request, now_us: u64) -> bool {
        self.inner().is_void(request, now_us)
    }
    fn put_void(&mut self, request: Request, until_us: u64, now_us: u64) {
        self.inner_mut().put_void(request, until_us, now_us);
    }
}

/// Returns the calls of the table in each step of a lock with so many waiters.
fn questions(waiters: u64) -> Vec<u32> {
    let mut table = Counted { table: MemoryLockTable::new(hasher()), asked: Cell::new(0) };
    let name = lock_name("a");
    let now_us = START_US;
    acquire(&mut table, &name, waiter(1, 1), Wait::No, now_us);
    for number in 0..waiters {
        acquire(&mut table, &name, waiter(2, number), Wait::Yes, now_us);
    }
    let mut counts = Vec::new();
    table.asked.set(0);
    let mut count = |table: &Counted| counts.push(table.asked.replace(0));
    acquire(&mut table, &name, waiter(3, 1), Wait::Yes, now_us);
    count(&table);
    acquire(&mut table, &name, waiter(3, 1), Wait::Yes, now_us);
    count(&table);
    acquire(&mut table, &name, waiter(4, 1), Wait::No, now_us);
    count(&table);
    renew(&mut table, &name, request(1, 1), LEASE_MS, now_us);
    count(&table);
    heartbeat(&mut table, ClientId(2), now_us);
    advance_lock(&mut table, &name, ClientId(2), now_us);
    count(&table);
    release(&mut table, &name, request(1, 1), Copies::One, now_us);
    count(&table);
    release(&mut table, &name, request(3, 1), Copies::One, now_us);
    count(&table);
    counts
}

#[test]
fn no_step_asks_more_of_the_shelf_because_more_wait() {
    let few = questions(10);
    assert_eq!(few, questions(10_000));
    assert!(few.iter().all(|asked| (1..=15).contains(asked)), "{few:?}");
}

#[test]
fn each_dead_one_at_the_head_costs_a_few_questions_once() {
    let mut table = Counted { table: MemoryLockTable::new(hasher()), asked: Cell::new(0) };
    let name = lock_name("a");
    acquire(&mut table, &name, waiter(1, 1), Wait::No, START_US);
    for client in 100..1_100 {
        acquire(&mut table, &name, waiter(client, 1), Wait::Yes, START_US);
    }
    table.asked.set(0);
    release(&mut table, &name, request(1, 1), Copies::One, START_US + WINDOW_US + 1);
    let asked = table.asked.replace(0);
    assert!(asked <= 8 * 1_000 + 20, "{asked}");
    assert!(table.table.is_empty());
}
