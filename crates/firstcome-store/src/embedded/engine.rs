//! Runs batches of commands through the rules: decide, write, publish, answer, in this order.
//!
//! # Invariants
//! - An answer leaves only after the commit of the batch in which it was decided: the data that it rests on is durable.
//! - Claims and redemptions change the state in memory before the commit; readers see them only once
//!   [`CouponCell::durable`] has passed them. Settings and deletions change it after the commit.
//! - Auctions' state in memory changes before the commit too; readers see copies that are made after it.
//! - After a commit that failed with nothing stored, by a cause that may pass, memory is what it was before the batch: claims,
//!   redemptions and auctions are undone, rooms are read again. Writes are refused until a small one succeeds
//!   ([`Engine::probe`]).
//! - After any other failed commit nothing is written any more: memory then knows of claims that the disk may not have.

use super::auction::{self, AuctionWriter, Rest};
use super::coupon::CouponCell;
use super::journal::{Change, CouponId, CouponPut, Journal, JournalError, Outcome, RoomId};
use super::room::{self, RoomCell};
use super::{Command, PutCommand, PutRoomCommand, Reply, RoomJob, Shared};
use crate::edge::Stopwatch;
use crate::error::{Fault, StoreError};
use crate::port::Put;
use crate::voucher::VoucherKey;
use firstcome_core::coupon::{Claim, Coupon, CouponSettings, Effect, Issued, Redeem, Redeemed, Rejection, Serial};
use firstcome_core::id::CouponName;
#[cfg(feature = "planted-bugs")]
use firstcome_core::planted::Bug;
use firstcome_core::revision::Revision;
use firstcome_core::time::{Now, Steady};
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Claims that are judged under one hold of a coupon's lock. Readers wait no longer than these take (about 20 µs).
const CLAIMS_PER_HOLD: usize = 64;

/// An answer that waits for the commit.
enum PendingReply {
    Claim(Reply<Effect<Issued>>, Result<Effect<Issued>, Rejection>),
    Redeem(Reply<Effect<Redeemed>>, Result<Effect<Redeemed>, Rejection>),
}

/// One claim on its way through a batch.
pub(super) struct ClaimCommand {
    pub(super) cell: Arc<CouponCell>,
    pub(super) claim: Claim,
    pub(super) reply: Reply<Effect<Issued>>,
}

/// Owns the state and the journal. A caller that holds it is the one writer.
pub struct Engine {
    pub(super) shared: Arc<Shared>,
    journal: Box<dyn Journal>,
    pub(super) hasher: RandomState,
    next_coupon: u32,
    pub(super) next_room: u32,
    pub(super) next_pass_secret: u32,
    pub(super) changes: Vec<Change>,
    told: Vec<PendingReply>,
    touched: Vec<Arc<CouponCell>>,
    pub(super) pending_room_replies: Vec<room::PendingRoomReply>,
    pending_ticks: Vec<(Reply<Option<Rest>>, Option<Rest>)>,
    pub(super) touched_rooms: Vec<Arc<RoomCell>>,
    pub(super) room_changes: Vec<firstcome_core::room::Change>,
    pub(super) clock_stored: Option<Steady>,
    pub(super) auctions: AuctionWriter,
    pub(super) pending_auction_replies: Vec<auction::PendingAuctionReply>,
}

/// The numbers that the next things get.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub(super) coupon: CouponId,
    pub(super) room: RoomId,
    pub(super) pass_secret: u32,
}

impl Engine {
    pub(super) fn new(
        shared: Arc<Shared>,
        journal: Box<dyn Journal>,
        hasher: RandomState,
        next: Next,
        auctions: AuctionWriter,
    ) -> Self {
        Self {
            shared,
            journal,
            hasher,
            next_coupon: next.coupon.0,
            next_room: next.room.0,
            next_pass_secret: next.pass_secret,
            changes: Vec::new(),
            told: Vec::new(),
            touched: Vec::new(),
            pending_room_replies: Vec::new(),
            pending_ticks: Vec::new(),
            touched_rooms: Vec::new(),
            room_changes: Vec::new(),
            clock_stored: None,
            auctions,
            pending_auction_replies: Vec::new(),
        }
    }

    /// Runs all commands in order and answers each. The batch is empty afterwards.
    pub(super) fn run(&mut self, batch: &mut Vec<Command>) {
        let watch = Stopwatch::start();
        let now = self.shared.both();
        self.auctions.begin_turn();
        #[cfg(feature = "planted-bugs")]
        swap_neighbours(batch);
        let mut batch = batch.drain(..).peekable();
        while let Some(command) = batch.next() {
            match command {
                Command::Claim(first) => {
                    let cell = Arc::clone(&first.cell);
                    let same = |next: &Command| matches!(next, Command::Claim(next) if Arc::ptr_eq(&next.cell, &cell));
                    let rest = std::iter::from_fn(|| match batch.next_if(same) {
                        Some(Command::Claim(next)) => Some(next),
                        _ => None,
                    });
                    self.claims(&cell, std::iter::once(first).chain(rest).take(CLAIMS_PER_HOLD), now);
                }
                Command::Room(first) => {
                    let cell = first.cell;
                    let same = |next: &Command| matches!(next, Command::Room(next) if Arc::ptr_eq(&next.cell, &cell));
                    let rest = std::iter::from_fn(|| match batch.next_if(same) {
                        Some(Command::Room(RoomJob { order, .. })) => Some(order),
                        _ => None,
                    });
                    self.orders(&cell, std::iter::once(first.order).chain(rest).take(CLAIMS_PER_HOLD), now);
                }
                Command::Redeem { cell, redeem, reply } => self.redeem(&cell, &redeem, reply, now),
                Command::Auctions(job) => self.auctions(job, now),
                Command::Tick(rest, reply) => {
                    self.tick(now);
                    let rest = self.close_due(rest, now);
                    self.pending_ticks.push((reply, rest));
                }
                // No caller waits for it any more: it is not done, as if it had never come.
                Command::PutCoupon(put) if put.reply.is_closed() => {}
                Command::DeleteCoupon { reply, .. } if reply.is_closed() => {}
                Command::PutRoom(put) if put.reply.is_closed() => {}
                Command::CloseRoom { reply, .. } if reply.is_closed() => {}
                Command::RotatePassSecret { reply, .. } if reply.is_closed() => {}
                Command::PutCoupon(put) => {
                    self.finish(now);
                    let PutCommand { name, revision, voucher_key, reply } = *put;
                    reply.send(self.put_coupon(name, revision, voucher_key, now));
                }
                Command::DeleteCoupon { cell, reply } => {
                    self.finish(now);
                    let answer = self.delete_coupon(&cell, now);
                    reply.send(answer);
                }
                other => {
                    self.finish(now);
                    self.run_rare(other, now);
                }
            }
        }
        self.finish(now);
        self.shared.measure(watch.elapsed());
    }

    fn run_rare(&mut self, command: Command, now: Now) {
        match command {
            Command::PutRoom(put) => {
                let PutRoomCommand { name, revision, secrets, reply } = *put;
                reply.send(self.put_room(name, revision, secrets, now));
            }
            Command::CloseRoom { cell, reply } => reply.send(self.close_room(&cell, now)),
            Command::RotatePassSecret { bytes, reply } => reply.send(self.sign_with(bytes, now).map(Ok)),
            // The others are run where they are met.
            _ => {}
        }
    }

    /// Puts things in order before a proper end.
    pub(super) fn close(&mut self) {
        if self.shared.fault().is_none() {
            self.journal.close();
        }
    }

    fn claims(&mut self, cell: &Arc<CouponCell>, run: impl Iterator<Item = ClaimCommand>, now: Now) {
        let fault = self.shared.fault();
        let changes = self.changes.len();
        let mut coupon = cell.coupon.write();
        for ClaimCommand { claim, reply, .. } in run {
            // A caller that asked has gone away: it is not done, as if it had never come.
            if reply.is_closed() {
                continue;
            }
            if let Some(fault) = &fault {
                reply.send(Err(StoreError::Unavailable(Arc::clone(fault))));
                continue;
            }
            let answer = coupon.claim(&claim, now.wall);
            if let Ok(Effect::New(issued)) = answer {
                self.changes.push(Change::Claimed { id: cell.id, issued, claim });
            }
            self.told.push(PendingReply::Claim(reply, answer));
        }
        drop(coupon);
        if changes < self.changes.len() {
            touch(&mut self.touched, cell);
        }
        #[cfg(feature = "planted-bugs")]
        if firstcome_core::planted::is(firstcome_core::planted::Bug::AnswerBeforeCommit) {
            self.answer_all();
        }
    }

    fn redeem(&mut self, cell: &Arc<CouponCell>, redeem: &Redeem, reply: Reply<Effect<Redeemed>>, now: Now) {
        if reply.is_closed() {
            return;
        }
        if let Some(fault) = self.shared.fault() {
            reply.send(Err(StoreError::Unavailable(fault)));
            return;
        }
        let answer = {
            let mut coupon = cell.coupon.write();
            let answer = coupon.redeem(redeem, now.wall);
            if let Ok(Effect::New(redeemed)) = answer {
                cell.redeeming.lock().insert(redeemed.serial);
            }
            answer
        };
        if let Ok(Effect::New(redeemed)) = answer {
            touch(&mut self.touched, cell);
            self.changes.push(Change::Redeemed { id: cell.id, redeemed, request: redeem.request });
        }
        self.told.push(PendingReply::Redeem(reply, answer));
    }

    fn put_coupon(
        &mut self,
        name: CouponName,
        revision: Revision<CouponSettings>,
        voucher_key: VoucherKey,
        at: Now,
    ) -> Result<Result<Put, Rejection>, StoreError> {
        // After a failed commit memory knows of claims that may not be stored: no refusal may rest on them.
        if let Some(fault) = self.shared.fault() {
            return Err(StoreError::Unavailable(fault));
        }
        let known = self.shared.cell(name.as_str());
        let judged = match &known {
            Some(cell) => cell.coupon.read().judge_settings(&revision),
            None if revision.replaces.is_some() => Err(Rejection::UnknownCoupon),
            None => Ok(()),
        };
        if let Err(rejection) = judged {
            return Ok(Err(rejection));
        }
        let settings = revision.settings;
        let (id, voucher_key) = known
            .as_ref()
            .map_or((CouponId(self.next_coupon), voucher_key), |cell| (cell.id, cell.voucher_key.clone()));
        let put = CouponPut { id, name, settings, voucher_key, at: at.wall };
        self.commit(Change::CouponPut(Box::new(put.clone())))?;
        let CouponPut { name, settings, voucher_key, .. } = put;
        if let Some(cell) = known {
            cell.coupon.write().replace_settings(settings);
            return Ok(Ok(Put::Replaced));
        }
        self.next_coupon += 1;
        let coupon = Coupon::new(settings, self.hasher.clone());
        self.shared.add(name, CouponCell::new(id, voucher_key, coupon));
        Ok(Ok(Put::Created))
    }

    fn delete_coupon(&mut self, cell: &CouponCell, at: Now) -> Result<Result<(), Rejection>, StoreError> {
        if !cell.coupon.read().is_deleted() {
            self.commit(Change::CouponDeleted { id: cell.id, at: at.wall })?;
            cell.coupon.write().delete();
        }
        Ok(Ok(()))
    }

    /// Writes one change on its own.
    pub(super) fn commit(&mut self, change: Change) -> Result<(), StoreError> {
        self.changes.push(change);
        self.write_changes()
    }

    /// Tries whether the journal takes writes again after a fault that may pass, by a real one.
    pub(super) fn probe(&mut self) {
        if self.shared.passing_fault().is_none() {
            return;
        }
        let now = self.shared.both();
        match self.journal.commit(&[Change::Clock(now)]) {
            Ok(()) => {
                self.clock_stored = Some(now.steady);
                self.shared.resume();
            }
            Err(JournalError { outcome: Outcome::Passing, fault }) => drop(self.shared.pause(fault)),
            Err(JournalError { fault, .. }) => drop(self.shared.fail(fault)),
        }
    }

    /// Makes memory what it was before the changes that could not be stored.
    fn take_back(&mut self) -> Result<(), Fault> {
        self.clock_stored = None;
        #[cfg(feature = "planted-bugs")]
        self.leave_out_what_is_planted();
        self.touched.iter().for_each(|cell| cell.take_back(&self.changes));
        if !auctions_are_left_out() {
            self.auctions.take_back(&self.changes)?;
        }
        let now = self.shared.both();
        for cell in self.touched_rooms.drain(..) {
            cell.replace(self.journal.room(cell.id, &self.hasher, now)?.room);
        }
        Ok(())
    }

    /// Each bug leaves out its own part alone: the invariant that names it must not be another's.
    #[cfg(feature = "planted-bugs")]
    fn leave_out_what_is_planted(&mut self) {
        use firstcome_core::planted::is;
        if is(Bug::ClaimsNotTakenBack) {
            self.touched.clear();
        }
        if is(Bug::RoomNotTakenBack) {
            self.touched_rooms.drain(..).for_each(|cell| cell.settle());
        }
    }

    /// Commits what was decided, lets readers see it, and answers.
    fn finish(&mut self, now: Now) {
        self.note_clocks(now);
        self.auctions.seal(&mut self.changes);
        if let Err(error) = self.write_changes() {
            self.told.drain(..).for_each(|told| told.refuse(&error));
            self.pending_room_replies.drain(..).for_each(|told| told.refuse(&error));
            self.pending_auction_replies.drain(..).for_each(|told| told.refuse(&error));
            self.pending_ticks.drain(..).for_each(|(reply, _)| reply.send(Err(error.clone())));
            self.touched.clear();
            // What is unsettled stays so: it may or may not be stored, and no caller is told either.
            self.touched_rooms.clear();
            return;
        }
        // By the writer itself: a caller that asked for it may have gone away.
        if !self.touched_rooms.is_empty() {
            self.shared.clockwork.somebody_came();
        }
        self.touched_rooms.drain(..).for_each(|cell| cell.settle());
        if self.auctions.publish(self.shared.auctions(), now.wall) {
            self.shared.clockwork.wake();
        }
        for cell in self.touched.drain(..) {
            let issued = cell.coupon.read().issued();
            cell.durable.store(issued, Ordering::Release);
            cell.redeeming.lock().clear();
        }
        self.answer_all();
    }

    fn answer_all(&mut self) {
        for told in self.told.drain(..) {
            match told {
                PendingReply::Claim(reply, answer) => reply.send(Ok(answer)),
                PendingReply::Redeem(reply, answer) => reply.send(Ok(answer)),
            }
        }
        self.pending_room_replies.drain(..).for_each(room::PendingRoomReply::tell);
        self.pending_auction_replies.drain(..).for_each(auction::PendingAuctionReply::tell);
        self.pending_ticks.drain(..).for_each(|(reply, rest)| reply.send(Ok(Ok(rest))));
    }

    fn write_changes(&mut self) -> Result<(), StoreError> {
        if let Some(fault) = self.shared.fault() {
            self.changes.clear();
            return Err(StoreError::Unavailable(fault));
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let watch = Stopwatch::start();
        let result = self.journal.commit(&self.changes);
        let stats = &self.shared.stats;
        stats.batch_changes.record(self.changes.len() as u64);
        stats.commit_us.record(watch.elapsed().as_micros() as u64);
        let result = result.map_err(|error| match error.outcome {
            Outcome::Passing => match self.take_back() {
                Ok(()) => StoreError::Unavailable(self.shared.pause(error.fault)),
                Err(fault) => StoreError::Unavailable(self.shared.fail(fault)),
            },
            Outcome::Nothing => StoreError::Unavailable(self.shared.fail(error.fault)),
            Outcome::Unknown => {
                self.shared.fail_unknown(error.fault);
                StoreError::Unknown
            }
        });
        self.changes.clear();
        result
    }

    /// The fault that stopped the store, if one did.
    pub fn fault(&self) -> Option<Arc<Fault>> {
        self.shared.fault()
    }
}

#[cfg(feature = "planted-bugs")]
fn auctions_are_left_out() -> bool {
    firstcome_core::planted::is(Bug::AuctionNotTakenBack)
}

#[cfg(not(feature = "planted-bugs"))]
const fn auctions_are_left_out() -> bool {
    false
}

impl PendingReply {
    fn refuse(self, error: &StoreError) {
        match self {
            Self::Claim(reply, _) => reply.send(Err(error.clone())),
            Self::Redeem(reply, _) => reply.send(Err(error.clone())),
        }
    }
}

fn touch(touched: &mut Vec<Arc<CouponCell>>, cell: &Arc<CouponCell>) {
    if !touched.iter().any(|known| Arc::ptr_eq(known, cell)) {
        touched.push(Arc::clone(cell));
    }
}

/// How many claims of a coupon are durable, as readers see it.
pub(super) fn durable(cell: &CouponCell) -> u32 {
    cell.durable.load(Ordering::Acquire)
}

/// The durable claims of a coupon as a serial, if there is one.
pub(super) fn last_durable(cell: &CouponCell) -> Option<Serial> {
    Serial::new(durable(cell))
}

#[cfg(feature = "planted-bugs")]
fn swap_neighbours(batch: &mut [Command]) {
    if firstcome_core::planted::is(firstcome_core::planted::Bug::OrderSwapped) && 2 <= batch.len() {
        batch.swap(0, 1);
    }
}
