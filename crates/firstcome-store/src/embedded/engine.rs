//! Runs batches of commands through the rules: decide, write, publish, reply, in this order.
//!
//! # Invariants
//! - A reply leaves only after the commit of the batch in which it was decided: the data that it depends on is durable.
//! - Each primitive keeps its own state ([`CouponWriter`], [`RoomWriter`], [`AuctionWriter`]). The engine knows it only
//!   through [`Primitive`] and its commands.
//! - If a commit failed, stored nothing, and its cause may pass, memory returns to its state before the batch. Writes
//!   are refused until a small one succeeds ([`Log::probe`]).
//! - After any other failed commit nothing is written any more: memory may then hold claims that are not on disk.

use super::api_key;
use super::auction::{AuctionWriter, Rest};
use super::coupon::CouponWriter;
use super::erase::{self, EraseCommand};
use super::journal::{Change, CouponId, Journal, RoomId};
use super::receipt;
use super::reply::{self, Reply};
use super::room::RoomWriter;
use super::writer::{Log, Primitive};
use super::{Command, PutCommand, PutRoomCommand, RoomJob, Shared};
use crate::edge::Stopwatch;
use crate::error::{Fault, StoreError};
use firstcome_core::time::Now;
use std::hash::RandomState;
use std::sync::Arc;

/// How many claims are decided under one hold of a coupon's lock. Readers wait for at most these (about 20 µs).
const CLAIMS_PER_HOLD: usize = 64;

/// The state and the journal. Its owner is the one writer.
pub struct Engine {
    log: Log,
    primitives: Primitives,
    pending_ticks: Vec<(Reply<Option<Rest>>, Option<Rest>)>,
}

firstcome_core::debug_by_name!(Engine);

/// Every primitive of the store. A new one is a field here, and a line in each step.
pub(super) struct Primitives {
    coupons: CouponWriter,
    rooms: RoomWriter,
    pub(super) auctions: AuctionWriter,
}

impl Primitive for Primitives {
    fn needs_clocks(&self) -> bool {
        self.coupons.needs_clocks() || self.rooms.needs_clocks() || self.auctions.needs_clocks()
    }

    fn seal(&self, changes: &mut Vec<Change>) {
        self.coupons.seal(changes);
        self.rooms.seal(changes);
        self.auctions.seal(changes);
    }

    fn publish(&mut self, shared: &Shared, now: Now) {
        self.coupons.publish(shared, now);
        self.rooms.publish(shared, now);
        self.auctions.publish(shared, now);
    }

    fn reply(&mut self) {
        self.coupons.reply();
        self.rooms.reply();
        self.auctions.reply();
    }

    fn refuse(&mut self, error: &StoreError) {
        self.coupons.refuse(error);
        self.rooms.refuse(error);
        self.auctions.refuse(error);
    }

    fn take_back(&mut self, changes: &[Change], journal: &mut dyn Journal, now: Now) -> Result<(), Fault> {
        self.coupons.take_back(changes, journal, now)?;
        self.rooms.take_back(changes, journal, now)?;
        self.auctions.take_back(changes, journal, now)
    }
}

/// The next free ids.
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
        hasher: &RandomState,
        next: Next,
        auctions: AuctionWriter,
    ) -> Self {
        Self {
            log: Log::new(shared, journal),
            primitives: Primitives {
                coupons: CouponWriter::new(hasher.clone(), next.coupon),
                rooms: RoomWriter::new(hasher.clone(), next.room, next.pass_secret),
                auctions,
            },
            pending_ticks: Vec::new(),
        }
    }

    /// Runs all commands in order and answers each. The batch is empty afterwards.
    pub(super) fn run(&mut self, batch: &mut Vec<Command>) {
        let watch = Stopwatch::start();
        let now = self.log.shared.both();
        self.primitives.auctions.begin_turn();
        #[cfg(feature = "planted-bugs")]
        swap_neighbours(batch);
        let mut batch = batch.drain(..).peekable();
        while let Some(command) = batch.next() {
            let (log, Primitives { coupons, rooms, auctions }) = (&mut self.log, &mut self.primitives);
            match command {
                Command::Claim(first) => {
                    let cell = Arc::clone(&first.cell);
                    let same = |next: &Command| matches!(next, Command::Claim(next) if Arc::ptr_eq(&next.cell, &cell));
                    let rest = std::iter::from_fn(|| match batch.next_if(same) {
                        Some(Command::Claim(next)) => Some(next),
                        _ => None,
                    });
                    coupons.claims(&cell, std::iter::once(first).chain(rest).take(CLAIMS_PER_HOLD), log, now);
                }
                Command::Room(first) => {
                    let cell = first.cell;
                    let same = |next: &Command| matches!(next, Command::Room(next) if Arc::ptr_eq(&next.cell, &cell));
                    let rest = std::iter::from_fn(|| match batch.next_if(same) {
                        Some(Command::Room(RoomJob { order, .. })) => Some(order),
                        _ => None,
                    });
                    rooms.orders(&cell, std::iter::once(first.order).chain(rest).take(CLAIMS_PER_HOLD), log, now);
                }
                Command::Redeem { cell, redeem, reply } => coupons.redeem(&cell, &redeem, reply, log, now),
                Command::Auctions(job) => auctions.run(job, log, now),
                Command::Tick(rest, reply) => self.tick(rest, reply, now),
                rare => {
                    if !is_given_up(&rare) {
                        self.finish(now);
                        self.run_alone(rare, now);
                        reply::wake_callers();
                    }
                }
            }
        }
        self.finish(now);
        self.log.shared.measure(watch.elapsed());
    }

    /// Does what is due.
    fn tick(&mut self, rest: Option<Rest>, reply: Reply<Option<Rest>>, now: Now) {
        if self.primitives.auctions.has_renamed() {
            self.finish(now);
            // A commit that failed has opened a fault, which refuses this tick with the batch.
            let _ = self.primitives.auctions.chain_again(&mut self.log);
        }
        let (log, Primitives { rooms, auctions, .. }) = (&mut self.log, &mut self.primitives);
        rooms.tick(log, now);
        let rest = auctions.close_due_now(rest, log, now);
        self.pending_ticks.push((reply, rest));
    }

    /// Runs a command whose change is committed on its own.
    fn run_alone(&mut self, command: Command, now: Now) {
        if let Command::Erase(erase) = command {
            let EraseCommand { user, pseudonym, reply } = *erase;
            return reply.send(erase::first_turn(&mut self.primitives, (&user, &pseudonym), &mut self.log, now));
        }
        let (log, Primitives { coupons, rooms, auctions }) = (&mut self.log, &mut self.primitives);
        match command {
            Command::PutCoupon(put) => {
                let PutCommand { name, revision, voucher_key, reply } = *put;
                reply.send(coupons.put(name, revision, voucher_key, log, now));
            }
            Command::DeleteCoupon { cell, reply } => reply.send(CouponWriter::delete(&cell, log, now)),
            Command::PutRoom(put) => {
                let PutRoomCommand { name, revision, secrets, reply } = *put;
                reply.send(rooms.put(name, revision, secrets, log, now));
            }
            Command::PutAppearance { cell, appearance, reply } => {
                reply.send(RoomWriter::dress(&cell, appearance, log));
            }
            Command::CloseRoom { cell, reply } => reply.send(RoomWriter::close(&cell, log, now)),
            Command::PublishHeads { reply } => reply.send(receipt::publish(log, now).map(Ok)),
            Command::ApiKeys { command, reply } => reply.send(api_key::change(&command, log, now)),
            Command::Purge(purge) => purge.run(auctions, log, now),
            Command::RotatePassSecret { bytes, reply } => reply.send(rooms.sign_with(bytes, log, now).map(Ok)),
            Command::RevokePassSecret { id, bytes, reply } => {
                reply.send(rooms.revoke_secret(id, bytes, log, now).map(Ok));
            }
            Command::EraseTickets { tickets, reply } => reply.send(erase::erase_tickets(tickets, log)),
            // `run` takes these into its batch; the first one is done above.
            Command::Erase(_)
            | Command::Claim(_)
            | Command::Room(_)
            | Command::Redeem { .. }
            | Command::Auctions(_)
            | Command::Tick(..) => {}
        }
    }

    /// Closes the journal before a regular end.
    pub(super) fn close(&mut self) {
        self.log.close();
    }

    /// Tries a real write, to see whether the journal accepts writes again after a temporary fault.
    pub(super) fn probe(&mut self) {
        self.log.probe();
    }

    /// Commits what was decided, publishes it to readers, and replies.
    fn finish(&mut self, now: Now) {
        let (log, primitives) = (&mut self.log, &mut self.primitives);
        if primitives.needs_clocks() {
            log.note_clocks(now);
        }
        primitives.seal(&mut log.changes);
        if let Err(error) = log.write(primitives) {
            primitives.refuse(&error);
            self.pending_ticks.drain(..).for_each(|(reply, _)| reply.send(Err(error.clone())));
            reply::wake_callers();
            return;
        }
        primitives.publish(&log.shared, now);
        primitives.reply();
        self.pending_ticks.drain(..).for_each(|(reply, rest)| reply.send(Ok(Ok(rest))));
        reply::wake_callers();
    }

    /// Returns the fault that stops writes, if there is one.
    pub fn fault(&self) -> Option<Arc<Fault>> {
        self.log.shared.fault()
    }
}

/// Whether the caller of a command that is committed on its own dropped its future: the command is skipped, as if it
/// had never come.
fn is_given_up(command: &Command) -> bool {
    match command {
        Command::PutCoupon(put) => put.reply.is_closed(),
        Command::DeleteCoupon { reply, .. } => reply.is_closed(),
        Command::PutRoom(put) => put.reply.is_closed(),
        Command::CloseRoom { reply, .. } | Command::PutAppearance { reply, .. } => reply.is_closed(),
        Command::RotatePassSecret { reply, .. } => reply.is_closed(),
        Command::RevokePassSecret { reply, .. } => reply.is_closed(),
        Command::PublishHeads { reply } => reply.is_closed(),
        Command::ApiKeys { reply, .. } => reply.is_closed(),
        Command::Erase(erase) => erase.reply.is_closed(),
        Command::EraseTickets { reply, .. } => reply.is_closed(),
        Command::Purge(purge) => purge.reply.is_closed(),
        _ => false,
    }
}

#[cfg(feature = "planted-bugs")]
fn swap_neighbours(batch: &mut [Command]) {
    if firstcome_core::planted::is(firstcome_core::planted::Bug::OrderSwapped) && 2 <= batch.len() {
        batch.swap(0, 1);
    }
}
