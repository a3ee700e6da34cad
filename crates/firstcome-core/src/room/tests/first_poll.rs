//! A visitor who never polls loses the place within minutes, and no other visitor does.

use super::*;

const TWO_MINUTES_MS: u64 = 120_000;

fn asking() -> RoomSettings {
    RoomSettings { first_poll_ms: Some(TWO_MINUTES_MS), ..paused(ten_per_second()) }
}

/// Reads the room from its image, as another node does.
fn reload(play: &mut Play) {
    play.room = Room::from_image(&play.room.image(), hasher()).expect("an image of a room").with_draw_key(draw_key());
}

/// Restores the room from rows: all tickets of these users wait.
fn restart(play: &mut Play, users: &[&str]) {
    let mut room = Room::restoring(play.room.settings().clone(), hasher(), play.now, 1);
    for (at, user) in users.iter().enumerate() {
        room.restore_ticket(number(at as u32 + 1), &named(user), None, play.now).unwrap();
    }
    room.restore_reached(1, 0).unwrap();
    room.restored(RoomPhase::Running);
    play.room = room;
}

#[test]
fn a_ticket_that_never_polled_ends_at_the_very_millisecond() {
    for (silent_ms, wanted) in
        [(TWO_MINUTES_MS - 1, "waiting 0"), (TWO_MINUTES_MS, "expired"), (TWO_MINUTES_MS + 1, "expired")]
    {
        let mut play = Play::new(asking());
        play.strangers(1);
        play.news();
        play.pass_ms(silent_ms);
        let peeked = play.room.peek(number(1), play.now);
        assert_eq!(peeked == Some(Poll::Decide), wanted == "expired", "{silent_ms} ms after the join: {peeked:?}");
        assert_eq!(play.look(1), wanted, "{silent_ms} ms after the join");
        assert_eq!(play.news(), if wanted == "expired" { "expired 1" } else { "" });
        assert_eq!(play.room.unpolled_count(), u64::from(wanted == "expired"));
    }
}

#[test]
fn a_poll_in_time_makes_a_ticket_an_ordinary_one() {
    let mut play = Play::new(asking());
    play.strangers(1);
    assert!(play.room.awaits_first_poll(number(1)));
    play.pass_ms(TWO_MINUTES_MS - 1);
    assert_eq!(play.look(1), "waiting 0");
    assert!(!play.room.awaits_first_poll(number(1)));
    play.pass_ms(HOUR_MS - 1);
    assert_eq!(
        (play.tick().as_str(), play.look(1).as_str()),
        ("joined 1", "waiting 0"),
        "silence counts by its own time"
    );
    play.pass_ms(HOUR_MS);
    assert_eq!((play.look(1).as_str(), play.room.unpolled_count()), ("expired", 0));
}

#[test]
fn every_contact_counts_as_a_poll() {
    type Touch = fn(&mut Play);
    let contacts: [(&str, Touch); 8] = [
        ("poll", |play| assert!(play.room.poll(number(1), play.now).is_some())),
        ("decision", |play| assert!(play.room.decide(number(1), play.now, &mut play.changes).is_some())),
        ("stream", |play| assert!(play.room.sight(number(1), Contact::Made, play.now).is_some())),
        ("contact of a log", |play| play.room.contact(number(1), play.now)),
        ("bit of a log", |play| play.room.alive(1, &std::array::from_fn(|word| u64::from(word == 0)), play.now)),
        ("renewal", |play| {
            let renewed = play.room.renew(TicketId::first(number(1)), RenewalKey::new(1), play.now, &mut play.changes);
            assert!(renewed.is_ok());
        }),
        ("repeat of the user", |play| assert_eq!(play.try_join(&named("ann")), "same user 1 waiting 0")),
        ("repeat of the request", |play| {
            assert_eq!(play.try_join(&keyed(named("ann"), 1, 1)), "same request 1 waiting 0");
        }),
    ];
    for (what, contact) in contacts {
        let mut play = Play::new(asking());
        play.try_join(&keyed(named("ann"), 1, 1));
        play.pass_ms(TWO_MINUTES_MS - 1);
        contact(&mut play);
        play.pass_ms(HOUR_MS - 1);
        play.news();
        assert_eq!((play.tick().as_str(), play.look(1).as_str()), ("", "waiting 0"), "{what}");
    }
}

#[test]
fn a_look_without_a_contact_is_no_poll() {
    let mut play = Play::new(asking());
    play.strangers(1);
    play.pass_ms(TWO_MINUTES_MS - 1);
    assert!(play.room.peek(number(1), play.now).is_some());
    assert!(play.room.sight(number(1), Contact::None, play.now).is_some());
    play.pass_ms(1);
    assert_eq!(play.look(1), "expired");
}

#[test]
fn after_the_time_no_contact_brings_a_ticket_back() {
    let mut play = Play::new(asking());
    play.try_join(&named("ann"));
    play.pass_ms(TWO_MINUTES_MS);
    play.room.contact(number(1), play.now);
    play.room.alive(1, &[u64::MAX; 64], play.now);
    assert_eq!(play.try_join(&named("ann")), "new 2 waiting 0", "the user may join again");
    assert_eq!((play.look(1).as_str(), play.news().as_str()), ("expired", "joined 1, expired 1, joined 2"));
}

#[test]
fn without_the_setting_no_ticket_ends_early() {
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(1);
    play.tick();
    play.pass_ms(HOUR_MS - 1);
    assert_eq!((play.tick().as_str(), play.look(1).as_str()), ("", "waiting 0"));
}

#[test]
fn a_flood_of_joins_frees_the_line_for_others_by_ticks_alone() {
    const MANY: u32 = 40_000;
    let settings = RoomSettings { max_waiting: MANY, ..asking() };
    let mut play = Play::new(settings);
    play.strangers(MANY - 1);
    assert_eq!(play.try_join(&named("ann")), format!("new {MANY} waiting {}", MANY - 1));
    assert_eq!(play.try_join(&named("bob")), "room_full");
    play.tick();
    play.run_ms(60_000);
    play.look(MANY);
    play.run_ms(TWO_MINUTES_MS - 60_000 - 50);
    assert_eq!(play.counts().0, MANY, "50 ms before the end");
    play.run_ms(50 * u64::from(MANY.div_ceil(4 * 4_096)));
    assert_eq!(play.counts().0, 1, "all others are gone");
    assert_eq!(play.room.unpolled_count(), u64::from(MANY) - 1);
    assert_eq!((play.look(MANY).as_str(), play.try_join(&named("bob")).as_str()), ("waiting 0", "new 40001 waiting 1"));
    assert_sound(&play.room);
}

#[test]
fn a_steady_flow_of_joins_is_swept_a_quarter_of_the_time_late_at_most() {
    let mut play = Play::new(asking());
    for joined in 0..4 * TWO_MINUTES_MS / 500 {
        play.strangers(1);
        play.run_ms(500);
        let kept_ms = 500 * u64::from(play.counts().0);
        assert!(kept_ms <= TWO_MINUTES_MS * 5 / 4 + 500, "{kept_ms} ms of joins are in line after {joined}");
    }
    assert!(play.room.unpolled_count() > 2 * TWO_MINUTES_MS / 500);
}

/// Otherwise each join would bring a look at all tickets of its segment.
#[test]
fn sweeps_of_a_segment_are_a_quarter_of_the_time_apart_at_least() {
    let mut play = Play::new(asking());
    play.tick();
    let mut sweeps = Vec::new();
    for _ in 0..4 * TWO_MINUTES_MS / 100 {
        play.strangers(1);
        let due = play.room.line.next_sweep();
        play.run_ms(100);
        if due.is_some() && play.room.line.next_sweep() != due {
            sweeps.push(play.passed_ms());
        }
    }
    let apart = sweeps.windows(2).map(|two| two[1] - two[0]).min();
    assert!(sweeps.len() > 8 && apart >= Some(TWO_MINUTES_MS / 4), "{sweeps:?}");
}

#[test]
fn a_closed_room_that_opens_again_still_asks() {
    let mut play = Play::new(asking());
    play.strangers(1);
    play.room.close();
    play.put(&asking());
    let ticket = play.stranger().number.get();
    play.pass_ms(TWO_MINUTES_MS);
    assert_eq!(play.look(ticket), "expired");
}

#[test]
fn one_tick_ends_no_more_than_four_segments_of_a_flood() {
    const MANY: u32 = 100_000;
    let mut play = Play::new(asking());
    play.strangers(MANY);
    play.tick();
    play.pass_ms(TWO_MINUTES_MS);
    let mut ticks = 0;
    while play.counts().0 != 0 {
        play.changes.clear();
        play.room.tick(play.now, &mut play.changes);
        assert!(play.changes.len() <= 4 * 4_096, "{} changes in one tick", play.changes.len());
        ticks += 1;
        assert!(ticks < MANY, "a tick ends none");
    }
    assert_eq!(ticks, MANY.div_ceil(4 * 4_096));
}

#[test]
fn a_ticket_that_lapsed_without_a_poll_ends_too() {
    let settings = RoomSettings { first_poll_ms: Some(TWO_MINUTES_MS), ..RoomSettings::with_slots(1) };
    let mut play = Play::new(settings);
    play.strangers(1);
    assert_eq!(play.tick(), "joined 1, admitted 1, reached 2");
    play.pass_ms(60_000);
    assert_eq!(play.tick(), "lapsed 1");
    play.pass_ms(60_000);
    assert_eq!(play.tick(), "expired 1");
    let mut play = Play::new(RoomSettings { claim_window_ms: 600_000, ..play.room.settings().clone() });
    play.strangers(1);
    play.tick();
    play.pass_ms(2 * TWO_MINUTES_MS);
    assert_eq!((play.tick().as_str(), play.look(1).as_str()), ("", "admitted"), "an offer has its own time");
}

#[test]
fn the_join_asks_for_a_poll_within_half_of_the_time() {
    for (first_poll_ms, wanted_ms) in [(None, 48_000..=72_000), (Some(60_000), 30_000..=30_000), (Some(100), 50..=50)] {
        let mut play = Play::new(RoomSettings { first_poll_ms, ..RoomSettings::with_rate(1, 600_000) });
        play.strangers(20);
        let told_ms = play.stranger().poll_after_ms;
        assert!(wanted_ms.contains(&told_ms), "{told_ms} ms with {first_poll_ms:?}");
    }
}

#[test]
fn it_counts_before_the_opening_and_before_a_draw() {
    let opens_at = Some(Timestamp::clamped_us(WALL_US + 600_000_000));
    let settings = RoomSettings {
        opens_at,
        order: RoomOrder::Draw,
        first_poll_ms: Some(TWO_MINUTES_MS),
        ..RoomSettings::with_slots(1)
    };
    let mut play = Play::new(settings);
    play.strangers(3);
    play.tick();
    play.run_ms(60_000);
    assert_eq!(play.look(2), "in the draw of 3");
    play.run_ms(60_000);
    assert_eq!(play.look(2), "in the draw of 1", "the others are out");
    play.run_ms(460_000);
    play.look(2);
    play.run_ms(20_000);
    assert_eq!(play.look(2), "admitted");
    for gone in [1, 3] {
        assert_eq!(play.look(gone), "expired");
    }
}

#[test]
fn a_restart_gives_every_visitor_the_time_afresh() {
    let mut play = Play::new(asking());
    play.try_join(&named("ann"));
    play.try_join(&named("bob"));
    play.pass_ms(TWO_MINUTES_MS - 1);
    play.look(2);
    restart(&mut play, &["ann", "bob"]);
    play.pass_ms(TWO_MINUTES_MS - 1);
    assert_eq!((play.tick().as_str(), play.look(1).as_str()), ("joined 1, joined 2", "waiting 0"));
    play.pass_ms(1);
    assert_eq!(play.look(2), "expired", "the rows do not say that the visitor has polled");
    assert_eq!(play.look(1), "waiting 0");
    play.pass_ms(HOUR_MS - 1);
    assert_eq!(play.look(1), "waiting 0");
}

#[test]
fn a_room_that_is_restored_without_a_ticket_asks_at_once() {
    let mut play = Play::new(RoomSettings { first_poll_ms: Some(1_000), ..asking() });
    restart(&mut play, &[]);
    play.strangers(1);
    play.pass_ms(1_000);
    assert_eq!(play.look(1), "expired");
    // As a node of a cluster makes a new room.
    play.room = Room::rebuilt(&super::twins::nothing(play.room.settings(), 0), hasher(), play.now).unwrap();
    play.strangers(1);
    play.pass_ms(1_000);
    assert_eq!(play.look(1), "expired");
}

#[test]
fn a_restart_leaves_more_than_a_poll_interval_even_if_the_time_is_shorter() {
    let mut play = Play::new(RoomSettings { first_poll_ms: Some(1_000), ..asking() });
    play.try_join(&named("ann"));
    restart(&mut play, &["ann"]);
    // The memory says that the visitor is absent.
    let absent = Memory { first_number: 1, bytes: vec![0; 1].into() };
    play.room.recall(&absent, play.now);
    play.run_ms(89_950);
    assert_eq!(play.counts().0, 1);
    play.run_ms(300);
    assert_eq!((play.counts().0, play.look(1).as_str()), (0, "expired"));
}

#[test]
fn memory_of_presence_is_no_poll() {
    let mut play = Play::new(asking());
    play.try_join(&named("ann"));
    restart(&mut play, &["ann"]);
    play.room.recall(&Memory { first_number: 1, bytes: vec![200; 1].into() }, play.now);
    play.pass_ms(TWO_MINUTES_MS - 1);
    assert!(play.room.awaits_first_poll(number(1)));
    play.tick();
    play.pass_ms(1);
    assert_eq!(play.look(1), "expired");
}

#[test]
fn a_loss_and_a_standstill_take_no_time_away() {
    let mut play = Play::new(asking());
    play.strangers(2);
    play.tick();
    play.pass_ms(TWO_MINUTES_MS - 1);
    play.room.tick(play.now, &mut play.changes);
    // No contact could arrive for an hour.
    play.pass_ms(HOUR_MS / 2);
    play.room.resumed(play.now);
    assert_eq!(play.tick(), "");
    play.room.lose_end(10, play.now.steady, play.now);
    play.pass_ms(TWO_MINUTES_MS - 1);
    assert_eq!((play.tick().as_str(), play.look(1).as_str()), ("", "waiting 0"));
    play.pass_ms(1);
    assert_eq!(play.look(2), "expired");
    assert!(play.room.readmit(number(5), None, play.now, &mut play.changes), "a visitor comes with the ticket");
    assert!(!play.room.awaits_first_poll(number(5)), "which is a contact");
}

#[test]
fn a_standstill_delays_the_time_afresh_too() {
    // Shorter than the time afresh, which alone keeps the ticket then.
    let mut play = Play::new(RoomSettings { first_poll_ms: Some(1_000), ..asking() });
    play.try_join(&named("ann"));
    restart(&mut play, &["ann"]);
    play.tick();
    play.pass_ms(HOUR_MS);
    play.room.resumed(play.now);
    play.run_ms(89_950);
    assert_eq!(play.counts().0, 1);
    play.run_ms(300);
    assert_eq!((play.counts().0, play.look(1).as_str()), (0, "expired"));
}

#[test]
fn switched_on_it_counts_from_then_for_all_in_line_and_off_it_ends_no_ticket() {
    let off = RoomSettings { first_poll_ms: None, ..asking() };
    let mut play = Play::new(off.clone());
    play.strangers(3);
    play.run_ms(600_000);
    play.look(1);
    play.put(&asking());
    play.run_ms(TWO_MINUTES_MS - 50);
    assert_eq!((play.counts().0, play.look(2).as_str()), (3, "waiting 1"));
    play.put(&off);
    play.run_ms(HOUR_MS / 2);
    assert_eq!(play.counts().0, 3, "and is forgotten");
    play.put(&asking());
    play.run_ms(60_000);
    play.look(3);
    play.run_ms(60_000);
    assert_eq!((play.counts().0, play.look(3).as_str()), (1, "waiting 0"));
}

#[test]
fn another_time_gives_those_who_have_not_polled_the_time_afresh() {
    let shorter = RoomSettings { first_poll_ms: Some(100_000), ..asking() };
    let mut play = Play::new(asking());
    play.strangers(2);
    play.pass_ms(TWO_MINUTES_MS - 50);
    play.look(2);
    play.put(&shorter);
    play.put(&shorter);
    play.run_ms(100_000 - 50);
    assert_eq!(play.counts().0, 2);
    play.put(&RoomSettings { message: Some("hello".into()), ..shorter });
    play.run_ms(50);
    assert_eq!((play.counts().0, play.look(2).as_str()), (1, "waiting 0"), "other settings change nothing");
}

#[test]
fn it_costs_no_byte_for_a_ticket() {
    const MANY: u32 = 10_000;
    let [without, with] = [None, Some(TWO_MINUTES_MS)].map(|first_poll_ms| {
        let mut play = Play::new(RoomSettings { first_poll_ms, ..paused(ten_per_second()) });
        play.strangers(MANY);
        (play.room.line.bytes(), play.room.image().len())
    });
    assert_eq!(without.0, with.0, "bytes in memory");
    assert!(with.1 <= without.1 + 16, "bytes of an image: {} and {}", without.1, with.1);
}

#[test]
fn an_image_keeps_who_has_polled_and_the_time_afresh() {
    let mut play = Play::new(asking());
    play.try_join(&named("ann"));
    play.try_join(&named("bob"));
    restart(&mut play, &["ann", "bob"]);
    play.pass_ms(60_000);
    play.look(2);
    reload(&mut play);
    assert_eq!([1, 2].map(|ticket| play.room.awaits_first_poll(number(ticket))), [true, false]);
    play.pass_ms(60_000 - 1);
    assert_eq!(play.room.peek(number(1), play.now).map(|poll| poll == Poll::Decide), Some(false));
    play.pass_ms(1);
    assert_eq!((play.look(1).as_str(), play.look(2).as_str()), ("expired", "waiting 0"));
}

#[test]
fn without_the_setting_images_have_the_bytes_that_they_always_had() {
    let [off, on] = [None, Some(TWO_MINUTES_MS)].map(|first_poll_ms| {
        let mut play = Play::new(RoomSettings { first_poll_ms, ..paused(ten_per_second()) });
        play.strangers(1);
        play.room.image()
    });
    // Behind the version, the rate, five numbers and three options.
    let flags_at = 21;
    assert_eq!((off[flags_at], on[flags_at]), (1, 5), "a program that does not know the bit refuses the image");
    // Without the bit, this image can be read.
    let mut later = off;
    later[flags_at] = 8 | 1;
    assert_eq!(Room::from_image(&later, hasher()).err(), Some(ImageError::Value("flag")));
    // The bit of a ticket in a room without the setting.
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(1);
    play.room.line.await_first_poll(1);
    assert_eq!(Room::from_image(&play.room.image(), hasher()).err(), Some(ImageError::Value("poll interval")));
}
