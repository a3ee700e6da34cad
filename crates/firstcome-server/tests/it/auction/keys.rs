//! Idempotency keys of charges, bids and purchases: one effect, one answer.

use super::{auction, bid, charge, fixed_price, purchase, refund};
use crate::service::{SERVICE_TOO, Service};
use crate::stores::on_each;
use serde_json::json;

pub(crate) async fn a_repeated_charge_is_answered_again_as_it_was() {
    on_each(async |service| {
        let first = service.send(charge("ann", 500).once("k1")).await.is(200);
        service.send(charge("ann", 70)).await.is(200);
        assert_eq!(service.send(charge("ann", 500).once("k1")).await.is(200).bytes, first.bytes);
        service.send(charge("ann", 501).once("k1")).await.refused(422, "idempotency_key_reused");
        assert_eq!(service.balance("ann").await.0, 570);
        // The same key of another member, another row or another caller is another one.
        service.send(charge("bob", 5).once("k1")).await.is(200);
        service.send(refund("ann", 70).once("k1")).await.is(200);
        assert_eq!(service.send(refund("ann", 70).once("k1")).await.is(200).json()["total"], 500);
        service.send(charge("ann", 1).once("k1").by(SERVICE_TOO)).await.is(200);
        assert_eq!((service.balance("ann").await.0, service.balance("bob").await.0), (501, 5));
    })
    .await;
}

pub(crate) async fn a_refused_refund_is_judged_afresh() {
    on_each(async |service| {
        service.send(refund("ann", 50).once("k1")).await.refused(409, "insufficient_points");
        service.fund(["ann"], 60).await;
        assert_eq!(service.send(refund("ann", 50).once("k1")).await.is(200).json()["total"], 10);
        assert_eq!(service.send(refund("ann", 50).once("k1")).await.is(200).json()["total"], 10);
    })
    .await;
}

pub(crate) async fn a_key_of_points_is_remembered_for_thirty_days() {
    on_each(async |service| {
        service.send(charge("ann", 5).once("k1")).await.is(200);
        service.set_clock(30 * 86_400);
        assert_eq!(service.send(charge("ann", 5).once("k1")).await.is(200).json()["total"], 5);
        service.set_clock(30 * 86_400 + 1);
        assert_eq!(service.send(charge("ann", 5).once("k1")).await.is(200).json()["total"], 10);
    })
    .await;
}

pub(crate) async fn a_repeated_bid_is_answered_again_as_it_was() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        for name in ["lamp", "ring"] {
            service.list(name, &auction(10)).await;
        }
        service.send(bid("lamp", "ann", 99).once("k1")).await.refused(409, "bid_too_low");
        let first = service.send(bid("lamp", "ann", 100).once("k1")).await.is(201);
        service.bid("lamp", "bob", 200).await.is(201);
        service.set_clock(5);
        let again = || bid("lamp", "ann", 100).once("k1");
        assert_eq!(service.send(again()).await.is(201).bytes, first.bytes);
        for other in [bid("lamp", "ann", 300), bid("lamp", "bob", 100), bid("lamp", "ann", 101)] {
            service.send(other.once("k1")).await.refused(422, "idempotency_key_reused");
        }
        service.send(bid("ring", "ann", 300).once("k1")).await.is(201);
        service.send(bid("lamp", "ann", 300).once("k1").by(SERVICE_TOO)).await.is(201);
        assert_eq!(service.highest("lamp").await, json!(300));
        // For the life of the bid: also when the auction is over.
        service.set_clock(11);
        assert_eq!(service.send(again()).await.is(201).bytes, first.bytes);
        assert_eq!(service.listing("lamp").await["bids"], 3);
    })
    .await;
}

pub(crate) async fn a_repeated_purchase_is_answered_again_as_it_was() {
    on_each(async |service| {
        service.fund(["ann", "bob"], 1_000).await;
        for name in ["vase", "bowl"] {
            service.list(name, &fixed_price()).await;
        }
        service.send(purchase("vase", "nobody").once("k1")).await.refused(409, "insufficient_points");
        let first = service.send(purchase("vase", "ann").once("k1")).await.is(201);
        service.set_clock(5);
        assert_eq!(service.send(purchase("vase", "ann").once("k1")).await.is(201).bytes, first.bytes);
        service.send(purchase("vase", "bob").once("k1")).await.refused(422, "idempotency_key_reused");
        for other in
            [purchase("vase", "ann"), purchase("vase", "ann").once("k2"), purchase("vase", "ann").by(SERVICE_TOO)]
        {
            assert_eq!(service.send(other).await.refused(409, "already_sold").json()["purchase"], first.json());
        }
        service.send(purchase("bowl", "bob").once("k1")).await.is(201);
        assert_eq!((service.balance("ann").await.0, service.balance("bob").await.0), (900, 900));
    })
    .await;
}

pub(crate) async fn a_key_of_auctions_that_is_none_is_refused_and_has_no_effect() {
    let service = Service::memory();
    service.fund(["ann"], 1_000).await;
    service.list("lamp", &auction(10)).await;
    service.list("vase", &fixed_price()).await;
    for key in ["", "a b", "k\u{e9}", &"k".repeat(129)] {
        for ask in [charge("ann", 1), refund("ann", 1), bid("lamp", "ann", 100), purchase("vase", "ann")] {
            service.send(ask.once(key)).await.refused(400, "invalid_idempotency_key");
        }
    }
    assert_eq!(service.balance("ann").await, (1_000, 1_000));
}
