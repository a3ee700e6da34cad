//! Estimated waits, compared with the real ones.

use super::*;
use std::collections::BTreeMap;

/// Visitors who poll in time and leave at random, and some who vanish silently.
struct Crowd {
    play: Play,
    chance: Chance,
    /// The visitors who poll, by the millisecond.
    polls: BTreeMap<u64, Vec<u32>>,
    leaves: BTreeMap<u64, Vec<u32>>,
    leaves_after_ms: Option<f64>,
    told: BTreeMap<u32, (u64, u64)>,
    errors: Vec<f64>,
}

impl Crowd {
    fn new(settings: RoomSettings, leaves_after_ms: Option<f64>) -> Self {
        Self {
            play: Play::new(settings),
            chance: Chance(11),
            polls: BTreeMap::new(),
            leaves: BTreeMap::new(),
            leaves_after_ms,
            told: BTreeMap::new(),
            errors: Vec::new(),
        }
    }

    fn join(&mut self, vanishes: bool) -> TicketView {
        let view = self.play.stranger();
        let (now, ticket) = (self.play.passed_ms(), view.number.get());
        if !vanishes {
            self.polls.entry(now + u64::from(view.poll_after_ms)).or_default().push(ticket);
        }
        if let Some(after_ms) = self.leaves_after_ms {
            let at = now + (-self.chance.part().ln() * after_ms) as u64;
            self.leaves.entry(at).or_default().push(ticket);
        }
        view
    }

    fn many_join(&mut self, count: u32) {
        for _ in 0..count {
            self.join(false);
        }
    }

    /// Remembers the estimate of this ticket, to compare it with the real wait.
    fn remember(&mut self, view: TicketView) {
        if let TicketState::Waiting { wait_ms: Some(wait_ms), .. } = view.state {
            self.told.insert(view.number.get(), (self.play.passed_ms(), wait_ms));
        }
    }

    fn step(&mut self) {
        self.play.pass_ms(50);
        let now = self.play.passed_ms();
        while let Some(polls) = self.polls.first_entry().filter(|polls| *polls.key() <= now) {
            for ticket in polls.remove() {
                let Some(view) = self.play.view(ticket) else { continue };
                if let TicketState::Waiting { .. } = view.state {
                    self.polls.entry(now + u64::from(view.poll_after_ms)).or_default().push(ticket);
                }
            }
        }
        while let Some(leaves) = self.leaves.first_entry().filter(|leaves| *leaves.key() <= now) {
            for ticket in leaves.remove() {
                if self.play.room.line.place(ticket) == Some(TicketPlace::Waiting) {
                    self.play.leave(ticket);
                }
            }
        }
        self.play.changes.clear();
        self.play.room.tick(self.play.now, &mut self.play.changes);
        for change in self.play.changes.drain(..) {
            if let Change::Admitted { number, .. } = change
                && let Some((then, polled_ms)) = self.told.remove(&number.get())
            {
                let true_ms = (now - then) as f64;
                self.errors.push((polled_ms as f64 - true_ms).abs() / true_ms);
            }
        }
    }

    fn run_s(&mut self, seconds: u64) {
        (0..seconds * 20).for_each(|_| self.step());
    }

    /// Returns the median error.
    fn median(&mut self) -> f64 {
        self.errors.sort_by(f64::total_cmp);
        self.errors[self.errors.len() / 2]
    }
}

#[test]
fn in_steady_flow_the_first_told_wait_is_right_within_a_tenth() {
    // 50 per second are admitted, 20 of 20 000 leave per second, and 70 come.
    let mut crowd = Crowd::new(RoomSettings::with_rate(50, 1_000), Some(1_000_000.0));
    crowd.many_join(20_000);
    for second in 0..90 {
        for _ in 0..70 {
            let view = crowd.join(false);
            if 30 <= second {
                crowd.remember(view);
            }
        }
        crowd.run_s(1);
    }
    let waiting = crowd.play.counts().0;
    assert!((18_000..22_000).contains(&waiting), "steady: {waiting}");
    crowd.run_s(450);
    assert!(2_500 < crowd.errors.len(), "{} were admitted", crowd.errors.len());
    let median = crowd.median();
    assert!(median <= 0.1, "{median}");
}

#[test]
fn with_half_of_the_people_absent_the_told_wait_is_right_after_half_a_minute_of_flow() {
    let settings = RoomSettings::with_rate(50, 1_000);
    let mut crowd = Crowd::new(paused(settings.clone()), Some(2_000_000.0));
    // Vanished visitors do so before the room opens.
    for ticket in 0..20_000 {
        crowd.join(ticket % 2 == 0);
    }
    crowd.run_s(240);
    crowd.play.put(&settings);
    crowd.run_s(30);
    for ticket in 1..=20_000 {
        if ticket % 2 == 0
            && let Some(view) = crowd.play.view(ticket)
        {
            crowd.remember(view);
        }
    }
    crowd.run_s(300);
    assert!(5_000 < crowd.errors.len(), "{} were admitted", crowd.errors.len());
    let median = crowd.median();
    assert!(median <= 0.1, "{median}");
}

#[test]
fn before_anything_was_measured_the_settings_tell() {
    let mut play = Play::new(ten_per_second());
    play.strangers(99);
    let wait_ms = |view: TicketView| match view.state {
        TicketState::Waiting { wait_ms, .. } => wait_ms,
        other => panic!("{other:?}"),
    };
    let last = play.stranger();
    assert_eq!(wait_ms(last), Some(10_000));
    let mut play = Play::new(RoomSettings { active_ttl_ms: 60_000, ..RoomSettings::with_slots(6) });
    let told: Vec<_> = (0..7).map(|_| wait_ms(play.stranger())).collect();
    assert_eq!(told[..6], [Some(0); 6], "a slot is free for each of them");
    assert_eq!(told[6], None, "the room cannot know how long the six stay");
}

#[test]
fn a_slow_rate_tells_a_wait_at_any_time() {
    for every_s in [10, 60, 300] {
        let mut crowd = Crowd::new(RoomSettings::with_rate(1, every_s * 1_000), None);
        crowd.many_join(20);
        for _ in 0..10 {
            crowd.run_s(every_s / 2 + 1);
            let waiting = crowd.play.counts().0;
            let polled_ms = crowd.play.room.view(crowd.play.now).wait_at_tail_ms.expect("the rate is known");
            let true_s = every_s * (u64::from(waiting) + 1);
            let error = (polled_ms as f64 / 1_000.0 - true_s as f64).abs() / true_s as f64;
            assert!(error <= 0.25, "one per {every_s} s: {polled_ms} ms, not {true_s} s");
        }
    }
}

#[test]
fn a_room_that_was_empty_for_hours_is_not_taken_for_a_slow_one() {
    // An idle room may go without ticks, so the first tick comes hours after the one before it. Before that the line had no
    // visitor yet, or the last ones left, or were sent away while the line stood.
    for before in 0..3 {
        let mut crowd = Crowd::new(RoomSettings::with_rate(100, 1_000), None);
        if before != 0 {
            crowd.many_join(3);
        }
        crowd.play.room.tick(crowd.play.now, &mut crowd.play.changes);
        match before {
            1 => (1..=3).for_each(|ticket| assert!(crowd.play.leave(ticket).ends_with(&format!("left {ticket}")))),
            2 => {
                crowd.play.room.close();
                crowd.play.put(&RoomSettings::with_rate(100, 1_000));
            }
            _ => {}
        }
        assert!(crowd.play.room.is_idle());
        crowd.play.pass_ms(5 * HOUR_MS);
        crowd.many_join(2_000);
        for _ in 0..10 {
            crowd.run_s(1);
            let waiting = u64::from(crowd.play.counts().0);
            let polled_ms = crowd.play.room.view(crowd.play.now).wait_at_tail_ms.unwrap();
            let true_ms = waiting * 10;
            assert!(polled_ms.abs_diff(true_ms) * 10 <= true_ms, "{polled_ms} ms for {waiting}");
        }
    }
}

#[test]
fn a_line_that_does_not_move_tells_no_wait() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    play.strangers(2);
    play.run_ms(20_000);
    assert_eq!(play.view(2).map(|view| view.state), Some(TicketState::Waiting { position: 0, wait_ms: None }));
    let told = play.view(2).map_or(0, |view| view.poll_after_ms);
    assert!((12_000..=18_100).contains(&told), "{told}");
}

#[test]
fn the_rate_that_is_shown_is_what_was_admitted_lately() {
    let mut play = Play::new(ten_per_second());
    assert!(play.room.view(play.now).rate.abs() < 1e-9);
    play.strangers(500);
    // For half a minute all visitors count as present.
    play.run_taking_ms(28_000);
    let rate = play.room.view(play.now).rate;
    assert!((9.5..10.5).contains(&rate), "{rate}");
    play.put(&paused(ten_per_second()));
    play.run_ms(40_000);
    assert!(play.room.view(play.now).rate.abs() < 1e-9);
}

#[test]
fn who_leaves_before_the_opening_does_not_make_the_line_seem_faster() {
    let opens_at = Some(Timestamp::clamped_us(WALL_US + 60_000_000));
    let mut crowd = Crowd::new(RoomSettings { opens_at, ..ten_per_second() }, None);
    crowd.many_join(1_000);
    for ticket in 1..=300 {
        crowd.play.leave(3 * ticket);
        crowd.run_s(u64::from(ticket % 10 == 0));
    }
    let polled_ms = crowd.play.room.view(crowd.play.now).wait_at_tail_ms;
    assert_eq!(polled_ms, Some(30_000 + 701 * 100));
}

#[test]
fn a_pause_makes_what_was_measured_before_it_void() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    play.strangers(12);
    for given_back in 1..=5 {
        play.run_ms(1_000);
        assert_eq!(play.leave(given_back), format!("left {given_back}"));
    }
    play.run_ms(50);
    let polled_ms = play.room.view(play.now).wait_at_tail_ms.expect("a slot is given back every second");
    assert!((6_000..=10_000).contains(&polled_ms), "{polled_ms}");
    play.put(&paused(RoomSettings::with_slots(1)));
    play.run_ms(100);
    play.put(&RoomSettings::with_slots(1));
    play.run_ms(50);
    assert_eq!(play.room.view(play.now).wait_at_tail_ms, None);
}

/// Makes a room with five slots, filled by visitors who stay, and twenty who wait.
fn all_slots_taken() -> Crowd {
    let settings = RoomSettings { max_active: Some(5), ..RoomSettings::with_rate(100, 1_000) };
    let mut crowd = Crowd::new(settings, None);
    crowd.many_join(25);
    crowd.run_s(1);
    assert_eq!((crowd.play.counts().0, crowd.play.counts().1), (20, 5));
    for ticket in 1..=5 {
        assert!(matches!(crowd.play.view(ticket).map(|view| view.state), Some(TicketState::Admitted { .. })));
    }
    crowd
}

fn polled_ms(crowd: &mut Crowd, ticket: u32) -> Option<u64> {
    match crowd.play.view(ticket).map(|view| view.state) {
        Some(TicketState::Waiting { wait_ms, .. }) => wait_ms,
        other => panic!("{other:?}"),
    }
}

/// The next in line gets the estimates 101, 191, 339, 606 and 1 275 ms, and then none, while all slots stay taken for half an
/// hour.
#[test]
fn while_all_slots_are_taken_and_none_is_given_back_no_wait_is_told() {
    let mut crowd = all_slots_taken();
    crowd.run_s(2);
    for second in 0..60 {
        assert_eq!(polled_ms(&mut crowd, 6), None, "after {second} s");
        assert_eq!(crowd.play.room.view(crowd.play.now).wait_at_tail_ms, None, "after {second} s");
        crowd.run_s(1);
    }
}

#[test]
fn slots_that_are_given_back_tell_how_long_the_next_one_takes() {
    let mut crowd = all_slots_taken();
    crowd.run_s(10);
    // One slot every three seconds: admitted visitors stay too.
    for given_back in 1..=5 {
        assert!(crowd.play.leave(given_back).contains("left"));
        crowd.run_s(3);
        let admitted = 5 + given_back;
        assert!(matches!(crowd.play.view(admitted).map(|view| view.state), Some(TicketState::Admitted { .. })));
        // The stop before the first admission counts as a part of its wait.
        let most_ms = if given_back < 3 { 15_000 } else { 9_000 };
        let told = polled_ms(&mut crowd, admitted + 1).expect("slots come back");
        assert!((2_000..=most_ms).contains(&told), "{told} ms after {given_back} slots");
    }
}
