//! Asking and waiting without failures.

use super::*;

#[test]
fn a_free_lock_is_granted_and_released_in_two_calls() {
    let (mut net, number) = Net::held(1);
    net.release(0, number);
    net.run_ms(10);
    assert_eq!(net.last(0, number), "released");
    assert_eq!(net.calls.len(), 2);
    net.end();
}

#[test]
fn a_held_lock_is_contended_for_who_does_not_wait() {
    let (mut net, _) = Net::held(2);
    let number = net.ask(1, once("a"));
    net.run_ms(10);
    assert_eq!(net.last(1, number), "contended somebody 0 9990 ms");
    assert_eq!(net.client(1).len(), 0);
    net.end();
}

#[test]
fn a_release_is_told_to_the_next_one_in_one_call_and_one_push() {
    let (mut net, held) = Net::held(3);
    let second = net.ask(1, wish("a"));
    net.run_ms(10);
    let third = net.ask(2, wish("a"));
    net.run_ms(10);
    let (calls, before_ms) = (net.calls.len(), net.now_us / 1_000);
    net.release(0, held);
    net.run_ms(5);
    assert_eq!(net.told_at_ms(1, second, "granted"), Some(before_ms + 2), "there and the push");
    assert_eq!(net.calls.len(), calls + 1);
    assert_eq!(net.last(2, third), "");
    net.end();
}

#[test]
fn a_wait_that_is_over_is_told_with_the_place() {
    let (mut net, held) = Net::held(3);
    net.ask(1, wish("a"));
    net.run_ms(10);
    let asked_ms = net.now_us / 1_000;
    let number = net.ask(2, Ask { wait_ms: 3_000, ..wish("a") });
    net.run_ms(3_100);
    assert_eq!(net.told_at_ms(2, number, "timed out Some(1)"), Some(asked_ms + 3_002));
    assert_eq!((net.waiters("a"), net.client(2).len()), (1, 0));
    net.release(0, held);
    net.end();
}

#[test]
fn a_wait_that_no_process_answers_is_told_all_the_same() {
    let (mut net, _) = Net::held(2);
    let number = net.ask(1, Ask { wait_ms: 3_000, ..wish("a") });
    net.run_ms(2_000);
    net.way = CallFate::StepLost;
    net.run_ms(2_100);
    assert_eq!(net.last(1, number), "timed out Some(0)", "a second after the end, as it was known last");
    net.way = CallFate::Good;
    net.run_ms(3_000);
    assert_eq!(net.waiters("a"), 0, "its withdrawal goes on behind");
    net.end();
}

#[test]
fn a_withdrawal_that_crosses_a_grant_gives_it_back() {
    let (mut net, held) = Net::held(3);
    let second = net.ask(1, Ask { wait_ms: 1_000, ..wish("a") });
    net.run_ms(5);
    let third = net.ask(2, wish("a"));
    net.run_ms(994);
    net.delay_ms = (1, 20);
    net.release(0, held);
    net.run_ms(30);
    assert_eq!(net.last(1, second), "timed out Some(0)", "the push came after its time");
    assert_eq!(net.last(2, third), "granted");
    net.end();
}

#[test]
fn a_push_that_overtakes_the_first_answer_is_kept_for_it() {
    let (mut net, held) = Net::held(2);
    net.delay_ms = (1, 300);
    let number = net.ask(1, wish("a"));
    net.run_ms(2);
    net.delay_ms = (1, 1);
    net.release(0, held);
    net.run_ms(100);
    assert_eq!(net.last(1, number), "", "it has never heard the store's clock");
    net.run_ms(210);
    assert_eq!(net.told_at_ms(1, number, "granted"), Some(311), "with the answer that it is in line");
    net.end();
}

#[test]
fn a_process_that_was_idle_for_long_takes_a_push_all_the_same() {
    let (mut net, held) = Net::held(2);
    let before = net.ask(1, once("b"));
    net.run_ms(10);
    net.release(1, before);
    net.run_ms(3_600_000);
    net.delay_ms = (1, 300);
    let number = net.ask(1, wish("a"));
    net.run_ms(2);
    net.delay_ms = (1, 1);
    net.release(0, held);
    net.run_ms(400);
    assert_eq!(net.last(1, number), "granted");
    net.end();
}

#[test]
fn many_waiters_of_many_processes_are_served_in_their_order() {
    let (mut net, held) = Net::held(5);
    let mut asked = Vec::new();
    for at in 0..50 {
        asked.push((at % 5, net.ask(at % 5, wish("a"))));
        net.run_ms(3);
    }
    net.release(0, held);
    for (at, number) in asked {
        net.run_ms(5);
        assert_eq!(net.last(at, number), "granted", "{at} {number}");
        net.release(at, number);
    }
    net.run_ms(5);
    assert!(net.nothing_is_left());
    net.end();
}

#[test]
fn a_push_that_comes_twice_or_late_has_no_second_effect() {
    let (mut net, held) = Net::held(2);
    let number = net.ask(1, wish("a"));
    net.run_ms(10);
    net.release(0, held);
    net.run_ms(10);
    let hold = net.hold("a").unwrap();
    let push = Push { name: lock_name("a"), grant: hold.grant() };
    net.post(0, Mail::Push { client: 1, push: push.clone() });
    net.run_ms(10);
    assert_eq!(net.last(1, number), "granted");
    net.release(1, number);
    net.run_ms(10);
    let next = net.ask(1, wish("a"));
    net.run_ms(10);
    net.post(0, Mail::Push { client: 1, push: push.clone() });
    net.post(0, Mail::Push { client: 0, push });
    net.run_ms(10);
    assert_eq!((net.last(1, number), net.last(1, next)), ("released".to_owned(), "granted".to_owned()));
    net.end();
}

#[test]
fn no_number_is_used_twice() {
    let mut net = Net::new(1);
    let mut numbers = BTreeSet::new();
    for _ in 0..100 {
        let number = net.ask(0, once("a"));
        assert!(numbers.insert(number), "{number}");
        net.run_ms(1);
        net.drop_request(0, number);
        net.run_ms(5);
    }
    net.end();
}
