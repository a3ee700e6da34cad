//! Present, absent and returning visitors, and those whose silence was too long.

use super::*;

#[test]
fn presence_lasts_thirty_seconds_at_least() {
    for (silent_ms, wanted) in
        [(29_999, "admitted 1, reached 2"), (30_000, "admitted 1, reached 2"), (30_001, "reached 2")]
    {
        let mut play = Play::new(ten_per_second());
        let told = play.stranger();
        assert!(told.poll_after_ms <= 10_000, "three polls are shorter: {}", told.poll_after_ms);
        play.news();
        play.pass_ms(silent_ms);
        assert_eq!(play.tick(), wanted, "silent for {silent_ms} ms");
    }
}

#[test]
fn presence_lasts_for_three_of_the_intervals_that_were_told() {
    for late in [false, true] {
        let mut play = Play::new(RoomSettings::with_rate(1, 600_000));
        play.stranger();
        play.pass_ms(590_000);
        let polled_ms = play.view(1).map_or(0, |view| view.poll_after_ms);
        assert!(30_000 < polled_ms, "where one is admitted in ten minutes it is long: {polled_ms}");
        play.news();
        play.pass_ms(3 * u64::from(polled_ms) + u64::from(late));
        assert_eq!(play.tick(), if late { "reached 2" } else { "admitted 1, reached 2" });
    }
}

#[test]
fn a_poll_makes_present_for_as_long_again() {
    let mut play = Play::new(ten_per_second());
    play.strangers(1);
    play.news();
    for _ in 0..3 {
        play.pass_ms(30_000);
        play.look(1);
    }
    play.pass_ms(30_000);
    assert_eq!(play.tick(), "admitted 1, reached 2");
}

#[test]
fn the_absent_are_passed_over_and_are_next_when_they_come_back() {
    let mut play = Play::new(RoomSettings::with_rate(1, 1_000));
    play.strangers(4);
    play.news();
    play.pass_ms(30_001);
    assert_eq!((play.look(3).as_str(), play.look(4).as_str()), ("waiting 2", "waiting 3"));
    assert_eq!(play.tick(), "admitted 3, reached 4");
    assert_eq!(play.look(1), "waiting 0", "a passed-over ticket keeps its place before all others");
    assert_eq!(play.stranger().number.get(), 5);
    play.news();
    play.pass_ms(1_000);
    assert_eq!(play.tick(), "admitted 1");
    play.pass_ms(1_000);
    assert_eq!(play.tick(), "admitted 4, reached 5", "the other absent one is not waited for");
    assert_sound(&play.room);
}

#[test]
fn of_those_who_come_back_the_lowest_number_is_first() {
    let mut play = Play::new(RoomSettings::with_rate(1, 1_000));
    play.strangers(5);
    play.pass_ms(30_001);
    play.look(5);
    play.tick();
    for back in [4, 1, 3, 1, 4] {
        assert_eq!(play.look(back), "waiting 0", "{back}");
    }
    play.strangers(1);
    assert_eq!(play.run_ms(5_000), [1, 3, 4, 6]);
    assert_eq!(play.counts(), (1, 5, 6));
}

#[test]
fn who_comes_back_and_is_silent_again_is_passed_over_again() {
    let mut play = Play::new(RoomSettings::with_rate(1, 1_000));
    play.strangers(2);
    play.pass_ms(30_001);
    assert_eq!(play.tick(), "joined 1, joined 2, reached 3");
    assert_eq!(play.look(2), "waiting 0");
    assert_eq!(play.look(1), "waiting 0");
    play.put(&paused(RoomSettings::with_rate(1, 1_000)));
    play.pass_ms(30_001);
    assert_eq!(play.look(2), "waiting 0");
    play.put(&RoomSettings::with_rate(1, 1_000));
    assert_eq!(play.tick(), "admitted 2");
    play.pass_ms(1_000);
    assert_eq!(play.tick(), "");
    assert_eq!(play.look(1), "waiting 0");
    assert_eq!(play.tick(), "admitted 1");
}

#[test]
fn silence_ends_a_place_at_its_very_millisecond() {
    for (silent_ms, wanted) in [(HOUR_MS - 1, "waiting 0"), (HOUR_MS, "expired"), (HOUR_MS + 1, "expired")] {
        let mut play = Play::new(paused(ten_per_second()));
        play.strangers(1);
        play.news();
        play.pass_ms(silent_ms);
        assert_eq!(play.look(1), wanted, "silent for {silent_ms} ms");
        assert_eq!(play.news(), if wanted == "expired" { "expired 1" } else { "" });
        assert_eq!(play.look(1), wanted, "and stays so");
        assert_eq!(play.news(), "");
    }
}

#[test]
fn a_tick_ends_places_in_time_even_if_no_visitor_asks() {
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(1);
    play.tick();
    play.pass_ms(HOUR_MS / 2);
    play.strangers(1);
    play.look(1);
    play.pass_ms(HOUR_MS / 2);
    assert_eq!(play.tick(), "joined 2");
    play.pass_ms(HOUR_MS / 2 - 1);
    assert_eq!(play.tick(), "");
    play.pass_ms(1);
    assert_eq!(play.tick(), "expired 1, expired 2");
    assert_eq!(play.counts(), (0, 0, 0));
    assert!(play.room.is_idle());
}

#[test]
fn no_visitor_that_asks_ever_expires_however_long_it_takes() {
    // Two days, and beyond the 49.7 days that 32 bits of milliseconds hold.
    for days in [2, 160] {
        let mut play = Play::new(paused(ten_per_second()));
        play.strangers(2);
        play.news();
        for _ in 0..days * DAY_MS / (HOUR_MS - 1) {
            play.pass_ms(HOUR_MS - 1);
            play.tick();
            assert_eq!(play.look(1), "waiting 0", "after {} ms", play.passed_ms());
        }
        assert_eq!(play.look(2), "expired");
        play.pass_ms(HOUR_MS - 1);
        assert_eq!(play.look(1), "waiting 0");
        play.pass_ms(HOUR_MS);
        assert_eq!(play.look(1), "expired");
    }
}

#[test]
fn a_room_that_was_empty_for_months_counts_silence_from_the_new_contact() {
    // An idle room may go without ticks.
    for days in [1, 24, 25, 49, 50, 60, 75, 100, 400] {
        for ttl_ms in [100, HOUR_MS, 7 * DAY_MS] {
            let settings = RoomSettings { waiting_ttl_ms: ttl_ms, ..ten_per_second() };
            let mut play = Play::new(settings);
            play.strangers(1);
            play.tick();
            play.leave(1);
            play.pass_ms(days * DAY_MS);
            play.put(&paused(play.room.settings().clone()));
            play.strangers(1);
            assert_eq!(play.tick(), "joined 2", "after {days} days");
            play.pass_ms(ttl_ms - 1);
            assert_eq!(play.tick(), "");
            assert_eq!(play.look(2), "waiting 0", "after {days} days");
            play.pass_ms(ttl_ms);
            assert_eq!(play.tick(), "expired 2", "after {days} days");
        }
        let mut play = Play::new(ten_per_second());
        play.strangers(1);
        play.tick();
        play.leave(1);
        play.pass_ms(days * DAY_MS);
        play.strangers(1);
        play.news();
        play.pass_ms(30_001);
        assert_eq!(play.tick(), "reached 3", "absent after {days} days");
    }
}

#[test]
fn people_who_waited_from_the_start_are_told_apart_after_months() {
    let mut play = Play::new(RoomSettings { waiting_ttl_ms: 7 * DAY_MS, ..paused(ten_per_second()) });
    play.strangers(100);
    for day in 1..150_u64 {
        play.pass_ms(DAY_MS);
        play.tick();
        // Each visitor polls every sixth day, except for those whose turn has come.
        for ticket in 1..=100_u32 {
            if u64::from(ticket) % 6 == day % 6 && day < u64::from(ticket) + 30 {
                assert_eq!(play.look(ticket), format!("waiting {}", play.room.line.ahead(ticket)), "on day {day}");
            }
        }
    }
    let living = (1..=100_u32).filter(|&ticket| play.room.line.place(ticket) == Some(TicketPlace::Waiting)).count();
    assert!(living == 0, "the last asked on day 130: {living} live");
    assert_sound(&play.room);
}

#[test]
fn a_jump_of_days_ends_a_visitor_that_did_not_ask_and_nothing_else() {
    for days in [1, 30, 50, 80, 1_000] {
        let mut play = Play::new(RoomSettings { max_active: Some(2), ..ten_per_second() });
        play.strangers(5);
        assert_eq!(play.run_ms(1_000), [1, 2]);
        play.look(1);
        play.pass_ms(days * DAY_MS);
        play.news();
        assert_eq!(play.tick(), "expired 1, lapsed 2, expired 2, expired 3, expired 4, expired 5, reached 6");
        assert_eq!(play.strangers(1), [6]);
        assert_eq!(play.tick(), "joined 6, admitted 6, reached 7");
        assert_sound(&play.room);
    }
}

#[test]
fn while_the_steady_clock_stands_still_nothing_ends_and_no_visitor_is_admitted_by_a_rate() {
    let mut play = Play::new(ten_per_second());
    play.strangers(3);
    play.news();
    for _ in 0..100 {
        play.set_wall(1_000);
        assert_eq!(play.tick(), "");
        assert_eq!(play.look(1), "waiting 0");
    }
    play.pass_ms(100);
    assert_eq!(play.tick(), "admitted 1, reached 2");
}

#[test]
fn a_steady_clock_that_steps_back_does_no_harm() {
    let mut play = Play::new(RoomSettings { max_active: Some(2), ..ten_per_second() });
    play.strangers(2);
    play.run_ms(1_000);
    play.look(1);
    play.now.steady = Steady::from_us(STEADY_US - 1_000_000);
    play.strangers(2);
    play.news();
    assert_eq!(play.tick(), "");
    assert_eq!((play.look(1).as_str(), play.look(3).as_str()), ("admitted", "waiting 0"));
    assert_sound(&play.room);
}

#[test]
fn a_steady_clock_that_steps_back_and_forth_earns_nothing_twice() {
    let mut play = Play::new(ten_per_second());
    play.strangers(100);
    assert_eq!(play.run_ms(1_000).len(), 10);
    let (before, here) = (Steady::from_us(play.now.steady.as_us() - 99_000), play.now.steady);
    play.news();
    for steady in [before, here].repeat(20) {
        play.now.steady = steady;
        assert_eq!(play.tick(), "");
    }
}

#[test]
fn a_visitor_that_could_not_be_heard_was_not_silent() {
    let settings = RoomSettings { waiting_ttl_ms: 60_000, active_ttl_ms: 7_200_000, ..RoomSettings::with_slots(1) };
    let mut play = Play::with_slot_taken(settings);
    play.stranger();
    play.stranger();
    play.news();
    // An hour in which no contact can arrive. Without `resumed`, no visitor would be left.
    play.pass_ms(3_600_000);
    play.room.resumed(play.now);
    assert_eq!(play.leave(1), "left 1");
    assert_eq!(play.tick(), "admitted 2, reached 3");
    // From then on silence counts again.
    play.pass_ms(60_000);
    assert!(play.tick().contains("expired 3"));
}
