//! A restart forgets neither who was present nor who was not, and the time that it takes counts for no visitor.

use super::*;
use crate::room::memory::{Memory, MemoryRounds};
use std::collections::BTreeMap;

/// What a store keeps of a room: its rows, and the parts of its memory.
struct Store {
    play: Play,
    rounds: MemoryRounds,
    tickets: BTreeMap<u32, (Join, Option<Departure>)>,
    slots: BTreeMap<u32, Slot>,
    reached: u32,
    memory: BTreeMap<u32, Memory>,
}

impl Store {
    fn new(settings: RoomSettings) -> Self {
        Self {
            play: Play::new(settings),
            rounds: MemoryRounds::default(),
            tickets: BTreeMap::new(),
            slots: BTreeMap::new(),
            reached: 1,
            memory: BTreeMap::new(),
        }
    }

    fn keep(&mut self) {
        for change in self.play.changes.drain(..) {
            match change {
                Change::Joined { number, join, .. } => drop(self.tickets.insert(number.get(), (join, None))),
                Change::Admitted { number, slot } => drop(self.slots.insert(number.get(), slot)),
                Change::Taken { number, until } => {
                    self.slots.get_mut(&number.get()).unwrap().hold = Hold::Taken { until };
                }
                Change::Lapsed { number } => drop(self.slots.remove(&number.get())),
                Change::Gone { number, how } => {
                    self.slots.remove(&number.get());
                    self.tickets.get_mut(&number.get()).unwrap().1 = Some(how);
                }
                Change::Reached(reached) => self.reached = reached,
                Change::Drawn(_) | Change::Renewed { .. } => unreachable!("no room here draws or renews"),
            }
        }
    }

    /// Ticks, stores one part of the memory, and returns the admitted numbers.
    fn tick(&mut self) -> Vec<u32> {
        self.play.room.tick(self.play.now, &mut self.play.changes);
        if let Some(memory) = self.rounds.next(&self.play.room, self.play.now) {
            if memory.bytes.is_empty() {
                self.memory.remove(&memory.first_number).expect("only a stored part is deleted");
            } else {
                self.memory.insert(memory.first_number, memory);
            }
        }
        let admitted = |change: &Change| match change {
            Change::Admitted { number, .. } => Some(number.get()),
            _ => None,
        };
        let admitted = self.play.changes.iter().filter_map(admitted).collect();
        self.keep();
        admitted
    }

    /// The process is killed, and another one opens the store after some time.
    fn restart(&mut self, down_ms: u64) {
        self.keep();
        self.play.pass_ms(down_ms);
        let now = self.play.now;
        let mut room = Room::restoring(self.play.room.settings().clone(), hasher(), now, 1);
        for (&ticket, (join, gone)) in &self.tickets {
            room.restore_ticket(number(ticket), join, *gone, now).unwrap();
        }
        let last = self.slots.values().map(|slot| slot.admission).max().unwrap_or(0);
        room.restore_reached(self.reached, last).unwrap();
        for (&ticket, slot) in &self.slots {
            room.restore_slot(number(ticket), *slot, now).unwrap();
        }
        room.restored(RoomPhase::Running);
        self.memory.values().for_each(|memory| room.recall(memory, now));
        assert_sound(&room);
        self.play.room = room;
        self.rounds = MemoryRounds::default();
    }

    fn run_ms(&mut self, ms: u64, each: &mut impl FnMut(&mut Self, Vec<u32>)) {
        for _ in 0..ms / 50 {
            self.play.pass_ms(50);
            let admitted = self.tick();
            each(self, admitted);
        }
    }
}

/// How long the first visitor of a paused room is present after a contact.
fn window_ms() -> u64 {
    let mut play = Play::new(paused(RoomSettings::with_slots(1)));
    3 * u64::from(play.stranger().poll_after_ms)
}

/// Three visitors in a paused room: the first one is silent, the others ask.
fn with_one_silent(settings: RoomSettings, silent_ms: u64) -> Store {
    let mut store = Store::new(paused(settings));
    store.play.strangers(3);
    let mut asked_ms = 0;
    store.run_ms(silent_ms, &mut |store, _| {
        asked_ms += 50;
        if asked_ms % 5_000 == 0 {
            store.play.look(2);
            store.play.look(3);
        }
    });
    store
}

#[test]
fn a_visitor_who_was_absent_is_absent_after_a_restart_and_next_when_back() {
    let mut store = with_one_silent(RoomSettings::with_slots(1), window_ms() + 2_000);
    store.restart(HOUR_MS / 2);
    store.play.put(&RoomSettings::with_slots(1));
    assert_eq!(store.tick(), [2], "the first one is passed over");
    assert_eq!(store.play.look(1), "waiting 0");
    assert_eq!(store.play.leave(2), "left 2");
    assert_eq!(store.tick(), [1], "and keeps the place");
}

#[test]
fn without_its_memory_a_room_takes_all_for_present() {
    let mut store = with_one_silent(RoomSettings::with_slots(1), window_ms() + 2_000);
    store.memory.clear();
    store.restart(1_000);
    store.play.put(&RoomSettings::with_slots(1));
    assert_eq!(store.tick(), [1]);
}

#[test]
fn the_time_of_a_restart_is_not_silence_and_the_time_before_is() {
    // What was stored last is up to a second old, and is rounded up to whole seconds.
    for (left_ms, after_ms, wanted) in [(10_000, 9_000, [1]), (10_000, 12_500, [2]), (2_000, 1_000, [1])] {
        let mut store = with_one_silent(RoomSettings::with_slots(1), window_ms() / 50 * 50 - left_ms);
        store.restart(HOUR_MS / 2);
        store.play.look(2);
        store.play.look(3);
        store.run_ms(after_ms, &mut |_, _| {});
        store.play.put(&RoomSettings::with_slots(1));
        assert_eq!(store.tick(), wanted, "{left_ms} ms left and {after_ms} ms after");
    }
}

#[test]
fn restarts_without_end_do_not_keep_an_absent_visitor_present() {
    let mut store = with_one_silent(RoomSettings::with_slots(1), 10_000);
    for _ in 0..25 {
        store.restart(100);
        store.play.look(2);
        store.play.look(3);
        store.run_ms(3_000, &mut |_, _| {});
    }
    store.play.put(&RoomSettings::with_slots(1));
    assert_eq!(store.tick(), [2]);
}

#[test]
fn a_long_poll_interval_is_remembered() {
    // The last of 20 000 polls once a minute, and is present for three minutes.
    let mut store = Store::new(paused(RoomSettings::with_rate(10, 1_000)));
    store.play.strangers(20_000);
    let open = RoomSettings::with_rate(10, 1_000);
    store.play.put(&open);
    store.run_ms(10_000, &mut |_, _| {});
    let told_ms = store.play.view(20_000).unwrap().poll_after_ms;
    assert!(48_000 <= told_ms, "{told_ms}");
    store.play.put(&paused(open));
    store.run_ms(20_000, &mut |_, _| {});
    store.restart(1_000);
    assert!(store.play.room.line.is_present(20_000, store.play.now.steady));
    store.play.pass_ms(3 * u64::from(told_ms) - 22_000);
    assert!(store.play.room.line.is_present(20_000, store.play.now.steady), "until the third poll was missed");
    // What was stored of this part is up to five seconds old.
    store.play.pass_ms(9_000);
    assert!(!store.play.room.line.is_present(20_000, store.play.now.steady));
}

#[test]
fn an_absent_visitor_does_not_expire_by_a_restart() {
    let settings = RoomSettings { waiting_ttl_ms: 100_000, ..RoomSettings::with_slots(1) };
    let mut store = with_one_silent(settings, 95_000);
    store.restart(HOUR_MS);
    store.run_ms(89_000, &mut |_, _| {});
    assert_eq!(store.play.look(1), "waiting 0", "longer than any poll interval");
    store.restart(HOUR_MS);
    store.play.pass_ms(100_000);
    assert_eq!(store.play.look(1), "expired");
}

#[test]
fn memory_that_does_not_fit_has_no_effect() {
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(3);
    for (first_number, bytes) in [(0, 3), (2, 3), (4_097, 3), (u32::MAX, 3), (1, 0), (1, 10_000)] {
        let left_s = vec![31; bytes].into();
        play.room.recall(&Memory { first_number, bytes: left_s }, play.now);
        assert_sound(&play.room);
        assert!((1..=3).all(|ticket| play.room.line.is_present(ticket, play.now.steady)), "{first_number}, {bytes}");
    }
}

#[test]
fn the_parts_near_the_front_are_stored_each_second_and_no_part_is_left_out() {
    let mut store = Store::new(paused(ten_per_second()));
    store.play.strangers(40 * 4_096);
    let mut stored: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for step in 0..1_200_u64 {
        store.play.pass_ms(50);
        if let Some(memory) = store.rounds.next(&store.play.room, store.play.now) {
            assert_eq!(memory.bytes.len(), 4_096);
            stored.entry(memory.first_number).or_default().push(step * 50);
        }
    }
    assert_eq!(stored.len(), 40, "each part");
    let longest = |first: u32| {
        let times = &stored[&first];
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
    };
    assert!(longest(1) <= 2_500, "{}", longest(1));
    assert!(longest(3 * 4_096 + 1) <= 8_000 && longest(39 * 4_096 + 1) <= 20_000);
    // One part per call at most, however many are due.
    assert!(stored.values().map(Vec::len).sum::<usize>() <= 1_200);
}

#[test]
fn a_part_in_which_no_visitor_waits_is_deleted_once() {
    let mut store = Store::new(paused(ten_per_second()));
    store.play.strangers(2);
    store.tick();
    assert_eq!(store.memory.len(), 1);
    store.play.leave(1);
    store.play.leave(2);
    store.run_ms(5_000, &mut |_, _| {});
    assert!(store.memory.is_empty());
    store.play.room.close();
    store.play.put(&paused(ten_per_second()));
    store.play.stranger();
    store.tick();
    assert_eq!(store.memory.keys().copied().collect::<Vec<_>>(), [3], "parts begin with the first number");
}

/// Half of the visitors left in silence a minute before. Returns which part of the rate arrived over a minute.
fn arrivals_through_restarts(restarts: bool, keeps: bool) -> f64 {
    const RATE: u32 = 20;
    let mut store = Store::new(paused(RoomSettings::with_rate(RATE, 1_000)));
    store.play.strangers(6 * 60 * RATE);
    let is_there = |ticket: u32| ticket.is_multiple_of(2);
    let mut due: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let later = |due: &mut BTreeMap<u64, Vec<u32>>, at_ms: u64, ticket| due.entry(at_ms).or_default().push(ticket);
    (1..=6 * 60 * RATE).filter(|it| is_there(*it)).for_each(|it| later(&mut due, u64::from(it) % 100 * 50, it));
    let mut taken = 0_u32;
    let mut poll = |store: &mut Store, _: Vec<u32>| {
        let now_ms = store.play.passed_ms();
        let mut still = due.split_off(&(now_ms + 1));
        std::mem::swap(&mut due, &mut still);
        for ticket in still.into_values().flatten() {
            match store.play.view(ticket).unwrap() {
                TicketView { state: TicketState::Waiting { .. }, poll_after_ms, .. } => {
                    later(&mut due, now_ms + u64::from(poll_after_ms), ticket);
                }
                TicketView { state: TicketState::Admitted { .. }, .. } => taken += 1,
                view => panic!("{view:?}"),
            }
        }
    };
    store.run_ms(60_000, &mut poll);
    store.play.put(&RoomSettings::with_rate(RATE, 1_000));
    for _ in 0..20 {
        if restarts {
            if !keeps {
                store.memory.clear();
            }
            store.restart(150);
            store.run_ms(2_850, &mut poll);
        } else {
            store.run_ms(3_000, &mut poll);
        }
    }
    f64::from(taken) / f64::from(60 * RATE)
}

#[test]
fn twenty_restarts_in_a_minute_leave_nine_tenths_of_the_rate() {
    let (plain, kept, forgotten) = (
        arrivals_through_restarts(false, true),
        arrivals_through_restarts(true, true),
        arrivals_through_restarts(true, false),
    );
    assert!(0.94 <= plain, "without restarts: {plain}");
    assert!(0.9 <= kept, "with memory: {kept}");
    assert!(forgotten <= 0.85, "the test can fail: {forgotten}");
}
