//! A visitor who joins gets the next number; one who has a place gets that one.

use super::*;

#[test]
fn numbers_are_drawn_in_the_order_of_arrival() {
    let mut play = Play::new(ten_per_second());
    for wanted in 1..=5_000 {
        assert_eq!(play.stranger().number.get(), wanted);
    }
    assert_eq!((play.room.drawn(), play.counts()), (5_000, (5_000, 0, 0)));
    assert_sound(&play.room);
}

#[test]
fn a_join_is_told_with_its_position_and_kept_with_who_asked() {
    let mut play = Play::new(ten_per_second());
    let join = keyed(named("ann"), 7, 1);
    assert_eq!(play.try_join(&join), "new 1 waiting 0");
    assert_eq!(play.changes, [Change::Joined { number: number(1), join, joined_at: play.now.wall }]);
    play.changes.clear();
    assert_eq!(play.try_join(&anonymous()), "new 2 waiting 1");
    assert_eq!(play.news(), "joined 2");
    assert_eq!((play.room.user(number(1)), play.room.user(number(2))), (Some("ann"), None));
}

#[test]
fn a_user_has_one_living_place() {
    let mut play = Play::new(RoomSettings::with_slots(1));
    let rows = [("ann", "new 1 waiting 0"), ("bob", "new 2 waiting 1"), ("ann", "same user 1 waiting 0")];
    for (user, wanted) in rows {
        assert_eq!(play.try_join(&named(user)), wanted);
    }
    assert_eq!(play.news(), "joined 1, joined 2");
    assert_eq!(play.tick(), "admitted 1, reached 2");
    assert_eq!(play.try_join(&named("ann")), "same user 1 admitted");
    assert_eq!(play.news(), "taken 1");
    assert_eq!(play.leave(1), "left 1");
    assert_eq!(play.room.user(number(1)), None);
    assert_eq!(play.try_join(&named("ann")), "new 3 waiting 1");
    assert_eq!(play.try_join(&named("ann")), "same user 3 waiting 1");
}

#[test]
fn the_same_request_finds_its_place_and_another_one_with_its_key_is_refused() {
    let mut play = Play::new(ten_per_second());
    let rows = [
        (keyed(anonymous(), 1, 1), "new 1 waiting 0"),
        (keyed(anonymous(), 1, 1), "same request 1 waiting 0"),
        (keyed(anonymous(), 1, 2), "idempotency_key_reused 1"),
        (keyed(named("ann"), 1 << 64, 1), "new 2 waiting 1"),
        (keyed(named("ann"), 1 << 64, 1), "same request 2 waiting 1"),
        // The key counts before the user.
        (keyed(named("ann"), 1, 1), "same request 1 waiting 0"),
        (keyed(named("ann"), 1, 2), "idempotency_key_reused 1"),
        (keyed(named("ann"), 9, 1), "same user 2 waiting 1"),
        // The key of a repeat for the same user was not remembered.
        (keyed(named("bob"), 9, 1), "new 3 waiting 2"),
        (anonymous(), "new 4 waiting 3"),
        (anonymous(), "new 5 waiting 4"),
    ];
    for (join, wanted) in rows {
        assert_eq!(play.try_join(&join), wanted, "{join:?}");
    }
    assert_eq!(play.news(), "joined 1, joined 2, joined 3, joined 4, joined 5");
}

#[test]
fn a_key_and_a_user_are_free_again_once_the_place_is_gone() {
    let mut play = Play::new(ten_per_second());
    assert_eq!(play.try_join(&keyed(named("ann"), 1, 1)), "new 1 waiting 0");
    play.leave(1);
    assert_eq!(play.try_join(&keyed(named("ann"), 1, 2)), "new 2 waiting 0");
    assert_eq!(play.look(1), "left");
    for ticket in 2..20 {
        let again = play.try_join(&keyed(anonymous(), 1, 2));
        assert_eq!(again, format!("same request {ticket} waiting 0"), "the living one is found, not an earlier one");
        play.leave(ticket);
        assert_eq!(play.try_join(&keyed(named("ann"), 1, 2)), format!("new {} waiting 0", ticket + 1));
    }
}

#[test]
fn a_repeat_that_comes_when_the_place_is_just_over_draws_a_new_one() {
    // The result is the same whether the sweep or the repeat comes first.
    for ticks in [false, true] {
        for join in [keyed(anonymous(), 1, 1), keyed(anonymous(), 1, 2), named("ann")] {
            let mut play = Play::new(paused(ten_per_second()));
            let first = if join.user.is_some() { join.clone() } else { keyed(anonymous(), 1, 1) };
            assert_eq!(play.try_join(&first), "new 1 waiting 0");
            play.tick();
            play.pass_ms(HOUR_MS);
            if ticks {
                assert_eq!(play.tick(), "expired 1");
            }
            assert_eq!(play.try_join(&join), "new 2 waiting 0", "{join:?}, ticks: {ticks}");
            assert_eq!(play.news(), if ticks { "joined 2" } else { "expired 1, joined 2" });
        }
    }
}

#[test]
fn a_repeat_counts_as_a_contact_and_takes_an_offered_slot() {
    let mut play = Play::new(RoomSettings::with_slots(1));
    let join = keyed(anonymous(), 1, 1);
    play.try_join(&join);
    play.pass_ms(HOUR_MS - 1);
    assert_eq!(play.try_join(&join), "same request 1 waiting 0");
    play.pass_ms(HOUR_MS - 1);
    assert_eq!(play.try_join(&join), "same request 1 waiting 0");
    assert_eq!(play.tick(), "joined 1, admitted 1, reached 2");
    assert_eq!(play.try_join(&join), "same request 1 admitted");
    assert_eq!(play.news(), "taken 1");
}

#[test]
fn a_full_line_takes_no_visitor_until_a_visitor_is_gone_from_it() {
    let mut play = Play::new(RoomSettings { max_waiting: 2, ..RoomSettings::with_slots(1) });
    assert_eq!(play.try_join(&named("ann")), "new 1 waiting 0");
    assert_eq!(play.try_join(&named("bob")), "new 2 waiting 1");
    assert_eq!(play.try_join(&named("cid")), "room_full");
    assert_eq!(play.try_join(&named("ann")), "same user 1 waiting 0", "who has a place is not refused it");
    assert_eq!(play.tick(), "joined 1, joined 2, admitted 1, reached 2");
    assert_eq!(play.try_join(&named("cid")), "new 3 waiting 1", "slots do not count");
    assert_eq!(play.try_join(&named("dan")), "room_full");
    assert_eq!(play.leave(3), "joined 3, left 3");
    assert_eq!(play.try_join(&named("dan")), "new 4 waiting 1");
}

#[test]
fn a_full_line_says_when_to_try_again() {
    let full = |play: &mut Play| match play.room.join(&anonymous(), play.now, &mut play.changes) {
        Err(Rejection::Full { retry_after_ms }) => retry_after_ms,
        other => panic!("the room is full: {other:?}"),
    };
    let one = |settings| Play::new(RoomSettings { max_waiting: 1, ..settings });
    let rows = [
        (one(RoomSettings::with_rate(1, 5_000)), 5_000),
        (one(ten_per_second()), 1_000),
        (one(paused(ten_per_second())), 15_000),
    ];
    for (mut play, wanted) in rows {
        play.strangers(1);
        assert_eq!(full(&mut play), wanted);
    }
}

#[test]
fn refusals_come_in_order_closed_before_full() {
    let mut play = Play::new(RoomSettings { max_waiting: 1, ..ten_per_second() });
    play.try_join(&keyed(named("ann"), 1, 1));
    assert_eq!(play.room.judge_room(play.now).map_err(|told| told.code()), Err("room_full"));
    play.room.close();
    assert_eq!(play.room.judge_room(play.now), Err(Rejection::Closed));
    assert_eq!(play.try_join(&keyed(named("ann"), 1, 1)), "room_closed", "its place is void");
    assert_eq!(play.try_join(&named("ann")), "room_closed");
}

#[test]
fn the_last_number_is_drawn_and_none_after_it() {
    let mut play = Play::new(RoomSettings::with_slots(1));
    play.room = Room::restoring(RoomSettings::with_slots(1), hasher(), play.now, ROOM_NUMBER_MAX);
    assert_eq!(play.stranger().number.get(), ROOM_NUMBER_MAX);
    assert_eq!(play.try_join(&anonymous()), "room_full");
    play.tick();
    assert_eq!(play.look(ROOM_NUMBER_MAX), "admitted");
    play.leave(ROOM_NUMBER_MAX);
    play.room.close();
    play.put(&RoomSettings::with_slots(1));
    assert_eq!(play.try_join(&anonymous()), "room_full");
    assert_eq!(play.tick(), "");
    assert_eq!(play.counts(), (0, 0, ROOM_NUMBER_MAX));
}

#[test]
fn a_number_that_was_never_drawn_is_unknown() {
    let mut play = Play::new(ten_per_second());
    play.strangers(2);
    for ticket in [3, 4, 4_096, 4_097, 1_000_000, ROOM_NUMBER_MAX] {
        assert_eq!(play.look(ticket), "unknown", "{ticket}");
        assert_eq!(play.leave(ticket), "unknown_ticket", "{ticket}");
        assert_eq!(play.pass_left_ms(ticket, 1), None, "{ticket}");
        assert_eq!(play.room.user(number(ticket)), None, "{ticket}");
        play.changes.clear();
    }
}
