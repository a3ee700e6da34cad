//! What was told outlives the process: balances, records, bids, purchases, keys, and what is due.

use super::{auction, auction_with, bid, bids, charge, fixed_price, look, purchase, records};
use crate::running::until;
use crate::service::{SERVICE, Service, config};
use crate::stores::{clock, open};
use firstcome::edge::ManualClock;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

fn start(directory: &Path, clock: &Arc<ManualClock>) -> Service {
    Service::new(open(directory, clock), Arc::clone(clock), config())
}

/// Closes the file first: a member that ticks may hold the store a little longer.
fn stop(service: Service) {
    service.store.close();
    drop(service);
}

pub(crate) async fn what_auctions_told_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let before = start(directory.path(), &clock);
    let charged = before.send(charge("ann", 1_000).once("k1")).await.is(200);
    before.fund(["bob"], 1_000).await;
    let extend = json!({"extend": {"window_ms": 10_000, "by_ms": 5_000, "max_count": 3}, "settle_within_ms": 5_000});
    before.list("lamp", &auction_with(10, extend)).await;
    before.list("vase", &fixed_price()).await;
    let placed = before.send(bid("lamp", "ann", 100).once("k1")).await.is(201);
    before.bid("lamp", "bob", 200).await.is(201);
    let bought = before.send(purchase("vase", "ann").once("k1")).await.is(201);
    let all = || {
        let members = ["ann", "bob", "eve", "nobody"];
        let of_members = members.into_iter().flat_map(|name| [super::member(name), records(name, "")]);
        of_members.chain([look("lamp").by(SERVICE), look("vase").by(SERVICE), bids("lamp", "")])
    };
    let mut shown = Vec::new();
    for ask in all() {
        shown.push(before.send(ask).await.is(200).json());
    }
    stop(before);

    let after = start(directory.path(), &clock);
    for (ask, shown) in all().zip(shown) {
        assert_eq!(after.send(ask).await.is(200).json(), shown);
    }
    assert_eq!(after.send(charge("ann", 1_000).once("k1")).await.is(200).bytes, charged.bytes);
    assert_eq!(after.send(bid("lamp", "ann", 100).once("k1")).await.is(201).bytes, placed.bytes);
    assert_eq!(after.send(purchase("vase", "ann").once("k1")).await.is(201).bytes, bought.bytes);
    after.send(charge("ann", 1).once("k1")).await.refused(422, "idempotency_key_reused");
    after.send(bid("lamp", "bob", 900).once("k1")).await.refused(422, "idempotency_key_reused");
    after.send(purchase("vase", "bob").once("k1")).await.refused(422, "idempotency_key_reused");
    let next = after.bid("lamp", "ann", 300).await.is(201).json();
    assert_eq!((&next["bid"], &next["fence"]), (&json!(3), &json!(4)));
    assert_eq!((after.balance("ann").await, after.balance("bob").await), ((900, 600), (1_000, 1_000)));
}

pub(crate) async fn what_became_due_while_no_member_ran_is_done_after_the_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let before = start(directory.path(), &clock);
    before.fund(["ann", "bob"], 1_000).await;
    before.list("lamp", &auction_with(10, json!({"settle_within_ms": 5_000}))).await;
    before.list("ring", &auction(10)).await;
    before.bid("lamp", "ann", 100).await.is(201);
    before.bid("ring", "bob", 100).await.is(201);
    stop(before);

    clock.set(crate::service::at(100));
    let after = start(directory.path(), &clock);
    until(async || after.balance("ann").await == (1_000, 1_000)).await;
    assert_eq!(after.listing("lamp").await["state"], "unsold");
    assert_eq!(after.listing("ring").await["state"], "ended");
    after.buy("ring", "bob").await.is(201);
}
