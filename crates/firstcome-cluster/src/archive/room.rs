//! Exports rooms: their rows in SQL, and the tickets in line that only the log on Redis knows.

use super::TransferError;
use super::out::{Export, PAGE};
use crate::ClusterError;
use crate::database::known::{gone_of, slot_of, ticket_of};
use crate::database::renewal::{RENEWALS, renewal_of};
use crate::database::{Database, RoomRow};
use crate::room::Followed;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::replica::Replica;
use firstcome_core::room::{self, Departure, Hold, Join, Poll, RoomPhase, Slot, TicketNumber};
use firstcome_sql::SqlError;
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::archive::{ArchivedLine, ArchivedRoom, ArchivedSlot, ArchivedTicket, TicketState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers of tickets that are read at once.
const NUMBERS: u32 = 32_768;

/// Consecutive numbers of which nothing is known, until one comes of which something is.
struct Lost {
    first: u32,
    last: u32,
}

impl Export {
    async fn room_rows(&mut self) -> Result<Vec<RoomRow>, SqlError> {
        let (mut rooms, mut after) = (Vec::new(), i64::MIN);
        loop {
            let rows = self.session.ask(Database::rooms_after(after, PAGE)).await?;
            for row in &rows {
                let room = self.node.database.old_room(row)?;
                after = room.id;
                rooms.push(room);
            }
            if rows.len() < PAGE {
                return Ok(rooms);
            }
        }
    }

    pub(super) async fn tickets<E: From<TransferError>>(
        &mut self,
        mut visit: impl FnMut(ArchivedLine) -> Result<(), E>,
    ) -> Result<(), E> {
        for row in self.room_rows().await.map_err(TransferError::from)? {
            // After the snapshot, so that it knows everything that SQL does.
            let followed = self.node.follow_log(&row).await.map_err(ClusterError::from).map_err(TransferError::from)?;
            let appearance = self.appearance(&row).await.map_err(TransferError::from)?;
            let drawn = drawn(&row, followed.as_ref());
            let replica = followed.map(|followed| followed.replica);
            visit(ArchivedLine::Room(Box::new(ArchivedRoom {
                name: row.name.clone(),
                settings: row.settings.clone(),
                appearance,
                ticket_key: row.ticket_key.clone(),
                is_closed: row.standing == RoomPhase::Closed,
                first: row.first,
                reached: row.reached,
                drawn,
                admissions: row.admissions,
                draw: row.draw,
            })))?;
            let mut lost: Option<Lost> = None;
            let mut first = row.first;
            while first <= drawn {
                let last = first.saturating_add(NUMBERS - 1).min(drawn);
                let page = self.page_of_tickets(&row, first, last).await.map_err(TransferError::from)?;
                for number in (first..=last).filter_map(TicketNumber::new) {
                    let state =
                        page.get(&number).cloned().or_else(|| replica.as_ref().and_then(|it| by_log(it, number)));
                    let is_purged = number.get() < row.gone_before;
                    let state = state.or_else(|| is_purged.then_some(TicketState::Gone(Departure::Expired)));
                    let Some(state) = state else {
                        lost.get_or_insert(Lost { first: number.get(), last: 0 }).last = number.get();
                        continue;
                    };
                    tell_lost(&mut lost, &row, &mut visit)?;
                    let room = row.name.clone();
                    visit(ArchivedLine::Ticket(Box::new(ArchivedTicket { room, number, state })))?;
                }
                first = last + 1;
            }
            tell_lost(&mut lost, &row, &mut visit)?;
        }
        Ok(())
    }

    /// How the page of a room looks.
    async fn appearance(&mut self, row: &RoomRow) -> Result<Arc<Appearance>, SqlError> {
        let rows = self.session.ask(Database::appearance_of(row.id)).await?;
        let Some(row) = rows.first() else { return Ok(Arc::default()) };
        let bytes = Reader::at(row, 0).maybe_blob()?.unwrap_or_default();
        Ok(Arc::new(Appearance::decode(&bytes).map_err(|_| wrong("an appearance that is none"))?))
    }

    /// What SQL holds of these numbers.
    async fn page_of_tickets(
        &mut self,
        row: &RoomRow,
        first: u32,
        last: u32,
    ) -> Result<BTreeMap<TicketNumber, TicketState>, SqlError> {
        let (id, range) = (row.id, format!("number BETWEEN {first} AND {last}"));
        let mut page = BTreeMap::new();
        let text = format!("SELECT number,how FROM firstcome_gone WHERE room={id} AND {range};");
        for found in &self.session.ask(text).await? {
            let (number, how) = gone_of(found)?;
            page.insert(number, TicketState::Gone(how));
        }
        let text =
            format!("SELECT number,name,request,body,joined_at FROM firstcome_ticket WHERE room={id} AND {range};");
        for found in &self.session.ask(text).await? {
            let (number, join) = ticket_of(found)?;
            let joined_at = Some(Reader::at(found, 4).instant()?);
            page.insert(number, TicketState::Living { join, joined_at, slot: None, renewal: None });
        }
        let text = format!(
            "SELECT number,admission,admitted_at,taken,until_steady FROM firstcome_slot WHERE room={id} AND ended=0 AND {range};"
        );
        for found in &self.session.ask(text).await? {
            let (number, Slot { admission, admitted_at, hold }) = slot_of(found)?;
            let (Hold::Offered { until } | Hold::Taken { until }) = hold;
            let (is_taken, until) = (matches!(hold, Hold::Taken { .. }), row.now.wall_at(until));
            let slot = Some(ArchivedSlot { admission, admitted_at, is_taken, until });
            match page.entry(number).or_insert_with(unnamed) {
                TicketState::Living { slot: its, .. } => *its = slot,
                _ => return Err(wrong("a slot of a ticket that is gone")),
            }
        }
        let text = format!("SELECT {RENEWALS} WHERE room={id} AND {range};");
        for found in &self.session.ask(text).await? {
            let (number, renewal) = renewal_of(found)?;
            match page.entry(number).or_insert_with(unnamed) {
                TicketState::Living { renewal: its, .. } => *its = Some(renewal),
                _ => return Err(wrong("a renewal of a ticket that is gone")),
            }
        }
        Ok(page)
    }
}

/// The highest number that may have been told.
fn drawn(row: &RoomRow, followed: Option<&Followed>) -> u32 {
    let nobody = row.first - 1;
    match (row.standing, followed) {
        (RoomPhase::Closed, _) => nobody,
        (RoomPhase::Running, Some(Followed { replica, lacks_end: false })) => {
            replica.room().drawn().clamp(nobody, row.ceiling)
        }
        // Of a log that never began no node has drawn anything.
        (RoomPhase::Running, None) if row.generation == 0 => nobody,
        // No node draws above the ceiling in SQL: what the log has lost is below.
        (RoomPhase::Running, _) => row.ceiling,
    }
}

/// A ticket of which SQL knows nothing, by the log. None of a node with a user: what SQL does not hold of those was told to
/// no node.
fn by_log(replica: &Replica, number: TicketNumber) -> Option<TicketState> {
    let room = replica.room();
    if room.is_unknown(number) || room.user(number).is_some() || replica.unsettled(number) {
        return None;
    }
    match room.peek(number, replica.now())? {
        Poll::Answer(room::TicketView { state: room::TicketState::Gone(how), .. }) => Some(TicketState::Gone(how)),
        _ => Some(unnamed()),
    }
}

/// A living ticket without a user, of which nothing more is known.
const fn unnamed() -> TicketState {
    let join = Join { user: None, request: None };
    TicketState::Living { join, joined_at: None, slot: None, renewal: None }
}

fn tell_lost<E>(
    lost: &mut Option<Lost>,
    row: &RoomRow,
    visit: &mut impl FnMut(ArchivedLine) -> Result<(), E>,
) -> Result<(), E> {
    let Some(Lost { first, last }) = lost.take() else { return Ok(()) };
    let Some((number, last)) = TicketNumber::new(first).zip(TicketNumber::new(last)) else { return Ok(()) };
    let ticket = ArchivedTicket { room: row.name.clone(), number, state: TicketState::Lost(last) };
    visit(ArchivedLine::Ticket(Box::new(ticket)))
}
