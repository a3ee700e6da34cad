//! Restored state is accepted only if it agrees with the rules, and the room goes on from it.

use super::*;

fn slot(admission: u64, hold: Hold) -> Slot {
    Slot { admission, admitted_at: start().wall, hold }
}

fn until(ms: u64) -> Steady {
    start().steady.plus_ms(ms)
}

/// ann (1) has taken a slot until 20 s, (2) left, bob (3) was passed over, (4) expired, cid (5) is offered a slot until 10 s,
/// dan (6, key 6) and (7) wait. Six is the lowest number that the line has not reached.
fn restored() -> Play {
    let settings = RoomSettings { waiting_ttl_ms: HOUR_MS, ..RoomSettings::with_slots(2) };
    let mut play = Play::new(settings.clone());
    play.room = Room::restoring(settings, hasher(), play.now, 1);
    let rows = [
        (1, named("ann"), None),
        (2, keyed(named("eve"), 2, 1), Some(Departure::Left)),
        (3, named("bob"), None),
        (4, anonymous(), Some(Departure::Expired)),
        (5, named("cid"), None),
        (6, keyed(named("dan"), 6, 1), None),
        (7, anonymous(), None),
    ];
    for (ticket, join, gone) in rows {
        assert_eq!(play.room.restore_ticket(number(ticket), &join, gone, play.now), Ok(()), "{ticket}");
    }
    assert_eq!(play.room.restore_reached(6, 9), Ok(()));
    let taken = slot(4, Hold::Taken { until: until(20_000) });
    assert_eq!(play.room.restore_slot(number(1), taken, play.now), Ok(()));
    let offered = slot(9, Hold::Offered { until: until(10_000) });
    assert_eq!(play.room.restore_slot(number(5), offered, play.now), Ok(()));
    play.room.restored(RoomPhase::Running);
    assert_sound(&play.room);
    play
}

#[test]
fn a_restored_room_goes_on_where_it_stood() {
    let mut play = restored();
    assert_eq!((play.counts(), play.room.drawn()), ((3, 2, 5), 7));
    assert_eq!(play.pass_left_ms(1, 4), Some(20_000));
    assert_eq!((play.look(2).as_str(), play.look(4).as_str()), ("left", "expired"));
    assert_eq!((play.look(6).as_str(), play.look(7).as_str()), ("waiting 0", "waiting 1"));
    assert_eq!(play.try_join(&keyed(named("dan"), 6, 1)), "same request 6 waiting 0");
    assert_eq!(play.try_join(&named("bob")), "same user 3 waiting 0");
    assert_eq!(play.try_join(&keyed(named("eve"), 2, 2)), "new 8 waiting 2", "who left holds neither name nor key");
    assert_eq!(play.look(5), "admitted");
    assert_eq!(play.news(), "joined 8, taken 5");
    assert_eq!(play.leave(5), "left 5");
    assert_eq!(play.tick(), "admitted 3", "who was passed over counts as just seen, and is next");
    assert_eq!(play.look(3), "admitted");
    assert_eq!(play.pass_left_ms(3, 10), Some(1_800_000), "admissions go on");
    play.news();
    play.pass_ms(20_000);
    assert_eq!(play.tick(), "expired 1, admitted 6, reached 7", "slots keep their ends");
    assert_sound(&play.room);
}

#[test]
fn an_offer_lapses_at_the_end_that_was_stored() {
    let mut play = restored();
    play.pass_ms(9_999);
    assert_eq!(play.tick(), "");
    play.pass_ms(1);
    assert_eq!(play.tick(), "lapsed 5, admitted 3");
    assert_eq!(play.look(5), "waiting 0");
}

#[test]
fn after_a_restart_everybody_counts_as_just_seen() {
    let mut play = restored();
    play.pass_ms(HOUR_MS - 1);
    assert_eq!(play.look(7), "waiting 1");
    let mut play = restored();
    play.pass_ms(HOUR_MS);
    assert_eq!(play.look(7), "expired");
    let mut play = restored();
    play.pass_ms(30_000);
    assert_eq!(play.tick(), "expired 1, lapsed 5, admitted 3, admitted 6, reached 7", "present for 30 seconds");
    let mut play = restored();
    play.pass_ms(30_001);
    assert_eq!(play.tick(), "expired 1, lapsed 5, reached 8");
}

#[test]
fn numbers_below_the_first_are_void() {
    let mut play = Play::new(ten_per_second());
    play.room = Room::restoring(ten_per_second(), hasher(), play.now, 5_000);
    play.room.restored(RoomPhase::Running);
    assert_eq!((play.look(1).as_str(), play.look(4_999).as_str()), ("expired", "expired"));
    assert_eq!(play.look(5_000), "unknown");
    assert_eq!(play.room.restore_ticket(number(4_999), &anonymous(), None, play.now), Err(Damage::Ticket));
    assert_eq!(play.strangers(1), [5_000]);
    let room = Room::restoring(ten_per_second(), hasher(), start(), 0);
    assert_eq!(room.drawn(), 0, "the first number is 1");
}

#[test]
fn a_closed_room_comes_back_closed() {
    let mut play = Play::new(ten_per_second());
    play.room = Room::restoring(ten_per_second(), hasher(), play.now, 8);
    play.room.restored(RoomPhase::Closed);
    assert_eq!(play.try_join(&anonymous()), "room_closed");
    play.put(&ten_per_second());
    assert_eq!(play.try_join(&anonymous()), "new 8 waiting 0");
}

#[test]
fn a_stored_ticket_that_breaks_a_rule_is_named() {
    let rows = [
        (7, anonymous(), None, Err(Damage::Ticket)),
        (1, anonymous(), None, Err(Damage::Ticket)),
        (4, anonymous(), None, Err(Damage::Ticket)),
        (8, named("ann"), None, Err(Damage::Ticket)),
        (8, named("dan"), None, Err(Damage::Ticket)),
        (8, keyed(anonymous(), 6, 1), None, Err(Damage::Ticket)),
        (8, keyed(named("dan"), 6, 1), Some(Departure::Left), Ok(())),
        (8, keyed(named("eve"), 2, 1), None, Ok(())),
        (8, anonymous(), Some(Departure::Expired), Ok(())),
        (9, anonymous(), None, Err(Damage::Ticket)),
        (u32::MAX - 1, anonymous(), None, Err(Damage::Ticket)),
    ];
    for (ticket, join, gone, wanted) in rows {
        let mut play = restored();
        assert_eq!(play.room.restore_ticket(number(ticket), &join, gone, play.now), wanted, "{ticket}: {join:?}");
        assert_eq!(play.room.drawn(), if wanted.is_ok() { ticket } else { 7 }, "damage leaves no trace");
        assert_sound(&play.room);
    }
}

#[test]
fn a_stored_slot_that_breaks_a_rule_is_named() {
    let taken = |admission| slot(admission, Hold::Taken { until: until(1_000) });
    let rows = [
        (1, taken(9), Err(Damage::Slot), "it has one already"),
        (2, taken(9), Err(Damage::Slot), "it left"),
        (4, taken(9), Err(Damage::Slot), "it expired"),
        (8, taken(9), Err(Damage::Slot), "it was never drawn"),
        (3, taken(10), Err(Damage::Slot), "that admission was not counted"),
        (6, taken(9), Err(Damage::Reached), "the line has not reached it"),
        (3, taken(8), Ok(()), ""),
    ];
    for (ticket, slot, wanted, why) in rows {
        let mut play = restored();
        play.room.returned.clear();
        assert_eq!(play.room.restore_slot(number(ticket), slot, play.now), wanted, "{why}");
        assert_eq!(play.counts().1, if wanted.is_ok() { 3 } else { 2 }, "damage leaves no trace");
        assert_sound(&play.room);
    }
}

#[test]
fn no_more_is_reached_than_was_drawn() {
    for (reached, wanted) in [(0, Ok(())), (1, Ok(())), (7, Ok(())), (8, Ok(())), (9, Err(Damage::Reached))] {
        let mut play = Play::new(ten_per_second());
        play.strangers(7);
        assert_eq!(play.room.restore_reached(reached, 0), wanted, "{reached}");
        play.room.restored(RoomPhase::Running);
        let serving = if wanted.is_ok() { reached.max(1) - 1 } else { 0 };
        assert_eq!(play.counts(), (7, 0, serving));
        assert_sound(&play.room);
    }
}

#[test]
fn a_line_is_restored_across_segments_everything_that_was_reached() {
    const MANY: u32 = 2 * 4_096;
    for reached in [1, 2, 4_096, 4_097, 4_098, MANY, MANY + 1] {
        let mut play = Play::new(ten_per_second());
        for ticket in 1..=MANY {
            let gone = (ticket % 3 == 0).then_some(Departure::Expired);
            assert_eq!(play.room.restore_ticket(number(ticket), &anonymous(), gone, play.now), Ok(()));
        }
        assert_eq!(play.room.restore_reached(reached, 0), Ok(()));
        play.room.restored(RoomPhase::Running);
        assert_sound(&play.room);
        let behind = (reached..=MANY).filter(|ticket| ticket % 3 != 0).count() as u32;
        assert_eq!(play.try_join(&anonymous()), format!("new {} waiting {behind}", MANY + 1), "reached {reached}");
        let living: Vec<u32> = (1..=MANY).filter(|ticket| ticket % 3 != 0).take(20).collect();
        assert_eq!(play.run_ms(2_000), living, "the lowest are first, whatever was reached: {reached}");
    }
}
