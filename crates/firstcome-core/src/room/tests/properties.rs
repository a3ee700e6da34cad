//! Figures that `docs/rooms.md` promises, in virtual time.

use super::*;
use std::collections::BTreeMap;

/// A line in which some visitors left in silence long ago; the others poll as they are told, and come when it is their turn.
struct Crowd {
    play: Play,
    due: BTreeMap<u64, Vec<u32>>,
    /// When each visitor was admitted, and when each came, in milliseconds.
    admitted_ms: Vec<u64>,
    came_ms: Vec<u64>,
}

impl Crowd {
    fn new(settings: &RoomSettings, count: u32, is_there: impl Fn(u32) -> bool) -> Self {
        let mut play = Play::new(paused(settings.clone()));
        let mut due: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for ticket in play.strangers(count).into_iter().filter(|ticket| is_there(*ticket)) {
            due.entry(u64::from(ticket) % 100 * 50).or_default().push(ticket);
        }
        let mut crowd = Self { play, due, admitted_ms: Vec::new(), came_ms: Vec::new() };
        // Longer than any visitor is present without a poll.
        crowd.run_ms(240_000);
        crowd.play.put(settings);
        crowd
    }

    fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms / 50 {
            let admitted = self.play.run_ms(50).len();
            let now_ms = self.play.passed_ms();
            self.admitted_ms.extend(std::iter::repeat_n(now_ms, admitted));
            let later = self.due.split_off(&(now_ms + 1));
            for ticket in std::mem::replace(&mut self.due, later).into_values().flatten() {
                match self.play.view(ticket).unwrap() {
                    TicketView { state: TicketState::Waiting { .. }, poll_after_ms, .. } => {
                        self.due.entry(now_ms + u64::from(poll_after_ms)).or_default().push(ticket);
                    }
                    TicketView { state: TicketState::Admitted { .. }, .. } => self.came_ms.push(now_ms),
                    TicketView { state: TicketState::Gone(_) | TicketState::InDraw { .. }, .. } => {}
                }
            }
        }
    }
}

#[test]
fn over_a_minute_the_rate_is_met_to_one_part_in_a_hundred_and_evenly() {
    for rate in [20, 100, 500] {
        let mut crowd = Crowd::new(&RoomSettings::with_rate(rate, 1_000), 70 * rate, |_| true);
        crowd.run_ms(1_000);
        crowd.admitted_ms.clear();
        crowd.run_ms(60_000);
        let of_rate = crowd.admitted_ms.len() as f64 / f64::from(60 * rate);
        assert!((0.99..=1.01).contains(&of_rate), "{rate} per second: {of_rate}");
        // The time between two admissions differs from an even one by less than 100 ms.
        let even_ms = 1_000.0 / f64::from(rate);
        let jitter = |pair: &[u64]| (pair[1] as f64 - pair[0] as f64 - even_ms).abs();
        assert!(crowd.admitted_ms.windows(2).all(|pair| jitter(pair) <= 100.0), "{rate} per second");
    }
}

#[test]
fn with_nine_of_ten_gone_nearly_all_of_the_rate_is_used() {
    let mut crowd = Crowd::new(&RoomSettings::with_rate(50, 1_000), 50 * 140 * 10, |ticket| ticket.is_multiple_of(10));
    // Visitors were told of a longer wait, so the first ones come late.
    crowd.run_ms(60_000);
    let before = crowd.came_ms.len();
    crowd.run_ms(60_000);
    let used = (crowd.came_ms.len() - before) as f64 / (50.0 * 60.0);
    assert!((0.98..=1.02).contains(&used), "{used}");
}

#[test]
fn with_nine_of_ten_gone_slots_do_not_stay_empty() {
    let settings = RoomSettings { active_ttl_ms: 2_000, ..RoomSettings::with_slots(50) };
    let mut crowd = Crowd::new(&settings, 40_000, |ticket| ticket.is_multiple_of(10));
    let mut in_use = 0;
    for _ in 0..20 * 60 {
        crowd.run_ms(50);
        in_use += crowd.play.counts().1;
    }
    let used = f64::from(in_use) / f64::from(50 * 20 * 60);
    assert!(0.98 <= used, "{used}");
}

#[test]
fn a_released_slot_is_offered_again_at_the_next_tick() {
    let mut crowd = Crowd::new(&RoomSettings::with_slots(5), 500, |ticket| ticket.is_multiple_of(10));
    crowd.run_ms(10_000);
    let inside: Vec<(u32, u64)> = crowd.play.room.inside().collect();
    assert_eq!(inside.len(), 5);
    for (ticket, admission) in inside {
        crowd.play.release(ticket, admission);
        crowd.admitted_ms.clear();
        crowd.run_ms(50);
        assert_eq!(crowd.admitted_ms.len(), 1, "and a tick comes every 50 ms");
    }
}
