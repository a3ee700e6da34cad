//! Deliberate bugs of stores on SQL: each does the damage that the other tests look for. A bug is planted in one thread, so
//! these tests have no other.

use super::conflicts::{bid_that_gets_the_lock_too_late, wait_for_waiting};
use super::nodes::closings_by_two;
use super::{Base, balance, bid, charge, endless, listing};
use crate::in_time;
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::planted::{Bug, plant};
use firstcome_store::edge::Stopwatch;
use firstcome_store::{AuctionStore, FaultKind, StoreError};
use std::time::Duration;

/// How long two nodes may take to come together once. A busy machine lets them come one after the other for a while.
const TWICE_WITHIN: Duration = Duration::from_secs(180);

/// Forgets the bug at the end, however the test ends: threads are used again.
struct Planted;

impl Planted {
    fn new(bug: Bug) -> Self {
        plant(Some(bug));
        Self
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        plant(None);
    }
}

#[tokio::test]
async fn judged_before_the_lock_a_bid_counts_after_the_end() {
    let _planted = Planted::new(Bug::JudgedBeforeLock);
    for base in Base::both().await {
        let answer = in_time(bid_that_gets_the_lock_too_late(&base)).await;
        assert!(matches!(answer, Ok(Ok(_))), "{answer:?}");
    }
}

/// How often five new auctions were closed by two nodes, both of which look for what is due.
async fn closings_of_five(nodes: &[SqlAuctions; 2], round: u32) -> u64 {
    match try_closings_of_five(nodes, round).await {
        Ok(closed) => closed,
        // One has written over what was acknowledged to the other, which sees that before anything else.
        Err(StoreError::Faulted(fault)) if fault.kind == FaultKind::WentBack => 6,
        Err(error) => panic!("{error:?}"),
    }
}

async fn try_closings_of_five(nodes: &[SqlAuctions; 2], round: u32) -> Result<u64, StoreError> {
    let closed = || nodes[0].closings().closed + nodes[1].closings().closed;
    let before = closed();
    nodes[0].put_listing(&listing("clock"), endless()).await?.unwrap();
    let now = nodes[0].listing(&listing("clock")).await?.unwrap().now;
    let settings = ListingSettings::auction(super::member("own"), super::amount(1), now.plus_ms(300));
    let settings = ListingSettings { starts_at: Some(now), ..settings };
    for number in 0..5 {
        let name = listing(&format!("auction-{round}-{number}"));
        nodes[0].put_listing(&name, settings.clone()).await?.unwrap();
    }
    let closings = async || {
        let (one, two) = tokio::join!(nodes[0].close_due(), nodes[1].close_due());
        if let Err(error) = one.and(two) {
            return Some(Err(error));
        }
        let closed = closed() - before;
        (5 <= closed).then_some(Ok(closed))
    };
    crate::server::wait_for("closings", closings).await
}

#[tokio::test]
async fn unlocked_before_the_commit_an_auction_is_closed_twice() {
    let _planted = Planted::new(Bug::UnlockedBeforeCommit);
    for base in Base::both().await {
        let nodes = [base.open().await, base.open().await];
        let (mut rounds, began) = (0, Stopwatch::start());
        // Both must come between unlocking and commit; a busy machine may let them come one after the other.
        while closings_of_five(&nodes, rounds).await == 5 {
            rounds += 1;
            assert!(began.elapsed() < TWICE_WITHIN, "never twice in {rounds} rounds");
        }
    }
    plant(None);
    for base in Base::both().await {
        assert_eq!(in_time(closings_by_two(&base, 5)).await.0, 5);
    }
}

/// Two batches over the same wallets, named in opposite orders, while another caller holds the wallet in the middle.
async fn repeated_over_crossed_wallets(base: &Base) -> u64 {
    let auctions = base.open().await;
    for name in ["ann", "mia", "zoe"] {
        charge(&auctions, name, 100).await;
    }
    for name in ["lamp", "vase"] {
        auctions.put_listing(&listing(name), endless()).await.unwrap().unwrap();
    }
    let mut foreign = base.connect().await;
    foreign.say("BEGIN; SELECT id FROM firstcome_member WHERE name='mia' FOR UPDATE").await.unwrap();
    let place = async |name: &str, who: [&str; 3]| {
        let name = listing(name);
        // All three wait before anybody is served: they go through in one batch.
        let (one, two, three) = tokio::join!(
            auctions.place_bid(&name, bid(who[0], 1)),
            auctions.place_bid(&name, bid(who[1], 2)),
            auctions.place_bid(&name, bid(who[2], 3)),
        );
        assert!([&one, &two, &three].iter().all(|answer| matches!(answer, Ok(Ok(_)))), "{one:?} {two:?} {three:?}");
    };
    let let_go = async {
        wait_for_waiting(base, 2).await;
        foreign.say("COMMIT").await.unwrap();
    };
    tokio::join!(place("lamp", ["ann", "mia", "zoe"]), place("vase", ["zoe", "mia", "ann"]), let_go);
    assert_eq!(balance(&auctions, "zoe").await, (97, 100));
    auctions.repeated()
}

#[tokio::test]
async fn wallets_locked_in_any_order_lead_to_deadlocks() {
    for base in Base::both().await {
        assert_eq!(in_time(repeated_over_crossed_wallets(&base)).await, 0);
    }
    let _planted = Planted::new(Bug::WalletsUnordered);
    for base in Base::both().await {
        assert!(0 < in_time(repeated_over_crossed_wallets(&base)).await, "no deadlock");
    }
}

#[tokio::test]
async fn folded_names_make_two_members_one() {
    for planted in [false, true] {
        let _planted = planted.then(|| Planted::new(Bug::NamesFolded));
        for base in Base::both().await {
            let auctions = base.open().await;
            charge(&auctions, "ann", 5).await;
            let told: Result<_, StoreError> = auctions.balance(&super::member("Ann")).await;
            assert_eq!(told.unwrap().total(), if planted { 5 } else { 0 });
        }
    }
}
