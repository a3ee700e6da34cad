//! A store that refuses, does not answer, or forgets.

use super::*;

#[test]
fn a_try_that_is_refused_is_told_so_at_once_and_costs_nothing_more() {
    let mut net = Net::new(1);
    net.way = CallFate::Refused;
    let number = net.ask(0, once("a"));
    net.run_ms(5_000);
    assert_eq!((net.last(0, number).as_str(), net.calls.len()), ("failed Unavailable", 1));
    net.end();
}

#[test]
fn a_try_of_which_nothing_is_known_is_undone_when_the_store_is_back() {
    for way in [CallFate::AnswerLost, CallFate::Late(4_000)] {
        let mut net = Net::new(1);
        net.way = way;
        let number = net.ask(0, once("a"));
        net.run_ms(5);
        assert_eq!(net.last(0, number), "failed Unknown", "{way:?}");
        net.way = CallFate::StepLost;
        net.run_ms(3_000);
        net.way = CallFate::Good;
        net.run_ms(2_000);
        assert_eq!(net.hold("a"), None, "{way:?}: not held by nobody for a whole lease");
        net.end();
    }
}

#[test]
fn who_waits_goes_on_asking_until_the_store_is_back() {
    for way in [CallFate::Refused, CallFate::StepLost, CallFate::AnswerLost] {
        let mut net = Net::new(1);
        net.way = way;
        let number = net.ask(0, wish("a"));
        net.run_ms(20_000);
        assert!((15..40).contains(&net.count(0, "acquire")), "{way:?}: {}", net.count(0, "acquire"));
        assert_eq!(net.last(0, number), "");
        net.way = CallFate::Good;
        net.run_ms(2_000);
        assert_eq!(net.last(0, number), "granted", "{way:?}");
        net.end();
    }
}

#[test]
fn a_wait_that_the_store_never_answered_has_failed() {
    for (way, wanted) in [(CallFate::Refused, "failed Unavailable"), (CallFate::StepLost, "failed Unknown")] {
        let mut net = Net::new(1);
        net.way = way;
        let number = net.ask(0, Ask { wait_ms: 5_000, ..wish("a") });
        net.run_ms(5_000);
        assert_eq!(net.told_at_ms(0, number, wanted), Some(5_000), "{way:?}: {}", net.last(0, number));
        net.end();
    }
}

#[test]
fn what_was_asked_before_a_grant_is_not_asked_again_after_it() {
    let (mut net, held) = Net::held(2);
    net.way = CallFate::AnswerLost;
    let number = net.ask(1, wish("a"));
    net.run_ms(3);
    net.way = CallFate::Good;
    // Another answer tells it the store's clock.
    net.ask(1, wish("b"));
    net.release(0, held);
    net.run_ms(5);
    assert_eq!(net.last(1, number), "granted");
    let acquires = net.count(0, "acquire");
    net.run_ms(5_000);
    assert_eq!(net.count(0, "acquire"), acquires);
    net.end();
}

#[test]
fn a_store_that_comes_back_empty_is_asked_again_by_everybody_in_the_old_order() {
    let (mut net, held) = Net::held(4);
    let mut asked = Vec::new();
    for at in [1, 2, 3, 1, 2, 3] {
        asked.push((at, net.ask(at, wish("a"))));
        net.run_ms(20);
    }
    net.checks_holds = false;
    net.tables.clear();
    // A new request gets the lock before all waiters.
    let fast = net.ask(0, wish("a"));
    net.run_ms(4_000);
    assert_eq!((net.last(0, fast).as_str(), net.last(0, held).as_str()), ("granted", "lost"));
    assert_eq!(net.waiters("a"), 6);
    net.release(0, fast);
    for (at, number) in asked {
        net.run_ms(5);
        assert_eq!(net.last(at, number), "granted", "{at} {number}");
        net.release(at, number);
    }
    net.end();
}

#[test]
fn a_store_that_comes_back_empty_leaves_no_process_stuck() {
    let (mut net, _) = Net::held(3);
    let asked = [(1, net.ask(1, wish("a"))), (2, net.ask(2, wish("a")))];
    net.run_ms(500);
    net.checks_holds = false;
    net.tables.clear();
    net.run_ms(1_100);
    let granted = |net: &Net| asked.iter().filter(|(at, number)| net.last(*at, *number) == "granted").count();
    assert_eq!((granted(&net), net.waiters("a")), (1, 1), "within half a window");
    net.end();
}

#[test]
fn a_hold_that_the_store_forgot_is_lost_and_given_to_the_next() {
    let (mut net, held) = Net::held(2);
    let number = net.ask(1, wish("a"));
    net.run_ms(10);
    net.checks_holds = false;
    net.tables.get_mut(&bucket_of(&lock_name("a"))).unwrap().remove_hold(&lock_name("a"));
    net.run_ms(4_000);
    assert_eq!((net.last(0, held).as_str(), net.last(1, number).as_str()), ("lost", "granted"));
    net.end();
}

#[test]
fn a_process_that_was_cut_off_comes_back_to_its_old_place() {
    let (mut net, held) = Net::held(4);
    let first = net.ask(1, wish("a"));
    net.run_ms(10);
    let second = net.ask(2, wish("a"));
    net.run_ms(10);
    let cut = net.clients[1].take();
    net.run_ms(3_000);
    net.release(0, held);
    net.run_ms(10);
    assert_eq!(net.last(2, second), "granted", "the first one counts as dead");
    let third = net.ask(3, wish("a"));
    net.run_ms(10);
    net.clients[1] = cut;
    net.run_ms(100);
    assert_eq!(net.waiters("a"), 2);
    net.release(2, second);
    net.run_ms(10);
    assert_eq!((net.last(1, first).as_str(), net.last(3, third).as_str()), ("granted", ""));
    net.end();
}

#[test]
fn a_process_that_slept_through_its_grant_waits_on_at_its_old_place() {
    let (mut net, held) = Net::held(4);
    let first = net.ask(1, wish("a"));
    net.run_ms(10);
    let second = net.ask(2, wish("a"));
    net.run_ms(10);
    let third = net.ask(3, wish("a"));
    net.release(0, held);
    net.run_ms(1);
    let hold = net.hold("a").unwrap();
    let push = Push { name: lock_name("a"), grant: hold.grant() };
    let asleep = net.clients[1].take();
    net.run_ms(3_000);
    assert_eq!(net.last(2, second), "granted");
    net.clients[1] = asleep;
    // The push that it slept through wakes it first.
    let now = net.steady();
    net.client(1).pushed(&push, now);
    net.collect();
    net.run_ms(50);
    assert_eq!(net.last(1, first), "");
    net.release(2, second);
    net.run_ms(10);
    assert_eq!((net.last(1, first).as_str(), net.last(3, third).as_str()), ("granted", ""));
    net.end();
}

#[test]
fn a_clock_of_the_store_that_is_set_leaves_no_process_stuck() {
    for by_ms in [-3_600_000_i64, -5_000, -1_000, 1_000, 5_000, 3_600_000] {
        let (mut net, held) = Net::held(3);
        let asked = [(1, net.ask(1, wish("a"))), (2, net.ask(2, wish("a")))];
        net.run_ms(500);
        net.checks_holds = false;
        net.set_by_us = by_ms * 1_000;
        net.run_ms(2_500);
        net.release(0, held);
        for _ in 0..2 {
            net.run_ms(3_000);
            let held: Vec<_> = net.held.keys().copied().collect();
            assert_eq!(held.len(), 1, "{by_ms}");
            held.iter().for_each(|(at, number)| net.release(*at, *number));
        }
        net.run_ms(10);
        assert!(asked.iter().all(|(at, number)| net.last(*at, *number) == "released"), "{by_ms}");
        net.end();
    }
}
