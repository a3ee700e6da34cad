//! Admissions: within the rate in any window, never above the cap, and no slower than necessary.

use super::*;
use proptest::prelude::*;

/// Spends all admissions that a bucket affords at this instant.
fn drain(bucket: &mut Bucket, at_us: i64) -> u32 {
    bucket.earn(1_000_000, Steady::from_us(at_us));
    let count = bucket.affords();
    (0..count).for_each(|_| bucket.spend());
    assert_eq!(bucket.affords(), 0);
    count
}

/// Checks that no window between two admissions has more than the rate and a slice; in whole numbers. Each rate is in force
/// from its instant on. The slice is that of the rate in which the window begins.
fn assert_within_rate(admitted: &[(i64, usize, u32)], rates: &[(i64, Admit)]) {
    let every_us = |admit: &Admit| u128::from(admit.every_ms) * 1_000;
    let product: u128 = rates.iter().map(|(_, admit)| every_us(admit)).product();
    for (first, &(start, rate, _)) in admitted.iter().enumerate() {
        let mut count = 0_u128;
        for &(end, _, admissions) in &admitted[first..] {
            count += u128::from(admissions);
            let mut allowed = 0;
            for (index, (from, admit)) in rates.iter().enumerate() {
                let until = rates.get(index + 1).map_or(i64::MAX, |next| next.0);
                let window_us = (end.min(until) - start.max(*from)).max(0).unsigned_abs();
                allowed += u128::from(window_us) * u128::from(admit.count) * (product / every_us(admit));
            }
            let (_, begins) = &rates[rate];
            let slice = (u128::from(begins.count) * (product / every_us(begins)) * 250_000).max(product);
            assert!(count * product <= allowed + slice, "{count} in {} µs under {rates:?}", end - start);
        }
    }
}

fn admitted_in_changes(changes: &[Change]) -> Vec<u32> {
    let number = |change: &Change| match change {
        Change::Admitted { number, .. } => Some(number.get()),
        _ => None,
    };
    changes.iter().filter_map(number).collect()
}

fn any_admit() -> impl Strategy<Value = Admit> {
    let some = [(1, 10_000), (7, 3_000), (12, 116), (1, 100), (3, 1_000), (4, 1_000), (5, 1_000), (1_000, 1_000)];
    proptest::sample::select(some.to_vec()).prop_map(|(count, every_ms)| Admit { count, every_ms })
}

fn any_gap_us() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..60_000_u64,
        3 => Just(50_000_u64),
        2 => 0..400_000_u64,
        1 => 0..20_000_000_u64,
        1 => Just(0_u64),
        1 => Just(86_400_000_000_u64),
    ]
}

proptest! {
    #[test]
    fn in_any_window_no_more_than_the_rate_and_a_slice_are_admitted(
        rates in proptest::collection::vec((any_admit(), proptest::collection::vec(any_gap_us(), 1..40)), 1..4),
    ) {
        let mut play = Play::new(RoomSettings { waiting_ttl_ms: 7 * DAY_MS, ..paused(ten_per_second()) });
        let (mut admitted, mut in_force) = (Vec::new(), Vec::new());
        for (admit, gaps) in rates {
            let settings = RoomSettings { admit: Some(admit), paused: false, ..play.room.settings().clone() };
            if in_force.last().is_none_or(|(_, before)| *before != admit) {
                in_force.push((play.now.steady.as_us(), admit));
            }
            play.put(&settings);
            for gap_us in gaps {
                play.pass_us(gap_us);
                play.strangers(300);
                play.changes.clear();
                play.room.tick(play.now, &mut play.changes);
                let tickets = admitted_in_changes(&play.changes);
                tickets.iter().for_each(|&ticket| drop(play.look(ticket)));
                let count = tickets.len() as u32;
                admitted.push((play.now.steady.as_us(), in_force.len() - 1, count));
            }
        }
        admitted.retain(|(_, _, count)| *count != 0);
        assert_within_rate(&admitted, &in_force);
    }

    #[test]
    fn the_bucket_earns_exactly_what_the_rate_says_in_any_steps(
        count in 1..=1_000_000_u32,
        every_ms in 100..=86_400_000_u64,
        gaps_us in proptest::collection::vec(0..200_000_u64, 1..200),
    ) {
        let admit = Admit { count, every_ms };
        let mut bucket = Bucket::new(admit, Steady::from_us(0));
        let (mut at_us, mut spent) = (0_u128, 0_u128);
        let (cost, holds) = (u128::from(every_ms) * 1_000, u128::from(count) * 250_000);
        let mut lost = false;
        for gap_us in gaps_us {
            at_us += u128::from(gap_us);
            // Only what the bucket cannot hold is lost.
            lost |= holds.max(cost) < at_us * u128::from(count) - spent * cost;
            spent += u128::from(drain(&mut bucket, at_us as i64));
            prop_assert!(spent * cost <= at_us * u128::from(count), "never ahead of the rate");
            prop_assert!(lost || at_us * u128::from(count) < (spent + 1) * cost, "never behind it");
        }
    }
}

/// Returns the admissions in so many seconds with a tick every 50 ms, by the bucket alone.
fn admitted_in(admit: Admit, seconds: i64) -> u64 {
    let mut bucket = Bucket::new(admit, Steady::from_us(0));
    (1..=seconds * 20).map(|tick| u64::from(drain(&mut bucket, tick * 50_000))).sum()
}

#[test]
fn in_the_long_run_the_rate_is_met_to_a_thousandth() {
    let rows = [(1, 10_000, 100_000), (1, 1_000, 10_000), (4, 1_000, 10_000), (5, 1_000, 10_000), (12, 116, 1_000)];
    let fast = [(7, 1_300, 10_000), (1_000, 1_000, 1_000), (100_000, 100, 60), (999_983, 86_400_000, 100_000)];
    for (count, every_ms, seconds) in rows.into_iter().chain(fast) {
        let admit = Admit { count, every_ms };
        let wanted = admit.per_second() * seconds as f64;
        let told = admitted_in(admit, seconds) as f64;
        assert!(told <= wanted, "{count} per {every_ms} ms: {told} of {wanted}");
        assert!(wanted * 0.999 <= told + 1.0, "{count} per {every_ms} ms: {told} of {wanted}");
    }
}

#[test]
fn a_slow_rate_whose_period_is_no_multiple_of_the_tick_loses_less_than_a_tick_per_admission() {
    // Two admissions closer than the period would break the promise for windows, and ticks come every 50 ms. So each
    // admission waits for the next tick.
    for (count, every_ms) in [(7, 3_000), (3, 1_000), (39, 10_000), (7, 60_000)] {
        let admit = Admit { count, every_ms };
        let ticks = (every_ms as f64 / f64::from(count) / 50.0).ceil();
        let wanted = 100_000.0 / (ticks * 0.05);
        let told = admitted_in(admit, 100_000) as f64;
        assert!((told - wanted).abs() <= 1.0, "{count} per {every_ms} ms: {told}, not {wanted}");
    }
}

#[test]
fn a_room_meets_its_rate_while_people_wait() {
    for (settings, seconds, wanted) in [
        (RoomSettings::with_rate(12, 116), 29, 3_000),
        (RoomSettings::with_rate(1, 10_000), 200, 20),
        (RoomSettings::with_rate(1_000, 1_000), 20, 20_000),
    ] {
        let mut play = Play::new(settings);
        let mut admitted = 0;
        for _ in 0..seconds {
            play.strangers(1_100);
            admitted += play.run_taking_ms(1_000).len();
        }
        assert_eq!(admitted, wanted);
        assert_sound(&play.room);
    }
}

#[test]
fn a_million_per_second_are_admitted_in_order() {
    let mut play = Play::new(RoomSettings { max_waiting: 100_000_000, ..RoomSettings::with_rate(1_000_000, 1_000) });
    play.strangers(300_000);
    let admitted = play.run_ms(250);
    assert_eq!(admitted.len(), 250_000);
    assert!(admitted.iter().copied().eq(1..=250_000));
}

#[test]
fn after_a_long_gap_one_slice_is_admitted_and_no_more() {
    for (count, every_ms, slice) in [(10, 1_000, 2), (1, 10_000, 1), (100, 1_000, 25), (12, 116, 25)] {
        let mut play =
            Play::new(RoomSettings { waiting_ttl_ms: 7 * DAY_MS, ..RoomSettings::with_rate(count, every_ms) });
        play.pass_ms(3 * DAY_MS);
        play.strangers(100);
        play.room.tick(play.now, &mut play.changes);
        assert_eq!(play.counts().1, slice, "{count} per {every_ms} ms");
    }
}

#[test]
fn a_new_room_starts_with_nothing_earned() {
    let mut play = Play::new(ten_per_second());
    play.strangers(5);
    play.news();
    play.pass_us(99_999);
    assert_eq!(play.tick(), "");
    play.pass_us(1);
    assert_eq!(play.tick(), "admitted 1, reached 2");
}

#[test]
fn the_cap_is_full_at_once_and_never_exceeded() {
    let mut play = Play::new(RoomSettings::with_slots(3));
    play.strangers(10);
    assert_eq!(play.run_ms(50), [1, 2, 3]);
    assert_eq!(play.run_ms(10_000), [0_u32; 0]);
    play.leave(2);
    assert_eq!(play.run_ms(50), [4]);
    assert_eq!(play.counts(), (6, 3, 4));
}

#[test]
fn with_a_rate_and_a_cap_the_smaller_counts() {
    let mut play = Play::new(RoomSettings { max_active: Some(5), ..ten_per_second() });
    play.strangers(100);
    assert_eq!(play.run_ms(10_000), [1, 2, 3, 4, 5], "the cap");
    (1..=5).for_each(|ticket| drop(play.leave(ticket)));
    assert_eq!(play.run_ms(50), [6, 7], "and then the rate: one slice");
    assert_eq!(play.run_ms(100), [8], "and on at the rate");
    play.put(&RoomSettings { max_active: Some(5), ..RoomSettings::with_rate(1_000_000, 100) });
    play.leave(6);
    assert_eq!(play.run_ms(1_000), [9, 10, 11], "the cap again, of which two are in use");
}

#[test]
fn a_slow_room_that_is_ticked_when_it_asks_for_it_loses_nothing() {
    for (count, every_ms) in [(1, 1_000), (7, 3_000), (3, 1_000), (1, 10_000), (5, 1_700)] {
        let mut play = Play::new(RoomSettings { max_waiting: 100_000, ..RoomSettings::with_rate(count, every_ms) });
        play.strangers(2_000);
        play.tick();
        let (start, mut admitted) = (play.now.steady, 0);
        while play.now.steady.since_us(start) < 28_000_000 {
            let pause_us = play.room.next_tick_us().map_or(50_000, |us| us.min(50_000));
            play.pass_us(pause_us);
            play.room.tick(play.now, &mut play.changes);
            let tickets = admitted_in_changes(&play.changes);
            play.changes.clear();
            tickets.iter().for_each(|&ticket| drop(play.look(ticket)));
            admitted += tickets.len() as u64;
        }
        let due = 28_000 * u64::from(count) / every_ms;
        assert!(due - 1 <= admitted && admitted <= due + 1, "{count} per {every_ms} ms: {admitted} of {due}");
    }
}
