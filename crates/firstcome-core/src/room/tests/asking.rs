//! A poll has an answer and a contact, and a replica takes only the answer.

use super::*;

fn alive(numbers: &[u32]) -> [u64; 64] {
    let mut bits = [0; 64];
    numbers.iter().for_each(|it| bits[(*it as usize - 1) / 64] |= 1 << ((it - 1) % 64));
    bits
}

#[test]
fn a_peek_changes_nothing_and_a_contact_what_a_poll_changes() {
    let scene = || {
        let settings = RoomSettings { idle_ttl_ms: Some(20_000), ..RoomSettings::with_slots(2) };
        let mut play = Play::new(settings);
        play.strangers(2);
        play.tick();
        play.look(1);
        play.strangers(2);
        play.leave(4);
        play.pass_ms(10_000);
        play
    };
    let (mut polled, mut peeked) = (scene(), scene());
    let told = |view: Option<Poll>| format!("{view:?}");
    for ticket in [1, 2, 3, 4, 5].map(number) {
        let before = peeked.room.image();
        assert_eq!(told(peeked.room.peek(ticket, peeked.now)), told(polled.room.poll(ticket, polled.now)));
        // The end as if this were a contact, which extends the idle time-out.
        let until = Some(peeked.now.steady.plus_ms(20_000)).filter(|_| ticket == number(1));
        assert_eq!(peeked.room.peek_pass(ticket, 1, peeked.now), until);
        assert!(peeked.room.image() == before, "{ticket:?}");
        peeked.room.contact(ticket, peeked.now);
        let is_known_there = ticket == number(1) || ticket == number(3);
        assert_eq!(peeked.room.image() != before, is_known_there, "only who waits or is inside: {ticket:?}");
        assert!(peeked.room.image() == polled.room.image(), "{ticket:?}");
    }
    assert_eq!(peeked.pass_left_ms(1, 1), Some(20_000), "the contact counts for the idle time-out");
}

#[test]
fn a_contact_brings_back_who_was_passed_over() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    play.strangers(2);
    play.pass_ms(300_000);
    play.leave(1);
    assert_eq!(play.tick(), "reached 4");
    play.room.contact(number(3), play.now);
    assert_eq!(play.tick(), "admitted 3");
}

#[test]
fn who_is_silent_for_too_long_or_gone_is_not_brought_back_by_a_contact() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    play.strangers(2);
    play.leave(3);
    play.pass_ms(HOUR_MS);
    let before = play.room.image();
    play.room.contact(number(2), play.now);
    play.room.contact(number(3), play.now);
    play.room.contact(number(4), play.now);
    play.room.alive(1, &[u64::MAX; 64], play.now);
    assert!(play.room.image() == before);
    assert_eq!((play.look(2).as_str(), play.look(3).as_str()), ("expired", "left"));
}

#[test]
fn a_row_of_contacts_keeps_those_of_its_bits_who_wait() {
    const MANY: u32 = 4_096 + 100;
    let mut play = Play::with_slot_taken(RoomSettings { active_ttl_ms: DAY_MS, ..RoomSettings::with_slots(1) });
    play.strangers(MANY - 1);
    play.leave(7);
    play.pass_ms(HOUR_MS / 2);
    play.room.alive(1, &alive(&[1, 2, 7, 4_096]), play.now);
    play.room.alive(4_097, &alive(&[1, 100, 101, 4_096]), play.now);
    play.pass_ms(HOUR_MS / 2);
    assert_eq!(play.look(4_096), "waiting 4093");
    assert_eq!(play.look(3), "expired");
    let there: Vec<u32> = (2..=MANY).filter(|ticket| play.look(*ticket).starts_with("waiting")).collect();
    assert_eq!(there, [2, 4_096, 4_097, MANY]);
    play.room.alive(u32::MAX - 3, &[u64::MAX; 64], play.now);
    assert_sound(&play.room);
}

#[test]
fn a_row_of_contacts_keeps_the_interval_and_brings_back_who_was_passed_over() {
    let mut play = Play::with_slot_taken(RoomSettings { active_ttl_ms: HOUR_MS, ..RoomSettings::with_slots(1) });
    play.strangers(10);
    let polled_ms = u64::from(play.view(11).unwrap().poll_after_ms);
    assert!(30_000 < polled_ms * 3);
    play.pass_ms(3 * polled_ms + 60_000);
    play.leave(1);
    assert_eq!(play.tick(), "reached 12");
    play.room.alive(1, &alive(&[11]), play.now);
    play.pass_ms(polled_ms * 3);
    assert_eq!(play.tick(), "admitted 11", "present for three intervals after it was seen");
}
