//! After a loss: known tickets go on, unknown ones count nowhere, and a visitor who comes back gets the old place.

use super::twins::nothing;
use super::*;

fn until(ms: u64) -> Steady {
    start().steady.plus_ms(ms)
}

fn taken(admission: u64, ms: u64) -> Slot {
    Slot { admission, admitted_at: start().wall, hold: Hold::Taken { until: until(ms) } }
}

/// 1 is inside without a user, ann (2) is inside, 3 left, 5 expired, bob (4) was passed over, cid (8, key 8) waits. 6, 7, 9
/// and 10 are unknown. Seven is the lowest number that the line had not reached.
fn known() -> Known {
    let mut row = GoneNumbers { first_number: 1, gone: [0; 64], left: [0; 64] };
    (row.gone[0], row.left[0]) = (0b1_0100, 0b0_0100);
    Known {
        reached: 7,
        admissions: 9,
        tickets: vec![(number(2), named("ann")), (number(4), named("bob")), (number(8), keyed(named("cid"), 8, 1))],
        slots: vec![(number(1), taken(8, 20_000)), (number(2), taken(9, 30_000))],
        gone: vec![row],
        ..nothing(&RoomSettings::with_slots(2), 10)
    }
}

fn play(known: &Known) -> Play {
    let mut play = Play::new(known.settings.clone());
    play.room = Room::rebuilt(known, hasher(), start()).expect("what is known is sound");
    assert_sound(&play.room);
    play
}

impl Play {
    fn readmit(&mut self, ticket: u32, user: Option<&str>) -> String {
        let user = user.map(user_id);
        let came = self.room.readmit(number(ticket), user.as_ref(), self.now, &mut self.changes);
        assert_sound(&self.room);
        format!("{came}: {}", self.news())
    }
}

#[test]
fn what_is_known_goes_on_and_what_is_not_counts_nowhere() {
    let mut play = play(&known());
    assert_eq!((play.counts(), play.room.drawn()), ((2, 2, 6), 10));
    assert_eq!((play.pass_left_ms(1, 8), play.pass_left_ms(2, 9)), (Some(20_000), Some(30_000)));
    assert_eq!((play.look(3).as_str(), play.look(5).as_str()), ("left", "expired"));
    assert_eq!((play.look(4).as_str(), play.look(8).as_str()), ("waiting 0", "waiting 0"));
    for ticket in [6, 7, 9, 10].map(number) {
        assert!(play.room.is_unknown(ticket));
        assert_eq!(play.room.poll(ticket, play.now), Some(Poll::Decide));
        assert_eq!(play.room.decide(ticket, play.now, &mut play.changes), None);
        assert_eq!(play.room.check_pass(ticket, 0, play.now), None);
        assert!(!play.room.is_over(ticket, play.now));
    }
    assert!(![1, 2, 3, 4, 5, 8, 11].iter().any(|ticket| play.room.is_unknown(number(*ticket))));
    assert_eq!(play.try_join(&keyed(named("cid"), 8, 1)), "same request 8 waiting 0");
    assert_eq!(play.try_join(&anonymous()), "new 11 waiting 1", "no number that may have been drawn is drawn again");
    play.pass_ms(20_000);
    assert_eq!(play.tick(), "joined 11, expired 1, admitted 4");
    play.pass_ms(10_000);
    assert_eq!(play.tick(), "expired 2, admitted 8, reached 9", "the line goes on over what is unknown");
}

#[test]
fn who_comes_back_waits_under_their_number() {
    let mut play = play(&known());
    assert_eq!(play.look(8), "waiting 0");
    assert_eq!(play.readmit(7, None), "true: joined 7");
    assert_eq!((play.look(7).as_str(), play.look(8).as_str()), ("waiting 0", "waiting 1"), "a position may rise");
    assert_eq!(play.readmit(7, None), "false: ", "once");
    assert_eq!(play.readmit(10, Some("dan")), "true: joined 10");
    assert_eq!(play.try_join(&named("dan")), "same user 10 waiting 2");
    assert_eq!(play.readmit(6, Some("eve")), "true: joined 6");
    assert_eq!(play.room.user(number(6)), Some("eve"));
    assert_eq!(play.leave(1), "left 1");
    assert_eq!(play.tick(), "admitted 4", "bob was passed over, and counts as just seen");
    assert_eq!(play.leave(2), "left 2");
    assert_eq!(play.tick(), "admitted 6", "below what was reached: next");
    assert_eq!(play.leave(9), "left 9", "one may leave without coming back first");
    assert_eq!((play.look(9).as_str(), play.readmit(9, None).as_str()), ("left", "false: "));
    for known in [1, 3, 5, 8, 11] {
        assert_eq!(play.readmit(known, Some("fay")), "false: ", "{known}");
    }
}

#[test]
fn of_two_places_of_a_user_the_lower_one_stays_whichever_came_first() {
    let rows = [
        // The number, the user, the expected changes, and the lower number of both.
        (6, "cid", "true: left 8, joined 6", 6),
        (9, "cid", "false: left 9", 8),
        (9, "ann", "false: left 9", 2),
        (10, "bob", "false: left 10", 4),
    ];
    for (ticket, user, wanted, stays) in rows {
        let mut play = play(&known());
        assert_eq!(play.readmit(ticket, Some(user)), wanted, "{user} with {ticket}");
        assert_eq!(play.room.line.of_user(user), Some(stays));
        assert!(!play.room.is_unknown(number(ticket)));
    }
    for order in [[6, 9, 10], [10, 9, 6], [9, 6, 10], [9, 10, 6]] {
        let mut play = play(&known());
        order.iter().for_each(|ticket| drop(play.readmit(*ticket, Some("dan"))));
        assert_eq!(play.room.line.of_user("dan"), Some(6), "{order:?}");
        assert_eq!((play.look(9).as_str(), play.look(10).as_str()), ("left", "left"));
    }
    // The user's other place is over, so it does not count.
    let mut play = play(&known());
    play.pass_ms(30_000);
    assert_eq!(play.readmit(9, Some("ann")), "true: expired 2, joined 9");
}

#[test]
fn no_visitor_is_admitted_before_the_grace_is_over() {
    let settings = ten_per_second();
    let mut play = play(&Known { grace_until: Some(until(5_000)), ..nothing(&settings, 100) });
    assert_eq!(play.strangers(1), [101]);
    play.news();
    assert_eq!(play.run_ms(2_000), [0; 0]);
    let TicketState::Waiting { wait_ms, .. } = play.view(101).unwrap().state else { panic!("it waits") };
    assert_eq!(wait_ms, Some(3_100), "what is left of the grace counts");
    assert_eq!(play.readmit(50, None), "true: joined 50");
    assert_eq!(play.run_ms(2_950), [0; 0]);
    assert_eq!(play.room.next_tick_us(), None);
    assert_eq!(play.run_ms(50), [50, 101], "who came back in time is in front");
}

#[test]
fn a_time_in_which_no_visitor_was_there_says_nothing_about_the_speed_of_the_line() {
    let mut play = play(&nothing(&ten_per_second(), 10));
    play.strangers(2);
    play.tick();
    assert_eq!((play.leave(11).is_empty(), play.leave(12).is_empty(), play.room.was_busy), (false, false, true));
    assert!(play.room.is_idle());
    play.pass_ms(HOUR_MS);
    assert_eq!(play.readmit(5, None), "true: joined 5");
    assert!(!play.room.was_busy, "nobody ticked for an hour");
}

#[test]
fn an_unknown_number_costs_bits_until_a_visitor_comes_back_beside_it() {
    const MANY: u32 = 100 * 4_096 + 10;
    let mut play = play(&nothing(&RoomSettings { waiting_ttl_ms: HOUR_MS, ..RoomSettings::with_slots(1) }, MANY));
    assert_eq!(play.room.line.kept_segments(), 0);
    assert!(play.room.line.bytes() < 101 * 3_000, "{} bytes", play.room.line.bytes());
    assert_eq!(play.readmit(5 * 4_096, Some("ann")), format!("true: joined {}", 5 * 4_096));
    assert_eq!(play.readmit(5 * 4_096 - 9, Some("a-longer-name")), format!("true: joined {}", 5 * 4_096 - 9));
    assert_eq!(play.readmit(5 * 4_096 - 4, None), format!("true: joined {}", 5 * 4_096 - 4));
    assert_eq!(play.readmit(5 * 4_096 - 5, Some("bob")), format!("true: joined {}", 5 * 4_096 - 5));
    assert_eq!(play.room.line.kept_segments(), 1);
    let users = [0, 4, 5, 9].map(|back| play.room.user(number(5 * 4_096 - back)));
    assert_eq!(users, [Some("ann"), None, Some("bob"), Some("a-longer-name")]);
    assert_eq!(play.stranger().number, number(MANY + 1));
    assert_eq!(play.room.line.kept_segments(), 2);
    let again = Room::from_image(&play.room.image(), hasher()).unwrap();
    assert_eq!((again.line.kept_segments(), again.line.unknown()), (2, MANY - 4));
    assert_eq!(again.user(number(5 * 4_096)), Some("ann"));
    // The sweep finds all of them once they are silent, and their columns go.
    play.put(&paused(RoomSettings::with_slots(1)));
    play.tick();
    play.pass_ms(HOUR_MS);
    play.news();
    (0..10).for_each(|_| play.room.tick(play.now, &mut play.changes));
    assert_eq!(play.changes.len(), 5, "{:?}", play.changes);
    assert_sound(&play.room);
    // And once more after that.
    play.news();
    assert_eq!(play.readmit(5 * 4_096 - 1, None), format!("true: joined {}", 5 * 4_096 - 1));
    play.tick();
    play.pass_ms(HOUR_MS);
    assert_eq!(play.tick(), format!("expired {}", 5 * 4_096 - 1));
}

#[test]
fn what_is_known_and_breaks_a_rule_is_named() {
    type Harm = fn(&mut Known);
    let rows: [(Harm, Damage); 13] = [
        (|it| it.ceiling = 7, Damage::Ticket),
        (|it| it.ceiling = u32::MAX, Damage::Reached),
        (|it| (it.first, it.ceiling) = (12, 10), Damage::Reached),
        (|it| it.first = 3, Damage::Ticket),
        (|it| it.reached = 12, Damage::Reached),
        (|it| it.reached = 2, Damage::Reached),
        (|it| it.admissions = 8, Damage::Slot),
        (|it| it.tickets.push((number(3), named("dan"))), Damage::Ticket),
        (|it| it.tickets.push((number(9), named("ann"))), Damage::Ticket),
        (|it| it.tickets.push((number(9), keyed(anonymous(), 8, 2))), Damage::Ticket),
        (|it| it.tickets.push((number(2), anonymous())), Damage::Ticket),
        (|it| it.slots.push((number(1), taken(9, 1))), Damage::Slot),
        (|it| it.gone.push(GoneNumbers { first_number: 8, gone: [8; 64], left: [0; 64] }), Damage::Ticket),
    ];
    for (row, (harm, wanted)) in rows.into_iter().enumerate() {
        let mut known = known();
        harm(&mut known);
        assert_eq!(Room::rebuilt(&known, hasher(), start()).err(), Some(wanted), "row {row}");
    }
}

#[test]
fn a_closed_room_comes_back_closed_and_numbers_before_the_first_stay_void() {
    let mut play = play(&Known { standing: RoomPhase::Closed, ..known() });
    assert_eq!((play.counts(), play.try_join(&anonymous())), ((0, 0, 10), "room_closed".to_owned()));
    assert_eq!((play.look(6).as_str(), play.readmit(6, None).as_str()), ("expired", "false: "));
    play.put(&ten_per_second());
    assert_eq!(play.try_join(&anonymous()), "new 11 waiting 0");
    let mut row = GoneNumbers { first_number: 1, gone: [0; 64], left: [0; 64] };
    row.gone[0] = 0b1_0111_1110;
    let mut play = self::play(&Known { first: 8, reached: 8, gone: vec![row], ..nothing(&ten_per_second(), 12) });
    assert_eq!((play.look(7).as_str(), play.look(9).as_str()), ("expired", "expired"));
    assert!(!play.room.is_unknown(number(7)) && play.room.is_unknown(number(8)) && play.room.is_unknown(number(12)));
}
