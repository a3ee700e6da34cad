//! The store's memory, with a log of everything that the rules write into it.

use firstcome_core::id::LockName;
use firstcome_core::lock::{ClientId, Hold, LockTable, MemoryLockTable, Place, Request, Session, Step, Waiter};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// A hasher that is the same in every run.
pub type Hasher = BuildHasherDefault<DefaultHasher>;

/// What was written, or what for.
#[derive(Clone, Debug)]
pub enum TableOperation {
    /// A step begins; what follows belongs to it.
    Step(Step),
    /// A client has the lock, or has it for longer.
    Hold(LockName, Hold),
    /// No client has it.
    Free(LockName),
    /// A client got in line.
    InLine(LockName, Place, Waiter),
    /// A client left the line.
    OutOfLine(LockName, Place),
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
    pub what: TableOperation,
}

/// A table that logs what is written into it.
pub struct LoggingLockTable<'a> {
    /// The table itself.
    pub table: &'a mut MemoryLockTable<Hasher>,
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
    pub fn log(&mut self, what: TableOperation) {
        self.log.push(Logged { at: self.at, store_us: self.store_us, bucket: self.bucket, what });
    }
}

impl LockTable for LoggingLockTable<'_> {
    fn last(&self) -> u64 {
        self.table.last()
    }

    fn set_last(&mut self, last: u64) {
        self.table.set_last(last);
    }

    fn hold(&self, name: &LockName) -> Option<Hold> {
        self.table.hold(name)
    }

    fn put_hold(&mut self, name: &LockName, hold: Hold) {
        self.log(TableOperation::Hold(name.clone(), hold.clone()));
        self.table.put_hold(name, hold);
    }

    fn remove_hold(&mut self, name: &LockName) {
        self.log(TableOperation::Free(name.clone()));
        self.table.remove_hold(name);
    }

    fn first(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.table.first(name)
    }

    fn first_exclusive(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.table.first_exclusive(name)
    }

    fn place_of(&self, name: &LockName, request: Request) -> Option<Place> {
        self.table.place_of(name, request)
    }

    fn is_taken(&self, name: &LockName, place: Place) -> bool {
        self.table.is_taken(name, place)
    }

    fn push(&mut self, name: &LockName, place: Place, waiter: Waiter) {
        self.log(TableOperation::InLine(name.clone(), place, waiter.clone()));
        self.table.push(name, place, waiter);
    }

    fn remove(&mut self, name: &LockName, place: Place) {
        self.log(TableOperation::OutOfLine(name.clone(), place));
        self.table.remove(name, place);
    }

    fn waiters(&self, name: &LockName) -> u32 {
        self.table.waiters(name)
    }

    fn ahead(&self, name: &LockName, place: Place) -> u32 {
        self.table.ahead(name, place)
    }

    fn life(&self, client: ClientId) -> Option<Session> {
        self.table.life(client)
    }

    fn put_life(&mut self, client: ClientId, life: Session) {
        self.log(TableOperation::Life(client, life));
        self.table.put_life(client, life);
    }

    fn is_void(&self, request: Request, now_us: u64) -> bool {
        self.table.is_void(request, now_us)
    }

    fn put_void(&mut self, request: Request, until_us: u64, now_us: u64) {
        self.table.put_void(request, until_us, now_us);
    }
}
