//! A Redis whose settings are changed while a node runs, so that it may lose what it acknowledges.

use crate::claim_replies::{claim_early, limit, put};
use crate::in_time;
use crate::world::{World, options, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::core::coupon::{Acknowledge, CouponSettings, Effect};
use firstcome_store::{ClaimReply, FaultKind};
use firstcome_test_servers::Kind;

const DURABLE: [&str; 2] = ["appendonly=yes", "appendfsync=always"];

fn early(count: u32) -> CouponSettings {
    CouponSettings { acknowledge: Acknowledge::Placed, ..limit(count) }
}

/// Claims as another user each time.
struct Crowd<'a>(&'a Cluster, u32);

impl Crowd<'_> {
    /// Whether the claim was told before the database had it.
    async fn is_answered_early(&mut self) -> bool {
        self.1 += 1;
        match claim_early(self.0, &format!("user-{}", self.1)).await {
            Ok(Ok(Effect::New(ClaimReply::Placed(_)))) => true,
            Ok(Ok(Effect::New(ClaimReply::Stored(_)))) => false,
            other => panic!("{other:?}"),
        }
    }

    async fn until_told_early(&mut self) {
        wait_for("an early answer", async || self.is_answered_early().await.then_some(())).await;
    }
}

fn is_faulty(node: &Cluster) -> bool {
    node.faults().of("redis").is_some_and(|fault| fault.kind == FaultKind::Unfit)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_claim_is_told_early_while_redis_may_lose_the_place() {
    let Some(world) = World::start_with(Kind::Postgres, &DURABLE).await else { return };
    in_time(async {
        let place = world.place().await;
        let mut keeper = place.keeper().await;
        let mut options = options();
        options.allow_forgetful = false;
        let node = place.node_with(options).await;
        put(&node, early(100_000)).await;
        let mut crowd = Crowd(&node, 0);
        crowd.until_told_early().await;
        for (setting, unfit, fit) in [
            ("appendonly", "no", "yes"),
            ("appendfsync", "everysec", "always"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ] {
            let _: String = keeper.ask(&["CONFIG", "SET", setting, unfit]).await;
            wait_for("the fault", async || is_faulty(&node).then_some(())).await;
            // Claims go on, and each is told when the database has it.
            for _ in 0..5 {
                assert!(!crowd.is_answered_early().await, "{setting} {unfit}");
            }
            let _: String = keeper.ask(&["CONFIG", "SET", setting, fit]).await;
            wait_for("the end of the fault", async || (!is_faulty(&node)).then_some(())).await;
            crowd.until_told_early().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_does_not_sync_stops_nothing_where_no_coupon_needs_it() {
    let Some(world) = World::start_with(Kind::Postgres, &DURABLE).await else { return };
    in_time(async {
        let place = world.place().await;
        let mut keeper = place.keeper().await;
        let mut options = options();
        options.allow_forgetful = false;
        let node = place.node_with(options).await;
        put(&node, early(100_000)).await;
        let _: String = keeper.ask(&["CONFIG", "SET", "appendonly", "no"]).await;
        wait_for("the fault", async || is_faulty(&node).then_some(())).await;
        put(&node, limit(100_000)).await;
        wait_for("the end of the fault", async || (!is_faulty(&node)).then_some(())).await;
        assert!(!Crowd(&node, 0).is_answered_early().await);
    })
    .await;
}
