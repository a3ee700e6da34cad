//! Renews the ticket of a place: the place gets another ticket, and the ticket before it is void.
//!
//! A link or a picture can carry a ticket to another device. The device that opens it renews the ticket, so the link works
//! once. The generations of a place's tickets count up from 0. A room keeps only the generations of tickets that were renewed,
//! and only while their places live. A room without renewals pays one comparison per poll.
//!
//! # Invariants
//! - The generation of a place never falls, and a ticket of an earlier generation is refused: [`Rejection::TicketRenewed`].
//! - One request renews a ticket. A repeat of it, with the same key and the same ticket, finds the same new ticket until the
//!   next renewal. Another request with the same ticket is refused.
//! - Number, turn, slot and admission of the place stay as they are.

use super::bytes::{ImageError, Reader, put_number};
use super::line::TicketPlace;
use super::{Change, Damage, Rejection, Room, TicketNumber, TicketState, TicketView};
use crate::time::Now;
use std::collections::BTreeMap;

/// What a ticket says: which place it is of, and which of the place's tickets it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TicketId {
    /// The number of the place.
    pub number: TicketNumber,
    /// How many tickets the place had before this one: 0 for the ticket of the join.
    pub generation: u32,
}

impl TicketId {
    /// Returns the first ticket of a place, which the join gave out.
    pub const fn first(number: TicketNumber) -> Self {
        Self { number, generation: 0 }
    }
}

/// The digest of the request that renewed a ticket, by which a room recognises a repeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RenewalKey(u128);

impl RenewalKey {
    /// Makes a key from 128 uniformly distributed bits.
    pub const fn new(digest: u128) -> Self {
        Self(digest)
    }

    /// Returns the bits.
    pub const fn get(self) -> u128 {
        self.0
    }
}

/// The last renewal of a place's ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// The generation of the new ticket: 1 for the first renewal.
    pub generation: u32,
    /// The request that renewed it.
    pub key: RenewalKey,
}

/// The renewals of the places that live, by number.
#[derive(Default)]
pub(super) struct Renewals(BTreeMap<u32, Renewal>);

impl Renewals {
    pub(super) fn remove(&mut self, number: u32) {
        self.0.remove(&number);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What digests cover. Empty without a renewal, so that a room without one has the digest that it always had.
    pub(super) fn digest(&self) -> impl Iterator<Item = u64> {
        self.0
            .last_key_value()
            .into_iter()
            .flat_map(|(number, renewal)| [self.0.len() as u64, u64::from(*number), u64::from(renewal.generation)])
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.0.len() as u64);
        for (number, renewal) in &self.0 {
            put_number(out, *number);
            put_renewal(out, *renewal);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ImageError> {
        let mut renewals = BTreeMap::new();
        for _ in 0..reader.count()? {
            let number = reader.number_u32()?;
            if renewals.last_key_value().is_some_and(|(last, _)| number <= *last) {
                return Err(ImageError::Value("order"));
            }
            renewals.insert(number, read_renewal(reader)?);
        }
        if renewals.is_empty() { Err(ImageError::Value("renewal")) } else { Ok(Self(renewals)) }
    }

    /// Returns the numbers, in rising order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }
}

pub(super) fn put_renewal(out: &mut Vec<u8>, renewal: Renewal) {
    put_number(out, renewal.generation);
    out.extend_from_slice(&renewal.key.0.to_le_bytes());
}

pub(super) fn read_renewal(reader: &mut Reader<'_>) -> Result<Renewal, ImageError> {
    let generation = reader.number_u32()?;
    if generation == 0 {
        return Err(ImageError::Value("renewal"));
    }
    let (low, high) = (reader.fixed_u64()?, reader.fixed_u64()?);
    Ok(Renewal { generation, key: RenewalKey(u128::from(high) << 64 | u128::from(low)) })
}

impl Room {
    /// Returns the ticket of a place that is valid now: the first one, unless it was renewed.
    pub fn ticket_of(&self, number: TicketNumber) -> TicketId {
        TicketId { number, generation: self.renewal(number).map_or(0, |renewal| renewal.generation) }
    }

    /// Returns the last renewal of a place, if its ticket was renewed and the place lives.
    pub fn renewal(&self, number: TicketNumber) -> Option<Renewal> {
        self.renewals.0.get(&number.0).copied()
    }

    /// Refuses a ticket that was renewed: [`Rejection::TicketRenewed`]. Callers check each ticket that a client shows, in the
    /// same step as what the client wants, and before it. A ticket of a later generation passes: the store made it, and this
    /// copy of the room has not seen the renewal yet. Costs one comparison in a room without renewals; allocates nothing.
    pub fn judge_ticket(&self, ticket: TicketId) -> Result<(), Rejection> {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::RenewedTicketLives) {
            return Ok(());
        }
        if !self.renewals.0.is_empty() && ticket.generation < self.ticket_of(ticket.number).generation {
            return Err(Rejection::TicketRenewed);
        }
        Ok(())
    }

    /// Polls like [`Self::decide`], and gives the place another ticket: the one of [`Self::ticket_of`]. The ticket that was
    /// shown is void from now on. A place that is gone stays so, and keeps its ticket.
    ///
    /// Order of checks: a repeat of the request that renewed this ticket → renewed by another request → unknown. A repeat
    /// changes nothing more. A number that is unknown since a loss is refused too: call [`Self::readmit`] before.
    pub fn renew(
        &mut self,
        ticket: TicketId,
        key: RenewalKey,
        now: Now,
        changes: &mut Vec<Change>,
    ) -> Result<TicketView, Rejection> {
        let TicketId { number, generation } = ticket;
        let next = generation.checked_add(1).ok_or(Rejection::TicketRenewed)?;
        let known = self.renewal(number).filter(|known| generation < known.generation);
        if let Some(known) = known {
            // After one more renewal the repeat is as void as its ticket.
            let is_repeat = known == Renewal { generation: next, key };
            let view = if is_repeat { self.decide(number, now, changes) } else { None };
            return view.ok_or(Rejection::TicketRenewed);
        }
        let view = self.decide(number, now, changes).ok_or(Rejection::UnknownTicket)?;
        if !matches!(view.state, TicketState::Gone(_)) {
            let renewal = Renewal { generation: next, key };
            assert!(self.renewal(number).is_none_or(|known| known.generation < next), "a generation never falls");
            self.renewals.0.insert(number.0, renewal);
            changes.push(Change::Renewed { number, renewal });
        }
        Ok(view)
    }

    /// Restores a stored renewal, after all tickets. The place must live, or be unknown since a loss.
    pub fn restore_renewal(&mut self, number: TicketNumber, renewal: Renewal) -> Result<(), Damage> {
        let may_be_renewed = !matches!(self.line.place(number.0), None | Some(TicketPlace::Gone(_)));
        if renewal.generation == 0 || !may_be_renewed || self.renewals.0.insert(number.0, renewal).is_some() {
            return Err(Damage::Renewal);
        }
        Ok(())
    }
}
