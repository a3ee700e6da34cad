//! Implements the port for rooms on a cluster: one log on Redis, a replica in every node, and rows in SQL that outlive the log.
//!
//! Every request of a node to a room is appended to its [`log`], together with what others in the same node want meanwhile;
//! the answer to that call brings all that other nodes have appended, and this node applies all of it, in order, to its own
//! [`Replica`]. Polls are answered from there, without asking anybody: that they were
//! there goes along with the next call. Time comes with the log, and whichever call finds that it is time lets people in.
//!
//! # Invariants
//! - Copies are equal at the same position: the rules run on the log and on nothing else.
//! - Nothing is told that rests on an entry which SQL does not hold, except for numbers without user and key: their ceiling is
//!   in SQL before any of them is drawn, and their tickets alone bring their holders back.
//!   Positions are the other exception: they count no node that has just been let in, though Redis may be lost before SQL has it.
//! - SQL is written by the node that finds generation, position and digest as they were read, and every copy compares the digest.
//! - What is answered from a copy is at most [`FRESH_MAX`] old; one that cannot be made newer answers nothing, nor does one
//!   that is an image alone, which may be of long ago.
//! - A pass is refused only after the log was asked: a node that has it from another node may be ahead of this one.

mod appearance;
mod erase;
mod figures;
mod follow;
mod glance;
pub(super) mod log;
mod log_batch;
mod log_writer;
mod place;
mod rebuild;
mod renew;
mod replica;
mod secrets;
pub(super) mod voided;
pub(super) mod went_back;

pub(super) use appearance::Appearances;
pub(super) use follow::Followed;
pub(super) use replica::RoomNode;
pub(super) use secrets::Secrets;
pub(super) use went_back::Floor;

use super::Cluster;
use super::database::RoomRow;
use super::node::Node;
use firstcome_core::id::{RoomName, UserId};
use firstcome_core::limits::ROOM_PERIOD_MS_MAX;
use firstcome_core::revision::Revision;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::replica::{Applied, Drawn, Entry, Outcome, Replica};
use firstcome_core::room::{
    Join, Joined, OriginReport, Poll, RatePace, Rejection, RenewalKey, RoomSettings, TicketId, TicketNumber,
    TicketState, TicketView,
};
use firstcome_core::time::Now;
use firstcome_sql::boxed::boxed;
use firstcome_store::Put;
use firstcome_store::StoreError;
use firstcome_store::edge::{draw_id, draw_pause};
use firstcome_store::embedded::journal::{PassSecret, PassSecretRevocation};
use firstcome_store::{Handoff, Joining, LiveAdmissions, PassCheck, RoomAnswer, RoomStore, RoomSummary, TicketAnswer};
use log_batch::unavailable;
use replica::{Ask, Found, RoomReplica, Want};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// What is answered from a copy is at most so old.
pub(super) const FRESH_MAX: Duration = Duration::from_millis(250);
/// How often a node asks a room in which there is anybody.
const BEAT: Duration = Duration::from_millis(50);
/// The shortest time between two, where a slow rate wants one sooner.
const BEAT_MIN: Duration = Duration::from_millis(5);
/// The first pause before something is asked again, and the longest. A random part of it is taken.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// How long callers are sent away while too much waits for the database.
const BACKLOG_RETRY: Duration = Duration::from_secs(1);

fn tag() -> Result<u64, StoreError> {
    draw_id().map_err(|fault| StoreError::Faulted(Arc::new(fault)))
}

/// A ticket as its holder sees it, who has shown it or is given it.
fn answer(room_node: &RoomNode, copy: &RoomReplica, view: TicketView, shown: Option<&str>, now: Now) -> TicketAnswer {
    let user = copy.replica.room().user(view.number);
    let until = match view.state {
        TicketState::Admitted { until, .. } => Some(now.wall_at(until)),
        _ => None,
    };
    TicketAnswer {
        ticket: shown.map_or_else(
            || room_node.ticket_key.ticket(copy.replica.room().ticket_of(view.number), user).into(),
            Into::into,
        ),
        number: view.number,
        user: user.map(Into::into),
        state: view.state,
        until,
        poll_after_ms: view.poll_after_ms,
        as_of: now.wall,
    }
}

impl Node {
    /// A room by its name, if there is one.
    pub(super) async fn room_node(self: &Arc<Self>, name: &RoomName) -> Result<Option<Arc<RoomNode>>, StoreError> {
        let kept = self.rooms.lock().get(name).map(Arc::clone);
        if let Some(room_node) = kept {
            return Ok(Some(room_node));
        }
        // Any client may ask for names that are none.
        let ask = async || Ok(self.database.room(name).await?);
        Ok(self.rooms_asked.get(name, ask).await?.map(|row| self.keep_room(row)))
    }

    pub(super) fn keep_room(&self, row: RoomRow) -> Arc<RoomNode> {
        let mut rooms = self.rooms.lock();
        let (id, name) = (row.id, row.name.clone());
        let room_node = rooms.entry(name).or_insert_with(|| Arc::new(RoomNode::new(row)));
        self.rooms_by_id.lock().insert(id, Arc::downgrade(room_node));
        Arc::clone(room_node)
    }

    /// Reads what another node has said of a room.
    pub(super) fn news(self: &Arc<Self>, room_node: &Arc<RoomNode>) {
        let (node, room_node) = (Arc::clone(self), Arc::clone(room_node));
        tokio::spawn(async move { node.order(&room_node, Want::See).await });
    }

    /// Sees to it that time goes on in a room while there is anybody.
    fn wake(self: &Arc<Self>, room_node: &Arc<RoomNode>) {
        if !room_node.is_beating.swap(true, Ordering::SeqCst) {
            tokio::spawn(beat(Arc::downgrade(self), Arc::clone(room_node)));
        }
    }

    /// Appends an entry until it is applied, and returns what it led to once that is durable. The same tag each time.
    ///
    /// If Redis loses the entry meanwhile, it is appended again to the log that follows. A log of another generation knows no tags of
    /// before: a join that SQL holds is told there as [`Joining::SameUser`] or [`Joining::SameRequest`], though it was new.
    async fn settled(self: &Arc<Self>, room_node: &Arc<RoomNode>, entry: Entry) -> Result<Outcome, StoreError> {
        let until = Instant::now() + self.options.patience;
        let waiting = room_node.copy.lock().as_ref().map_or(0, |copy| copy.replica.pending_count());
        if self.options.rows_waiting_max < waiting {
            return Err(StoreError::busy(BACKLOG_RETRY));
        }
        self.wake(room_node);
        let mut pause = PAUSE_MIN;
        // What was applied once may be in SQL, no matter what becomes of that log.
        let mut is_applied = false;
        let fault = loop {
            if let Err(error) = room_node.goes_on() {
                break error;
            }
            let (log, Applied { outcome, rests_on }) = match self.append(room_node, entry.clone()).await {
                Ok(applied) => applied,
                Err(error) => break error,
            };
            if outcome == Outcome::NoNumber {
                // Nothing was done. To ask again helps no node before there are numbers.
                if timeout_at(until, room_node.has_number(log)).await.is_err() {
                    break unavailable("no number may be drawn before the database answers");
                }
            } else {
                is_applied = true;
                // A node that saw to it that time goes on may have found no node here just before this.
                self.wake(room_node);
                let is_durable = rests_on == 0 || {
                    let waited = timeout_at(until, room_node.durable(log, rests_on)).await;
                    waited.map_err(|_| StoreError::Unknown)?
                };
                // If the log or its end was lost, no node knows whether this was in SQL: the new one tells.
                if is_durable {
                    return Ok(outcome);
                }
            }
            if until <= Instant::now() + pause {
                break StoreError::busy_with("nothing was done in the time there was: Redis or the database was slow");
            }
            sleep(draw_pause(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        Err(if is_applied { StoreError::Unknown } else { fault })
    }

    /// Makes sure that the copy is not older than it may be.
    async fn fresh(self: &Arc<Self>, room_node: &Arc<RoomNode>) -> Result<(), StoreError> {
        let is_fresh =
            |copy: &RoomReplica| copy.age() < FRESH_MAX && room_node.trusted.load(Ordering::Relaxed) == self.doubts();
        if room_node.copy.lock().as_ref().is_some_and(is_fresh) {
            return Ok(());
        }
        self.order(room_node, Want::See).await.map(drop)
    }

    /// Waits until nothing about a ticket is on its way to SQL.
    async fn settle(&self, room_node: &RoomNode, number: TicketNumber, until: Instant) -> Result<(), StoreError> {
        let mut progress = room_node.progress.subscribe();
        loop {
            progress.mark_unchanged();
            if !room_node.copy.lock().as_ref().is_some_and(|copy| copy.replica.unsettled(number)) {
                return Ok(());
            }
            room_node.goes_on()?;
            match timeout_at(until, progress.changed()).await {
                Ok(Ok(())) => {}
                _ => return Err(unavailable("the database does not answer")),
            }
        }
    }

    async fn put_room(self: &Arc<Self>, name: &RoomName, revision: Revision<RoomSettings>) -> RoomAnswer<Put> {
        let is_known = self.rooms.lock().contains_key(name);
        let may_create = revision.replaces.is_none();
        if !is_known && may_create {
            let (is_new, row) = self.database.make_room(name, &revision.settings).await?;
            let room_node = self.keep_room(row);
            if is_new {
                // It came with the first secret of passes, perhaps; and it is there, no matter what becomes of the rest.
                self.refresh_secrets().await.map_err(|_| StoreError::Unknown)?;
                self.order(&room_node, Want::See).await.map_err(|_| StoreError::Unknown)?;
                return Ok(Ok(Put::Created));
            }
        }
        let Some(room_node) = self.room_node(name).await? else {
            return if may_create { Err(StoreError::Unknown) } else { Ok(Err(Rejection::UnknownRoom)) };
        };
        match self.settled(&room_node, Entry::Put { revision: Box::new(revision), tag: tag()? }).await? {
            Outcome::SettingsChanged => Ok(Err(Rejection::SettingsChanged)),
            Outcome::SettingsRefused(rejection) => Ok(Err(rejection)),
            _ => Ok(Ok(Put::Replaced)),
        }
    }

    async fn close_room(self: &Arc<Self>, name: &RoomName) -> RoomAnswer<()> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        self.settled(&room_node, Entry::Close { tag: tag()? }).await?;
        Ok(Ok(()))
    }

    /// Appends the report to the log, so that it counts once for all nodes.
    async fn report_origin(self: &Arc<Self>, name: &RoomName, report: OriginReport) -> RoomAnswer<RatePace> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        self.settled(&room_node, Entry::Report { report, tag: tag()? }).await?;
        self.seen(name, |replica, now| replica.room().pace(now)).await
    }

    /// Reads from the copy of a room, with everything that was in its log before the call.
    pub(super) async fn seen<T>(self: &Arc<Self>, name: &RoomName, read: impl Fn(&Replica, Now) -> T) -> RoomAnswer<T> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        loop {
            self.order(&room_node, Want::See).await?;
            let copy = room_node.copy.lock();
            let Some(copy) = &*copy else {
                return Err(StoreError::busy_with("what Redis knows of the room is rebuilt"));
            };
            // It may have been rebuilt just now.
            if copy.is_read() {
                return Ok(Ok(read(&copy.replica, copy.now(self.database.time.both()))));
            }
        }
    }

    async fn join(self: &Arc<Self>, name: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let (number, joining) = loop {
            let outcome = self.settled(&room_node, Entry::Join { join: join.clone(), tag: tag()? }).await?;
            let copy = room_node.copy.lock();
            let Some(copy) = &*copy else { return Err(StoreError::Unknown) };
            let now = copy.now(self.database.time.both());
            let (joining, view) = match outcome {
                Outcome::Joined(Ok(Joined::New(view))) => (Joining::New, view),
                Outcome::Joined(Ok(Joined::SameRequest(view))) => (Joining::SameRequest, view),
                Outcome::Joined(Ok(Joined::SameUser(view))) => (Joining::SameUser, view),
                Outcome::Joined(Err(rejection)) => return Ok(Err(rejection)),
                Outcome::Repeated(Some(repeated)) => break repeated,
                // An earlier copy of it was refused: it is asked anew.
                _ => continue,
            };
            return Ok(Ok((joining, answer(&room_node, copy, view, None, now))));
        };
        // The same entry stood in the log before: how its ticket stands now is told as to the node that asks.
        let id =
            room_node.copy.lock().as_ref().map_or(TicketId::first(number), |it| it.replica.room().ticket_of(number));
        let ticket = room_node.ticket_key.ticket(id, join.user.as_ref().map(UserId::as_str));
        let joining = match joining {
            Drawn::New => Joining::New,
            Drawn::SameRequest => Joining::SameRequest,
            Drawn::SameUser => Joining::SameUser,
        };
        Ok(self.poll(name, &ticket).await?.map(|told| (joining, told)))
    }

    async fn poll(self: &Arc<Self>, name: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let Some((id, user)) = room_node.ticket_key.open(ticket) else { return Ok(Err(Rejection::UnknownTicket)) };
        let until = Instant::now() + self.options.patience;
        self.wake(&room_node);
        let mut is_sure = false;
        loop {
            self.fresh(&room_node).await?;
            let found = {
                let mut copy = room_node.copy.lock();
                let Some(copy) = &mut *copy else { return Err(unavailable("the log was lost")) };
                // It may have been rebuilt just now.
                if !copy.is_read() {
                    continue;
                }
                let now = copy.now(self.database.time.both());
                match copy.poll(id, now) {
                    Found::Renewed => return Ok(Err(Rejection::TicketRenewed)),
                    Found::Answer(view) => return Ok(Ok(answer(&room_node, copy, view, Some(ticket), now))),
                    found => found,
                }
            };
            let entry = match found {
                Found::Unsettled | Found::Answer(_) | Found::Renewed => {
                    self.settle(&room_node, id.number, until).await?;
                    continue;
                }
                // A node that has it from another node may be ahead of this one.
                Found::Ask(Ask::Unknown) if is_sure => return Ok(Err(Rejection::UnknownTicket)),
                Found::Ask(Ask::Unknown) => {
                    self.order(&room_node, Want::See).await?;
                    is_sure = true;
                    continue;
                }
                Found::Ask(Ask::Decide) => Entry::Poll { ticket: id, tag: tag()? },
                Found::Ask(Ask::Readmit) => Entry::Readmit { ticket: id, user: user.clone(), tag: tag()? },
            };
            let outcome = self.settled(&room_node, entry).await?;
            if outcome == Outcome::TicketRenewed {
                return Ok(Err(Rejection::TicketRenewed));
            }
            if let Outcome::Ticket(Some(view)) = outcome {
                let copy = room_node.copy.lock();
                let Some(copy) = &*copy else { return Err(StoreError::Unknown) };
                return Ok(Ok(answer(&room_node, copy, view, Some(ticket), copy.now(self.database.time.both()))));
            }
        }
    }

    async fn leave(self: &Arc<Self>, name: &RoomName, ticket: &str) -> RoomAnswer<()> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let Some(ticket) = room_node.ticket_key.id(ticket) else { return Ok(Err(Rejection::UnknownTicket)) };
        if self.is_gone(&room_node, ticket.number).await? {
            return Ok(Ok(()));
        }
        match self.settled(&room_node, Entry::Leave { ticket, tag: tag()? }).await? {
            Outcome::Left(left) => Ok(left),
            Outcome::TicketRenewed => Ok(Err(Rejection::TicketRenewed)),
            _ => Err(StoreError::Unknown),
        }
    }

    /// Whether a ticket is gone for good, by the copy alone: who is gone stays so. Appends nothing.
    async fn is_gone(self: &Arc<Self>, room_node: &Arc<RoomNode>, number: TicketNumber) -> Result<bool, StoreError> {
        self.fresh(room_node).await?;
        let copy = room_node.copy.lock();
        Ok(copy.as_ref().filter(|copy| copy.is_read() && !copy.replica.unsettled(number)).is_some_and(|copy| {
            let seen = copy.replica.room().peek(number, copy.now(self.database.time.both()));
            matches!(seen, Some(Poll::Answer(TicketView { state: TicketState::Gone(_), .. })))
        }))
    }

    async fn release(self: &Arc<Self>, name: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        self.settled(&room_node, Entry::Release { number, admission, tag: tag()? }).await?;
        Ok(Ok(()))
    }

    async fn check_pass(
        self: &Arc<Self>,
        name: &RoomName,
        number: TicketNumber,
        admission: u64,
    ) -> RoomAnswer<Option<PassCheck>> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let until = Instant::now() + self.options.patience;
        self.wake(&room_node);
        let mut is_sure = false;
        loop {
            self.fresh(&room_node).await?;
            self.settle(&room_node, number, until).await?;
            let is_over = {
                let mut copy = room_node.copy.lock();
                let Some(copy) = &mut *copy else { return Err(unavailable("the log was lost")) };
                if !copy.is_read() {
                    continue;
                }
                let now = copy.now(self.database.time.both());
                let is_over = copy.replica.room().is_over(number, now);
                let check = copy.replica.room().peek_pass(number, admission, now);
                if !is_over && !copy.replica.unsettled(number) && (check.is_some() || is_sure) {
                    if check.is_some() {
                        copy.note_slot(number, now);
                    }
                    // A node that has it from another node may be ahead of this one.
                    if check.is_some() || is_sure {
                        let user = || copy.replica.room().user(number).map(Into::into);
                        return Ok(Ok(check.map(|until| PassCheck { until: now.wall_at(until), user: user() })));
                    }
                }
                is_over
            };
            // That a slot is over is told once it is kept.
            if is_over {
                self.settled(&room_node, Entry::EndOver { number, tag: tag()? }).await?;
            } else if !is_sure {
                // Another node may have let them in after what is known here.
                self.order(&room_node, Want::See).await?;
                is_sure = true;
            }
        }
    }

    /// Does what is due in all rooms, and returns when it is durable.
    async fn tick(self: &Arc<Self>) -> Result<(), StoreError> {
        let until = Instant::now() + self.options.patience;
        let rooms: Vec<Arc<RoomNode>> = self.rooms.lock().values().map(Arc::clone).collect();
        for room_node in rooms {
            while !self.ticked(&room_node, until).await? {}
        }
        Ok(())
    }

    /// The same in one room. False if what was done may be lost: it must be done again.
    async fn ticked(self: &Arc<Self>, room_node: &Arc<RoomNode>, until: Instant) -> Result<bool, StoreError> {
        room_node.goes_on()?;
        self.order(room_node, Want::Tick).await?;
        let pending = room_node.copy.lock().as_ref().and_then(|copy| {
            let replica = &copy.replica;
            let last = replica.pending_changes_after(replica.durable()).last();
            last.map(|(position, _)| (copy.log, position))
        });
        let Some((log, position)) = pending else { return Ok(true) };
        let is_durable = timeout_at(until, room_node.durable(log, position)).await.map_err(|_| StoreError::Unknown)?;
        if !is_durable && until <= Instant::now() {
            return Err(StoreError::Unknown);
        }
        Ok(is_durable)
    }
}

/// Whether no node is there, and nothing waits for SQL: a node that was to write it may be gone.
fn is_idle(copy: &RoomReplica) -> bool {
    copy.replica.room().is_idle() && !copy.is_pending()
}

/// Asks a room for what is new while there is anybody, so that time goes on in it.
async fn beat(node: Weak<Node>, room_node: Arc<RoomNode>) {
    // It ends with the node.
    while let Some(node) = node.upgrade() {
        // An error is told to the node that asks for something; time goes on when there is a log again.
        let _ = node.order(&room_node, Want::See).await;
        let (is_idle, next_us) = {
            let copy = room_node.copy.lock();
            let next_us = copy.as_ref().and_then(|copy| copy.replica.room().next_tick_us());
            (copy.as_ref().is_some_and(is_idle), next_us)
        };
        if is_idle {
            break;
        }
        drop(node);
        sleep(next_us.map_or(BEAT, |us| Duration::from_micros(us).clamp(BEAT_MIN, BEAT))).await;
    }
    room_node.is_beating.store(false, Ordering::SeqCst);
    // A node may have come just before that.
    let is_idle = room_node.copy.lock().as_ref().is_none_or(is_idle);
    if let Some(node) = node.upgrade().filter(|_| !is_idle) {
        node.wake(&room_node);
    }
}

impl RoomStore for Cluster {
    async fn put_room(&self, room: &RoomName, revision: impl Into<Revision<RoomSettings>> + Send) -> RoomAnswer<Put> {
        let revision = revision.into();
        boxed(self.node.put_room(room, revision)).await
    }

    async fn close_room(&self, room: &RoomName) -> RoomAnswer<()> {
        boxed(self.node.close_room(room)).await
    }

    async fn room(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        let summary = |replica: &Replica, now: Now| RoomSummary {
            settings: replica.room().settings().clone(),
            view: replica.room().view(now),
            draw: replica.draw_view(),
            as_of: now.wall,
        };
        boxed(self.node.seen(room, summary)).await
    }

    async fn admissions(&self, room: &RoomName) -> RoomAnswer<LiveAdmissions> {
        let admissions = |replica: &Replica, now: Now| LiveAdmissions {
            admissions: replica.room().live_admissions(now),
            as_of: now.wall,
        };
        boxed(self.node.seen(room, admissions)).await
    }

    async fn join(&self, room: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        boxed(self.node.join(room, join)).await
    }

    async fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> RoomAnswer<()> {
        boxed(self.node.put_appearance(room, &appearance)).await
    }

    async fn appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        boxed(self.node.appearance(room)).await
    }

    async fn poll(&self, room: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        boxed(self.node.poll(room, ticket)).await
    }

    async fn renew(&self, room: &RoomName, ticket: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        boxed(self.node.renew_ticket(room, ticket, key)).await
    }

    async fn leave(&self, room: &RoomName, ticket: &str) -> RoomAnswer<()> {
        boxed(self.node.leave(room, ticket)).await
    }

    async fn hand_off(&self, room: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        boxed(self.node.hand_off(room, ticket)).await
    }

    async fn redeem_handoff(&self, room: &RoomName, code: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        boxed(self.node.redeem_handoff(room, code, key)).await
    }

    async fn release(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        boxed(self.node.release(room, number, admission)).await
    }

    async fn check_pass(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<Option<PassCheck>> {
        boxed(self.node.check_pass(room, number, admission)).await
    }

    async fn report_origin(&self, room: &RoomName, report: OriginReport) -> RoomAnswer<RatePace> {
        boxed(self.node.report_origin(room, report)).await
    }

    async fn tick(&self) -> Result<(), StoreError> {
        boxed(self.node.tick()).await
    }

    fn pass_secrets(&self) -> Vec<PassSecret> {
        self.node.secrets.known.read().clone()
    }

    async fn rotate_pass_secret(&self) -> Result<PassSecret, StoreError> {
        let alive_us = i64::try_from(ROOM_PERIOD_MS_MAX * 1_000).unwrap_or(i64::MAX);
        let fresh = self.node.database.rotate_pass_secret(alive_us).await?;
        self.node.refresh_secrets().await.map_err(|_| StoreError::Unknown)?;
        Ok(fresh)
    }

    async fn revoke_pass_secret(&self, id: u32) -> Result<PassSecretRevocation, StoreError> {
        let revocation = self.node.database.revoke_pass_secret(id).await?;
        // Also after a revocation at another node, which this one may not have read yet.
        self.node.refresh_secrets().await.map_err(|_| StoreError::Unknown)?;
        Ok(revocation)
    }
}
