//! A room of which a part was lost: what the database still has, and visitors who come back with a ticket.
//!
//! Numbers up to a ceiling may have been drawn. An unknown number counts nowhere: not as a visitor in line, not in a
//! position, not as a slot. A visitor who comes with the ticket of an unknown number waits under it again. So the visitors
//! who are still there rebuild the line.
//!
//! Positions may rise by that, which is the one exception: visitors who come back in front were not counted before.

use super::draw::Draw;
use super::line::{Line, TicketPlace};
use super::{Change, Damage, Departure, Join, Renewal, Room, RoomPhase, RoomSettings, Slot, TicketNumber};
use crate::id::UserId;
use crate::time::{Now, Steady};
use std::hash::RandomState;

/// Tickets that are gone, in one row of 4 096 numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoneNumbers {
    /// The number of bit 0.
    pub first_number: u32,
    /// The tickets that are gone.
    pub gone: [u64; 64],
    /// Those of them whose visitors left; the others expired.
    pub left: [u64; 64],
}

/// What the database holds of a room after a loss.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    /// The settings in force.
    pub settings: RoomSettings,
    /// Whether an operator closed the room.
    pub standing: RoomPhase,
    /// The first number that is not void.
    pub first: u32,
    /// The highest number that may have been drawn, at most [`crate::limits::ROOM_NUMBER_MAX`]. The next one drawn comes
    /// after it.
    pub ceiling: u32,
    /// The draw, if it took place.
    pub draw: Option<Draw>,
    /// The lowest turn that the line has not reached, or a lower bound of it.
    pub reached: u32,
    /// The highest admission.
    pub admissions: u64,
    /// Living tickets with a known user or request, in the order of their numbers.
    pub tickets: Vec<(TicketNumber, Join)>,
    /// Slots; their tickets need not be among [`Self::tickets`].
    pub slots: Vec<(TicketNumber, Slot)>,
    /// Tickets that are gone.
    pub gone: Vec<GoneNumbers>,
    /// The last renewals of tickets whose places are not gone, each number once.
    pub renewals: Vec<(TicketNumber, Renewal)>,
    /// The room admits no visitor before this, so that visitors in front can come back first.
    pub grace_until: Option<Steady>,
}

impl Room {
    /// Rebuilds the room from what is known. All known tickets count as just seen. In a closed room all numbers up to the
    /// ceiling are void: all of them were drawn before it closed.
    ///
    /// Fails for a ticket or a slot that lies beyond the ceiling or before the first number, is gone, or occurs twice. Also
    /// fails for a second ticket of a user or a request, and like [`Self::restore_reached`] and [`Self::restore_slot`].
    pub fn rebuilt(known: &Known, hasher: RandomState, now: Now) -> Result<Self, Damage> {
        let first = known.first.max(1);
        if crate::limits::ROOM_NUMBER_MAX < known.ceiling || known.ceiling < first - 1 {
            return Err(Damage::Reached);
        }
        let mut room = Self::restoring(known.settings.clone(), hasher.clone(), now, first);
        room.line = Line::lost(hasher, first, known.ceiling);
        for row in &known.gone {
            room.forget_row(row)?;
        }
        for (number, join) in &known.tickets {
            if !room.line.come_back(number.0, join.user.as_ref(), join.request, now.steady) {
                return Err(Damage::Ticket);
            }
        }
        for (number, _) in &known.slots {
            if room.line.place(number.0) == Some(TicketPlace::Unknown) {
                room.line.come_back(number.0, None, None, now.steady);
            }
        }
        if let Some(draw) = &known.draw {
            room.restore_draw(draw)?;
        }
        room.restore_reached(known.reached, known.admissions)?;
        for (number, slot) in &known.slots {
            room.restore_slot(*number, *slot, now)?;
        }
        for (number, renewal) in &known.renewals {
            room.restore_renewal(*number, *renewal)?;
        }
        room.restored(known.standing);
        room.grace_until = known.grace_until;
        if known.standing == RoomPhase::Closed {
            room.close();
        }
        Ok(room)
    }

    fn forget_row(&mut self, row: &GoneNumbers) -> Result<(), Damage> {
        for at in (0..4_096_u32).filter(|at| row.gone[*at as usize / 64] & (1 << (at % 64)) != 0) {
            let how =
                if row.left[at as usize / 64] & (1 << (at % 64)) != 0 { Departure::Left } else { Departure::Expired };
            let Some(number) = row.first_number.checked_add(at) else { return Err(Damage::Ticket) };
            // A row may also have numbers from before the room was closed; these are void.
            if self.line.first() <= number && !self.line.forget(number, how) {
                return Err(Damage::Ticket);
            }
        }
        Ok(())
    }

    /// Handles the loss of the last entries. No node reported anything of them except numbers up to `ceiling`; the numbers that
    /// are not drawn here are unknown from now on. All known visitors count as just seen. The room admits no visitor before
    /// `grace_until`.
    pub fn lose_end(&mut self, ceiling: u32, grace_until: Steady, now: Now) {
        self.line.lose(ceiling);
        self.all_seen(now);
        self.grace_until = self.grace_until.max(Some(grace_until));
    }

    /// Returns whether this number is unknown since a loss. A visitor with its ticket comes back by [`Self::readmit`].
    pub fn is_unknown(&self, number: TicketNumber) -> bool {
        self.line.place(number.0) == Some(TicketPlace::Unknown)
    }

    /// Readmits a visitor who came with the ticket of an unknown number: the ticket waits under its number again. The caller has
    /// checked the ticket. A number below the reached one is next, like one that was passed over and came back. The place
    /// belongs to the visitor: a full line, or the time since the loss, does not matter.
    ///
    /// A user has one living place. If the user has another one, the lower number stays and the higher one ends as left,
    /// whichever came back first. So the order of arrival does not matter, and no visitor loses the place with the longer
    /// wait. Returns false if this call did not put the ticket in line: its number was not unknown, or the user's other number
    /// is lower.
    pub fn readmit(
        &mut self,
        number: TicketNumber,
        user: Option<&UserId>,
        now: Now,
        changes: &mut Vec<Change>,
    ) -> bool {
        if !self.is_unknown(number) {
            return false;
        }
        if let Some(other) = user.and_then(|user| self.line.of_user(user.as_str())) {
            self.settle(other, now, changes);
            let lives = matches!(self.line.place(other), Some(TicketPlace::Waiting | TicketPlace::Slot));
            if lives && other < number.0 {
                self.forget(number.0, Departure::Left, changes);
                return false;
            }
            if lives {
                self.depart(other, Departure::Left, now, changes);
            }
        }
        // An idle room may go without ticks, so the time since the last tick says nothing about speed.
        self.was_busy &= !self.is_idle();
        let came_back = self.line.come_back(number.0, user, None, now.steady);
        assert!(came_back, "an unknown number of a user without a place");
        changes.push(Change::Joined { number, join: Join { user: user.cloned(), request: None }, joined_at: now.wall });
        self.waiting_view(number.0, now);
        true
    }

    pub(super) fn forget(&mut self, number: u32, how: Departure, changes: &mut Vec<Change>) {
        if self.line.forget(number, how) {
            self.renewals.remove(number);
            changes.push(Change::Gone { number: TicketNumber(number), how });
        }
    }

    pub(super) fn grace_left_us(&self, now: Steady) -> u64 {
        self.grace_until.map_or(0, |until| until.since_us(now))
    }
}
