//! Servers that are killed while they commit.

use super::nodes::{check_bids, check_records};
use super::{Base, bid, charge, endless, key, listing};
use crate::in_time;
use crate::server::wait_for;
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::{PlacedBid, Rejection};
use firstcome_store::edge::rng::Rng;
use firstcome_store::{AuctionStore, PlaceBid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What bidders were told.
#[derive(Default)]
struct BidderReplies {
    bids: AtomicUsize,
    without_answer: AtomicUsize,
    over: AtomicBool,
}

/// Bids until the end, and repeats each bid, with its key, until it has an answer.
async fn bid_on(auctions: Arc<SqlAuctions>, name: String, number: u64, told: Arc<BidderReplies>) -> Vec<PlacedBid> {
    let mut placed = Vec::new();
    let mut rng = Rng::from_seed(number);
    for count in 0_u128.. {
        if told.over.load(Ordering::Relaxed) {
            break;
        }
        let Ok(Ok(view)) = auctions.listing(&listing("lamp")).await else { continue };
        let price = view.standing.minimum() + rng.below(3);
        let asked = PlaceBid { request: key(u128::from(number) << 64 | count), ..bid(&name, price) };
        let answer = loop {
            match auctions.place_bid(&listing("lamp"), asked.clone()).await {
                Ok(answer) => break answer,
                Err(_) => told.without_answer.fetch_add(1, Ordering::Relaxed),
            };
        };
        match answer {
            Ok(effect) => {
                placed.push(effect.into_inner());
                told.bids.fetch_add(1, Ordering::Relaxed);
            }
            Err(Rejection::BidTooLow(_) | Rejection::AlreadyHighestBidder) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    placed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_outlives_a_killed_server() {
    for mut base in Base::both_durable().await {
        let auctions = Arc::new(SqlAuctions::open(&base.url).await.expect("it opens"));
        auctions.put_listing(&listing("lamp"), endless()).await.unwrap().unwrap();
        let names: Vec<String> = (0..8).map(|number| format!("bidder-{number}")).collect();
        for name in &names {
            charge(&auctions, name, 1_000_000).await;
        }
        let told = Arc::new(BidderReplies::default());
        let bidders: Vec<_> = names
            .iter()
            .zip(0..)
            .map(|(name, number)| tokio::spawn(bid_on(Arc::clone(&auctions), name.clone(), number, Arc::clone(&told))))
            .collect();
        for kill in 1..=4 {
            let wanted = told.bids.load(Ordering::Relaxed) + 40;
            wait_for("some bids", async || (wanted <= told.bids.load(Ordering::Relaxed)).then_some(())).await;
            base.server.kill();
            if kill == 4 {
                // Longer than auctions is patient, so that some outcomes stay unknown.
                let seen = told.without_answer.load(Ordering::Relaxed);
                wait_for("bids without an answer", async || {
                    (seen < told.without_answer.load(Ordering::Relaxed)).then_some(())
                })
                .await;
            }
            base.server.restart().await;
        }
        let wanted = told.bids.load(Ordering::Relaxed) + 40;
        wait_for("some bids", async || (wanted <= told.bids.load(Ordering::Relaxed)).then_some(())).await;
        told.over.store(true, Ordering::Relaxed);
        let mut placed = Vec::new();
        for bidder in bidders {
            placed.extend(in_time(bidder).await.unwrap());
        }
        check_bids(&auctions, "lamp", placed, &names).await;
        for name in &names {
            assert_eq!(check_records(&auctions, name).await, 1_000_000);
        }
    }
}
