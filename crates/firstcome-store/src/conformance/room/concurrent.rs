//! Many commands at once.

use super::*;
use crate::conformance::{COMMANDS_AT_ONCE, all};
use std::collections::BTreeSet;

pub(super) async fn numbers_drawn_at_once_have_no_gap<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("crowd");
    bench.put(&room, paused()).await;
    let told = all((0..COMMANDS_AT_ONCE).map(|person| {
        let (bench, room) = (bench.clone(), room.clone());
        let user = (person % 3 == 0).then(|| format!("user{person}"));
        async move { bench.join(&room, join(user.as_deref(), None)).await.expect("there is room").1 }
    }))
    .await;
    let numbers: BTreeSet<u32> = told.iter().map(|told| told.number.get()).collect();
    assert_eq!(Vec::from_iter(numbers), Vec::from_iter(1..=COMMANDS_AT_ONCE as u32));
    let tickets: BTreeSet<&str> = told.iter().map(|told| &*told.ticket).collect();
    assert_eq!(tickets.len(), COMMANDS_AT_ONCE);
    for told in told {
        let TicketState::Waiting { position, .. } = told.state else { panic!("{told:?}") };
        assert_eq!(position + 1, told.number.get(), "everybody before is ahead");
    }
}

pub(super) async fn one_user_at_once_has_one_place<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("same-user");
    bench.put(&room, paused()).await;
    let told = all((0..COMMANDS_AT_ONCE).map(|_| {
        let (bench, room) = (bench.clone(), room.clone());
        async move { bench.join(&room, join(Some("ann"), None)).await.expect("there is room") }
    }))
    .await;
    assert_eq!(told.iter().filter(|(joining, _)| *joining == Joining::New).count(), 1);
    assert!(told.iter().all(|(_, told)| told.number == of(1)));
    assert_eq!(answered(bench.store.room(&room).await).expect("it exists").view.waiting, 1);
}

pub(super) async fn repeats_at_once_have_one_effect<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("repeats");
    bench.put(&room, paused()).await;
    let told = all((0..900_u128).map(|person| {
        let (bench, room) = (bench.clone(), room.clone());
        async move { bench.join(&room, join(None, key(person % 90, 1))).await.expect("there is room") }
    }))
    .await;
    assert_eq!(told.iter().filter(|(joining, _)| *joining == Joining::New).count(), 90);
    let numbers: BTreeSet<u32> = told.iter().map(|(_, told)| told.number.get()).collect();
    assert_eq!(Vec::from_iter(numbers), Vec::from_iter(1..=90));
    for (person, (_, told)) in told.iter().enumerate() {
        let (_, again) = bench.join(&room, join(None, key(person as u128 % 90, 1))).await.expect("it is repeated");
        assert_eq!(again.number, told.number, "person {person}");
    }
}

pub(super) async fn slots_are_never_more_than_the_cap<S: RoomStore + 'static>(bench: Bench<S>) {
    const CAP: u32 = 7;
    let room = name("cap");
    bench.put(&room, slots(CAP)).await;
    for round in 0..20 {
        all((0..30).map(|person| {
            let (bench, room) = (bench.clone(), room.clone());
            async move {
                let (_, told) = bench.join(&room, join(None, None)).await.expect("there is room");
                bench.tick().await;
                let view = answered(bench.store.room(&room).await).expect("it exists").view;
                assert!(view.active <= CAP, "round {round}: {view:?}");
                let told = bench.poll(&room, told.number.get()).await.expect("it was told");
                if let TicketState::Admitted { slot, .. } = told.state {
                    let valid = answered(bench.store.check_pass(&room, told.number, slot.admission).await);
                    assert!(valid.is_ok_and(|check| check.is_some()), "a slot that was told has a pass");
                    if person % 2 == 0 {
                        answered(bench.store.release(&room, told.number, slot.admission).await).expect("it exists");
                    } else {
                        answered(bench.store.leave(&room, &told.ticket).await).expect("it exists");
                    }
                    let valid = answered(bench.store.check_pass(&room, told.number, slot.admission).await);
                    assert_eq!(valid, Ok(None), "what was given up opens nothing");
                }
            }
        }))
        .await;
    }
    let view = answered(bench.store.room(&room).await).expect("it exists").view;
    assert!(view.waiting < 600 && view.active <= CAP, "somebody was served: {view:?}");
}

pub(super) async fn positions_fall_while_people_leave<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("falling");
    bench.put(&room, RoomSettings { claim_window_ms: 60_000, ..slots(20) }).await;
    for _ in 0..200 {
        bench.join(&room, join(None, None)).await.expect("there is room");
    }
    all((1..=200_u32).map(|number| {
        let (bench, room) = (bench.clone(), room.clone());
        async move {
            if number % 3 == 0 {
                let ticket = bench.ticket(&room, number);
                answered(bench.store.leave(&room, &ticket).await).expect("it exists");
                return;
            }
            let mut shown = u32::MAX;
            for _ in 0..20 {
                let told = bench.poll(&room, number).await.expect("it was told");
                let TicketState::Waiting { position, .. } = told.state else { return };
                assert!(position <= shown, "number {number} rose from {shown} to {position}");
                shown = position;
                bench.tick().await;
            }
        }
    }))
    .await;
}
