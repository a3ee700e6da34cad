//! Slots from admission to end: offered, taken, ended, given up.

use super::*;

/// One slot: ten seconds to take it, twenty to use it.
fn short() -> RoomSettings {
    RoomSettings { claim_window_ms: 10_000, active_ttl_ms: 20_000, ..RoomSettings::with_slots(1) }
}

fn until_ms(play: &mut Play, ticket: u32) -> u64 {
    match play.view(ticket).map(|view| view.state) {
        Some(TicketState::Admitted { until, .. }) => until.since_us(start().steady) / 1_000,
        other => panic!("{ticket} has a slot: {other:?}"),
    }
}

#[test]
fn a_slot_is_offered_and_the_first_poll_takes_it() {
    let mut play = Play::new(short());
    play.strangers(1);
    play.news();
    play.pass_ms(7);
    play.room.tick(play.now, &mut play.changes);
    let offered = Hold::Offered { until: play.now.steady.plus_ms(10_000) };
    let slot = Slot { admission: 1, admitted_at: play.now.wall, hold: offered };
    assert_eq!(play.changes, [Change::Admitted { number: number(1), slot }, Change::Reached(2)]);
    play.changes.clear();
    assert_eq!(play.pass_left_ms(1, 1), None, "no pass before the slot is taken");
    play.pass_ms(100);
    let until = play.now.steady.plus_ms(20_000);
    let told = play.view(1).map(|view| view.state);
    assert_eq!(told, Some(TicketState::Admitted { slot: Slot { hold: Hold::Taken { until }, ..slot }, until }));
    assert_eq!(play.changes, [Change::Taken { number: number(1), until }]);
    assert_eq!(play.pass_left_ms(1, 1), Some(20_000));
}

#[test]
fn later_polls_show_the_same_slot_and_change_nothing() {
    let mut play = Play::with_slot_taken(short());
    for _ in 0..3 {
        play.pass_ms(1_000);
        assert_eq!((play.look(1).as_str(), play.news().as_str()), ("admitted", ""));
        assert_eq!(until_ms(&mut play, 1), 20_000);
    }
}

#[test]
fn the_claim_window_ends_at_its_very_instant() {
    for (passed_us, wanted) in [(9_999_999, "admitted"), (10_000_000, "waiting 0"), (10_000_001, "waiting 0")] {
        let mut play = Play::new(short());
        play.strangers(1);
        play.tick();
        play.pass_us(passed_us);
        assert_eq!(play.look(1), wanted, "after {passed_us} µs");
        assert_eq!(play.news(), if wanted == "admitted" { "taken 1" } else { "lapsed 1" });
    }
    for (passed_us, wanted) in [(9_999_999, ""), (10_000_000, "lapsed 1")] {
        let mut play = Play::new(short());
        play.strangers(1);
        play.tick();
        play.pass_us(passed_us);
        assert_eq!(play.tick().replace(", admitted 1", ""), wanted, "after {passed_us} µs");
    }
}

#[test]
fn a_lapsed_ticket_waits_like_one_passed_over_and_has_a_new_admission_later() {
    let mut play = Play::new(short());
    play.strangers(3);
    assert_eq!(play.tick(), "joined 1, joined 2, joined 3, admitted 1, reached 2");
    play.pass_ms(10_000);
    assert_eq!(play.tick(), "lapsed 1, admitted 2, reached 3", "who did not come is not offered it again at once");
    assert_eq!(play.look(1), "waiting 0");
    assert_eq!(play.look(3), "waiting 0", "one who came back is not counted ahead");
    play.pass_ms(10_000);
    assert_eq!(play.tick(), "lapsed 2, admitted 1", "back and next");
    assert_eq!((play.look(1).as_str(), play.news().as_str()), ("admitted", "taken 1"));
    assert_eq!(play.pass_left_ms(1, 1), None, "an admission that lapsed opens nothing");
    assert_eq!(play.pass_left_ms(1, 3), Some(20_000));
    assert_sound(&play.room);
}

#[test]
fn a_poll_that_comes_too_late_for_its_slot_is_next() {
    let mut play = Play::new(short());
    play.strangers(2);
    play.tick();
    play.pass_ms(10_000);
    assert_eq!((play.look(1).as_str(), play.news().as_str()), ("waiting 0", "lapsed 1"));
    assert_eq!(play.tick(), "admitted 1", "it polled, so it is before the second");
}

#[test]
fn a_taken_slot_ends_at_its_very_instant() {
    for (passed_us, wanted) in [(19_999_999, "admitted"), (20_000_000, "expired"), (20_000_001, "expired")] {
        let mut play = Play::with_slot_taken(short());
        play.pass_us(passed_us);
        assert_eq!(play.pass_left_ms(1, 1).is_some(), wanted == "admitted", "after {passed_us} µs");
        assert_eq!(play.look(1), wanted, "after {passed_us} µs");
        assert_eq!(play.news(), if wanted == "admitted" { "" } else { "expired 1" });
    }
    for (passed_us, wanted) in [(19_999_999, ""), (20_000_000, "expired 1")] {
        let mut play = Play::with_slot_taken(short());
        play.pass_us(passed_us);
        assert_eq!(play.tick(), wanted, "after {passed_us} µs");
    }
}

#[test]
fn a_slot_that_ended_is_given_to_the_next_in_the_same_tick() {
    let mut play = Play::with_slot_taken(short());
    play.strangers(1);
    play.news();
    play.pass_ms(20_000);
    assert_eq!(play.tick(), "expired 1, admitted 2, reached 3");
    assert_eq!(play.counts(), (0, 1, 2));
}

#[test]
fn a_slot_without_contact_ends_after_the_idle_time() {
    let settings = RoomSettings { idle_ttl_ms: Some(5_000), ..short() };
    for (passed_us, wanted) in [(4_999_999, "admitted"), (5_000_000, "expired")] {
        let mut play = Play::with_slot_taken(settings.clone());
        play.pass_us(passed_us);
        assert_eq!(play.pass_left_ms(1, 1).is_some(), wanted == "admitted");
        let mut play = Play::with_slot_taken(settings.clone());
        play.pass_us(passed_us);
        assert_eq!(play.look(1), wanted, "after {passed_us} µs");
        let mut play = Play::with_slot_taken(settings.clone());
        play.pass_us(passed_us);
        assert_eq!(play.tick(), if wanted == "admitted" { "" } else { "expired 1" });
    }
}

#[test]
fn polls_and_checks_of_the_pass_are_contacts_up_to_the_end_of_the_slot() {
    for by_pass in [false, true] {
        let mut play = Play::with_slot_taken(RoomSettings { idle_ttl_ms: Some(5_000), ..short() });
        for _ in 0..4 {
            play.pass_ms(4_900);
            assert_eq!(play.tick(), "", "at {} ms", play.passed_ms());
            if by_pass {
                let left = 20_000 - play.passed_ms();
                assert_eq!(play.pass_left_ms(1, 1), Some(left.min(5_000)));
            } else {
                assert_eq!(play.look(1), "admitted");
            }
        }
        play.pass_ms(400);
        assert_eq!(play.tick(), "expired 1", "no contact lengthens the slot itself");
    }
}

#[test]
fn a_wrong_pass_is_no_contact() {
    let mut play = Play::with_slot_taken(RoomSettings { idle_ttl_ms: Some(5_000), ..short() });
    play.pass_ms(4_000);
    assert_eq!((play.pass_left_ms(1, 2), play.pass_left_ms(2, 1)), (None, None));
    play.pass_ms(1_000);
    assert_eq!(play.tick(), "expired 1");
}

#[test]
fn the_idle_time_does_not_shorten_the_claim_window() {
    let mut play = Play::new(RoomSettings { idle_ttl_ms: Some(1_000), ..short() });
    play.strangers(1);
    play.tick();
    play.pass_ms(9_999);
    assert_eq!((play.look(1).as_str(), play.news().as_str()), ("admitted", "taken 1"));
}

#[test]
fn a_release_frees_the_slot_at_once_and_a_second_one_does_nothing() {
    let mut play = Play::with_slot_taken(short());
    play.strangers(1);
    play.news();
    assert_eq!(play.release(1, 2), "", "another admission");
    assert_eq!(play.release(2, 1), "", "another ticket");
    assert_eq!(play.release(1, 1), "left 1");
    assert_eq!(play.release(1, 1), "");
    assert_eq!((play.look(1).as_str(), play.pass_left_ms(1, 1)), ("left", None));
    assert_eq!(play.tick(), "admitted 2, reached 3");
    assert_eq!(play.release(2, 2), "", "an offer has no pass yet");
    assert_eq!(play.counts(), (0, 1, 2));
}

#[test]
fn a_release_that_comes_after_the_end_does_not_rewrite_it() {
    let mut play = Play::with_slot_taken(short());
    play.pass_ms(20_000);
    assert_eq!(play.release(1, 1), "expired 1");
    assert_eq!(play.look(1), "expired");
}

#[test]
fn leaving_ends_no_matter_what_there_is_once() {
    let mut play = Play::new(short());
    play.strangers(4);
    play.tick();
    assert_eq!((play.leave(3).as_str(), play.leave(3).as_str()), ("left 3", ""), "from the line");
    assert_eq!(play.look(4), "waiting 1");
    assert_eq!((play.leave(1).as_str(), play.leave(1).as_str()), ("left 1", ""), "from an offered slot");
    assert_eq!(play.tick(), "admitted 2, reached 3");
    play.look(2);
    assert_eq!(play.news(), "taken 2");
    assert_eq!((play.leave(2).as_str(), play.leave(2).as_str()), ("left 2", ""), "from a taken slot");
    assert_eq!(play.pass_left_ms(2, 2), None);
    assert_eq!(play.tick(), "admitted 4, reached 5");
    for ticket in 1..=3 {
        assert_eq!(play.look(ticket), "left");
    }
    assert_sound(&play.room);
}

#[test]
fn who_was_passed_over_may_leave_too() {
    let mut play = Play::new(RoomSettings { waiting_ttl_ms: 10 * HOUR_MS, ..ten_per_second() });
    play.strangers(2);
    play.pass_ms(30_001);
    play.tick();
    play.look(1);
    assert_eq!((play.leave(1).as_str(), play.leave(2).as_str()), ("left 1", "left 2"));
    assert!(play.room.returned.is_empty());
    assert_eq!(play.run_ms(1_000), [0_u32; 0]);
    assert!(play.room.is_idle());
}

#[test]
fn the_wall_clock_shortens_and_lengthens_nothing() {
    for by_ms in [3_600_000, -3_600_000] {
        let mut play = Play::new(RoomSettings { idle_ttl_ms: Some(15_000), ..short() });
        play.strangers(2);
        play.tick();
        play.set_wall(by_ms);
        play.pass_ms(9_999);
        assert_eq!((play.tick().as_str(), play.look(1).as_str()), ("", "admitted"));
        play.set_wall(by_ms);
        play.pass_ms(14_999);
        assert_eq!(play.look(1), "admitted");
        assert_eq!(play.news(), "taken 1");
        play.pass_ms(5_000);
        assert_eq!((play.tick().as_str(), play.pass_left_ms(1, 1)), ("", Some(1)));
        play.pass_ms(1);
        assert_eq!(play.tick(), "expired 1, admitted 2, reached 3");
        play.set_wall(by_ms);
        play.pass_ms(HOUR_MS - 30_000);
        assert_eq!(play.tick(), "lapsed 2");
        assert_eq!(play.look(2), "waiting 0");
    }
}
