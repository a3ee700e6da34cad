//! Invariant 10, of draws: all who joined before the opening take part and no latecomer does; the draw is before any
//! admission, has the seed that clients were shown a commitment of, and gives each place once; no client is told a place
//! before the draw is stored.

use super::{RoomEvidence, Violation};
use crate::room::history::RoomStepReply;
use crate::room::ledger::{DrawStory, Ledger, RoomStory, TicketStory};
use firstcome_core::room::{RoomOrder, TicketState};
use firstcome_store::RoomSummary;
use std::collections::BTreeSet;

const NAME: &str = "places_drawn";

/// Looks for a draw that is not the one that was promised, and for an answer that does not fit it.
pub fn check(evidence: &RoomEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    for (name, room) in &ledger.rooms {
        let found = |detail| Violation::new(NAME, evidence.seed, format!("{name}: {detail}"));
        if let Some(number) = room.too_early.first() {
            return Err(found(format!("latecomer {number} got a number before the draw")));
        }
        for draw in &room.draws {
            draw_is_fair(draw, room).map_err(found)?;
        }
        for operation in evidence.history.operations().iter().filter(|operation| operation.name == *name) {
            let at = operation.judged;
            if let Some(answer) = operation.ticket() {
                state_fits(answer.state, room, at)
                    .map_err(|says| found(format!("number {} {says}", answer.number.get())))?;
            }
            if let Some(RoomStepReply::View(summary)) = operation.told() {
                view_fits(summary, room, at).map_err(found)?;
            }
        }
    }
    Ok(())
}

fn draw_is_fair(story: &DrawStory, room: &RoomStory) -> Result<(), String> {
    let DrawStory { at, draw, settings, admissions, .. } = story;
    let in_force = settings.checked_sub(1).and_then(|last| room.settings.get(last)).map(|(_, settings)| settings);
    if in_force.is_none_or(|settings| settings.order != RoomOrder::Draw) {
        return Err("places were drawn in a room without a draw".into());
    }
    let has = |number: u32| draw.first <= number && number < draw.end();
    if let Some(admitted) = room.admissions[..*admissions].iter().find(|admitted| has(admitted.number)) {
        return Err(format!("number {} was admitted before the draw", admitted.number));
    }
    let late = room.tickets.range(draw.first..draw.end()).find(|(_, ticket)| *at < ticket.joined);
    if let Some((number, _)) = late {
        return Err(format!("latecomer {number} took part in the draw"));
    }
    // Who waits and did not take part came back from an earlier draw, of which the closing has ended all tickets: perhaps in the
    // same commit as the draw.
    let waits = |ticket: &TicketStory| ticket.waits_before(*at) && !ticket.changes_at(*at);
    let left_out = room.tickets.range(..draw.first).find(|(_, ticket)| waits(ticket));
    if let Some((number, _)) = left_out {
        return Err(format!("number {number} waited and took no part in the draw"));
    }
    let places: BTreeSet<u32> = (draw.first..draw.end()).map(|number| room.turn(number, *at)).collect();
    if places.len() != draw.entrants as usize || !places.iter().all(|place| has(*place)) {
        return Err(format!("the {} entrants have {} places", draw.entrants, places.len()));
    }
    Ok(())
}

/// The draw that counts at an instant, and whether the instant is that of the draw itself.
fn draw_at(room: &RoomStory, at: i64) -> Option<&DrawStory> {
    room.draws.iter().rev().find(|draw| draw.at <= at && draw.ended.is_none_or(|ended| at <= ended))
}

fn state_fits(state: TicketState, room: &RoomStory, at: i64) -> Result<(), String> {
    let drawn = draw_at(room, at);
    let settings =
        |at: i64| room.settings.iter().rev().find(|(since, _)| *since < at).map(|(_, settings)| settings.order);
    // The settings may change in the same instant.
    let draws = [at, at.saturating_add(1)].map(|at| settings(at) == Some(RoomOrder::Draw));
    match state {
        TicketState::InDraw { .. } if !draws.contains(&true) => Err("was told of a draw in a room without one".into()),
        TicketState::InDraw { .. } if drawn.is_some_and(|draw| draw.at < at) => {
            Err("was told to wait for a draw that is over".into())
        }
        TicketState::Waiting { .. } if drawn.is_none() && !draws.contains(&false) => {
            Err("was told a place before the draw".into())
        }
        _ => Ok(()),
    }
}

fn view_fits(summary: &RoomSummary, room: &RoomStory, at: i64) -> Result<(), String> {
    let Some(shown) = summary.draw else { return Ok(()) };
    if let Some(draw) = shown.draw
        && !room.draws.iter().any(|story| story.draw == draw && story.at <= at)
    {
        return Err("a draw was shown that is not stored".into());
    }
    // In the instant of a closing a view may be of the run before it or after it.
    if room.closed.contains(&at) {
        return Ok(());
    }
    // The draw of the same run of the room, if it took place later.
    let closed = room.closed.iter().copied().find(|closed| at < *closed).unwrap_or(i64::MAX);
    let opened = room.closed.iter().copied().rev().find(|closed| *closed < at).unwrap_or(i64::MIN);
    let of_run = room.draws.iter().find(|story| opened <= story.at && story.at <= closed && at <= story.at);
    match of_run {
        Some(story) if story.draw.seed.commitment() != shown.commitment => {
            Err("the draw has another seed than the room was committed to".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::room_story::Story;
    use super::check;
    use firstcome_core::room::{Departure, RoomOrder, RoomSettings};
    use firstcome_core::time::Timestamp;

    fn story() -> Story {
        let mut story = Story::with_slots(1);
        // The story begins later, but the room opens once it draws.
        let opens_at = Some(Timestamp::clamped_us(i64::MAX));
        story.put(RoomSettings { opens_at, order: RoomOrder::Draw, ..RoomSettings::with_slots(1) });
        story
    }

    #[test]
    fn a_draw_as_promised_is_clean() {
        let mut story = story();
        story
            .shows_commitment(7)
            .joined(1)
            .in_draw(1)
            .joined(2)
            .gone(2, Departure::Left)
            .drawn(7, 1, 2)
            .joined(3)
            .waits(3, 1);
        story.waits(1, 0);
        story.assert_clean(check);
    }

    #[test]
    fn a_draw_with_another_seed_is_found() {
        let mut story = story();
        story.shows_commitment(7).joined(1).drawn(8, 1, 1);
        story.assert_found(check, "another seed");
    }

    #[test]
    fn a_draw_after_an_admission_is_found() {
        let mut story = story();
        story.joined(1).joined(2).admitted(1).drawn(7, 1, 2);
        story.assert_found(check, "was admitted before the draw");
    }

    #[test]
    fn an_entrant_who_is_left_out_is_found() {
        let mut story = story();
        story.joined(1).joined(2).drawn(7, 2, 1);
        story.assert_found(check, "number 1 waited and took no part");
    }

    #[test]
    fn a_place_before_the_draw_and_a_draw_after_it_are_found() {
        let mut story = story();
        story.joined(1).waits(1, 0);
        story.assert_found(check, "told a place before the draw");
        let mut story = self::story();
        story.joined(1).drawn(7, 1, 1).in_draw(1);
        story.assert_found(check, "a draw that is over");
        let mut story = Story::with_slots(1);
        story.joined(1).in_draw(1);
        story.assert_found(check, "a room without one");
    }

    #[test]
    fn a_latecomer_in_the_draw_is_found() {
        let mut story = Story::with_slots(1);
        let opens_at = Some(Timestamp::MIN);
        story.put(RoomSettings { opens_at, order: RoomOrder::Draw, ..RoomSettings::with_slots(1) });
        story.joined(1).drawn(7, 1, 1);
        story.assert_found(check, "latecomer 1");
    }

    #[test]
    fn a_draw_in_a_room_without_one_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).drawn(7, 1, 1);
        story.assert_found(check, "a room without a draw");
    }
}
