//! Invariant 8, for rooms: what was told of a ticket, a slot, a pass or a room is on disk and stays true.
//!
//! - A number, a slot, a departure, settings, a secret that was told is stored, and says the same.
//! - A pass that was told valid was in a slot that was taken and not over; after "not valid", and after a leave or a
//!   release that was acknowledged, it never is again.
//! - A ticket that was told is never called unknown.
//! - A renewal that was told is stored, and the ticket before it never leads to a living place again. A ticket that is refused as
//!   renewed was renewed.
//! - The store's steady time goes on across a restart as if no operator had set the wall clock before the clocks were stored
//!   last; within a life nothing moves it.

use super::{RoomEvidence, Violation};
use crate::history::Kind;
use crate::room::history::{Command, Operation, RoomStepReply};
use crate::room::ledger::{Ledger, RoomStory};
use firstcome_core::id::RoomName;
use firstcome_core::room::{Departure, Rejection, TicketNumber, TicketState};
use firstcome_store::{Joining, TicketAnswer};
use std::collections::BTreeMap;

const NAME: &str = "acknowledged_rooms";

/// Looks for a reply that did not stay true.
pub fn check(evidence: &RoomEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    clocks_go_on(evidence, ledger).map_err(found)?;
    let nothing = RoomStory::default();
    for operation in evidence.history.operations() {
        let Some(told) = operation.told() else { continue };
        let room = ledger.rooms.get(&operation.name).unwrap_or(&nothing);
        let kept = match told {
            RoomStepReply::Joined(joining, answer) => join_is_stored(operation, *joining, answer, room),
            RoomStepReply::Ticket(answer) => ticket_is_stored(operation, answer, room),
            RoomStepReply::Renewed(answer) => renewal_is_stored(operation, answer, room),
            RoomStepReply::Left => left_is_stored(operation, room),
            RoomStepReply::Released => release_is_stored(operation, room),
            RoomStepReply::Pass(check) => pass_is_alive(operation, check.is_some(), room),
            RoomStepReply::Put(_) | RoomStepReply::Closed => operator_is_obeyed(operation, room),
            RoomStepReply::Rotated(secret) => {
                match ledger.secrets.iter().any(|(at, it)| it == secret && *at <= operation.judged) {
                    true => Ok(()),
                    false => Err("a new secret was told and is not stored".into()),
                }
            }
            RoomStepReply::Secrets(secrets) => {
                let stored = |secret| ledger.secrets.iter().any(|(at, it)| it == secret && *at <= operation.judged);
                if secrets.iter().all(stored) { Ok(()) } else { Err("a secret in use is not stored".into()) }
            }
            RoomStepReply::Refused(rejection) => refusal_is_right(evidence, operation, *rejection, room),
            RoomStepReply::View(_) | RoomStepReply::Ticked => Ok(()),
        };
        kept.map_err(|detail| found(format!("{}: {detail}", operation.name)))?;
    }
    renewals_stand(evidence).map_err(found)?;
    denials_stand(evidence).map_err(found)
}

fn join_is_stored(
    operation: &Operation,
    joining: Joining,
    answer: &TicketAnswer,
    room: &RoomStory,
) -> Result<(), String> {
    ticket_is_stored(operation, answer, room)?;
    let Command::Join(asked) = &operation.command else { return Ok(()) };
    let Some(ticket) = room.ticket(answer.number) else { return Ok(()) };
    let same = match joining {
        Joining::New => ticket.join == *asked,
        Joining::SameRequest => ticket.join.request == asked.request,
        Joining::SameUser => ticket.join.user == asked.user,
    };
    let number = answer.number.get();
    if same { Ok(()) } else { Err(format!("number {number} is stored for another join than it was told for")) }
}

fn ticket_is_stored(operation: &Operation, answer: &TicketAnswer, room: &RoomStory) -> Result<(), String> {
    let (number, at) = (answer.number.get(), operation.judged);
    let Some(ticket) = room.ticket(answer.number).filter(|ticket| ticket.joined <= at) else {
        return Err(format!("number {number} was told and is not stored"));
    };
    let stored = match answer.state {
        TicketState::InDraw { .. } | TicketState::Waiting { .. } => ticket.waits_at(at),
        TicketState::Admitted { slot, .. } => ticket.slot(slot.admission).is_some_and(|found| {
            let taken = found
                .taken
                .is_some_and(|(taken, until)| taken <= at && slot.hold == firstcome_core::room::Hold::Taken { until });
            taken && found.slot.admitted_at == slot.admitted_at && found.ended.is_none_or(|ended| at <= ended)
        }),
        TicketState::Gone(how) => ticket.gone.is_some_and(|(gone, stored)| {
            // Of a room that was closed all tickets are void, no matter what they were.
            let void = room.closed.iter().any(|&closed| ticket.joined <= closed && closed <= at);
            gone <= at && (stored == Some(how) || (void && how == Departure::Expired))
        }),
    };
    if stored {
        return Ok(());
    }
    Err(format!("number {number} was told {:?}, which is not stored: {ticket:?}", answer.state))
}

fn renewal_is_stored(operation: &Operation, answer: &TicketAnswer, room: &RoomStory) -> Result<(), String> {
    ticket_is_stored(operation, answer, room)?;
    let Command::Renew(shown, _, key) = &operation.command else { return Ok(()) };
    let renewals = room.ticket(answer.number).map_or(&[][..], |ticket| &ticket.renewals);
    let is_stored = renewals.iter().any(|(at, renewal)| *at <= operation.end() && renewal.key == *key);
    let number = answer.number.get();
    match (&answer.ticket == shown, answer.state) {
        (true, TicketState::Gone(_)) => Ok(()),
        (true, _) => Err(format!("number {number} was renewed and has the same ticket")),
        (false, _) if is_stored => Ok(()),
        (false, _) => Err(format!("number {number} was told of a renewal that is not stored")),
    }
}

/// A ticket whose renewal was told leads to no living place any more.
fn renewals_stand(evidence: &RoomEvidence<'_>) -> Result<(), String> {
    let operations = evidence.history.operations();
    let mut void: BTreeMap<(&RoomName, &str), i64> = BTreeMap::new();
    for operation in operations {
        if let (Command::Renew(shown, ..), Some(RoomStepReply::Renewed(answer))) =
            (&operation.command, operation.told())
            && answer.ticket != *shown
        {
            let since = void.entry((&operation.name, shown)).or_insert(operation.end());
            *since = operation.end().min(*since);
        }
    }
    for operation in operations {
        let (Command::Poll(shown, _), Some(RoomStepReply::Ticket(answer))) = (&operation.command, operation.told())
        else {
            continue;
        };
        let since = void.get(&(&operation.name, &**shown));
        let lives = !matches!(answer.state, TicketState::Gone(_));
        if lives && since.is_some_and(|since| *since < operation.asked) {
            let number = answer.number.get();
            return Err(format!("{}: a renewed ticket of number {number} still leads to its place", operation.name));
        }
    }
    Ok(())
}

fn left_is_stored(operation: &Operation, room: &RoomStory) -> Result<(), String> {
    let Command::Leave(_, Some(number)) = &operation.command else { return Ok(()) };
    let gone = room.ticket(*number).and_then(|ticket| ticket.gone);
    if gone.is_some_and(|(gone, _)| gone <= operation.end()) {
        return Ok(());
    }
    Err(format!("number {} left, and is not stored as gone", number.get()))
}

fn release_is_stored(operation: &Operation, room: &RoomStory) -> Result<(), String> {
    let Command::Release(number, admission) = operation.command else { return Ok(()) };
    let slot = room.ticket(number).and_then(|ticket| ticket.slot(admission));
    let open = slot.is_some_and(|slot| {
        slot.taken.is_some_and(|(taken, _)| taken < operation.asked)
            && slot.ended.is_none_or(|ended| operation.end() < ended)
    });
    if open { Err(format!("the slot of number {} was released and is still stored", number.get())) } else { Ok(()) }
}

fn pass_is_alive(operation: &Operation, replied_valid: bool, room: &RoomStory) -> Result<(), String> {
    let Command::Check(number, admission) = operation.command else { return Ok(()) };
    let (from, to) = (operation.asked, operation.end());
    let alive = room.ticket(number).is_some_and(|ticket| ticket.holds_within(admission, from, to));
    if replied_valid && !alive {
        return Err(format!("the pass of number {} was told valid, and its slot is over or not stored", number.get()));
    }
    Ok(())
}

fn operator_is_obeyed(operation: &Operation, room: &RoomStory) -> Result<(), String> {
    let (from, to) = (operation.asked, operation.end());
    match &operation.command {
        Command::Put(settings) => {
            let stored = room.settings.iter().any(|(at, found)| from <= *at && *at <= to && found == settings);
            if stored { Ok(()) } else { Err("settings were told to be in force and are not stored".into()) }
        }
        Command::Close if !room.is_closed_within(from, to) => Err("was told to be closed and is not".into()),
        _ => Ok(()),
    }
}

/// A refusal agrees with what is stored.
fn refusal_is_right(
    evidence: &RoomEvidence<'_>,
    operation: &Operation,
    rejection: Rejection,
    room: &RoomStory,
) -> Result<(), String> {
    let (from, to) = (operation.asked, operation.end());
    match rejection {
        Rejection::UnknownRoom if is_known(evidence, operation, room) => Err("was put and is called unknown".into()),
        Rejection::Closed if !room.is_closed_within(from, to) => Err("is called closed and is not".into()),
        Rejection::TicketRenewed => {
            let number = match operation.command {
                Command::Poll(_, number) | Command::Leave(_, number) | Command::Renew(_, number, _) => number,
                _ => None,
            };
            let ticket = number.and_then(|number| room.ticket(number));
            match ticket.is_some_and(|ticket| ticket.renewals.iter().any(|(at, _)| *at <= to)) {
                true => Ok(()),
                false => Err("a ticket is called renewed and was not".into()),
            }
        }
        Rejection::UnknownTicket => {
            let number = match operation.command {
                Command::Poll(_, number) | Command::Leave(_, number) | Command::Renew(_, number, _) => number,
                _ => None,
            };
            // The number stands in the command because a client was told it.
            let told = |number: &TicketNumber| {
                evidence.history.operations().iter().any(|earlier| {
                    earlier.name == operation.name
                        && earlier.end() < from
                        && earlier.ticket().is_some_and(|answer| answer.number == *number)
                })
            };
            match number.filter(told) {
                Some(number) => Err(format!("number {} was told and is called unknown", number.get())),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Whether a room had been put before a client asked: acknowledged, or stored when this life began.
fn is_known(evidence: &RoomEvidence<'_>, operation: &Operation, room: &RoomStory) -> bool {
    let life = operation.life.checked_sub(1).and_then(|life| evidence.history.lives.get(life));
    let stored = room.settings.first().zip(life).is_some_and(|((put, _), life)| put < life);
    stored
        || evidence.history.operations().iter().any(|put| {
            put.name == operation.name
                && matches!(put.told(), Some(RoomStepReply::Put(_)))
                && put.end() < operation.asked
        })
}

/// A pass that was told over is never valid again, nor one that was released, nor any of a ticket that left.
fn denials_stand(evidence: &RoomEvidence<'_>) -> Result<(), String> {
    let operations = evidence.history.operations();
    for (later_at, later) in operations.iter().enumerate() {
        let (Command::Check(number, admission), Some(RoomStepReply::Pass(Some(_)))) = (&later.command, later.told())
        else {
            continue;
        };
        for earlier in &operations[..later_at] {
            if earlier.name != later.name || later.asked <= earlier.end() {
                continue;
            }
            let denied = match (&earlier.command, earlier.told()) {
                (Command::Check(other, which), Some(RoomStepReply::Pass(None))) => {
                    // What was never a pass may become one.
                    (other, which) == (number, admission) && was_pass(operations, earlier)
                }
                (Command::Release(other, which), Some(RoomStepReply::Released)) => {
                    (other, which) == (number, admission) && was_pass(operations, earlier)
                }
                (Command::Leave(_, Some(other)), Some(RoomStepReply::Left)) => other == number,
                _ => false,
            };
            if denied {
                let kind = earlier.command.kind();
                let number = number.get();
                return Err(format!("{}: the pass of number {number} is valid again after a {kind}", later.name));
            }
        }
    }
    Ok(())
}

/// Whether the pass of a check or a release had been told before.
fn was_pass(operations: &[Operation], about: &Operation) -> bool {
    let (Command::Check(number, admission) | Command::Release(number, admission)) = about.command else { return false };
    operations.iter().any(|earlier| {
        let told = earlier.ticket().filter(|answer| answer.number == number).map(|answer| answer.state);
        let told = matches!(told, Some(TicketState::Admitted { slot, .. }) if slot.admission == admission);
        told && earlier.name == about.name && earlier.end() < about.asked
    })
}

/// The store's steady clock is ahead of the world's by the same time throughout a life, and a restart adds to that only
/// what an operator did to the wall clock after the clocks were stored last.
fn clocks_go_on(evidence: &RoomEvidence<'_>, ledger: &Ledger) -> Result<(), String> {
    let lives = evidence.history.starts();
    // Before anything is stored, steady time begins at the wall's.
    let (mut stored_at, mut stored_ahead_us) = (i64::MIN, 0);
    for (life, &from) in lives.iter().enumerate() {
        let to = lives.get(life + 1).copied().unwrap_or(i64::MAX);
        let steps = evidence.history.marks.steps.iter().filter(|step| stored_at < step.at && step.at < from);
        let wanted_us = stored_ahead_us + steps.map(|step| step.by_us).sum::<i64>();
        for (at, now) in ledger.clocks.iter().filter(|(at, _)| from <= *at && *at < to) {
            let ahead_us = now.steady.as_us() - at;
            if ahead_us != wanted_us {
                let jump_us = ahead_us - wanted_us;
                return Err(format!("the store's steady clock jumped by {jump_us} us in life {}", life + 1));
            }
            (stored_at, stored_ahead_us) = (*at, ahead_us);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::room_story::Story;
    use super::check;
    use firstcome_core::room::{Departure, Rejection, RoomSettings};

    #[test]
    fn a_number_that_was_told_and_is_not_stored_is_found() {
        let mut story = Story::with_slots(1);
        story.replied_new(1);
        story.assert_found(check, "number 1 was told and is not stored");
    }

    #[test]
    fn a_number_that_is_stored_for_another_client_is_found() {
        let mut story = Story::with_slots(1);
        story.joined_as(1, "ann").replied_new(1);
        story.assert_found(check, "for another join");
    }

    #[test]
    fn a_slot_that_was_told_before_it_was_stored_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).admitted(1).replied_admitted(1);
        story.assert_found(check, "which is not stored");
        let mut story = Story::with_slots(1);
        story.joined(1).admitted(1).taken(1).replied_admitted(1);
        story.assert_clean(check);
    }

    #[test]
    fn a_departure_that_was_told_and_is_not_stored_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).replied_gone(1, Departure::Expired);
        story.assert_found(check, "which is not stored");
        let mut story = Story::with_slots(1);
        story.joined(1).left(1);
        story.assert_found(check, "is not stored as gone");
        let mut story = Story::with_slots(1);
        story.joined(1).gone(1, Departure::Left).left(1).replied_gone(1, Departure::Left);
        story.assert_clean(check);
    }

    #[test]
    fn a_release_that_freed_nothing_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).admitted(1).taken(1).replied_admitted(1).released(1, 1);
        story.assert_found(check, "was released and is still stored");
    }

    #[test]
    fn a_pass_that_is_valid_without_a_slot_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).admitted(1).valid(1, 1);
        story.assert_found(check, "was told valid");
        let mut story = Story::with_slots(1);
        story.joined(1).admitted(1).taken(1).valid(1, 1).gone(1, Departure::Left).valid(1, 1);
        story.assert_found(check, "was told valid");
    }

    #[test]
    fn a_pass_that_is_valid_again_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).admitted(1).taken(1).replied_admitted(1).valid(1, 1).not_valid(1, 1).valid(1, 1);
        story.assert_found(check, "valid again after a check");
    }

    #[test]
    fn settings_that_were_told_and_are_not_stored_are_found() {
        let mut story = Story::with_slots(1);
        story.replied_put(RoomSettings::with_slots(2));
        story.assert_found(check, "not stored");
    }

    #[test]
    fn a_renewal_that_is_not_stored_or_does_not_stand_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).replied_renewed(1, "first", "second");
        story.assert_found(check, "a renewal that is not stored");
        let mut story = Story::with_slots(1);
        story.joined(1).renewed(1, 1).replied_renewed(1, "first", "second").shows(1, "second");
        story.assert_clean(check);
        story.shows(1, "first");
        story.assert_found(check, "still leads to its place");
        let mut story = Story::with_slots(1);
        story.joined(1).renewed(1, 1).replied_renewed(1, "first", "first");
        story.assert_found(check, "has the same ticket");
        let mut story = Story::with_slots(1);
        story.joined(1).refused_as_renewed(1);
        story.assert_found(check, "is called renewed and was not");
        let mut story = Story::with_slots(1);
        story.joined(1).renewed(1, 1).refused_as_renewed(1);
        story.assert_clean(check);
    }

    #[test]
    fn a_refusal_that_contradicts_what_is_stored_is_found() {
        let mut story = Story::with_slots(1);
        story.refused(Rejection::Closed);
        story.assert_found(check, "called closed and is not");
        let mut story = Story::with_slots(1);
        story.refused(Rejection::UnknownRoom);
        story.assert_clean(check);
        story.restart().refused(Rejection::UnknownRoom);
        story.assert_found(check, "called unknown");
        let mut story = Story::with_slots(1);
        story.closed().refused(Rejection::Closed);
        story.assert_clean(check);
    }

    #[test]
    fn a_steady_clock_that_jumps_with_the_wall_is_found() {
        let mut story = Story::with_slots(1);
        story.clocks(0).wall_step(3_600_000).pass_ms(10).clocks(0).restart().clocks(0);
        story.assert_clean(check);
        story.restart().clocks(3_600_000);
        story.assert_found(check, "jumped by 3600000000 us");
        let mut story = Story::with_slots(1);
        story.clocks(0).wall_step(3_600_000).restart().clocks(3_600_000);
        story.assert_clean(check);
    }
}
