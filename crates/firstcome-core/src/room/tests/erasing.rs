//! Erasing a user from a room.

use super::*;

fn join(play: &mut Play, user: Option<&str>, request: Option<RequestId>) -> u32 {
    let join = Join { user: user.map(user_id), request };
    match play.room.join(&join, play.now, &mut play.changes).expect("the room takes tickets") {
        Joined::New(view) | Joined::SameRequest(view) | Joined::SameUser(view) => view.number.get(),
    }
}

const KEY: RequestId = RequestId { key: 7 << 90, body: 1 };

#[test]
fn an_erased_user_leaves_the_line_and_is_a_newcomer_afterwards() {
    let mut play = Play { room: Room::new(RoomSettings::defaults(), hasher(), start()), now: start(), changes: vec![] };
    assert_eq!([join(&mut play, Some("al"), None), join(&mut play, Some("ann"), Some(KEY))], [1, 2]);
    assert_eq!([join(&mut play, Some("bob"), None), join(&mut play, None, None)], [3, 4]);
    play.changes.clear();
    let judged = play.room.judge_erase("ann");
    assert_eq!(play.room.erase("ann", play.now, &mut play.changes), [number(2)]);
    assert_eq!(play.changes, [judged.expect("ann has a place")], "what was judged happens, and no more");
    assert_eq!(play.room.view(play.now).waiting, 3);
    assert_eq!(
        [1, 2, 3, 4].map(|it| play.room.user(number(it)).map(str::to_owned)),
        [Some("al".to_owned()), None, Some("bob".to_owned()), None]
    );
    let place = play.room.look_up(PlaceKey::Number(number(2)), play.now).expect("the number stays drawn");
    assert_eq!(place.state, PlaceState::Gone(Departure::Left));
    assert_eq!(join(&mut play, Some("ann"), Some(KEY)), 5, "a new place, also with the same idempotency key");
    assert_eq!(join(&mut play, Some("bob"), None), 3, "no other user lost a place");
}

#[test]
fn tickets_that_were_gone_before_forget_their_user_too() {
    let mut play = Play { room: Room::new(RoomSettings::defaults(), hasher(), start()), now: start(), changes: vec![] };
    let first = join(&mut play, Some("ann"), Some(KEY));
    join(&mut play, Some("anna"), None);
    play.room.leave(number(first), play.now, &mut play.changes).unwrap();
    let second = join(&mut play, Some("ann"), None);
    assert_eq!(play.room.erase("ann", play.now, &mut play.changes), [number(first), number(second)]);
    assert_eq!(play.room.erase("ann", play.now, &mut play.changes), [], "a second erasure finds nothing");
    assert_eq!(play.room.judge_erase("ann"), None);
    assert_eq!(play.room.user(number(2)), Some("anna"), "a name that begins alike stays");
}
