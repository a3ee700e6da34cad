//! Renewals, deadlines, and how a holder learns that its hold is over.

use super::*;

#[test]
fn a_hold_is_renewed_about_every_third_of_its_lease() {
    let (mut net, _) = Net::held(1);
    net.run_ms(60_000);
    let at_us: Vec<u64> =
        net.calls.iter().filter(|(_, _, step)| describe_step(step) == "renew").map(|call| call.0).collect();
    for pair in at_us.windows(2) {
        let after_ms = (pair[1] - pair[0]) / 1_000;
        assert!((2_600..=3_400).contains(&after_ms), "{after_ms} ms");
    }
    assert!((17..=24).contains(&at_us.len()), "{}", at_us.len());
    assert!(net.wake_ups <= 2 * at_us.len() as u64 + 2, "{} wake-ups", net.wake_ups);
    net.end();
}

#[test]
fn renewals_of_many_holds_spread() {
    let mut net = Net::new(1);
    for at in 0..100 {
        net.ask(0, once(&format!("lock-{at}")));
    }
    net.run_ms(2_500);
    assert_eq!(net.count(0, "renew"), 0);
    net.run_ms(1_000);
    let at_ms: BTreeSet<u64> =
        net.calls.iter().filter(|(_, _, step)| describe_step(step) == "renew").map(|call| call.0 / 1_000).collect();
    assert!(30 <= at_ms.len(), "{} instants", at_ms.len());
    net.end();
}

#[test]
fn ten_thousand_holds_cost_few_calls_each_third_of_a_lease() {
    let mut net = Net::new(1);
    // A check of each lock at each instant would take minutes.
    net.checks_holds = false;
    let mut buckets = BTreeSet::new();
    for at in 0..10_000 {
        let name = format!("lock-{at}");
        buckets.insert(bucket_of(&lock_name(&name)));
        net.ask(0, once(&name));
    }
    net.run_ms(20);
    assert_eq!(net.held.len(), 10_000);
    for round in 0..8 {
        let before = net.count(0, "renew");
        net.run_ms(2_600);
        let calls = net.count(0, "renew") - before;
        assert!(calls <= 20 + buckets.len(), "{calls} calls in round {round}");
    }
    assert_eq!(net.held.len(), 10_000);
    net.check_holds();
    net.end();
}

#[test]
fn many_holds_of_one_bucket_are_renewed_in_full_calls_and_none_twice() {
    let mut net = Net::new(1);
    let names = (0..).map(|at| format!("lock-{at}")).filter(|name| bucket_of(&lock_name(name)) == 7);
    for name in names.take(2_600) {
        net.ask(0, once(&name));
    }
    net.run_ms(20);
    // The answers come one after the other.
    net.delay_ms = (1, 500);
    let mut renewed = 0;
    net.run_ms(3_320);
    for (_, _, step) in &net.calls {
        if let Step::Renew { renewals, .. } = step {
            renewed += renewals.len();
        }
    }
    assert_eq!((renewed, net.count(0, "renew")), (2_600, 6), "5 of 500 and one of 100");
    net.checks_holds = false;
    net.end();
}

#[test]
fn an_answer_to_some_renewals_does_not_send_the_others_again() {
    let mut net = Net::new(1);
    let names = (0..).map(|at| format!("lock-{at}")).filter(|name| bucket_of(&lock_name(name)) == 7);
    for name in names.take(2_600) {
        net.ask(0, once(&name));
    }
    net.run_ms(2_600);
    while net.count(0, "renew") == 0 {
        net.run_ms(1);
    }
    // All six have arrived; their answers return one by one.
    let due_us = net.now_us + 2_000;
    let answers: Vec<(u64, u64)> = net.mail.keys().copied().collect();
    for (at, key) in answers.into_iter().enumerate() {
        let mail = net.mail.remove(&key).unwrap();
        net.mail.insert((due_us + at as u64 * 5_000, key.1), mail);
    }
    net.run_ms(40);
    assert_eq!(net.count(0, "renew"), 6);
    net.end();
}

#[test]
fn a_fixed_lease_is_never_renewed_and_lost_at_its_deadline() {
    let mut net = Net::new(1);
    let number = net.ask(0, Ask { watch: Watch::Fixed, ..wish("a") });
    net.run_ms(10);
    let deadline = net.deadline(0, number);
    assert_eq!(deadline, Steady::from_us(STEADY_US).plus_ms(1 + 9_900 - 1), "from its sending, less one per cent");
    net.run_ms(20_000);
    assert_eq!(net.told_at_ms(0, number, "lost"), Some(9_900));
    assert_eq!(net.count(0, "renew"), 0);
    assert!(net.nothing_is_left(), "the next one need not wait for the end");
    net.end();
}

#[test]
fn a_fixed_lease_given_to_a_waiter_is_confirmed_once() {
    let (mut net, held) = Net::held(2);
    let number = net.ask(1, Ask { watch: Watch::Fixed, lease_ms: 5_000, ..wish("a") });
    net.run_ms(10);
    net.release(0, held);
    net.run_ms(1_000);
    assert_eq!(net.count(0, "renew"), 1);
    let renewed_ms = net.told_at_ms(1, number, "renewed").unwrap();
    net.run_ms(10_000);
    assert_eq!(net.count(0, "renew"), 1);
    let lost_ms = net.told_at_ms(1, number, "lost").unwrap();
    assert!((4_940..=4_950).contains(&(lost_ms - renewed_ms)), "{lost_ms} after {renewed_ms}");
    net.end();
}

#[test]
fn a_fixed_lease_is_renewed_when_its_holder_wants_it_even_while_it_is_being_confirmed() {
    let (mut net, held) = Net::held(2);
    let number = net.ask(1, Ask { watch: Watch::Fixed, lease_ms: 5_000, ..wish("a") });
    net.run_ms(10);
    net.release(0, held);
    while net.count(0, "renew") == 0 {
        net.run_ms(1);
    }
    net.renew(1, number, 60_000);
    net.run_ms(10);
    let left_us = net.deadline(1, number).since_us(net.steady());
    assert!(59_000_000 < left_us, "{left_us}");
    net.run_ms(50_000);
    assert_eq!((net.last(1, number).as_str(), net.count(0, "renew")), ("granted", 2));
    net.end();
}

#[test]
fn a_holder_whose_renewals_fail_tries_again_and_is_told_at_its_deadline() {
    for way in [CallFate::Refused, CallFate::StepLost] {
        let (mut net, number) = Net::held(2);
        let waits = net.ask(1, wish("a"));
        net.run_ms(10);
        net.way = way;
        let deadline = net.deadline(0, number);
        net.run_ms(9_000);
        assert!((5..100).contains(&net.count(0, "renew")), "{}", net.count(0, "renew"));
        assert_eq!(net.last(0, number), "granted");
        net.run_ms(2_000);
        assert_eq!(net.told_at_ms(0, number, "lost"), Some(deadline.since_us(Steady::from_us(STEADY_US)) / 1_000));
        net.way = CallFate::Good;
        net.run_ms(3_000);
        assert_eq!(net.last(1, waits), "granted");
        net.end();
    }
}

#[test]
fn a_renewal_of_which_no_process_heard_is_done_again_in_time() {
    let (mut net, number) = Net::held(1);
    net.way = CallFate::AnswerLost;
    net.run_ms(6_000);
    net.way = CallFate::Good;
    net.run_ms(30_000);
    assert_eq!(net.last(0, number), "granted");
    net.end();
}

#[test]
fn a_holder_that_the_store_does_not_know_is_told_with_the_renewal() {
    let (mut net, number) = Net::held(1);
    net.checks_holds = false;
    net.tables.clear();
    net.run_ms(3_500);
    assert_eq!(net.last(0, number), "lost");
    assert_eq!((net.client(0).len(), net.client(0).next_due()), (0, None));
    net.end();
}

#[test]
fn a_late_copy_of_a_renewal_takes_nothing_from_a_later_one() {
    let (mut net, number) = Net::held(1);
    net.way = CallFate::Late(200);
    net.renew(0, number, 1_000);
    net.run_ms(5);
    net.way = CallFate::Good;
    net.renew(0, number, 60_000);
    net.run_ms(10_000);
    assert_eq!(net.last(0, number), "granted");
    net.end();
}

#[test]
fn a_deadline_allows_for_clocks_that_differ_by_a_per_cent_however_old_the_last_answer_is() {
    for rate_ppm in [-10_000, 10_000] {
        let (mut net, held) = Net::held(2);
        net.rate_ppm = rate_ppm;
        net.tables.clear();
        net.held.clear();
        let held = (held, net.ask(0, wish("b")));
        net.run_ms(10);
        let waits = net.ask(1, Ask { lease_ms: 300, ..wish("b") });
        net.run_ms(140);
        // The last news of the waiter before the push is as old as it gets.
        net.release(0, held.1);
        net.run_ms(10);
        assert_eq!(net.last(1, waits), "granted");
        net.run_ms(1_000);
        net.checks_holds = false;
        net.end();
    }
}

#[test]
fn what_was_handed_out_is_not_given_up_by_who_waits_for_it_here() {
    let (mut net, held) = Net::held(1);
    let (now, lease_ms) = (net.steady(), 600_000);
    net.renew(0, held, lease_ms);
    net.run_ms(10);
    let request = net.client(0).hand_out(held, now).expect("it is held");
    net.held.clear();
    let waits = net.ask(0, wish("a"));
    // Heartbeats report that this process has the lock, and a push of its grant comes late.
    net.run_ms(1_500);
    let hold = net.hold("a").expect("it is held");
    let push_until = |expires_us| {
        let grant = Grant { taken: Taken::Open, expires_us, ..hold.grant() };
        Push { name: lock_name("a"), grant }
    };
    let now = net.steady();
    net.client(0).pushed(&push_until(hold.expires_us), now);
    net.collect();
    net.run_ms(60_000);
    // A push that was under way for longer than the grant would have lasted, after the client forgot the request.
    let other = net.ask(0, wish("c"));
    net.run_ms(10);
    let now = net.steady();
    net.client(0).hand_out(other, now).expect("it is held");
    net.held.remove(&(0, other));
    let (now, push) = (net.steady(), push_until(net.server_us() - 1));
    net.client(0).pushed(&push, now);
    net.collect();
    net.run_ms(1_000);
    assert_eq!(net.hold("a").map(|hold| hold.waiter.request), Some(request));
    assert_eq!((net.last(0, waits).as_str(), net.count(0, "release")), ("", 0));
    // The holder releases it.
    let now_us = net.server_us();
    net.tables.values_mut().for_each(|table| drop(release(table, &lock_name("a"), request, Copies::One, now_us)));
    net.run_ms(1_100);
    assert_eq!(net.last(0, waits), "granted");
    net.end();
}

#[test]
fn a_push_that_overtakes_the_answer_leaves_no_copy_to_guard_against() {
    let (mut net, held) = Net::held(2);
    // From this answer the client knows when a grant ends.
    let other = net.ask(1, wish("b"));
    net.run_ms(10);
    net.release(1, other);
    net.run_ms(10);
    net.delay_ms = (1, 50);
    let number = net.ask(1, wish("a"));
    net.run_ms(5);
    net.delay_ms = (1, 1);
    net.release(0, held);
    net.run_ms(5);
    assert_eq!(net.last(1, number), "granted");
    net.release(1, number);
    net.run_ms(100);
    assert_eq!(net.last(1, number), "released");
    let given_up = |(_, at, step): &(u64, usize, Step)| match step {
        Step::Release { request, copies, .. } if (*at, request.number) == (1, number) => Some(*copies),
        _ => None,
    };
    assert_eq!(net.calls.iter().find_map(given_up), Some(Copies::One));
    net.end();
}

#[test]
fn what_was_obtained_elsewhere_lasts_from_when_it_was_asked_for_less_the_drift() {
    let (second_us, drift_ppm) = (1_000_000, 50_000);
    let mut client = Client::new(ClientId(1), Settings { drift_ppm });
    let (asked, now) = (Steady::from_us(second_us), Steady::from_us(2 * second_us));
    let (number, ask) = (1 << 62, Ask { lease_ms: 10_000, watch: Watch::Fixed, ..wish("a") });
    let deadline = client.adopt(number, ask, asked, now);
    assert_eq!(deadline, Steady::from_us(second_us * 21 / 2), "five per cent of ten seconds, from the asking on");
    client.tick(Steady::from_us(deadline.as_us() - 1));
    assert_eq!(client.next_reply(), None);
    client.tick(deadline);
    assert_eq!(client.next_reply(), Some((number, LockReply::Lost)));
}
