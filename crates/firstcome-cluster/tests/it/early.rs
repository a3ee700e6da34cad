//! Coupons that tell claims when their place is certain, before the database holds them (durability `redis`).

use crate::claim_replies::{self, COUPON, claim_early, coupon, limit, put};
use crate::in_time;
use crate::proxy::{Point, ProxyFault};
use crate::scripts::{ADJUST, SETTLE};
use crate::world::{World, wait_for};
use firstcome_store::core::coupon::{Acknowledge, CouponSettings, Effect};
use firstcome_store::{Answer, ClaimReply, CouponStore, StoreError};
use firstcome_test_servers::Kind;
use std::time::Duration;
use tokio::time::timeout;

/// How long a lease lasts, and a look at it, and as long again for a slow machine: less than until all coupons are looked at.
const SOON: Duration = Duration::from_secs(6);

fn early(count: u32) -> CouponSettings {
    CouponSettings { acknowledge: Acknowledge::Placed, ..limit(count) }
}

#[track_caller]
fn is_placed(answer: &Answer<Effect<ClaimReply>>) -> bool {
    match answer {
        Ok(Ok(Effect::New(ClaimReply::Placed(_)))) => true,
        Ok(Ok(Effect::New(ClaimReply::Stored(_)))) => false,
        other => panic!("{other:?}"),
    }
}

/// What was told to be in force is so at every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_is_told_early_once_the_coupon_says_otherwise() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let nodes = place.nodes(2).await;
    put(&nodes[0], early(9)).await;
    assert!(is_placed(&claim_early(&nodes[0], "ann").await));
    put(&nodes[1], limit(9)).await;
    assert!(!is_placed(&claim_early(&nodes[0], "bob").await));
    put(&nodes[1], early(9)).await;
    assert!(is_placed(&claim_early(&nodes[0], "cid").await));
    wait_for("all rows", async || (place.foreign().await.issued(COUPON).await == 3).then_some(())).await;
}

/// The database has settings that the sequencer has not heard of, and the node knows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_is_told_early_by_settings_that_the_database_has_no_more() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_redis_line().await;
    let (dying, node) = (lined.node().await, place.node().await);
    put(&node, early(9)).await;
    assert!(is_placed(&claim_early(&node, "ann").await));
    line.set(&Point::Script(ADJUST), 0, ProxyFault::Hold);
    let told = in_time(dying.put_coupon(&coupon(COUPON), early(2))).await;
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
    node.coupon(&coupon(COUPON)).await.expect("it answers").expect("it is there");
    let answers = tokio::join!(claim_early(&node, "bob"), claim_early(&node, "cid"), claim_early(&node, "dan"));
    let answers = [answers.0, answers.1, answers.2];
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(Ok(_)))).count(), 1, "{answers:?}");
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 2).await;
}

/// No other caller comes who could notice that the claims are not in the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_early_is_written_by_the_caller_that_told_it_or_is_asked() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for is_asked in [false, true] {
        let place = world.place().await;
        let (lined, line) = place.by_redis_line().await;
        let (dying, node) = (lined.node().await, place.node().await);
        put(&node, early(9)).await;
        line.set(&Point::Script(SETTLE), 0, ProxyFault::Hold);
        assert!(is_placed(&in_time(claim_early(&dying, "ann")).await));
        in_time(line.met(1)).await;
        let mut count = 1;
        if !is_asked {
            assert!(is_placed(&in_time(claim_early(&node, "bob")).await));
            count = 2;
        }
        drop((dying, line));
        let mut foreign = place.foreign().await;
        let rows = wait_for("the rows", async || {
            if is_asked {
                let told = node.claim_of(&coupon(COUPON), "ann").await;
                assert!(matches!(told, Ok(Ok(Some(_))) | Err(StoreError::NotStoredYet { .. })), "{told:?}");
            }
            (foreign.issued(COUPON).await == count).then_some(())
        });
        timeout(SOON, rows).await.expect("whoever is asked writes");
    }
}

/// No caller was let in under a name that no caller knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_was_told_early_is_not_told_that_there_is_no_claim() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_sql_line().await;
    let (slow, node) = (lined.node().await, place.node().await);
    put(&node, early(9)).await;
    line.set(&Point::Text("UPDATE firstcome_coupon SET issued"), 0, ProxyFault::Hold);
    assert!(is_placed(&in_time(claim_early(&slow, "ann")).await));
    in_time(line.met(1)).await;
    let ask = async |user: &str| node.claim_of(&coupon(COUPON), user).await;
    let told = ask("ann").await;
    assert!(matches!(told, Err(StoreError::NotStoredYet { .. })), "{told:?}");
    assert!(matches!(ask("eve").await, Ok(Ok(None))));
    line.pass();
    let record = wait_for("the claim", async || ask("ann").await.ok()).await.expect("it is there");
    assert_eq!(record.expect("a claim").claimed.issued.serial.get(), 1);
}

/// All nodes have gone, or the one that told it alone; and no caller claims or asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_early_is_written_by_a_node_that_is_there_or_comes_next() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for is_there in [false, true] {
        let place = world.place().await;
        let (lined, line) = place.by_redis_line().await;
        let dying = lined.node().await;
        let there = if is_there { Some(place.node().await) } else { None };
        put(&dying, early(9)).await;
        line.set(&Point::Script(SETTLE), 0, ProxyFault::Hold);
        assert!(is_placed(&in_time(claim_early(&dying, "ann")).await));
        in_time(line.met(1)).await;
        drop((dying, line));
        let node = match there {
            Some(node) => node,
            None => place.node().await,
        };
        let mut foreign = place.foreign().await;
        wait_for("the row", async || (foreign.issued(COUPON).await == 1).then_some(())).await;
        wait_for("its count", async || (node.counts().written == 1).then_some(())).await;
    }
}
