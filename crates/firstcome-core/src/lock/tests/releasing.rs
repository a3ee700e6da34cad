//! Giving up requests: held, waiting, and not yet arrived.

use super::*;

#[test]
fn release_is_the_grant_to_the_oldest_and_to_no_other_process() {
    let mut play = Play::held();
    for (client, ahead) in [(2, 0), (3, 1), (4, 2)] {
        assert_eq!(play.wait("a", waiter(client, 1)), format!("queued {ahead}"));
    }
    assert_eq!(play.release("a", request(1, 1)), "released");
    assert_eq!(play.news(), "a to 2.1: open 2000 ms");
    assert_eq!(play.release("a", request(2, 1)), "released", "without a renewal before");
    assert_eq!(play.news(), "a to 3.1: open 2000 ms");
    assert_eq!(play.release("a", request(3, 1)), "released");
    assert_eq!(play.release("a", request(4, 1)), "released");
    play.news();
    assert!(play.table.is_empty());
}

#[test]
fn releasing_twice_has_no_second_effect() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    play.place("a", waiter(3, 1));
    assert_eq!(play.release("a", request(1, 1)), "released");
    play.news();
    let hold = play.table.hold(&lock_name("a"));
    assert_eq!(play.release("a", request(1, 1)), "not held");
    assert_eq!((play.table.hold(&lock_name("a")), play.news().as_str()), (hold, ""));
    assert_eq!(play.release("a", request(3, 1)), "withdrawn 0");
    assert_eq!(play.release("a", request(3, 1)), "not held");
}

#[test]
fn no_other_process_releases() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    for other in [request(1, 2), request(3, 1), request(2, 2)] {
        assert_eq!(play.release("a", other), "not held");
    }
    assert_eq!(play.release("b", request(1, 1)), "not held", "nor by another name");
    assert_eq!(play.holder("a"), Some(request(1, 1)));
}

#[test]
fn a_withdrawal_tells_how_many_were_ahead_and_leaves_the_order() {
    let mut play = Play::held();
    for client in 2..=6 {
        play.place("a", waiter(client, 1));
    }
    assert_eq!(play.release("a", request(4, 1)), "withdrawn 2");
    assert_eq!(play.release("a", request(6, 1)), "withdrawn 3");
    assert_eq!(play.release("a", request(2, 1)), "withdrawn 0");
    assert_eq!(play.wait("a", waiter(5, 1)), "queued 1");
    assert_eq!(play.news(), "");
    play.release("a", request(1, 1));
    assert_eq!(play.news(), "a to 3.1: open 2000 ms");
}

#[test]
fn the_release_of_what_the_same_step_grants_hands_it_on() {
    let mut play = Play::held();
    play.pass_ms(9_000);
    play.place("a", waiter(2, 1));
    play.place("a", waiter(3, 1));
    play.pass_ms(1_000);
    // The hold of client 1 is over, so this very step grants the lock to 2, which releases it.
    assert_eq!(play.release("a", request(2, 1)), "released");
    assert_eq!(play.news(), "a to 3.1: open 2000 ms", "2 is told nothing");
    play.pass_ms(2_000);
    assert_eq!(play.release("a", request(3, 1)), "not held");
    assert!(play.table.is_empty());
}

#[test]
fn the_last_in_line_that_gives_up_in_the_step_of_its_grant_leaves_a_free_lock() {
    let mut play = Play::held();
    play.pass_ms(9_000);
    play.place("a", waiter(2, 1));
    play.pass_ms(1_000);
    assert_eq!(play.release("a", request(2, 1)), "released");
    assert_eq!(play.news(), "");
    assert!(play.table.is_empty());
}

#[test]
fn a_withdrawal_at_the_moment_of_another_grant_leaves_that_grant() {
    let mut play = Play::held();
    play.pass_ms(9_000);
    play.place("a", waiter(2, 1));
    play.place("a", waiter(3, 1));
    play.pass_ms(1_000);
    assert_eq!(play.release("a", request(3, 1)), "withdrawn 0");
    assert_eq!(play.news(), "a to 2.1: open 2000 ms");
}

#[test]
fn what_is_given_up_before_it_arrives_is_void_for_a_minute() {
    let mut play = Play::new();
    assert_eq!(play.release("a", request(1, 1)), "not held");
    for wait in [Wait::No, Wait::Yes, Wait::Again(START_US)] {
        assert_eq!(play.ask("a", waiter(1, 1), wait), "void", "{wait:?}");
    }
    assert_eq!(play.try_lock("a", waiter(1, 2)), "granted 10000 ms", "no other request");
    assert_eq!(play.release("a", request(1, 2)), "released");
    play.now_us += VOID_US - 1;
    assert_eq!(play.try_lock("a", waiter(1, 1)), "void");
    play.now_us += 1;
    assert_eq!(play.try_lock("a", waiter(1, 1)), "granted 10000 ms");
}

#[test]
fn void_is_looked_at_before_everything_else_and_changes_nothing() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    play.release("a", request(3, 1));
    play.pass_ms(10_000);
    assert_eq!(play.wait("a", waiter(3, 1)), "void");
    assert_eq!((play.holder("a"), play.news().as_str()), (Some(request(1, 1)), ""), "the overdue hold still stands");
}

#[test]
fn only_a_request_of_which_no_copy_is_under_way_may_be_asked_again() {
    for (copies, wanted) in [(Copies::One, "granted 10000 ms"), (Copies::Several, "void")] {
        let mut play = Play::held();
        assert_eq!(play.give_up("a", request(1, 1), copies), "released");
        assert_eq!(play.try_lock("a", waiter(1, 1)), wanted, "after a release, {copies:?}");
        let mut play = Play::held();
        play.place("a", waiter(2, 1));
        assert_eq!(play.give_up("a", request(2, 1), copies), "withdrawn 0");
        play.release("a", request(1, 1));
        assert_eq!(play.wait("a", waiter(2, 1)), wanted, "after a withdrawal, {copies:?}");
    }
}
