//! SQL goes back: it lacks what it had acknowledged, as a restored backup does, or a copy that was behind. No node issues anything
//! of that coupon, and none refuses because a row is missing, until the newer rows are back or an operator has accepted the loss.

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, coupon, keyed, limit, new, put};
use crate::in_time;
use crate::losses::{Snapshot, rebuilt};
use crate::world::{Foreign, TestDeployment, World, options, secret, wait_for};
use firstcome_cluster::{Cluster, Reconciled, Repair, State, accept_loss, reconcile};
use firstcome_store::core::coupon::Effect;
use firstcome_store::{CouponStore, FaultKind, RedeemRequest, StoreError};
use firstcome_test_servers::Kind;

/// The state of the coupon to which SQL goes back.
struct Before(String);

impl Before {
    async fn of(foreign: &mut Foreign) -> Self {
        let mut row = Vec::new();
        for column in ["generation", "position", "issued", "anchor", "last_at", "loss_accepted"] {
            row.push(format!("{column}={}", foreign.number(&format!("SELECT {column} FROM firstcome_coupon")).await));
        }
        Self(row.join(","))
    }

    /// Goes back: all that came later is gone.
    async fn happen(&self, foreign: &mut Foreign) {
        foreign.say(&format!("UPDATE firstcome_coupon SET {}", self.0)).await;
        for table in ["coupon_request", "claim"] {
            let gone = "serial>(SELECT issued FROM firstcome_coupon)";
            foreign.say(&format!("DELETE FROM firstcome_{table} WHERE {gone}")).await;
        }
    }
}

fn is_back(error: &StoreError) -> bool {
    matches!(error, StoreError::Faulted(fault) if fault.kind == FaultKind::WentBack)
}

/// Claims until the node says why it does not issue; it issues nothing meanwhile.
async fn stands_still(node: &Cluster, user: &str) {
    wait_for("a node that stands still", async || match claim(node, user).await {
        Err(error) => is_back(&error).then_some(()),
        other => panic!("{user}: {other:?}"),
    })
    .await;
    assert!(node.faults().of(&format!("coupon {COUPON}")).is_some_and(|fault| fault.kind == FaultKind::WentBack));
}

async fn accept(place: &TestDeployment) -> Reconciled {
    accept_loss(&place.redis, &place.sql, secret(), options()).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn goes_on(node: &Cluster, user: &str) -> u32 {
    let claimed = wait_for("a node that goes on", async || match claim(node, user).await {
        Ok(Ok(Effect::New(claimed))) => Some(claimed),
        Ok(other) => panic!("{user}: {other:?}"),
        Err(_) => None,
    });
    claimed.await.issued.serial.get()
}

/// A node that never stopped, one that never heard of the lost claim, and one that is started afterwards.
async fn stops_all(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    let (nodes, mut foreign, mut keeper) = (place.nodes(2).await, place.foreign().await, place.keeper().await);
    put(&nodes[0], limit(9)).await;
    new(claim(&nodes[1], "zoe").await);
    let before = Before::of(&mut foreign).await;
    let ann = new(nodes[0].claim(&coupon(COUPON), keyed("ann", 7, 1)).await);
    wait_for("a sequencer that knows", async || {
        (keeper.sequencer("position").await.as_deref() == Some("2")).then_some(())
    })
    .await;
    before.happen(&mut foreign).await;
    let later = place.node().await;
    let sequencer = keeper.sequencer("generation").await;
    // The first thing that this node is asked.
    let of_ann = later.claim_of(&coupon(COUPON), "ann").await;
    assert!(of_ann.as_ref().is_err_and(is_back), "{of_ann:?}");
    for (node, user) in [(&nodes[0], "bob"), (&nodes[1], "cid"), (&later, "dan")] {
        stands_still(node, user).await;
        // The same key is hers, and no node says that she has nothing.
        let again = node.claim(&coupon(COUPON), keyed("ann", 7, 1)).await;
        assert!(again.as_ref().is_err_and(is_back), "{again:?}");
        let of_ann = node.claim_of(&coupon(COUPON), "ann").await;
        assert!(of_ann.as_ref().is_err_and(is_back), "{of_ann:?}");
        let redeem = RedeemRequest { code: ann.code.as_str().to_owned(), user: None, request: None };
        let redeemed = node.redeem(&coupon(COUPON), redeem).await;
        assert!(redeemed.as_ref().is_err_and(is_back), "{redeemed:?}");
        // What is there is told.
        assert!(node.claim_of(&coupon(COUPON), "zoe").await.is_ok_and(|told| told.is_ok_and(|zoe| zoe.is_some())));
    }
    assert_eq!(keeper.sequencer("generation").await, sequencer, "the sequencer is evidence");
    assert_eq!(foreign.issued(COUPON).await, 1);
    let found = reconcile(&place.redis, &place.sql).await.expect("it looks");
    let found = found.findings.iter().find(|found| found.state == State::WentBack).expect("it is found");
    assert!(found.needs_repair() && found.says.contains("ann (ticket 2)"), "{found:?}");
    let accepted = accept(&place).await;
    let done = accepted.findings.iter().find(|found| found.state == State::WentBack).expect("it is found");
    assert!(matches!(done.repair, Repair::Done(_)) && done.says.contains("ann (ticket 2)"), "{done:?}");
    for (node, user, serial) in [(&nodes[0], "bob", 2), (&nodes[1], "cid", 3), (&later, "dan", 4)] {
        assert_eq!(goes_on(node, user).await, serial, "{user}");
    }
    for node in nodes.iter().chain([&later]) {
        wait_for("no fault", async || node.faults().open().is_empty().then_some(())).await;
    }
    let found = reconcile(&place.redis, &place.sql).await.expect("it looks");
    assert!(!found.findings.iter().any(|found| found.state == State::WentBack), "{found:?}");
    claim_replies::check_rows(&mut foreign, COUPON, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_goes_on_where_a_postgres_that_went_back_is_until_an_operator_says_so() {
    in_time(stops_all(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_goes_on_where_a_mariadb_that_went_back_is_until_an_operator_says_so() {
    in_time(stops_all(Kind::MariaDb)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_node_that_remembers_notices_though_redis_is_empty_and_goes_on_when_the_newer_rows_are_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut foreign, mut keeper) = (place.node().await, place.foreign().await, place.keeper().await);
    put(&node, limit(9)).await;
    new(claim(&node, "zoe").await);
    let before = Before::of(&mut foreign).await;
    new(claim(&node, "ann").await);
    let after = Before::of(&mut foreign).await;
    foreign.say("CREATE TABLE kept AS SELECT * FROM firstcome_claim").await;
    let _: String = keeper.ask(&["FLUSHDB"]).await;
    before.happen(&mut foreign).await;
    wait_for("a fault without a call", async || (!node.faults().open().is_empty()).then_some(())).await;
    stands_still(&node, "bob").await;
    assert_eq!(node.counts().rebuilt, 1, "no sequencer is rebuilt from what is behind");
    foreign.say("INSERT INTO firstcome_claim SELECT * FROM kept WHERE name='ann'").await;
    foreign.say(&format!("UPDATE firstcome_coupon SET {}", after.0)).await;
    assert_eq!(goes_on(&node, "bob").await, 3);
    assert!(node.faults().open().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_under_load_raise_no_false_alarm_and_an_older_redis_heals_by_itself() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut keeper, told) = (place.nodes(3).await, place.keeper().await, ClaimReplies::default());
    put(&nodes[0], limit(400)).await;
    told.crowd(&nodes, 0..100).await;
    let older = Snapshot::of(&mut keeper).await;
    told.crowd(&nodes, 100..200).await;
    let under_way = tokio::spawn({
        let (told, nodes) = (told.clone(), nodes.clone());
        async move { told.crowd(&nodes, 200..300).await }
    });
    wait_for("a claim", async || (200 < told.count()).then_some(())).await;
    older.put_back(&mut keeper).await;
    under_way.await.expect("it ends");
    // All of them may have been let in before: the next caller finds that the sequencer is older.
    told.crowd(&nodes, 300..320).await;
    assert!(1 < rebuilt(&nodes));
    for node in &nodes {
        assert_eq!(node.faults().raised(), 0, "{:?}", node.faults().open());
    }
    told.check(&place, &nodes, 320).await;
}
