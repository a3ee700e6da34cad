//! Claims whose end no caller sees in time: whether anything was done is told as far as it is known.

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, coupon, limit, new, put};
use crate::in_time;
use crate::proxy::{Point, ProxyFault};
use crate::scripts::{ADJUST, FILL};
use crate::world::{World, options, wait_for};
use firstcome_store::{CouponStore, StoreError};
use firstcome_test_servers::Kind;
use std::time::Duration;
use tokio::task::JoinSet;

/// The sequencer has drawn a ticket, and cannot be told of newer settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_ticket_is_never_told_to_be_undone() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_redis_line().await;
    let mut hasty = options();
    hasty.patience = Duration::from_secs(1);
    let (node, mut keeper) = (lined.node_with(hasty).await, place.keeper().await);
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    let mut foreign = place.foreign().await;
    foreign.say("UPDATE firstcome_coupon SET version=version+1").await;
    node.coupon(&coupon(COUPON)).await.expect("it answers").expect("it is there");
    line.set(&Point::Script(ADJUST), 0, ProxyFault::Hold);
    let bob = tokio::spawn({
        let node = node.clone();
        async move { claim(&node, "bob").await }
    });
    in_time(line.met(1)).await;
    let _: String = keeper.ask(&["REPLICAOF", "127.0.0.1", "1"]).await;
    line.pass();
    let told = in_time(bob).await.expect("it ends");
    let _: String = keeper.ask(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
    wait_for("a row", async || (foreign.issued(COUPON).await == 2).then_some(())).await;
}

/// A server stands still with more claims waiting than it takes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_waits_longer_than_patience() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let mut hasty = options();
    hasty.patience = Duration::from_secs(1);
    let node = place.node_with(hasty).await;
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    let still = world.freeze_redis();
    let mut crowd = JoinSet::new();
    for number in 0..3_000 {
        let node = node.clone();
        crowd.spawn(async move { claim(&node, &format!("user-{number}")).await });
    }
    // Several times what one may take, and much less than a dozen batches one after the other.
    let all = tokio::time::timeout(Duration::from_secs(6), crowd.join_all()).await.expect("all are told in time");
    drop(still);
    assert!(all.iter().all(Result::is_err));
}

/// Nothing of attempts that failed stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_that_is_rebuilt_again_and_again_leaves_nothing() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_redis_line().await;
    let (node, told, mut keeper) = (lined.node().await, ClaimReplies::default(), place.keeper().await);
    put(&node, limit(50)).await;
    told.crowd(std::slice::from_ref(&node), 0..20).await;
    for number in 20..23 {
        let outbox = keeper.key("outbox").await.expect("an outbox");
        // First: a node that still writes rebuilds by itself.
        line.set(&Point::Script(FILL), 0, ProxyFault::CutAnswer);
        let _: i64 = keeper.ask(&["DEL", &outbox]).await;
        told.crowd(std::slice::from_ref(&node), number..number + 1).await;
        // At most one of each sort, which this looks after.
        for sort in ["users", "keys", "outbox"] {
            assert!(keeper.key(sort).await.is_some(), "{sort}");
        }
    }
    in_time(line.met(3)).await;
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 23).await;
}
