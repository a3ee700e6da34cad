//! Random steps: the store must reply exactly as the rules of `firstcome-core`.
//!
//! Each sequence has its own bucket, so that all sequences run at once, each with its own oracle.

use super::rows::names_of;
use super::*;
use crate::conformance::{Rng, all};

const SEQUENCES: u16 = 48;
const STEPS: u64 = 80;
const CLIENTS: u64 = 3;

pub(super) async fn random_steps_are_answered_as_by_the_rules<S: LockStore>(bench: Bench<S>) {
    let inboxes: Vec<Inbox> = (0..CLIENTS).map(|client| bench.attach(client)).collect();
    all((0..SEQUENCES).map(|sequence| {
        let bench = bench.clone();
        async move { play(&bench, sequence).await }
    }))
    .await;
    let oracle = bench.oracle.lock();
    for (client, inbox) in (0..).zip(&inboxes) {
        for push in inbox.pushes() {
            assert_eq!(push.grant.request.client, ClientId(client), "{push:?} came to somebody else");
            assert!(oracle.pushes.contains(&push), "{push:?} tells of what never was");
        }
    }
}

async fn play<S: LockStore>(bench: &Bench<S>, sequence: u16) {
    let mut rng = Rng::from_seed(u64::from(sequence) + 1);
    let names = names_of(bucket_index(sequence * 5), 2);
    // The last instant and place, near which new ones are chosen.
    let (mut now_us, mut place) = (0, 0);
    for _ in 0..STEPS {
        match rng.below(24) {
            0 => bench.pass(1_000 + rng.below(1_500)).await,
            1..=6 => bench.pass(rng.below(150)).await,
            _ => {}
        }
        let step = draw(&mut rng, &names, now_us, place);
        let answer = bench.take(&step).await;
        now_us = answer.now_us;
        if let LockAnswer::Acquired(Acquired::Queued { number, .. }) = answer.said {
            place = number;
        }
        if rng.once_in(8) {
            bench.view(&names[0]).await;
        }
    }
}

fn draw(rng: &mut Rng, names: &[LockName], now_us: u64, place: u64) -> Step {
    let (client, at) = (rng.below(CLIENTS), rng.below(names.len() as u64));
    let name = names[at as usize].clone();
    // Use few numbers, so that requests meet their own repeats. No number belongs to two locks.
    let number = rng.below(5) * 2 + at;
    let lease_ms = [100, 150, 400, 1_900, 2_500][rng.below(5) as usize];
    match rng.below(10) {
        0..=4 => {
            let wait = match rng.below(6) {
                0 => Wait::No,
                1 => Wait::Again([place, now_us, now_us + 1, 1, place + rng.below(3)][rng.below(5) as usize].max(1)),
                _ => Wait::Yes,
            };
            let few = 1 + rng.below(3) as u32;
            let mode = if rng.once_in(2) { Mode::Shared { permits: few } } else { Mode::Exclusive { passes: few } };
            let waiter = Waiter { lease_ms, mode, ..waiter(client, number) };
            Step::Acquire { name, waiter, wait }
        }
        5 | 6 => {
            let copies = if rng.once_in(12) { Copies::Several } else { Copies::One };
            Step::Release { name, request: request(client, number), copies }
        }
        7 => {
            let renewal =
                |name: &LockName, number| Renewal { name: name.clone(), request: request(client, number), lease_ms };
            let renewals = names.iter().zip(0..).map(|(name, at)| renewal(name, number / 2 * 2 + at)).collect();
            Step::Renew { bucket: bucket_of(&name), renewals }
        }
        _ => Step::Beat { bucket: bucket_of(&name), client: ClientId(client), names: names.to_vec() },
    }
}
