//! Nodes that write to the database, and die, stand still, or are two.

use crate::in_time;
use crate::line::{Point, What};
use crate::scripts::SETTLE;
use crate::told::{self, COUPON, Told, claim, limit, new, put};
use crate::world::{World, options, wait_for};
use firstcome_servers::Kind;
use std::time::Duration;
use tokio::time::timeout;

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
        line.set(&Point::Script(SETTLE), after, What::Hold);
        let ann = tokio::spawn(async move { claim(&dying, "ann").await });
        in_time(line.met(1)).await;
        if after == 1 {
            // It told its own caller first.
            assert_eq!(new(in_time(ann).await.expect("it ends")).issued.serial.get(), 1);
        } else {
            ann.abort();
        }
        // All alone, so that nobody else asks the gate.
        let bob = timeout(LEASES, claim(&node, "bob")).await.expect("it goes on");
        assert_eq!(new(bob).issued.serial.get(), 2, "{after}");
        drop(line);
        let told = Told::default();
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
    let (nodes, told) = (place.nodes(2).await, Told::default());
    let (mut keeper, mut foreign, mut watcher) = (place.keeper().await, place.foreign().await, place.foreign().await);
    put(&nodes[0], limit(50)).await;
    foreign.lock(COUPON).await;
    let mut crowds = Vec::new();
    for (node, users, waiting) in [(&nodes[0], 0..30, 1), (&nodes[1], 30..60, 2)] {
        // Whoever drains does not seem to.
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
    line.set(&Point::Commit, 0, What::Hold);
    let ann = tokio::spawn(async move { claim(&frozen, "ann").await });
    in_time(line.met(1)).await;
    assert_eq!(new(in_time(claim(&node, "bob")).await).issued.serial.get(), 2);
    line.pass();
    assert_eq!(new(in_time(ann).await.expect("it ends")).issued.serial.get(), 1);
    told::check_rows(&mut place.foreign().await, COUPON, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_for_one_that_stands_still_on_postgres() {
    stands_still(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_for_one_that_stands_still_on_mariadb() {
    stands_still(Kind::MariaDb).await;
}
