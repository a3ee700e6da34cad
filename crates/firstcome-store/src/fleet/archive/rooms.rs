//! Rooms out of a deployment: what SQL holds, and who else is in line by the log on Redis.

use super::TransferError;
use super::out::{Export, PAGE};
use crate::archive::{ArchivedLine, ArchivedRoom, ArchivedSlot, ArchivedTicket, TicketState};
use crate::fleet::truth::archive::Snapshot;
use crate::fleet::truth::{RoomRow, Truth};
use crate::sql::SqlError;
use crate::sql::reader::{Reader, wrong};
use firstcome_core::id::{RequestId, UserId};
use firstcome_core::room::replica::Replica;
use firstcome_core::room::{self, Departure, Join, Number, Poll, Standing};
use firstcome_core::time::Steady;
use std::collections::BTreeMap;

/// Numbers of tickets that are read at once.
const NUMBERS: u32 = 32_768;

/// Consecutive numbers of which nothing is known, until one comes of which something is.
struct Lost {
    first: u32,
    last: u32,
}

impl<D: Snapshot> Export<D> {
    async fn room_rows(&mut self) -> Result<Vec<RoomRow>, SqlError> {
        let (mut rooms, mut after) = (Vec::new(), i64::MIN);
        loop {
            let rows = self.session.ask(Truth::<D>::rooms_after(after, PAGE)).await?;
            for row in &rows {
                let room = self.node.truth.old_room(row)?;
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
            // After the snapshot, so that it knows whatever SQL does.
            let replica = self.node.follow_log(&row).await;
            let known = |replica: &Replica| replica.room().drawn().clamp(row.first - 1, row.ceiling);
            // Of a log that never began nobody has drawn anything.
            let nobody = if row.generation == 0 { row.first - 1 } else { row.ceiling };
            let drawn = match row.standing {
                Standing::Closed => row.first - 1,
                Standing::Running => replica.as_ref().map_or(nobody, known),
            };
            visit(ArchivedLine::Room(Box::new(ArchivedRoom {
                name: row.name.clone(),
                settings: row.settings.clone(),
                ticket_key: row.ticket_key.clone(),
                is_closed: row.standing == Standing::Closed,
                first: row.first,
                reached: row.reached,
                drawn,
                admissions: row.admissions,
            })))?;
            let mut lost: Option<Lost> = None;
            let mut first = row.first;
            while first <= drawn {
                let last = first.saturating_add(NUMBERS - 1).min(drawn);
                let page = self.page_of_tickets(&row, first, last).await.map_err(TransferError::from)?;
                for number in (first..=last).filter_map(Number::new) {
                    let state =
                        page.get(&number).cloned().or_else(|| replica.as_ref().and_then(|it| by_log(it, number)));
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

    /// What SQL holds of these numbers.
    async fn page_of_tickets(
        &mut self,
        row: &RoomRow,
        first: u32,
        last: u32,
    ) -> Result<BTreeMap<Number, TicketState>, SqlError> {
        let (id, range) = (row.id, format!("number BETWEEN {first} AND {last}"));
        let number = |cells: &mut Reader<'_, D::Row>| {
            cells.small().and_then(|it| Number::new(it).ok_or_else(|| wrong("a number out of its range")))
        };
        let mut page = BTreeMap::new();
        let text = format!("SELECT number,how FROM firstcome_gone WHERE room={id} AND {range};");
        for found in &self.session.ask(text).await? {
            let mut cells = Reader::at(found, 0);
            let number = number(&mut cells)?;
            let how = if cells.integer()? == 1 { Departure::Left } else { Departure::Expired };
            page.insert(number, TicketState::Gone(how));
        }
        let text =
            format!("SELECT number,name,joined_at,request,body FROM firstcome_ticket WHERE room={id} AND {range};");
        for found in &self.session.ask(text).await? {
            let mut cells = Reader::at(found, 0);
            let number = number(&mut cells)?;
            let user = cells.maybe_text()?;
            let user = user.map(|user| UserId::parse(&user).map_err(|_| wrong("a user that is none"))).transpose()?;
            let joined_at = Some(cells.instant()?);
            let key = cells.maybe_blob()?.and_then(|key| <[u8; 16]>::try_from(key).ok()).map(u128::from_be_bytes);
            let body = cells.maybe_integer()?.map(i64::cast_unsigned);
            let request = key.zip(body).map(|(key, body)| RequestId { key, body });
            page.insert(number, TicketState::Living { join: Join { user, request }, joined_at, slot: None });
        }
        let text = format!(
            "SELECT number,admission,admitted_at,taken,until_steady FROM firstcome_slot WHERE room={id} AND ended=0 AND {range};"
        );
        for found in &self.session.ask(text).await? {
            let mut cells = Reader::at(found, 0);
            let number = number(&mut cells)?;
            let (admission, admitted_at) = (cells.count()?, cells.instant()?);
            let is_taken = cells.integer()? == 1;
            let until = row.now.wall_at(Steady::from_us(cells.integer()?));
            let slot = Some(ArchivedSlot { admission, admitted_at, is_taken, until });
            let nobody = Join { user: None, request: None };
            match page.entry(number).or_insert(TicketState::Living { join: nobody, joined_at: None, slot: None }) {
                TicketState::Living { slot: its, .. } => *its = slot,
                _ => return Err(wrong("a slot of a ticket that is gone")),
            }
        }
        Ok(page)
    }
}

/// A ticket of which SQL knows nothing, by the log. None of somebody with a user: what SQL does not hold of those was told to
/// nobody.
fn by_log(replica: &Replica, number: Number) -> Option<TicketState> {
    let room = replica.room();
    if room.is_unknown(number) || room.user(number).is_some() || replica.unsettled(number) {
        return None;
    }
    match room.peek(number, replica.now())? {
        Poll::Told(room::TicketView { state: room::TicketState::Gone(how), .. }) => Some(TicketState::Gone(how)),
        _ => {
            let join = Join { user: None, request: None };
            Some(TicketState::Living { join, joined_at: None, slot: None })
        }
    }
}

fn tell_lost<E>(
    lost: &mut Option<Lost>,
    row: &RoomRow,
    visit: &mut impl FnMut(ArchivedLine) -> Result<(), E>,
) -> Result<(), E> {
    let Some(Lost { first, last }) = lost.take() else { return Ok(()) };
    let Some((number, last)) = Number::new(first).zip(Number::new(last)) else { return Ok(()) };
    let ticket = ArchivedTicket { room: row.name.clone(), number, state: TicketState::Lost(last) };
    visit(ArchivedLine::Ticket(Box::new(ticket)))
}
