//! Invariant 11: a position that was shown never rises, except across a restart, and counts no client that has departed.

use super::{RoomEvidence, Violation};
use crate::room::ledger::{Ledger, RoomStory};
use firstcome_core::id::RoomName;
use firstcome_core::room::TicketState;
use std::collections::BTreeMap;

const NAME: &str = "position_falls";

/// Positions of a ticket in one life of the store, and when they were told.
type Shown<'a> = BTreeMap<(&'a RoomName, u32, usize), Vec<(i64, u32)>>;

/// Looks for a position that rose, or that counted a client that was not ahead.
pub fn check(evidence: &RoomEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    let mut shown = Shown::new();
    for operation in evidence.history.operations() {
        let Some(answer) = operation.ticket() else { continue };
        let TicketState::Waiting { position, .. } = answer.state else { continue };
        let number = answer.number.get();
        let told = shown.entry((&operation.name, number, operation.life)).or_default();
        told.push((operation.judged, position));
        let Some(room) = ledger.rooms.get(&operation.name) else { continue };
        let ahead = ahead_at_most(room, number, operation.judged);
        if ahead < position {
            let detail = format!("{}: number {number} was told {position} ahead, at most {ahead} were", operation.name);
            return Err(Violation::new(NAME, evidence.seed, detail));
        }
    }
    for ((room, number, _), mut told) in shown {
        told.sort_unstable();
        // The order of two replies in one instant is unknown.
        let mut lowest = u32::MAX;
        for row in told.chunk_by(|one, next| one.0 == next.0) {
            let highest = row.iter().map(|(_, position)| *position).max().unwrap_or(0);
            if lowest < highest {
                let detail = format!("{room}: the position of number {number} rose from {lowest} to {highest}");
                return Err(Violation::new(NAME, evidence.seed, detail));
            }
            lowest = row.iter().map(|(_, position)| *position).min().unwrap_or(lowest).min(lowest);
        }
    }
    Ok(())
}

/// How many were in line before a number, behind what the line had reached. What is decided and not yet stored can
/// only be fewer.
fn ahead_at_most(room: &RoomStory, number: u32, at: i64) -> u32 {
    let (reached, turn) = (room.reached_before(at), room.turn(number, at));
    room.by_turn(reached.min(turn)..turn, at).filter(|(_, ticket)| ticket.waits_at(at)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::super::room_story::Story;
    use super::check;
    use firstcome_core::room::Departure;

    #[test]
    fn a_position_that_rises_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).joined(2).joined(3).waits(3, 1).waits(3, 2);
        story.assert_found(check, "rose from 1 to 2");
    }

    #[test]
    fn a_rise_across_a_restart_is_none() {
        let mut story = Story::with_slots(1);
        story.joined(1).joined(2).joined(3).waits(3, 1).restart().waits(3, 2);
        story.assert_clean(check);
    }

    #[test]
    fn a_departed_person_who_is_counted_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).joined(2).joined(3).gone(2, Departure::Left).waits(3, 2);
        story.assert_found(check, "told 2 ahead, at most 1 were");
    }

    #[test]
    fn who_was_passed_over_is_not_counted() {
        let mut story = Story::with_slots(1);
        story.joined(1).joined(2).joined(3).reached(2).waits(3, 2);
        story.assert_found(check, "told 2 ahead, at most 1 were");
        let mut story = Story::with_slots(1);
        story.joined(1).joined(2).joined(3).reached(2).waits(3, 1).waits(3, 0);
        story.assert_clean(check);
    }
}
