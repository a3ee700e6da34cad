//! A look at a place finds it and changes nothing.

use super::*;
use crate::room::{PlaceKey, PlaceState};

#[test]
fn a_look_finds_each_place_and_changes_nothing() {
    let mut play = Play::new(RoomSettings::with_slots(1));
    let mut changes = Vec::new();
    for join in [anonymous(), named("bob"), anonymous(), anonymous()] {
        play.room.join(&join, play.now, &mut changes).unwrap();
    }
    play.leave(4);
    play.tick();
    let before = play.room.image();
    let found = |play: &Play, key| play.room.look_up(key, play.now).map(|place| place.state);
    let by_number = |play: &Play, of: u32| found(play, PlaceKey::Number(number(of)));
    assert_eq!(by_number(&play, 1), Some(PlaceState::Inside { admission: 1, is_taken: false }));
    let waiting = |position| Some(PlaceState::Waiting { position, is_present: true });
    assert_eq!((by_number(&play, 2), by_number(&play, 3)), (waiting(0), waiting(1)));
    assert_eq!(by_number(&play, 4), Some(PlaceState::Gone(Departure::Left)));
    assert_eq!(by_number(&play, 5), None);
    let bob = play.room.look_up(PlaceKey::User("bob"), play.now).unwrap();
    assert_eq!((bob.number, bob.user.as_deref(), bob.state), (number(2), Some("bob"), waiting(0).unwrap()));
    assert_eq!(found(&play, PlaceKey::User("eve")), None);
    assert!(play.room.image() == before, "a poll of number 1 would have taken the slot");
    play.look(1);
    assert_eq!(by_number(&play, 1), Some(PlaceState::Inside { admission: 1, is_taken: true }));
    // A look is no contact either: the visitor falls silent all the same.
    play.pass_ms(300_000);
    assert_eq!(by_number(&play, 3), Some(PlaceState::Waiting { position: 1, is_present: false }));
}
