//! Databases that go back while auctions runs: what was told is gone, and auctions stands still for it.

use super::{Base, amount, balance, bid, charge, endless, key, listing, member};
use crate::in_time;
use crate::server::wait_for;
use firstcome_sql::{SqlAuctions, accept_auction_loss};
use firstcome_store::core::coupon::Effect;
use firstcome_store::{AuctionStore, FaultKind, MovePoints, StoreError, Transfer};

fn faults(auctions: &SqlAuctions) -> Vec<(String, FaultKind)> {
    auctions.faults().open().into_iter().map(|open| (open.object, open.fault.kind)).collect()
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "an answer as it comes")]
fn is_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let Err(StoreError::Faulted(fault)) = &answer else { panic!("{answer:?}") };
    assert_eq!(fault.kind, FaultKind::WentBack, "{fault}");
}

/// Charges 10 points with a key.
fn with_key(number: u128) -> MovePoints {
    MovePoints { transfer: Transfer::Charge, amount: amount(10), request: key(number) }
}

/// Asks until the server can be reached again.
async fn answered<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    wait_for(what, async || match ask().await {
        Err(StoreError::Faulted(fault)) if fault.kind == FaultKind::Unreachable => None,
        Err(StoreError::Unknown | StoreError::Busy { .. }) => None,
        answer => Some(answer),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auction_store_stands_still_on_a_database_that_went_back_until_an_operator_accepts_it() {
    for mut base in Base::both_durable().await {
        in_time(async {
            let auctions = base.open().await;
            charge(&auctions, "ann", 100).await;
            charge(&auctions, "bob", 100).await;
            auctions.put_listing(&listing("lamp"), endless()).await.unwrap().unwrap();
            let copy = base.server.keep_copy().await;
            let charged =
                answered("the server", async || auctions.move_points(&member("ann"), with_key(7)).await).await;
            assert!(matches!(charged, Ok(Ok(Effect::New(_)))), "{charged:?}");
            auctions.place_bid(&listing("lamp"), bid("bob", 50)).await.unwrap().expect("a bid");
            base.server.restore(&copy).await;

            // Before anything else is told: the key is free, and the bid is gone.
            is_refused(answered("a refusal", async || auctions.move_points(&member("ann"), with_key(7)).await).await);
            is_refused(auctions.place_bid(&listing("lamp"), bid("ann", 10)).await);
            is_refused(auctions.balance(&member("ann")).await);
            is_refused(auctions.listing(&listing("lamp")).await);
            assert_eq!(faults(&auctions), [("members and listings".to_owned(), FaultKind::WentBack)]);
            let detail = auctions.faults().open().remove(0).fault.detail.clone();
            for gone in ["member ann record 2", "member bob record 2"] {
                assert!(detail.contains(gone), "{detail}");
            }
            assert!(!detail.contains("record 1") && !detail.contains("lamp version 1"), "{detail}");

            let generation = accept_auction_loss(&base.url, super::options()).await.expect("it is accepted");
            wait_for("auctions", async || faults(&auctions).is_empty().then_some(())).await;
            assert_eq!(balance(&auctions, "ann").await, (100, 100));
            let charged = auctions.move_points(&member("ann"), with_key(7)).await;
            assert!(matches!(charged, Ok(Ok(Effect::New(_)))), "{charged:?}");
            auctions.place_bid(&listing("lamp"), bid("ann", 10)).await.unwrap().expect("a bid");
            assert!(generation < accept_auction_loss(&base.url, super::options()).await.expect("again"));
            assert_eq!(auctions.faults().raised(), 1);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auction_store_goes_on_when_what_was_gone_is_there_again() {
    for mut base in Base::both_durable().await {
        in_time(async {
            let auctions = base.open().await;
            let before = base.server.keep_copy().await;
            answered("the server", async || auctions.move_points(&member("ann"), with_key(1)).await)
                .await
                .unwrap()
                .unwrap();
            let after = base.server.keep_copy().await;
            base.server.restore(&before).await;
            // No call comes: it is noticed all the same.
            wait_for("the fault", async || (!faults(&auctions).is_empty()).then_some(())).await;
            base.server.restore(&after).await;
            wait_for("auctions", async || faults(&auctions).is_empty().then_some(())).await;
            let again = answered("the server", async || auctions.move_points(&member("ann"), with_key(1)).await).await;
            assert!(matches!(again, Ok(Ok(Effect::Again(_)))), "{again:?}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_kills_and_ended_sessions_raise_no_fault() {
    for mut base in Base::both_durable().await {
        in_time(async {
            let auctions = base.open().await;
            auctions.put_listing(&listing("lamp"), endless()).await.unwrap().unwrap();
            for round in 0..6_u128 {
                let charged = async || auctions.move_points(&member("ann"), with_key(round)).await;
                answered("the server", charged).await.unwrap().unwrap();
                match round % 3 {
                    0 => base.server.restart().await,
                    1 => drop(base.server.keep_copy().await),
                    _ if base.is_postgres() => {
                        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid<>pg_backend_pid()";
                        let _ = base.connect().await.say(end).await;
                    }
                    _ => {
                        base.server.kill();
                        base.server.restart().await;
                    }
                }
                assert_eq!(auctions.faults().raised(), 0, "round {round}");
            }
            answered("the server", async || auctions.balance(&member("ann")).await.map(Ok::<_, ()>))
                .await
                .unwrap()
                .unwrap();
            assert_eq!((balance(&auctions, "ann").await, auctions.faults().raised()), ((60, 60), 0));
        })
        .await;
    }
}
