//! A room of which a part was lost: what the database holds of it, and visitors who come back with a ticket.
//!
//! Numbers up to a ceiling may have been drawn. Those of which nothing is known count nowhere: not as people in line,
//! not in anybody's position, not as a slot. A visitor that comes with a ticket of such a number waits under it again, so the
//! line is made anew by those who are still there.
//!
//! A position may rise by that, which is the one exception: those who come back in front were not counted before.

use super::line::{Line, TicketPlace};
use super::{Change, Damage, Departure, Join, Room, RoomPhase, RoomSettings, Slot, TicketNumber};
use crate::id::UserId;
use crate::time::{Now, Steady};
use std::hash::RandomState;

/// Tickets that are gone, in one row of 4 096 numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoneNumbers {
    /// The number of bit 0.
    pub first_number: u32,
    /// Who is gone.
    pub gone: [u64; 64],
    /// Who of them left; the others expired.
    pub left: [u64; 64],
}

/// What is known of a room after a loss.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    /// The settings in force.
    pub settings: RoomSettings,
    /// Whether an operator closed it.
    pub standing: RoomPhase,
    /// Numbers before it are void.
    pub first: u32,
    /// Numbers up to it may have been drawn; the next one is the one after it. At most
    /// [`crate::limits::ROOM_NUMBER_MAX`].
    pub ceiling: u32,
    /// How far the line was at least.
    pub reached: u32,
    /// The highest admission.
    pub admissions: u64,
    /// Living tickets of which user or request are known, in the order of their numbers.
    pub tickets: Vec<(TicketNumber, Join)>,
    /// Slots; their tickets need not stand among [`Self::tickets`].
    pub slots: Vec<(TicketNumber, Slot)>,
    /// Tickets that are gone.
    pub gone: Vec<GoneNumbers>,
    /// No visitor is admitted before this, so that those in front can come back first.
    pub grace_until: Option<Steady>,
}

impl Room {
    /// The room from what is known of it. All known tickets count as just seen. In a closed room all numbers up to the
    /// ceiling are void: everything that was drawn before is, and nothing was since.
    ///
    /// Damage: a ticket or a slot beyond the ceiling or before the first number, of a visitor that is gone, twice, or of a
    /// user or a request that has another one, and as [`Self::restore_reached`] and [`Self::restore_slot`] do.
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
        room.restore_reached(known.reached, known.admissions)?;
        for (number, slot) in &known.slots {
            room.restore_slot(*number, *slot, now)?;
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
            // Numbers of before the room was closed share a row with later ones, and are void.
            if self.line.first() <= number && !self.line.forget(number, how) {
                return Err(Damage::Ticket);
            }
        }
        Ok(())
    }

    /// The end of what happened may be lost, and nothing of it was told but that numbers up to `ceiling` were drawn: those that
    /// are not drawn here are unknown. Everybody of whom is known counts as just seen; no visitor is admitted before
    /// `grace_until`.
    pub fn lose_end(&mut self, ceiling: u32, grace_until: Steady, now: Now) {
        self.line.lose(ceiling);
        self.resumed(now);
        self.grace_until = self.grace_until.max(Some(grace_until));
    }

    /// Whether nothing is known of this number since a loss: a visitor that has its ticket comes back by [`Self::readmit`].
    pub fn is_unknown(&self, number: TicketNumber) -> bool {
        self.line.place(number.0) == Some(TicketPlace::Unknown)
    }

    /// A visitor came with a ticket, which the caller has checked, of an unknown number: from now on they wait under it.
    /// Below what the line has reached they are next, as a visitor that was passed over and came back. It is their place:
    /// neither a full line nor the time since the loss stands against it.
    ///
    /// A user has one living place. If theirs is another one, the lower number stays and the higher one ends as left,
    /// whichever came back first: so a visitor that comes in which order leads to the same, and no visitor loses the place for
    /// which they have waited longer. False if the ticket does not wait now that did not before: its number was not
    /// unknown, or the user's other one is lower.
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
        // No visitor has ticked while no visitor was here.
        self.was_busy &= !self.is_idle();
        let came_back = self.line.come_back(number.0, user, None, now.steady);
        assert!(came_back, "an unknown number of a user without a place");
        changes.push(Change::Joined { number, join: Join { user: user.cloned(), request: None }, joined_at: now.wall });
        self.waiting_view(number.0, now);
        true
    }

    pub(super) fn forget(&mut self, number: u32, how: Departure, changes: &mut Vec<Change>) {
        if self.line.forget(number, how) {
            changes.push(Change::Gone { number: TicketNumber(number), how });
        }
    }

    pub(super) fn grace_left_us(&self, now: Steady) -> u64 {
        self.grace_until.map_or(0, |until| until.since_us(now))
    }
}
