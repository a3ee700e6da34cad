//! One room as the writer and the readers share it.
//!
//! Polls come by the ten thousand, so they are answered from memory under the room's lock. They may only be told what
//! is durable: the tickets about which something was decided and not yet committed are listed ([`Kept::unsettled`]),
//! and a caller that asks about one of them is sent through the writer, whose answers come after the commit.

mod writer;

pub(super) use writer::{Order, RoomWriter};

use super::Shared;
use super::journal::RoomId;
use crate::error::{Fault, StoreError};
use crate::room::{PassCheck, RoomSummary, TicketAnswer};
use crate::ticket::TicketKey;
use firstcome_core::room::{Join, Poll, Rejection, Room, TicketNumber, TicketState, TicketView};
use firstcome_core::time::Now;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// A room and what is decided about it and not yet durable.
pub(super) struct Kept {
    pub(super) room: Room,
    /// Tickets about which something is decided and not yet durable.
    pub(super) unsettled: HashSet<TicketNumber>,
}

/// One room.
pub(super) struct RoomCell {
    pub(super) id: RoomId,
    pub(super) ticket_key: TicketKey,
    pub(super) kept: Mutex<Kept>,
}

impl RoomCell {
    pub(super) fn new(id: RoomId, ticket_key: TicketKey, room: Room) -> Self {
        Self { id, ticket_key, kept: Mutex::new(Kept { room, unsettled: HashSet::new() }) }
    }

    pub(super) fn summary(&self, now: Now) -> RoomSummary {
        let kept = self.kept.lock();
        RoomSummary { settings: kept.room.settings().clone(), view: kept.room.view(now), as_of: now.wall }
    }

    fn answer(&self, room: &Room, view: TicketView, now: Now) -> TicketAnswer {
        let user = room.user(view.number);
        let until = match view.state {
            TicketState::Admitted { until, .. } => Some(now.wall_at(until)),
            _ => None,
        };
        TicketAnswer {
            ticket: self.ticket_key.ticket(view.number, user).into(),
            number: view.number,
            user: user.map(Into::into),
            state: view.state,
            until,
            poll_after_ms: view.poll_after_ms,
            as_of: now.wall,
        }
    }

    /// The answer to a poll if it rests on what is durable, and nothing has to be decided.
    pub(super) fn poll(&self, number: TicketNumber, ticket: &str, now: Now) -> Option<Result<TicketAnswer, Rejection>> {
        let (view, user) = {
            let mut kept = self.kept.lock();
            if kept.unsettled.contains(&number) {
                return None;
            }
            let view = match kept.room.poll(number, now) {
                None => return Some(Err(Rejection::UnknownTicket)),
                Some(Poll::Decide) => return None,
                Some(Poll::Told(view)) => view,
            };
            // Only a pass names its user.
            let admitted = matches!(view.state, TicketState::Admitted { .. });
            (view, if admitted { kept.room.user(number).map(Into::into) } else { None })
        };
        let until = match view.state {
            TicketState::Admitted { until, .. } => Some(now.wall_at(until)),
            _ => None,
        };
        let TicketView { number, state, poll_after_ms } = view;
        Some(Ok(TicketAnswer { ticket: ticket.into(), number, user, state, until, poll_after_ms, as_of: now.wall }))
    }

    /// What stands against a join before it is asked for.
    pub(super) fn refuses_joins(&self, join: &Join, now: Now) -> Option<Rejection> {
        // A caller that may have a place already is looked up by the writer.
        let anonymous = join.user.is_none() && join.request.is_none();
        if anonymous { self.kept.lock().room.judge_room(now).err() } else { None }
    }

    /// Whether a pass is valid, if that rests on what is durable.
    pub(super) fn check(&self, number: TicketNumber, admission: u64, now: Now) -> Option<Option<PassCheck>> {
        let mut kept = self.kept.lock();
        // That a slot is over is told once it is kept: it would else be alive again after a restart.
        if kept.unsettled.contains(&number) || kept.room.is_over(number, now) {
            return None;
        }
        Some(check(&mut kept.room, number, admission, now))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.kept.lock().room.is_idle()
    }

    pub(super) fn next_tick_us(&self) -> Option<u64> {
        self.kept.lock().room.next_tick_us()
    }

    /// Puts the room in the place of one of which something could not be stored.
    pub(super) fn replace(&self, room: Room) {
        let mut kept = self.kept.lock();
        kept.room = room;
        kept.unsettled.clear();
    }

    /// The batch is durable: everybody may be told.
    pub(super) fn settle(&self) {
        self.kept.lock().unsettled.clear();
    }
}

fn check(room: &mut Room, number: TicketNumber, admission: u64, now: Now) -> Option<PassCheck> {
    let until = room.check_pass(number, admission, now)?;
    Some(PassCheck { until: now.wall_at(until), user: room.user(number).map(Into::into) })
}

/// The fault of a system that gives no random bytes.
pub(super) fn no_secret(fault: Fault) -> StoreError {
    StoreError::Unavailable(Arc::new(fault))
}

/// A room of the store by name.
impl Shared {
    pub(super) fn room(&self, room: &str) -> Option<Arc<RoomCell>> {
        self.rooms.read().get(room).map(Arc::clone)
    }
}
