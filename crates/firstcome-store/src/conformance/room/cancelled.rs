//! Callers that drop their futures at any await point: the command is done or not done, and a repeat shows which.

use super::*;
use crate::conformance::{Rng, all, give_up_after};
use std::collections::BTreeSet;

const USERS: u64 = 120;

pub(super) async fn joins_that_were_dropped_are_done_or_not_done<S: RoomStore + 'static>(bench: Bench<S>) {
    for seed in 0..8 {
        let room = name(&format!("dropped{seed}"));
        bench.put(&room, paused()).await;
        let mut rng = Rng::from_seed(seed);
        let dropped = all((0..USERS).map(|user| {
            let (bench, room, polls) = (bench.clone(), room.clone(), rng.below(6));
            let mine = join(Some(&format!("user{user}")), key(user.into(), 1));
            async move { give_up_after(polls, bench.join(&room, mine)).await }
        }))
        .await;
        let repeated = all((0..USERS).map(|user| {
            let (bench, room) = (bench.clone(), room.clone());
            let mine = join(Some(&format!("user{user}")), key(user.into(), 1));
            async move { bench.join(&room, mine).await.expect("there is room") }
        }))
        .await;
        for (user, (told, (joining, again))) in dropped.iter().zip(&repeated).enumerate() {
            let Some(told) = told else { continue };
            let (_, told) = told.as_ref().expect("there is room");
            assert_eq!(told.number, again.number, "seed {seed}: user{user} was told two numbers");
            assert_eq!(*joining, Joining::SameRequest, "seed {seed}: user{user} had two effects");
        }
        let numbers: BTreeSet<u32> = repeated.iter().map(|(_, told)| told.number.get()).collect();
        assert_eq!(Vec::from_iter(numbers), Vec::from_iter(1..=USERS as u32), "seed {seed}: no gap is left behind");

        // Half of the visitors leave, without waiting for the reply.
        let left = all((1..=USERS as u32).step_by(2).map(|number| {
            let (bench, room, polls) = (bench.clone(), room.clone(), rng.below(4));
            async move {
                let ticket = bench.ticket(&room, number);
                (number, give_up_after(polls, bench.store.leave(&room, &ticket)).await.is_some())
            }
        }))
        .await;
        for (number, told) in left {
            let words = bench.apply(&room, &Step::Poll(number)).await.words;
            let gone = words == format!("{number} left");
            assert!(gone || (!told && words.starts_with(&format!("{number} waiting "))), "seed {seed}: {words}");
        }
    }
}
