//! Erases a user from a room: the living place leaves, and no ticket of the room names the user any more.

use super::{Change, Departure, Room, TicketNumber};
use crate::time::Now;

impl Room {
    /// Returns the change that ends the living place of a user, if the user has one. Changes nothing; [`Self::erase`] makes it.
    pub fn judge_erase(&self, user: &str) -> Option<Change> {
        let number = TicketNumber(self.line.of_user(user)?);
        Some(Change::Gone { number, how: Departure::Left })
    }

    /// Ends the living place of a user, whose slot is free at once, and forgets the user of every ticket, and the idempotency keys of these tickets. The
    /// numbers stay drawn, and a ticket that the visitor still has is gone, as after leaving. The user counts as one who never
    /// joined. Looks at every ticket in memory: about 10 ms per million. Returns the numbers, rising.
    pub fn erase(&mut self, user: &str, now: Now, changes: &mut Vec<Change>) -> Vec<TicketNumber> {
        if let Some(number) = self.line.of_user(user) {
            self.depart(number, Departure::Left, now, changes);
        }
        self.line.forget_user(user).into_iter().map(TicketNumber).collect()
    }
}
