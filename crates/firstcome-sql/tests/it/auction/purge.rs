//! Keys of requests go once they are older than they stay.

use super::{Base, amount, bid, endless, key, listing, member};
use firstcome_sql::SqlAuctions;
use firstcome_store::purge::{ClockCheck, PurgeMode, PurgeRejection, PurgeRequest, PurgeStore, Purged, Retention};
use firstcome_store::{AuctionStore, MovePoints, PlaceBid, Transfer};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

async fn purge(auctions: &SqlAuctions, days: u32) -> u64 {
    let request = PurgeRequest::new(Retention { requests: Some(DAY * days), ..Retention::FOREVER });
    let counted = auctions.purge(PurgeRequest { mode: PurgeMode::Count, ..request }).await.unwrap().unwrap();
    let purged = auctions.purge(request).await.unwrap().unwrap();
    assert_eq!(counted, purged);
    assert_eq!(purged, Purged { requests: purged.requests, ..Purged::default() });
    purged.requests
}

#[tokio::test]
async fn keys_of_bids_and_points_go_and_nothing_else() {
    for base in Base::both().await {
        let auctions = base.open().await;
        let charge = |request| MovePoints { transfer: Transfer::Charge, amount: amount(100), request: key(request) };
        for request in [1, 2] {
            auctions.move_points(&member("ann"), charge(request)).await.unwrap().unwrap();
        }
        let make_older =
            async |days: i64| base.say(&format!("UPDATE firstcome_request SET at=at-{}", days * 86_400_000_000)).await;
        assert_eq!(purge(&auctions, 1).await, 0, "they are new");
        make_older(2).await;
        assert_eq!(purge(&auctions, 1).await, 0, "keys of points stay thirty days");
        make_older(29).await;
        auctions.move_points(&member("ann"), charge(3)).await.unwrap().unwrap();
        auctions.put_listing(&listing("lamp"), endless()).await.unwrap().unwrap();
        let keyed = PlaceBid { request: key(4), ..bid("ann", 10) };
        auctions.place_bid(&listing("lamp"), keyed).await.unwrap().unwrap();
        assert_eq!(purge(&auctions, 1).await, 2);
        make_older(2).await;
        assert_eq!(purge(&auctions, 1).await, 1, "that of the bid");
        assert_eq!(base.number("SELECT COUNT(*) FROM firstcome_request").await, 1);
        assert_eq!(base.number("SELECT COUNT(*) FROM firstcome_bid").await, 1);
        let checks = firstcome_sql::verify_auctions(&base.url).await.unwrap();
        assert_eq!(checks.iter().map(|check| check.breaches).sum::<u64>(), 0);
    }
}

/// Nothing says when the last purge was, so a year without a bid looks like a wrong clock. Without keys that is all the same.
#[tokio::test]
async fn a_clock_a_year_ahead_removes_no_key_and_is_no_refusal_without_keys() {
    for base in Base::both().await {
        let auctions = base.open().await;
        let movement = MovePoints { transfer: Transfer::Charge, amount: amount(100), request: key(1) };
        auctions.move_points(&member("ann"), movement).await.unwrap().unwrap();
        for table in ["firstcome_request SET at=at", "firstcome_member SET last_at=last_at"] {
            base.say(&format!("UPDATE {table}-{}", 400 * 86_400_000_000_i64)).await;
        }
        let request = PurgeRequest::new(Retention { requests: Some(DAY), ..Retention::FOREVER });
        let refused = auctions.purge(request).await.unwrap();
        assert!(matches!(refused, Err(PurgeRejection::ClockAhead(_))), "{refused:?}");
        assert_eq!(base.number("SELECT COUNT(*) FROM firstcome_request").await, 1);
        let trusted = PurgeRequest { clock: ClockCheck::Skip, ..request };
        assert_eq!(auctions.purge(trusted).await.unwrap().unwrap().requests, 1);
        assert_eq!(auctions.purge(request).await.unwrap(), Ok(Purged::default()));
    }
}
