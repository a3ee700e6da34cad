//! The effects of time: admission, offers, ends, absence, and clocks that an operator sets.

use super::*;

pub(super) async fn an_offer_is_taken_by_a_poll_or_lapses<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(slots(1)), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (0, anybody(), "new 2 waiting 0"),
        (9_999, Step::View, "open 1 waiting 1 active serving 1"),
        // Visitor 1 did not take the slot within ten seconds. The next one gets it, and visitor 1 waits again under its
        // number.
        (10_000, Step::View, "open 1 waiting 1 active serving 2"),
        (10_001, Step::Poll(1), "1 waiting 0"),
        (19_999, Step::Poll(2), "2 admitted 2@10000 until 49999"),
        (20_000, Step::Poll(2), "2 admitted 2@10000 until 49999"),
        (20_001, Step::Leave(2), "left"),
        (20_002, Step::Poll(1), "1 admitted 3@20001 until 50002"),
    ];
    bench.check("offers", &rows).await;
}

pub(super) async fn a_slot_ends_at_its_instant_and_its_pass_with_it<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(slots(1)), "created"),
        (0, user("ann"), "new 1 waiting 0"),
        (0, user("bob"), "new 2 waiting 0"),
        (5, Step::Check(1, 1), "not valid"),
        (5, Step::Poll(1), "1 admitted 1@0 until 30005"),
        (6, Step::Check(1, 1), "valid until 30005"),
        (6, Step::Check(1, 2), "not valid"),
        (6, Step::Check(2, 1), "not valid"),
        (6, Step::Check(9, 1), "not valid"),
        (29_000, Step::Poll(2), "2 waiting 0"),
        (30_004, Step::Check(1, 1), "valid until 30005"),
        (30_004, user("ann"), "same user 1 admitted 1@0 until 30005"),
        (30_005, Step::Check(1, 1), "not valid"),
        (30_005, Step::Poll(1), "1 expired"),
        (30_005, user("ann"), "new 3 waiting 0"),
        (30_005, Step::Poll(2), "2 admitted 2@30005 until 60005"),
    ];
    bench.check("ends", &rows).await;
}

pub(super) async fn an_idle_slot_ends_unless_it_is_heard_of<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(RoomSettings { idle_ttl_ms: Some(1_000), ..slots(2) }), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (0, anybody(), "new 2 waiting 0"),
        (0, Step::Poll(1), "1 admitted 1@0 until 1000"),
        (0, Step::Poll(2), "2 admitted 2@0 until 1000"),
        (900, Step::Poll(1), "1 admitted 1@0 until 1900"),
        (999, Step::Check(2, 2), "valid until 1999"),
        (1_900, Step::Check(1, 1), "not valid"),
        (1_900, Step::Poll(1), "1 expired"),
        (1_998, Step::Check(2, 2), "valid until 2998"),
        (2_998, Step::Poll(2), "2 expired"),
    ];
    bench.check("idle", &rows).await;
}

/// New settings count as a contact for every slot. That must not revive a slot that was reported as over.
pub(super) async fn a_slot_that_was_told_to_be_over_stays_over<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("over");
    let idle = |idle_ttl_ms| RoomSettings { idle_ttl_ms: Some(idle_ttl_ms), ..slots(9) };
    for (number, released) in [(1, false), (2, true)] {
        bench.put(&room, idle(1_000)).await;
        let rows = [(0, anybody(), format!("new {number} waiting 0")), (0, Step::Poll(number), String::new())];
        for (_, step, wanted) in rows {
            let told = bench.apply(&room, &step).await;
            bench.tick().await;
            assert!(told.words.starts_with(&wanted), "{step:?}: {told:?}");
        }
        bench.clock.pass_ms(1_000);
        let step = if released { Step::Release(number, number.into()) } else { Step::Check(number, number.into()) };
        let told = bench.apply(&room, &step).await;
        assert_eq!(told.words, if released { "released" } else { "not valid" });
        bench.put(&room, idle(60_000)).await;
        let told = bench.apply(&room, &Step::Check(number, number.into())).await;
        assert_eq!(told.words, "not valid", "after {step:?}");
        let told = bench.apply(&room, &Step::Poll(number)).await;
        assert_eq!(told.words, format!("{number} expired"), "after {step:?}");
    }
}

pub(super) async fn a_release_frees_one_admission_only<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(slots(1)), "created"),
        (0, anybody(), "new 1 waiting 0"),
        // An offer that was not taken has no pass.
        (0, Step::Release(1, 1), "released"),
        (0, Step::Poll(1), "1 admitted 1@0 until 30000"),
        (1, Step::Release(1, 2), "released"),
        (1, Step::Release(7, 1), "released"),
        (1, Step::Check(1, 1), "valid until 30000"),
        (1, Step::Release(1, 1), "released"),
        (1, Step::Release(1, 1), "released"),
        (1, Step::Check(1, 1), "not valid"),
        (1, Step::Poll(1), "1 left"),
        (1, Step::View, "open 0 waiting 0 active serving 1"),
    ];
    bench.check("release", &rows).await;
}

pub(super) async fn nobody_is_admitted_before_the_opening_or_in_a_pause<S: RoomStore + 'static>(bench: Bench<S>) {
    let scheduled = RoomSettings { opens_at: Some(at(5_000)), ..slots(5) };
    let rows = [
        (0, Step::Put(scheduled.clone()), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (4_999, Step::View, "scheduled 1 waiting 0 active serving 0"),
        (5_000, Step::View, "open 0 waiting 1 active serving 1"),
        (5_001, Step::Put(RoomSettings { paused: true, ..scheduled.clone() }), "replaced"),
        (5_001, anybody(), "new 2 waiting 0"),
        (5_002, Step::View, "paused 1 waiting 1 active serving 1"),
        // A pause takes no slot from an admitted visitor.
        (5_003, Step::Poll(1), "1 admitted 1@5000 until 35003"),
        (5_004, Step::Put(scheduled), "replaced"),
        (5_004, Step::Poll(2), "2 admitted 2@5004 until 35004"),
    ];
    bench.check("pause", &rows).await;
}

pub(super) async fn the_rate_is_kept_and_what_was_not_used_is_lost<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("rate");
    // Forty per second are ten in a slice of 250 ms.
    bench.put(&room, RoomSettings { claim_window_ms: 60_000, ..RoomSettings::with_rate(40, 1_000) }).await;
    bench.set(60_000).await;
    for _ in 0..100 {
        bench.join(&room, join(None, None)).await.expect("there is room");
    }
    let mut before = 0;
    for now in (60_000..62_000).step_by(50) {
        bench.set(now).await;
        let active = answered(bench.store.room(&room).await).expect("it exists").view.active;
        let allowed = 10 + 40 * (now - 60_000) as u32 / 1_000;
        assert!(active <= allowed, "{active} were admitted at {now}, {allowed} may be");
        assert!(allowed <= active + 10, "only {active} were admitted at {now} of {allowed}");
        assert!(before <= active);
        before = active;
    }
    // A long time without a tick earns one slice only; and as many again are admitted in place of visitors who did not come.
    bench.set(90_000).await;
    let active = answered(bench.store.room(&room).await).expect("it exists").view.active;
    assert!(active <= before + 20, "{before} became {active}");
}

pub(super) async fn reports_of_the_origin_lower_the_rate_and_it_recovers<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(RoomSettings::with_rate(10, 1_000)), "created"),
        (0, Step::Report(OriginReport::Fine), "1.000 of the limit"),
        (0, Step::Report(OriginReport::Slow), "0.700 of the limit"),
        // One report in five seconds has an effect.
        (4_999, Step::Report(OriginReport::Failing), "0.700 of the limit"),
        (5_000, Step::Report(OriginReport::Failing), "0.490 of the limit"),
        (10_000, Step::Report(OriginReport::Fine), "0.540 of the limit"),
        (10_000, Step::Report(OriginReport::Fine), "0.540 of the limit"),
        // Of 0.46 half is left 15 s and 30 s later; and this report adds 0.05.
        (55_000, Step::Report(OriginReport::Fine), "0.820 of the limit"),
    ];
    bench.check("origin", &rows).await;
    for step in 0..8 {
        let told = bench.store.report_origin(&name("origin"), OriginReport::Slow).await;
        assert!(0.25 <= answered(told).expect("it exists").origin_share);
        bench.set(60_000 + step * 5_000).await;
    }
    bench.check("origin", &[(100_000, Step::Report(OriginReport::Slow), "0.250 of the limit")]).await;
}

pub(super) async fn the_absent_are_passed_over_and_next_when_they_return<S: RoomStore + 'static>(bench: Bench<S>) {
    // The length of a pause is unknown, so every visitor is told to poll after 12 to 18 s, and is present for three
    // times that.
    let rows = [
        (0, Step::Put(paused()), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (0, anybody(), "new 2 waiting 1"),
        (60_000, Step::Poll(2), "2 waiting 1"),
        (60_000, anybody(), "new 3 waiting 2"),
        (60_001, Step::Put(slots(1)), "replaced"),
        (60_001, Step::View, "open 2 waiting 1 active serving 2"),
        (60_002, Step::Poll(2), "2 admitted 1@60001 until 90002"),
        (60_003, Step::Poll(1), "1 waiting 0"),
        (60_003, Step::Poll(3), "3 waiting 0"),
        (60_004, Step::Leave(2), "left"),
        (60_004, Step::Poll(3), "3 waiting 0"),
        (60_005, Step::Poll(1), "1 admitted 2@60004 until 90005"),
    ];
    bench.check("absent", &rows).await;
}

pub(super) async fn who_is_silent_too_long_is_gone<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(RoomSettings { waiting_ttl_ms: 1_000, ..paused() }), "created"),
        (0, user("ann"), "new 1 waiting 0"),
        (0, user("bob"), "new 2 waiting 1"),
        (999, Step::Poll(2), "2 waiting 1"),
        (1_000, Step::Poll(1), "1 expired"),
        (1_000, user("ann"), "new 3 waiting 1"),
        (1_998, user("bob"), "same user 2 waiting 0"),
        (2_500, Step::View, "paused 1 waiting 0 active serving 0"),
        (2_998, user("bob"), "new 4 waiting 0"),
    ];
    bench.check("silent", &rows).await;
}

pub(super) async fn setting_the_wall_clock_moves_no_lease<S: RoomStore + 'static>(bench: Bench<S>) {
    const HOUR: i64 = 3_600_000;
    let scheduled = RoomSettings { opens_at: Some(at(HOUR)), ..slots(5) };
    bench.check("later", &[(0, Step::Put(scheduled), "created"), (0, anybody(), "new 1 waiting 0")]).await;
    let rows = [
        (0, Step::Put(slots(1)), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (0, Step::Poll(1), "1 admitted 1@0 until 30000"),
    ];
    bench.check("walls", &rows).await;
    bench.clock.step_forward_ms(3_600_000);
    let rows = [
        (HOUR + 20_000, Step::Check(1, 1), "valid until 3630000"),
        (HOUR + 29_999, Step::Poll(1), "1 admitted 1@0 until 3630000"),
        (HOUR + 30_000, Step::Check(1, 1), "not valid"),
        (HOUR + 30_000, anybody(), "new 2 waiting 0"),
        (HOUR + 30_000, Step::Poll(2), "2 admitted 2@3630000 until 3660000"),
    ];
    bench.check("walls", &rows).await;
    // Schedules follow the wall clock.
    bench.check("later", &[(HOUR + 30_000, Step::View, "open 1 waiting 0 active serving 1")]).await;
    // Set back, the wall clock stands still while the lease runs out.
    bench.clock.stand_ms(29_999);
    bench.check("walls", &[(HOUR, Step::Check(2, 2), "valid until 3630001")]).await;
    bench.clock.stand_ms(1);
    bench.check("walls", &[(HOUR, Step::Check(2, 2), "not valid"), (HOUR, Step::Poll(2), "2 expired")]).await;
}
