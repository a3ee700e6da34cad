//! Keys of coupons that are over leave Redis.

use crate::claim_replies::{COUPON, ClaimReplies, by, claim, coupon, keyed, limit, new, put, refusal};
use crate::in_time;
use crate::proxy::{Point, ProxyFault};
use crate::scripts::{FILL, SETTLE};
use crate::world::{Keeper, World, secret, wait_for};
use firstcome_cluster::{Cluster, Object, reconcile, verify};
use firstcome_store::CouponStore;
use firstcome_store::core::coupon::{Effect, Rejection};
use firstcome_test_servers::Kind;

/// All keys of coupons.
async fn keys(keeper: &mut Keeper) -> Vec<String> {
    keeper.ask(&["KEYS", "fc:{c*"]).await
}

async fn no_keys(keeper: &mut Keeper) {
    wait_for("no key of the coupon", async || keys(keeper).await.is_empty().then_some(())).await;
}

async fn delete(node: &Cluster) {
    node.delete_coupon(&coupon(COUPON)).await.expect("it answers").expect("it may be");
}

async fn leave_redis(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    let (nodes, mut keeper) = (place.nodes(2).await, place.keeper().await);
    put(&nodes[0], limit(9)).await;
    let ann = new(claim(&nodes[0], "ann").await);
    let bob = new(nodes[1].claim(&coupon(COUPON), keyed("bob", 7, 1)).await);
    assert!(!keys(&mut keeper).await.is_empty());
    delete(&nodes[0]).await;
    assert_eq!(keys(&mut keeper).await, Vec::<String>::new(), "nothing waited");
    let fresh = place.node().await;
    for node in [&nodes[0], &nodes[1], &fresh] {
        // One that has not heard of it asks the sequencer, and finds none.
        assert_eq!(refusal(claim(node, "cid").await), Rejection::Deleted);
        let told = node.claim(&coupon(COUPON), by("ann")).await.expect("it answers").expect_err("she has one");
        assert_eq!((told.rejection, told.claim), (Rejection::AlreadyIssued(ann.issued), Some(ann.clone())));
        let again = node.claim(&coupon(COUPON), keyed("bob", 7, 1)).await.expect("it answers");
        assert_eq!(again, Ok(Effect::Again(bob.clone())));
        assert_eq!(
            refusal(node.claim(&coupon(COUPON), keyed("cid", 7, 2)).await),
            Rejection::KeyReused(bob.issued.serial)
        );
        assert!(node.claim_of(&coupon(COUPON), "cid").await.expect("it answers").expect("it is there").is_none());
        let held = node.claim_of(&coupon(COUPON), "ann").await.expect("it answers").expect("it is there");
        assert_eq!(held.map(|record| record.claimed), Some(ann.clone()));
        delete(node).await;
        assert_eq!(keys(&mut keeper).await, Vec::<String>::new(), "no sequencer is made again");
    }
    let verified = verify(&place.sql, Some(&place.redis), Some(secret())).await.expect("it is read");
    assert_eq!(verified.checks.iter().map(|check| check.breaches).sum::<u64>(), 0, "{verified:?}");
    let found = reconcile(&place.redis, &place.sql).await.expect("it is read");
    let of: Vec<_> = found.findings.iter().filter(|finding| finding.needs_repair()).collect();
    assert!(of.is_empty(), "{of:?}");
    assert!(found.findings.iter().any(|finding| finding.object == Object::Coupon(COUPON.to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_deleted_coupon_leave_redis_beside_postgres() {
    leave_redis(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_deleted_coupon_leave_redis_beside_mariadb() {
    leave_redis(Kind::MariaDb).await;
}

/// A node dies with a ticket that it has not written, and the coupon is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_stream_of_a_deleted_coupon_is_written_down_first() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_redis_line().await;
    let (dying, node, mut keeper) = (lined.node().await, place.node().await, place.keeper().await);
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    line.set(&Point::Script(SETTLE), 0, ProxyFault::Hold);
    let bob = tokio::spawn(async move { claim(&dying, "bob").await });
    in_time(line.met(1)).await;
    delete(&node).await;
    assert!(!keys(&mut keeper).await.is_empty(), "a ticket waits");
    bob.abort();
    drop(line);
    no_keys(&mut keeper).await;
    let mut foreign = place.foreign().await;
    let row = format!("SELECT position FROM firstcome_coupon WHERE name='{COUPON}'");
    assert_eq!(foreign.number(&row).await, 2, "the ticket was passed over");
    assert_eq!(refusal(claim(&node, "bob").await), Rejection::Deleted);
    let told = ClaimReplies::default();
    assert!(told.once(&node, "ann").await);
    told.check(&place, &[node], 1).await;
}

/// A node rebuilds the sequencer while another node deletes the coupon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_brings_no_key_of_a_deleted_coupon_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_redis_line().await;
    let (slow, node, mut keeper) = (lined.node().await, place.node().await, place.keeper().await);
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    // A node that still writes would rebuild by itself.
    wait_for("an end of the writing", async || (keeper.sequencer("node").await.as_deref() == Some("")).then_some(()))
        .await;
    let sequencer = keeper.key("gate").await.expect("a sequencer");
    line.set(&Point::Script(FILL), 0, ProxyFault::Hold);
    let _: i64 = keeper.ask(&["DEL", &sequencer]).await;
    let bob = tokio::spawn(async move { claim(&slow, "bob").await });
    in_time(line.met(1)).await;
    delete(&node).await;
    assert_eq!(keys(&mut keeper).await, Vec::<String>::new());
    line.pass();
    assert_eq!(refusal(in_time(bob).await.expect("it ends")), Rejection::Deleted);
    assert_eq!(keys(&mut keeper).await, Vec::<String>::new());
}

/// All nodes are gone when the coupon is deleted, and Redis does not answer then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_deletes_keys_that_were_left() {
    let Some(world) = World::start(Kind::MariaDb).await else { return };
    let place = world.place().await;
    let (node, mut keeper, mut foreign) = (place.node().await, place.keeper().await, place.foreign().await);
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    drop(node);
    foreign.say("UPDATE firstcome_coupon SET deleted_at=1,version=version+1").await;
    let found = reconcile(&place.redis, &place.sql).await.expect("it is read");
    assert!(found.findings.iter().any(|finding| finding.needs_repair()), "{found:?}");
    let _node = place.node().await;
    no_keys(&mut keeper).await;
}
