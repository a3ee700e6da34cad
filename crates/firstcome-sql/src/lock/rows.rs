//! The statements that read a page and write what has changed, and the rows that come back.
//!
//! Each goes out as one message of several statements, without parameters: that is one round trip, and a pooler keeps it
//! together. What is written into it is numbers, and names, which hold no quotes.

use super::super::SqlError;
use super::page::{Leaf, Page, WaitingLine, Wants};
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{
    ClientId, Fence, Hold, Mode, Place, Request, Session, Taken, Waiter, sharers_from_text, sharers_to_text,
};
use sqlx::Row;
use sqlx::postgres::PgRow;
use std::fmt::{self, Write as _};

/// After this silence a process is forgotten.
const FORGET_US: u64 = 60_000_000;

/// Whether others are kept out until the end of the transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Out,
    Free,
}

/// A list of rows, as `VALUES` wants them.
fn list<T>(rows: impl IntoIterator<Item = T>, one: impl Fn(&mut String, T) -> fmt::Result) -> String {
    let mut text = String::new();
    for row in rows {
        let comma = if text.is_empty() { "(" } else { ", (" };
        text.push_str(comma);
        // Writing to a `String` cannot fail.
        let _ = one(&mut text, row);
        text.push(')');
    }
    text
}

/// 64 bits as the tables have them. In quotes: the smallest one has no literal of its type.
fn signed(bits: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "'{}'::bigint", bits.cast_signed()))
}

fn pair(request: Request) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "{}, {}", signed(request.client.0), signed(request.number)))
}

/// Reads what is wanted. Each statement sees what was committed before it began, so all but the first one what was committed
/// before the buckets were ours.
pub(super) fn read(wants: &Wants, keep: Keep) -> String {
    let buckets = wants.buckets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let keep_out = if keep == Keep::Out { " FOR UPDATE" } else { "" };
    let mut sql =
        format!("SELECT 0, id, last FROM firstcome_lock_bucket WHERE id IN ({buckets}) ORDER BY id{keep_out};");
    sql.push_str(" SELECT 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;");
    let locks = list(&wants.locks, |text, (name, (bucket, heads))| write!(text, "'{name}', {bucket}, {heads}"));
    let lives = list(&wants.lives, |text, (bucket, client)| write!(text, "{bucket}::bigint, {}", signed(client.0)));
    let mut whose = Vec::new();
    if !locks.is_empty() {
        let _ = write!(
            sql,
            " SELECT 2, n.lock, (SELECT max(number) FROM firstcome_lock_waiter w WHERE w.lock = n.lock), \
             h.client, h.request, h.owner, h.lease_ms, h.passes, h.fence, h.expires_us, h.taken, h.waiters, h.sharers \
             FROM (VALUES {locks}) AS n (lock, bucket, heads) LEFT JOIN firstcome_lock_hold h ON h.lock = n.lock; \
             SELECT 3, w.lock, w.number, w.client, w.request, w.owner, w.lease_ms, w.passes \
             FROM (VALUES {locks}) AS n (lock, bucket, heads) CROSS JOIN LATERAL (SELECT * FROM firstcome_lock_waiter x \
             WHERE x.lock = n.lock ORDER BY number LIMIT n.heads) w;"
        );
        whose.push(format!(
            "SELECT n.bucket::bigint, h.client FROM (VALUES {locks}) AS n (lock, bucket, heads) \
             JOIN firstcome_lock_hold h ON h.lock = n.lock \
             UNION SELECT n.bucket::bigint, w.client FROM (VALUES {locks}) AS n (lock, bucket, heads) CROSS JOIN LATERAL \
             (SELECT client FROM firstcome_lock_waiter x WHERE x.lock = n.lock ORDER BY number LIMIT n.heads) w"
        ));
    }
    if !lives.is_empty() {
        whose.push(format!("VALUES {lives}"));
    }
    if !whose.is_empty() {
        let whose = whose.join(" UNION ");
        let _ = write!(
            sql,
            " SELECT 4, bucket, client, number, seen_us FROM firstcome_lock_life WHERE (bucket, client) IN ({whose});"
        );
    }
    read_rare(wants, &mut sql);
    sql
}

fn read_rare(wants: &Wants, sql: &mut String) {
    let places = list(&wants.places, |text, (name, request)| write!(text, "'{name}', {}", pair(*request)));
    if !places.is_empty() {
        let _ = write!(
            sql,
            " SELECT 5, w.lock, w.client, w.request, w.number, \
             (SELECT count(*) FROM firstcome_lock_waiter x WHERE x.lock = w.lock AND x.number < w.number) \
             FROM firstcome_lock_waiter w WHERE (w.lock, w.client, w.request) IN (VALUES {places});"
        );
    }
    let taken = list(&wants.taken, |text, (name, place)| write!(text, "'{name}', {}::bigint", place.stored()));
    if !taken.is_empty() {
        let _ = write!(
            sql,
            " SELECT 6, n.lock, n.number, \
             (SELECT count(*) FROM firstcome_lock_waiter x WHERE x.lock = n.lock AND x.number = n.number), \
             (SELECT count(*) FROM firstcome_lock_waiter x WHERE x.lock = n.lock AND x.number < n.number) \
             FROM (VALUES {taken}) AS n (lock, number);"
        );
    }
    let voids = list(&wants.voids, |text, (bucket, request)| write!(text, "{bucket}, {}", pair(*request)));
    if !voids.is_empty() {
        let _ = write!(
            sql,
            " SELECT 7, bucket, client, request, until_us FROM firstcome_lock_void \
             WHERE (bucket, client, request) IN (VALUES {voids});"
        );
    }
}

/// The page that the rows make.
pub(super) fn page(wants: &Wants, rows: &[PgRow]) -> Result<Page, SqlError> {
    let mut page = Page::default();
    for (bucket, client) in &wants.lives {
        page.lives.insert((*bucket, *client), None);
    }
    for void in &wants.voids {
        page.voids.insert(*void, None);
    }
    for name in wants.locks.keys() {
        page.locks.insert(name.clone(), Leaf::default());
    }
    for (name, request) in &wants.places {
        page.locks.entry(name.clone()).or_default().line.places.insert(*request, None);
    }
    for row in rows {
        add(&mut page, row).map_err(|error| SqlError::broken(format!("a row of locks is damaged: {error}")))?;
    }
    for (name, (bucket, heads)) in &wants.locks {
        let Leaf { hold, line } = page.locks.entry(name.clone()).or_default();
        line.is_whole = line.heads.len() < *heads as usize;
        // A process that has no life there has none at all.
        let clients = line.heads.values().chain(hold.as_ref().map(|hold| &hold.waiter));
        for client in clients.map(|waiter| waiter.request.client) {
            page.lives.entry((*bucket, client)).or_default();
        }
    }
    if let Some(bucket) = wants.buckets.iter().find(|bucket| !page.lasts.contains_key(bucket)) {
        return Err(SqlError::broken(format!("the table firstcome_lock_bucket has no row {bucket}")));
    }
    Ok(page)
}

fn add(page: &mut Page, row: &PgRow) -> sqlx::Result<()> {
    match row.try_get::<i32, _>(0)? {
        0 => {
            let last = bits(row, 2)?;
            // One out of range would stop the rules.
            if last != 0 && Fence::new(last).is_none() {
                return Err(damaged("a number out of range"));
            }
            page.lasts.insert(small(row, 1)?, last);
        }
        1 => page.now_us = bits(row, 1)?,
        2 => {
            let leaf = page.locks.entry(lock(row)?).or_default();
            leaf.line.greatest = row.try_get::<Option<i64>, _>(2)?.map(place_of).transpose()?;
            if row.try_get::<Option<i64>, _>(3)?.is_some() {
                let taken = if row.try_get::<i64, _>(10)? == 1 { Taken::Yes } else { Taken::Open };
                let fence = Fence::new(bits(row, 8)?).ok_or_else(|| damaged("a fence out of range"))?;
                let others = sharers_from_text(row.try_get(12)?).ok_or_else(|| damaged("sharers out of range"))?;
                leaf.hold = Some(Hold { waiter: waiter(row, 3)?, fence, expires_us: bits(row, 9)?, taken, others });
                leaf.line.count = small(row, 11)?;
            } else if leaf.line.greatest.is_some() {
                return Err(damaged("a waiter waits for a free lock"));
            }
        }
        3 => drop(line(page, row)?.heads.insert(place(row, 2)?, waiter(row, 3)?)),
        4 => {
            let life = Session { number: bits(row, 3)?, seen_us: bits(row, 4)? };
            page.lives.insert((small(row, 1)?, ClientId(bits(row, 2)?)), Some(life));
        }
        5 => {
            let (place, ahead) = (place(row, 4)?, small(row, 5)?);
            let line = line(page, row)?;
            line.places.insert(request(row, 2)?, Some(place));
            line.taken.insert(place, (true, ahead));
        }
        6 => {
            let (is_taken, ahead) = (row.try_get::<i64, _>(3)? == 1, small(row, 4)?);
            line(page, row)?.taken.insert(place(row, 2)?, (is_taken, ahead));
        }
        _ => drop(page.voids.insert((small(row, 1)?, request(row, 2)?), Some(bits(row, 4)?))),
    }
    Ok(())
}

fn line<'a>(page: &'a mut Page, row: &PgRow) -> sqlx::Result<&'a mut WaitingLine> {
    Ok(&mut page.locks.entry(lock(row)?).or_default().line)
}

fn lock(row: &PgRow) -> sqlx::Result<LockName> {
    LockName::parse(row.try_get(1)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

fn bits(row: &PgRow, column: usize) -> sqlx::Result<u64> {
    Ok(row.try_get::<i64, _>(column)?.cast_unsigned())
}

fn small<T: TryFrom<i64>>(row: &PgRow, column: usize) -> sqlx::Result<T> {
    T::try_from(row.try_get::<i64, _>(column)?).map_err(|_| damaged("a number out of range"))
}

fn request(row: &PgRow, column: usize) -> sqlx::Result<Request> {
    Ok(Request { client: ClientId(bits(row, column)?), number: bits(row, column + 1)? })
}

fn place(row: &PgRow, column: usize) -> sqlx::Result<Place> {
    place_of(row.try_get(column)?)
}

fn place_of(number: i64) -> sqlx::Result<Place> {
    Place::from_stored(number).ok_or_else(|| damaged("a place out of range"))
}

fn waiter(row: &PgRow, from: usize) -> sqlx::Result<Waiter> {
    let owner = OwnerName::parse(row.try_get(from + 2)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    let mode = Mode::from_stored(row.try_get(from + 4)?).ok_or_else(|| damaged("passes out of range"))?;
    Ok(Waiter { request: request(row, from)?, owner, lease_ms: small(row, from + 3)?, mode })
}

fn damaged(what: &'static str) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}

fn written(waiter: &Waiter) -> impl fmt::Display {
    let Waiter { request, owner, lease_ms, mode } = waiter;
    fmt::from_fn(move |f| write!(f, "{}, '{owner}', {lease_ms}, {}", pair(*request), mode.stored()))
}

/// Writes what has become of a page; empty if nothing has.
pub(super) fn write(before: &Page, after: &Page) -> String {
    let mut sql = String::new();
    let lasts = after.lasts.iter().filter(|(bucket, last)| before.lasts.get(bucket) != Some(last));
    let lasts = list(lasts, |text, (bucket, last)| write!(text, "{bucket}, {last}"));
    if !lasts.is_empty() {
        let _ = write!(
            sql,
            "UPDATE firstcome_lock_bucket b SET last = n.last FROM (VALUES {lasts}) AS n (id, last) WHERE b.id = n.id;"
        );
    }
    write_locks(before, after, &mut sql);
    write_lives(before, after, &mut sql);
    let voids: Vec<_> = after.voids.iter().filter(|(key, until)| before.voids.get(key) != Some(until)).collect();
    for (bucket, _) in voids.iter().map(|(key, _)| key) {
        let now_us = after.now_us;
        let _ = write!(sql, "DELETE FROM firstcome_lock_void WHERE bucket = {bucket} AND until_us <= {now_us};");
    }
    let voids = list(voids, |text, ((bucket, request), until_us)| {
        write!(text, "{bucket}, {}, {}", pair(*request), until_us.unwrap_or(0))
    });
    if !voids.is_empty() {
        let _ = write!(
            sql,
            "INSERT INTO firstcome_lock_void (bucket, client, request, until_us) VALUES {voids} \
             ON CONFLICT (bucket, client, request) DO UPDATE SET until_us = excluded.until_us;"
        );
    }
    sql
}

fn write_locks(before: &Page, after: &Page, sql: &mut String) {
    let was = |name: &LockName| before.locks.get(name);
    let held = after.locks.iter().filter_map(|(name, leaf)| Some((name, leaf.hold.as_ref()?, leaf.line.len())));
    let changed = held.filter(|(name, hold, waiters)| {
        was(name).is_none_or(|leaf| leaf.hold.as_ref() != Some(*hold) || leaf.line.count != *waiters)
    });
    let held = list(changed, |text, (name, hold, waiters)| {
        let Hold { waiter, fence, expires_us, taken, others } = hold;
        let taken = i32::from(*taken == Taken::Yes);
        let sharers = sharers_to_text(others);
        write!(text, "'{name}', {}, {fence}, {expires_us}, {taken}, {waiters}, '{sharers}'", written(waiter))
    });
    let free =
        |(name, leaf): &(&LockName, &Leaf)| leaf.hold.is_none() && was(name).is_some_and(|was| was.hold.is_some());
    let free = list(after.locks.iter().filter(free), |text, (name, _)| write!(text, "'{name}'"));
    if !free.is_empty() {
        let _ = write!(sql, "DELETE FROM firstcome_lock_hold WHERE lock IN (VALUES {free});");
    }
    if !held.is_empty() {
        let _ = write!(
            sql,
            "INSERT INTO firstcome_lock_hold \
             (lock, client, request, owner, lease_ms, passes, fence, expires_us, taken, waiters, sharers) VALUES {held} \
             ON CONFLICT (lock) DO UPDATE SET client = excluded.client, request = excluded.request, \
             owner = excluded.owner, lease_ms = excluded.lease_ms, passes = excluded.passes, fence = excluded.fence, \
             expires_us = excluded.expires_us, taken = excluded.taken, waiters = excluded.waiters, \
             sharers = excluded.sharers;"
        );
    }
    let removed = after.locks.iter().flat_map(|(name, leaf)| leaf.line.removed.iter().map(move |place| (name, place)));
    let removed = list(removed, |text, (name, place)| write!(text, "'{name}', {}", place.stored()));
    if !removed.is_empty() {
        let _ = write!(sql, "DELETE FROM firstcome_lock_waiter WHERE (lock, number) IN (VALUES {removed});");
    }
    let pushed = after.locks.iter().flat_map(|(name, leaf)| leaf.line.pushed.iter().map(move |pushed| (name, pushed)));
    let pushed =
        list(pushed, |text, (name, (place, waiter))| write!(text, "'{name}', {}, {}", place.stored(), written(waiter)));
    if !pushed.is_empty() {
        let _ = write!(
            sql,
            "INSERT INTO firstcome_lock_waiter (lock, number, client, request, owner, lease_ms, passes) VALUES {pushed};"
        );
    }
}

fn write_lives(before: &Page, after: &Page, sql: &mut String) {
    let lives = after.lives.iter().filter_map(|(key, life)| Some((key, (*life)?)));
    let changed: Vec<_> = lives.filter(|(key, life)| before.lives.get(key) != Some(&Some(*life))).collect();
    // One comes, so the others are looked through: there are never many more than live.
    for ((bucket, _), life) in changed.iter().filter(|(key, _)| !matches!(before.lives.get(key), Some(Some(_)))) {
        let (from, to) = (life.seen_us.saturating_sub(FORGET_US), life.seen_us.saturating_add(FORGET_US));
        let _ = write!(
            sql,
            "DELETE FROM firstcome_lock_life WHERE bucket = {bucket} AND NOT seen_us BETWEEN {from} AND {to};"
        );
    }
    let lives = list(changed, |text, ((bucket, client), life)| {
        write!(text, "{bucket}, {}, {}, {}", signed(client.0), life.number, life.seen_us)
    });
    if !lives.is_empty() {
        let _ = write!(
            sql,
            "INSERT INTO firstcome_lock_life (bucket, client, number, seen_us) VALUES {lives} \
             ON CONFLICT (bucket, client) DO UPDATE SET number = excluded.number, seen_us = excluded.seen_us;"
        );
    }
}
