//! Visitors who never poll: gone soon, if the settings ask for a first poll.

use super::*;

const HOUR: i64 = 3_600_000;

fn asking(first_poll_ms: u64) -> RoomSettings {
    RoomSettings { first_poll_ms: Some(first_poll_ms), ..paused() }
}

pub(super) async fn who_never_polls_is_gone_soon_and_others_stay<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(asking(10_000)), "created"),
        (0, user("ann"), "new 1 waiting 0"),
        (0, user("bob"), "new 2 waiting 1"),
        (0, user("cid"), "new 3 waiting 2"),
        (0, anybody(), "new 4 waiting 3"),
        (9_000, Step::Poll(2), "2 waiting 1"),
        // Joining again is a contact too.
        (9_000, user("cid"), "same user 3 waiting 2"),
        (9_000, Step::Renew(4, 7), "4 waiting 3"),
        (10_000, Step::Poll(1), "1 expired"),
        (10_000, user("ann"), "new 5 waiting 3"),
        (19_999, Step::View, "paused 4 waiting 0 active serving 0"),
        // By a sweep, of which no visitor hears.
        (30_000, Step::View, "paused 3 waiting 0 active serving 0"),
        (30_000, Step::Poll(5), "5 expired"),
        // One poll was enough, for as long as silence may last.
        (3_000_000, Step::Poll(2), "2 waiting 0"),
        (3_000_000, Step::Poll(3), "3 waiting 1"),
        (3_000_000, Step::Poll(4), "4 waiting 2"),
    ];
    bench.check("asking", &rows).await;
    let shown = answered(bench.store.room(&name("asking")).await).expect("it exists").settings;
    assert_eq!(shown, asking(10_000), "the settings are shown");
    bench
        .check("asking", &[(3_000_000, Step::Put(paused()), "replaced"), (3_000_000, anybody(), "new 6 waiting 3")])
        .await;
    bench.check("asking", &[(3_500_000, Step::Poll(6), "6 waiting 3")]).await;
}

pub(super) async fn a_store_that_was_opened_again_gives_the_time_afresh<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let bench = Bench::new(open, 0).await;
    let rows = [
        (0, Step::Put(asking(120_000)), "created"),
        (0, user("ann"), "new 1 waiting 0"),
        (0, user("bob"), "new 2 waiting 1"),
        (0, anybody(), "new 3 waiting 2"),
        (100_000, Step::Poll(2), "2 waiting 1"),
    ];
    bench.check("asking", &rows).await;
    bench
        .check("hasty", &[(100_000, Step::Put(asking(1_000)), "created"), (100_000, user("eve"), "new 1 waiting 0")])
        .await;
    let bench = bench.reopen(open, HOUR).await;
    let shown = answered(bench.store.room(&name("asking")).await).expect("it exists").settings;
    assert_eq!(shown, asking(120_000));
    // Longer than any poll interval, even if the setting is shorter.
    bench.check("hasty", &[(HOUR + 89_999, Step::Poll(1), "1 waiting 0")]).await;
    let rows = [
        (HOUR + 119_999, Step::View, "paused 3 waiting 0 active serving 0"),
        (HOUR + 119_999, Step::Poll(1), "1 waiting 0"),
        (HOUR + 120_000, Step::Poll(2), "2 expired"),
        // A sweep may have ended this one at the same instant, or not yet: it depends on when the store swept before.
        (HOUR + 120_000, Step::Poll(3), "3 expired"),
        (HOUR + 120_000, user("bob"), "new 4 waiting 1"),
        (HOUR + 300_000, Step::View, "paused 1 waiting 0 active serving 0"),
        (HOUR + 300_000, Step::Poll(1), "1 waiting 0"),
    ];
    bench.check("asking", &rows).await;
}
