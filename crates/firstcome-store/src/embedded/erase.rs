//! The port for erasures over the embedded store, and the writer's part of it.
//!
//! The first turn of the writer erases what memory finds by the name: claims, living places, the member. Then a reader looks for tickets
//! in the file, which no index finds, and further turns erase their users. The tickets of a user who comes back in between have higher
//! numbers than those of the first turn, and stay. Records of the member beyond the first page are chained again by ticks, a page in each,
//! while the writer serves others; they go on if the caller goes away, and after a restart.

use super::auction::AuctionErasure;
use super::coupon::CouponCell;
use super::engine::Primitives;
use super::journal::{Change, RoomId};
use super::reply::Reply;
use super::room::RoomCell;
use super::writer::Log;
use super::{Command, Embedded, Judged, blocking};
use crate::erase::{EraseAnswer, EraseStore};
use crate::error::StoreError;
use crate::purge::PAGE_ROWS_MAX;
use firstcome_core::coupon::Serial;
use firstcome_core::erase::{Erased, Pseudonym, Rejection};
use firstcome_core::id::{MemberName, UserId};
use firstcome_core::room::{self, TicketNumber};
use firstcome_core::time::Now;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A command to erase a person.
pub(super) struct EraseCommand {
    pub(super) user: UserId,
    pub(super) pseudonym: Pseudonym,
    pub(super) reply: Reply<FirstTurn, Rejection>,
}

/// What the first turn did.
pub(super) struct FirstTurn {
    erased: Erased,
    /// The last number that each room had drawn.
    drawn: BTreeMap<RoomId, u32>,
}

/// What memory holds of a person.
struct Found {
    claims: Vec<(Arc<CouponCell>, Serial)>,
    rooms: Vec<(Arc<RoomCell>, Option<room::Change>)>,
    auctions: AuctionErasure,
}

impl Found {
    /// Returns the changes, behind the mark of an erasure; none if memory holds nothing of the person.
    fn changes(&self, pseudonym: &Pseudonym, now: Now) -> Vec<Change> {
        let claim = |(cell, serial): &(Arc<CouponCell>, Serial)| Change::ClaimErased {
            id: cell.id,
            serial: *serial,
            pseudonym: pseudonym.user(),
        };
        let left = |(cell, change): &(Arc<RoomCell>, Option<room::Change>)| {
            change.clone().map(|change| Change::of_room(cell.id, change, now))
        };
        let mut changes = vec![Change::Erasure];
        changes.extend(self.claims.iter().map(claim));
        changes.extend(self.rooms.iter().filter_map(left));
        self.auctions.add_changes(&mut changes);
        if changes.len() == 1 { Vec::new() } else { changes }
    }
}

fn find(
    primitives: &Primitives,
    user: &UserId,
    pseudonym: &Pseudonym,
    log: &Log,
    now: Now,
) -> Judged<Found, Rejection> {
    let Ok(member) = MemberName::restore(user.as_str()) else { return Err(StoreError::Unknown) };
    let auctions = primitives.auctions.judge_erase(&member, &pseudonym.member(), log.shared.rows.as_ref(), now.wall)?;
    let auctions = match auctions {
        Ok(auctions) => auctions,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let coupons = log.shared.coupons.read();
    let claim = |cell: &Arc<CouponCell>| Some((Arc::clone(cell), cell.coupon.read().claim_of(user.as_str())?.serial));
    let claims = coupons.values().filter_map(claim).collect();
    let rooms = log.shared.rooms.read();
    let room = |cell: &Arc<RoomCell>| (Arc::clone(cell), cell.kept.lock().room.judge_erase(user.as_str()));
    Ok(Ok(Found { claims, rooms: rooms.values().map(room).collect(), auctions }))
}

/// Erases what memory finds of a person, in a separate commit. Memory changes after it: nothing has to be taken back.
pub(super) fn first_turn(
    primitives: &mut Primitives,
    (user, pseudonym): (&UserId, &Pseudonym),
    log: &mut Log,
    now: Now,
) -> Judged<FirstTurn, Rejection> {
    log.check()?;
    let found = match find(primitives, user, pseudonym, log, now)? {
        Ok(found) => found,
        Err(rejection) => return Ok(Err(rejection)),
    };
    log.commit_all(found.changes(pseudonym, now))?;
    let Found { claims, rooms, auctions } = found;
    let mut erased = Erased { claims: claims.len() as u64, ..Erased::default() };
    for (cell, serial) in claims {
        cell.coupon.write().erase(serial, pseudonym);
    }
    let mut drawn = BTreeMap::new();
    let mut changes = Vec::new();
    for (cell, _) in rooms {
        let mut kept = cell.kept.lock();
        drawn.insert(cell.id, kept.room.drawn());
        erased.tickets += kept.room.erase(user.as_str(), now, &mut changes).len() as u64;
    }
    changes.iter().for_each(|change| log.shared.stats.count(change));
    erased.add(primitives.auctions.erase(auctions, log.shared.auctions()));
    log.shared.clockwork.wake();
    Ok(Ok(FirstTurn { erased, drawn }))
}

/// Erases the users of these tickets from the file.
pub(super) fn erase_tickets(tickets: Vec<(RoomId, TicketNumber)>, log: &mut Log) -> Judged<(), Rejection> {
    log.check()?;
    log.commit_all([Change::Erasure, Change::TicketsErased(tickets)])?;
    Ok(Ok(()))
}

impl EraseStore for Embedded {
    async fn erase(&self, user: &UserId) -> EraseAnswer {
        let secret = self.inner.shared.draw_secret()?;
        let mut random = [0; 16];
        random.copy_from_slice(&secret[..16]);
        let pseudonym = Pseudonym::new(u128::from_le_bytes(random));
        let (reply, answer) = Reply::pair();
        let command = EraseCommand { user: user.clone(), pseudonym, reply };
        let FirstTurn { mut erased, drawn } = match self.ask(Command::Erase(Box::new(command)), answer).await? {
            Ok(first) => first,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let (rows, name) = (Arc::clone(&self.inner.shared.rows), user.clone());
        if let Some(mut tickets) = blocking(move || rows.tickets_of(&name)).await? {
            tickets.retain(|(room, number)| drawn.get(room).is_some_and(|drawn| number.get() <= *drawn));
            // The rows count each ticket in memory too.
            erased.tickets = tickets.len() as u64;
            self.erase_tickets(&tickets).await?;
        }
        // Also those of an erasure before, of which the caller did not see the end.
        while self.inner.shared.auctions().is_left(user.as_str())? {
            self.tick_over().await?;
        }
        Ok(Ok(erased))
    }
}

impl Embedded {
    /// Erases the users of these tickets from the file, a page in each turn of the writer.
    async fn erase_tickets(&self, tickets: &[(RoomId, TicketNumber)]) -> Result<(), StoreError> {
        for page in tickets.chunks(PAGE_ROWS_MAX) {
            let (reply, answer) = Reply::pair();
            // No rule refuses it.
            let _ = self.ask(Command::EraseTickets { tickets: page.to_vec(), reply }, answer).await?;
        }
        Ok(())
    }
}
