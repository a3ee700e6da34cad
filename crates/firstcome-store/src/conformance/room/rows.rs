//! Commands one after the other, and the replies that the port requires.

use super::*;
use crate::embedded::journal::PassSecretRevocation;

pub(super) async fn an_unknown_room_is_refused_everywhere<S: RoomStore + 'static>(bench: Bench<S>) {
    for step in [
        Step::Close,
        Step::View,
        anybody(),
        user("ann"),
        Step::Poll(1),
        Step::Leave(1),
        Step::Renew(1, 1),
        Step::Release(1, 1),
        Step::Check(1, 1),
        Step::Admissions,
        Step::Report(OriginReport::Slow),
    ] {
        bench.check("nowhere", &[(0, step, "unknown_room")]).await;
    }
    assert_eq!(bench.store.pass_secrets(), [], "there is no secret before the first room");
}

pub(super) async fn joins_are_checked_in_the_documented_order<S: RoomStore + 'static>(bench: Bench<S>) {
    let one = RoomSettings { max_waiting: 1, ..paused() };
    let rows = [
        (0, Step::Put(one.clone()), "created"),
        (0, keyed(Some("ann"), 1, 10), "new 1 waiting 0"),
        // The line is full, and these checks come before that one.
        (0, keyed(Some("ann"), 1, 10), "again 1 waiting 0"),
        (0, keyed(Some("ann"), 1, 11), "idempotency_key_reused"),
        (0, keyed(Some("bob"), 1, 11), "idempotency_key_reused"),
        (0, keyed(Some("ann"), 2, 20), "same user 1 waiting 0"),
        (0, user("ann"), "same user 1 waiting 0"),
        (0, user("bob"), "room_full"),
        (0, anybody(), "room_full"),
        (0, Step::Close, "closed"),
        // No visitor has a place any more.
        (0, keyed(Some("ann"), 1, 11), "room_closed"),
        (0, user("ann"), "room_closed"),
        (0, anybody(), "room_closed"),
    ];
    bench.check("order", &rows).await;
}

pub(super) async fn numbers_are_drawn_in_order_and_a_repeat_draws_none<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(paused()), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (0, user("ann"), "new 2 waiting 1"),
        (1, user("ann"), "same user 2 waiting 1"),
        (1, keyed(None, 7, 1), "new 3 waiting 2"),
        (1, keyed(None, 7, 1), "again 3 waiting 2"),
        (2, anybody(), "new 4 waiting 3"),
        (2, Step::View, "paused 4 waiting 0 active serving 0"),
        (2, Step::Leave(2), "left"),
        // A ticket that ended keeps neither its user nor its key.
        (3, user("ann"), "new 5 waiting 3"),
        (3, Step::Leave(3), "left"),
        (3, keyed(None, 7, 2), "new 6 waiting 3"),
        (3, Step::Poll(2), "2 left"),
        (3, Step::Poll(6), "6 waiting 3"),
    ];
    bench.check("numbers", &rows).await;
}

pub(super) async fn tickets_that_are_none_are_refused<S: RoomStore + 'static>(bench: Bench<S>) {
    let (here, there) = (name("here"), name("there"));
    bench.put(&here, paused()).await;
    bench.put(&there, paused()).await;
    let mine = bench.join(&here, join(Some("ann"), None)).await.expect("there is room").1;
    bench.join(&there, join(Some("ann"), None)).await.expect("there is room");
    let flipped = |at: usize| -> String {
        let other = |(place, letter): (usize, char)| {
            if place != at {
                letter
            } else if letter == 'A' {
                'B'
            } else {
                'A'
            }
        };
        mine.ticket.chars().enumerate().map(other).collect()
    };
    let foreign = mine.ticket.to_string();
    let mut wrong: Vec<(&RoomName, String)> = (0..mine.ticket.len()).map(|at| (&here, flipped(at))).collect();
    wrong.extend([(&there, foreign), (&here, String::new()), (&here, "x".repeat(10_000)), (&here, "é".to_owned())]);
    for (room, ticket) in wrong {
        let poll = answered(bench.store.poll(room, &ticket).await);
        assert_eq!(poll.err(), Some(Rejection::UnknownTicket), "{ticket}");
        let leave = answered(bench.store.leave(room, &ticket).await);
        assert_eq!(leave.err(), Some(Rejection::UnknownTicket), "{ticket}");
        let renew = answered(bench.store.renew(room, &ticket, RenewalKey::new(1)).await);
        assert_eq!(renew.err(), Some(Rejection::UnknownTicket), "{ticket}");
    }
    bench.check("here", &[(0, Step::Poll(1), "1 waiting 0")]).await;
    bench.check("there", &[(0, Step::Poll(1), "1 waiting 0")]).await;
}

pub(super) async fn a_full_line_takes_nobody_until_somebody_goes<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(RoomSettings { max_waiting: 2, ..slots(1) }), "created"),
        // The first visitor goes straight to the slot.
        (0, anybody(), "new 1 waiting 0"),
        (0, anybody(), "new 2 waiting 0"),
        (0, anybody(), "new 3 waiting 1"),
        (0, anybody(), "room_full"),
        (0, Step::View, "open 2 waiting 1 active serving 1"),
        (0, Step::Leave(3), "left"),
        (0, anybody(), "new 4 waiting 1"),
        (0, Step::Leave(1), "left"),
        (0, anybody(), "new 5 waiting 1"),
        (0, anybody(), "room_full"),
    ];
    bench.check("full", &rows).await;
    for room in ["full"] {
        let refused = bench.join(&name(room), join(None, None)).await;
        assert!(matches!(refused, Err(Rejection::Full { retry_after_ms }) if 1_000 <= retry_after_ms), "{refused:?}");
    }
}

pub(super) async fn who_leaves_makes_room_and_is_not_counted<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(paused()), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (0, anybody(), "new 2 waiting 1"),
        (0, anybody(), "new 3 waiting 2"),
        (0, Step::Leave(2), "left"),
        (0, Step::Leave(2), "left"),
        (0, Step::Poll(2), "2 left"),
        (0, Step::Poll(3), "3 waiting 1"),
        (0, Step::Leave(1), "left"),
        (0, Step::Poll(3), "3 waiting 0"),
        (0, Step::View, "paused 1 waiting 0 active serving 0"),
        (0, Step::Put(slots(1)), "replaced"),
        (0, Step::Poll(3), "3 admitted 1@0 until 30000"),
        (0, anybody(), "new 4 waiting 0"),
        (0, Step::Admissions, "admitted 3@1"),
        (1, Step::Leave(3), "left"),
        (1, Step::Poll(3), "3 left"),
        (1, Step::Check(3, 1), "not valid"),
        // The next one has the slot, though the visitor has not taken it yet.
        (1, Step::Admissions, "admitted 4@2"),
        (1, Step::Poll(4), "4 admitted 2@1 until 30001"),
    ];
    bench.check("leave", &rows).await;
}

pub(super) async fn a_closed_room_is_void_and_opens_again_with_higher_numbers<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(slots(1)), "created"),
        (0, user("ann"), "new 1 waiting 0"),
        (0, user("bob"), "new 2 waiting 0"),
        (0, Step::Poll(1), "1 admitted 1@0 until 30000"),
        (1, Step::Close, "closed"),
        (1, Step::Close, "closed"),
        (1, Step::View, "closed 0 waiting 0 active serving 2"),
        (1, Step::Poll(1), "1 expired"),
        (1, Step::Poll(2), "2 expired"),
        (1, Step::Check(1, 1), "not valid"),
        (1, Step::Leave(2), "left"),
        (1, Step::Release(1, 1), "released"),
        (1, Step::Poll(2), "2 expired"),
        (2, Step::Put(slots(1)), "replaced"),
        (2, Step::View, "open 0 waiting 0 active serving 2"),
        (2, Step::Poll(2), "2 expired"),
        (2, user("bob"), "new 3 waiting 0"),
        (2, Step::Check(1, 1), "not valid"),
        (2, Step::Poll(3), "3 admitted 2@2 until 30002"),
    ];
    bench.check("closing", &rows).await;
}

pub(super) async fn rooms_do_not_touch_each_other<S: RoomStore + 'static>(bench: Bench<S>) {
    bench.check("one", &[(0, Step::Put(slots(1)), "created"), (0, user("ann"), "new 1 waiting 0")]).await;
    bench.check("two", &[(0, Step::Put(paused()), "created"), (0, user("ann"), "new 1 waiting 0")]).await;
    bench.check("two", &[(0, keyed(Some("bob"), 1, 1), "new 2 waiting 1")]).await;
    bench.check("one", &[(0, keyed(Some("bob"), 1, 2), "new 2 waiting 0"), (0, Step::Close, "closed")]).await;
    bench.check("two", &[(0, Step::Poll(1), "1 waiting 0"), (0, Step::Check(1, 1), "not valid")]).await;
}

pub(super) async fn settings_are_shown_as_they_were_put<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("shown");
    let full = RoomSettings {
        max_active: Some(7),
        max_waiting: 9,
        waiting_ttl_ms: 60_001,
        first_poll_ms: Some(60_000),
        active_ttl_ms: 60_002,
        claim_window_ms: 60_003,
        idle_ttl_ms: Some(60_004),
        opens_at: Some(at(5)),
        paused: true,
        message: Some("안녕 \"you\"".into()),
        target_url: Some("https://shop.example/?a=b".into()),
        ..RoomSettings::with_rate(3, 1_000)
    };
    for settings in [slots(1), full, RoomSettings::with_rate(5, 700)] {
        bench.put(&room, settings.clone()).await;
        let summary = answered(bench.store.room(&room).await).expect("it exists");
        assert_eq!((summary.settings, summary.as_of), (settings, at(0)));
    }
}

pub(super) async fn an_appearance_is_shown_as_it_was_put<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("dressed");
    let shown = async || answered(bench.store.appearance(&room).await);
    assert_eq!(shown().await, Err(Rejection::UnknownRoom));
    assert_eq!(answered(bench.store.put_appearance(&room, look("one")).await), Err(Rejection::UnknownRoom));
    bench.put(&room, slots(1)).await;
    assert_eq!(*shown().await.expect("the room exists"), Appearance::default());
    for wanted in [look("one"), look("two"), Appearance::default(), look("three")] {
        assert_eq!(answered(bench.store.put_appearance(&room, wanted.clone()).await), Ok(()));
        assert_eq!(*shown().await.expect("the room exists"), wanted);
    }
    bench.check("dressed", &[(0, Step::Close, "closed")]).await;
    assert_eq!(*shown().await.expect("the room exists"), look("three"), "it outlives the closing");
    bench.put(&name("other"), slots(1)).await;
    assert_eq!(*answered(bench.store.appearance(&name("other")).await).expect("it exists"), Appearance::default());
}

pub(super) async fn a_revision_replaces_only_what_it_names<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("revised");
    let revise = |count, replaces| {
        let (store, room) = (Arc::clone(&bench.store), room.clone());
        let revision = Revision { settings: slots(count), replaces: Some(slots(replaces)) };
        async move { answered(store.put_room(&room, revision).await) }
    };
    assert_eq!(revise(2, 1).await, Err(Rejection::UnknownRoom), "nothing is created");
    bench.put(&room, slots(1)).await;
    assert_eq!(revise(2, 1).await, Ok(Put::Replaced));
    assert_eq!(revise(3, 1).await, Err(Rejection::SettingsChanged));
    let in_force = async || answered(bench.store.room(&room).await).expect("it exists").settings;
    assert_eq!(in_force().await, slots(2));
    // Of several operators who read the same settings, only one replaces them.
    let at_once: Vec<_> = (10..18).map(|count| tokio::spawn(revise(count, 2))).collect();
    let mut replaced = Vec::new();
    for (count, told) in (10..).zip(at_once) {
        match told.await.expect("no task panics") {
            Ok(Put::Replaced) => replaced.push(slots(count)),
            told => assert_eq!(told, Err(Rejection::SettingsChanged)),
        }
    }
    assert_eq!(replaced, [in_force().await]);
}

pub(super) async fn secrets_are_kept_as_long_as_a_pass_may_live<S: RoomStore + 'static>(bench: Bench<S>) {
    const DAY_MS: i64 = 86_400_000;
    bench.put(&name("first"), slots(1)).await;
    bench.put(&name("second"), slots(1)).await;
    let first = bench.store.pass_secrets();
    assert_eq!(first.len(), 1, "the first room brings one");
    bench.set(10).await;
    let second = bench.store.rotate_pass_secret().await.expect("the store answers");
    assert_eq!(bench.store.pass_secrets(), [first[0], second]);
    assert!(first[0].id < second.id && first[0].bytes != second.bytes && second.created_at == at(10));
    // The first secret signed until the second came: its last pass ends one longest slot later.
    bench.set(10 + DAY_MS).await;
    let third = bench.store.rotate_pass_secret().await.expect("the store answers");
    assert_eq!(bench.store.pass_secrets(), [first[0], second, third]);
    bench.set(11 + DAY_MS).await;
    let fourth = bench.store.rotate_pass_secret().await.expect("the store answers");
    assert_eq!(bench.store.pass_secrets(), [second, third, fourth]);
}

pub(super) async fn a_revoked_secret_is_gone_and_another_one_signs<S: RoomStore + 'static>(bench: Bench<S>) {
    let revoke = async |id: u32| bench.store.revoke_pass_secret(id).await.expect("the store answers");
    assert_eq!(revoke(1).await, PassSecretRevocation::Unknown, "there is none before the first room");
    bench.put(&name("first"), slots(1)).await;
    let [first] = bench.store.pass_secrets()[..] else { panic!("the first room brings one") };
    let second = bench.store.rotate_pass_secret().await.expect("the store answers");
    let third = bench.store.rotate_pass_secret().await.expect("the store answers");
    // An older one: which one signs does not change.
    assert_eq!(revoke(second.id).await, PassSecretRevocation::Revoked);
    assert_eq!(bench.store.pass_secrets(), [first, third]);
    assert_eq!(revoke(second.id).await, PassSecretRevocation::GoneBefore);
    for never in [0, third.id + 1, u32::MAX] {
        assert_eq!(revoke(never).await, PassSecretRevocation::Unknown, "{never}");
    }
    assert_eq!(bench.store.pass_secrets(), [first, third]);
    // The one that signs: a new one comes in the same step, also if it is the only one.
    bench.set(10).await;
    assert_eq!(revoke(third.id).await, PassSecretRevocation::Revoked);
    let [kept, fourth] = bench.store.pass_secrets()[..] else { panic!("another one signs") };
    assert_eq!((kept, fourth.created_at), (first, at(10)));
    assert!(third.id < fourth.id && fourth.bytes != third.bytes, "no number and no secret is given twice");
    assert_eq!(revoke(first.id).await, PassSecretRevocation::Revoked);
    assert_eq!(revoke(fourth.id).await, PassSecretRevocation::Revoked);
    let [fifth] = bench.store.pass_secrets()[..] else { panic!("another one signs") };
    assert!(fourth.id < fifth.id && fifth.bytes != fourth.bytes);
    assert_eq!(revoke(fourth.id).await, PassSecretRevocation::GoneBefore);
}
