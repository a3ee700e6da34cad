//! One room as the writer and the readers share it, and the writer's part of its commands.
//!
//! Polls come by the ten thousand, so they are answered from memory under the room's lock. They may only be told what
//! is durable: the tickets about which something was decided and not yet committed are listed ([`Kept::unsettled`]),
//! and a caller that asks about one of them is sent through the writer, whose answers come after the commit.

use super::engine::Engine;
use super::journal::{Change, PassSecret, RoomId, RoomPut};
use super::{FreshSecrets, Reply, Shared};
use crate::error::{Fault, StoreError};
use crate::port::Put;
use crate::room::{Joining, PassCheck, RoomSummary, TicketAnswer};
use crate::ticket::TicketKey;
use firstcome_core::id::RoomName;
use firstcome_core::limits::ROOM_PERIOD_MS_MAX;
use firstcome_core::revision::Revision;
use firstcome_core::room::{self, Join, Joined, Number, Poll, Rejection, Room, RoomSettings, TicketState, TicketView};
use firstcome_core::time::Now;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// How often at least the clocks are stored while anything else is.
const CLOCK_US: u64 = 250_000;

/// A room and what is decided about it and not yet durable.
pub(super) struct Kept {
    pub(super) room: Room,
    /// Tickets about which something is decided and not yet durable.
    pub(super) unsettled: HashSet<Number>,
}

/// One room.
pub(super) struct RoomCell {
    pub(super) id: RoomId,
    pub(super) ticket_key: TicketKey,
    pub(super) kept: Mutex<Kept>,
}

/// What can be asked about a ticket of one room.
pub(super) enum Order {
    Join(Join, Reply<(Joining, TicketAnswer), Rejection>),
    Look(Number, Reply<TicketAnswer, Rejection>),
    Leave(Number, Reply<(), Rejection>),
    Release(Number, u64, Reply<(), Rejection>),
    Check(Number, u64, Reply<Option<PassCheck>, Rejection>),
}

impl Order {
    fn is_closed(&self) -> bool {
        match self {
            Self::Join(_, reply) => reply.is_closed(),
            Self::Look(_, reply) => reply.is_closed(),
            Self::Leave(_, reply) | Self::Release(_, _, reply) => reply.is_closed(),
            Self::Check(_, _, reply) => reply.is_closed(),
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Join(_, reply) => reply.send(Err(error)),
            Self::Look(_, reply) => reply.send(Err(error)),
            Self::Leave(_, reply) | Self::Release(_, _, reply) => reply.send(Err(error)),
            Self::Check(_, _, reply) => reply.send(Err(error)),
        }
    }
}

/// An answer about a room that waits for the commit.
pub(super) enum PendingRoomReply {
    Join(Reply<(Joining, TicketAnswer), Rejection>, Result<(Joining, TicketAnswer), Rejection>),
    Look(Reply<TicketAnswer, Rejection>, Result<TicketAnswer, Rejection>),
    Done(Reply<(), Rejection>, Result<(), Rejection>),
    Check(Reply<Option<PassCheck>, Rejection>, Option<PassCheck>),
}

impl PendingRoomReply {
    pub(super) fn tell(self) {
        match self {
            Self::Join(reply, answer) => reply.send(Ok(answer)),
            Self::Look(reply, answer) => reply.send(Ok(answer)),
            Self::Done(reply, answer) => reply.send(Ok(answer)),
            Self::Check(reply, answer) => reply.send(Ok(Ok(answer))),
        }
    }

    pub(super) fn refuse(self, error: &StoreError) {
        let error = error.clone();
        match self {
            Self::Join(reply, _) => reply.send(Err(error)),
            Self::Look(reply, _) => reply.send(Err(error)),
            Self::Done(reply, _) => reply.send(Err(error)),
            Self::Check(reply, _) => reply.send(Err(error)),
        }
    }
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
    pub(super) fn poll(&self, number: Number, ticket: &str, now: Now) -> Option<Result<TicketAnswer, Rejection>> {
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
    pub(super) fn check(&self, number: Number, admission: u64, now: Now) -> Option<Option<PassCheck>> {
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

fn check(room: &mut Room, number: Number, admission: u64, now: Now) -> Option<PassCheck> {
    let until = room.check_pass(number, admission, now)?;
    Some(PassCheck { until: now.wall_at(until), user: room.user(number).map(Into::into) })
}

impl Engine {
    /// Runs a row of orders about one room under one hold of its lock.
    pub(super) fn orders(&mut self, cell: &Arc<RoomCell>, orders: impl Iterator<Item = Order>, now: Now) {
        let fault = self.shared.fault();
        let mut changes = std::mem::take(&mut self.room_changes);
        let mut kept = cell.kept.lock();
        for order in orders {
            // A caller that asked has gone away: it is not done, as if it had never come.
            if order.is_closed() {
                continue;
            }
            if let Some(fault) = &fault {
                order.refuse(StoreError::Unavailable(Arc::clone(fault)));
                continue;
            }
            let told = judge(cell, &mut kept.room, order, now, &mut changes);
            self.pending_room_replies.push(told);
        }
        self.note(cell, &mut kept, &mut changes);
        self.room_changes = changes;
    }

    /// Takes over what was decided about a room, to be committed with the batch.
    fn note(&mut self, cell: &Arc<RoomCell>, kept: &mut Kept, changes: &mut Vec<room::Change>) {
        if changes.is_empty() {
            return;
        }
        kept.unsettled.extend(changes.iter().filter_map(room::Change::number));
        changes.iter().for_each(|change| self.shared.stats.count(change));
        self.changes.extend(changes.drain(..).map(|change| Change::Room { id: cell.id, change }));
        if !self.touched_rooms.iter().any(|known| Arc::ptr_eq(known, cell)) {
            self.touched_rooms.push(Arc::clone(cell));
        }
    }

    /// Does what time has made due in all rooms.
    pub(super) fn tick(&mut self, now: Now) {
        if self.shared.fault().is_some() {
            return;
        }
        let cells: Vec<Arc<RoomCell>> = self.shared.rooms.read().values().map(Arc::clone).collect();
        let mut changes = std::mem::take(&mut self.room_changes);
        for cell in cells {
            let mut kept = cell.kept.lock();
            kept.room.tick(now, &mut changes);
            self.note(&cell, &mut kept, &mut changes);
        }
        self.room_changes = changes;
    }

    /// Adds the clocks to a batch that changes a room or moves points, if they were not stored lately: time-outs and the keys
    /// of movements go by steady time.
    pub(super) fn note_clocks(&mut self, now: Now) {
        let stored = self.clock_stored.is_some_and(|stored| now.steady.since_us(stored) < CLOCK_US);
        let needs_them = !self.touched_rooms.is_empty() || self.auctions.has_moved_points();
        if needs_them && !stored {
            self.clock_stored = Some(now.steady);
            self.changes.push(Change::Clock(now));
        }
    }

    pub(super) fn put_room(
        &mut self,
        name: RoomName,
        revision: Revision<RoomSettings>,
        secrets: FreshSecrets,
        now: Now,
    ) -> Result<Result<Put, Rejection>, StoreError> {
        if let Some(fault) = self.shared.fault() {
            return Err(StoreError::Unavailable(fault));
        }
        let FreshSecrets { ticket_key, pass_secret } = secrets;
        let known = self.shared.room(name.as_str());
        match &known {
            Some(cell) if !revision.may_replace(cell.kept.lock().room.settings()) => {
                return Ok(Err(Rejection::SettingsChanged));
            }
            None if revision.replaces.is_some() => return Ok(Err(Rejection::UnknownRoom)),
            _ => {}
        }
        let settings = revision.settings;
        let (id, ticket_key) =
            known.as_ref().map_or((RoomId(self.next_room), ticket_key), |cell| (cell.id, cell.ticket_key.clone()));
        if self.shared.pass_secrets.read().is_empty() {
            self.sign_with(pass_secret, now)?;
        }
        let put = RoomPut {
            id,
            name: name.clone(),
            settings: settings.clone(),
            ticket_key: ticket_key.clone(),
            at: now.wall,
        };
        self.commit(Change::RoomPut(Box::new(put)))?;
        if let Some(cell) = known {
            cell.kept.lock().room.replace_settings(settings, now);
            return Ok(Ok(Put::Replaced));
        }
        self.next_room += 1;
        let room = Room::new(settings, self.hasher.clone(), now);
        self.shared.rooms.write().insert(name, Arc::new(RoomCell::new(id, ticket_key, room)));
        Ok(Ok(Put::Created))
    }

    pub(super) fn close_room(&mut self, cell: &RoomCell, now: Now) -> Result<Result<(), Rejection>, StoreError> {
        let first = {
            let kept = cell.kept.lock();
            if kept.room.state(now.wall) == room::RoomState::Closed {
                return Ok(Ok(()));
            }
            kept.room.drawn() + 1
        };
        self.commit(Change::RoomClosed { id: cell.id, first, at: now.wall })?;
        let mut kept = cell.kept.lock();
        kept.room.close();
        kept.unsettled.clear();
        Ok(Ok(()))
    }

    /// Signs passes with another secret from now on.
    pub(super) fn sign_with(&mut self, bytes: [u8; 32], now: Now) -> Result<PassSecret, StoreError> {
        let mut secrets = self.shared.pass_secrets.read().clone();
        let fresh = PassSecret { id: self.next_pass_secret, bytes, created_at: now.wall };
        // A secret was in use until the next one came; its last pass ends at most one longest slot after that.
        let alive_us = i64::try_from(ROOM_PERIOD_MS_MAX * 1_000).unwrap_or(i64::MAX);
        let ended = |next: &PassSecret| next.created_at.as_us().saturating_add(alive_us) < now.wall.as_us();
        let over = secrets.iter().skip(1).take_while(|next| ended(next)).count();
        secrets.drain(..over);
        secrets.push(fresh);
        self.commit(Change::PassSecret { fresh, oldest_kept: secrets[0].id })?;
        self.next_pass_secret += 1;
        *self.shared.pass_secrets.write() = secrets;
        Ok(fresh)
    }
}

fn judge(
    cell: &RoomCell,
    room: &mut Room,
    order: Order,
    now: Now,
    changes: &mut Vec<room::Change>,
) -> PendingRoomReply {
    match order {
        Order::Join(join, reply) => {
            let answer = room.join(&join, now, changes).map(|joined| {
                let (joining, view) = match joined {
                    Joined::New(view) => (Joining::New, view),
                    Joined::SameRequest(view) => (Joining::SameRequest, view),
                    Joined::SameUser(view) => (Joining::SameUser, view),
                };
                (joining, cell.answer(room, view, now))
            });
            PendingRoomReply::Join(reply, answer)
        }
        Order::Look(number, reply) => {
            let view = room.decide(number, now, changes).ok_or(Rejection::UnknownTicket);
            PendingRoomReply::Look(reply, view.map(|view| cell.answer(room, view, now)))
        }
        Order::Leave(number, reply) => PendingRoomReply::Done(reply, room.leave(number, now, changes)),
        Order::Release(number, admission, reply) => {
            room.release(number, admission, now, changes);
            PendingRoomReply::Done(reply, Ok(()))
        }
        Order::Check(number, admission, reply) => {
            room.end_over(number, now, changes);
            PendingRoomReply::Check(reply, check(room, number, admission, now))
        }
    }
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
