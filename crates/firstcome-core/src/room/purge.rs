//! Forgets the tickets of a room that are gone for long, from the first number on.

use super::{Damage, Room};

/// The first numbers of a room, all of which are gone, so that no row and no memory of them is needed any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoneTickets {
    /// Numbers before this one stay gone, and have no rows from now on.
    pub before: u32,
    /// How many numbers before that one had rows until now.
    pub count: u32,
    /// The first number whose part of what the room remembers may still be needed: see [`Memory`](super::Memory).
    pub memory_from: u32,
}

impl Room {
    /// Returns the number before which every ticket is gone, and has no row.
    pub const fn gone_before(&self) -> u32 {
        self.line.gone_before()
    }

    /// Returns what can be forgotten of the numbers before this one: up to the first that lives. `None` if nothing of them is kept.
    /// Changes nothing.
    pub fn judge_purge(&self, before: u32) -> Option<GoneTickets> {
        // A number that is unknown since a loss may come back.
        let before = if self.line.unknown() == 0 { before.min(self.line.first_living()) } else { self.gone_before() };
        let count = before.checked_sub(self.gone_before()).filter(|count| *count != 0)?;
        Some(GoneTickets { before, count, memory_from: self.line.start_at(before) })
    }

    /// Forgets tickets that [`Self::judge_purge`] found, and gives memory of them back. They stay gone: a poll with one of them says
    /// that it expired, and no number is drawn again. Positions stay as they are.
    pub fn purge(&mut self, gone: GoneTickets) {
        self.line.release(gone.before);
    }

    /// Restores that the numbers before this one are gone and have no rows, before the first ticket.
    pub fn restore_gone(&mut self, before: u32) -> Result<(), Damage> {
        if self.line.skip(before) { Ok(()) } else { Err(Damage::Ticket) }
    }
}
