//! Finds what the database had and lacks now, by the log.

use super::{Found, Inspection, State, room_log};
use crate::ClusterError;
use crate::room::{Floor, Followed};
use firstcome_core::room::{Poll, TicketNumber, TicketState};
use firstcome_sql::reader::Reader;
use room_log::Keys;
use std::collections::BTreeSet;

/// Tickets that are named.
const NAMED_MAX: usize = 100;

/// What the database has acknowledged of a room, and lacks.
pub(crate) struct Lost {
    /// Above what a new generation begins.
    pub(crate) floor: Floor,
    /// Tickets of users that stand in line or inside: their numbers and users.
    tickets: Vec<(u32, String)>,
    /// Admissions that were given after the last one in the database.
    admissions: Option<(u64, u64)>,
}

impl Lost {
    /// The same as a finding.
    pub(super) fn found(&self, before: &Found) -> Found {
        let mut says = before.says.clone();
        if !self.tickets.is_empty() {
            let named: Vec<String> =
                self.tickets.iter().take(NAMED_MAX).map(|(number, user)| format!("{number} of {user}")).collect();
            let more = if named.len() < self.tickets.len() { ", …" } else { "" };
            says.push_str(&format!("; {} tickets are gone: {}{more}", self.tickets.len(), named.join(", ")));
        }
        let mut count = self.tickets.len() as u64;
        if let Some((first, last)) = self.admissions {
            says.push_str(&format!("; admissions {first} to {last} are gone"));
            count += last - first + 1;
        }
        Found { state: State::WentBack, count: count.max(1), says }
    }
}

impl Inspection {
    /// Compares the room at the end of a log with the state of the database that has been begun. `None` if the log breaks off.
    pub(super) async fn lost_of_room(&mut self, id: i64, generation: i64) -> Result<Option<Lost>, ClusterError> {
        let Some(Followed { replica, .. }) = self.sequencer.follow_once(Keys { room: id }, generation).await? else {
            return Ok(None);
        };
        let mut stored = BTreeSet::new();
        self.numbers("number FROM firstcome_ticket", id, "", |number, _| {
            stored.insert(number.get());
            Ok(())
        })
        .await?;
        let (room, now) = (replica.room(), replica.now());
        let missing = (room.first()..=room.drawn()).filter(|number| !stored.contains(number)).filter_map(|at| {
            let number = TicketNumber::new(at)?;
            let user = room.user(number)?.to_owned();
            // What was not durable was told to no client.
            let is_told = !replica.unsettled(number) && !room.is_unknown(number);
            let is_gone =
                matches!(room.peek(number, now), Some(Poll::Answer(view)) if matches!(view.state, TicketState::Gone(_)));
            (is_told && !is_gone).then_some((at, user))
        });
        let tickets = missing.collect();
        let rows = self.reading.ask(format!("SELECT admissions FROM firstcome_room WHERE id={id};")).await?;
        let stored = rows.first().map(|row| Reader::at(row, 0).count()).transpose()?.unwrap_or(0);
        let given = room.admissions();
        let admissions = (stored < given).then_some((stored + 1, given));
        let floor = Floor {
            generation,
            ceiling: replica.ceiling(),
            admissions: given,
            first: room.first(),
            reached: room.reached(),
            draw: room.past_draw().copied(),
        };
        Ok(Some(Lost { floor, tickets, admissions }))
    }
}
