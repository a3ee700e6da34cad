//! The cost of waiting visitors: bytes for each, and no work for a tick.

use super::*;

#[test]
fn a_waiting_ticket_with_a_user_of_16_bytes_costs_at_most_64_bytes() {
    const MANY: u32 = 1_000_000;
    let mut play = Play::new(RoomSettings { max_waiting: 2 * MANY, ..RoomSettings::with_slots(1) });
    for ticket in 1..=MANY {
        play.try_join_quietly(&named(&format!("user-{ticket:011}")));
    }
    play.room.tick(play.now, &mut play.changes);
    let each = play.room.line.bytes() as f64 / f64::from(MANY);
    assert!((30.0..64.0).contains(&each), "{each} bytes each");
}

impl Play {
    fn try_join_quietly(&mut self, join: &Join) {
        assert!(matches!(self.room.join(join, self.now, &mut self.changes), Ok(Joined::New(_))));
        self.changes.clear();
    }

    /// Returns how many changes the tick made, and how far the line went.
    fn work(&mut self) -> (usize, u32) {
        let before = self.room.line.reached();
        self.changes.clear();
        self.room.tick(self.now, &mut self.changes);
        (self.changes.len(), self.room.line.reached() - before)
    }
}

#[test]
fn a_row_of_a_million_absent_people_is_passed_in_bounded_ticks() {
    const MANY: u32 = 1_000_000;
    let mut play = Play::new(RoomSettings { max_active: Some(1), ..RoomSettings::with_slots(1) });
    play.strangers(MANY - 1);
    // One visitor in each segment has a long poll interval, so that the search cannot skip a whole segment.
    let later = play.now.steady.plus_ms(100_000);
    for ticket in (1..MANY).step_by(4_096) {
        play.room.line.touch(ticket, later, 1_000_000);
        play.leave(ticket);
    }
    play.pass_ms(400_000);
    let last = play.stranger().number.get();
    let mut ticks = 0;
    while play.counts().1 == 0 {
        let (changes, passed) = play.work();
        assert!(changes <= 2 && passed <= SEARCH_TICKETS_MAX + 4_096, "{changes} and {passed} in one tick");
        ticks += 1;
    }
    assert!((15..=17).contains(&ticks), "{ticks} ticks");
    assert_eq!(play.look(last), "admitted");
    assert_eq!(play.counts(), (MANY - 1 - (MANY - 1).div_ceil(4_096), 1, last));
}

#[test]
fn a_million_who_came_back_and_are_silent_again_are_looked_at_in_bounded_ticks() {
    const MANY: u32 = 200_000;
    let mut play = Play::new(RoomSettings { waiting_ttl_ms: 7 * DAY_MS, ..RoomSettings::with_slots(1) });
    play.strangers(MANY);
    play.room.restore_reached(MANY + 1, 0).unwrap();
    play.room.restored(RoomPhase::Running);
    assert_eq!(play.room.returned.len(), MANY as usize);
    play.pass_ms(3_600_000);
    for ticks in 1..=4 {
        assert_eq!(play.work(), (0, 0));
        let left = MANY.saturating_sub(ticks * SEARCH_TICKETS_MAX);
        assert_eq!(play.room.returned.len(), left as usize);
    }
    assert_eq!(play.look(5), "waiting 0");
    assert_eq!(play.tick(), "admitted 5");
}

#[test]
fn a_sweep_ends_a_bounded_number_and_all_in_the_end() {
    const MANY: u32 = 300_000;
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(MANY);
    assert_eq!(play.work(), (0, 0));
    play.pass_ms(HOUR_MS);
    let (mut gone, mut ticks) = (0, 0);
    while !play.room.is_idle() {
        let (changes, _) = play.work();
        assert!(0 < changes && changes <= 4 * 4_096, "{changes} in one tick");
        gone += changes;
        ticks += 1;
    }
    assert_eq!((gone, ticks), (MANY as usize, MANY.div_ceil(4 * 4_096)));
    assert_eq!(play.room.line.kept_segments(), 1, "only the last segment is still added to");
    assert_sound(&play.room);
}

#[test]
fn slots_that_end_together_end_in_bounded_ticks_and_their_passes_at_once() {
    const MANY: u32 = 20_000;
    let mut play = Play::new(RoomSettings { active_ttl_ms: 10_000, ..RoomSettings::with_slots(MANY) });
    play.strangers(MANY);
    play.room.tick(play.now, &mut play.changes);
    (1..=MANY).for_each(|ticket| drop(play.look(ticket)));
    play.pass_ms(10_000);
    assert_eq!(play.pass_left_ms(MANY, MANY.into()), None);
    let mut ticks = 0;
    while !play.room.is_idle() {
        let (changes, _) = play.work();
        assert!(0 < changes && changes <= ENDS_PER_TICK_MAX, "{changes} in one tick");
        ticks += 1;
    }
    assert!((5..=6).contains(&ticks), "{ticks} ticks");
}

#[test]
fn polls_and_checks_leave_nothing_behind_that_grows() {
    let settings = RoomSettings { idle_ttl_ms: Some(1_000), ..RoomSettings::with_slots(1) };
    let mut play = Play::with_slot_taken(settings);
    play.strangers(1);
    let before = play.room.line.bytes();
    for _ in 0..10_000 {
        play.pass_ms(100);
        play.room.tick(play.now, &mut play.changes);
        play.look(1);
        play.look(2);
        play.pass_left_ms(1, 1);
    }
    assert!(play.room.slots.entries() <= 2, "{} ends of one slot", play.room.slots.entries());
    assert!(play.room.returned.is_empty());
    assert!(play.room.line.bytes() <= before + 64, "{} bytes after {before}", play.room.line.bytes());
}

#[test]
fn a_room_through_which_people_pass_keeps_only_bits_of_those_who_are_gone() {
    let mut play = Play::new(RoomSettings { active_ttl_ms: 1_000, ..RoomSettings::with_slots(1_000) });
    let mut most = 0;
    for _ in 0..200 {
        for _ in 0..1_000 {
            let ticket = play.room.drawn() + 1;
            play.try_join_quietly(&keyed(named(&format!("u{ticket}")), u128::from(ticket) << 32 | 7, 1));
        }
        let admitted = play.run_ms(50);
        admitted.iter().for_each(|&ticket| drop(play.look(ticket)));
        let last = play.room.admissions - admitted.len() as u64;
        for (index, &ticket) in admitted.iter().enumerate() {
            play.release(ticket, last + index as u64 + 1);
        }
        assert!(play.room.line.kept_segments() <= 2);
        most = most.max(play.room.slots.entries());
        play.pass_ms(500);
    }
    assert!(play.room.is_idle());
    assert_eq!(play.room.drawn(), 200_000);
    // The entry of an offer that was taken and given back stays until its window would have ended.
    assert!(most <= 1_000 * 60_000 / 550 + 4_000, "{most} ends are noted");
}

/// The draw copies no ticket: it costs a bit and some table for each of very many.
#[test]
fn a_draw_costs_at_most_half_a_byte_for_each_entrant_and_one_change() {
    const MANY: u32 = 1_000_000;
    let opens_at = Some(Timestamp::clamped_us(WALL_US + 1_000_000));
    let settings =
        RoomSettings { max_waiting: 2 * MANY, opens_at, order: RoomOrder::Draw, ..RoomSettings::with_slots(1) };
    let mut play = Play::new(paused(settings));
    play.strangers(MANY);
    let before = play.room.line.bytes();
    play.pass_ms(1_000);
    assert_eq!(play.work().0, 1);
    let each = (play.room.line.bytes() - before) as f64 / f64::from(MANY);
    assert!(each <= 0.5, "{each} bytes each");
}
