//! Positions, as visitors see them.

use super::*;

#[test]
fn a_position_counts_those_ahead_who_still_wait() {
    let mut play = Play::with_slot_taken(RoomSettings::with_slots(1));
    assert_eq!(play.strangers(5), [2, 3, 4, 5, 6]);
    let positions = |play: &mut Play| [2, 3, 4, 5, 6].map(|ticket| play.look(ticket)).join(" ");
    assert_eq!(positions(&mut play), "waiting 0 waiting 1 waiting 2 waiting 3 waiting 4");
    play.leave(4);
    assert_eq!(positions(&mut play), "waiting 0 waiting 1 left waiting 2 waiting 3");
    play.leave(1);
    play.tick();
    assert_eq!(positions(&mut play), "admitted waiting 0 left waiting 1 waiting 2");
}

#[test]
fn a_line_that_ends_with_its_segment_is_counted_like_any_other() {
    for count in [1, 4_095, 4_096, 4_097, 8_192] {
        let mut play = Play::new(RoomSettings::with_slots(1));
        play.strangers(count);
        assert_eq!(play.try_join(&named("ann")), format!("new {} waiting {count}", count + 1));
        play.leave(count + 1);
        play.news();
        assert_eq!(play.tick(), "admitted 1, reached 2", "{count}");
        assert_eq!(play.room.view(play.now).waiting, count - 1);
        for _ in 0..3 {
            play.pass_ms(50);
            assert_eq!(play.tick(), "", "{count}");
        }
        // And run dry, exactly at its end.
        play.put(&RoomSettings::with_slots(10_000));
        play.room.tick(play.now, &mut play.changes);
        assert_eq!(play.counts(), (0, count, count + 1 - u32::from(count + 1 > play.room.drawn())));
        play.news();
        assert_eq!(play.tick(), "");
        assert_eq!(play.try_join(&anonymous()), format!("new {} waiting 0", count + 2));
    }
}

#[test]
fn no_position_rises_no_matter_what_happens_to_others() {
    const CROWD: u32 = 20_000;
    let settings = RoomSettings {
        claim_window_ms: 2_000,
        active_ttl_ms: 3_000,
        max_active: Some(300),
        ..RoomSettings::with_rate(200, 1_000)
    };
    let (mut play, mut chance) = (Play::new(settings), Chance(5));
    play.strangers(CROWD / 2);
    let mut told = vec![u32::MAX; CROWD as usize + 1];
    for round in 0..1_200 {
        play.pass_ms(50);
        play.room.tick(play.now, &mut play.changes);
        play.changes.clear();
        if play.room.drawn() < CROWD {
            play.strangers(10);
        }
        for _ in 0..40 {
            let ticket = 1 + chance.below(play.room.drawn());
            if chance.below(10) == 0 {
                play.leave(ticket);
            }
            let Some(TicketView { state: TicketState::Waiting { position, .. }, .. }) = play.view(ticket) else {
                continue;
            };
            assert!(position <= told[ticket as usize], "{ticket} rose to {position} in round {round}");
            told[ticket as usize] = position;
        }
        play.changes.clear();
    }
    assert_sound(&play.room);
    assert!(2_000 < play.counts().2, "the line moved: {:?}", play.counts());
}

#[test]
fn tickets_of_a_dropped_segment_still_say_how_they_ended() {
    let mut play = Play::new(RoomSettings { active_ttl_ms: 1_000, ..RoomSettings::with_slots(5_000) });
    play.strangers(4_096 + 3);
    play.tick();
    for ticket in 1..=4_096 {
        play.look(ticket);
        if ticket % 2 == 0 {
            play.release(ticket, ticket.into());
        }
    }
    play.pass_ms(1_000);
    play.room.tick(play.now, &mut play.changes);
    assert_eq!(play.room.line.kept_segments(), 1);
    for ticket in 1..=4_096 {
        assert_eq!(play.look(ticket), if ticket % 2 == 0 { "left" } else { "expired" }, "{ticket}");
    }
    assert_eq!((play.look(4_097).as_str(), play.counts()), ("admitted", (0, 3, 4_099)));
    assert_sound(&play.room);
}
