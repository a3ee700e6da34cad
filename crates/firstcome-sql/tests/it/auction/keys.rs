//! How long the keys of requests are remembered.

use super::{Base, amount, balance, key, member};
use firstcome_sql::SqlAuctions;
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::limits::POINTS_KEY_MS;
use firstcome_store::{AuctionStore, MovePoints, Transfer};

/// Charges 5 points under one and the same key, and says whether that was done anew.
async fn is_new(auctions: &SqlAuctions) -> bool {
    let movement = MovePoints { transfer: Transfer::Charge, amount: amount(5), request: key(7) };
    let charged = auctions.move_points(&member("ann"), movement).await.unwrap().unwrap();
    matches!(charged, Effect::New(_))
}

#[tokio::test]
async fn a_key_of_points_is_remembered_for_thirty_days_and_then_as_good_as_new() {
    for base in Base::both().await {
        let auctions = base.open().await;
        assert!(is_new(&auctions).await);
        let lifetime_us = POINTS_KEY_MS as i64 * 1_000;
        assert_eq!(lifetime_us, 30 * 24 * 3_600 * 1_000_000);
        let make_older = async |by_us: i64| base.say(&format!("UPDATE firstcome_request SET at=at-{by_us}")).await;
        make_older(lifetime_us - 60_000_000).await;
        assert!(!is_new(&auctions).await, "a minute is left");
        make_older(60_000_000).await;
        assert!(is_new(&auctions).await, "its time is over");
        assert_eq!(balance(&auctions, "ann").await, (10, 10));
        assert!(!is_new(&auctions).await, "it counts from the later charge");
        assert_eq!(base.number("SELECT count(*) FROM firstcome_request").await, 1, "the earlier one is forgotten");
    }
}
