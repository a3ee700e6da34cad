//! The history of auctions played again from its rows: one by the rules is fine, and what was changed by hand is named.

use super::{Base, Foreign, amount, bid, buy, charge, endless, key, listing, member, options};
use crate::in_time;
use firstcome_sql::{SqlAuctions, SqlError, verify_auctions};
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::{AuctionStore, Check, PlaceBid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Auctions in which all kinds of records are but a capture: a running auction with three bids, and something that is sold.
async fn fill(url: &str) {
    let auctions = SqlAuctions::open_with(url, options()).await.expect("it opens");
    charge(&auctions, "ann", 1_000).await;
    charge(&auctions, "bob", 1_000).await;
    let (lamp, vase) = (listing("lamp"), listing("vase"));
    auctions.put_listing(&lamp, endless()).await.unwrap().unwrap();
    auctions.put_listing(&vase, ListingSettings::fixed_price(member("own"), amount(50))).await.unwrap().unwrap();
    for (number, (bidder, price)) in (1..).zip([("ann", 10), ("bob", 20), ("ann", 30)]) {
        let bid = PlaceBid { request: key(number), ..bid(bidder, price) };
        auctions.place_bid(&lamp, bid).await.unwrap().unwrap();
    }
    auctions.purchase(&vase, buy("bob")).await.unwrap().unwrap();
}

fn broken(checks: &[Check]) -> Vec<String> {
    let broken = checks.iter().filter(|check| 0 < check.breaches);
    broken.map(|check| format!("{}: {}", check.invariant, check.examples.join("; "))).collect()
}

/// What is done by hand, and what of it must be said.
const BY_HAND: [(&str, [&str; 2]); 14] = [
    ("UPDATE firstcome_member SET total=total+1 WHERE name='bob'", ["a balance is the sum", "member bob"]),
    ("UPDATE firstcome_member SET total=total+1 WHERE name='bob'", ["points are conserved", "2001 points"]),
    ("UPDATE firstcome_member SET held=held+1 WHERE name='ann'", ["what a member has held", "member ann: 31 held, 30"]),
    ("DELETE FROM firstcome_member WHERE name='bob'", ["a balance is the sum", "who does not exist"]),
    ("UPDATE firstcome_bid SET price=25 WHERE number=2", ["backed by a hold", "listing lamp, bid 2"]),
    ("UPDATE firstcome_bid SET price=9 WHERE number=2", ["bids rise", "listing lamp, bid 2"]),
    ("UPDATE firstcome_bid SET at=at-3600000000 WHERE number=1", ["within the period", "listing lamp, bid 1"]),
    ("DELETE FROM firstcome_bid WHERE number=2", ["exactly 1..count", "listing lamp, bid 3"]),
    (
        "DELETE FROM firstcome_record WHERE number=2 AND member=(SELECT id FROM firstcome_member WHERE name='ann')",
        ["records are a chain", "member ann, record 3"],
    ),
    (
        "INSERT INTO firstcome_record SELECT member,99,kind,amount,listing,bid,at,total,held,writer,chain FROM firstcome_record \
         WHERE kind=6",
        ["paid for once", "listing vase: paid"],
    ),
    (
        "UPDATE firstcome_listing SET phase=2,phase_at=last_at,buyer='bob' WHERE name='lamp'",
        ["paid for once", "listing lamp: paid"],
    ),
    ("UPDATE firstcome_listing SET highest_price=31 WHERE name='lamp'", ["a listing stands as", "listing lamp"]),
    (
        "UPDATE firstcome_listing SET owner_id=highest_id WHERE name='lamp'",
        ["a listing stands as", "listing lamp: its highest bid or its owner"],
    ),
    ("UPDATE firstcome_request SET number=2 WHERE kind=1 AND number=3", ["an idempotency key", "bid 2"]),
];

#[tokio::test]
async fn what_was_changed_by_hand_is_found_and_named() {
    for base in Base::both().await {
        for (number, (change, words)) in BY_HAND.iter().enumerate() {
            let url = base.fresh(number).await;
            fill(&url).await;
            let sound = verify_auctions(&url).await.expect("it can be read");
            assert_eq!((broken(&sound), sound.len()), (Vec::new(), 12));
            assert!(sound.iter().all(|check| 0 < check.checked), "everything was looked at: {sound:#?}");
            Foreign::at(&url).await.say(change).await.expect("it is done");
            let said = broken(&verify_auctions(&url).await.expect("it can be read"));
            let named = said.iter().any(|said| words.iter().all(|word| said.contains(word)));
            assert!(named, "{change}: {words:?} in {said:#?}");
        }
    }
}

/// In several pages: as many records as bids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_longer_than_a_page_is_read_to_its_end() {
    const COUNT: u64 = 9_000;
    for base in Base::both().await {
        let auctions = Arc::new(base.open().await);
        // As many at once as one batch takes.
        for _ in 0..COUNT / 250 {
            let one = || {
                let auctions = Arc::clone(&auctions);
                tokio::spawn(async move { charge(&auctions, "ann", 1).await })
            };
            let charges: Vec<_> = (0..250).map(|_| one()).collect();
            for charge in charges {
                in_time(charge).await.expect("it is charged");
            }
        }
        let more = if base.is_postgres() {
            "INSERT INTO firstcome_member (name) SELECT 'm'||n FROM generate_series(1,9000) n"
        } else {
            "INSERT INTO firstcome_member (name) SELECT CONCAT('m',seq) FROM seq_1_to_9000"
        };
        base.say(more).await;
        let checks = verify_auctions(&base.url).await.expect("it can be read");
        assert_eq!(broken(&checks), Vec::<String>::new());
        let checked =
            |what: &str| checks.iter().find(|check| check.invariant.contains(what)).map_or(0, |check| check.checked);
        assert_eq!((checked("records are a chain"), checked("a balance is the sum")), (COUNT, 9_001));
    }
}

/// Between two of its questions more is written, and it does not see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_state_is_read_beside_an_auction_store_that_goes_on() {
    for base in Base::both().await {
        let auctions = Arc::new(base.open().await);
        charge(&auctions, "ann", 1_000_000).await;
        charge(&auctions, "bob", 1_000_000).await;
        let lamp = listing("lamp");
        auctions.put_listing(&lamp, endless()).await.unwrap().unwrap();
        let (over, placed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let bidding = {
            let (auctions, over, placed) = (Arc::clone(&auctions), Arc::clone(&over), Arc::clone(&placed));
            tokio::spawn(async move {
                let mut price = 1;
                while !over.load(Ordering::Relaxed) {
                    let bidder = if price % 2 == 0 { "ann" } else { "bob" };
                    auctions.place_bid(&lamp, bid(bidder, price)).await.unwrap().unwrap();
                    placed.store(price, Ordering::Relaxed);
                    price += 1;
                }
            })
        };
        in_time(async {
            let mut read = 0;
            // On a slow disk few bids are placed during many reads.
            while read < 40 || placed.load(Ordering::Relaxed) < 20 {
                assert!(!bidding.is_finished(), "all are accepted");
                let checks = verify_auctions(&base.url).await.expect("it can be read");
                assert_eq!(broken(&checks), Vec::<String>::new());
                read += 1;
            }
        })
        .await;
        over.store(true, Ordering::Relaxed);
        in_time(bidding).await.expect("all were accepted");
    }
}

async fn refusal(url: &str) -> String {
    match verify_auctions(url).await {
        Err(SqlError::Broken { says }) => says,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_no_auction_of_this_version_is_refused() {
    for base in Base::both().await {
        let empty = base.fresh(0).await;
        assert!(refusal(&empty).await.contains("no tables of auctions"));
        drop(base.open().await);
        for (version, word) in [(99, "version 99"), (0, "start the service")] {
            base.say(&format!("UPDATE firstcome_schema SET version={version} WHERE part='market'")).await;
            let says = refusal(&base.url).await;
            assert!(says.contains(word), "{says}");
        }
        base.say("DELETE FROM firstcome_schema WHERE part='market'").await;
        assert!(refusal(&base.url).await.contains("no tables of auctions"));
    }
}
