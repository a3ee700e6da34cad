//! Forgetting tickets that are gone for long.

use super::*;

/// Two rooms with the same history; one of them is purged now and then.
struct Pair {
    purged: Play,
    whole: Play,
    chance: Chance,
}

impl Pair {
    fn new(settings: &RoomSettings, seed: u64) -> Self {
        let (purged, whole) = (Play::new(settings.clone()), Play::new(settings.clone()));
        Self { purged, whole, chance: Chance(seed) }
    }

    /// Does the same in both rooms, and compares what each says.
    #[track_caller]
    fn both<T: PartialEq + std::fmt::Debug>(&mut self, act: impl Fn(&mut Play) -> T) -> T {
        let said = act(&mut self.purged);
        assert_eq!(said, act(&mut self.whole));
        assert_eq!(self.purged.news(), self.whole.news(), "changes");
        assert_eq!(self.purged.counts(), self.whole.counts());
        said
    }

    fn step(&mut self) {
        let drawn = self.whole.room.drawn();
        let some = 1 + self.chance.below(drawn.max(1));
        let more = 1 + self.chance.below(3_000);
        match self.chance.below(6) {
            0 | 1 => drop(self.both(|play| play.strangers(more).len())),
            2 => {
                // Nearly all in front leave, so that there is something to purge.
                let kept = self.chance.below(4 * some);
                self.both(|play| {
                    (1..=some.min(drawn))
                        .filter(|ticket| *ticket != kept)
                        .map(|ticket| play.leave(ticket))
                        .collect::<String>()
                });
            }
            3 => drop(self.both(|play| play.run_taking_ms(500))),
            4 => self.both(|play| play.pass_ms(u64::from(some) * 10)),
            _ => drop(self.both(Play::tick)),
        }
        if let Some(gone) = self.purged.room.judge_purge(self.chance.below(drawn + 2))
            && self.chance.below(3) == 0
        {
            self.purged.room.purge(gone);
            assert_eq!(self.purged.room.gone_before(), gone.before);
            assert_sound(&self.purged.room);
        }
    }

    /// Compares what the visitors of some tickets see.
    fn look(&mut self) {
        for _ in 0..20 {
            let ticket = 1 + self.chance.below(self.whole.room.drawn() + 1);
            let (purged, whole) = (self.purged.look(ticket), self.whole.look(ticket));
            if ticket < self.purged.room.gone_before() {
                assert_eq!(purged, "expired");
                assert!(["left", "expired"].contains(&whole.as_str()), "{ticket} was {whole}");
            } else {
                assert_eq!(purged, whole, "ticket {ticket}");
            }
            assert_eq!(self.purged.news(), self.whole.news(), "changes");
        }
    }
}

#[test]
fn a_purge_changes_nothing_but_how_a_ticket_was_gone() {
    let draws = RoomSettings {
        opens_at: Some(start().wall.plus_ms(600_000)),
        order: RoomOrder::Draw,
        ..RoomSettings::with_rate(40, 1_000)
    };
    let mut most = 0;
    for (seed, settings) in
        (0..12).zip([RoomSettings::with_rate(40, 1_000), RoomSettings::with_slots(3), draws].iter().cycle())
    {
        let mut pair = Pair::new(settings, seed);
        for _ in 0..60 {
            pair.step();
            pair.look();
        }
        most = most.max(pair.purged.room.gone_before());
    }
    assert!(2 * 4_096 < most, "{most} numbers were purged");
}

/// Restores what rows of the tickets from `gone_before` on say, all of which wait.
fn restored(from: u32, drawn: u32, reached: u32) -> Play {
    let mut room = Room::restoring(RoomSettings::with_slots(1), hasher(), start(), 1);
    room.restore_gone(from).unwrap();
    for ticket in from..=drawn {
        room.restore_ticket(number(ticket), &anonymous(), None, start()).unwrap();
    }
    room.restore_reached(reached, 0).unwrap();
    room.restored(RoomPhase::Running);
    assert_sound(&room);
    Play { room, now: start(), changes: Vec::new() }
}

#[test]
fn what_is_gone_stays_so_over_a_restart_and_no_number_is_drawn_again() {
    let mut play = Play::new(paused(RoomSettings::with_slots(1)));
    play.strangers(10_000);
    (1..=5_000).for_each(|ticket| drop(play.leave(ticket)));
    assert_eq!(play.room.judge_purge(1), None, "nothing is before the first number");
    let gone = play.room.judge_purge(20_000).expect("tickets are gone");
    assert_eq!(gone, GoneTickets { before: 5_001, count: 5_000, memory_from: 4_097 }, "up to the first that lives");
    play.room.purge(gone);
    assert_eq!(play.room.judge_purge(20_000), None);
    let mut again = restored(5_001, 10_000, 1);
    for play in [&mut play, &mut again] {
        let looks = [1, 5_000, 5_001, 10_000, 10_001].map(|ticket| play.look(ticket));
        assert_eq!(looks, ["expired", "expired", "waiting 0", "waiting 4999", "unknown"]);
        assert_eq!(play.leave(1), "", "to leave again changes nothing");
        assert_eq!((play.strangers(1), play.news()), (vec![10_001], "joined 10001".to_owned()));
    }
    assert_eq!(again.tick(), "admitted 5001, reached 5002");
    // All are gone, to the end of a segment and beyond it.
    for drawn in [4_096, 4_097, 8_192] {
        let mut empty = restored(drawn + 1, drawn, 1);
        assert_eq!((empty.look(drawn), empty.counts().0), ("expired".to_owned(), 0));
        assert_eq!((empty.strangers(1), empty.news()), (vec![drawn + 1], format!("joined {}", drawn + 1)));
        assert_eq!(empty.tick(), format!("admitted {0}, reached {1}", drawn + 1, drawn + 2));
    }
}

#[test]
fn a_slot_and_a_number_that_is_unknown_hold_a_purge_up() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    play.strangers(3);
    play.leave(2);
    assert_eq!(play.room.judge_purge(9), None, "number 1 is inside");
    let lost = Room::rebuilt(&twins::nothing(&RoomSettings::with_slots(1), 3), hasher(), start()).unwrap();
    assert_eq!(lost.judge_purge(3), None, "its visitor may come back");
}

#[test]
fn the_memory_of_a_room_stays_flat_however_many_come_and_go() {
    let mut play = Play::new(paused(RoomSettings::with_slots(1)));
    let mut bytes = Vec::new();
    for day in 0..365_u32 {
        for visitor in 0..2_000 {
            play.try_join(&keyed(named(&format!("{day}-{visitor}")), u128::from(day * 2_000 + visitor) << 96, 1));
        }
        let first = play.room.first_living();
        (first..=play.room.drawn()).for_each(|ticket| drop(play.leave(ticket)));
        if let Some(gone) = play.room.judge_purge(first) {
            play.room.purge(gone);
        }
        bytes.push(play.room.line.bytes());
    }
    let (warm, most) = (bytes[..20].iter().max().unwrap(), bytes.iter().max().unwrap());
    assert!(*most <= warm + warm / 4, "{warm} bytes after twenty days, {most} later");
}

#[test]
fn rounds_of_memory_go_on_where_a_purge_moves_the_first_part() {
    let mut play = Play::new(paused(RoomSettings::with_slots(1)));
    play.strangers(3 * 4_096);
    let mut rounds = MemoryRounds::default();
    let mut parts = |play: &Play| -> Vec<u32> {
        std::iter::from_fn(|| rounds.next(&play.room, play.now)).map(|memory| memory.first_number).collect()
    };
    assert_eq!(parts(&play), [1, 4_097, 8_193]);
    (1..=4_500).for_each(|ticket| drop(play.leave(ticket)));
    let gone = play.room.judge_purge(4_501).unwrap();
    assert_eq!(gone.memory_from, 4_097);
    play.room.purge(gone);
    assert_eq!(parts(&play), [0; 0], "each part is stored");
    play.pass_ms(15_000);
    let mut due = parts(&play);
    due.sort_unstable();
    assert_eq!(due, [4_097, 8_193]);
}
