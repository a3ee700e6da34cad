//! Invariant 9: each ticket is waiting, active, or gone, exactly one of them, and its number was drawn once.
//!
//! - The log of the disk tells one story of each ticket: drawn once, next in its row; in line, offered a slot, back in
//!   line or in the slot taken; gone once, and then nothing more. One user and one key have at most one living ticket.
//! - No client is told a place in which the disk never had the ticket at that instant, nor the same number as
//!   another client.

use super::{RoomEvidence, Violation};
use crate::room::history::{Operation, RoomStepReply};
use crate::room::ledger::{Ledger, TicketStory};
use firstcome_core::room::TicketState;
use firstcome_store::Joining;
use std::collections::BTreeSet;

const NAME: &str = "one_place";

/// Looks for a ticket in two places, or in none.
pub fn check(evidence: &RoomEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    if let Some(breach) = ledger.breaches.first() {
        return Err(found(breach.clone()));
    }
    let mut drawn = BTreeSet::new();
    for operation in evidence.history.operations() {
        let Some(answer) = operation.ticket() else { continue };
        let number = answer.number.get();
        let is_new = matches!(operation.told(), Some(RoomStepReply::Joined(Joining::New, _)));
        if is_new && !drawn.insert((&operation.name, number)) {
            return Err(found(format!("{}: number {number} was told to two", operation.name)));
        }
        let ticket = ledger.rooms.get(&operation.name).and_then(|room| room.ticket(answer.number));
        // One that is not stored at all breaks another promise.
        let Some(ticket) = ticket else { continue };
        place_is_stored(operation, &answer.state, ticket)
            .map_err(|detail| found(format!("{}: number {number} was told {detail}: {ticket:?}", operation.name)))?;
    }
    Ok(())
}

/// Whether the disk had the ticket there when it was told, unless it was told too early, which is another promise.
fn place_is_stored(operation: &Operation, state: &TicketState, ticket: &TicketStory) -> Result<(), &'static str> {
    let at = operation.judged;
    let in_slot = ticket.slots.iter().any(|slot| slot.offered < at && slot.ended.is_none_or(|ended| at < ended));
    let gone = ticket.gone.is_some_and(|(gone, _)| gone < at);
    match state {
        TicketState::Waiting { .. } if gone => Err("waiting, and is gone"),
        TicketState::Waiting { .. } if in_slot => Err("waiting, and has a slot"),
        TicketState::Admitted { .. } if gone => Err("admitted, and is gone"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::room_story::Story;
    use super::check;
    use firstcome_core::room::Departure;

    #[test]
    fn a_number_that_is_drawn_or_told_twice_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).joined(1);
        story.assert_found(check, "drawn twice");
        let mut story = Story::with_slots(3);
        story.joined(1).replied_new(1).replied_new(1);
        story.assert_found(check, "told to two");
    }

    #[test]
    fn a_number_that_is_left_out_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).joined(3);
        story.assert_found(check, "2 was next");
    }

    #[test]
    fn a_second_slot_and_a_slot_of_a_client_that_is_gone_are_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).admitted(1).admitted(1);
        story.assert_found(check, "was given another");
        let mut story = Story::with_slots(3);
        story.joined(1).gone(1, Departure::Left).admitted(1);
        story.assert_found(check, "is gone and goes on");
    }

    #[test]
    fn a_slot_that_is_taken_without_an_offer_or_after_it_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).taken(1);
        story.assert_found(check, "without an offer");
        let mut story = Story::with_slots(3);
        story.joined(1).admitted(1).taken(1).lapsed(1);
        story.assert_found(check, "although it took its slot");
    }

    #[test]
    fn one_user_in_two_places_is_found() {
        let mut story = Story::with_slots(3);
        story.joined_as(1, "ann").joined_as(2, "ann");
        story.assert_found(check, "living numbers 1 and 2");
        let mut story = Story::with_slots(3);
        story.joined_as(1, "ann").gone(1, Departure::Left).joined_as(2, "ann");
        story.assert_clean(check);
    }

    #[test]
    fn who_has_a_slot_or_is_gone_and_is_told_to_wait_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).admitted(1).waits(1, 0);
        story.assert_found(check, "has a slot");
        let mut story = Story::with_slots(3);
        story.joined(1).gone(1, Departure::Expired).waits(1, 0);
        story.assert_found(check, "is gone");
    }

    #[test]
    fn a_whole_story_is_clean() {
        let mut story = Story::with_slots(3);
        story
            .joined(1)
            .replied_new(1)
            .waits(1, 0)
            .admitted(1)
            .lapsed(1)
            .waits(1, 0)
            .admitted(1)
            .taken(1)
            .replied_admitted(1);
        story.gone(1, Departure::Left);
        story.assert_clean(check);
    }
}
