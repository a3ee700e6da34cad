//! Listings: what is set, what is shown, and what time makes of them.

use super::{auction, auction_with, bid, bids, fixed_price, instant, look, purchase, put};
use crate::running::until;
use crate::service::SERVICE;
use crate::stores::on_each;
use serde_json::{Value, json};

pub(crate) async fn a_listing_is_created_shown_and_replaced() {
    on_each(async |service| {
        let settings = json!({"owner": "eve", "kind": "auction", "price": 100, "starts_at": instant(10),
            "ends_at": instant(20), "min_increment": 5, "settle_within_ms": 4_000, "on_default": "release",
            "extend": {"window_ms": 2_000, "by_ms": 3_000, "max_count": 2}});
        let made = service.list("lamp", &settings).await;
        let shown = json!({"listing": "lamp", "owner": "eve", "kind": "auction", "price": 100, "state": "scheduled",
            "starts_at": instant(10), "ends_at": instant(20), "effective_ends_at": instant(20), "min_increment": 5,
            "extend": {"window_ms": 2_000, "by_ms": 3_000, "max_count": 2}, "settle_within_ms": 4_000,
            "settles_until": instant(24), "on_default": "release", "extensions": 0, "phase": "open", "bids": 0, "minimum": 100,
            "version": 1, "changed_at": instant(0), "as_of": instant(0)});
        assert_eq!(made, shown);
        assert_eq!(service.listing("lamp").await, shown);
        // The same again is nothing new.
        assert_eq!(service.send(put("lamp", &settings)).await.is(200).shown(), shown);
        // Before the start all of it may change, the kind too. What is left out is unset.
        let other = json!({"owner": "bob", "kind": "fixed_price", "price": 7, "starts_at": instant(30)});
        let replaced = service.send(put("lamp", &other)).await.is(200).shown();
        let shown = json!({"listing": "lamp", "owner": "bob", "kind": "fixed_price", "price": 7, "state": "scheduled",
            "starts_at": instant(30), "phase": "open", "bids": 0, "version": 2, "changed_at": instant(0), "as_of": instant(0)});
        assert_eq!(replaced, shown);
        let without = json!({"owner": "bob", "kind": "auction", "price": 7, "starts_at": null, "ends_at": instant(9),
            "min_increment": null, "extend": null, "settle_within_ms": null, "on_default": null});
        let replaced = service.send(put("lamp", &without)).await.is(200).json();
        assert_eq!((&replaced["state"], &replaced["starts_at"]), (&json!("running"), &json!(instant(0))));
        assert_eq!((replaced.get("on_default"), replaced.get("extend")), (None, None));
    })
    .await;
}

pub(crate) async fn while_it_runs_only_the_end_may_change_to_a_later_one() {
    on_each(async |service| {
        service.list("lamp", &auction(10)).await;
        for settings in [
            auction(9),
            auction_with(10, json!({"price": 99})),
            auction_with(10, json!({"owner": "bob"})),
            auction_with(10, json!({"min_increment": 2})),
            auction_with(10, json!({"starts_at": instant(1)})),
            auction_with(20, json!({"settle_within_ms": 1})),
            fixed_price(),
        ] {
            service.send(put("lamp", &settings)).await.refused(409, "listing_running");
        }
        // Without a start it keeps the one that it has had.
        service.set_clock(5);
        assert_eq!(service.send(put("lamp", &auction(10))).await.is(200).json()["version"], 1);
        let later = service.send(put("lamp", &auction(20))).await.is(200).json();
        assert_eq!((&later["effective_ends_at"], &later["version"]), (&json!(instant(20)), &json!(2)));
        service.set_clock(21);
        service.send(put("lamp", &auction(30))).await.refused(409, "listing_ended");
        assert_eq!(service.send(put("lamp", &auction(20))).await.is(200).json()["state"], "unsold");
        service.list("vase", &fixed_price()).await;
        let dearer = json!({"owner": "eve", "kind": "fixed_price", "price": 101});
        service.send(put("vase", &dearer)).await.refused(409, "listing_running");
    })
    .await;
}

pub(crate) async fn an_auction_does_not_end_before_it_starts() {
    on_each(async |service| {
        service.set_clock(100);
        for settings in [
            auction(99),
            auction_with(150, json!({"starts_at": instant(151)})),
            auction_with(-1, json!({"starts_at": instant(0)})),
        ] {
            let answer = service.send(put("lamp", &settings)).await.refused(400, "ends_before_start");
            assert_eq!(answer.json()["field"], "ends_at");
        }
        service.send(look("lamp")).await.refused(404, "unknown_listing");
        // One instant is enough, and both may have passed.
        service.list("lamp", &auction_with(150, json!({"starts_at": instant(150)}))).await;
        assert_eq!(service.list("past", &auction_with(9, json!({"starts_at": instant(9)}))).await["state"], "unsold");
    })
    .await;
}

pub(crate) async fn every_call_about_a_listing_that_does_not_exist_says_so() {
    on_each(async |service| {
        service.fund(["ann"], 100).await;
        for ask in [look("lamp"), bids("lamp", ""), bid("lamp", "ann", 1), purchase("lamp", "ann")] {
            service.send(ask).await.refused(404, "unknown_listing");
        }
    })
    .await;
}

pub(crate) async fn time_decides_the_state_of_a_listing() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        let window = json!({"starts_at": instant(10), "settle_within_ms": 5_000});
        for name in ["lamp", "vase", "ring"] {
            service.list(name, &auction_with(20, window.clone())).await;
        }
        let state = async |name: &str| service.listing(name).await["state"].as_str().expect("a state").to_owned();
        assert_eq!(state("lamp").await, "scheduled");
        service.set_clock(10);
        assert_eq!(state("lamp").await, "running");
        service.bid("lamp", "ann", 100).await.is(201);
        service.bid("vase", "bob", 100).await.is(201);
        service.set_clock(20);
        assert_eq!(state("lamp").await, "running", "the last instant belongs to it");
        service.set_clock(21);
        assert_eq!((state("lamp").await, state("ring").await), ("ended".into(), "unsold".into()));
        let ended = service.listing("lamp").await;
        assert_eq!((ended.get("minimum"), &ended["settles_until"]), (None, &json!(instant(25))));
        service.buy("lamp", "ann").await.is(201);
        assert_eq!(state("lamp").await, "sold");
        service.set_clock(25);
        assert_eq!(state("vase").await, "ended");
        service.set_clock(26);
        assert_eq!((state("vase").await, state("lamp").await), ("unsold".into(), "sold".into()));
    })
    .await;
}

pub(crate) async fn an_auction_is_closed_without_a_caller() {
    on_each(async |service| {
        service.fund(["ann"], 1_000).await;
        service.list("lamp", &auction_with(10, json!({"settle_within_ms": 5_000}))).await;
        service.bid("lamp", "ann", 400).await.is(201);
        let version = async || service.listing("lamp").await["version"].as_u64();
        assert_eq!(version().await, Some(2));
        service.set_clock(11);
        until(async || version().await == Some(3)).await;
        assert_eq!(service.balance("ann").await, (1_000, 600), "the winner may still settle");
        service.set_clock(16);
        until(async || version().await == Some(4)).await;
        assert_eq!(service.balance("ann").await, (1_000, 1_000), "who does not settle has the points again");
        assert_eq!(service.listing("lamp").await["state"], "unsold");
        let movements = service.movements("ann").await;
        let about = json!("lamp#1");
        assert_eq!(movements[1..], [("HOLD".into(), 0, -400, about.clone()), ("RELEASE".into(), 0, 400, about)]);
    })
    .await;
}

pub(crate) async fn who_has_bought_and_who_has_bid_is_shown_to_service_keys() {
    on_each(async |service| {
        service.fund(["ann"], 1_000).await;
        service.list("vase", &fixed_price()).await;
        let bought = service.buy("vase", "ann").await.is(201).json();
        assert_eq!(service.send(look("vase").by(SERVICE)).await.is(200).json()["purchase"], bought);
        let public = service.send(look("vase")).await.is(200);
        assert_eq!((public.json().get("purchase"), public.text("state").as_str()), (None, "sold"));
        assert!(!public.body().contains("ann"), "{}", public.body());
        service.list("lamp", &auction(10)).await;
        service.bid("lamp", "ann", 150).await.is(201);
        let shown = |public: &Value| (public["highest"]["bidder"].clone(), public.get("purchase").is_some());
        let public = service.send(look("lamp")).await.is(200).json();
        assert_eq!(shown(&public), (json!("ann"), false));
        let highest = json!({"bid": 1, "bidder": "ann", "price": 150, "at": instant(0)});
        assert_eq!(service.listing("lamp").await["highest"], highest);
        let history = service.send(bids("lamp", "")).await.is(200).json();
        assert_eq!(history, json!({"items": [highest]}));
        service.send(bids("lamp", "").without("authorization")).await.refused(401, "unauthorized");
        let none: Value = service.send(bids("vase", "")).await.is(200).json();
        assert_eq!(none, json!({"items": []}));
        service.set_clock(11);
        service.buy("lamp", "ann").await.is(201);
        assert_eq!(shown(&service.send(look("lamp")).await.is(200).json()), (json!("ann"), false));
        assert_eq!(shown(&service.send(look("lamp").by(SERVICE)).await.is(200).json()), (json!("ann"), true));
    })
    .await;
}
