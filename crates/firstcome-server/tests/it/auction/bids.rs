//! Bids: in which order they are refused, what they hold, and how late ones put the end off.

use super::{auction, auction_with, bid, bids, fixed_price, instant};
use crate::service::Service;
use crate::stores::on_each;
use serde_json::{Value, json};

pub(crate) async fn a_bid_holds_its_points_and_frees_those_of_the_bid_before() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        service.list("lamp", &auction(10)).await;
        let first = service.bid("lamp", "ann", 100).await.is(201).json();
        let highest = json!({"bid": 1, "bidder": "ann", "price": 100, "at": instant(0)});
        let told =
            json!({"listing": "lamp", "bid": 1, "highest": highest, "effective_ends_at": instant(10), "fence": 2});
        assert_eq!(first, told);
        assert_eq!(service.balance("ann").await, (1_000, 900));
        service.set_clock(3);
        let second = service.bid("lamp", "bob", 1_000).await.is(201).json();
        assert_eq!((&second["bid"], &second["fence"]), (&json!(2), &json!(3)));
        assert_eq!((service.balance("ann").await, service.balance("bob").await), ((1_000, 1_000), (1_000, 0)));
        let shown = service.listing("lamp").await;
        assert_eq!((&shown["highest"], &shown["version"]), (&second["highest"], &json!(3)));
        assert_eq!((&shown["bids"], &shown["minimum"]), (&json!(2), &json!(1_001)));
        let ann = service.movements("ann").await;
        let about = json!("lamp#1");
        assert_eq!(ann[1..], [("HOLD".into(), 0, -100, about.clone()), ("RELEASE".into(), 0, 100, about)]);
    })
    .await;
}

pub(crate) async fn bids_are_refused_in_a_fixed_order() {
    on_each(async |service| {
        service.fund(["ann", "bob", "eve"], 1_000).await;
        service.list("lamp", &auction_with(10, json!({"starts_at": instant(5), "min_increment": 50}))).await;
        // The owner hears first that it is the owner's: before the start, while it runs, and after its end.
        service.bid("lamp", "eve", 1).await.refused(409, "own_listing");
        service.bid("lamp", "ann", 1).await.refused(409, "not_in_progress");
        service.set_clock(5);
        service.bid("lamp", "eve", 1).await.refused(409, "own_listing");
        let low = service.bid("lamp", "bob", 99).await.refused(409, "bid_too_low");
        assert_eq!(low.json()["minimum"], 100);
        service.send(bid("lamp", "ann", 900).once("k1")).await.is(201);
        // A key that was used, before everything else that would be wrong.
        service.send(bid("lamp", "eve", 1).once("k1")).await.refused(422, "idempotency_key_reused");
        service.send(bid("none", "eve", 1).once("k1")).await.refused(404, "unknown_listing");
        // Who has the highest bid, before how much; how much, before whether there is so much.
        service.bid("lamp", "ann", 1).await.refused(409, "already_highest_bidder");
        let low = service.bid("lamp", "nobody", 949).await.refused(409, "bid_too_low");
        assert_eq!(low.json()["minimum"], 950);
        let poor = service.bid("lamp", "bob", 1_001).await.refused(409, "insufficient_points");
        assert_eq!(poor.json()["available"], 1_000);
        assert_eq!(service.bid("lamp", "nobody", 950).await.json()["available"], 0);
        service.bid("lamp", "bob", 950).await.is(201);
        service.set_clock(11);
        service.bid("lamp", "bob", 1).await.refused(409, "not_in_progress");
        service.bid("lamp", "eve", 1).await.refused(409, "own_listing");
        service.list("vase", &fixed_price()).await;
        service.bid("vase", "ann", 200).await.refused(409, "not_in_progress");
        assert_eq!(service.listing("lamp").await["bids"], 2);
        assert_eq!(service.balance("ann").await, (1_000, 1_000));
    })
    .await;
}

pub(crate) async fn points_that_back_a_bid_back_no_other_one() {
    on_each(async |service| {
        service.fund(["ann"], 1_000).await;
        for name in ["lamp", "ring"] {
            service.list(name, &auction(10)).await;
        }
        service.list("vase", &fixed_price()).await;
        service.bid("lamp", "ann", 950).await.is(201);
        let short = service.bid("ring", "ann", 100).await.refused(409, "insufficient_points");
        assert_eq!(short.json()["available"], 50);
        service.buy("vase", "ann").await.refused(409, "insufficient_points");
        service.send(super::refund("ann", 51)).await.refused(409, "insufficient_points");
        service.send(super::refund("ann", 50)).await.is(200);
        assert_eq!(service.balance("ann").await, (950, 0));
    })
    .await;
}

pub(crate) async fn both_ends_of_the_period_count() {
    on_each(async |service| {
        service.fund(["ann", "bob", "cid"], 1_000).await;
        service.list("lamp", &auction_with(20, json!({"starts_at": instant(10)}))).await;
        let us = |us: i64| firstcome::core::time::Timestamp::clamped_us(us);
        let (start, end) = (crate::service::at(10).as_us(), crate::service::at(20).as_us());
        for (at, bidder, price, wanted) in [
            (start - 1, "ann", 100, "409 not_in_progress"),
            (start, "ann", 100, "201"),
            (end, "bob", 200, "201"),
            (end + 1, "cid", 300, "409 not_in_progress"),
        ] {
            service.clock.set(us(at));
            assert_eq!(service.bid("lamp", bidder, price).await.outcome(), wanted, "{at}");
        }
    })
    .await;
}

pub(crate) async fn an_accepted_late_bid_puts_the_end_off_and_a_refused_one_does_not() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        let extend = json!({"extend": {"window_ms": 2_000, "by_ms": 5_000, "max_count": 2}});
        service.list("lamp", &auction_with(20, extend)).await;
        let place = async |at_s: i64, bidder: &str, price: u64| {
            service.set_clock(at_s);
            service.bid("lamp", bidder, price).await
        };
        let end = |answer: &crate::service::Answer| answer.text("effective_ends_at");
        assert_eq!(end(&place(17, "ann", 100).await.is(201)), instant(20));
        assert_eq!(end(&place(18, "bob", 110).await.is(201)), instant(25), "two seconds before the end is late");
        place(24, "bob", 120).await.refused(409, "already_highest_bidder");
        place(24, "ann", 110).await.refused(409, "bid_too_low");
        place(24, "ann", 2_000).await.refused(409, "insufficient_points");
        assert_eq!(service.listing("lamp").await["effective_ends_at"], instant(25));
        assert_eq!(end(&place(25, "ann", 130).await.is(201)), instant(30));
        assert_eq!(end(&place(30, "bob", 140).await.is(201)), instant(30), "twice is the most");
        let shown = service.listing("lamp").await;
        assert_eq!((&shown["ends_at"], &shown["effective_ends_at"]), (&json!(instant(20)), &json!(instant(30))));
        place(31, "ann", 150).await.refused(409, "not_in_progress");
    })
    .await;
}

pub(crate) async fn bids_come_in_pages() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        for name in ["lamp", "ring"] {
            service.list(name, &auction(10)).await;
            for (number, bidder) in ["ann", "bob", "ann", "bob", "ann"].into_iter().enumerate() {
                service.bid(name, bidder, 100 + number as u64).await.is(201);
            }
        }
        let numbers = async |query: &str| {
            let page = service.send(bids("lamp", query)).await.is(200).json();
            let items = page["items"].as_array().expect("items").iter();
            (items.map(|item| item["bid"].as_u64().expect("a number")).collect::<Vec<_>>(), page["next"].as_u64())
        };
        assert_eq!(numbers("").await, (vec![1, 2, 3, 4, 5], None));
        assert_eq!(numbers("?limit=3").await, (vec![1, 2, 3], Some(3)));
        assert_eq!(numbers("?after=3&limit=3").await, (vec![4, 5], None));
        for after in ["5", "4294967295", "4294967296", "9007199254740991"] {
            assert_eq!(numbers(&format!("?after={after}")).await, (vec![], None), "{after}");
        }
        for query in ["?after=x", "?limit=0", "?before=1"] {
            service.send(bids("lamp", query)).await.refused(400, "invalid_query");
        }
    })
    .await;
}

pub(crate) async fn a_crowd_that_bids_at_once_leaves_one_highest_bid_and_all_points() {
    on_each(async |service| {
        const BIDDERS: u64 = 60;
        service.list("lamp", &auction(10)).await;
        for bidder in 0..BIDDERS {
            service.send(super::charge(&format!("bidder{bidder}"), 1_000)).await.is(200);
        }
        let mut asked = tokio::task::JoinSet::new();
        for bidder in 0..BIDDERS {
            // Neither rising nor falling.
            asked.spawn(service.send(bid("lamp", &format!("bidder{bidder}"), 100 + bidder * 37 % BIDDERS)));
        }
        let answers = asked.join_all().await;
        let accepted = answers.iter().filter(|answer| answer.status == 201).count();
        assert!(answers.iter().all(|answer| answer.status == 201 || answer.text("code") == "bid_too_low"));
        let page = service.send(bids("lamp", "")).await.is(200).json();
        let items = page["items"].as_array().expect("items");
        let prices: Vec<u64> = items.iter().map(|item| item["price"].as_u64().expect("a price")).collect();
        assert_eq!(items.len(), accepted);
        assert!(prices.is_sorted_by(|before, after| before < after), "{prices:?}");
        assert_eq!(prices.last(), Some(&(100 + BIDDERS - 1)), "the highest of all is accepted");
        let highest: &Value = items.last().expect("a bid");
        for bidder in 0..BIDDERS {
            let name = format!("bidder{bidder}");
            let held = if highest["bidder"] == name { 100 + BIDDERS - 1 } else { 0 };
            assert_eq!(service.balance(&name).await, (1_000, 1_000 - held), "{name}");
        }
    })
    .await;
}

impl Service {
    /// The figure of an auction's highest price.
    pub(crate) async fn highest(&self, listing: &str) -> Value {
        self.listing(listing).await["highest"]["price"].clone()
    }
}
