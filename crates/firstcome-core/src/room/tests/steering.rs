//! Visitors who do not come are made up for, an origin in trouble gets fewer, and the room says why.

use super::*;
use proptest::prelude::*;

const RATE: u32 = 20;

/// A line of visitors who poll as they are told until their turn; then some come at their next poll, and others never do.
struct Visitors {
    play: Play,
    comes: fn(u32) -> bool,
    /// When each visitor polls next, by the millisecond.
    due: std::collections::BTreeMap<u64, Vec<u32>>,
    admitted: Vec<u64>,
    came: Vec<u64>,
}

impl Visitors {
    fn new(settings: RoomSettings, count: u32, comes: fn(u32) -> bool) -> Self {
        let mut play = Play::new(settings);
        let mut due = std::collections::BTreeMap::new();
        for ticket in play.strangers(count) {
            due.entry(u64::from(ticket) % 40 * 50).or_insert_with(Vec::new).push(ticket);
        }
        Self { play, comes, due, admitted: Vec::new(), came: Vec::new() }
    }

    fn run_s(&mut self, seconds: u64) {
        for _ in 0..seconds * 20 {
            let admitted = self.play.run_ms(50).len() as u64;
            self.admitted.push(admitted);
            let now_ms = self.play.passed_ms();
            let later = self.due.split_off(&(now_ms + 1));
            let polling = std::mem::replace(&mut self.due, later);
            let mut came = 0;
            for ticket in polling.into_values().flatten() {
                if self.play.room.slots.get(ticket).is_some() && !(self.comes)(ticket) {
                    continue;
                }
                match self.play.view(ticket).unwrap() {
                    TicketView { state: TicketState::Waiting { .. }, poll_after_ms, .. } => {
                        self.due.entry(now_ms + u64::from(poll_after_ms)).or_default().push(ticket);
                    }
                    TicketView { state: TicketState::Admitted { .. }, .. } => came += 1,
                    TicketView { state: TicketState::Gone(_) | TicketState::InDraw { .. }, .. } => {}
                }
            }
            self.came.push(came);
        }
    }

    /// Returns the arrivals per second in the last seconds.
    fn came_per_s(&self, seconds: usize) -> f64 {
        self.came[self.came.len() - seconds * 20..].iter().sum::<u64>() as f64 / seconds as f64
    }
}

fn seven_of_ten(ticket: u32) -> bool {
    Chance(ticket.into()).below(10) < 7
}

#[test]
fn with_three_of_ten_who_do_not_come_arrivals_meet_the_rate_after_a_minute() {
    let mut visitors = Visitors::new(RoomSettings::with_rate(RATE, 1_000), 12_000, seven_of_ten);
    visitors.run_s(60);
    visitors.run_s(120);
    let came = visitors.came_per_s(120) / f64::from(RATE);
    assert!((0.97..=1.03).contains(&came), "{came}");
    let pace = visitors.play.room.pace(visitors.play.now);
    assert_eq!(pace.reason, RateReason::NoShows);
    let share = pace.no_show_share.unwrap();
    assert!((0.25..0.35).contains(&share) && (0.9..1.1).contains(&(pace.arrivals_per_s / 20.0)), "{pace:?}");
    assert!((7.0..10.0).contains(&pace.made_up_per_s), "{pace:?}");
}

#[test]
fn visitors_who_come_after_they_counted_as_missing_are_taken_off_again() {
    // All come, but half of them twelve seconds late, which is after they count as missing.
    let mut play = Play::new(RoomSettings::with_rate(RATE, 1_000));
    play.strangers(6_000);
    let (mut late, mut came) = (std::collections::VecDeque::new(), 0);
    for step in 0..120 * 20_u32 {
        for ticket in play.run_ms(50) {
            if ticket % 2 == 0 {
                came += u32::from(play.look(ticket) == "admitted");
            } else {
                late.push_back((step + 240, ticket));
            }
        }
        while let Some((_, ticket)) = late.pop_front_if(|(due, _)| *due <= step) {
            came += u32::from(play.look(ticket) == "admitted");
        }
        for ticket in (1..6_000).step_by(97) {
            play.room.contact(number(ticket), play.now);
        }
        if step % 200 == 0 {
            play.room.resumed(play.now);
            play.room.line.mark_all_present(play.now.steady);
        }
    }
    let most = 120 * RATE + 12 * RATE;
    assert!(came <= most && 108 * RATE <= came, "{came} of {most}");
}

#[test]
fn the_cap_holds_while_missing_visitors_are_made_up_for() {
    let settings =
        RoomSettings { max_active: Some(60), claim_window_ms: 20_000, ..RoomSettings::with_rate(RATE, 1_000) };
    let mut visitors = Visitors::new(settings, 4_000, |_| false);
    for _ in 0..60 {
        visitors.run_s(1);
        assert!(visitors.play.counts().1 <= 60);
    }
    assert_eq!(visitors.play.room.pace(visitors.play.now).reason, RateReason::SlotsFull);
}

#[test]
fn where_no_visitor_comes_at_most_twice_the_rate_is_admitted() {
    let mut visitors = Visitors::new(RoomSettings::with_rate(RATE, 1_000), 6_000, |_| false);
    visitors.run_s(60);
    for window in visitors.admitted.windows(200) {
        assert!(window.iter().sum::<u64>() <= 2 * (10 * u64::from(RATE) + u64::from(RATE) / 4 + 1));
    }
    let last: u64 = visitors.admitted[800..].iter().sum();
    assert!(20 * u64::from(RATE) + 100 < last, "and more than the rate: {last}");
}

fn reported(play: &mut Play, report: OriginReport) -> f64 {
    play.room.report_origin(report, play.now);
    play.room.pace(play.now).origin_share
}

#[test]
fn trouble_lowers_the_rate_to_a_quarter_and_good_reports_raise_it_again() {
    let mut play = Play::new(RoomSettings::with_rate(100, 1_000));
    play.strangers(20_000);
    play.run_taking_ms(1_000);
    assert!((reported(&mut play, OriginReport::Fine) - 1.0).abs() < 1e-9);
    assert!((reported(&mut play, OriginReport::Slow) - 0.7).abs() < 1e-9);
    assert_eq!(play.room.pace(play.now).reason, RateReason::OriginSlow);
    assert!((reported(&mut play, OriginReport::Failing) - 0.7).abs() < 1e-9, "one change in five seconds");
    play.run_taking_ms(5_000);
    assert!((reported(&mut play, OriginReport::Failing) - 0.49).abs() < 1e-9);
    assert_eq!(play.room.pace(play.now).reason, RateReason::OriginErrors);
    for _ in 0..5 {
        play.run_taking_ms(5_000);
        reported(&mut play, OriginReport::Failing);
    }
    assert!((play.room.pace(play.now).origin_share - 0.25).abs() < 1e-9, "no lower");
    let admitted = play.run_taking_ms(4_000).len();
    assert!((98..=102).contains(&admitted), "{admitted}");
    for step in 1..=15 {
        play.run_taking_ms(5_000);
        let share = reported(&mut play, OriginReport::Fine);
        assert!((share - (0.25 + 0.05 * f64::from(step))).abs() < 1e-9, "{step}: {share}");
    }
    assert_eq!(play.room.pace(play.now).reason, RateReason::Limit);
}

#[test]
fn when_reports_end_half_of_the_reduction_is_left_after_each_half_minute() {
    let mut play = Play::new(RoomSettings::with_rate(100, 1_000));
    play.strangers(200);
    reported(&mut play, OriginReport::Failing);
    play.run_ms(15_000);
    assert!((play.room.pace(play.now).origin_share - 0.7).abs() < 1e-9, "silence of 15 s changes nothing");
    for gap in [0.15, 0.075, 0.0375] {
        play.run_ms(30_000);
        let share = play.room.pace(play.now).origin_share;
        assert!((1.0 - share - gap).abs() < 0.001, "{share}, not {gap} less than the whole");
    }
    // An idle room has no ticks; the time counts all the same.
    play.pass_ms(DAY_MS);
    play.tick();
    assert!((play.room.pace(play.now).origin_share - 1.0).abs() < 1e-9);
}

#[test]
fn without_a_rate_reports_reduce_the_slots() {
    let mut play = Play::new(RoomSettings::with_slots(10));
    play.strangers(30);
    reported(&mut play, OriginReport::Slow);
    assert_eq!(play.run_ms(50).len(), 7);
    assert_eq!(play.room.pace(play.now).reason, RateReason::OriginSlow);
    play.pass_ms(5_000);
    reported(&mut play, OriginReport::Slow);
    assert_eq!(play.counts().1, 7, "no slot is taken away");
    assert_eq!(play.leave(1), "left 1");
    assert_eq!(play.run_ms(50).len(), 0);
    let mut play = Play::new(RoomSettings::with_slots(1));
    play.strangers(2);
    reported(&mut play, OriginReport::Slow);
    assert_eq!(play.run_ms(50), [1], "one slot stays");
}

#[test]
fn each_reason_is_told_when_it_decides() {
    let reason = |play: &Play| play.room.pace(play.now).reason;
    let mut play = Play::new(ten_per_second());
    assert_eq!(reason(&play), RateReason::Empty);
    play.strangers(50);
    assert_eq!(reason(&play), RateReason::Limit);
    play.put(&paused(ten_per_second()));
    assert_eq!(reason(&play), RateReason::Paused);
    let opens_at = Some(Timestamp::clamped_us(WALL_US + 60_000_000));
    play.put(&RoomSettings { opens_at, ..ten_per_second() });
    assert_eq!(reason(&play), RateReason::Scheduled);
    play.put(&RoomSettings { max_active: Some(2), ..ten_per_second() });
    play.run_ms(1_000);
    assert_eq!(reason(&play), RateReason::SlotsFull);
    play.put(&ten_per_second());
    play.pass_ms(HOUR_MS / 2);
    play.tick();
    assert_eq!(reason(&play), RateReason::Absent);
    play.room.close();
    assert_eq!(reason(&play), RateReason::Closed);
    let mut play = Play::new(RoomSettings::with_slots(5));
    play.strangers(2);
    assert_eq!(reason(&play), RateReason::FreeSlots);
    play.room.lose_end(2, play.now.steady.plus_ms(5_000), play.now);
    assert_eq!(reason(&play), RateReason::Recovering);
}

#[test]
fn what_reports_left_of_the_rate_outlives_a_restart() {
    let mut play = Play::new(ten_per_second());
    let mut rounds = MemoryRounds::default();
    assert_eq!(rounds.next(&play.room, play.now), None, "the whole rate needs no row");
    reported(&mut play, OriginReport::Failing);
    let memory = rounds.next(&play.room, play.now).expect("it has changed");
    assert_eq!(rounds.next(&play.room, play.now), None, "stored once");
    let mut room = Room::new(ten_per_second(), hasher(), play.now);
    room.recall(&memory, play.now);
    assert!((room.pace(play.now).origin_share - 0.7).abs() < 1e-9);
    for bytes in [&[][..], &[1], &[9, 0, 0, 0, 0], &[1, 0, 0, 0, 0], &[1, 255, 255, 255, 255], &[1, 2, 3, 4, 5, 6]] {
        let mut room = Room::new(ten_per_second(), hasher(), play.now);
        room.recall(&Memory { first_number: 0, bytes: bytes.into() }, play.now);
        assert!((room.pace(play.now).origin_share - 1.0).abs() < 1e-9, "{bytes:?}");
    }
    play.pass_ms(DAY_MS);
    play.tick();
    assert!(rounds.next(&play.room, play.now).expect("it is whole again").bytes.is_empty());
}

proptest! {
    #[test]
    fn the_share_stays_within_its_bounds_and_comes_back_from_an_image(
        steps in proptest::collection::vec((0..4_u8, 0..40_000_u64), 1..60),
    ) {
        let mut play = Play::new(RoomSettings::with_rate(100, 1_000));
        for (step, ms) in steps {
            play.pass_ms(ms);
            let before = play.room.pace(play.now).origin_share;
            let share = match step {
                0 => { play.tick(); play.room.pace(play.now).origin_share }
                1 => reported(&mut play, OriginReport::Fine),
                2 => reported(&mut play, OriginReport::Slow),
                _ => reported(&mut play, OriginReport::Failing),
            };
            prop_assert!((0.25..=1.0).contains(&share));
            prop_assert!(2 <= step || before <= share, "only trouble lowers it");
            let image = play.room.image();
            let again = Room::from_image(&image, hasher()).expect("an image");
            prop_assert!(again.image() == image && again.digest() == play.room.digest());
        }
    }
}
