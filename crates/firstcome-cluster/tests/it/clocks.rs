//! The clock of Redis is set forward and back.

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, coupon, limit, new, put};
use crate::in_time;
use crate::world::{World, wait_for};
use firstcome_store::CouponStore;
use firstcome_store::core::coupon::{CouponSettings, Rejection};
use firstcome_store::core::time::Timestamp;
use firstcome_test_servers::Kind;
use std::time::Duration;
use tokio::time::timeout;

const HOUR_US: i64 = 3_600_000_000;
/// How long a lease lasts, and as long again for a slow machine.
const LEASES: Duration = Duration::from_secs(4);

fn until(at_us: i64) -> CouponSettings {
    CouponSettings { expires_at: Timestamp::from_us(at_us), ..limit(9) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_waits_for_a_dead_node_longer_than_its_lease_no_matter_what_the_clock_said() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    // One that it has just taken, and one from before the clock was set back.
    for ends_us in [2_000_000, HOUR_US] {
        let place = world.place().await;
        let (node, mut keeper) = (place.node().await, place.keeper().await);
        put(&node, limit(9)).await;
        let ends_ms = ((keeper.now_us().await + ends_us) / 1_000).to_string();
        keeper.set_gate(&["node", "dead", "until", &ends_ms]).await;
        new(timeout(LEASES, claim(&node, "ann")).await.expect("it writes"));
        // The same where one makes the sequencer anew.
        let sequencer = keeper.key("gate").await.expect("a sequencer");
        let lease = sequencer.replace(":gate", ":lease");
        let ends_ms = ((keeper.now_us().await + ends_us) / 1_000).to_string();
        let _: i64 = keeper.ask(&["HSET", &lease, "node", "dead", "until", &ends_ms]).await;
        let _: i64 = keeper.ask(&["DEL", &sequencer]).await;
        new(timeout(LEASES, claim(&node, "bob")).await.expect("it opens"));
        claim_replies::check_rows(&mut place.foreign().await, COUPON, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_node_keeps_its_lease() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut foreign, mut keeper) = (place.nodes(2).await, place.foreign().await, place.keeper().await);
    put(&nodes[0], limit(9)).await;
    foreign.lock(COUPON).await;
    let (first, second) = (nodes[0].clone(), nodes[1].clone());
    let ann = tokio::spawn(async move { claim(&first, "ann").await });
    let own =
        wait_for("a node that drains", async || keeper.sequencer("node").await.filter(|node| !node.is_empty())).await;
    let bob = tokio::spawn(async move { claim(&second, "bob").await });
    wait_for("a second ticket", async || (keeper.sequencer("ticket").await.as_deref() == Some("2")).then_some(()))
        .await;
    assert_eq!(keeper.sequencer("node").await, Some(own), "the other does not drain");
    foreign.say("COMMIT").await;
    for (claim, serial) in [(ann, 1), (bob, 2)] {
        assert_eq!(new(in_time(claim).await.expect("it ends")).issued.serial.get(), serial);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_to_be_expired_stays_so_when_the_clock_is_set_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut keeper) = (place.nodes(2).await, place.keeper().await);
    let now_us = keeper.now_us().await;
    put(&nodes[0], until(now_us + HOUR_US)).await;
    new(claim(&nodes[0], "ann").await);
    let clock: i64 = keeper.sequencer("clock").await.and_then(|clock| clock.parse().ok()).expect("an instant");
    assert!(now_us <= clock, "the latest instant by which anybody was judged");
    // The clock was two hours ahead, and is right again.
    keeper.set_gate(&["clock", &(now_us + 2 * HOUR_US).to_string()]).await;
    for node in &nodes {
        let expires_at = Timestamp::from_us(now_us + HOUR_US).expect("an instant");
        assert_eq!(claim_replies::refusal(claim(node, "bob").await), Rejection::Expired(expires_at));
    }
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 1).await;
}

/// A sequencer is lost with what it has told; the next one begins where the database is at least.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_that_is_rebuilt_judges_no_caller_by_an_instant_that_is_over() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper) = (place.node().await, place.keeper().await);
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    let now_us = keeper.now_us().await;
    let _: String = keeper.ask(&["FLUSHDB"]).await;
    new(claim(&node, "bob").await);
    let clock: i64 = keeper.sequencer("clock").await.and_then(|clock| clock.parse().ok()).expect("an instant");
    assert!(now_us <= clock, "{clock}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instants_of_claims_never_fall_along_the_serials() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut keeper, told) = (place.nodes(2).await, place.keeper().await, ClaimReplies::default());
    put(&nodes[0], limit(9)).await;
    let now_us = keeper.now_us().await;
    told.crowd(&nodes, 0..2).await;
    // The last claim was let in by a clock that was ahead.
    keeper.set_gate(&["last", &(now_us + HOUR_US).to_string()]).await;
    told.crowd(&nodes, 2..4).await;
    // A sequencer that has forgotten it.
    keeper.set_gate(&["last", "0"]).await;
    told.crowd(&nodes, 4..6).await;
    // And one that is rebuilt knows it again.
    let _: String = keeper.ask(&["FLUSHDB"]).await;
    told.crowd(&nodes, 6..8).await;
    told.check(&place, &nodes, 8).await;
    let last: i64 = keeper.sequencer("last").await.and_then(|last| last.parse().ok()).expect("an instant");
    assert!(now_us + HOUR_US <= last, "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_claim_bears_an_instant_after_the_end() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper) = (place.node().await, place.keeper().await);
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    let now_us = keeper.now_us().await;
    // A claim was let in while the clock was an hour ahead; then it was set right, and the coupon given an end.
    keeper.set_gate(&["last", &(now_us + HOUR_US).to_string()]).await;
    put(&node, until(now_us + HOUR_US / 2)).await;
    let refusal = claim_replies::refusal(in_time(claim(&node, "bob")).await);
    assert!(matches!(refusal, Rejection::Expired(_)), "{refusal:?}");
    // A caller that is asked again says the same.
    let record = node.claim_of(&coupon(COUPON), "bob").await.expect("it answers").expect("it is there");
    assert_eq!(record, None);
}
