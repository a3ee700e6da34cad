//! Each planted bug of a lock breaks the promise that it is named after, and nothing while it is not planted.

use super::client::{Net, wish};
use super::*;
use crate::planted::{Bug, plant};

/// Returns the answers with the bug, and without it.
fn told(bug: Bug, scene: impl Fn() -> String) -> (String, String) {
    let sound = scene();
    plant(Some(bug));
    let broken = scene();
    plant(None);
    assert_eq!(scene(), sound, "taken out again");
    (sound, broken)
}

fn pair(sound: &str, broken: &str) -> (String, String) {
    (sound.to_owned(), broken.to_owned())
}

#[test]
fn a_lock_is_released_by_the_process_that_asks() {
    let scene = || {
        let mut play = Play::held();
        play.release("a", request(2, 7))
    };
    assert_eq!(told(Bug::AnybodyReleases, scene), pair("not held", "released"));
}

#[test]
fn a_lock_is_granted_again_with_the_fence_that_it_had() {
    // The first grant of a bucket has no number to repeat.
    let scene = || {
        let mut play = Play::new();
        play.heartbeat(1);
        play.try_lock("a", waiter(1, 1));
        let fence = play.fence("a");
        play.pass_ms(20_000);
        play.try_lock("a", waiter(2, 1));
        if fence < play.fence("a") { "higher".to_owned() } else { "the same".to_owned() }
    };
    assert_eq!(told(Bug::FenceStands, scene), pair("higher", "the same"));
}

#[test]
fn the_dead_are_served() {
    let scene = || {
        let mut play = Play::held();
        play.place("a", waiter(2, 1));
        play.pass_ms(2_001);
        play.place("a", waiter(3, 1));
        play.release("a", request(1, 1));
        play.news()
    };
    assert_eq!(told(Bug::DeadServed, scene), pair("a to 3.1: open 2000 ms", "a to 2.1: open 2000 ms"));
}

#[test]
fn a_grant_whose_push_is_lost_is_never_noticed() {
    let scene = || {
        let mut net = Net::new(2);
        let held = net.ask(0, wish("a"));
        net.run_ms(10);
        let waits = net.ask(1, wish("a"));
        net.run_ms(10);
        net.lose_pushes = true;
        net.release(0, held);
        net.run_ms(1_100);
        let told = net.last(1, waits);
        net.lose_pushes = false;
        told
    };
    assert_eq!(told(Bug::WakeUpLost, scene), pair("granted", ""));
}

#[test]
fn a_lock_that_was_given_up_goes_on_being_renewed() {
    let scene = || {
        let mut play = Play::held();
        play.place("a", waiter(2, 1));
        play.release("a", request(1, 1));
        play.renew("a", request(1, 1), LEASE_MS)
    };
    assert_eq!(told(Bug::RenewedAfterRelease, scene), pair("lost", "10000 ms"));
}

#[test]
fn a_holder_counts_its_lease_from_when_it_heard_of_the_grant() {
    let scene = || {
        let mut net = Net::new(1);
        net.delay_ms = (1, 800);
        let held = net.ask(0, wish("a"));
        net.run_ms(810);
        let ends_us = net.hold("a").expect("it is granted").expires_us;
        let deadline_us = net.true_us(net.deadline(0, held));
        if deadline_us <= ends_us { "before its end".to_owned() } else { "after its end".to_owned() }
    };
    assert_eq!(told(Bug::DeadlineFromArrival, scene), pair("before its end", "after its end"));
}
