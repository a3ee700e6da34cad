//! Purchases: at a fixed price, and of an auction by its winner.

use super::{auction, auction_with, fixed_price, instant, purchase};
use crate::stores::on_each;
use serde_json::{Value, json};

pub(crate) async fn the_winner_pays_the_owner_what_was_held() {
    on_each(async |service| {
        service.fund(["ann", "bob", "eve"], 1_000).await;
        service.list("lamp", &auction_with(10, json!({"settle_within_ms": 5_000}))).await;
        service.bid("lamp", "ann", 300).await.is(201);
        // A member that asks before the end hears that it goes on, and until when.
        for buyer in ["ann", "bob", "eve"] {
            let early = service.buy("lamp", buyer).await.refused(409, "auction_not_ended");
            assert_eq!(early.text("effective_ends_at"), instant(10));
        }
        service.set_clock(11);
        for buyer in ["bob", "eve", "nobody"] {
            service.buy("lamp", buyer).await.refused(409, "not_winner");
        }
        let sold = service.buy("lamp", "ann").await.is(201).json();
        assert_eq!(sold, json!({"listing": "lamp", "buyer": "ann", "price": 300, "at": instant(11)}));
        assert_eq!((service.balance("ann").await, service.balance("eve").await), ((700, 700), (1_300, 1_300)));
        let (of_bid, of_listing) = (json!("lamp#1"), json!("lamp"));
        let ann = service.movements("ann").await;
        assert_eq!(
            ann[1..],
            [
                ("HOLD".into(), 0, -300, of_bid.clone()),
                ("CAPTURE".into(), 0, 300, of_bid),
                ("PURCHASE".into(), -300, -300, of_listing.clone()),
            ]
        );
        assert_eq!(service.movements("eve").await[1..], [("SOLD".into(), 300, 300, of_listing)]);
        // Again, also after the time to settle: it is sold, and to whom. No other member has won.
        for at_s in [12, 100] {
            service.set_clock(at_s);
            let again = service.buy("lamp", "ann").await.refused(409, "already_sold");
            assert_eq!(again.json()["purchase"], sold);
            service.buy("lamp", "bob").await.refused(409, "not_winner");
        }
        assert_eq!(service.balance("ann").await, (700, 700));
    })
    .await;
}

pub(crate) async fn who_does_not_settle_in_time_has_the_points_again() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        for name in ["lamp", "ring"] {
            service.list(name, &auction_with(10, json!({"settle_within_ms": 5_000, "on_default": "release"}))).await;
        }
        service.bid("lamp", "ann", 300).await.is(201);
        service.bid("ring", "ann", 400).await.is(201);
        service.set_clock(15);
        service.buy("ring", "ann").await.is(201);
        service.set_clock(16);
        let late = service.buy("lamp", "ann").await.refused(409, "settlement_expired");
        assert_eq!(late.text("settles_until"), instant(15));
        service.buy("lamp", "bob").await.refused(409, "not_winner");
        crate::running::until(async || service.balance("ann").await == (600, 600)).await;
        service.buy("lamp", "ann").await.refused(409, "settlement_expired");
        assert_eq!(service.listing("lamp").await["state"], "unsold");
        // Without a time to settle the winner has for ever.
        service.list("vase", &auction(20)).await;
        service.bid("vase", "bob", 100).await.is(201);
        service.set_clock(1_000_000);
        service.buy("vase", "bob").await.is(201);
    })
    .await;
}

pub(crate) async fn an_auction_without_bids_has_no_winner() {
    on_each(async |service| {
        service.fund(["ann"], 1_000).await;
        service.list("lamp", &auction(10)).await;
        service.set_clock(11);
        service.buy("lamp", "ann").await.refused(409, "not_winner");
        assert_eq!(service.listing("lamp").await["state"], "unsold");
    })
    .await;
}

pub(crate) async fn a_fixed_price_goes_to_the_member_that_comes_first() {
    on_each(async |service| {
        service.fund(["ann", "bob", "eve"], 150).await;
        let later = json!({"owner": "eve", "kind": "fixed_price", "price": 100, "starts_at": instant(5)});
        service.list("vase", &later).await;
        // In the order of checks: whose it is, whether it has begun, whether it is sold, whether there is enough.
        service.buy("vase", "eve").await.refused(409, "own_listing");
        service.buy("vase", "nobody").await.refused(409, "not_in_progress");
        service.set_clock(5);
        let poor = service.buy("vase", "nobody").await.refused(409, "insufficient_points");
        assert_eq!(poor.json()["available"], 0);
        let sold = service.buy("vase", "ann").await.is(201).json();
        assert_eq!(sold, json!({"listing": "vase", "buyer": "ann", "price": 100, "at": instant(5)}));
        for buyer in ["ann", "bob", "nobody"] {
            assert_eq!(service.buy("vase", buyer).await.refused(409, "already_sold").json()["purchase"], sold);
        }
        service.buy("vase", "eve").await.refused(409, "own_listing");
        assert_eq!((service.balance("ann").await, service.balance("bob").await), ((50, 50), (150, 150)));
        assert_eq!(service.balance("eve").await, (250, 250));
        let paid: Value = json!("vase");
        assert_eq!(service.movements("ann").await[1..], [("PURCHASE".into(), -100, -100, paid)]);
    })
    .await;
}

pub(crate) async fn of_a_crowd_one_buys() {
    on_each(async |service| {
        service.list("vase", &fixed_price()).await;
        let buyers: Vec<String> = (0..40).map(|buyer| format!("buyer{buyer}")).collect();
        for buyer in &buyers {
            service.send(super::charge(buyer, 100)).await.is(200);
        }
        let mut asked = tokio::task::JoinSet::new();
        for buyer in &buyers {
            asked.spawn(service.send(purchase("vase", buyer)));
        }
        let answers = asked.join_all().await;
        let sold: Vec<Value> =
            answers.iter().filter(|answer| answer.status == 201).map(|answer| answer.json()).collect();
        assert_eq!(sold.len(), 1, "{sold:?}");
        for answer in answers.iter().filter(|answer| answer.status != 201) {
            assert_eq!((answer.text("code").as_str(), &answer.json()["purchase"]), ("already_sold", &sold[0]));
        }
        let mut left = 0;
        for buyer in &buyers {
            left += service.balance(buyer).await.0;
        }
        assert_eq!((left, service.balance("eve").await.0), (3_900, 100));
    })
    .await;
}
