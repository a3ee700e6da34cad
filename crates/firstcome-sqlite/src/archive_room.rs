//! Exports the rooms of a directory.

use super::archive::{Archive, stoppable};
use super::renewal;
use super::room::{self, for_each_slot, for_each_ticket_of};
use firstcome_core::id::UserId;
use firstcome_core::room::{Departure, Hold, Join, Renewal, RoomPhase, Slot, TicketNumber};
use firstcome_core::time::Now;
use firstcome_store::Fault;
use firstcome_store::archive::{ArchivedLine, ArchivedRoom, ArchivedSlot, ArchivedTicket, TicketState};
use firstcome_store::embedded::journal::{PassSecret, RoomId};
use std::collections::{BTreeMap, HashMap};

impl Archive {
    /// Returns the secrets that sign passes, the newest last.
    pub fn pass_secrets(&self) -> Result<Vec<PassSecret>, Fault> {
        room::secrets(&self.connection)
    }

    /// Visits all rooms in the order of their creation, each followed by its tickets in the order of their numbers. Stops at the
    /// first error of `visit`. Memory: the slots of all rooms.
    pub fn for_each_ticket<E: From<Fault>>(
        &self,
        mut visit: impl FnMut(ArchivedLine) -> Result<(), E>,
    ) -> Result<(), E> {
        let clock = room::clock(&self.connection)?;
        let mut slots: HashMap<RoomId, BTreeMap<TicketNumber, Slot>> = HashMap::new();
        for_each_slot(&self.connection, |id, number, slot| {
            slots.entry(id).or_default().insert(number, slot);
            Ok(())
        })?;
        let mut appearances = room::appearances(&self.connection)?;
        for row in room::rooms(&self.connection)? {
            let slots = slots.remove(&row.id).unwrap_or_default();
            let drawn = room::last_number(&self.connection, &row)?;
            let room = ArchivedRoom {
                name: row.name.clone(),
                settings: row.settings,
                appearance: appearances.remove(&row.id).unwrap_or_default(),
                ticket_key: row.ticket_key,
                is_closed: row.standing == RoomPhase::Closed,
                first: row.first,
                reached: row.reached,
                drawn,
                draw: row.draw,
                admissions: slots.values().map(|slot| slot.admission).max().unwrap_or(0),
            };
            visit(ArchivedLine::Room(Box::new(room)))?;
            let mut renewals: BTreeMap<TicketNumber, Renewal> = BTreeMap::new();
            renewal::walk(&self.connection, room::range(row.id), |_, number, renewal| {
                renewals.insert(number, renewal);
                Ok(())
            })?;
            // What a purge removed is gone like any other ticket that is gone: an archive has every number.
            for number in (row.first..row.gone_before).filter_map(TicketNumber::new) {
                let state = TicketState::Gone(Departure::Expired);
                visit(ArchivedLine::Ticket(Box::new(ArchivedTicket { room: row.name.clone(), number, state })))?;
            }
            stoppable(&mut visit, |visit| {
                for_each_ticket_of(&self.connection, row.id, |ticket, joined_at| {
                    let user = ticket.user.map(UserId::parse).transpose();
                    let user = user.map_err(|error| super::coupon::damaged(format!("user {error}")))?;
                    let state = match ticket.gone {
                        Some(how) => TicketState::Gone(how),
                        None => {
                            let slot = slots.get(&ticket.number).map(|slot| archived(slot, clock));
                            let join = Join { user, request: ticket.request };
                            let renewal = renewals.get(&ticket.number).copied();
                            TicketState::Living { join, joined_at: Some(joined_at), slot, renewal }
                        }
                    };
                    let ticket = ArchivedTicket { room: row.name.clone(), number: ticket.number, state };
                    visit(ArchivedLine::Ticket(Box::new(ticket)))
                })
            })?;
        }
        Ok(())
    }
}

/// Converts a slot, with its end on the wall clock.
fn archived(slot: &Slot, clock: Option<Now>) -> ArchivedSlot {
    let (Hold::Offered { until } | Hold::Taken { until }) = slot.hold;
    let until = clock.map_or(slot.admitted_at, |clock| clock.wall_at(until));
    let Slot { admission, admitted_at, hold } = *slot;
    ArchivedSlot { admission, admitted_at, is_taken: matches!(hold, Hold::Taken { .. }), until }
}
