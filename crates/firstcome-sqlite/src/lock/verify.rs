//! Checks every invariant of stored locks from the rows alone, without the rules that wrote them.

use super::table::{number, place, waiter};
use super::{LOCKS_FILE, fault, schema};
use crate::open_reader;
use crate::verify::integrity;
use firstcome_core::id::LockName;
use firstcome_core::limits::{LEASE_MS_MAX, LEASE_MS_MIN, PERMITS_MAX};
use firstcome_core::lock::{BUCKETS, Mode, Request, Waiter, bucket_of, sharers_from_text};
use firstcome_store::Fault;
use firstcome_store::check::Check;
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The hold of a lock while the check reads its line.
struct LockCheck {
    holders: HashSet<Request>,
    said: u64,
    found: u64,
}

/// Checks every invariant of the locks in a directory. Works beside processes that use them: it reads one consistent
/// snapshot. Memory: about 200 bytes for each holder and waiter.
pub fn verify_locks(directory: &Path) -> Result<Vec<Check>, Fault> {
    let connection = open_reader(&directory.join(LOCKS_FILE), &schema::LOCKS)?;
    let snapshot = connection.unchecked_transaction().map_err(|error| fault(&error, "cannot read"))?;
    let mut file = Check::new("the file of locks is sound (pages, cells, indexes)");
    integrity(&snapshot, &mut file)?;
    let checks = check(&snapshot).map_err(|error| fault(&error, "cannot read locks"))?;
    Ok(std::iter::once(file).chain(checks).collect())
}

fn check(snapshot: &Connection) -> rusqlite::Result<Vec<Check>> {
    let mut numbers = Check::new("numbers: every fence and every place is among the numbers drawn in its bucket");
    let mut valid = Check::new("locks, owners, leases and passes are within their limits");
    let mut lines = Check::new("no waiter waits for a free lock, and a line is as long as its hold says");
    let mut once = Check::new("one request has one place, or the lock");
    let mut shared = Check::new("an exclusive hold is alone, and no more requests share a lock than it has permits");

    let mut lasts: BTreeMap<i64, u64> = BTreeMap::new();
    each(snapshot, "SELECT id, last FROM bucket", |row| {
        let bucket: i64 = row.get(0)?;
        numbers.check((0..i64::from(BUCKETS)).contains(&bucket), || format!("bucket {bucket}"));
        lasts.insert(bucket, number(row, 1)?);
        Ok(())
    })?;
    let last_of = |lock: &str| {
        let bucket = LockName::parse(lock).map(|name| i64::from(bucket_of(&name)));
        bucket.ok().and_then(|bucket| lasts.get(&bucket).copied()).unwrap_or(0)
    };

    let mut holds: BTreeMap<Box<str>, LockCheck> = BTreeMap::new();
    let sql = "SELECT client, request, owner, lease_ms, passes, lock, fence, expires_us, waiters, sharers FROM hold";
    each(snapshot, sql, |row| {
        let (waiter, lock, fence) = (waiter(row)?, row.get::<_, Box<str>>(5)?, number(row, 6)?);
        let here = || format!("lock {lock}, fence {fence}");
        valid.check(is_valid(&lock, &waiter) && 0 < row.get::<_, i64>(7)?, here);
        let last = fence + u64::from(waiter.mode.passes()) - 1;
        numbers.check(last <= last_of(&lock), here);
        let said: u32 = row.get(8)?;
        let sharers = sharers_from_text(row.get_ref(9)?.as_str()?);
        valid.check(sharers.is_some(), here);
        let others: Vec<Waiter> = sharers.unwrap_or_default().into_iter().map(|sharer| sharer.waiter).collect();
        shared.check(others.is_empty() || waiter.mode.is_shared(), here);
        let permits = std::iter::once(&waiter).chain(&others).map(|holder| match holder.mode {
            Mode::Exclusive { .. } => 1,
            Mode::Shared { permits } => permits as usize,
        });
        shared.check(others.len() < permits.max().unwrap_or(1), here);
        valid.check(others.iter().all(|other| is_valid(&lock, other)), here);
        let holders: HashSet<Request> = std::iter::once(&waiter).chain(&others).map(|holder| holder.request).collect();
        once.check(holders.len() == 1 + others.len(), here);
        holds.insert(lock, LockCheck { holders, said: said.into(), found: 0 });
        Ok(())
    })?;

    let mut requests: HashSet<(Box<str>, Request)> = HashSet::new();
    each(snapshot, "SELECT client, request, owner, lease_ms, passes, number, lock FROM waiter", |row| {
        let (waiter, place, lock) = (waiter(row)?, place(row, 5)?, row.get::<_, Box<str>>(6)?);
        let number = place.number();
        let here = || format!("lock {lock}, place {number}");
        valid.check(is_valid(&lock, &waiter) && place.is_shared() == waiter.mode.is_shared(), here);
        numbers.check(number <= last_of(&lock), here);
        let hold = holds.get_mut(&lock);
        lines.check(hold.is_some(), here);
        once.check(hold.as_ref().is_none_or(|hold| !hold.holders.contains(&waiter.request)), here);
        if let Some(hold) = hold {
            hold.found += 1;
        }
        once.check(requests.insert((lock.clone(), waiter.request)), here);
        Ok(())
    })?;
    for (lock, LockCheck { said, found, .. }) in holds {
        lines.check(said == found, || format!("lock {lock}: {found} wait, its hold says {said}"));
    }
    each(snapshot, "SELECT bucket, number FROM life", |row| {
        let (bucket, number) = (row.get::<_, i64>(0)?, number(row, 1)?);
        numbers.check(number <= lasts.get(&bucket).copied().unwrap_or(0), || format!("life {number}, bucket {bucket}"));
        Ok(())
    })?;
    Ok(vec![numbers, valid, lines, once, shared])
}

fn is_valid(lock: &str, waiter: &Waiter) -> bool {
    let lease = (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&waiter.lease_ms);
    let mode = match waiter.mode {
        Mode::Exclusive { passes } => 0 < passes,
        Mode::Shared { permits } => (1..=PERMITS_MAX).contains(&permits),
    };
    LockName::parse(lock).is_ok() && lease && mode
}

fn each(
    snapshot: &Connection,
    sql: &str,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = snapshot.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        read(row)?;
    }
    Ok(())
}
