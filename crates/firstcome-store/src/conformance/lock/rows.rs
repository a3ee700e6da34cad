//! One rule per case.

use super::*;

pub(super) async fn a_free_lock_is_granted_for_its_lease<S: LockStore>(bench: Bench<S>) {
    assert_eq!(bench.view(&door()).await, (false, 0));
    let answer = bench.take(&ask_for(5_000, 1, 1)).await;
    let LockAnswer::Acquired(Acquired::Granted(grant)) = answer.said else { panic!("it is free: {answer:?}") };
    assert_eq!((grant.request, grant.taken), (request(1, 1), Taken::Yes));
    assert_eq!(grant.expires_us, answer.now_us + 5_000_000);
    assert!(answer.now_us <= grant.fence.get(), "{grant:?}");
    assert_eq!(bench.view(&door()).await, (true, 0));
    bench.check(&[(0, release(1, 1), "released")]).await;
    assert_eq!(bench.view(&door()).await, (false, 0));
}

pub(super) async fn the_line_is_served_in_the_order_of_arrival<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, ask(1, 1), "granted"),
            (0, ask(2, 1), "queued 0"),
            (0, ask(1, 2), "queued 1"),
            (0, ask(3, 1), "queued 2"),
        ])
        .await;
    assert_eq!(bench.view(&door()).await, (true, 3));
    let mut before = bench.fence(1, 1).await;
    for (gone, next) in [((1, 1), (2, 1)), ((2, 1), (1, 2)), ((1, 2), (3, 1))] {
        bench.check(&[(0, release(gone.0, gone.1), "released")]).await;
        let fence = bench.fence(next.0, next.1).await;
        assert!(before < fence, "{fence} after {before}");
        before = fence;
    }
    assert_eq!(bench.view(&door()).await, (true, 0));
    bench.check(&[(0, release(3, 1), "released"), (0, release(3, 1), "not held")]).await;
    assert_eq!(bench.view(&door()).await, (false, 0));
}

pub(super) async fn a_repeat_is_told_where_it_stands<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, ask(1, 1), "granted"),
            (0, ask(1, 1), "granted"),
            (0, ask(2, 1), "queued 0"),
            (0, ask(3, 1), "queued 1"),
            (0, ask(2, 1), "queued 0"),
            (0, ask(3, 1), "queued 1"),
            (0, attempt(3, 1), "queued 1"),
            (0, release(1, 1), "released"),
            (0, ask(2, 1), "granted, to be confirmed"),
            (0, ask(2, 1), "granted, to be confirmed"),
        ])
        .await;
    assert_eq!(bench.view(&door()).await, (true, 1));
}

pub(super) async fn who_does_not_wait_is_told_who_holds<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, attempt(1, 1), "granted"),
            (0, attempt(2, 1), "held by owner-1, 0 wait"),
            (0, ask(3, 1), "queued 0"),
            (0, attempt(2, 2), "held by owner-1, 1 wait"),
            (0, release(1, 1), "released"),
            (0, attempt(2, 3), "held by owner-3, 0 wait"),
        ])
        .await;
}

pub(super) async fn who_gives_up_leaves_no_gap<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, ask(1, 1), "granted"),
            (0, ask(2, 1), "queued 0"),
            (0, ask(3, 1), "queued 1"),
            (0, ask(4, 1), "queued 2"),
            (0, ask(5, 1), "queued 3"),
            (0, release(3, 1), "withdrawn 1"),
            (0, ask(4, 1), "queued 1"),
            (0, release(5, 1), "withdrawn 2"),
            (0, release(2, 1), "withdrawn 0"),
            (0, release(1, 1), "released"),
            (0, ask(4, 1), "granted, to be confirmed"),
        ])
        .await;
    assert_eq!(bench.view(&door()).await, (true, 0));
}

pub(super) async fn what_was_given_up_before_it_arrived_is_void<S: LockStore>(bench: Bench<S>) {
    let given_up = Step::Release { name: door(), request: request(1, 2), copies: Copies::Several };
    bench
        .check(&[
            (0, release(1, 1), "not held"),
            (0, ask(1, 1), "void"),
            (0, ask(1, 2), "granted"),
            (0, given_up, "released"),
            (0, ask(1, 2), "void"),
            (0, ask(1, 3), "granted"),
            (0, release(1, 3), "released"),
            (0, ask(2, 1), "granted"),
        ])
        .await;
}

pub(super) async fn a_hold_ends_with_its_lease<S: LockStore>(bench: Bench<S>) {
    bench.check(&[(0, ask_for(100, 1, 1), "granted")]).await;
    let fence = bench.fence(1, 1).await;
    bench
        .check(&[
            (100, ask(2, 1), "granted"),
            (0, renew(100, 1, 1), "lost"),
            (0, release(1, 1), "not held"),
            (0, attempt(3, 1), "held by owner-2, 0 wait"),
        ])
        .await;
    assert!(fence < bench.fence(2, 1).await);
    bench.check(&[(0, ask_for(100, 4, 1), "queued 0"), (0, release(2, 1), "released")]).await;
    bench.pass(100).await;
    assert_eq!(bench.view(&door()).await, (false, 0), "a hold that is over is shown as none");
}

pub(super) async fn a_renewed_hold_goes_on<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, ask_for(1_000, 1, 1), "granted"),
            (300, renew(20_000, 1, 1), "renewed"),
            (900, attempt(2, 1), "held by owner-1, 0 wait"),
            (0, renew(20_000, 2, 1), "lost"),
            // A renewal never shortens a hold, because its holder may rely on the longer lease.
            (0, renew(100, 1, 1), "renewed"),
            (110, attempt(2, 2), "held by owner-1, 0 wait"),
        ])
        .await;
}

pub(super) async fn renewals_are_answered_in_their_order<S: LockStore>(bench: Bench<S>) {
    let names = names_of(bucket_of(&door()), 3);
    for (number, name) in (1..).zip(&names) {
        let step = Step::Acquire { name: name.clone(), waiter: waiter(1, number), wait: Wait::No };
        assert_eq!(words(&bench.take(&step).await), "granted");
    }
    let renewal = |(number, name): (u64, &LockName)| Renewal {
        name: name.clone(),
        // The second renewal names a request that holds nothing.
        request: request(1, if number == 2 { 9 } else { number }),
        lease_ms: LEASE_MS + 1_000 * number as u32,
    };
    let renewals = (1..).zip(&names).map(renewal).collect();
    let answer = bench.take(&Step::Renew { bucket: bucket_of(&door()), renewals }).await;
    let LockAnswer::Renewed(ends) = answer.said else { panic!("a renewal is answered: {answer:?}") };
    let now_us = answer.now_us;
    let longer = |more_us: u64| Some(now_us + u64::from(LEASE_MS) * 1_000 + more_us);
    assert_eq!(ends, [longer(1_000_000), None, longer(3_000_000)]);
}

pub(super) async fn a_grant_that_nobody_takes_ends_with_the_claim_window<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, ask(1, 1), "granted"),
            (0, ask(2, 1), "queued 0"),
            (0, ask(3, 1), "queued 1"),
            (1_500, beat(3), "held"),
            (0, release(1, 1), "released"),
            (0, beat(2), "mine"),
            (1_500, beat(3), "held,look"),
            (600, beat(3), "mine"),
            (0, renew(20_000, 3, 1), "renewed"),
            (2_100, attempt(4, 1), "held by owner-3, 0 wait"),
        ])
        .await;
}

pub(super) async fn the_dead_are_passed_over<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, ask(1, 1), "granted"),
            (0, ask(2, 1), "queued 0"),
            (0, ask(2, 2), "queued 1"),
            (0, ask(3, 1), "queued 2"),
            (0, ask(4, 1), "queued 3"),
            (1_200, beat(4), "held"),
            (1_200, beat(4), "held,look"),
            (0, release(1, 1), "released"),
            (0, beat(4), "mine"),
            (0, attempt(5, 1), "held by owner-4, 0 wait"),
            (0, release(4, 1), "released"),
        ])
        .await;
    assert_eq!(bench.view(&door()).await, (false, 0));
}

pub(super) async fn a_heartbeat_ends_what_is_over_and_finds_what_was_missed<S: LockStore>(bench: Bench<S>) {
    bench
        .check(&[
            (0, beat(2), "free"),
            (0, ask_for(200, 1, 1), "granted"),
            (0, ask(2, 1), "queued 0"),
            (0, ask(3, 1), "queued 1"),
            (0, beat(3), "held"),
            (0, beat(2), "held,look"),
            (200, beat(3), "held,look"),
            (0, beat(2), "mine"),
            (0, release(2, 1), "released"),
            (0, beat(2), "held,look"),
            (0, beat(3), "mine"),
        ])
        .await;
}

pub(super) async fn a_life_ends_with_a_missed_window<S: LockStore>(bench: Bench<S>) {
    let life = async |pass_ms| {
        bench.pass(pass_ms).await;
        match bench.take(&beat(1)).await.said {
            LockAnswer::Beaten { life, .. } => life,
            said => panic!("a heartbeat is answered: {said:?}"),
        }
    };
    let first = life(0).await;
    assert_eq!(life(0).await, first);
    assert_eq!(life(1_500).await, first);
    let second = life(2_001).await;
    assert!(first < second, "{second} after {first}");
    assert_eq!(life(1_500).await, second);
}

pub(super) async fn a_cohort_has_fences_of_its_own<S: LockStore>(bench: Bench<S>) {
    let cohort = Waiter { mode: Mode::Exclusive { passes: 1_000 }, ..waiter(1, 1) };
    let step = Step::Acquire { name: door(), waiter: cohort, wait: Wait::Yes };
    bench.check(&[(0, step, "granted"), (0, ask(2, 1), "queued 0")]).await;
    let first = bench.fence(1, 1).await;
    bench.check(&[(0, release(1, 1), "released")]).await;
    assert!(first + 1_000 <= bench.fence(2, 1).await);
}

pub(super) async fn a_place_that_was_forgotten_is_taken_again<S: LockStore>(bench: Bench<S>) {
    let place = async |step| match bench.take(&step).await.said {
        LockAnswer::Acquired(Acquired::Queued { number, .. }) => number,
        said => panic!("it waits: {said:?}"),
    };
    bench.check(&[(0, ask(1, 1), "granted")]).await;
    let first = place(ask(2, 1)).await;
    let second = place(ask(3, 1)).await;
    assert!(first < second);
    let again = |number, place| Step::Acquire { name: door(), waiter: waiter(2, number), wait: Wait::Again(place) };
    bench.check(&[(0, release(2, 1), "withdrawn 0")]).await;
    assert_eq!(place(again(2, first)).await, first);
    assert!(second < place(again(3, second)).await, "somebody else has that place");
    bench.check(&[(0, release(1, 1), "released"), (0, ask(2, 2), "granted, to be confirmed")]).await;
}

pub(super) async fn locks_do_not_touch_each_other<S: LockStore>(bench: Bench<S>) {
    let mut names = names_of(bucket_of(&door()), 3);
    names.extend((0..30).map(|number| name(&format!("other-{number}"))));
    for (number, name) in (1..).zip(&names) {
        for client in 1..=2 {
            let step = Step::Acquire { name: name.clone(), waiter: waiter(client, number), wait: Wait::Yes };
            assert_eq!(words(&bench.take(&step).await), if client == 1 { "granted" } else { "queued 0" });
        }
    }
    for (number, name) in (1..).zip(&names) {
        assert_eq!(bench.view(name).await, (true, 1));
        for client in 1..=2 {
            let step = Step::Release { name: name.clone(), request: request(client, number), copies: Copies::One };
            assert_eq!(words(&bench.take(&step).await), "released");
        }
        assert_eq!(bench.view(name).await, (false, 0));
    }
}

/// Returns `count` names of locks in one bucket.
pub(super) fn names_of(bucket: u8, count: usize) -> Vec<LockName> {
    let names = (0..).map(|number| name(&format!("name-{number}")));
    names.filter(|name| bucket_of(name) == bucket).take(count).collect()
}
