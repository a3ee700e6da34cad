//! Many commands at once. The tests check the replies, and then audit all auctions from outside.

use super::*;
use crate::conformance::{Rng, all};
use firstcome_core::auction::Extend;
use std::collections::{BTreeMap, BTreeSet};

fn people(count: usize) -> Vec<String> {
    (0..count).map(|person| format!("person{person}")).collect()
}

fn names(of: &[String]) -> Vec<&str> {
    of.iter().map(String::as_str).collect()
}

/// Checks that each number was given to one bid, and that every bid in a reply is in the list.
fn told_are_listed(told: &[PlacedBid], bids: &[Bid]) {
    let mut fences = BTreeMap::new();
    for placed in told {
        let listed = bids.get(placed.bid.number as usize - 1);
        assert_eq!(listed, Some(&placed.bid), "told, and not listed so");
        assert_eq!(fences.insert(placed.bid.number, placed.fence), None, "told to two: {placed:?}");
    }
    let fences: Vec<u64> = fences.into_values().collect();
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "fences rise with the bids: {fences:?}");
    assert_eq!(told.len(), bids.len(), "every bid was told to somebody");
}

pub(super) async fn one_auction_takes_bids_from_all<S: AuctionStore + 'static>(bench: Bench<S>) {
    let people = people(bench.sizes.tasks);
    bench.charge(&names(&people), 1_000_000).await;
    let extend = Extend { window_ms: 86_400_000, by_ms: 1_000, max_count: 50 };
    bench.put("hot", with_terms(bench.auction().await, |terms| terms.extend = Some(extend))).await;
    let told = all(people.iter().cloned().enumerate().map(|(person, name)| {
        let bench = bench.clone();
        async move {
            let mut rng = Rng::of(1, person as u32, 0);
            let mut placed = Vec::new();
            let mut price = 10;
            for _ in 0..bench.sizes.commands {
                match bench.bid("hot", &name, price, None).await {
                    Ok(effect) => {
                        price = effect.price() + 2;
                        placed.push(effect);
                    }
                    Err(Rejection::BidTooLow(minimum)) => {
                        assert!(price < minimum, "{price} is not below {minimum}");
                        price = minimum + rng.below(3);
                    }
                    Err(Rejection::AlreadyHighestBidder) => tokio::task::yield_now().await,
                    Err(other) => panic!("{name} was told {other:?}"),
                }
            }
            placed
        }
    }))
    .await;
    let told: Vec<PlacedBid> = told.into_iter().flatten().map(Effect::into_inner).collect();
    let bids = bench.all_bids("hot").await;
    assert!(bench.sizes.tasks <= bids.len(), "somebody bid: {}", bids.len());
    told_are_listed(&told, &bids);
    let standing = bench.standing("hot").await;
    assert_eq!(standing.extensions, standing.bids.min(50), "each of the first bids put the end off once");
    let mut members = names(&people);
    members.push("own");
    audit::audit(&bench, &["hot"], &members).await;
}

trait Price {
    fn price(&self) -> u64;
}

impl Price for Effect<PlacedBid> {
    fn price(&self) -> u64 {
        let (Self::New(placed) | Self::Again(placed)) = self;
        placed.bid.price.get()
    }
}

pub(super) async fn listings_share_wallets<S: AuctionStore + 'static>(bench: Bench<S>) {
    // A few wallets with few points, so that tasks often meet the same wallet.
    let people = people(bench.sizes.tasks / 4 + 2);
    bench.charge(&names(&people), 300).await;
    let listings: Vec<String> = (0..bench.sizes.listings).map(|number| format!("thing{number}")).collect();
    for (number, name) in listings.iter().enumerate() {
        let owner = member(&people[number % people.len()]);
        // Every third one has a fixed price.
        let settings = match number % 3 {
            0 => ListingSettings { price: amount(40), ..fixed_price() },
            _ => bench.auction().await,
        };
        bench.put(name, ListingSettings { owner, ..settings }).await;
    }
    all((0..bench.sizes.tasks).map(|task| {
        let (bench, people, listings) = (bench.clone(), people.clone(), listings.clone());
        async move {
            let mut rng = Rng::of(2, task as u32, 0);
            for _ in 0..bench.sizes.commands {
                let (who, name) = (rng.pick(&people).clone(), rng.pick(&listings).clone());
                match rng.below(20) {
                    0 => drop(bench.transfer(Transfer::Refund, &who, rng.range(1, 90), None).await),
                    1 => drop(bench.transfer(Transfer::Charge, &who, rng.range(1, 60), None).await),
                    2 | 3 => drop(bench.buy(&name, &who, None).await),
                    4 => assert!(bench.balance(&who).await.total() <= 1_000_000),
                    _ => {
                        let minimum = bench.standing(&name).await.minimum();
                        match bench.bid(&name, &who, minimum + rng.below(4), None).await {
                            Err(Rejection::InsufficientPoints(available)) => {
                                assert!(available < minimum + 4, "{available} is enough");
                            }
                            Err(Rejection::BidTooLow(higher)) => assert!(minimum < higher),
                            _ => {}
                        }
                    }
                }
            }
        }
    }))
    .await;
    let mut sum = 0;
    for name in &listings {
        sum += bench.standing(name).await.bids;
    }
    assert!(bench.sizes.listings as u32 / 2 < sum, "only {sum} bids were accepted");
    audit::audit(&bench, &names(&listings), &names(&people)).await;
}

pub(super) async fn of_equal_bids_at_once_one_is_accepted<S: AuctionStore + 'static>(bench: Bench<S>) {
    let people = people(bench.sizes.tasks);
    bench.charge(&names(&people), 1_000).await;
    bench.put("equal", bench.auction().await).await;
    for round in 0..bench.sizes.rounds as u64 {
        let price = 10 + 5 * round;
        let told = all(people.iter().cloned().map(|name| {
            let bench = bench.clone();
            async move { bench.bid("equal", &name, price, None).await }
        }))
        .await;
        let accepted = told.iter().filter(|told| told.is_ok()).count();
        assert_eq!(accepted, 1, "round {round}: {told:?}");
        for refused in told.iter().filter_map(|told| told.as_ref().err()) {
            // The earlier highest bidder may come first, and is then still the highest bidder.
            let known = [Rejection::BidTooLow(price + 1), Rejection::AlreadyHighestBidder];
            assert!(known.contains(refused), "round {round}: {refused:?}");
        }
        let mut held = 0;
        for name in &people {
            held += bench.balance(name).await.held();
        }
        assert_eq!(held, price, "round {round}: one bid is backed, once");
    }
    let mut members = names(&people);
    members.push("own");
    audit::audit(&bench, &["equal"], &members).await;
}

pub(super) async fn a_double_click_has_one_effect<S: AuctionStore + 'static>(bench: Bench<S>) {
    let people = people(6);
    bench.charge(&names(&people), 1_000).await;
    bench.put("clicked", bench.auction().await).await;
    for round in 0..bench.sizes.rounds as u64 {
        let who = &people[round as usize % people.len()];
        let told =
            all((0..bench.sizes.tasks).map(|_| {
                let (bench, who) = (bench.clone(), who.clone());
                async move {
                    bench.bid("clicked", &who, 10 + round, key(u128::from(round), 1)).await.expect("it is accepted")
                }
            }))
            .await;
        let new = told.iter().filter(|told| matches!(told, Effect::New(_))).count();
        assert_eq!(new, 1, "round {round}: one effect");
        let told: Vec<PlacedBid> = told.into_iter().map(Effect::into_inner).collect();
        assert!(told.iter().all(|placed| *placed == told[0]), "round {round}: all are told the same: {told:?}");
        assert_eq!(u64::from(told[0].bid.number), round + 1);

        let charged = all((0..bench.sizes.tasks).map(|_| {
            let (bench, who) = (bench.clone(), who.clone());
            let request = key(1_000 + u128::from(round), 1);
            async move { bench.transfer(Transfer::Charge, &who, 5, request).await.expect("there is room") }
        }))
        .await;
        let new: Vec<_> = charged.iter().filter(|told| matches!(told, Effect::New(_))).collect();
        assert_eq!(new.len(), 1, "round {round}: one charge");
        let balances: BTreeSet<u64> = charged.into_iter().map(|told| told.into_inner().total()).collect();
        assert_eq!(balances.len(), 1, "round {round}: all are told the same");
    }
    let mut members = names(&people);
    members.push("own");
    audit::audit(&bench, &["clicked"], &members).await;
}

pub(super) async fn a_purchase_at_once_has_one_buyer<S: AuctionStore + 'static>(bench: Bench<S>) {
    let people = people(16);
    bench.charge(&names(&people), 10_000).await;
    let listings: Vec<String> = (0..bench.sizes.rounds).map(|round| format!("last{round}")).collect();
    for (round, name) in listings.iter().enumerate() {
        bench.put(name, fixed_price()).await;
        // In every second round each buyer clicks with a key of its own.
        let told = all(people.iter().cloned().enumerate().map(|(person, who)| {
            let (bench, name) = (bench.clone(), name.clone());
            let request = if round % 2 == 0 { key(person as u128, 1) } else { None };
            async move { (who.clone(), bench.buy(&name, &who, request).await) }
        }))
        .await;
        let sold: Vec<_> = told.iter().filter_map(|(who, told)| Some((who, told.as_ref().ok()?))).collect();
        assert_eq!(sold.len(), 1, "{name}: {told:?}");
        let (Effect::New(sale), who) = (sold[0].1, sold[0].0) else { panic!("{told:?}") };
        assert_eq!(sale.buyer.as_str(), who);
        for (_, refused) in told.iter().filter(|(_, told)| told.is_err()) {
            assert_eq!(refused, &Err(Rejection::AlreadySold(sale.clone())), "{name}");
        }
    }
    let mut members = names(&people);
    members.push("own");
    audit::audit(&bench, &names(&listings), &members).await;
}

pub(super) async fn a_settlement_at_once_pays_once<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob"], 1_000).await;
    for name in ["plain", "keyed"] {
        bench.put(name, bench.short_auction(None).await).await;
        bench.check(name, &[(Step::Bid("ann", 20), "new 1 fence 2"), (Step::Bid("bob", 30), "new 2 fence 3")]).await;
    }
    bench.pass_after(bench.standing("keyed").await.effective_ends_at).await;
    for (name, request) in [("plain", None), ("keyed", key(9, 9))] {
        let told = all((0..bench.sizes.tasks).map(|task| {
            let bench = bench.clone();
            let (who, request) = if task % 4 == 3 { ("ann", None) } else { ("bob", request) };
            async move { (who, bench.buy(name, who, request).await) }
        }))
        .await;
        let new = told.iter().filter(|(_, told)| matches!(told, Ok(Effect::New(_)))).count();
        assert_eq!(new, 1, "{name}: {told:?}");
        for (who, told) in told {
            match (who, told, request) {
                ("ann", Err(Rejection::NotWinner), _)
                | ("bob", Ok(Effect::New(_)), _)
                | ("bob", Ok(Effect::Again(_)), Some(_))
                | ("bob", Err(Rejection::AlreadySold(_)), None) => {}
                other => panic!("{name}: {other:?}"),
            }
        }
    }
    assert_eq!(balance_words(bench.balance("bob").await), "940 of 940");
    audit::audit(&bench, &["plain", "keyed"], &["ann", "bob", "own"]).await;
}

pub(super) async fn one_balance_backs_no_more_than_it_has<S: AuctionStore + 'static>(bench: Bench<S>) {
    let mut listings = Vec::new();
    for round in 0..bench.sizes.rounds {
        let who = format!("ann{round}");
        bench.charge(&[&who], 100).await;
        let these: Vec<String> = (0..8).map(|number| format!("thing{round}-{number}")).collect();
        for (number, name) in these.iter().enumerate() {
            let settings = if number % 2 == 0 { bench.auction().await } else { fixed_price() };
            bench.put(name, ListingSettings { price: amount(30), ..settings }).await;
        }
        let told = all(these.iter().cloned().enumerate().map(|(number, name)| {
            let (bench, who) = (bench.clone(), who.clone());
            async move {
                match number % 2 {
                    0 => bench.bid(&name, &who, 30, None).await.map(drop),
                    _ => bench.buy(&name, &who, None).await.map(drop),
                }
            }
        }))
        .await;
        assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 3, "round {round}: {told:?}");
        for refused in told.iter().filter_map(|told| told.as_ref().err()) {
            assert_eq!(*refused, Rejection::InsufficientPoints(10), "round {round}");
        }
        assert_eq!(bench.balance(&who).await.available(), 10, "round {round}");
        listings.extend(these);
    }
    let mut members: Vec<String> = (0..bench.sizes.rounds).map(|round| format!("ann{round}")).collect();
    members.push("own".to_owned());
    audit::audit(&bench, &names(&listings), &names(&members)).await;
}

pub(super) async fn charges_and_refunds_at_once_are_exact<S: AuctionStore + 'static>(bench: Bench<S>) {
    for round in 0..bench.sizes.rounds as u64 {
        let who = format!("ann{round}");
        bench.charge(&[&who], 100).await;
        let told = all((0..30).map(|_| {
            let (bench, who) = (bench.clone(), who.clone());
            async move { bench.transfer(Transfer::Refund, &who, 10, None).await }
        }))
        .await;
        let left: BTreeSet<u64> =
            told.iter().filter_map(|told| Some((*told.as_ref().ok()?).into_inner().total())).collect();
        assert_eq!(
            Vec::from_iter(left),
            Vec::from_iter((0..100).step_by(10)),
            "round {round}: ten were paid, one after the other"
        );
        assert_eq!(told.iter().filter(|told| **told == Err(Rejection::InsufficientPoints(0))).count(), 20);
        let told =
            all((0..30).map(|_| {
                let (bench, who) = (bench.clone(), who.clone());
                async move {
                    bench.transfer(Transfer::Charge, &who, 1, None).await.expect("there is room").into_inner().total()
                }
            }))
            .await;
        let sums: BTreeSet<u64> = told.into_iter().collect();
        assert_eq!(Vec::from_iter(sums), Vec::from_iter(1..=30), "round {round}: none is lost");
        audit::audit(&bench, &[], &[&who]).await;
    }
}

pub(super) async fn members_who_buy_from_each_other_do_not_block<S: AuctionStore + 'static>(bench: Bench<S>) {
    let people = people(5);
    bench.charge(&names(&people), 100_000).await;
    let mut listings = Vec::new();
    for round in 0..bench.sizes.rounds {
        // Each member sells to the next one, so that the wallets form rings.
        let these: Vec<String> = (0..people.len()).map(|seller| format!("ring{round}-{seller}")).collect();
        for (seller, name) in these.iter().enumerate() {
            bench.put(name, ListingSettings { owner: member(&people[seller]), ..fixed_price() }).await;
        }
        let told = all(these.iter().cloned().enumerate().map(|(seller, name)| {
            let (bench, buyer) = (bench.clone(), people[(seller + 1 + round % 4) % people.len()].clone());
            async move { bench.buy(&name, &buyer, None).await }
        }))
        .await;
        assert!(told.iter().all(|told| matches!(told, Ok(Effect::New(_)))), "round {round}: {told:?}");
        listings.extend(these);
    }
    for name in &people {
        assert_eq!(bench.balance(name).await.total(), 100_000, "{name} sold as much as was bought");
    }
    audit::audit(&bench, &names(&listings), &names(&people)).await;
}

pub(super) async fn bids_until_the_end_are_all_in_time<S: AuctionStore + 'static>(bench: Bench<S>) {
    let people = people(bench.sizes.tasks.min(8));
    bench.charge(&names(&people), 1_000_000).await;
    bench.put("ending", bench.short_auction(Some(86_400_000)).await).await;
    let told = all(people.iter().cloned().map(|name| {
        let bench = bench.clone();
        async move {
            let (mut price, mut told) = (10, Vec::new());
            loop {
                match bench.bid("ending", &name, price, None).await {
                    Ok(placed) => told.push(placed.into_inner()),
                    Err(Rejection::BidTooLow(minimum)) => price = minimum,
                    Err(Rejection::NotInProgress) => return told,
                    Err(Rejection::AlreadyHighestBidder) => {
                        (bench.pass)(1).await;
                        tokio::task::yield_now().await;
                    }
                    Err(other) => panic!("{name} was told {other:?}"),
                }
            }
        }
    }))
    .await;
    let told: Vec<PlacedBid> = told.into_iter().flatten().collect();
    let bids = bench.all_bids("ending").await;
    told_are_listed(&told, &bids);
    bench.store.close_due().await.expect("the store answers");
    let winner = bids.last().expect("somebody bid").bidder.clone();
    // No bid was accepted after the refusal that ended the auction.
    let settled = bench.buy("ending", winner.as_str(), None).await;
    assert!(matches!(settled, Ok(Effect::New(_))), "{settled:?}");
    let mut members = names(&people);
    members.push("own");
    audit::audit(&bench, &["ending"], &members).await;
}
