//! One room, as the writer and the readers share it.
//!
//! Polls come by the ten thousand, so callers answer them from memory under the room's lock. They may only show what is
//! durable. [`Kept::unsettled`] lists the tickets with decisions that are not committed yet. Requests about such
//! tickets go through the writer, which replies after the commit.

mod writer;

pub(super) use writer::{Order, RoomWriter};

use super::Shared;
use super::journal::RoomId;
use super::receipt::Published;
use crate::room::{Glance, LiveAdmissions, PassCheck, RoomSummary, TicketAnswer};
use crate::ticket::TicketKey;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{
    DrawView, Join, MemoryRounds, PlaceKey, PlaceView, Poll, Rejection, Room, Sight, TicketId, TicketNumber,
    TicketState, TicketView,
};
use firstcome_core::time::Now;
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::sync::Arc;

/// A room, with the decisions about it that are not durable yet.
pub(super) struct Kept {
    pub(super) room: Room,
    /// Tickets with a decision that is not durable yet.
    pub(super) unsettled: HashSet<TicketNumber>,
    /// Whether the draw is not durable yet. Each place in line rests on it.
    pub(super) draw_is_unsettled: bool,
    /// Which part of what the room remembers is stored next.
    pub(super) rounds: MemoryRounds,
}

impl Kept {
    pub(super) fn is_unsettled(&self, number: TicketNumber) -> bool {
        self.draw_is_unsettled || self.unsettled.contains(&number)
    }
}

/// One room.
pub(super) struct RoomCell {
    pub(super) id: RoomId,
    pub(super) ticket_key: TicketKey,
    pub(super) kept: Mutex<Kept>,
    /// How the page of the room looks. Durable.
    pub(super) appearance: RwLock<Arc<Appearance>>,
    pub(super) published: Published,
}

impl RoomCell {
    pub(super) fn new(id: RoomId, ticket_key: TicketKey, room: Room, appearance: Arc<Appearance>) -> Self {
        let room = room.with_draw_key(ticket_key.draw_key());
        let kept = Mutex::new(Kept {
            room,
            unsettled: HashSet::new(),
            draw_is_unsettled: false,
            rounds: MemoryRounds::default(),
        });
        Self { id, ticket_key, kept, appearance: RwLock::new(appearance), published: Published::default() }
    }

    pub(super) fn summary(&self, now: Now) -> RoomSummary {
        let kept = self.kept.lock();
        let show = |view: DrawView| DrawView { draw: view.draw.filter(|_| !kept.draw_is_unsettled), ..view };
        let draw = kept.room.draw_view().map(show);
        RoomSummary { settings: kept.room.settings().clone(), view: kept.room.view(now), draw, as_of: now.wall }
    }

    pub(super) fn admissions(&self, now: Now) -> LiveAdmissions {
        LiveAdmissions { admissions: self.kept.lock().room.live_admissions(now), as_of: now.wall }
    }

    fn answer(&self, room: &Room, view: TicketView, now: Now) -> TicketAnswer {
        let user = room.user(view.number);
        let until = match view.state {
            TicketState::Admitted { until, .. } => Some(now.wall_at(until)),
            _ => None,
        };
        TicketAnswer {
            ticket: self.ticket_key.ticket(room.ticket_of(view.number), user).into(),
            number: view.number,
            user: user.map(Into::into),
            state: view.state,
            until,
            poll_after_ms: view.poll_after_ms,
            as_of: now.wall,
        }
    }

    /// Returns the reply to a poll if it depends on durable data only, and needs no decision.
    pub(super) fn poll(&self, id: TicketId, ticket: &str, now: Now) -> Option<Result<TicketAnswer, Rejection>> {
        let number = id.number;
        let (view, user) = {
            let mut kept = self.kept.lock();
            if kept.is_unsettled(number) {
                return None;
            }
            if let Err(rejection) = kept.room.judge_ticket(id) {
                return Some(Err(rejection));
            }
            let view = match kept.room.poll(number, now) {
                None => return Some(Err(Rejection::UnknownTicket)),
                Some(Poll::Decide) => return None,
                Some(Poll::Answer(view)) => view,
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

    /// Appends to `sights` what each look shows, under one lock. `None` if it is not durable yet.
    pub(super) fn glance(&self, glances: &[Glance], sights: &mut Vec<Option<Sight>>, now: Now) {
        let mut kept = self.kept.lock();
        sights.extend(glances.iter().map(|glance| {
            let Glance { ticket, contact } = *glance;
            if kept.is_unsettled(ticket.number) {
                return None;
            }
            // A poll tells that the place moved to another device.
            let is_renewed = kept.room.judge_ticket(ticket).is_err();
            if is_renewed { Some(Sight::Poll) } else { kept.room.sight(ticket.number, contact, now) }
        }));
    }

    /// Returns the refusal of a join, if it is certain without the writer.
    pub(super) fn refuses_joins(&self, join: &Join, now: Now) -> Option<Rejection> {
        // Only the writer can look up a place that the caller may have already.
        let anonymous = join.user.is_none() && join.request.is_none();
        if anonymous { self.kept.lock().room.judge_room(now).err() } else { None }
    }

    /// Returns whether a pass is valid, if that depends on durable data only.
    pub(super) fn check(&self, number: TicketNumber, admission: u64, now: Now) -> Option<Option<PassCheck>> {
        let mut kept = self.kept.lock();
        // Report the end of a slot only once it is stored: otherwise the slot would live again after a restart.
        if kept.is_unsettled(number) || kept.room.is_over(number, now) {
            return None;
        }
        Some(check(&mut kept.room, number, admission, now))
    }

    pub(super) fn place(&self, key: PlaceKey<'_>, now: Now) -> Option<PlaceView> {
        self.kept.lock().room.look_up(key, now)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.kept.lock().room.is_idle()
    }

    pub(super) fn next_tick_us(&self) -> Option<u64> {
        self.kept.lock().room.next_tick_us()
    }

    /// Replaces the room after changes that could not be stored.
    pub(super) fn replace(&self, room: Room) {
        let mut kept = self.kept.lock();
        kept.room = room.with_draw_key(self.ticket_key.draw_key());
        kept.unsettled.clear();
        kept.draw_is_unsettled = false;
        kept.rounds = MemoryRounds::default();
    }

    /// Publishes the decisions of a durable batch to readers.
    pub(super) fn settle(&self) {
        let mut kept = self.kept.lock();
        kept.unsettled.clear();
        kept.draw_is_unsettled = false;
    }
}

fn check(room: &mut Room, number: TicketNumber, admission: u64, now: Now) -> Option<PassCheck> {
    let until = room.check_pass(number, admission, now)?;
    Some(PassCheck { until: now.wall_at(until), user: room.user(number).map(Into::into) })
}

impl Shared {
    pub(super) fn room(&self, room: &str) -> Option<Arc<RoomCell>> {
        self.rooms.read().get(room).map(Arc::clone)
    }
}
