//! Giving up, in every state.

use super::*;

#[test]
fn a_request_dropped_at_any_time_leaves_nothing_behind() {
    for wait_ms in [0, 600_000] {
        for after_ms in [0, 1, 2, 3, 5, 9, 10, 11, 12, 13, 14, 15, 30, 1_200] {
            let (mut net, held) = Net::held(2);
            net.delay_ms = (5, 5);
            let number = net.ask(1, Ask { wait_ms, ..wish("a") });
            net.run_ms(4);
            net.release(0, held);
            net.run_ms(after_ms);
            net.drop_request(1, number);
            let words = net.told.iter().filter(|(_, at, ..)| *at == 1).count();
            net.run_ms(50);
            assert_eq!(net.told.iter().filter(|(_, at, ..)| *at == 1).count(), words, "nobody is told any more");
            assert!(net.nothing_is_left(), "{wait_ms} {after_ms}");
            net.end();
        }
    }
}

#[test]
fn a_dropped_wait_is_withdrawn_even_if_its_acquire_arrives_after_the_withdrawal() {
    let (mut net, held) = Net::held(2);
    net.way = CallFate::Late(500);
    let number = net.ask(1, wish("a"));
    net.run_ms(5);
    net.way = CallFate::Good;
    net.drop_request(1, number);
    net.run_ms(1_000);
    assert_eq!(net.waiters("a"), 0);
    net.release(0, held);
    net.end();
}

#[test]
fn dropping_twice_and_releasing_what_is_over_changes_nothing() {
    let (mut net, number) = Net::held(1);
    net.drop_request(0, number);
    net.drop_request(0, number);
    net.release(0, number);
    net.run_ms(10);
    net.release(0, number);
    net.drop_request(0, number);
    net.renew(0, number, 500);
    net.run_ms(10);
    assert_eq!((net.last(0, number).as_str(), net.count(0, "release")), ("granted", 1));
    net.end();
}

#[test]
fn a_release_is_told_once_however_often_it_is_asked() {
    let (mut net, number) = Net::held(1);
    net.release(0, number);
    net.release(0, number);
    net.run_ms(10);
    assert_eq!((net.last(0, number).as_str(), net.count(0, "release")), ("released", 1));
    net.end();
}

#[test]
fn a_release_that_is_not_answered_is_tried_again() {
    for (way, wanted) in
        [(CallFate::Refused, "released"), (CallFate::StepLost, "released"), (CallFate::AnswerLost, "released")]
    {
        let (mut net, number) = Net::held(1);
        net.way = way;
        net.release(0, number);
        net.run_ms(1_000);
        assert_eq!(net.last(0, number), "granted", "{way:?}");
        net.way = CallFate::Good;
        net.run_ms(1_500);
        assert_eq!(net.last(0, number), wanted, "{way:?}");
        assert!(net.count(0, "release") < 12, "tries are spread");
        net.end();
    }
}

#[test]
fn a_release_that_is_never_answered_is_told_when_the_hold_is_over() {
    let (mut net, number) = Net::held(1);
    let deadline = net.deadline(0, number);
    net.way = CallFate::StepLost;
    net.release(0, number);
    net.run_ms(11_000);
    let over_ms = deadline.since_us(Steady::from_us(STEADY_US)) / 1_000;
    assert_eq!(net.told_at_ms(0, number, "failed Unknown"), Some(over_ms));
    net.end();
}

#[test]
fn a_release_of_what_the_store_forgot_says_so() {
    let (mut net, number) = Net::held(1);
    net.tables.clear();
    net.release(0, number);
    net.run_ms(10);
    assert_eq!(net.last(0, number), "not held");
    net.end();
}

#[test]
fn nothing_is_renewed_after_its_release() {
    let (mut net, number) = Net::held(2);
    net.run_ms(2_600);
    while net.count(0, "renew") == 0 {
        net.run_ms(1);
    }
    net.release(0, number);
    let next = net.ask(1, wish("a"));
    net.run_ms(60_000);
    let renews = net.calls.iter().filter(|(_, at, step)| *at == 0 && describe_step(step) == "renew").count();
    assert_eq!((renews, net.last(0, number).as_str(), net.last(1, next).as_str()), (1, "released", "granted"));
    net.end();
}

#[test]
fn what_was_granted_to_a_request_that_is_over_is_given_back() {
    let (mut net, held) = Net::held(2);
    let number = net.ask(1, wish("a"));
    net.run_ms(10);
    // The process forgets, as if its withdrawal had failed for too long.
    net.clients[1] = Some(Client::new(ClientId(1), Settings::default()));
    net.release(0, held);
    net.run_ms(10);
    assert_eq!((net.last(1, number).as_str(), net.hold("a")), ("", None));
    net.end();
}
