//! Callers that drop their futures at any await point: the command is done or not done, and a repeat shows which.

use super::*;
use crate::conformance::{Rng, all, give_up_after};

pub(super) async fn commands_that_were_dropped_are_done_or_not_done<S: AuctionStore + 'static>(bench: Bench<S>) {
    let people: Vec<String> = (0..bench.sizes.tasks).map(|person| format!("person{person}")).collect();
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    bench.charge(&names, 100_000).await;
    let mut listings = Vec::new();
    for seed in 0..bench.sizes.rounds as u64 {
        let (auction, thing) = (format!("auction{seed}"), format!("thing{seed}"));
        bench.put(&auction, bench.auction().await).await;
        bench.put(&thing, fixed_price()).await;
        let mut rng = Rng::from_seed(seed);
        let dropped = all(people.iter().cloned().enumerate().map(|(person, name)| {
            let (bench, auction, thing) = (bench.clone(), auction.clone(), thing.clone());
            let polls = [rng.below(6), rng.below(6), rng.below(6)];
            let request = key(u128::from(seed) << 32 | person as u128, 1);
            async move {
                let bid = give_up_after(polls[0], bench.bid(&auction, &name, 10 + person as u64, request)).await;
                let sale = give_up_after(polls[1], bench.buy(&thing, &name, request)).await;
                let request = request.map(|it| RequestId { key: it.key | 1 << 64, ..it });
                let charge = bench.transfer(Transfer::Charge, &name, 7, request);
                (bid, sale, give_up_after(polls[2], charge).await)
            }
        }))
        .await;
        for (person, (bid, sale, charge)) in dropped.into_iter().enumerate() {
            let name = &people[person];
            let request = key(u128::from(seed) << 32 | person as u128, 1);
            let again = bench.bid(&auction, name, 10 + person as u64, request).await;
            match (bid, again) {
                (Some(Ok(told)), Ok(Effect::Again(again))) => assert_eq!(told.into_inner(), again, "seed {seed}"),
                (Some(Ok(told)), again) => panic!("seed {seed}: {name} was told {told:?} and {again:?}"),
                // Either the bid was not accepted at first, and may be now; or it was accepted, and its caller did not
                // learn it.
                (Some(Err(_)), Ok(Effect::Again(again))) => panic!("seed {seed}: {name} was refused and has {again:?}"),
                (Some(Err(_)) | None, _) => {}
            }
            let again = bench.buy(&thing, name, request).await;
            match (sale, again) {
                (Some(Ok(told)), Ok(Effect::Again(again))) => assert_eq!(told.into_inner(), again, "seed {seed}"),
                (Some(Ok(told)), again) => panic!("seed {seed}: {name} was told {told:?} and {again:?}"),
                (Some(Err(refused)), again) => assert_eq!(again, Err(refused), "seed {seed}: it was sold then"),
                (None, _) => {}
            }
            let request = request.map(|it| RequestId { key: it.key | 1 << 64, ..it });
            let again = bench.transfer(Transfer::Charge, name, 7, request).await.expect("there is room");
            if let Some(told) = charge {
                assert_eq!(Effect::Again(told.expect("there is room").into_inner()), again, "seed {seed}");
            }
            let charges = bench.all_records(name).await;
            let charges = charges.iter().filter(|record| record.amount == amount(7)).count() as u64;
            assert_eq!(charges, seed + 1, "seed {seed}: {name} was charged once a round");
        }
        listings.extend([auction, thing]);
    }
    let listings: Vec<&str> = listings.iter().map(String::as_str).collect();
    let mut members = names;
    members.push("own");
    audit::audit(&bench, &listings, &members).await;
}
