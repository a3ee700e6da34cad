//! The store's memory, with a log of everything that the rules write into it.

use firstcome_core::id::LockName;
use firstcome_core::lock::{ClientId, Hold, LockTable, MemoryLockTable, Request, Session, Step, Waiter};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// A hasher that is the same in every run.
pub type Hasher = BuildHasherDefault<DefaultHasher>;

/// What was written, or what for.
#[derive(Clone, Debug)]
pub enum Shelved {
    /// A step begins; what follows belongs to it.
    Step(Step),
    /// Somebody has the lock, or has it for longer.
    Hold(LockName, Hold),
    /// Nobody has it.
    Free(LockName),
    /// Somebody got in line.
    InLine(LockName, u64, Waiter),
    /// Somebody left the line.
    OutOfLine(LockName, u64),
    /// A process was heard of.
    Life(ClientId, Session),
    /// The store restarted, empty.
    Flush,
}

/// One line of the log.
#[derive(Clone, Debug)]
pub struct Logged {
    /// When, in µs of the world.
    pub at: i64,
    /// When, by the store's clock.
    pub store_us: u64,
    /// In which bucket.
    pub bucket: u8,
    /// What.
    pub what: Shelved,
}

/// A shelf that logs what is written into it.
pub struct LoggingLockTable<'a> {
    /// The shelf itself.
    pub shelf: &'a mut MemoryLockTable<Hasher>,
    /// The log.
    pub log: &'a mut Vec<Logged>,
    /// The world's time.
    pub at: i64,
    /// The store's time.
    pub store_us: u64,
    /// Which bucket this is.
    pub bucket: u8,
}

impl LoggingLockTable<'_> {
    /// Logs.
    pub fn log(&mut self, what: Shelved) {
        self.log.push(Logged { at: self.at, store_us: self.store_us, bucket: self.bucket, what });
    }
}

impl LockTable for LoggingLockTable<'_> {
    fn last(&self) -> u64 {
        self.shelf.last()
    }

    fn set_last(&mut self, last: u64) {
        self.shelf.set_last(last);
    }

    fn hold(&self, name: &LockName) -> Option<Hold> {
        self.shelf.hold(name)
    }

    fn put_hold(&mut self, name: &LockName, hold: Hold) {
        self.log(Shelved::Hold(name.clone(), hold.clone()));
        self.shelf.put_hold(name, hold);
    }

    fn remove_hold(&mut self, name: &LockName) {
        self.log(Shelved::Free(name.clone()));
        self.shelf.remove_hold(name);
    }

    fn first(&self, name: &LockName) -> Option<(u64, Waiter)> {
        self.shelf.first(name)
    }

    fn number_of(&self, name: &LockName, request: Request) -> Option<u64> {
        self.shelf.number_of(name, request)
    }

    fn is_taken(&self, name: &LockName, number: u64) -> bool {
        self.shelf.is_taken(name, number)
    }

    fn push(&mut self, name: &LockName, number: u64, waiter: Waiter) {
        self.log(Shelved::InLine(name.clone(), number, waiter.clone()));
        self.shelf.push(name, number, waiter);
    }

    fn remove(&mut self, name: &LockName, number: u64) {
        self.log(Shelved::OutOfLine(name.clone(), number));
        self.shelf.remove(name, number);
    }

    fn waiters(&self, name: &LockName) -> u32 {
        self.shelf.waiters(name)
    }

    fn ahead(&self, name: &LockName, number: u64) -> u32 {
        self.shelf.ahead(name, number)
    }

    fn life(&self, client: ClientId) -> Option<Session> {
        self.shelf.life(client)
    }

    fn put_life(&mut self, client: ClientId, life: Session) {
        self.log(Shelved::Life(client, life));
        self.shelf.put_life(client, life);
    }

    fn is_void(&self, request: Request, now_us: u64) -> bool {
        self.shelf.is_void(request, now_us)
    }

    fn put_void(&mut self, request: Request, until_us: u64, now_us: u64) {
        self.shelf.put_void(request, until_us, now_us);
    }
}
