//! Which request gets a lock, with which fence, and until when.

use super::*;

#[test]
fn a_free_lock_is_granted_at_once_and_a_held_one_is_contended() {
    let mut play = Play::held();
    play.pass_ms(4_000);
    assert_eq!(play.try_lock("a", waiter(2, 1)), "contended c1 0 6000 ms");
    assert_eq!(play.wait("a", waiter(3, 1)), "queued 0");
    assert_eq!(play.try_lock("a", waiter(2, 1)), "contended c1 1 6000 ms");
    assert_eq!(play.try_lock("b", waiter(2, 2)), "granted 10000 ms", "another lock of the bucket");
    assert_eq!(play.news(), "", "nobody waited for what was granted");
}

#[test]
fn asking_again_has_no_second_effect_at_any_step() {
    let mut play = Play::held();
    let fence = play.fence("a");
    play.pass_ms(1_000);
    for wait in [Wait::No, Wait::Yes, Wait::Again(START_US)] {
        assert_eq!(play.ask("a", waiter(1, 1), wait), "granted 9000 ms", "{wait:?}: not from now on");
    }
    assert_eq!(play.fence("a"), fence);
    let place = play.place("a", waiter(2, 1));
    play.place("a", waiter(3, 1));
    for wait in [Wait::No, Wait::Yes, Wait::Again(place), Wait::Again(1)] {
        assert_eq!(play.ask("a", waiter(2, 1), wait), "queued 0", "{wait:?}: the place stays");
    }
    assert_eq!(play.table.place_of(&lock_name("a"), request(2, 1)).map(Place::number), Some(place));
    assert_eq!(play.table.waiters(&lock_name("a")), 2);
    assert_eq!(play.release("a", request(1, 1)), "released");
    assert_eq!(play.wait("a", waiter(2, 1)), "open 2000 ms", "the repeated request hears of its grant");
    assert_eq!(play.fence("a"), play.table.hold(&lock_name("a")).unwrap().grant().fence.get());
}

#[test]
fn a_hold_ends_exactly_at_its_end() {
    let mut play = Play::held();
    play.now_us += u64::from(LEASE_MS) * 1_000 - 1;
    assert_eq!(play.try_lock("a", waiter(2, 1)), "contended c1 0 1 ms");
    assert!(view(&play.table, &lock_name("a"), play.now_us).held.is_some());
    play.now_us += 1;
    assert!(view(&play.table, &lock_name("a"), play.now_us).held.is_none());
    assert_eq!(play.renew("a", request(1, 1), LEASE_MS), "lost");
    assert_eq!(play.try_lock("a", waiter(2, 1)), "granted 10000 ms");
}

#[test]
fn no_matter_what_meets_an_overdue_hold_hands_it_over() {
    type Meets = fn(&mut Play) -> String;
    let rows: [(&str, Meets, &str); 6] = [
        ("acquire", |play| play.try_lock("a", waiter(9, 9)), "contended c2 0 2000 ms"),
        ("own release", |play| play.release("a", request(1, 1)), "not held"),
        ("another release", |play| play.release("a", request(9, 9)), "not held"),
        ("own renewal", |play| play.renew("a", request(1, 1), LEASE_MS), "lost"),
        ("another renewal", |play| play.renew("a", request(9, 9), LEASE_MS), "lost"),
        ("look", |play| play.look("a", 9), "nothing, mine in 2000 ms"),
    ];
    for (what, meets, wanted) in rows {
        let mut play = Play::held();
        play.pass_ms(9_000);
        play.place("a", waiter(2, 1));
        play.pass_ms(1_000);
        assert_eq!(meets(&mut play), wanted, "{what}");
        assert_eq!(play.news(), "a to 2.1: open 2000 ms", "{what}");
    }
}

#[test]
fn a_grant_to_a_process_that_waits_lasts_a_window_or_the_lease_until_it_is_confirmed() {
    for (lease_ms, lasts) in [(1_999, "1999 ms"), (2_000, "2000 ms"), (2_001, "2000 ms"), (86_400_000, "2000 ms")] {
        let mut play = Play::held();
        play.place("a", lasting(lease_ms, waiter(2, 1)));
        play.release("a", request(1, 1));
        assert_eq!(play.news(), format!("a to 2.1: open {lasts}"));
        play.pass_ms(100);
        assert_eq!(play.renew("a", request(2, 1), lease_ms), format!("{lease_ms} ms"));
        assert_eq!(play.wait("a", lasting(lease_ms, waiter(2, 1))), format!("granted {lease_ms} ms"), "confirmed");
    }
}

#[test]
fn a_grant_that_no_process_confirms_goes_to_the_next_one() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    play.place("a", waiter(3, 1));
    play.release("a", request(1, 1));
    play.news();
    for client in [2, 3] {
        play.heartbeat(client);
    }
    play.now_us += WINDOW_US - 1;
    assert_eq!(play.look("a", 3), "nothing, mine in 1 ms");
    play.now_us += 1;
    assert_eq!(play.renew("a", request(2, 1), LEASE_MS), "lost");
    assert_eq!(play.news(), "a to 3.1: open 2000 ms");
    assert_eq!(play.release("a", request(3, 1)), "released", "a release confirms too");
    assert!(play.table.is_empty());
}

#[test]
fn a_process_that_missed_a_grant_finds_another_life_and_asks_again() {
    let mut play = Play::held();
    let life = play.heartbeat(2);
    let place = play.place("a", lasting(200, waiter(2, 1)));
    play.place("a", waiter(3, 1));
    assert_eq!(play.heartbeat(2), life);
    play.release("a", request(1, 1));
    play.pass_ms(200);
    assert_eq!(play.look("a", 3), "open 2000 ms, mine in 2000 ms");
    // Within the window it does not count as dead: only the new life tells it that it waits no more.
    assert_ne!(play.heartbeat(2), life);
    assert_eq!(play.ask("a", waiter(2, 1), Wait::Again(place)), "queued 0");
}

#[test]
fn the_answer_to_a_heartbeat_names_the_life_after_its_looks() {
    let mut play = Play::held();
    play.place("a", lasting(200, waiter(2, 1)));
    let life = play.heartbeat(2);
    play.release("a", request(1, 1));
    play.pass_ms(200);
    let step = Step::Beat { bucket: 0, client: ClientId(2), names: vec![lock_name("a")] };
    let (answer, _) = take(&mut play.table, &step, play.now_us);
    let LockAnswer::Beaten { life: told, looked } = answer.said else { panic!("{answer:?}") };
    assert_eq!(looked, [(Vec::new(), None)]);
    assert_ne!(told, life);
    assert_eq!(play.heartbeat(2), told, "it stands");
}

#[test]
fn renewing_lengthens_from_now_never_shortens_and_is_repeatable() {
    let mut play = Play::held();
    play.pass_ms(4_000);
    for _ in 0..2 {
        assert_eq!(play.renew("a", request(1, 1), LEASE_MS), "10000 ms");
    }
    assert_eq!(play.renew("a", request(1, 1), 60_000), "60000 ms");
    assert_eq!(play.renew("a", request(1, 1), 100), "60000 ms", "a late copy takes nothing away");
    play.pass_ms(59_999);
    assert_eq!(play.renew("a", request(1, 1), 100), "100 ms");
}

#[test]
fn no_other_process_renews() {
    let mut play = Play::held();
    play.place("a", waiter(2, 1));
    let before = play.table.hold(&lock_name("a"));
    for other in [request(1, 2), request(2, 1), request(3, 1)] {
        assert_eq!(play.renew("a", other, 60_000), "lost");
    }
    assert_eq!(play.table.hold(&lock_name("a")), before);
    assert_eq!(play.renew("b", request(1, 1), 60_000), "lost", "nor another lock");
    assert_eq!(play.table.len(), 2);
}

#[test]
fn fences_grow_over_ends_releases_and_locks_and_stay_while_held() {
    let mut play = Play::new();
    let mut last = 0;
    for round in 0..20_u64 {
        let name = if round % 3 == 0 { "b" } else { "a" };
        assert_eq!(play.try_lock(name, waiter(1, round)), "granted 10000 ms");
        let fence = play.fence(name);
        assert!(last < fence, "{fence} after {last}");
        play.renew(name, request(1, round), LEASE_MS);
        assert_eq!(play.fence(name), fence);
        last = fence;
        match round % 2 {
            0 => drop(play.release(name, request(1, round))),
            _ => play.pass_ms(10_000),
        }
    }
}

#[test]
fn a_cohort_has_a_fence_for_each_pass() {
    let mut play = Play::new();
    let cohort = |number, passes| Waiter { mode: Mode::Exclusive { passes }, ..waiter(1, number) };
    play.try_lock("a", cohort(1, 5));
    let first = play.fence("a");
    assert_eq!(first, START_US);
    play.release("a", request(1, 1));
    play.try_lock("a", cohort(2, 0));
    let second = play.fence("a");
    assert_eq!(second, first + 5);
    play.place("a", Waiter { mode: Mode::Exclusive { passes: 3 }, ..waiter(2, 1) });
    play.release("a", request(1, 2));
    let third = play.fence("a");
    assert!(second < third);
    assert!(third + 3 <= play.heartbeat(7), "the next number of the bucket is after the last pass");
    assert_eq!(Fence::new(third).unwrap().after(2).get(), third + 2);
}
