//! Nodes that write to the database, and die, stand still, or are two.

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, claim_early, limit, new, put};
use crate::in_time;
use crate::proxy::{Point, ProxyFault};
use crate::scripts::SETTLE;
use crate::world::{World, options, secret, wait_for};
use firstcome_cluster::{Cluster, repair};
use firstcome_store::core::coupon::{Acknowledge, CouponSettings};
use firstcome_test_servers::Kind;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// How long a lease lasts, and as long again for a slow machine.
const LEASES: Duration = Duration::from_secs(4);

/// A node dies before or after it has written, and before it says so; the claim that waits already is told by another.
async fn another_takes_over(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    // Before its batch is written, and after it.
    for after in 0..2 {
        let place = world.place().await;
        let (lined, line) = place.by_redis_line().await;
        let (dying, node) = (lined.node().await, place.node().await);
        put(&node, limit(9)).await;
        line.set(&Point::Script(SETTLE), after, ProxyFault::Hold);
        let ann = tokio::spawn(async move { claim(&dying, "ann").await });
        in_time(line.met(1)).await;
        if after == 1 {
            // It told its own caller first.
            assert_eq!(new(in_time(ann).await.expect("it ends")).issued.serial.get(), 1);
        } else {
            ann.abort();
        }
        // All alone, so that no other caller asks the sequencer.
        let bob = timeout(LEASES, claim(&node, "bob")).await.expect("it goes on");
        assert_eq!(new(bob).issued.serial.get(), 2, "{after}");
        drop(line);
        let told = ClaimReplies::default();
        assert!(told.once(&node, "ann").await && told.once(&node, "bob").await);
        assert_eq!((told.count(), told.new_count()), (2, 0), "both have theirs");
        told.check(&place, &[node], 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_for_one_that_died_on_postgres() {
    another_takes_over(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_for_one_that_died_on_mariadb() {
    another_takes_over(Kind::MariaDb).await;
}

/// Both have read the same entries, and wait for the same row.
async fn two_drain(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    let (nodes, told) = (place.nodes(2).await, ClaimReplies::default());
    let (mut keeper, mut foreign, mut watcher) = (place.keeper().await, place.foreign().await, place.foreign().await);
    put(&nodes[0], limit(50)).await;
    foreign.lock(COUPON).await;
    let mut crowds = Vec::new();
    for (node, users, waiting) in [(&nodes[0], 0..30, 1), (&nodes[1], 30..60, 2)] {
        // A caller that drains does not seem to.
        keeper.set_gate(&["node", "", "until", "0"]).await;
        let (told, node) = (told.clone(), node.clone());
        crowds.push(tokio::spawn(async move { told.crowd(&[node], users).await }));
        wait_for("nodes that wait for the row", async || (waiting <= watcher.waiting().await).then_some(())).await;
    }
    foreign.say("COMMIT").await;
    for crowd in crowds {
        in_time(crowd).await.expect("it ends");
    }
    told.check(&place, &nodes, 50).await;
    assert_eq!(nodes.iter().map(|node| node.counts().written).sum::<u64>(), 50, "each once");
    assert_eq!(nodes.iter().map(|node| node.counts().rebuilt).sum::<u64>(), 1, "nothing was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_drain_at_once_write_each_claim_once_on_postgres() {
    two_drain(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_drain_at_once_write_each_claim_once_on_mariadb() {
    two_drain(Kind::MariaDb).await;
}

/// A node stands still with its transaction open: the database ends it, and another node goes on.
async fn stands_still(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_sql_line().await;
    let mut hasty = options();
    hasty.database.idle_timeout = Duration::from_secs(1);
    let (frozen, node) = (lined.node_with(hasty.clone()).await, place.node_with(hasty).await);
    put(&node, limit(9)).await;
    line.set(&Point::Commit, 0, ProxyFault::Hold);
    let ann = tokio::spawn(async move { claim(&frozen, "ann").await });
    in_time(line.met(1)).await;
    assert_eq!(new(in_time(claim(&node, "bob")).await).issued.serial.get(), 2);
    line.pass();
    assert_eq!(new(in_time(ann).await.expect("it ends")).issued.serial.get(), 1);
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_for_one_that_stands_still_on_postgres() {
    stands_still(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_for_one_that_stands_still_on_mariadb() {
    stands_still(Kind::MariaDb).await;
}

/// Ever more claims come to a node, one after the other; how they end does not matter.
async fn ask_on(node: Cluster) {
    let (mut claims, mut next) = (JoinSet::new(), interval(Duration::from_millis(100)));
    for number in 0.. {
        next.tick().await;
        let node = node.clone();
        claims.spawn(async move { claim(&node, &format!("user-{number}")).await });
    }
}

/// The node whose turn it is loses the database, which others reach: it stands still, or the connections break at once.
async fn cannot_write(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    for what in [ProxyFault::Hold, ProxyFault::CutAll] {
        let place = world.place().await;
        let (lined, line) = place.by_sql_line().await;
        let (cut_off, node) = (lined.node().await, place.node().await);
        put(&node, limit(1_000)).await;
        line.set(&Point::Text("UPDATE firstcome_coupon SET issued"), 0, what);
        // It goes on to ask the sequencer, and would so keep its turn.
        let asking = tokio::spawn(ask_on(cut_off.clone()));
        in_time(line.met(1)).await;
        let told = ClaimReplies::default();
        for user in ["ann", "bob"] {
            let is_told = timeout(Duration::from_secs(6), told.once(&node, user)).await;
            assert_eq!(is_told, Ok(true), "{what:?}: {user}");
        }
        assert_eq!(told.new_count(), 2, "{what:?}");
        asking.abort();
        drop(node);
        // Alone, and with the database again, it takes its turn.
        line.pass();
        told.crowd(std::slice::from_ref(&cut_off), 900..901).await;
        let tickets = place.keeper().await.sequencer("ticket").await.and_then(|ticket| ticket.parse().ok());
        told.check(&place, &[cut_off], tickets.expect("a number")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_cannot_write_to_postgres_lets_others() {
    cannot_write(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_cannot_write_to_mariadb_lets_others() {
    cannot_write(Kind::MariaDb).await;
}

/// More waits than it writes in the time that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_ends_and_lets_others_go_on() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_sql_line().await;
    let dying = lined.node().await;
    put(&dying, CouponSettings { acknowledge: Acknowledge::Placed, ..limit(5_000) }).await;
    line.set(&Point::Text("UPDATE firstcome_coupon SET issued"), 0, ProxyFault::Hold);
    for number in 0..1_000 {
        claim_early(&dying, &format!("user-{number}")).await.expect("it answers").expect("there are some left");
    }
    in_time(line.met(1)).await;
    drop((dying, line));
    let mut hasty = options();
    hasty.patience = Duration::ZERO;
    let (mut foreign, mut keeper) = (place.foreign().await, place.keeper().await);
    // It has been dead for longer than its lease.
    keeper.set_gate(&["node", "", "until", "0"]).await;
    in_time(repair(&place.redis, &place.sql, secret(), hasty)).await.expect("it answers");
    let issued = foreign.issued(COUPON).await;
    assert!((1..1_000).contains(&issued), "{issued}");
    assert_eq!(keeper.sequencer("position").await, Some(issued.to_string()), "it has said so");
    assert_eq!(keeper.sequencer("node").await.as_deref(), Some(""), "whoever comes may write at once");
    in_time(repair(&place.redis, &place.sql, secret(), options())).await.expect("it answers");
    claim_replies::check_rows(&mut foreign, COUPON, 1_000).await;
}
