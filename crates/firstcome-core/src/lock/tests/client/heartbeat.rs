//! Heartbeats, and what they find.

use super::*;

#[test]
fn who_waits_beats_every_half_window_once_per_bucket_and_who_holds_does_not() {
    let (mut net, _) = Net::held(2);
    for _ in 0..20 {
        net.ask(1, wish("a"));
    }
    net.run_ms(10);
    let since_ms = net.now_us / 1_000;
    net.run_ms(20_000);
    let beats = net.count(since_ms, "beat");
    // One more at the known end of the hold.
    assert!((19..=24).contains(&beats), "{beats}");
    assert!(net.calls.iter().all(|(_, at, step)| describe_step(step) != "beat" || *at == 1));
    assert!(net.wake_ups < 80, "{}", net.wake_ups);
    let asked = net.client(1).numbers();
    asked.into_iter().for_each(|number| net.drop_request(1, number));
    net.run_ms(10);
    let since_ms = net.now_us / 1_000;
    net.run_ms(10_000);
    assert_eq!(net.count(since_ms, "beat"), 0, "nobody waits any more");
    net.end();
}

#[test]
fn beats_that_failed_are_soon_made_up_for() {
    let (mut net, held) = Net::held(2);
    let number = net.ask(1, wish("a"));
    net.run_ms(990);
    // If every regular heartbeat were refused, the next one would come when the process counts as dead.
    net.way = CallFate::Refused;
    net.run_ms(1_020);
    net.way = CallFate::Good;
    net.run_ms(290);
    net.release(0, held);
    net.run_ms(10);
    assert_eq!(net.last(1, number), "granted");
    net.end();
}

#[test]
fn a_missed_push_is_found_by_the_next_beat() {
    for (lease_ms, within_ms) in [(LEASE_MS, 1_010), (1_000, 510), (200, 110)] {
        let (mut net, held) = Net::held(2);
        let number = net.ask(1, Ask { lease_ms, ..wish("a") });
        net.run_ms(10);
        net.lose_pushes = true;
        net.release(0, held);
        net.run_ms(within_ms);
        assert_eq!(net.last(1, number), "granted", "{lease_ms} ms");
        net.end();
    }
}

#[test]
fn a_process_that_missed_its_grant_altogether_is_served_later() {
    let (mut net, held) = Net::held(3);
    let number = net.ask(1, Ask { lease_ms: 200, ..wish("a") });
    net.run_ms(10);
    let second = net.ask(2, wish("a"));
    net.run_ms(10);
    (net.lose_pushes, net.way) = (true, CallFate::StepLost);
    let now = net.steady();
    net.tables.values_mut().for_each(|table| {
        release(table, &lock_name("a"), request(0, held), Copies::One, START_US + (now.as_us() - STEADY_US) as u64);
    });
    net.held.clear();
    net.run_ms(900);
    net.way = CallFate::Good;
    net.run_ms(2_000);
    assert_eq!(net.last(2, second), "granted");
    assert_eq!(net.waiters("a"), 1, "it is in line again");
    net.release(2, second);
    net.run_ms(1_000);
    assert_eq!(net.last(1, number), "granted");
    net.end();
}

#[test]
fn the_head_of_the_line_looks_at_the_end_of_a_killed_holder() {
    for lease_ms in [100, 1_000, 10_000, 60_000] {
        let mut net = Net::new(3);
        net.ask(0, Ask { lease_ms, ..wish("a") });
        net.run_ms(10);
        let number = net.ask(1, wish("a"));
        net.run_ms(5);
        net.ask(2, wish("a"));
        net.run_ms(u64::from(lease_ms));
        net.kill(0);
        let killed_ms = net.now_us / 1_000;
        net.run_ms(u64::from(lease_ms) + 50);
        let granted_ms = net.told_at_ms(1, number, "granted").expect("it is granted");
        assert!(killed_ms <= granted_ms + u64::from(lease_ms), "{lease_ms}: {granted_ms}");
        net.end();
    }
}

#[test]
fn a_thousand_dead_ahead_cost_less_than_two_windows() {
    for dead_ms in [0, 500, 1_999, 5_000] {
        let (mut net, held) = Net::held(1_002);
        for at in 1..=1_000 {
            net.ask(at, wish("a"));
            if at % 100 == 0 {
                net.run_ms(1);
            }
        }
        net.run_ms(5);
        let number = net.ask(1_001, wish("a"));
        net.run_ms(5);
        (1..=1_000).for_each(|at| net.kill(at));
        net.run_ms(dead_ms);
        let before_ms = net.now_us / 1_000;
        net.release(0, held);
        net.run_ms(4_000);
        let granted_ms = net.told_at_ms(1_001, number, "granted").expect("it is granted");
        let within_ms = if dead_ms == 5_000 { 10 } else { 4_000 };
        assert!(granted_ms - before_ms <= within_ms, "dead for {dead_ms} ms: {}", granted_ms - before_ms);
        net.checks_holds = false;
        net.end();
    }
}

#[test]
fn after_a_gap_in_the_pushes_everything_is_looked_at_once() {
    let (mut net, held) = Net::held(2);
    let second = net.ask(0, wish("b"));
    let asked = [net.ask(1, wish("a")), net.ask(1, wish("b"))];
    net.run_ms(10);
    net.lose_pushes = true;
    net.release(0, held);
    net.release(0, second);
    net.run_ms(5);
    let now = net.steady();
    net.client(1).check_everywhere(now);
    net.client(1).check_everywhere(now);
    net.collect();
    net.run_ms(5);
    assert_eq!(asked.map(|number| net.last(1, number)), ["granted", "granted"]);
    assert_eq!(net.count(0, "beat"), 2, "once per bucket");
    net.end();
}

#[test]
fn ten_thousand_waiters_of_one_process_send_one_beat_and_are_all_served() {
    let (mut net, held) = Net::held(2);
    let asked: Vec<u64> = (0..10_000).map(|_| net.ask(1, wish("a"))).collect();
    net.run_ms(10);
    let since_ms = net.now_us / 1_000;
    net.run_ms(5_000);
    assert!((4..=6).contains(&net.count(since_ms, "beat")), "{}", net.count(since_ms, "beat"));
    let calls = net.calls.len();
    net.release(0, held);
    for number in &asked {
        net.run_ms(2);
        assert_eq!(net.last(1, *number), "granted");
        net.release(1, *number);
        net.told.clear();
    }
    let more = net.calls.len() - calls;
    assert!(more <= 10_001 + 60, "{more} calls");
    net.end();
}
