//! An operator may set the store's clock at any time.

use super::*;

#[test]
fn a_clock_set_back_by_an_hour_lengthens_a_hold_by_no_more_than_its_lease() {
    let mut play = Play::held();
    let fence = play.fence("a");
    play.pass_ms(5_000);
    play.now_us -= HOUR_MS * 1_000;
    assert_eq!(play.wait("a", waiter(2, 1)), "queued 0");
    assert_eq!(play.look("a", 2), "nothing, mine in 10000 ms");
    play.pass_ms(9_999);
    play.heartbeat(2);
    assert_eq!(play.look("a", 2), "nothing, mine in 1 ms");
    play.pass_ms(1);
    assert_eq!(play.look("a", 2), "open 2000 ms, mine in 2000 ms");
    assert!(fence < play.fence("a"), "fences grow all the same");
}

#[test]
fn a_clock_set_back_by_less_than_the_lease_lengthens_by_no_more_than_that() {
    let mut play = Play::held();
    play.pass_ms(5_000);
    play.now_us -= 3_000_000;
    assert_eq!(play.try_lock("a", waiter(2, 1)), "contended c1 0 8000 ms");
    play.now_us -= 3_000_000;
    assert_eq!(play.try_lock("a", waiter(2, 1)), "contended c1 0 10000 ms", "never more than the lease");
}

#[test]
fn every_step_shortens_what_a_clock_that_was_set_back_left_too_long() {
    type Meets = fn(&mut Play) -> String;
    let rows: [(&str, Meets); 4] = [
        ("acquire", |play| play.try_lock("a", waiter(9, 9))),
        ("release", |play| play.release("a", request(9, 9))),
        ("renewal", |play| play.renew("a", request(9, 9), LEASE_MS)),
        ("look", |play| play.look("a", 9)),
    ];
    for (what, meets) in rows {
        let mut play = Play::held();
        play.now_us -= HOUR_MS * 1_000;
        meets(&mut play);
        assert_eq!(play.table.hold(&lock_name("a")).unwrap().expires_us, play.now_us + 10_000_000, "{what}");
    }
}

#[test]
fn who_was_heard_of_in_the_future_counts_as_dead_until_it_beats_and_asks_again() {
    let mut play = Play::held();
    let life = play.heartbeat(2);
    let place = play.place("a", waiter(2, 1));
    play.place("a", waiter(3, 1));
    play.now_us -= HOUR_MS * 1_000;
    play.heartbeat(3);
    play.release("a", request(1, 1));
    assert_eq!(play.news(), "a to 3.1: open 2000 ms");
    assert_ne!(play.heartbeat(2), life);
    assert_eq!(play.ask("a", waiter(2, 1), Wait::Again(place)), "queued 0", "its place is below the highest number");
}

#[test]
fn a_clock_set_back_by_less_than_a_window_lets_everybody_live() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    play.now_us -= WINDOW_US;
    play.release("a", request(1, 1));
    assert_eq!(play.news(), "a to 2.1: open 2000 ms");
}

#[test]
fn numbers_go_on_by_one_after_a_clock_that_was_far_ahead() {
    let mut play = Play::new();
    play.now_us += 1_000 * HOUR_MS * 1_000;
    play.try_lock("a", waiter(1, 1));
    let ahead = play.fence("a");
    assert_eq!(ahead, play.now_us);
    play.now_us = START_US;
    play.release("a", request(1, 1));
    play.try_lock("a", waiter(1, 2));
    assert_eq!(play.fence("a"), ahead + 1);
    play.now_us = ahead + 10;
    play.try_lock("b", waiter(1, 3));
    assert_eq!(play.fence("b"), ahead + 10);
}

#[test]
fn a_place_drawn_by_a_clock_that_was_ahead_of_an_empty_store_is_not_taken_over() {
    let mut play = Play::held();
    play.pass_ms(HOUR_MS);
    play.try_lock("a", waiter(1, 2));
    let place = play.place("a", waiter(2, 1));
    play.table = MemoryLockTable::new(hasher());
    play.now_us -= HOUR_MS * 1_000;
    play.try_lock("a", waiter(9, 1));
    play.ask("a", waiter(2, 1), Wait::Again(place));
    let number = play.table.place_of(&lock_name("a"), request(2, 1)).unwrap().number();
    assert!(number < place, "else nobody could get in line behind it for an hour");
    assert_eq!(play.wait("a", waiter(3, 1)), "queued 1");
}
