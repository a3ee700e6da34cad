//! The port for waiting rooms over the embedded store, and the clockwork that lets its rooms admit.

use super::auction::Rest;
use super::journal::{PassSecret, PassSecretRevocation, PassSecretSet};
use super::room::{Order, RoomCell};
use super::{Command, Embedded, FreshSecrets, Inner, PutRoomCommand, Reply, RoomJob};
use crate::error::StoreError;
use crate::handoff::{self, Handoff};
use crate::port::Put;
use crate::room::{
    Glance, Joining, LiveAdmissions, PassCheck, RoomAnswer, RoomStore, RoomSummary, RoomTotals, TicketAnswer,
};
use crate::ticket::TicketKey;
use firstcome_core::id::RoomName;
use firstcome_core::revision::Revision;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{
    Join, OriginReport, RatePace, Rejection, RenewalKey, RoomSettings, Sight, TicketNumber, TicketState,
};
use firstcome_core::time::Now;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

/// How often the clockwork visits rooms with visitors in line or inside: several times per slice of 250 ms.
const TICK: Duration = Duration::from_millis(50);

/// The shortest pause before the next visit, if a rate has an admission due.
const TICK_MIN: Duration = Duration::from_millis(2);

/// The longest sleep before an auction's end, because the wall clock may be set forward.
const DUE_SLEEP_MAX: Duration = Duration::from_secs(1);

/// A thread that ticks while any room has visitors and when an auction must be closed, and sleeps otherwise. Absent in
/// stores whose caller ticks.
#[derive(Default)]
pub(super) struct Clockwork {
    thread: OnceLock<Thread>,
    sleeps: AtomicBool,
}

impl Clockwork {
    /// Starts the thread of this store. It ends with the store.
    pub(super) fn start(inner: &Arc<Inner>) -> std::io::Result<()> {
        let (shared, weak) = (Arc::clone(&inner.shared), Arc::downgrade(inner));
        let ticker = std::thread::Builder::new().name("firstcome-ticker".into());
        let thread = ticker.spawn(move || run(&weak, &shared.clockwork))?.thread().clone();
        // Set once, here, before any caller has the store.
        let _ = inner.shared.clockwork.thread.set(thread);
        Ok(())
    }

    /// Must be called after a visitor may have joined a room.
    pub(super) fn somebody_came(&self) {
        if self.sleeps.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

fn run(inner: &Weak<Inner>, clockwork: &Clockwork) {
    let mut rest = None;
    while let Some(inner) = inner.upgrade() {
        // Stored before the check below, so that a visitor who joins after the check finds it set.
        clockwork.sleeps.store(true, Ordering::SeqCst);
        let due_in_us = inner.shared.auctions().due_in_us(inner.shared.clock.now());
        let nobody_in = inner.shared.rooms.read().values().all(|cell| cell.is_idle());
        if nobody_in && due_in_us != Some(0) && !inner.shared.auctions().has_renamed() {
            drop(inner);
            match due_in_us {
                Some(us) => std::thread::park_timeout(Duration::from_micros(us).min(DUE_SLEEP_MAX)),
                None => std::thread::park(),
            }
            continue;
        }
        clockwork.sleeps.store(false, Ordering::SeqCst);
        let (reply, done) = Reply::<Option<Rest>>::pair();
        // The next tick is sent once this one is done, so that a slow disk gets no extra work. An error means that the
        // writer is gone or accepts no writes, which the next round sees.
        let submitted = inner.command_path.submit(Command::Tick(rest.take(), reply));
        let done = submitted.ok().and_then(|()| done.wait().ok());
        if done.is_none() {
            drop(inner);
            std::thread::park_timeout(TICK);
            continue;
        }
        rest = done.and_then(Result::ok).flatten();
        // Commands that have arrived meanwhile go first, because the tick goes to the end of the queue.
        if rest.is_some() || inner.shared.auctions().has_renamed() {
            continue;
        }
        let next_us = inner.shared.rooms.read().values().filter_map(|cell| cell.next_tick_us()).min();
        drop(inner);
        std::thread::park_timeout(next_us.map_or(TICK, |us| Duration::from_micros(us).clamp(TICK_MIN, TICK)));
    }
}

impl Embedded {
    fn room_cell(&self, room: &RoomName) -> Result<Arc<RoomCell>, Rejection> {
        self.inner.shared.room(room.as_str()).ok_or(Rejection::UnknownRoom)
    }

    async fn order<T>(&self, cell: Arc<RoomCell>, order: impl FnOnce(Reply<T, Rejection>) -> Order) -> RoomAnswer<T> {
        let (reply, answer) = Reply::pair();
        self.ask(Command::Room(RoomJob { cell, order: order(reply) }), answer).await
    }

    /// Polls a ticket like [`RoomStore::poll`], if the reply depends on durable data only and needs no decision, which
    /// is nearly always so. Does not wait. An invalid room name counts as an unknown room.
    pub fn poll_settled(&self, room: &str, ticket: &str) -> Option<Result<TicketAnswer, Rejection>> {
        let rooms = self.inner.shared.rooms.read();
        let Some(cell) = rooms.get(room) else { return Some(Err(Rejection::UnknownRoom)) };
        match cell.ticket_key.id(ticket) {
            Some(id) => cell.poll(id, ticket, self.inner.shared.both()),
            None => Some(Err(Rejection::UnknownTicket)),
        }
    }

    /// Looks at many tickets of a room under one lock, and appends to `sights` what each look shows: `None` for a ticket whose
    /// state is not durable yet. Returns the time of the glances, or `None` for an unknown room. Decides and writes nothing,
    /// and does not wait. Polls wait meanwhile, less than a microsecond for each look.
    pub fn glance(&self, room: &RoomName, glances: &[Glance], sights: &mut Vec<Option<Sight>>) -> Option<Now> {
        let cell = self.room_cell(room).ok()?;
        let now = self.inner.shared.both();
        cell.glance(glances, sights, now);
        Some(now)
    }

    /// Returns the number of rooms, closed ones included.
    pub fn room_count(&self) -> usize {
        self.inner.shared.rooms.read().len()
    }

    /// Names the secrets of passes that there are now. `None` before the first room.
    pub fn pass_secret_set(&self) -> Option<PassSecretSet> {
        PassSecretSet::of(&self.inner.shared.pass_secrets.read())
    }

    /// Returns sums over all rooms, for metrics.
    pub fn room_totals(&self) -> RoomTotals {
        let now = self.inner.shared.both();
        let rooms: Vec<Arc<RoomCell>> = self.inner.shared.rooms.read().values().map(Arc::clone).collect();
        let mut totals = RoomTotals::default();
        rooms.iter().for_each(|cell| totals.add(&cell.kept.lock().room, now));
        totals
    }
}

impl RoomStore for Embedded {
    async fn put_room(&self, room: &RoomName, revision: impl Into<Revision<RoomSettings>> + Send) -> RoomAnswer<Put> {
        let revision = revision.into();
        let (reply, answer) = Reply::pair();
        let ticket_key = TicketKey::new(self.inner.shared.draw_secret()?);
        let secrets = FreshSecrets { ticket_key, pass_secret: self.inner.shared.draw_secret()? };
        let command = PutRoomCommand { name: room.clone(), revision, secrets, reply };
        self.ask(Command::PutRoom(Box::new(command)), answer).await
    }

    async fn close_room(&self, room: &RoomName) -> RoomAnswer<()> {
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let (reply, answer) = Reply::pair();
        self.ask(Command::CloseRoom { cell, reply }, answer).await
    }

    async fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> RoomAnswer<()> {
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let (reply, answer) = Reply::pair();
        self.ask(Command::PutAppearance { cell, appearance: Arc::new(appearance), reply }, answer).await
    }

    async fn appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        Ok(self.room_cell(room).map(|cell| Arc::clone(&cell.appearance.read())))
    }

    async fn room(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        let now = self.inner.shared.both();
        Ok(self.room_cell(room).map(|cell| cell.summary(now)))
    }

    async fn join(&self, room: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if let Some(rejection) = cell.refuses_joins(&join, self.inner.shared.both()) {
            return Ok(Err(rejection));
        }
        self.order(cell, |reply| Order::Join(join, reply)).await
    }

    async fn poll(&self, room: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        if let Some(answer) = self.poll_settled(room.as_str(), ticket) {
            return Ok(answer);
        }
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let Some(id) = cell.ticket_key.id(ticket) else { return Ok(Err(Rejection::UnknownTicket)) };
        let mut answer = self.order(cell, |reply| Order::Poll(id, reply)).await;
        if let Ok(Ok(told)) = &mut answer {
            // The room does not keep the user of a ticket that ended, so return the ticket that the caller showed.
            told.ticket = ticket.into();
        }
        answer
    }

    async fn leave(&self, room: &RoomName, ticket: &str) -> RoomAnswer<()> {
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let Some(id) = cell.ticket_key.id(ticket) else { return Ok(Err(Rejection::UnknownTicket)) };
        self.order(cell, |reply| Order::Leave(id, reply)).await
    }

    async fn renew(&self, room: &RoomName, ticket: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let Some(id) = cell.ticket_key.id(ticket) else { return Ok(Err(Rejection::UnknownTicket)) };
        let mut answer = self.order(cell, |reply| Order::Renew(id, key, reply)).await;
        if let Ok(Ok(told)) = &mut answer
            && matches!(told.state, TicketState::Gone(_))
        {
            told.ticket = ticket.into();
        }
        answer
    }

    async fn hand_off(&self, room: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let polled = self.poll(room, ticket).await?;
        Ok(polled.and_then(|polled| handoff::hand_off(&cell.ticket_key, &polled)))
    }

    async fn redeem_handoff(&self, room: &RoomName, code: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        let now = self.inner.shared.both().wall;
        let ticket = self.room_cell(room).and_then(|cell| handoff::ticket_of(&cell.ticket_key, code, now));
        match ticket {
            Ok(ticket) => Ok(self.renew(room, &ticket, key).await?.map_err(handoff::refusal)),
            Err(rejection) => Ok(Err(rejection)),
        }
    }

    async fn release(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        match self.room_cell(room) {
            Ok(cell) => self.order(cell, |reply| Order::Release(number, admission, reply)).await,
            Err(rejection) => Ok(Err(rejection)),
        }
    }

    async fn check_pass(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<Option<PassCheck>> {
        let cell = match self.room_cell(room) {
            Ok(cell) => cell,
            Err(rejection) => return Ok(Err(rejection)),
        };
        match cell.check(number, admission, self.inner.shared.both()) {
            Some(check) => Ok(Ok(check)),
            None => self.order(cell, |reply| Order::Check(number, admission, reply)).await,
        }
    }

    async fn admissions(&self, room: &RoomName) -> RoomAnswer<LiveAdmissions> {
        let now = self.inner.shared.both();
        Ok(self.room_cell(room).map(|cell| cell.admissions(now)))
    }

    async fn report_origin(&self, room: &RoomName, report: OriginReport) -> RoomAnswer<RatePace> {
        let now = self.inner.shared.both();
        Ok(self.room_cell(room).map(|cell| {
            let kept = &mut cell.kept.lock().room;
            kept.report_origin(report, now);
            kept.pace(now)
        }))
    }

    async fn tick(&self) -> Result<(), StoreError> {
        self.tick_over().await
    }

    fn pass_secrets(&self) -> Vec<PassSecret> {
        self.inner.shared.pass_secrets.read().clone()
    }

    async fn rotate_pass_secret(&self) -> Result<PassSecret, StoreError> {
        let bytes = self.inner.shared.draw_secret()?;
        let (reply, answer) = Reply::pair();
        match self.ask(Command::RotatePassSecret { bytes, reply }, answer).await? {
            Ok(secret) => Ok(secret),
            // No rule refuses a rotation.
            Err(_) => Err(StoreError::Unknown),
        }
    }

    async fn revoke_pass_secret(&self, id: u32) -> Result<PassSecretRevocation, StoreError> {
        let bytes = self.inner.shared.draw_secret()?;
        let (reply, answer) = Reply::pair();
        match self.ask(Command::RevokePassSecret { id, bytes, reply }, answer).await? {
            Ok(revocation) => Ok(revocation),
            // No rule refuses a revocation.
            Err(_) => Err(StoreError::Unknown),
        }
    }
}
