//! Too many at once.

use super::conflicts::{set_up, wait_for_waiting};
use super::{Base, balance, bid, charge, endless, listing, options};
use crate::in_time;
use crate::server::wait_for;
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::Rejection;
use firstcome_store::{AuctionStore, FaultKind, StoreError};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn a_full_queue_is_told_at_once() {
    for base in Base::both().await {
        let auctions = Arc::new(base.open().await);
        charge(&auctions, "ann", 1_000).await;
        auctions.put_listing(&listing("lamp"), endless()).await.unwrap().unwrap();
        let mut foreign = base.connect().await;
        foreign.say("BEGIN; SELECT id FROM firstcome_listing WHERE name='lamp' FOR UPDATE").await.unwrap();
        let place = |_| {
            let auctions = Arc::clone(&auctions);
            tokio::spawn(async move { auctions.place_bid(&listing("lamp"), bid("ann", 5)).await })
        };
        let mut tasks = vec![place(0)];
        // It is under way, and waits for the row.
        wait_for_waiting(&base, 1).await;
        tasks.extend((0..6_000).map(place));
        let full = |task: &tokio::task::JoinHandle<_>| task.is_finished();
        wait_for("those who do not fit", async || {
            (1_600 < tasks.iter().filter(|task| full(task)).count()).then_some(())
        })
        .await;
        charge(&auctions, "bob", 1).await;
        foreign.say("COMMIT").await.unwrap();
        let mut told = (0, 0, 0);
        for task in tasks {
            match in_time(task).await.unwrap() {
                Ok(Ok(_)) => told.0 += 1,
                Ok(Err(Rejection::AlreadyHighestBidder)) => told.1 += 1,
                Err(StoreError::Busy { .. }) => told.2 += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told.0, 1);
        assert_eq!(told.0 + told.1, 4_096, "{told:?}: those of the batch that waits for the row count");
    }
}

#[tokio::test]
async fn a_writer_who_finds_all_connections_in_use_is_told_overloaded_and_a_reader_waits() {
    for mut base in Base::both().await {
        let mut few = options();
        few.connections.connections_max = 2;
        few.connections.connect_timeout = Duration::from_millis(300);
        let auctions = Arc::new(SqlAuctions::open_with(&base.url, few).await.expect("it opens"));
        for name in ["lamp", "vase"] {
            auctions.put_listing(&listing(name), endless()).await.unwrap().unwrap();
        }
        let mut foreign = base.connect().await;
        foreign.say("BEGIN; SELECT id FROM firstcome_listing FOR UPDATE").await.unwrap();
        let bids = ["lamp", "vase"].map(|name| {
            let auctions = Arc::clone(&auctions);
            tokio::spawn(async move { auctions.place_bid(&listing(name), bid("ann", 5)).await })
        });
        wait_for_waiting(&base, 2).await;
        let moved = in_time(super::try_charge(&auctions, "ann", 5)).await;
        assert!(matches!(moved, Err(StoreError::Busy { .. })), "{moved:?}");
        let read = {
            let auctions = Arc::clone(&auctions);
            tokio::spawn(async move { auctions.balance(&super::member("ann")).await })
        };
        foreign.say("COMMIT").await.unwrap();
        for bid in bids {
            assert_eq!(in_time(bid).await.unwrap().unwrap(), Err(Rejection::InsufficientPoints(0)));
        }
        in_time(read).await.unwrap().expect("a connection was free again");
        base.server.kill();
        let gone = async || match super::try_charge(&auctions, "ann", 5).await {
            Err(StoreError::Faulted(fault)) => Some(fault.kind),
            _ => None,
        };
        assert_eq!(wait_for("the server to be missed", gone).await, FaultKind::Unreachable);
    }
}

/// How often MariaDB was told to make durable what was read.
async fn flushed(base: &Base) -> i64 {
    base.number("SELECT flushed FROM firstcome_flush").await
}

#[tokio::test]
async fn those_who_read_at_the_same_time_share_a_flush_that_began_after_all_of_them() {
    for base in Base::both().await.iter().filter(|base| !base.is_postgres()) {
        let mut patient = options();
        patient.patience = Duration::from_secs(60);
        patient.connections.answer_timeout = Duration::from_secs(60);
        let auctions = Arc::new(SqlAuctions::open_with(&base.url, patient).await.expect("it opens"));
        set_up(&auctions).await;
        let mut foreign = base.connect().await;
        foreign.say("BEGIN; SELECT id FROM firstcome_flush FOR UPDATE").await.unwrap();
        let before = flushed(base).await;
        let read = |count: usize| -> Vec<_> {
            let one = |_| {
                let auctions = Arc::clone(&auctions);
                tokio::spawn(async move { balance(&auctions, "ann").await })
            };
            (0..count).map(one).collect()
        };
        let mut reads = read(1);
        wait_for_waiting(base, 1).await;
        // A flush is under way: it tells nothing of what is read from now on.
        reads.extend(read(200));
        let questions = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                         WHERE variable_name='Com_select'";
        let asked = base.number(questions).await;
        let all_have_read = async || (asked + 200 <= base.number(questions).await).then_some(());
        in_time(wait_for("all to have read", all_have_read)).await;
        assert!(reads.iter().all(|read| !read.is_finished()), "nothing is told before it is durable");
        foreign.say("COMMIT").await.unwrap();
        for read in reads {
            assert_eq!(in_time(read).await.unwrap(), (90, 100));
        }
        let flushes = flushed(base).await - before;
        // Auctions looks for auctions that are due, too: about once a second.
        assert!((2..=40).contains(&flushes), "{flushes} flushes for 201 reads");
    }
}
