//! The writer's state of rooms: commands about tickets, ticks, settings and the secrets of passes.
//!
//! Decisions change the room in memory before the commit. [`Kept::unsettled`] lists the tickets with such decisions.
//! Polls of these tickets wait for the commit.

use super::{Kept, RoomCell, check};
use crate::embedded::journal::{Change, Journal, PassSecret, PassSecretRevocation, RoomId, RoomPut};
use crate::embedded::writer::{Log, Primitive};
use crate::embedded::{FreshSecrets, Reply, Shared};
use crate::error::{Fault, StoreError};
use crate::port::Put;
use crate::room::{Joining, PassCheck, TicketAnswer};
use firstcome_core::id::RoomName;
use firstcome_core::limits::ROOM_PERIOD_MS_MAX;
use firstcome_core::revision::Revision;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{self, Join, Joined, Rejection, RenewalKey, Room, RoomSettings, TicketId, TicketNumber};
use firstcome_core::time::Now;
use std::hash::RandomState;
use std::sync::Arc;

/// A command about a ticket of one room.
pub(in crate::embedded) enum Order {
    Join(Join, Reply<(Joining, TicketAnswer), Rejection>),
    Poll(TicketId, Reply<TicketAnswer, Rejection>),
    Leave(TicketId, Reply<(), Rejection>),
    Renew(TicketId, RenewalKey, Reply<TicketAnswer, Rejection>),
    Release(TicketNumber, u64, Reply<(), Rejection>),
    Check(TicketNumber, u64, Reply<Option<PassCheck>, Rejection>),
}

impl Order {
    fn is_closed(&self) -> bool {
        match self {
            Self::Join(_, reply) => reply.is_closed(),
            Self::Poll(_, reply) | Self::Renew(_, _, reply) => reply.is_closed(),
            Self::Leave(_, reply) | Self::Release(_, _, reply) => reply.is_closed(),
            Self::Check(_, _, reply) => reply.is_closed(),
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Join(_, reply) => reply.send(Err(error)),
            Self::Poll(_, reply) | Self::Renew(_, _, reply) => reply.send(Err(error)),
            Self::Leave(_, reply) | Self::Release(_, _, reply) => reply.send(Err(error)),
            Self::Check(_, _, reply) => reply.send(Err(error)),
        }
    }
}

/// A reply that waits for the commit.
enum PendingRoomReply {
    Join(Reply<(Joining, TicketAnswer), Rejection>, Result<(Joining, TicketAnswer), Rejection>),
    Poll(Reply<TicketAnswer, Rejection>, Result<TicketAnswer, Rejection>),
    Done(Reply<(), Rejection>, Result<(), Rejection>),
    Check(Reply<Option<PassCheck>, Rejection>, Option<PassCheck>),
}

impl PendingRoomReply {
    fn send(self) {
        match self {
            Self::Join(reply, answer) => reply.send(Ok(answer)),
            Self::Poll(reply, answer) => reply.send(Ok(answer)),
            Self::Done(reply, answer) => reply.send(Ok(answer)),
            Self::Check(reply, answer) => reply.send(Ok(Ok(answer))),
        }
    }

    fn refuse(self, error: &StoreError) {
        let error = error.clone();
        match self {
            Self::Join(reply, _) => reply.send(Err(error)),
            Self::Poll(reply, _) => reply.send(Err(error)),
            Self::Done(reply, _) => reply.send(Err(error)),
            Self::Check(reply, _) => reply.send(Err(error)),
        }
    }
}

/// The writer's state of rooms.
pub(in crate::embedded) struct RoomWriter {
    hasher: RandomState,
    next: u32,
    next_pass_secret: u32,
    touched: Vec<Arc<RoomCell>>,
    /// The decisions of the current command. Kept between commands to reuse its memory.
    decided: Vec<room::Change>,
    pending: Vec<PendingRoomReply>,
}

impl RoomWriter {
    pub(in crate::embedded) fn new(hasher: RandomState, next: RoomId, next_pass_secret: u32) -> Self {
        Self { hasher, next: next.0, next_pass_secret, touched: Vec::new(), decided: Vec::new(), pending: Vec::new() }
    }

    /// Runs a sequence of commands about one room under one hold of its lock.
    pub(in crate::embedded) fn orders(
        &mut self,
        cell: &Arc<RoomCell>,
        orders: impl Iterator<Item = Order>,
        log: &mut Log,
        now: Now,
    ) {
        let fault = log.shared.fault();
        let mut changes = std::mem::take(&mut self.decided);
        let mut kept = cell.kept.lock();
        for order in orders {
            // The caller dropped its future: skip the command, as if it had never come.
            if order.is_closed() {
                continue;
            }
            if let Some(fault) = &fault {
                order.refuse(StoreError::Faulted(Arc::clone(fault)));
                continue;
            }
            let told = judge(cell, &mut kept.room, order, now, &mut changes);
            self.pending.push(told);
        }
        self.note(cell, &mut kept, &mut changes, log, now);
        self.decided = changes;
    }

    /// Adds the decisions about a room to the batch.
    fn note(
        &mut self,
        cell: &Arc<RoomCell>,
        kept: &mut Kept,
        changes: &mut Vec<room::Change>,
        log: &mut Log,
        now: Now,
    ) {
        if changes.is_empty() {
            return;
        }
        kept.draw_is_unsettled |= changes.iter().any(|change| matches!(change, room::Change::Drawn(_)));
        kept.unsettled.extend(changes.iter().filter_map(room::Change::number));
        changes.iter().for_each(|change| log.shared.stats.count(change));
        log.changes.extend(changes.drain(..).map(|change| Change::of_room(cell.id, change, now)));
        if !self.touched.iter().any(|known| Arc::ptr_eq(known, cell)) {
            self.touched.push(Arc::clone(cell));
        }
    }

    /// Does everything that is due now in all rooms.
    pub(in crate::embedded) fn tick(&mut self, log: &mut Log, now: Now) {
        if log.shared.fault().is_some() {
            return;
        }
        let cells: Vec<Arc<RoomCell>> = log.shared.rooms.read().values().map(Arc::clone).collect();
        let mut changes = std::mem::take(&mut self.decided);
        for cell in cells {
            let mut kept = cell.kept.lock();
            kept.room.tick(now, &mut changes);
            self.note(&cell, &mut kept, &mut changes, log, now);
            let Kept { room, rounds, .. } = &mut *kept;
            log.changes.extend(rounds.next(room, now).map(|memory| Change::Remembered { id: cell.id, memory }));
        }
        self.decided = changes;
    }

    pub(in crate::embedded) fn put(
        &mut self,
        name: RoomName,
        revision: Revision<RoomSettings>,
        secrets: FreshSecrets,
        log: &mut Log,
        now: Now,
    ) -> Result<Result<Put, Rejection>, StoreError> {
        log.check()?;
        let FreshSecrets { ticket_key, pass_secret } = secrets;
        let known = log.shared.room(name.as_str());
        match &known {
            Some(cell) if !revision.may_replace(cell.kept.lock().room.settings()) => {
                return Ok(Err(Rejection::SettingsChanged));
            }
            None if revision.replaces.is_some() => return Ok(Err(Rejection::UnknownRoom)),
            Some(cell) => {
                if let Err(rejection) = cell.kept.lock().room.judge_settings(&revision.settings, now) {
                    return Ok(Err(rejection));
                }
            }
            None => {}
        }
        let settings = revision.settings;
        let (id, ticket_key) =
            known.as_ref().map_or((RoomId(self.next), ticket_key), |cell| (cell.id, cell.ticket_key.clone()));
        if log.shared.pass_secrets.read().is_empty() {
            self.sign_with(pass_secret, log, now)?;
        }
        let put = RoomPut {
            id,
            name: name.clone(),
            settings: settings.clone(),
            ticket_key: ticket_key.clone(),
            at: now.wall,
        };
        log.commit(Change::RoomPut(Box::new(put)))?;
        if let Some(cell) = known {
            cell.kept.lock().room.replace_settings(settings, now);
            return Ok(Ok(Put::Replaced));
        }
        self.next += 1;
        let room = Room::new(settings, self.hasher.clone(), now);
        log.shared.rooms.write().insert(name, Arc::new(RoomCell::new(id, ticket_key, room, Arc::default())));
        Ok(Ok(Put::Created))
    }

    /// Replaces how the page of a room looks.
    pub(in crate::embedded) fn dress(
        cell: &RoomCell,
        appearance: Arc<Appearance>,
        log: &mut Log,
    ) -> Result<Result<(), Rejection>, StoreError> {
        log.check()?;
        log.commit(Change::AppearancePut { id: cell.id, appearance: Arc::clone(&appearance) })?;
        *cell.appearance.write() = appearance;
        Ok(Ok(()))
    }

    pub(in crate::embedded) fn close(
        cell: &RoomCell,
        log: &mut Log,
        now: Now,
    ) -> Result<Result<(), Rejection>, StoreError> {
        let first = {
            let kept = cell.kept.lock();
            if kept.room.state(now.wall) == room::RoomState::Closed {
                return Ok(Ok(()));
            }
            kept.room.drawn() + 1
        };
        log.commit(Change::RoomClosed { id: cell.id, first, at: now.wall })?;
        let mut kept = cell.kept.lock();
        kept.room.close();
        kept.unsettled.clear();
        kept.draw_is_unsettled = false;
        Ok(Ok(()))
    }

    /// Signs passes with another secret from now on.
    pub(in crate::embedded) fn sign_with(
        &mut self,
        bytes: [u8; 32],
        log: &mut Log,
        now: Now,
    ) -> Result<PassSecret, StoreError> {
        let mut secrets = log.shared.pass_secrets.read().clone();
        let fresh = PassSecret { id: self.next_pass_secret, bytes, created_at: now.wall };
        // A secret was in use until the next one came. Its last pass ends at most one longest slot later.
        let alive_us = i64::try_from(ROOM_PERIOD_MS_MAX * 1_000).unwrap_or(i64::MAX);
        let ended = |next: &PassSecret| next.created_at.as_us().saturating_add(alive_us) < now.wall.as_us();
        let over = secrets.iter().skip(1).take_while(|next| ended(next)).count();
        secrets.drain(..over);
        secrets.push(fresh);
        log.commit(Change::PassSecret { fresh, oldest_kept: secrets[0].id })?;
        self.next_pass_secret += 1;
        *log.shared.pass_secrets.write() = secrets;
        Ok(fresh)
    }

    /// Revokes a secret of passes. `bytes` become the next one if it is the one that signs.
    pub(in crate::embedded) fn revoke_secret(
        &mut self,
        id: u32,
        bytes: [u8; 32],
        log: &mut Log,
        now: Now,
    ) -> Result<PassSecretRevocation, StoreError> {
        log.check()?;
        let mut secrets = log.shared.pass_secrets.read().clone();
        let revocation = PassSecretRevocation::of(id, &secrets);
        if revocation != PassSecretRevocation::Revoked {
            return Ok(revocation);
        }
        // Some secret always signs, and the newest one always stays, so that no number comes back.
        let is_signing = secrets.last().is_some_and(|newest| newest.id == id);
        let fresh = is_signing.then_some(PassSecret { id: self.next_pass_secret, bytes, created_at: now.wall });
        secrets.retain(|secret| secret.id != id);
        secrets.extend(fresh);
        log.commit(Change::PassSecretRevoked { id, fresh })?;
        self.next_pass_secret += u32::from(is_signing);
        *log.shared.pass_secrets.write() = secrets;
        Ok(revocation)
    }
}

impl Primitive for RoomWriter {
    fn needs_clocks(&self) -> bool {
        !self.touched.is_empty()
    }

    fn publish(&mut self, shared: &Shared, _now: Now) {
        // The writer calls this itself, because the caller may have dropped its future.
        if !self.touched.is_empty() {
            shared.clockwork.somebody_came();
        }
        self.touched.drain(..).for_each(|cell| cell.settle());
    }

    fn reply(&mut self) {
        self.pending.drain(..).for_each(PendingRoomReply::send);
    }

    fn refuse(&mut self, error: &StoreError) {
        self.pending.drain(..).for_each(|pending| pending.refuse(error));
        // Unsettled tickets stay so: their changes may or may not be stored, and no caller may see either.
        self.touched.clear();
    }

    fn take_back(&mut self, _changes: &[Change], journal: &mut dyn Journal, now: Now) -> Result<(), Fault> {
        #[cfg(feature = "planted-bugs")]
        if firstcome_core::planted::is(firstcome_core::planted::Bug::RoomNotTakenBack) {
            self.touched.drain(..).for_each(|cell| cell.settle());
        }
        for cell in self.touched.drain(..) {
            cell.replace(journal.room(cell.id, &self.hasher, now)?.room);
        }
        Ok(())
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
        Order::Poll(id, reply) => {
            let view = room
                .judge_ticket(id)
                .and_then(|()| room.decide(id.number, now, changes).ok_or(Rejection::UnknownTicket));
            PendingRoomReply::Poll(reply, view.map(|view| cell.answer(room, view, now)))
        }
        Order::Renew(id, key, reply) => {
            let view = room.renew(id, key, now, changes);
            PendingRoomReply::Poll(reply, view.map(|view| cell.answer(room, view, now)))
        }
        Order::Leave(id, reply) => {
            let left = room.judge_ticket(id).and_then(|()| room.leave(id.number, now, changes));
            PendingRoomReply::Done(reply, left)
        }
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
