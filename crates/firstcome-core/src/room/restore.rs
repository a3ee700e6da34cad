//! Restores a room from stored rows.

use super::draw::Draw;
use super::line::TicketPlace;
use super::steer::Steering;
use super::{Damage, Departure, Hold, Join, Room, Slot, TicketNumber, in_both_sets};
use crate::time::Now;

/// Whether an operator closed a stored room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomPhase {
    /// Visitors may join.
    Running,
    /// No visitor may join.
    Closed,
}

impl Room {
    /// Restores a stored ticket. Call it for every number from the first one on, in order, before
    /// [`Self::restore_reached`].
    pub fn restore_ticket(
        &mut self,
        number: TicketNumber,
        join: &Join,
        gone: Option<Departure>,
        now: Now,
    ) -> Result<(), Damage> {
        // A ticket that is gone occupies neither user nor key.
        let (user, request) = if gone.is_none() { (join.user.as_ref(), join.request) } else { (None, None) };
        if !self.line.restore(number.0, user, request, now.steady) {
            return Err(Damage::Ticket);
        }
        if let Some(how) = gone {
            self.line.go(number.0, how);
        }
        Ok(())
    }

    /// Restores a draw that took place, after all tickets and before [`Self::restore_reached`].
    pub fn restore_draw(&mut self, draw: &Draw) -> Result<(), Damage> {
        if !self.line.draw_lots(draw) {
            return Err(Damage::Draw);
        }
        self.draw = Some(*draw);
        Ok(())
    }

    /// Restores how far the line was, and how many admissions there were. All tickets count as just seen, so tickets that
    /// were passed over are next.
    pub fn restore_reached(&mut self, reached: u32, admissions: u64) -> Result<(), Damage> {
        if self.line.next() < reached {
            return Err(Damage::Reached);
        }
        self.line.restore_reached(reached);
        self.admissions = admissions;
        Ok(())
    }

    /// Restores a stored slot, after [`Self::restore_reached`].
    pub fn restore_slot(&mut self, number: TicketNumber, slot: Slot, now: Now) -> Result<(), Damage> {
        if self.line.place(number.0) != Some(TicketPlace::Waiting) || self.admissions < slot.admission {
            return Err(Damage::Slot);
        }
        if self.line.reached() <= self.line.turn(number.0) {
            return Err(Damage::Reached);
        }
        if !in_both_sets() || matches!(slot.hold, Hold::Offered { .. }) {
            self.line.take(number.0);
        }
        self.slots.put(number.0, slot, now.steady);
        if let Hold::Offered { until } = slot.hold {
            // Of an offer that is older the visitor has counted as missing before.
            let due = until.minus_ms(self.settings.claim_window_ms).plus_ms(Steering::patience_ms(0)).min(until);
            if now.steady < due {
                self.steering.admitted(slot.admission, due);
            }
        }
        Ok(())
    }

    /// Ends a restore: tickets that were passed over count as come back. The rows do not say who has polled, so with
    /// [`RoomSettings::first_poll_ms`](super::RoomSettings::first_poll_ms) every visitor in line has to poll within that time
    /// from now on.
    pub fn restored(&mut self, standing: RoomPhase) {
        self.closed = standing == RoomPhase::Closed;
        self.returned = self.line.passed_over().collect();
        if let Some(first_poll_ms) = self.settings.first_poll_ms {
            self.line.await_polls_afresh(first_poll_ms, self.ticked);
        }
    }
}
