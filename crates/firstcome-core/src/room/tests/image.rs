//! A room restored from its image is the same room; bytes that are no image are refused.

use super::model_steps::*;
use super::twins::{Twin, nothing, room};
use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_room_that_came_back_is_the_same_for_ever(
        settings in any_settings(),
        lost in proptest::option::of(1..20_u32),
        before in proptest::collection::vec(any_step(), 0..80),
        after in proptest::collection::vec(any_step(), 1..80),
    ) {
        let mut first = Twin { room: room(&settings, lost), now: start() };
        before.iter().for_each(|step| drop(first.step(step)));
        let came_back = Room::from_image(&first.room.image(), hasher()).expect("an image of a room").with_draw_key(draw_key());
        let mut second = Twin { room: came_back, now: first.now };
        for step in &after {
            assert_eq!(first.step(step), second.step(step), "{step:?}");
            assert!(first.room.image() == second.room.image(), "after {step:?}");
            assert_eq!(first.room.digest(), second.room.digest());
            assert_eq!(first.room.is_idle(), second.room.is_idle());
            assert_sound(&second.room);
        }
    }

    #[test]
    fn no_matter_what_bytes_come_nothing_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        settings in any_settings(),
        steps in proptest::collection::vec(any_step(), 0..60),
        // Damages only a few bytes of the image.
        harm in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..4),
        length in proptest::option::weighted(0.2, any::<u32>()),
        after in proptest::collection::vec(any_step(), 1..20),
    ) {
        let _ = Room::from_image(&bytes, hasher());
        let mut twin = Twin { room: room(&settings, Some(5)), now: start() };
        steps.iter().for_each(|step| drop(twin.step(step)));
        let mut image = twin.room.image();
        for (at, byte) in harm {
            let at = at as usize % image.len();
            image[at] ^= byte;
        }
        image.truncate(length.map_or(image.len(), |length| length as usize % image.len()));
        // A damaged image that is still consistent restores some room.
        if let Ok(harmed) = Room::from_image(&image, hasher()).map(|room| room.with_draw_key(draw_key())) {
            let mut harmed = Twin { room: harmed, now: twin.now };
            after.iter().for_each(|step| drop(harmed.step(step)));
        }
    }
}

/// ann (1) has taken a slot and bob (3) is offered one; 2 did not take its slot and came back, 4 (key 8) and 5 wait, 6 left.
fn busy() -> Room {
    let settings = RoomSettings { idle_ttl_ms: Some(60_000), claim_window_ms: 1_000, ..RoomSettings::with_slots(2) };
    let mut play = Play::new(settings);
    play.try_join(&keyed(named("ann"), 7, 1));
    play.strangers(1);
    play.tick();
    play.look(1);
    play.pass_ms(1_000);
    assert_eq!(play.tick(), "taken 1, lapsed 2");
    play.try_join(&named("bob"));
    play.tick();
    play.look(2);
    play.try_join(&keyed(anonymous(), 8, 1));
    play.strangers(2);
    play.leave(6);
    assert_eq!((play.counts(), play.room.returned.len()), ((3, 2, 3), 1));
    play.room
}

#[test]
fn what_cannot_be_a_room_is_refused() {
    let value = |what| ImageError::Value(what);
    type Harm = fn(&mut Room);
    let rows: [(Harm, ImageError); 11] = [
        (|room| room.returned.extend([1]), value("passed over")),
        (|room| room.returned.extend([5]), value("passed over")),
        (|room| room.admissions = 1, value("admission")),
        (|room| room.admissions = u64::MAX, value("admission")),
        (|room| assert!(room.slots.remove(1).is_some()), value("slot")),
        (|room| room.settings.max_waiting = 0, value("settings")),
        (|room| room.settings.active_ttl_ms = 0, value("settings")),
        (
            |room| {
                let (slot, until) = room.slots.get(1).unwrap();
                room.slots.put(4, slot, until);
            },
            value("slot"),
        ),
        (|room| room.meter.moved(Steady::from_us(0), u32::MAX, 1), value("meter")),
        (|room| room.meter.moved(Steady::from_us(0), 1, u64::MAX), value("meter")),
        (|room| room.line.harm_sweeps(), value("sweep")),
    ];
    assert_eq!(Room::from_image(&busy().image(), hasher()).err(), None);
    for (row, (harm, wanted)) in rows.into_iter().enumerate() {
        let mut room = busy();
        harm(&mut room);
        assert_eq!(Room::from_image(&room.image(), hasher()).err(), Some(wanted), "row {row}");
    }
}

#[test]
fn a_slot_without_an_end_or_two_of_one_user_or_key_are_refused() {
    let mut room = busy();
    room.slots.harm_ends();
    assert_eq!(Room::from_image(&room.image(), hasher()).err(), Some(ImageError::Value("end of a slot")));
    for (join, what) in [(named("ann"), "user"), (keyed(anonymous(), 7, 2), "request")] {
        let mut room = busy();
        room.line.push(join.user.as_ref(), join.request, start().steady);
        assert_eq!(Room::from_image(&room.image(), hasher()).err(), Some(ImageError::Value(what)), "{join:?}");
    }
}

#[test]
fn an_image_is_whole_and_of_this_version() {
    let image = busy().image();
    for length in 0..image.len() {
        assert!(Room::from_image(&image[..length], hasher()).is_err(), "{length} of {} bytes", image.len());
    }
    let longer = [image.as_slice(), &[0]].concat();
    assert_eq!(Room::from_image(&longer, hasher()).err(), Some(ImageError::Trailing));
    let mut later = image;
    later[0] += 1;
    assert_eq!(Room::from_image(&later, hasher()).err(), Some(ImageError::Version));
    assert_eq!(Room::from_image(&[], hasher()).err(), Some(ImageError::Short));
}

#[test]
fn a_million_strangers_take_at_most_12_bytes_each_and_those_gone_next_to_none() {
    const MANY: u32 = 1_000_000;
    let mut play = Play::new(RoomSettings { max_waiting: 2 * MANY, ..RoomSettings::with_slots(1) });
    play.strangers(MANY);
    play.tick();
    let image = play.room.image();
    assert!(image.len() <= 12 * MANY as usize, "{} bytes", image.len());
    let again = Room::from_image(&image, hasher()).unwrap();
    assert!(again.image() == image);
    assert!(again.line.bytes() <= play.room.line.bytes() + 64 * 1_024, "and no more in memory");
    play.changes.clear();
    (1..=MANY).for_each(|ticket| assert!(play.room.leave(number(ticket), play.now, &mut play.changes).is_ok()));
    let gone = play.room.image().len();
    assert!(gone <= 245 * 24 + 512, "{gone} bytes for 245 segments, each still to be swept once");
    let lost = Room::rebuilt(&nothing(play.room.settings(), MANY), hasher(), play.now).unwrap().image().len();
    assert!(lost <= 245 * 8 + 512, "{lost} bytes of numbers of which nothing is known");
}

#[test]
fn ends_do_not_depend_on_the_seed_of_a_table() {
    const MANY: u32 = 2 * ENDS_PER_TICK_MAX as u32;
    let ended = || {
        let settings = RoomSettings { idle_ttl_ms: Some(5_000), ..RoomSettings::with_slots(MANY) };
        let mut play = Play::new(settings.clone());
        play.strangers(MANY);
        play.tick();
        (1..=MANY).for_each(|ticket| drop(play.look(ticket)));
        play.put(&RoomSettings { idle_ttl_ms: Some(6_000), ..settings });
        play.pass_ms(6_000);
        play.news();
        // One tick ends some of the slots, and both rooms must end the same ones.
        play.tick()
    };
    assert!(ended() == ended(), "two seeds, two orders");
}

#[test]
fn a_digest_tells_rooms_apart_that_count_differently() {
    let room = busy();
    let digest = room.digest();
    type Step = fn(&mut Room);
    let steps: [Step; 9] = [
        |room| assert!(room.join(&anonymous(), start(), &mut Vec::new()).is_ok()),
        |room| assert!(room.leave(number(5), start(), &mut Vec::new()).is_ok()),
        |room| room.close(),
        |room| room.replace_settings(ten_per_second(), start()),
        |room| room.admissions += 1,
        |room| assert_eq!(room.returned.pop_first(), Some(2)),
        |room| room.was_busy = !room.was_busy,
        |room| room.ticked = room.ticked.plus_ms(1),
        |room| room.grace_until = Some(start().steady),
    ];
    let mut seen = vec![digest];
    for step in steps {
        let mut changed = Room::from_image(&room.image(), hasher()).unwrap();
        assert_eq!(changed.digest(), digest);
        step(&mut changed);
        assert!(!seen.contains(&changed.digest()), "step {}", seen.len());
        seen.push(changed.digest());
    }
}
