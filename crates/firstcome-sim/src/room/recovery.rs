//! Brings rooms back from their rows, as a start of the store in a file does, and shows that nothing is changed by it.

use super::rows::{RoomRows, Stored};
use firstcome_core::room::{Damage, Hold, Poll, Room, RoomOrder, RoomPhase, TicketNumber, TicketState};
use firstcome_core::time::Now;
use firstcome_store::embedded::StoredRoom;
use std::hash::RandomState;
use std::sync::Arc;

/// Rebuilds every room from its rows, through the rules.
pub fn recover(stored: &Stored, hasher: &RandomState, now: Now) -> Result<Vec<StoredRoom>, String> {
    let rooms = stored.rooms.iter().map(|(&id, rows)| {
        let room = recover_room(rows, hasher, now).map_err(|damage| format!("{}: {}", rows.name, damage.as_str()))?;
        Ok(StoredRoom {
            id,
            name: rows.name.clone(),
            ticket_key: rows.ticket_key.clone(),
            room,
            appearance: Arc::default(),
        })
    });
    rooms.collect()
}

fn recover_room(rows: &RoomRows, hasher: &RandomState, now: Now) -> Result<Room, Damage> {
    let mut room = Room::restoring(rows.settings.clone(), hasher.clone(), now, rows.first);
    for (&number, row) in &rows.tickets {
        let number = TicketNumber::new(number).ok_or(Damage::Ticket)?;
        room.restore_ticket(number, &row.join, row.gone, now)?;
    }
    let last = rows.slots.values().map(|slot| slot.admission).max().unwrap_or(0);
    rows.draw.map_or(Ok(()), |draw| room.restore_draw(&draw))?;
    room.restore_reached(rows.reached, last)?;
    for (&number, slot) in &rows.slots {
        room.restore_slot(TicketNumber::new(number).ok_or(Damage::Slot)?, *slot, now)?;
    }
    for (&number, renewal) in &rows.renewals {
        room.restore_renewal(TicketNumber::new(number).ok_or(Damage::Renewal)?, *renewal)?;
    }
    room.restored(if rows.closed { RoomPhase::Closed } else { RoomPhase::Running });
    rows.memory.values().for_each(|memory| room.recall(memory, now));
    Ok(room)
}

/// What a room says otherwise than the rows from which it came, if anything. Asks it about every ticket, which
/// counts as a contact: the store must go on with another copy.
///
/// The finding has the name of the invariant that it breaks: a ticket counted in both sets or in none is in no one place.
pub fn difference(room: &mut Room, rows: &RoomRows, now: Now) -> Option<(&'static str, String)> {
    let view = room.view(now);
    let living = rows.tickets.values().filter(|row| row.gone.is_none()).count();
    let counted = (view.waiting + view.active) as usize;
    if counted != living {
        let detail =
            format!("{}: {living} living tickets, and {counted} in line and in slots after a start", rows.name);
        return Some(("one_place", detail));
    }
    differs(room, rows, now).map(|detail| ("recovery", detail))
}

fn differs(room: &mut Room, rows: &RoomRows, now: Now) -> Option<String> {
    let view = room.view(now);
    let living = rows.tickets.values().filter(|row| row.gone.is_none()).count();
    let wanted = (living - rows.slots.len(), rows.slots.len(), rows.reached - 1);
    let found = (view.waiting as usize, view.active as usize, view.serving);
    if wanted != found {
        return Some(format!("{}: (waiting, active, serving) {wanted:?} became {found:?}", rows.name));
    }
    if room.settings() != &rows.settings {
        return Some(format!("{}: its settings became others", rows.name));
    }
    let renewals = rows.tickets.keys().copied().filter_map(TicketNumber::new);
    let renewed = renewals.filter_map(|number| Some((number.get(), room.renewal(number)?)));
    if !renewed.eq(rows.renewals.iter().map(|(number, renewal)| (*number, *renewal))) {
        return Some(format!("{}: the renewals {:?} became others", rows.name, rows.renewals));
    }
    rows.tickets.iter().find_map(|(&number, row)| {
        let told = TicketNumber::new(number).and_then(|number| room.poll(number, now));
        let slot = rows.slots.get(&number);
        let same = match (told, row.gone, slot) {
            (Some(Poll::Answer(view)), Some(how), _) => view.state == TicketState::Gone(how),
            (Some(Poll::Answer(view)), None, Some(slot)) => {
                matches!(view.state, TicketState::Admitted { slot: found, .. } if found == *slot)
            }
            (Some(Poll::Answer(view)), None, None) => {
                let draws = rows.settings.order == RoomOrder::Draw && rows.draw.is_none();
                matches!(view.state, TicketState::Waiting { .. } if !draws)
                    || matches!(view.state, TicketState::InDraw { .. } if draws)
            }
            // Offered, or over by now.
            (Some(Poll::Decide), None, Some(slot)) => {
                let (Hold::Offered { .. } | Hold::Taken { .. }) = slot.hold;
                true
            }
            _ => false,
        };
        (!same).then(|| format!("{}: number {number}, {row:?} in {slot:?}, became {told:?}", rows.name))
    })
}
