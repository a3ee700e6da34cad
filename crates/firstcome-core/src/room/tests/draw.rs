//! The draw: the permutation, and what visitors see before and after.

use super::*;
use crate::room::draw::Permutation;
use proptest::prelude::*;
use std::collections::HashMap;

const OPENS_MS: i64 = 60_000;

/// A room that opens a minute after its start with a draw, and admits ten per second.
fn drawing() -> RoomSettings {
    let opens_at = Some(Timestamp::clamped_us(WALL_US + OPENS_MS * 1_000));
    RoomSettings { opens_at, order: RoomOrder::Draw, ..ten_per_second() }
}

fn seed(byte: u8) -> DrawSeed {
    DrawSeed::new([byte; 32])
}

fn places(permutation: &Permutation) -> Vec<u32> {
    (0..permutation.size()).map(|index| permutation.place(index)).collect()
}

/// Computed once by a program that shares no code with this one: see the script in docs/design/room.md.
#[test]
fn the_permutation_is_the_published_one() {
    let told = |size, first| places(&Permutation::new(&seed(1), first, size));
    assert_eq!(told(10, 1), KNOWN_TEN);
    assert_eq!(Permutation::new(&seed(1), 5, 1_000_000).place(123_456), KNOWN_MILLION);
}

const KNOWN_TEN: [u32; 10] = [0, 3, 9, 5, 2, 4, 7, 1, 8, 6];
const KNOWN_MILLION: u32 = 489_927;

#[test]
fn every_place_is_given_once_at_every_size() {
    for size in (1..=300).chain([4_095, 4_096, 4_097, 65_535, 65_536, 70_001]) {
        let permutation = Permutation::new(&seed(size as u8), 1, size);
        let mut seen = vec![false; size as usize];
        for index in 0..size {
            let place = permutation.place(index);
            assert_eq!(permutation.index(place), index, "{size}");
            assert!(!std::mem::replace(&mut seen[place as usize], true), "{size}: two have place {place}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_place_leads_back_to_its_index(bytes: [u8; 32], first in 1..1_000_u32, size in 1..=100_000_000_u32, at: u32) {
        let permutation = Permutation::new(&DrawSeed::new(bytes), first, size);
        let index = at % size;
        let place = permutation.place(index);
        prop_assert!(place < size);
        prop_assert_eq!(permutation.index(place), index);
        prop_assert_eq!(permutation.place(permutation.index(index)), index);
    }
}

/// Adds up the squared distances from the expected count, in units of that count.
fn chi_squared(counts: impl Iterator<Item = u32>, expected: f64) -> f64 {
    counts.map(|count| (f64::from(count) - expected).powi(2) / expected).sum()
}

/// Bounds are six standard deviations above the mean of the distribution. The seeds are fixed, so the test never flickers.
#[test]
fn places_are_as_likely_as_each_other() {
    let draws = 4_000_u32;
    for size in [2, 3, 4, 5, 7, 12, 16, 50_u32] {
        let mut counts = vec![0_u32; (size * size) as usize];
        for draw in 0..draws {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&draw.to_be_bytes());
            let permutation = Permutation::new(&DrawSeed::new(bytes), 1, size);
            for index in 0..size {
                counts[(index * size + permutation.place(index)) as usize] += 1;
            }
        }
        let free = f64::from((size - 1) * (size - 1));
        let found = chi_squared(counts.into_iter(), f64::from(draws) / f64::from(size));
        assert!(found < free + 6.0 * (2.0 * free).sqrt(), "{size}: {found} with {free} degrees of freedom");
    }
}

/// Each order of four visitors is as likely as the others, so no visitor's place says anything of another's.
#[test]
fn orders_are_as_likely_as_each_other() {
    let draws = 24_000_u32;
    let mut counts = HashMap::<Vec<u32>, u32>::new();
    for draw in 0..draws {
        let mut bytes = [9; 32];
        bytes[..4].copy_from_slice(&draw.to_be_bytes());
        *counts.entry(places(&Permutation::new(&DrawSeed::new(bytes), 1, 4))).or_default() += 1;
    }
    assert_eq!(counts.len(), 24);
    let found = chi_squared(counts.into_values(), f64::from(draws) / 24.0);
    assert!(found < 23.0 + 6.0 * 46.0_f64.sqrt(), "{found} with 23 degrees of freedom");
}

#[test]
fn neighbours_are_scattered() {
    let size = 100_000_u32;
    let permutation = Permutation::new(&seed(3), 1, size);
    let apart: f64 =
        (1..size).map(|index| f64::from(permutation.place(index).abs_diff(permutation.place(index - 1)))).sum::<f64>()
            / f64::from(size - 1);
    // Two random places are a third of the line apart on average.
    assert!((apart / f64::from(size) - 1.0 / 3.0).abs() < 0.01, "{apart}");
}

#[test]
fn a_seed_depends_on_key_and_first_number_and_keeps_its_commitment() {
    let key = draw_key();
    assert_ne!(key.seed(1), key.seed(2));
    assert_ne!(key.seed(1), DrawKey::new([8; 32]).seed(1));
    let mut play = Play::new(drawing());
    let before = play.room.draw_view().unwrap();
    assert_eq!(before, DrawView { commitment: key.seed(1).commitment(), draw: None });
    play.strangers(3);
    play.pass_ms(OPENS_MS as u64);
    play.tick();
    let after = play.room.draw_view().unwrap();
    assert_eq!(after.commitment, before.commitment);
    assert_eq!(after.draw.map(|draw| draw.seed.commitment()), Some(before.commitment));
    assert_eq!(Room::new(ten_per_second(), hasher(), start()).with_draw_key(draw_key()).draw_view(), None);
}

#[test]
fn entrants_see_the_draw_and_then_their_places_and_latecomers_come_behind() {
    let mut play = Play::new(drawing());
    assert_eq!(play.try_join(&anonymous()), "new 1 in the draw of 1");
    play.strangers(99);
    assert_eq!(play.look(7), "in the draw of 100");
    assert_eq!(
        play.leave(50),
        "joined 1, ".to_owned() + &(2..=100).map(|it| format!("joined {it}, ")).collect::<String>() + "left 50"
    );
    play.pass_ms(OPENS_MS as u64 - 1);
    (1..=100).for_each(|ticket| drop(play.look(ticket)));
    assert_eq!(play.tick(), "", "nothing happens before the opening");
    assert_eq!(play.look(7), "in the draw of 99");
    play.pass_ms(1);
    // The latecomer draws before the next tick, and takes no part.
    assert_eq!(play.try_join(&anonymous()), "new 101 waiting 99");
    assert_eq!(play.news(), "drawn 100 from 1, joined 101");
    let draw = *play.room.past_draw().unwrap();
    let mut by_place: Vec<u32> = (1..=100).collect();
    by_place.sort_by_key(|ticket| draw.permutation().place(ticket - 1));
    by_place.retain(|ticket| *ticket != 50);
    for (position, ticket) in by_place.iter().enumerate() {
        assert_eq!(play.look(*ticket), format!("waiting {position}"));
    }
    let admitted = play.run_ms(20_000);
    assert_eq!(admitted, [by_place, vec![101]].concat(), "in the drawn order");
    assert_ne!(admitted, (1..=101).filter(|it| *it != 50).collect::<Vec<_>>());
}

#[test]
fn an_absent_visitor_is_passed_over_and_served_first_after_coming_back() {
    let mut play = Play::new(drawing());
    play.strangers(40);
    play.pass_ms(OPENS_MS as u64);
    let order: Vec<u32> = {
        let permutation =
            Draw { seed: draw_key().seed(1), first: 1, entrants: 40, drawn_at: start().wall }.permutation();
        (0..40).map(|place| permutation.index(place) + 1).collect()
    };
    // All but the first five in the drawn order are there.
    order[5..].iter().for_each(|ticket| drop(play.look(*ticket)));
    let admitted = play.run_ms(500);
    assert_eq!(admitted, order[5..12]);
    for ticket in [order[3], order[1]] {
        assert_eq!(play.look(ticket), "waiting 0");
    }
    assert_eq!(play.run_ms(300), [order[1], order[3], order[12]]);
    assert_eq!(play.look(order[20]), "waiting 7");
}

#[test]
fn a_paused_room_draws_on_time_and_admits_later() {
    let mut play = Play::new(paused(drawing()));
    play.strangers(3);
    play.pass_ms(OPENS_MS as u64);
    assert_eq!(play.tick(), "joined 1, joined 2, joined 3, drawn 3 from 1");
    assert!(play.look(1).starts_with("waiting "));
    assert_eq!(play.try_join(&anonymous()), "new 4 waiting 3");
    assert_eq!(play.run_ms(1_000), [0_u32; 0]);
}

#[test]
fn an_order_does_not_change_while_a_ticket_lives_and_a_room_draws_once() {
    let mut play = Play::new(drawing());
    let judge = |play: &Play, settings: &RoomSettings| play.room.judge_settings(settings, play.now);
    assert_eq!(judge(&play, &ten_per_second()), Ok(()), "before the first ticket");
    play.strangers(1);
    assert_eq!(judge(&play, &ten_per_second()), Err(Rejection::DrawFixed));
    let later = RoomSettings { opens_at: drawing().opens_at.map(|at| at.plus_ms(1_000)), ..drawing() };
    assert_eq!(judge(&play, &later), Ok(()), "an opening may move before the draw");
    play.pass_ms(OPENS_MS as u64);
    play.tick();
    assert_eq!(judge(&play, &ten_per_second()), Err(Rejection::DrawFixed));
    assert_eq!(judge(&play, &later), Err(Rejection::DrawFixed), "no second draw");
    assert_eq!(judge(&play, &paused(drawing())), Ok(()));
    play.leave(1);
    assert_eq!(judge(&play, &ten_per_second()), Ok(()));
    assert_eq!(judge(&play, &later), Err(Rejection::DrawFixed), "the seed is known");
    let before = play.room.draw_view().unwrap().commitment;
    play.room.close();
    assert_eq!(judge(&play, &later), Ok(()));
    play.put(&later);
    assert_ne!(play.room.draw_view().unwrap().commitment, before, "another seed");
    assert_eq!(play.try_join(&anonymous()), "new 2 in the draw of 1");
    play.pass_ms(1_000);
    play.news();
    assert_eq!(play.tick(), "drawn 1 from 2, admitted 2, reached 3");
}

#[test]
fn settings_with_a_draw_name_the_opening() {
    let settings = RoomSettings { order: RoomOrder::Draw, ..ten_per_second() };
    assert_eq!(settings.check().unwrap_err().0, "opens_at");
}

#[test]
fn a_draw_among_numbers_that_are_not_there_is_damage() {
    let draw = |first, entrants| Draw { seed: seed(1), first, entrants, drawn_at: start().wall };
    let restored = |draw: Draw| {
        let mut room = Room::restoring(drawing(), hasher(), start(), 5);
        for ticket in 5..8 {
            room.restore_ticket(number(ticket), &anonymous(), None, start()).unwrap();
        }
        room.restore_draw(&draw).and_then(|()| room.restore_draw(&draw))
    };
    for wrong in [draw(4, 2), draw(5, 4), draw(0, 1), draw(u32::MAX, 2), draw(8, 1), draw(5, 3)] {
        assert_eq!(restored(wrong), Err(Damage::Draw), "{wrong:?}");
    }
    let mut room = Room::restoring(drawing(), hasher(), start(), 5);
    room.restore_ticket(number(5), &anonymous(), None, start()).unwrap();
    assert_eq!(room.restore_draw(&draw(5, 1)), Ok(()));
}
