//! Rows of rooms: written in the order of the decisions, restored through the rules.

use super::coupon::{damaged, instant, request_columns, request_of};
use super::faults::fault;
use super::renewal;
use firstcome_core::id::{RequestId, RoomName, UserId};
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{
    Admit, Change, Damage, Departure, Draw, DrawSeed, Hold, Join, Memory, Room, RoomOrder, RoomPhase, RoomSettings,
    Slot, TicketNumber,
};
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_store::Fault;
use firstcome_store::TicketKey;
use firstcome_store::embedded::StoredRoom;
use firstcome_store::embedded::journal::{PassSecret, RoomId, RoomPut};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

const PUT_ROOM: &str = "\
INSERT INTO room (id, name, admit_count, admit_every_ms, max_active, max_waiting, waiting_ttl_ms, active_ttl_ms,
    claim_window_ms, idle_ttl_ms, opens_at, paused, message, target_url, ticket_key, first, reached, created_at, changed_at, draws,
    first_poll_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 1, 1, ?16, ?16, ?17, ?18)
ON CONFLICT (id) DO UPDATE SET admit_count = ?3, admit_every_ms = ?4, max_active = ?5, max_waiting = ?6,
    waiting_ttl_ms = ?7, active_ttl_ms = ?8, claim_window_ms = ?9, idle_ttl_ms = ?10, opens_at = ?11, paused = ?12,
    message = ?13, target_url = ?14, changed_at = ?16, closed_at = NULL, draws = ?17, first_poll_ms = ?18";
const INSERT_TICKET: &str =
    "INSERT INTO ticket (id, user, joined_at, request_key, request_body) VALUES (?1, ?2, ?3, ?4, ?5)";
const INSERT_SLOT: &str =
    "INSERT INTO slot (id, admission, admitted_at, taken, until_steady) VALUES (?1, ?2, ?3, ?4, ?5)";

const LEFT: i64 = 1;
const EXPIRED: i64 = 2;

/// Returns the range of the keys of a room's tickets.
pub(super) fn range(id: RoomId) -> [i64; 2] {
    let first = i64::from(id.0) << 32;
    [first, first | i64::from(u32::MAX)]
}

pub(super) fn put_room(connection: &Connection, put: &RoomPut) -> rusqlite::Result<()> {
    let RoomPut { id, name, settings, ticket_key, at } = put;
    connection.prepare_cached(PUT_ROOM)?.execute(params![
        id.0,
        name.as_str(),
        settings.admit.map(|admit| admit.count),
        settings.admit.map(|admit| admit.every_ms.cast_signed()),
        settings.max_active,
        settings.max_waiting,
        settings.waiting_ttl_ms.cast_signed(),
        settings.active_ttl_ms.cast_signed(),
        settings.claim_window_ms.cast_signed(),
        settings.idle_ttl_ms.map(u64::cast_signed),
        settings.opens_at.map(Timestamp::as_us),
        settings.paused,
        settings.message,
        settings.target_url,
        ticket_key.as_bytes(),
        at.as_us(),
        settings.order == RoomOrder::Draw,
        settings.first_poll_ms.map(u64::cast_signed)
    ])?;
    Ok(())
}

/// Closes a room. Deletes the rows of its tickets, which are void.
pub(super) fn close_room(connection: &Connection, id: RoomId, first: u32, at: Timestamp) -> rusqlite::Result<()> {
    let mut close = connection
        .prepare_cached("UPDATE room SET first = ?2, reached = ?2, closed_at = ?3, changed_at = ?3, draw_seed = NULL, draw_first = NULL, draw_entrants = NULL, drawn_at = NULL WHERE id = ?1")?;
    close.execute(params![id.0, first, at.as_us()])?;
    connection.prepare_cached("DELETE FROM slot WHERE id BETWEEN ?1 AND ?2")?.execute(range(id))?;
    connection.prepare_cached("DELETE FROM renewal WHERE id BETWEEN ?1 AND ?2")?.execute(range(id))?;
    connection.prepare_cached("DELETE FROM ticket WHERE id BETWEEN ?1 AND ?2")?.execute(range(id))?;
    connection.prepare_cached("DELETE FROM memory WHERE id BETWEEN ?1 AND ?2")?.execute(range(id))?;
    Ok(())
}

pub(super) fn put_appearance(connection: &Connection, id: RoomId, appearance: &Appearance) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO appearance (room, appearance) VALUES (?1, ?2) ON CONFLICT (room) DO UPDATE SET appearance = ?2",
    )?;
    put.execute(params![id.0, appearance.encode()]).map(drop)
}

/// Reads how the pages of rooms look.
pub(super) fn appearances(connection: &Connection) -> Result<HashMap<RoomId, Arc<Appearance>>, Fault> {
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the appearances of rooms");
    let mut statement =
        connection.prepare("SELECT room, appearance FROM appearance").map_err(|error| broken(&error))?;
    let read = |row: &Row<'_>| Ok((RoomId(row.get(0)?), row.get::<_, Vec<u8>>(1)?));
    let rows = statement.query_map([], read).map_err(|error| broken(&error))?;
    rows.map(|row| {
        let (id, bytes) = row.map_err(|error| broken(&error))?;
        let appearance = Appearance::decode(&bytes);
        let appearance = appearance.map_err(|error| damaged(format!("appearance of room {}: {error}", id.0)))?;
        Ok((id, Arc::new(appearance)))
    })
    .collect()
}

/// Stores a part of what a room remembers, or deletes it if no visitor is in it any more.
pub(super) fn put_memory(connection: &Connection, id: RoomId, memory: &Memory) -> rusqlite::Result<()> {
    let Memory { first_number, bytes } = memory;
    let row = i64::from(id.0) << 32 | i64::from(*first_number);
    if bytes.is_empty() {
        connection.prepare_cached("DELETE FROM memory WHERE id = ?1")?.execute([row])?;
        return Ok(());
    }
    let mut put = connection.prepare_cached("INSERT OR REPLACE INTO memory (id, bytes) VALUES (?1, ?2)")?;
    put.execute(params![row, bytes]).map(drop)
}

pub(super) fn write(connection: &Connection, id: RoomId, change: &Change, at: Timestamp) -> rusqlite::Result<()> {
    let delete_slot = |number: &TicketNumber| -> rusqlite::Result<usize> {
        connection.prepare_cached("DELETE FROM slot WHERE id = ?1")?.execute([id.row(*number)])
    };
    match change {
        Change::Joined { number, join, joined_at } => {
            let (key, body) = request_columns(join.request);
            let user = join.user.as_ref().map(UserId::as_str);
            let mut insert = connection.prepare_cached(INSERT_TICKET)?;
            insert.execute(params![id.row(*number), user, joined_at.as_us(), key, body])?;
        }
        Change::Admitted { number, slot } => {
            let (taken, until) = hold_columns(slot.hold);
            let mut insert = connection.prepare_cached(INSERT_SLOT)?;
            insert.execute(params![
                id.row(*number),
                slot.admission.cast_signed(),
                slot.admitted_at.as_us(),
                taken,
                until
            ])?;
        }
        Change::Taken { number, until } => {
            let mut take = connection.prepare_cached("UPDATE slot SET taken = 1, until_steady = ?2 WHERE id = ?1")?;
            take.execute(params![id.row(*number), until.as_us()])?;
        }
        Change::Lapsed { number } => {
            delete_slot(number)?;
        }
        Change::Gone { number, how } => {
            let how = if *how == Departure::Left { LEFT } else { EXPIRED };
            let mut end = connection.prepare_cached("UPDATE ticket SET gone = ?2, gone_at = ?3 WHERE id = ?1")?;
            end.execute(params![id.row(*number), how, at.as_us()])?;
            delete_slot(number)?;
            renewal::delete(connection, id.row(*number))?;
        }
        Change::Renewed { number, renewal } => renewal::put(connection, id.row(*number), *renewal)?,
        Change::Reached(reached) => {
            let mut reach = connection.prepare_cached("UPDATE room SET reached = ?2 WHERE id = ?1")?;
            reach.execute(params![id.0, reached])?;
        }
        Change::Drawn(draw) => {
            let mut put = connection.prepare_cached(
                "UPDATE room SET draw_seed = ?2, draw_first = ?3, draw_entrants = ?4, drawn_at = ?5 WHERE id = ?1",
            )?;
            put.execute(params![id.0, draw.seed.as_bytes(), draw.first, draw.entrants, draw.drawn_at.as_us()])?;
        }
    }
    Ok(())
}

const fn hold_columns(hold: Hold) -> (i64, i64) {
    match hold {
        Hold::Offered { until } => (0, until.as_us()),
        Hold::Taken { until } => (1, until.as_us()),
    }
}

pub(super) fn put_clock(connection: &Connection, now: Now) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO clock (id, wall, steady) VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE SET wall = ?1, steady = ?2",
    )?;
    put.execute([now.wall.as_us(), now.steady.as_us()]).map(drop)
}

pub(super) fn put_secret(connection: &Connection, fresh: PassSecret, oldest_kept: u32) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM pass_secret WHERE id < ?1")?.execute([oldest_kept])?;
    add_secret(connection, fresh)
}

/// Deletes a secret, and puts the one that signs instead, if there is one. A copy of the file from before still has it.
pub(super) fn revoke_secret(connection: &Connection, id: u32, fresh: Option<PassSecret>) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM pass_secret WHERE id = ?1")?.execute([id])?;
    fresh.map_or(Ok(()), |fresh| add_secret(connection, fresh))
}

fn add_secret(connection: &Connection, fresh: PassSecret) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached("INSERT INTO pass_secret (id, secret, created_at) VALUES (?1, ?2, ?3)")?;
    put.execute(params![fresh.id, fresh.bytes, fresh.created_at.as_us()]).map(drop)
}

/// Reads what both clocks showed at the last write.
pub(super) fn clock(connection: &Connection) -> Result<Option<Now>, Fault> {
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let found = connection.query_row("SELECT wall, steady FROM clock", [], read).optional();
    let found = found.map_err(|error| fault(&error, "cannot read the clocks"))?;
    let now = |(wall, steady)| Ok(Now { wall: instant(wall)?, steady: Steady::from_us(steady) });
    found.map(now).transpose()
}

/// Reads the secrets of passes, the newest last.
pub(super) fn secrets(connection: &Connection) -> Result<Vec<PassSecret>, Fault> {
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the secrets of passes");
    let query = "SELECT id, secret, created_at FROM pass_secret ORDER BY id";
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows = statement.query_map([], read).map_err(|error| broken(&error))?;
    let secret = |row: rusqlite::Result<(u32, [u8; 32], i64)>| {
        let (id, bytes, created_at) = row.map_err(|error| broken(&error))?;
        Ok(PassSecret { id, bytes, created_at: instant(created_at)? })
    };
    rows.map(secret).collect()
}

/// A room's row.
pub(super) struct RoomRow {
    pub(super) id: RoomId,
    pub(super) name: RoomName,
    pub(super) settings: RoomSettings,
    pub(super) ticket_key: TicketKey,
    pub(super) first: u32,
    /// Numbers before it are gone, and have no rows. At least the first number.
    pub(super) gone_before: u32,
    pub(super) reached: u32,
    pub(super) standing: RoomPhase,
    pub(super) draw: Option<Draw>,
}

/// The range of the keys of all rooms' tickets and slots.
pub(super) const EVERY_ROOM: [i64; 2] = [i64::MIN, i64::MAX];

/// Reads all rooms, in the order of their creation.
pub(super) fn rooms(connection: &Connection) -> Result<Vec<RoomRow>, Fault> {
    let query = "SELECT id, name, admit_count, admit_every_ms, max_active, max_waiting, waiting_ttl_ms, active_ttl_ms,
        claim_window_ms, idle_ttl_ms, opens_at, paused, message, target_url, ticket_key, first, reached, closed_at,
        draws, draw_seed, draw_first, draw_entrants, drawn_at, first_poll_ms, gone_before FROM room ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the rooms");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query([]).map_err(|error| broken(&error))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        found.push(room_row(row).map_err(|error| broken(&error))??);
    }
    Ok(found)
}

fn room_row(row: &Row<'_>) -> rusqlite::Result<Result<RoomRow, Fault>> {
    let name: String = row.get(1)?;
    let ms = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
    let (count, every_ms): (Option<u32>, Option<i64>) = (row.get(2)?, row.get(3)?);
    let opens_at: Option<i64> = row.get(10)?;
    let settings = RoomSettings {
        admit: count.zip(every_ms).map(|(count, every_ms)| Admit { count, every_ms: every_ms.cast_unsigned() }),
        max_active: row.get(4)?,
        max_waiting: row.get(5)?,
        waiting_ttl_ms: ms(6)?,
        first_poll_ms: row.get::<_, Option<i64>>(23)?.map(i64::cast_unsigned),
        active_ttl_ms: ms(7)?,
        claim_window_ms: ms(8)?,
        idle_ttl_ms: row.get::<_, Option<i64>>(9)?.map(i64::cast_unsigned),
        opens_at: None,
        order: if row.get(18)? { RoomOrder::Draw } else { RoomOrder::FirstCome },
        paused: row.get(11)?,
        message: row.get::<_, Option<String>>(12)?.map(Into::into),
        target_url: row.get::<_, Option<String>>(13)?.map(Into::into),
    };
    let standing = if row.get::<_, Option<i64>>(17)?.is_some() { RoomPhase::Closed } else { RoomPhase::Running };
    let (id, first, reached) = (RoomId(row.get(0)?), row.get::<_, u32>(15)?, row.get(16)?);
    let gone_before = row.get::<_, u32>(24)?.max(first);
    let ticket_key = TicketKey::new(row.get(14)?);
    let draw: Option<(u32, u32, i64)> = match row.get::<_, Option<u32>>(20)? {
        Some(first) => Some((first, row.get(21)?, row.get(22)?)),
        None => None,
    };
    let seed: Option<[u8; 32]> = row.get(19)?;
    let read = || {
        let settings = RoomSettings { opens_at: opens_at.map(instant).transpose()?, ..settings };
        settings.check().map_err(|(_, says)| damaged(format!("room {name:?}: {says}")))?;
        let name = RoomName::parse(&name).map_err(|error| damaged(format!("room {name:?}: {error}")))?;
        let draw = draw.zip(seed).map(|((first, entrants, drawn_at), seed)| {
            Ok(Draw { seed: DrawSeed::new(seed), first, entrants, drawn_at: instant(drawn_at)? })
        });
        Ok(RoomRow { id, name, settings, ticket_key, first, gone_before, reached, standing, draw: draw.transpose()? })
    };
    Ok(read())
}

pub(super) fn key_of(row: i64) -> Result<(RoomId, TicketNumber), Fault> {
    let room = u32::try_from(row >> 32).ok().map(RoomId);
    room.zip(TicketNumber::new(row as u32)).ok_or_else(|| damaged(format!("{row} is not the key of a ticket")))
}

/// A ticket's row. The user is still text, which the visitor parses if it needs a [`UserId`].
pub(super) struct TicketRow<'a> {
    pub(super) room: RoomId,
    pub(super) number: TicketNumber,
    pub(super) user: Option<&'a str>,
    pub(super) gone: Option<Departure>,
    pub(super) request: Option<RequestId>,
}

/// Visits tickets in key order: by room, then by number.
pub(super) fn for_each_ticket(
    connection: &Connection,
    mut visit: impl FnMut(TicketRow<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    walk_tickets(connection, EVERY_ROOM, |row, _| visit(row))
}

/// Visits the tickets of one room in the order of their numbers, each with the time of its join.
pub(super) fn for_each_ticket_of(
    connection: &Connection,
    id: RoomId,
    visit: impl FnMut(TicketRow<'_>, Timestamp) -> Result<(), Fault>,
) -> Result<(), Fault> {
    walk_tickets(connection, range(id), visit)
}

fn walk_tickets(
    connection: &Connection,
    range: [i64; 2],
    mut visit: impl FnMut(TicketRow<'_>, Timestamp) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query = "SELECT id, user, gone, request_key, request_body, joined_at FROM ticket WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the tickets");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query(range).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        let read = || -> rusqlite::Result<_> {
            let user = row.get_ref(1)?.as_str_or_null()?;
            let (gone, joined_at) = (row.get::<_, Option<i64>>(2)?, row.get::<_, i64>(5)?);
            Ok((row.get::<_, i64>(0)?, user, gone, request_of(row, 3)?, joined_at))
        };
        let (key, user, gone, request, joined_at) = read().map_err(|error| broken(&error))?;
        let (room, number) = key_of(key)?;
        let gone = match gone {
            None => None,
            Some(LEFT) => Some(Departure::Left),
            Some(EXPIRED) => Some(Departure::Expired),
            Some(other) => return Err(damaged(format!("ticket {}: unknown departure {other}", number.get()))),
        };
        visit(TicketRow { room, number, user, gone, request }, instant(joined_at)?)?;
    }
    Ok(())
}

/// Returns the last number that a room has drawn; 0 if it has drawn none.
pub(super) fn last_number(connection: &Connection, room: &RoomRow) -> Result<u32, Fault> {
    let query = "SELECT max(id) FROM ticket WHERE id BETWEEN ?1 AND ?2";
    let last = connection.query_row(query, range(room.id), |row| row.get::<_, Option<i64>>(0));
    let last = last.map_err(|error| fault(&error, "cannot read the tickets"))?;
    let last = last.map(key_of).transpose()?.map(|(_, number)| number.get());
    // The rows of void and of purged numbers are not there.
    Ok(last.unwrap_or(room.gone_before - 1))
}

/// Visits slots in key order.
pub(super) fn for_each_slot(
    connection: &Connection,
    visit: impl FnMut(RoomId, TicketNumber, Slot) -> Result<(), Fault>,
) -> Result<(), Fault> {
    walk_slots(connection, EVERY_ROOM, visit)
}

fn walk_slots(
    connection: &Connection,
    range: [i64; 2],
    mut visit: impl FnMut(RoomId, TicketNumber, Slot) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query =
        "SELECT id, admission, admitted_at, taken, until_steady FROM slot WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read the slots");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query(range).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        let read = || -> rusqlite::Result<(i64, i64, i64, bool, i64)> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        };
        let (key, admission, admitted_at, taken, until) = read().map_err(|error| broken(&error))?;
        let (room, number) = key_of(key)?;
        let until = Steady::from_us(until);
        let hold = if taken { Hold::Taken { until } } else { Hold::Offered { until } };
        visit(room, number, Slot { admission: admission.cast_unsigned(), admitted_at: instant(admitted_at)?, hold })?;
    }
    Ok(())
}

/// Visits what rooms remember, in key order.
pub(super) fn for_each_memory(
    connection: &Connection,
    visit: impl FnMut(RoomId, Memory) -> Result<(), Fault>,
) -> Result<(), Fault> {
    walk_memory(connection, EVERY_ROOM, visit)
}

fn walk_memory(
    connection: &Connection,
    range: [i64; 2],
    mut visit: impl FnMut(RoomId, Memory) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let query = "SELECT id, bytes FROM memory WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
    let broken = |error: &rusqlite::Error| fault(error, "cannot read what rooms remember");
    let mut statement = connection.prepare(query).map_err(|error| broken(&error))?;
    let mut rows = statement.query(range).map_err(|error| broken(&error))?;
    while let Some(row) = rows.next().map_err(|error| broken(&error))? {
        let read = || -> rusqlite::Result<(i64, Vec<u8>)> { Ok((row.get(0)?, row.get(1)?)) };
        let (key, bytes) = read().map_err(|error| broken(&error))?;
        let room = u32::try_from(key >> 32).map_err(|_| damaged(format!("{key} is not the key of a memory")))?;
        visit(RoomId(room), Memory { first_number: key as u32, bytes: bytes.into() })?;
    }
    Ok(())
}

/// Loads all rooms and restores them through the rules.
pub(super) fn load(connection: &Connection, hasher: &RandomState, now: Now) -> Result<Vec<StoredRoom>, Fault> {
    load_of(connection, (rooms(connection)?, EVERY_ROOM), hasher, now)
}

/// Loads one room in the same way.
pub(super) fn load_one(
    connection: &Connection,
    id: RoomId,
    hasher: &RandomState,
    now: Now,
) -> Result<StoredRoom, Fault> {
    let row = rooms(connection)?.into_iter().filter(|row| row.id == id).collect();
    let loaded = load_of(connection, (row, range(id)), hasher, now)?;
    loaded.into_iter().next().ok_or_else(|| damaged(format!("room {} is gone", id.0)))
}

/// Loads these rooms. `range` covers the keys of their tickets and slots.
fn load_of(
    connection: &Connection,
    (rows, range): (Vec<RoomRow>, [i64; 2]),
    hasher: &RandomState,
    now: Now,
) -> Result<Vec<StoredRoom>, Fault> {
    let mut loaded: Vec<(StoredRoom, RoomRow)> = Vec::new();
    let mut place: HashMap<RoomId, usize> = HashMap::new();
    let mut appearances = appearances(connection)?;
    for row in rows {
        place.insert(row.id, loaded.len());
        let mut room = Room::restoring(row.settings.clone(), hasher.clone(), now, row.first);
        let skipped = room.restore_gone(row.gone_before);
        skipped.map_err(|damage| damaged(format!("room {}: {}", row.name, damage.as_str())))?;
        let appearance = appearances.remove(&row.id).unwrap_or_default();
        let stored =
            StoredRoom { id: row.id, name: row.name.clone(), ticket_key: row.ticket_key.clone(), room, appearance };
        loaded.push((stored, row));
    }
    let stray = |id: RoomId| damaged(format!("rows of a room {} that does not exist", id.0));
    let wrong = |name: &RoomName, number: TicketNumber, damage: Damage| {
        damaged(format!("room {name}, number {}: {}", number.get(), damage.as_str()))
    };
    walk_tickets(connection, range, |row, _| {
        let (stored, _) = &mut loaded[*place.get(&row.room).ok_or_else(|| stray(row.room))?];
        let user = row.user.map(UserId::parse).transpose();
        let user =
            user.map_err(|error| damaged(format!("room {}, number {}: {error}", stored.name, row.number.get())))?;
        let join = Join { user, request: row.request };
        let restored = stored.room.restore_ticket(row.number, &join, row.gone, now);
        restored.map_err(|damage| wrong(&stored.name, row.number, damage))
    })?;
    let mut slots = Vec::new();
    walk_slots(connection, range, |room, number, slot| {
        slots.push((room, number, slot));
        Ok(())
    })?;
    let mut admissions: HashMap<RoomId, u64> = HashMap::new();
    for (room, _, slot) in &slots {
        let last = admissions.entry(*room).or_default();
        *last = slot.admission.max(*last);
    }
    for (stored, row) in &mut loaded {
        let drawn = row.draw.map_or(Ok(()), |draw| stored.room.restore_draw(&draw));
        drawn.map_err(|damage| damaged(format!("room {}: {}", stored.name, damage.as_str())))?;
        let last = admissions.get(&stored.id).copied().unwrap_or_default();
        let restored = stored.room.restore_reached(row.reached, last);
        restored.map_err(|damage| damaged(format!("room {}: {}", stored.name, damage.as_str())))?;
    }
    for (room, number, slot) in slots {
        let (stored, _) = &mut loaded[*place.get(&room).ok_or_else(|| stray(room))?];
        let restored = stored.room.restore_slot(number, slot, now);
        restored.map_err(|damage| wrong(&stored.name, number, damage))?;
    }
    renewal::walk(connection, range, |room, number, renewal| {
        let (stored, _) = &mut loaded[*place.get(&room).ok_or_else(|| stray(room))?];
        let restored = stored.room.restore_renewal(number, renewal);
        restored.map_err(|damage| wrong(&stored.name, number, damage))
    })?;
    for (stored, row) in &mut loaded {
        stored.room.restored(row.standing);
    }
    walk_memory(connection, range, |room, memory| {
        let (stored, _) = &mut loaded[*place.get(&room).ok_or_else(|| stray(room))?];
        stored.room.recall(&memory, now);
        Ok(())
    })?;
    Ok(loaded.into_iter().map(|(stored, _)| stored).collect())
}
