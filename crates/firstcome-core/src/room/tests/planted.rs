//! Each planted bug of a room breaks the promise that it is named after, and nothing while it is not planted.

use super::*;
use crate::planted::{Bug, plant};

/// Returns the answers with the bug, and without it.
fn told(bug: Bug, scene: impl Fn() -> String) -> (String, String) {
    let sound = scene();
    plant(Some(bug));
    let broken = scene();
    plant(None);
    assert_eq!(scene(), sound, "taken out again");
    (sound, broken)
}

fn pair(sound: &str, broken: &str) -> (String, String) {
    (sound.to_owned(), broken.to_owned())
}

#[test]
fn a_rate_too_high_admits_a_tenth_more() {
    let scene = || {
        let mut play = Play::new(RoomSettings::with_rate(100, 1_000));
        play.strangers(2_000);
        play.run_ms(5_000).len().to_string()
    };
    assert_eq!(told(Bug::RateTooHigh, scene), pair("500", "550"));
}

#[test]
fn a_number_drawn_twice_is_told_to_two_people() {
    let scene = || {
        let mut play = Play::new(ten_per_second());
        format!("{:?}", &play.strangers(101)[97..])
    };
    assert_eq!(told(Bug::NumberTwice, scene), pair("[98, 99, 100, 101]", "[98, 99, 99, 101]"));
}

#[test]
fn an_absent_person_is_admitted() {
    let scene = || {
        let mut play = Play::new(ten_per_second());
        play.strangers(2);
        play.pass_ms(30_001);
        play.look(2);
        play.news();
        play.tick()
    };
    let wanted = pair("admitted 2, reached 3", "admitted 1, admitted 2, reached 3");
    assert_eq!(told(Bug::AbsentAdmitted, scene), wanted);
}

#[test]
fn after_a_restart_a_visitor_with_a_slot_waits_too() {
    let scene = || {
        let mut play = Play::new(RoomSettings::with_slots(2));
        play.strangers(1);
        play.room.restore_reached(2, 1).unwrap();
        let hold = Hold::Taken { until: start().steady.plus_ms(1_000) };
        let slot = Slot { admission: 1, admitted_at: start().wall, hold };
        play.room.restore_slot(number(1), slot, play.now).unwrap();
        format!("{:?}", play.counts())
    };
    assert_eq!(told(Bug::InBothSets, scene), pair("(0, 1, 1)", "(1, 1, 1)"));
}

#[test]
fn the_pass_of_a_visitor_that_left_is_still_valid() {
    let scene = || {
        let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
        play.leave(1);
        format!("{:?}", play.pass_left_ms(1, 1))
    };
    assert_eq!(told(Bug::PassOutlivesSlot, scene), pair("None", "Some(1000)"));
}

#[test]
fn departed_people_are_counted_ahead() {
    let scene = || {
        let mut play = Play::new(RoomSettings::with_slots(1));
        play.strangers(3);
        play.leave(1);
        play.look(3)
    };
    assert_eq!(told(Bug::DepartedCounted, scene), pair("waiting 1", "waiting 2"));
}

#[test]
fn a_slot_that_is_not_taken_is_lost() {
    let scene = || {
        let mut play = Play::new(RoomSettings { claim_window_ms: 10_000, ..RoomSettings::with_slots(1) });
        play.strangers(2);
        play.tick();
        play.pass_ms(10_000);
        play.tick()
    };
    assert_eq!(told(Bug::SlotLost, scene), pair("lapsed 1, admitted 2, reached 3", ""));
}

#[test]
fn a_latecomer_takes_part_in_the_draw() {
    let scene = || {
        let opens_at = Some(Timestamp::clamped_us(WALL_US + 1_000_000));
        let mut play = Play::new(RoomSettings { opens_at, order: RoomOrder::Draw, ..ten_per_second() });
        play.strangers(2);
        play.pass_ms(1_000);
        play.strangers(1);
        play.tick();
        play.room.past_draw().map_or(0, |draw| draw.entrants).to_string()
    };
    assert_eq!(told(Bug::LatecomerDrawn, scene), pair("2", "3"));
}

#[test]
fn a_renewed_ticket_still_leads_to_its_place() {
    let scene = || {
        let mut play = Play::new(RoomSettings::with_slots(1));
        play.strangers(1);
        let first = TicketId::first(number(1));
        play.room.renew(first, RenewalKey::new(1), play.now, &mut play.changes).unwrap();
        play.room.judge_ticket(first).map_or_else(|refusal| refusal.code(), |()| "judged").to_owned()
    };
    assert_eq!(told(Bug::RenewedTicketLives, scene), pair("ticket_renewed", "judged"));
}
