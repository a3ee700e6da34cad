//! Closing a room and opening it again.

use super::*;

#[test]
fn closing_makes_all_tickets_and_passes_void() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    play.try_join(&keyed(named("ann"), 1, 1));
    play.strangers(1);
    play.leave(3);
    play.news();
    play.room.close();
    assert_eq!(play.room.state(play.now.wall), RoomState::Closed);
    assert_eq!(play.pass_left_ms(1, 1), None);
    for ticket in 1..=3 {
        assert_eq!(play.look(ticket), "expired");
        assert_eq!((play.leave(ticket).as_str(), play.release(ticket, 1).as_str()), ("", ""));
    }
    assert_eq!((play.look(4).as_str(), play.counts()), ("unknown", (0, 0, 3)));
    assert_eq!((play.tick().as_str(), play.room.is_idle()), ("", true));
    assert_eq!(play.room.view(play.now).wait_at_tail_ms, None);
}

#[test]
fn numbers_and_admissions_go_on_when_a_room_opens_again() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    play.strangers(5_000);
    play.news();
    play.room.close();
    play.room.close();
    assert_eq!(play.try_join(&named("ann")), "room_closed");
    play.put(&RoomSettings::with_slots(1));
    assert_eq!(play.try_join(&named("ann")), "new 5002 waiting 0");
    assert_eq!(play.tick(), "joined 5002, admitted 5002, reached 5003");
    assert_eq!(play.look(5_002), "admitted");
    assert_eq!(play.pass_left_ms(5_002, 1), None);
    assert_eq!(play.pass_left_ms(5_002, 2), Some(1_800_000));
    for ticket in [1, 2, 4_096, 4_097, 5_001] {
        assert_eq!(play.look(ticket), "expired", "void for ever: {ticket}");
    }
    assert_sound(&play.room);
}

#[test]
fn opening_again_admits_no_faster_than_the_rate() {
    let mut play = Play::new(ten_per_second());
    play.strangers(100);
    assert_eq!(play.run_ms(1_000).len(), 10);
    for _ in 0..10 {
        play.room.close();
        play.put(&ten_per_second());
        play.strangers(100);
        let admitted = play.run_ms(100).len();
        assert!(admitted <= 1, "{admitted}");
    }
}

#[test]
fn a_closed_room_that_no_visitor_opens_stays_closed_no_matter_what_time_it_is() {
    let mut play = Play::new(RoomSettings { opens_at: Some(start().wall), ..ten_per_second() });
    play.room.close();
    for by_ms in [-3_600_000, 7_200_000] {
        play.set_wall(by_ms);
        assert_eq!(play.room.state(play.now.wall), RoomState::Closed);
    }
}
