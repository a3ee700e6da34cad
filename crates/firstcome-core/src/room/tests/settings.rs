//! Changes of settings while visitors wait: pause, schedule, rate, cap, time-outs.

use super::*;

fn at_ms(ms: i64) -> Timestamp {
    Timestamp::clamped_us(WALL_US + ms * 1_000)
}

#[test]
fn a_paused_room_admits_no_visitor_and_takes_people_in() {
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(3);
    assert_eq!(play.run_ms(10_000), [0_u32; 0]);
    assert_eq!(play.room.view(play.now).state, RoomState::Paused);
    let told = play.view(2).unwrap();
    assert_eq!(told.state, TicketState::Waiting { position: 1, wait_ms: None }, "nobody can tell how long");
    play.put(&ten_per_second());
    assert_eq!(play.room.view(play.now).state, RoomState::Open);
    play.pass_ms(50);
    assert_eq!(play.tick(), "admitted 1, admitted 2, reached 3", "a pause earns one slice and no more");
}

#[test]
fn a_pause_leaves_slots_alone() {
    let mut play = Play::with_slot_taken(RoomSettings { active_ttl_ms: 20_000, ..RoomSettings::with_slots(1) });
    play.strangers(1);
    play.put(&paused(RoomSettings::with_slots(1)));
    play.news();
    play.pass_ms(19_999);
    assert_eq!((play.pass_left_ms(1, 1), play.tick().as_str()), (Some(1), ""));
    play.pass_ms(1);
    assert_eq!(play.tick(), "expired 1", "it ends, and nobody gets it for now");
}

#[test]
fn a_scheduled_room_opens_at_its_very_instant_by_the_wall_clock() {
    for (us, state, news) in [
        (-1, RoomState::Scheduled, ""),
        (0, RoomState::Open, "admitted 1, reached 2"),
        (1, RoomState::Open, "admitted 1, reached 2"),
    ] {
        let opens_at = Some(at_ms(20_000));
        let mut play = Play::new(RoomSettings { opens_at, ..RoomSettings::with_slots(1) });
        play.strangers(2);
        play.news();
        assert_eq!(play.tick(), "");
        play.pass_us((20_000_000 + us) as u64);
        assert_eq!((play.room.state(play.now.wall), play.tick().as_str()), (state, news), "{us} µs after opening");
    }
}

#[test]
fn only_the_opening_follows_a_wall_clock_that_is_set() {
    for (by_ms, opens) in [(3_600_000, true), (-3_600_000, false)] {
        let opens_at = Some(at_ms(3_600_000));
        let mut play = Play::new(RoomSettings { opens_at, ..ten_per_second() });
        play.strangers(2);
        play.news();
        play.set_wall(by_ms);
        play.pass_ms(20_000);
        assert_eq!(play.tick(), if opens { "admitted 1, admitted 2, reached 3" } else { "" });
        assert_eq!(play.room.state(play.now.wall), if opens { RoomState::Open } else { RoomState::Scheduled });
    }
}

#[test]
fn before_the_opening_the_wait_includes_the_time_until_then() {
    let opens_at = Some(at_ms(60_000));
    let mut play = Play::new(RoomSettings { opens_at, ..ten_per_second() });
    let told = play.stranger().state;
    assert_eq!(told, TicketState::Waiting { position: 0, wait_ms: Some(60_100) });
    assert_eq!(play.room.view(play.now).wait_at_tail_ms, Some(60_200), "who joins now is the second");
    play.set_wall(30_000);
    assert_eq!(play.view(1).unwrap().state, TicketState::Waiting { position: 0, wait_ms: Some(30_100) });
}

#[test]
fn paused_and_closed_come_before_scheduled() {
    let settings = paused(RoomSettings { opens_at: Some(at_ms(60_000)), ..ten_per_second() });
    let mut play = Play::new(settings);
    assert_eq!(play.room.state(play.now.wall), RoomState::Paused);
    play.room.close();
    assert_eq!(play.room.state(play.now.wall), RoomState::Closed);
}

#[test]
fn a_new_rate_is_in_force_at_once_and_starts_with_nothing_earned() {
    for (settings, per_second) in [(RoomSettings::with_rate(40, 1_000), 40), (RoomSettings::with_rate(2, 1_000), 2)] {
        let mut play = Play::new(ten_per_second());
        play.strangers(200);
        assert_eq!(play.run_ms(2_000).len(), 20);
        play.run_ms(50);
        play.put(&settings);
        assert_eq!(play.tick(), "", "nothing is carried over");
        let admitted = play.run_ms(2_000).len();
        assert_eq!(admitted, 2 * per_second);
    }
}

#[test]
fn the_same_rate_put_again_loses_nothing() {
    let mut play = Play::new(RoomSettings::with_rate(1, 10_000));
    play.strangers(10);
    let mut admitted = 0;
    for _ in 0..500 {
        admitted += play.run_taking_ms(100).len();
        play.put(&RoomSettings { message: Some("hello".into()), ..RoomSettings::with_rate(1, 10_000) });
    }
    assert_eq!(admitted, 5);
}

#[test]
fn a_cap_below_what_is_active_takes_no_slot_away_and_gives_none() {
    let mut play = Play::new(RoomSettings::with_slots(3));
    play.strangers(5);
    play.tick();
    (1..=3).for_each(|ticket| drop(play.look(ticket)));
    play.news();
    play.put(&RoomSettings::with_slots(1));
    assert_eq!((play.tick().as_str(), play.counts()), ("", (2, 3, 3)));
    for ticket in 1..=2 {
        assert!(play.pass_left_ms(ticket, ticket.into()).is_some());
        play.leave(ticket);
        assert_eq!(play.tick(), "");
    }
    play.leave(3);
    assert_eq!(play.tick(), "admitted 4, reached 5");
    play.put(&RoomSettings::with_slots(2));
    assert_eq!(play.tick(), "admitted 5, reached 6");
}

#[test]
fn shorter_times_for_slots_hold_for_slots_that_are_given_later() {
    let settings = |claim_window_ms, active_ttl_ms| RoomSettings { claim_window_ms, active_ttl_ms, ..ten_per_second() };
    let mut play = Play::new(settings(10_000, 20_000));
    play.strangers(2);
    assert_eq!(play.run_ms(200), [1, 2]);
    play.look(1);
    play.put(&settings(1_000, 2_000));
    play.news();
    play.pass_ms(9_800);
    assert_eq!((play.tick().as_str(), play.look(2).as_str()), ("", "admitted"), "its window was ten seconds");
    assert_eq!(play.pass_left_ms(2, 2), Some(2_000), "it is taken under the new settings");
    assert!(play.pass_left_ms(1, 1).unwrap() > 9_000);
}

#[test]
fn a_shorter_silence_counts_for_everybody_at_the_next_tick() {
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(2);
    play.tick();
    play.pass_ms(60_000);
    play.look(2);
    play.put(&RoomSettings { waiting_ttl_ms: 60_000, ..paused(ten_per_second()) });
    assert_eq!(play.tick(), "expired 1");
    play.pass_ms(59_999);
    assert_eq!(play.tick(), "");
    play.pass_ms(1);
    assert_eq!(play.tick(), "expired 2");
}

#[test]
fn a_longer_silence_counts_for_everybody_too() {
    let mut play = Play::new(RoomSettings { waiting_ttl_ms: 60_000, ..paused(ten_per_second()) });
    play.strangers(1);
    play.tick();
    play.pass_ms(59_999);
    play.put(&RoomSettings { waiting_ttl_ms: 120_000, ..paused(ten_per_second()) });
    play.news();
    play.pass_ms(60_000);
    assert_eq!(play.tick(), "");
    play.pass_ms(1);
    assert_eq!(play.tick(), "expired 1");
}

#[test]
fn an_idle_time_that_is_switched_on_counts_from_then_and_off_it_ends_nothing() {
    let idle = |idle_ttl_ms| RoomSettings { idle_ttl_ms, ..RoomSettings::with_slots(1) };
    let mut play = Play::with_slot_taken(idle(None));
    play.pass_ms(60_000);
    play.put(&idle(Some(5_000)));
    assert_eq!(play.pass_left_ms(1, 1), Some(5_000), "nobody loses a slot by the change itself");
    play.pass_ms(4_999);
    assert_eq!(play.tick(), "");
    play.put(&idle(None));
    assert_eq!(play.pass_left_ms(1, 1), Some(1_800_000 - 64_999));
    play.pass_ms(1_800_000 - 65_000);
    assert_eq!(play.tick(), "");
    play.pass_ms(1);
    assert_eq!(play.tick(), "expired 1");
    let mut play = Play::with_slot_taken(idle(None));
    play.put(&idle(Some(5_000)));
    play.pass_ms(5_000);
    assert_eq!(play.tick(), "expired 1");
}

#[test]
fn a_smaller_line_keeps_a_visitor_that_is_in_it() {
    let mut play = Play::new(RoomSettings::with_slots(1));
    play.strangers(3);
    play.put(&RoomSettings { max_waiting: 1, ..RoomSettings::with_slots(1) });
    assert_eq!(play.try_join(&anonymous()), "room_full");
    assert_eq!((play.look(3).as_str(), play.counts().0), ("waiting 2", 3));
    play.news();
    assert_eq!(play.tick(), "admitted 1, reached 2");
    play.leave(2);
    assert_eq!(play.try_join(&anonymous()), "room_full");
    play.leave(3);
    assert_eq!(play.try_join(&anonymous()), "new 4 waiting 0");
}
