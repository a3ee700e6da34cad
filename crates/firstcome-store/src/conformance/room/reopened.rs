//! A store that was closed and opened again: it loses no reply, and no lease jumps.

use super::*;
use crate::conformance::{COMMANDS_AT_ONCE, all};
use crate::embedded::journal::PassSecretRevocation;

const HOUR: i64 = 3_600_000;

pub(super) async fn everything_told_is_still_there<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let bench = Bench::new(open, 0).await;
    let rows = [
        (0, Step::Put(slots(3)), "created"),
        (0, user("ann"), "new 1 waiting 0"),
        (0, keyed(Some("bob"), u128::MAX, u64::MAX), "new 2 waiting 0"),
        (0, keyed(None, 5, 50), "new 3 waiting 0"),
        (0, anybody(), "new 4 waiting 0"),
        (0, anybody(), "new 5 waiting 1"),
        (0, keyed(Some("cid"), 6, 60), "new 6 waiting 2"),
        (1_000, Step::Poll(1), "1 admitted 1@0 until 31000"),
        (2_000, Step::Poll(3), "3 admitted 3@0 until 32000"),
        (2_000, Step::Leave(5), "left"),
        (2_500, Step::Release(3, 3), "released"),
        // The slot of 3 went to 4.
        (3_000, Step::Poll(6), "6 waiting 0"),
        (3_000, Step::View, "open 1 waiting 3 active serving 4"),
    ];
    bench.check("kept", &rows).await;
    bench.check("paused", &[(3_000, Step::Put(paused()), "created"), (3_000, anybody(), "new 1 waiting 0")]).await;
    bench.check("empty", &[(3_000, Step::Put(slots(1)), "created")]).await;

    let bench = bench.reopen(open, 5_000).await;
    let rows = [
        (5_000, Step::View, "open 1 waiting 3 active serving 4"),
        // Slots and offers keep their ends.
        (5_000, Step::Poll(1), "1 admitted 1@0 until 31000"),
        (5_000, Step::Check(1, 1), "valid until 31000"),
        (5_000, Step::Poll(3), "3 left"),
        (5_000, Step::Check(3, 3), "not valid"),
        (5_000, Step::Poll(5), "5 left"),
        (5_000, keyed(Some("cid"), 6, 60), "again 6 waiting 0"),
        (5_000, keyed(Some("cid"), 6, 61), "idempotency_key_reused"),
        (5_000, user("ann"), "same user 1 admitted 1@0 until 31000"),
        (9_999, keyed(Some("bob"), u128::MAX, u64::MAX), "again 2 admitted 2@0 until 39999"),
        // Visitor 4 did not take the slot of 2500 within ten seconds.
        (12_499, Step::View, "open 1 waiting 3 active serving 4"),
        (12_500, Step::View, "open 1 waiting 3 active serving 6"),
        (12_500, Step::Poll(6), "6 admitted 5@12500 until 42500"),
        (12_501, Step::Poll(4), "4 waiting 0"),
        // Numbers continue.
        (12_501, anybody(), "new 7 waiting 0"),
        (31_000, Step::Check(1, 1), "not valid"),
        (31_000, Step::Poll(1), "1 expired"),
    ];
    bench.check("kept", &rows[..8]).await;
    assert_eq!(answered(bench.store.room(&name("kept")).await).expect("it exists").settings, slots(3));
    bench.check("kept", &rows[8..]).await;
    bench.check("paused", &[(31_000, Step::Poll(1), "1 waiting 0"), (31_000, anybody(), "new 2 waiting 1")]).await;
    bench.check("empty", &[(31_000, anybody(), "new 1 waiting 0")]).await;

    // Reopen a second time, now with the rows that were written after the first time. All tickets count as just seen,
    // however long it took.
    let bench = bench.reopen(open, 2 * HOUR).await;
    let rows = [
        (2 * HOUR, Step::Poll(1), "1 expired"),
        (2 * HOUR, Step::Poll(2), "2 expired"),
        (2 * HOUR, Step::Poll(7), "7 admitted 7@7200000 until 7230000"),
    ];
    bench.check("kept", &rows).await;
    bench.check("paused", &[(2 * HOUR, Step::Poll(2), "2 waiting 1"), (2 * HOUR, anybody(), "new 3 waiting 2")]).await;
}

pub(super) async fn leases_go_on_whatever_the_wall_clock_shows<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let first = 10 * HOUR;
    let bench = Bench::new(open, first).await;
    let rows = [
        (first, Step::Put(slots(9)), "created"),
        (first, anybody(), "new 1 waiting 0"),
        (first, Step::Poll(1), "1 admitted 1@36000000 until 36030000"),
    ];
    bench.check("walls", &rows).await;
    // An operator sets the wall clock forward, and the leases go on.
    bench.clock.step_forward_ms(3_600_000);
    let set = first + HOUR;
    let rows = [
        (set + 5_000, Step::Check(1, 1), "valid until 39630000"),
        (set + 5_000, anybody(), "new 2 waiting 0"),
        (set + 5_000, Step::Poll(2), "2 admitted 2@39605000 until 39635000"),
    ];
    bench.check("walls", &rows).await;

    let bench = bench.reopen(open, set + 10_000).await;
    let rows = [
        (set + 10_000, Step::Check(1, 1), "valid until 39630000"),
        (set + 10_000, Step::Poll(2), "2 admitted 2@39605000 until 39635000"),
        (set + 29_999, Step::Check(1, 1), "valid until 39630000"),
        (set + 30_000, Step::Check(1, 1), "not valid"),
    ];
    bench.check("walls", &rows).await;
    // The wall clock was set back while the store was closed. It is behind the last stored time, and no time has
    // passed.
    let bench = bench.reopen(open, first).await;
    let rows = [
        (first, Step::Check(2, 2), "valid until 36005000"),
        (first + 4_999, Step::Poll(2), "2 admitted 2@39605000 until 36005000"),
        (first + 5_000, Step::Check(2, 2), "not valid"),
        (first + 5_000, Step::Poll(2), "2 expired"),
        (first + 5_000, anybody(), "new 3 waiting 0"),
    ];
    bench.check("walls", &rows).await;
}

pub(super) async fn secrets_and_closed_rooms_come_back<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let first = 100 * HOUR;
    let bench = Bench::new(open, first).await;
    let rows = [
        (first, Step::Put(slots(1)), "created"),
        (first, user("ann"), "new 1 waiting 0"),
        (first, anybody(), "new 2 waiting 0"),
        (first, Step::Close, "closed"),
    ];
    bench.check("closed", &rows).await;
    let fresh = bench.store.rotate_pass_secret().await.expect("the store answers");
    let secrets = bench.store.pass_secrets();
    assert_eq!(secrets.last(), Some(&fresh));

    let bench = bench.reopen(open, first + 1).await;
    assert_eq!(bench.store.pass_secrets(), secrets);
    let rows = [
        (first + 1, Step::View, "closed 0 waiting 0 active serving 2"),
        (first + 1, user("ann"), "room_closed"),
        (first + 1, Step::Poll(1), "1 expired"),
        (first + 1, Step::Leave(2), "left"),
        (first + 1, Step::Check(1, 1), "not valid"),
        (first + 1, Step::Put(paused()), "replaced"),
        (first + 1, user("ann"), "new 3 waiting 0"),
    ];
    bench.check("closed", &rows).await;
    let newer = bench.store.rotate_pass_secret().await.expect("the store answers");
    assert!(fresh.id < newer.id, "no number is given twice");

    let bench = bench.reopen(open, first + 2).await;
    assert_eq!(bench.store.pass_secrets(), [secrets.clone(), vec![newer]].concat());
    for id in [secrets[0].id, newer.id] {
        let revoked = bench.store.revoke_pass_secret(id).await.expect("the store answers");
        assert_eq!(revoked, PassSecretRevocation::Revoked);
    }
    let left = bench.store.pass_secrets();
    assert!(left.iter().all(|secret| secret.id != newer.id && secret.id != secrets[0].id), "{left:?}");

    let bench = bench.reopen(open, first + 2).await;
    assert_eq!(bench.store.pass_secrets(), left, "a revoked secret does not come back");
    let newest = bench.store.rotate_pass_secret().await.expect("the store answers");
    assert!(left.iter().all(|secret| secret.id < newest.id) && newer.id < newest.id, "no number is given twice");
    bench.check("closed", &[(first + 2, Step::Poll(3), "3 waiting 0"), (first + 2, Step::Poll(2), "2 expired")]).await;
}

pub(super) async fn a_long_line_comes_back_exactly<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    const PEOPLE: u32 = 10_000;
    let now = 200 * HOUR;
    let room = name("long");
    let bench = Bench::new(open, now).await;
    bench.put(&room, paused()).await;
    for _ in 0..PEOPLE as usize / COMMANDS_AT_ONCE {
        all((0..COMMANDS_AT_ONCE).map(|_| {
            let (bench, room) = (bench.clone(), room.clone());
            async move { bench.join(&room, join(None, None)).await.expect("there is room") }
        }))
        .await;
    }
    all((1..=PEOPLE).step_by(10).map(|number| {
        let (bench, room) = (bench.clone(), room.clone());
        async move { answered(bench.store.leave(&room, &bench.ticket(&room, number)).await).expect("it exists") }
    }))
    .await;
    let bench = bench.reopen(open, now + 1).await;
    for number in (1..=PEOPLE).step_by(7) {
        let left = number % 10 == 1;
        let ahead = number - 1 - (number + 8) / 10;
        let wanted = if left { format!("{number} left") } else { format!("{number} waiting {ahead}") };
        assert_eq!(bench.apply(&room, &Step::Poll(number)).await.words, wanted);
    }
}

pub(super) async fn an_appearance_comes_back<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let bench = Bench::new(open, 0).await;
    let (dressed, bare) = (name("dressed-again"), name("bare"));
    bench.put(&bare, slots(1)).await;
    bench.put(&dressed, slots(1)).await;
    assert_eq!(answered(bench.store.put_appearance(&dressed, look("kept")).await), Ok(()));
    let bench = bench.reopen(open, 1_000).await;
    let shown = async |room| answered(bench.store.appearance(room).await).expect("it exists");
    assert_eq!(*shown(&dressed).await, look("kept"));
    assert_eq!(*shown(&bare).await, Appearance::default());
}
