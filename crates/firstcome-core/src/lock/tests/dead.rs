//! Processes that fall silent: passed over at their turn, at no cost for the waiters behind them.

use super::*;

/// Client 1 holds, so many requests of dead processes wait, and client 2 lives and waits behind them.
fn behind_dead(dead: u64, live_before: u64) -> Play {
    let mut play = Play::new();
    play.try_lock("a", lasting(60_000, waiter(1, 1)));
    for client in 100..100 + dead {
        if client == 100 + dead / 2 {
            for at in 0..live_before {
                play.place("a", waiter(10 + at, 1));
            }
        }
        play.place("a", waiter(client, 1));
    }
    play.place("a", waiter(2, 1));
    play.pass_ms(2_000);
    for client in (0..live_before).map(|at| 10 + at).chain([2]) {
        play.heartbeat(client);
    }
    play.now_us += 1;
    play
}

#[test]
fn any_number_of_dead_ahead_is_passed_over_in_one_step() {
    for dead in [1, 1_000] {
        let mut play = behind_dead(dead, 0);
        assert_eq!(play.release("a", request(1, 1)), "released");
        assert_eq!(play.news(), "a to 2.1: open 2000 ms", "{dead} dead");
        assert_eq!(play.release("a", request(2, 1)), "released");
        assert!(play.table.is_empty());
    }
}

#[test]
fn the_living_between_the_dead_keep_their_order() {
    let mut play = behind_dead(20, 2);
    assert_eq!(play.table.waiters(&lock_name("a")), 23, "the dead are in line until their turn");
    play.release("a", request(1, 1));
    assert_eq!(play.news(), "a to 10.1: open 2000 ms");
    assert_eq!(play.table.waiters(&lock_name("a")), 12, "only those at the head have left");
    play.release("a", request(10, 1));
    play.release("a", request(11, 1));
    assert_eq!(play.news(), "a to 11.1: open 2000 ms, a to 2.1: open 2000 ms");
}

#[test]
fn a_line_of_dead_is_a_free_lock() {
    let mut play = Play::held();
    for client in 100..200 {
        play.place("a", waiter(client, 1));
    }
    play.pass_ms(2_001);
    assert_eq!(play.release("a", request(1, 1)), "released");
    assert_eq!(play.news(), "");
    assert!(play.table.is_empty());
}

#[test]
fn a_process_counts_as_dead_after_a_whole_window_and_not_before() {
    for (silent_us, wanted) in [(WINDOW_US, "a to 2.1: open 2000 ms"), (WINDOW_US + 1, "")] {
        let mut play = Play::held();
        play.place("a", waiter(2, 1));
        play.now_us += silent_us;
        play.release("a", request(1, 1));
        assert_eq!(play.news(), wanted, "{silent_us} µs");
    }
}

#[test]
fn any_sign_of_life_in_the_bucket_counts_for_all_its_waiters() {
    let mut play = Play::held();
    play.try_lock("b", waiter(1, 2));
    play.place("a", waiter(2, 1));
    play.pass_ms(1_500);
    play.place("b", waiter(2, 2));
    play.pass_ms(1_500);
    play.release("a", request(1, 1));
    assert_eq!(play.news(), "a to 2.1: open 2000 ms");
}

#[test]
fn a_dead_process_that_comes_back_has_another_life_and_its_old_place() {
    let mut play = Play::held();
    let life = play.heartbeat(2);
    let place = play.place("a", waiter(2, 1));
    let behind = play.place("a", waiter(3, 1));
    assert!(place < behind);
    play.pass_ms(2_001);
    play.heartbeat(3);
    play.release("a", request(1, 1));
    assert_eq!(play.news(), "a to 3.1: open 2000 ms");
    play.place("a", waiter(4, 1));
    assert_ne!(play.heartbeat(2), life);
    assert_eq!(play.ask("a", waiter(2, 1), Wait::Again(place)), "queued 0");
    play.release("a", request(3, 1));
    assert_eq!(play.news(), "a to 2.1: open 2000 ms");
}

#[test]
fn who_comes_back_before_its_turn_has_lost_nothing() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    play.pass_ms(5_000);
    play.heartbeat(2);
    play.release("a", request(1, 1));
    assert_eq!(play.news(), "a to 2.1: open 2000 ms");
}

#[test]
fn a_process_that_lost_its_place_learns_it_even_if_the_clock_is_set_back_in_between() {
    let mut play = Play::held();
    let life = play.heartbeat(2);
    play.place("a", waiter(2, 1));
    play.pass_ms(HOUR_MS);
    play.try_lock("a", waiter(3, 1));
    play.now_us -= HOUR_MS * 1_000;
    assert_eq!(play.table.place_of(&lock_name("a"), request(2, 1)), None);
    assert_ne!(play.heartbeat(2), life);
}

#[test]
fn a_life_goes_on_as_long_as_no_window_is_missed() {
    let mut play = Play::new();
    let life = play.heartbeat(2);
    for _ in 0..5 {
        play.now_us += WINDOW_US;
        assert_eq!(play.heartbeat(2), life);
    }
    play.now_us += WINDOW_US + 1;
    let next = play.heartbeat(2);
    assert!(life < next);
    assert_ne!(play.heartbeat(3), next, "each process its own");
}

#[test]
fn silent_processes_and_void_requests_are_forgotten_but_not_the_young() {
    let mut play = Play::new();
    for client in 0..500 {
        play.heartbeat(client);
        play.release("a", request(client, 1));
    }
    assert_eq!(play.table.remembered(), (500, 500), "all are young");
    play.pass_ms(60_000);
    for client in 500..1_600 {
        play.heartbeat(client);
        play.release("a", request(client, 1));
    }
    let (lives, voids) = play.table.remembered();
    assert!(lives <= 1_101 && voids <= 1_101, "{lives} and {voids}");
    assert_eq!(play.try_lock("a", waiter(1_599, 1)), "void");
    assert_eq!(play.table.life(ClientId(1_599)).unwrap().seen_us, play.now_us);
}
