//! Places in line, and the answers to waiters.

use super::*;

fn queued(acquired: &Acquired) -> (u64, u32, u64, WaiterView) {
    match acquired {
        Acquired::Queued { number, ahead, life, seen } => (*number, *ahead, *life, *seen),
        other => panic!("in line: {other:?}"),
    }
}

#[test]
fn an_answer_in_line_tells_place_life_and_the_end_of_the_hold() {
    let mut play = Play::held();
    let (fence, life) = (play.fence("a"), play.heartbeat(2));
    play.pass_ms(500);
    let acquired = play.acquire("a", waiter(2, 1), Wait::Yes);
    let (number, ahead, told_life, seen) = queued(&acquired);
    assert!(fence < number);
    assert_eq!((ahead, told_life), (0, life));
    let wanted = WaiterView { expires_us: START_US + 10_000_000, lease_ms: LEASE_MS, head: Head::Mine };
    assert_eq!(seen, wanted);
    let acquired = play.acquire("a", waiter(3, 1), Wait::Yes);
    assert_eq!(queued(&acquired).3, WaiterView { head: Head::Others, ..wanted });
}

#[test]
fn the_head_is_a_process_that_lives_first_and_everybody_behind_a_dead_one() {
    let mut play = Play::held();
    for client in [2, 3, 4] {
        play.place("a", waiter(client, 1));
    }
    let heads = |play: &mut Play| [2, 3, 4].map(|client| play.look("a", client).contains("mine"));
    assert_eq!(heads(&mut play), [true, false, false]);
    play.pass_ms(2_001);
    assert_eq!(heads(&mut play), [true, true, true]);
    play.heartbeat(3);
    assert_eq!(heads(&mut play), [true, true, true], "the first one is still dead");
    play.heartbeat(2);
    assert_eq!(heads(&mut play), [true, false, false]);
}

#[test]
fn a_process_that_looks_learns_of_its_grant_and_no_other_process_does() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    play.place("a", waiter(3, 1));
    assert_eq!(play.look("a", 2), "nothing, mine in 10000 ms");
    play.release("a", request(1, 1));
    assert_eq!(play.look("a", 2), "open 2000 ms, others in 2000 ms");
    assert_eq!(play.look("a", 3), "nothing, mine in 2000 ms");
    assert_eq!(play.look("b", 3), "nothing, free");
    assert_eq!(play.look("a", 1), "nothing, others in 2000 ms");
}

#[test]
fn who_looks_at_the_end_of_a_hold_gets_it_if_it_is_the_head() {
    let mut play = Play::held();
    play.pass_ms(9_000);
    play.place("a", waiter(2, 1));
    play.pass_ms(1_000);
    assert_eq!(play.look("a", 2), "open 2000 ms, mine in 2000 ms");
}

#[test]
fn a_place_comes_back_only_if_it_was_drawn_and_no_process_has_it() {
    let mut play = Play::held();
    let first = play.place("a", waiter(2, 1));
    let second = play.place("a", waiter(3, 1));
    play.release("a", request(2, 1));
    assert_eq!(play.ask("a", waiter(2, 1), Wait::Again(first)), "queued 0");
    assert_eq!(play.ask("a", waiter(4, 1), Wait::Again(first)), "queued 2", "taken: at the end");
    let last = play.table.last();
    assert_eq!(play.ask("a", waiter(5, 1), Wait::Again(last.max(play.now_us) + 1)), "queued 3", "never drawn");
    let number = play.table.place_of(&lock_name("a"), request(5, 1)).unwrap().number();
    assert!(last < number && second < number);
    assert_eq!(number, last.max(play.now_us - 1) + 1, "drawn like any other");
}

#[test]
fn after_the_store_forgot_all_the_old_places_come_back_in_any_order() {
    let mut play = Play::held();
    let places = [2, 3, 4].map(|client| play.place("a", waiter(client, 1)));
    play.pass_ms(1);
    play.table = MemoryLockTable::new(hasher());
    play.try_lock("a", waiter(9, 1));
    for at in [1, 2, 0] {
        play.ask("a", waiter(2 + at as u64, 1), Wait::Again(places[at]));
    }
    play.place("a", waiter(5, 1));
    play.release("a", request(9, 1));
    for client in [2, 3, 4, 5] {
        assert_eq!(play.news(), format!("a to {client}.1: open 2000 ms"));
        play.release("a", request(client, 1));
    }
}

#[test]
fn a_place_that_came_back_is_never_drawn_again() {
    let mut play = Play::held();
    for client in [2, 3] {
        play.heartbeat(client);
    }
    play.pass_ms(1);
    let place = play.now_us;
    assert_eq!(play.ask("a", waiter(2, 1), Wait::Again(place)), "queued 0");
    assert_eq!(play.wait("a", waiter(3, 1)), "queued 1");
    assert_eq!(play.table.waiters(&lock_name("a")), 2);
}

#[test]
fn a_view_shows_and_changes_nothing() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    let shown = |play: &Play| {
        let LockView { held, holders: _, waiters } = view(&play.table, &lock_name("a"), play.now_us);
        (held.map(|(owner, fence, expires_us)| (owner.to_string(), fence.get(), play.left_ms(expires_us))), waiters)
    };
    let fence = play.fence("a");
    assert_eq!(shown(&play), (Some(("c1".to_owned(), fence, 10_000)), 1));
    play.pass_ms(10_000);
    assert_eq!(shown(&play), (None, 1), "over, and not yet handed on");
    assert_eq!(play.holder("a"), Some(request(1, 1)));
    assert_eq!(view(&play.table, &lock_name("b"), play.now_us), LockView { held: None, holders: 0, waiters: 0 });
}

#[test]
fn a_hold_that_the_store_lost_is_given_to_the_head() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    play.table.remove_hold(&lock_name("a"));
    assert_eq!(play.wait("a", waiter(3, 1)), "queued 0");
    assert_eq!(play.news(), "a to 2.1: open 2000 ms");
    assert_eq!(play.renew("a", request(1, 1), LEASE_MS), "lost");
}
