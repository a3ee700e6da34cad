//! Calls and answers of Redis that are lost on the way.

use crate::claim_replies::{self, COUPON, claim, coupon, keyed, limit, new, put};
use crate::in_time;
use crate::proxy::{Point, Proxy, ProxyFault};
use crate::scripts::{ADJUST, CLAIM, CLEAR, FILL, OPEN, SEIZE, SETTLE};
use crate::world::{TestDeployment, World, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::core::coupon::{Claim, Effect, Rejection};
use firstcome_store::{Answer, Claimed, CouponStore};
use firstcome_test_servers::Kind;
use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;

const CUTS: [ProxyFault; 2] = [ProxyFault::CutAnswer, ProxyFault::CutRequest];

/// A coupon with one claim, a node by a line, and a node without.
async fn set_up(world: &World) -> (TestDeployment, Proxy, [Cluster; 2]) {
    let place = world.place().await;
    let (lined, line) = place.by_redis_line().await;
    let nodes = [lined.node().await, place.node().await];
    put(&nodes[0], limit(4)).await;
    assert_eq!(new(claim(&nodes[0], "ann").await).issued.serial.get(), 1);
    let mut keeper = place.keeper().await;
    wait_for("a sequencer that knows", async || {
        (keeper.sequencer("position").await.as_deref() == Some("1")).then_some(())
    })
    .await;
    (place, line, nodes)
}

/// Two more find a place, and no third; every claim has drawn one ticket.
async fn fills_up(place: &TestDeployment, nodes: &[Cluster; 2]) {
    for (node, (user, serial)) in nodes.iter().zip([("cid", 3), ("dan", 4)]) {
        assert_eq!(new(in_time(claim(node, user)).await).issued.serial.get(), serial, "{user}");
    }
    for node in nodes {
        assert_eq!(claim_replies::refusal(claim(node, "eve").await), Rejection::SoldOut);
    }
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 4).await;
    assert_eq!(place.keeper().await.sequencer("ticket").await.as_deref(), Some("4"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_is_told_as_new_and_is_one() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for what in CUTS {
        for request in [by_bob as fn() -> _, by_bob_with_key] {
            let (place, line, nodes) = set_up(&world).await;
            line.set(&Point::Script(CLAIM), 0, what);
            let bob = new(in_time(nodes[0].claim(&coupon(COUPON), request())).await);
            line.met(1).await;
            assert_eq!(bob.issued.serial.get(), 2, "{what:?}");
            fills_up(&place, &nodes).await;
        }
    }
}

fn by_bob() -> Claim {
    claim_replies::by("bob")
}

fn by_bob_with_key() -> Claim {
    keyed("bob", 7, 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_is_lost_is_given_again() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for what in CUTS {
        // Before the batch is written, and after it.
        for after in 0..2 {
            let (place, line, nodes) = set_up(&world).await;
            line.set(&Point::Script(SETTLE), after, what);
            assert_eq!(new(in_time(claim(&nodes[0], "bob")).await).issued.serial.get(), 2, "{what:?} {after}");
            in_time(line.met(1)).await;
            fills_up(&place, &nodes).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_that_is_rebuilt_in_pieces_is_whole_before_it_is_open() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for script in [SEIZE, CLEAR, FILL, OPEN] {
        for what in CUTS {
            let (place, line, nodes) = set_up(&world).await;
            // First: a node that still writes rebuilds by itself.
            line.set(&Point::Script(script), 0, what);
            let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
            assert_eq!(new(in_time(claim(&nodes[0], "bob")).await).issued.serial.get(), 2, "{what:?}");
            in_time(line.met(1)).await;
            let mut keeper = place.keeper().await;
            let users = keeper.key("users").await.expect("it is there");
            let ann: Option<String> = keeper.ask(&["HGET", &users, "ann"]).await;
            assert_eq!(ann.as_deref(), Some("0"), "who has a claim is in the sequencer");
            fills_up(&place, &nodes).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_whose_way_to_the_sequencer_was_cut_are_in_force_when_they_are_told() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for what in CUTS {
        let (place, line, nodes) = set_up(&world).await;
        line.set(&Point::Script(ADJUST), 0, what);
        wait_for("an answer", async || {
            let put = nodes[0].put_coupon(&coupon(COUPON), limit(1)).await;
            put.ok().map(|put| put.expect("it may be"))
        })
        .await;
        in_time(line.met(1)).await;
        assert_eq!(place.keeper().await.sequencer("limit").await.as_deref(), Some("1"));
        for node in &nodes {
            assert_eq!(claim_replies::refusal(claim(node, "bob").await), Rejection::SoldOut);
        }
    }
}

/// What waits while one call is under way goes into the next one together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_one_user_or_key_in_one_call_draw_one_ticket() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let (place, line, nodes) = set_up(&world).await;
    put(&nodes[0], limit(9)).await;
    line.set(&Point::Script(CLAIM), 0, ProxyFault::Hold);
    let first = nodes[0].clone();
    let first = tokio::spawn(async move { claim(&first, "zoe").await });
    in_time(line.met(1)).await;
    let name = coupon(COUPON);
    let mut asked = vec![by_bob(); 10];
    asked.extend([keyed("cid", 7, 1), keyed("cid", 7, 1), keyed("dan", 7, 2)]);
    let mut claims: Vec<_> = asked.into_iter().map(|asked| Box::pin(nodes[0].claim(&name, asked))).collect();
    for claim in &mut claims {
        // So each has taken its place.
        assert!(timeout(Duration::ZERO, claim).await.is_err());
    }
    line.pass();
    new(in_time(first).await.expect("it ends"));
    let told = in_time(join_all(claims)).await;
    let is_new = |told: &&Answer<Effect<Claimed>>| matches!(told, Ok(Ok(Effect::New(_))));
    assert_eq!([&told[..10], &told[10..]].map(|told| told.iter().filter(is_new).count()), [1, 1]);
    assert_eq!(claim_replies::refusal(told[12].clone()).code(), "idempotency_key_reused");
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 4).await;
    assert_eq!(place.keeper().await.sequencer("ticket").await.as_deref(), Some("4"));
}

/// Waits for one after the other: none needs to be polled to go on.
async fn join_all<T>(claims: Vec<impl Future<Output = T> + Unpin>) -> Vec<T> {
    let mut told = Vec::new();
    for claim in claims {
        told.push(claim.await);
    }
    told
}
