//! Settings that one node has put into the database, and the sequencer has not heard of: the database's word counts.

use crate::claim_replies::{self, COUPON, claim, coupon, limit, new, put, refusal};
use crate::in_time;
use crate::proxy::{Point, Proxy, ProxyFault};
use crate::scripts::ADJUST;
use crate::world::{Keeper, TestDeployment, World, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::core::coupon::{CouponSettings, Rejection};
use firstcome_store::core::time::Timestamp;
use firstcome_store::{CouponStore, StoreError};
use firstcome_test_servers::Kind;

/// A coupon with two claims, and two nodes; what the first of them says to the sequencer can be kept from it.
struct Stage {
    place: TestDeployment,
    line: Proxy,
    nodes: [Cluster; 2],
    keeper: Keeper,
}

impl Stage {
    async fn set(world: &World, count: u32) -> Self {
        let place = world.place().await;
        let (lined, line) = place.by_redis_line().await;
        let (nodes, mut keeper) = ([lined.node().await, place.node().await], place.keeper().await);
        put(&nodes[0], limit(count)).await;
        for (node, user) in nodes.iter().zip(["ann", "bob"]) {
            new(claim(node, user).await);
        }
        wait_for("a sequencer that knows", async || {
            (keeper.sequencer("position").await.as_deref() == Some("2")).then_some(())
        })
        .await;
        Self { place, line, nodes, keeper }
    }

    /// The first node puts settings into the database, and dies before the sequencer hears of them. No caller was told that they
    /// are in force.
    async fn put_behind_the_sequencer(&self, settings: CouponSettings) {
        self.line.set(&Point::Script(ADJUST), 0, ProxyFault::Hold);
        let told = in_time(self.nodes[0].put_coupon(&coupon(COUPON), settings)).await;
        assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
    }

    /// The sequencer judges by these settings now.
    async fn has_healed(&mut self) {
        assert_eq!(self.keeper.sequencer("version").await.as_deref(), Some("2"));
    }

    async fn rows(&self, count: usize) {
        claim_replies::check_rows(&mut self.place.foreign().await, COUPON, count).await;
    }
}

fn until(at_us: i64) -> CouponSettings {
    CouponSettings { expires_at: Timestamp::from_us(at_us), ..limit(9) }
}

async fn is_lowered(world: &World) {
    let mut stage = Stage::set(world, 9).await;
    stage.put_behind_the_sequencer(limit(3)).await;
    let node = &stage.nodes[1];
    let (cid, dan) = tokio::join!(claim(node, "cid"), claim(node, "dan"));
    let is_new = |told: &_| matches!(told, Ok(Ok(_)));
    assert!(is_new(&cid) != is_new(&dan), "{cid:?} {dan:?}");
    assert_eq!(refusal(if is_new(&cid) { dan } else { cid }), Rejection::SoldOut);
    assert_eq!(refusal(claim(node, "eve").await), Rejection::SoldOut);
    stage.rows(3).await;
    stage.has_healed().await;
}

async fn is_raised(world: &World) {
    let mut stage = Stage::set(world, 2).await;
    stage.put_behind_the_sequencer(limit(3)).await;
    assert_eq!(new(in_time(claim(&stage.nodes[1], "cid")).await).issued.serial.get(), 3);
    assert_eq!(refusal(claim(&stage.nodes[1], "dan").await), Rejection::SoldOut);
    stage.rows(3).await;
    stage.has_healed().await;
}

async fn is_deleted(world: &World) {
    let mut stage = Stage::set(world, 9).await;
    stage.line.set(&Point::Script(ADJUST), 0, ProxyFault::Hold);
    let told = in_time(stage.nodes[0].delete_coupon(&coupon(COUPON))).await;
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
    assert_eq!(refusal(in_time(claim(&stage.nodes[1], "cid")).await), Rejection::Deleted);
    stage.rows(2).await;
    wait_for("nothing of it on Redis", async || {
        stage.keeper.ask::<Vec<String>>(&["KEYS", "fc:{c*"]).await.is_empty().then_some(())
    })
    .await;
}

async fn is_ended(world: &World) {
    let mut stage = Stage::set(world, 9).await;
    let ended = Timestamp::from_us(stage.keeper.now_us().await - 1).expect("an instant");
    stage.put_behind_the_sequencer(until(ended.as_us())).await;
    assert_eq!(refusal(in_time(claim(&stage.nodes[1], "cid")).await), Rejection::Expired(ended));
    stage.rows(2).await;
    stage.has_healed().await;
}

async fn all_behind_the_sequencer(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    is_lowered(&world).await;
    is_raised(&world).await;
    is_deleted(&world).await;
    is_ended(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_only_postgres_has_count() {
    all_behind_the_sequencer(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_only_mariadb_has_count() {
    all_behind_the_sequencer(Kind::MariaDb).await;
}

/// What was told to be in force is, on every node, from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_is_refused_by_settings_that_were_replaced_before() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let mut stage = Stage::set(&world, 2).await;
    let [first, second] = &stage.nodes;
    assert_eq!(refusal(claim(second, "cid").await), Rejection::SoldOut);
    put(first, limit(4)).await;
    new(claim(second, "cid").await);
    let now_us = stage.keeper.now_us().await;
    put(second, until(now_us - 1)).await;
    assert!(matches!(refusal(claim(first, "dan").await), Rejection::Expired(_)));
    put(second, until(now_us + 3_600_000_000)).await;
    new(claim(first, "dan").await);
    // An older version that comes late has no effect.
    put(second, limit(4)).await;
    assert_eq!(refusal(claim(first, "eve").await), Rejection::SoldOut);
    first.delete_coupon(&coupon(COUPON)).await.expect("it answers").expect("it may be");
    assert_eq!(refusal(claim(second, "eve").await), Rejection::Deleted);
    stage.rows(4).await;
}

/// The call that was held up comes when another node has put later settings in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_come_late_to_the_sequencer_have_no_effect() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let mut stage = Stage::set(&world, 9).await;
    stage.line.set(&Point::Script(ADJUST), 0, ProxyFault::Hold);
    let first = stage.nodes[0].clone();
    let late = tokio::spawn(async move { first.put_coupon(&coupon(COUPON), limit(2)).await });
    in_time(stage.line.met(1)).await;
    put(&stage.nodes[1], limit(3)).await;
    stage.line.pass();
    // Whether it was in force for a moment is all the same.
    let _ = in_time(late).await.expect("it ends");
    assert_eq!(stage.keeper.sequencer("limit").await.as_deref(), Some("3"));
    new(claim(&stage.nodes[1], "cid").await);
    assert_eq!(refusal(claim(&stage.nodes[1], "dan").await), Rejection::SoldOut);
}

/// Claims wait for the database while a caller ends the coupon there: they are judged by what holds when they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_let_in_under_old_settings_is_judged_by_the_new_ones() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let mut stage = Stage::set(&world, 9).await;
    let mut foreign = stage.place.foreign().await;
    foreign.lock(COUPON).await;
    let claims = ["cid", "dan", "eve"].map(|user| {
        let node = stage.nodes[1].clone();
        tokio::spawn(async move { claim(&node, user).await })
    });
    wait_for("three tickets", async || (stage.keeper.sequencer("ticket").await.as_deref() == Some("5")).then_some(()))
        .await;
    foreign.say("UPDATE firstcome_coupon SET limit_count=4,version=version+1; COMMIT").await;
    let mut refused = 0;
    for claim in claims {
        match in_time(claim).await.expect("it ends") {
            Ok(Ok(_)) => {}
            other => {
                assert_eq!(refusal(other), Rejection::SoldOut);
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 1);
    stage.rows(4).await;
}
