//! The state of one bucket in SQL tables.

use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{
    ClientId, Fence, Hold, LockTable, Mode, Place, Request, Session, Taken, Waiter, sharers_from_text, sharers_to_text,
};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use std::cell::{Cell, RefCell};

/// The silence after which the table forgets a process.
const FORGET_US: i64 = 60_000_000;

const LAST: &str = "SELECT last FROM bucket WHERE id = ?1";
const SET_LAST: &str =
    "INSERT INTO bucket (id, last) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET last = excluded.last";
const HOLD: &str =
    "SELECT client, request, owner, lease_ms, passes, fence, expires_us, taken, sharers FROM hold WHERE lock = ?1";
const PUT_HOLD: &str = "
    INSERT INTO hold (lock, client, request, owner, lease_ms, passes, fence, expires_us, taken, sharers, waiters)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0)
    ON CONFLICT (lock) DO UPDATE SET client = excluded.client, request = excluded.request, owner = excluded.owner,
        lease_ms = excluded.lease_ms, passes = excluded.passes, fence = excluded.fence,
        expires_us = excluded.expires_us, taken = excluded.taken, sharers = excluded.sharers";
const REMOVE_HOLD: &str = "DELETE FROM hold WHERE lock = ?1";
const FIRST: &str = "
    SELECT client, request, owner, lease_ms, passes, number FROM waiter WHERE lock = ?1 ORDER BY number LIMIT 1";
const FIRST_EXCLUSIVE: &str = "
    SELECT client, request, owner, lease_ms, passes, number FROM waiter WHERE lock = ?1 AND 0 <= number
    ORDER BY number LIMIT 1";
const PLACE_OF: &str = "SELECT number FROM waiter WHERE client = ?2 AND request = ?3 AND lock = ?1";
const IS_TAKEN: &str = "SELECT 1 FROM waiter WHERE lock = ?1 AND number = ?2";
const PUSH: &str = "
    INSERT INTO waiter (lock, number, client, request, owner, lease_ms, passes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const REMOVE: &str = "DELETE FROM waiter WHERE lock = ?1 AND number = ?2";
const COUNT_MORE: &str = "UPDATE hold SET waiters = waiters + ?2 WHERE lock = ?1";
const WAITERS: &str = "SELECT waiters FROM hold WHERE lock = ?1";
const GREATEST: &str = "SELECT number FROM waiter WHERE lock = ?1 ORDER BY number DESC LIMIT 1";
const AHEAD: &str = "SELECT count(*) FROM waiter WHERE lock = ?1 AND number < ?2";
const LIFE: &str = "SELECT number, seen_us FROM life WHERE bucket = ?1 AND client = ?2";
const RENEW_LIFE: &str = "UPDATE life SET number = ?3, seen_us = ?4 WHERE bucket = ?1 AND client = ?2";
const NEW_LIFE: &str = "INSERT INTO life (bucket, client, number, seen_us) VALUES (?1, ?2, ?3, ?4)";
const FORGET_LIVES: &str = "DELETE FROM life WHERE bucket = ?1 AND NOT seen_us BETWEEN ?2 AND ?3";
const IS_VOID: &str = "SELECT 1 FROM void WHERE bucket = ?1 AND client = ?2 AND request = ?3 AND ?4 < until_us";
const PUT_VOID: &str = "
    INSERT INTO void (bucket, client, request, until_us) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (bucket, client, request) DO UPDATE SET until_us = excluded.until_us";
const FORGET_VOIDS: &str = "DELETE FROM void WHERE until_us <= ?1";

/// One bucket in the open transaction. The rules have no errors, so this type keeps the first one. From then on it reads and
/// writes nothing more. [`Self::finish`] returns the error, so that the caller rolls the transaction back.
pub(super) struct SqliteLockTable<'a> {
    connection: &'a Connection,
    bucket: u8,
    last: Cell<Option<u64>>,
    failed: RefCell<Option<rusqlite::Error>>,
}

impl<'a> SqliteLockTable<'a> {
    pub(super) const fn new(connection: &'a Connection, bucket: u8) -> Self {
        Self { connection, bucket, last: Cell::new(None), failed: RefCell::new(None) }
    }

    /// Returns the first error, if there was one: then no result of the rules is valid.
    pub(super) fn finish(self) -> rusqlite::Result<()> {
        self.failed.into_inner().map_or(Ok(()), Err)
    }

    fn note<T>(&self, result: rusqlite::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    fn ask<T>(&self, sql: &str, params: impl Params, read: fn(&Row<'_>) -> rusqlite::Result<T>) -> Option<T> {
        if self.failed.borrow().is_some() {
            return None;
        }
        let asked = self.connection.prepare_cached(sql).and_then(|mut it| it.query_row(params, read).optional());
        self.note(asked).flatten()
    }

    /// Runs a statement, and returns how many rows it changed.
    fn run(&self, sql: &str, params: impl Params) -> usize {
        if self.failed.borrow().is_some() {
            return 0;
        }
        self.note(self.connection.prepare_cached(sql).and_then(|mut it| it.execute(params))).unwrap_or(0)
    }
}

impl LockTable for SqliteLockTable<'_> {
    fn last(&self) -> u64 {
        if let Some(last) = self.last.get() {
            return last;
        }
        let last = self.ask(LAST, [self.bucket], |row| number(row, 0)).unwrap_or(0);
        self.last.set(Some(last));
        last
    }

    fn set_last(&mut self, last: u64) {
        self.last.set(Some(last));
        self.run(SET_LAST, (self.bucket, last.cast_signed()));
    }

    fn hold(&self, name: &LockName) -> Option<Hold> {
        self.ask(HOLD, [name.as_str()], |row| {
            let taken = if row.get::<_, bool>(7)? { Taken::Yes } else { Taken::Open };
            let fence = Fence::new(number(row, 5)?).ok_or_else(|| out_of_range(5))?;
            let others = sharers_from_text(row.get_ref(8)?.as_str()?).ok_or_else(|| out_of_range(8))?;
            Ok(Hold { waiter: waiter(row)?, fence, expires_us: positive(row, 6)?, taken, others })
        })
    }

    fn put_hold(&mut self, name: &LockName, hold: Hold) {
        let Hold { waiter, fence, expires_us, taken, others } = hold;
        let (client, request) = signed(waiter.request);
        let (lock, owner) = (name.as_str(), waiter.owner.as_str());
        let (fence, expires_us) = (fence.get().cast_signed(), expires_us.cast_signed());
        let known = taken == Taken::Yes;
        let (lease_ms, mode, sharers) = (waiter.lease_ms, waiter.mode.stored(), sharers_to_text(&others));
        self.run(PUT_HOLD, (lock, client, request, owner, lease_ms, mode, fence, expires_us, known, sharers));
    }

    fn remove_hold(&mut self, name: &LockName) {
        self.run(REMOVE_HOLD, [name.as_str()]);
    }

    fn first(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.ask(FIRST, [name.as_str()], |row| Ok((place(row, 5)?, waiter(row)?)))
    }

    fn first_exclusive(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.ask(FIRST_EXCLUSIVE, [name.as_str()], |row| Ok((place(row, 5)?, waiter(row)?)))
    }

    fn place_of(&self, name: &LockName, request: Request) -> Option<Place> {
        let (client, request) = signed(request);
        self.ask(PLACE_OF, (name.as_str(), client, request), |row| place(row, 0))
    }

    fn is_taken(&self, name: &LockName, place: Place) -> bool {
        self.ask(IS_TAKEN, (name.as_str(), place.stored()), |_| Ok(())).is_some()
    }

    fn push(&mut self, name: &LockName, place: Place, waiter: Waiter) {
        let (client, request) = signed(waiter.request);
        let (lock, owner) = (name.as_str(), waiter.owner.as_str());
        self.run(PUSH, (lock, place.stored(), client, request, owner, waiter.lease_ms, waiter.mode.stored()));
        if self.run(COUNT_MORE, (lock, 1)) == 0 {
            // A line without a hold would never move.
            self.note::<()>(Err(rusqlite::Error::QueryReturnedNoRows));
        }
    }

    fn remove(&mut self, name: &LockName, place: Place) {
        if self.run(REMOVE, (name.as_str(), place.stored())) == 1 {
            self.run(COUNT_MORE, (name.as_str(), -1));
        }
    }

    fn waiters(&self, name: &LockName) -> u32 {
        self.ask(WAITERS, [name.as_str()], |row| row.get(0)).unwrap_or(0)
    }

    // Linear in the place, except for the last one: a request seldom leaves from the middle of a line.
    fn ahead(&self, name: &LockName, place: Place) -> u32 {
        let wanted = place.stored();
        match self.ask(GREATEST, [name.as_str()], |row| row.get::<_, i64>(0)) {
            Some(greatest) if greatest <= wanted => self.waiters(name).saturating_sub(u32::from(greatest == wanted)),
            _ => self.ask(AHEAD, (name.as_str(), wanted), |row| row.get(0)).unwrap_or(0),
        }
    }

    fn life(&self, client: ClientId) -> Option<Session> {
        let key = (self.bucket, client.0.cast_signed());
        self.ask(LIFE, key, |row| Ok(Session { number: number(row, 0)?, seen_us: positive(row, 1)? }))
    }

    fn put_life(&mut self, client: ClientId, life: Session) {
        let (number, seen_us) = (life.number.cast_signed(), life.seen_us.cast_signed());
        let row = (self.bucket, client.0.cast_signed(), number, seen_us);
        if self.run(RENEW_LIFE, row) == 0 {
            // Each new process searches for old ones, so there are never many more rows than living processes.
            self.run(FORGET_LIVES, (self.bucket, seen_us.saturating_sub(FORGET_US), seen_us.saturating_add(FORGET_US)));
            self.run(NEW_LIFE, row);
        }
    }

    fn is_void(&self, request: Request, now_us: u64) -> bool {
        let (client, request) = signed(request);
        self.ask(IS_VOID, (self.bucket, client, request, now_us.cast_signed()), |_| Ok(())).is_some()
    }

    fn put_void(&mut self, request: Request, until_us: u64, now_us: u64) {
        let (client, request) = signed(request);
        self.run(FORGET_VOIDS, [now_us.cast_signed()]);
        self.run(PUT_VOID, (self.bucket, client, request, until_us.cast_signed()));
    }
}

const fn signed(request: Request) -> (i64, i64) {
    (request.client.0.cast_signed(), request.number.cast_signed())
}

/// Reads the first five columns of a hold or of a waiter.
pub(super) fn waiter(row: &Row<'_>) -> rusqlite::Result<Waiter> {
    let client = ClientId(row.get::<_, i64>(0)?.cast_unsigned());
    let request = Request { client, number: row.get::<_, i64>(1)?.cast_unsigned() };
    let owner = row.get_ref(2)?.as_str()?;
    let owner = OwnerName::parse(owner)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, Box::new(error)))?;
    let mode = Mode::from_stored(row.get(4)?).ok_or_else(|| out_of_range(4))?;
    Ok(Waiter { request, owner, lease_ms: row.get(3)?, mode })
}

/// Reads a place in line.
pub(super) fn place(row: &Row<'_>, column: usize) -> rusqlite::Result<Place> {
    Place::from_stored(row.get(column)?).ok_or_else(|| out_of_range(column))
}

/// Reads a drawn number. A number out of range means a damaged file, and would stop the rules.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number = positive(row, column)?;
    if Fence::new(number).is_some() { Ok(number) } else { Err(out_of_range(column)) }
}

pub(super) fn positive(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| out_of_range(column))
}

fn out_of_range(column: usize) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Integer, "a number out of range".into())
}
