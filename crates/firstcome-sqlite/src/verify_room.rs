//! Checks every stored invariant of rooms from the rows alone.

use super::renewal;
use super::room::{EVERY_ROOM, RoomRow, for_each_memory, for_each_slot, for_each_ticket, rooms};
use firstcome_core::id::UserId;
use firstcome_core::room::TicketNumber;
use firstcome_core::room::draw::Turns;
use firstcome_store::Fault;
use firstcome_store::check::Check;
use firstcome_store::embedded::journal::RoomId;
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};

/// A room while the check reads its tickets.
struct RoomCheck {
    name: String,
    reached: u32,
    turns: Option<Turns>,
    /// The number that the next ticket must have.
    next: u32,
    alive: HashSet<TicketNumber>,
    users: HashSet<Box<str>>,
    keys: HashSet<u128>,
    admissions: HashSet<u64>,
}

impl RoomCheck {
    fn new(row: &RoomRow) -> (RoomId, Self) {
        let (name, reached, next) = (row.name.to_string(), row.reached, row.gone_before);
        let turns = row.draw.map(|draw| draw.turns());
        let (alive, users, keys, admissions) = Default::default();
        (row.id, Self { name, reached, turns, next, alive, users, keys, admissions })
    }
}

/// Checks all rooms of one snapshot. Memory: about 100 bytes per living ticket.
pub(super) fn check(snapshot: &Connection) -> Result<[Check; 9], Fault> {
    let rows = rooms(snapshot)?;
    let mut seen: HashMap<RoomId, RoomCheck> = rows.iter().map(RoomCheck::new).collect();
    let mut owned = Check::new("every ticket and slot belongs to a room");
    let mut once = Check::new("a number is drawn once, and none is left out");
    let mut valid = Check::new("users of tickets are names");
    let mut one_place = Check::new("one living place: of a user, and of an idempotency key");
    let mut exclusive = Check::new("in line, in a slot or gone: only a living ticket has a slot");
    let mut admitted = Check::new("an admission stands once");
    let mut reached = Check::new("the line has reached every slot, and no more than was drawn");
    for_each_ticket(snapshot, |row| {
        let known = seen.get_mut(&row.room);
        owned.check(known.is_some(), || format!("ticket {} of room number {}", row.number.get(), row.room.0));
        let Some(room) = known else { return Ok(()) };
        let name = room.name.clone();
        let here = || format!("room {name}, number {}", row.number.get());
        once.check(row.number.get() == room.next, here);
        room.next = row.number.get() + 1;
        valid.check(row.user.is_none_or(|user| UserId::parse(user).is_ok()), here);
        if row.gone.is_none() {
            room.alive.insert(row.number);
            let alone = row.user.is_none_or(|user| room.users.insert(user.into()));
            one_place.check(alone && row.request.is_none_or(|request| room.keys.insert(request.key)), here);
        }
        Ok(())
    })?;
    for_each_slot(snapshot, |id, number, slot| {
        let known = seen.get_mut(&id);
        owned.check(known.is_some(), || format!("slot {} of room number {}", number.get(), id.0));
        let Some(room) = known else { return Ok(()) };
        let name = room.name.clone();
        let here = || format!("room {name}, number {}", number.get());
        exclusive.check(room.alive.contains(&number), here);
        admitted.check(room.admissions.insert(slot.admission), here);
        let turn = room.turns.as_ref().map_or(number.get(), |turns| turns.turn(number.get()));
        reached.check(turn < room.reached, here);
        Ok(())
    })?;
    let mut renewed = Check::new("a renewal is of a living ticket");
    renewal::walk(snapshot, EVERY_ROOM, |id, number, _| {
        let known = seen.get(&id);
        owned.check(known.is_some(), || format!("renewal of ticket {} of room number {}", number.get(), id.0));
        let Some(room) = known else { return Ok(()) };
        renewed.check(room.alive.contains(&number), || format!("room {}, number {}", room.name, number.get()));
        Ok(())
    })?;
    for_each_memory(snapshot, |id, memory| {
        owned.check(seen.contains_key(&id), || format!("memory {} of room number {}", memory.first_number, id.0));
        Ok(())
    })?;
    for room in seen.values() {
        reached.check(room.reached <= room.next, || format!("room {}: {} of {}", room.name, room.reached, room.next));
    }
    let mut drawn = Check::new("a draw has the seed that its room is committed to, and numbers that were drawn");
    for row in &rows {
        let Some(draw) = &row.draw else { continue };
        let next = seen.get(&row.id).map_or(row.first, |room| room.next);
        let fits = draw.is_sound() && row.first <= draw.first && draw.end() <= next;
        let is_committed = draw.seed == row.ticket_key.draw_key().seed(row.first);
        drawn.check(fits && is_committed, || format!("room {}: {} from {}", row.name, draw.entrants, draw.first));
    }
    Ok([owned, once, valid, one_place, exclusive, admitted, reached, drawn, renewed])
}
